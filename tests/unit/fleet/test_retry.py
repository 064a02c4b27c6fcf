"""Further tries of a case whose job broke: when there are any, under which name, and on which nodes."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from fixtures.fleet.state import Policy
from plugins.base.errors import SubmitError, Unreachable
from plugins.record.job import JobRef, JobState, Phase
from tests.unit.cluster import BROKEN, NARROW, WIDE, Cluster, Start, told, until


def test_a_broken_job_is_tried_again_and_a_stage_that_is_not_ready_is_not(
    cluster: Cluster, start: Start
) -> None:
    cluster.ends[WIDE.id], cluster.logs[WIDE.id] = [BROKEN], "no step\n"
    entries = start(WIDE, policy=Policy(retries=2)).finish()
    assert cluster.submitted == [WIDE.id, f"{WIDE.id}-try2"]
    assert (entries[WIDE.id].try_number, entries[WIDE.id].failure) == (2, "")


def test_a_try_that_another_one_follows_is_never_seen_as_the_end(
    cluster: Cluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test takes the first `ended` that it sees for its own."""

    def release(jobs: Sequence[JobRef]) -> dict[JobRef, Unreachable]:
        # As on a cluster where something must be deleted, by a server that takes its time.
        time.sleep(0.3)
        return {}

    cluster.ends[WIDE.id], cluster.logs[WIDE.id] = [BROKEN], "no step\n"
    monkeypatch.setattr(cluster, "release", release)
    session = start(WIDE, policy=Policy(retries=1))
    seen = set()
    while session.fleet.running:
        entry = session.entries()[WIDE.id]
        seen |= {entry.ref.name} if entry.status == "ended" else set()
    assert seen == {f"{WIDE.id}-try2"}
    assert [(tried.state.raw, tried.message) for tried in session.ledger.earlier(WIDE.key)] == [
        ("NODE_FAIL", "job 1 ended NODE_FAIL on gpu001")
    ]


def test_what_an_earlier_try_left_says_nothing_of_the_next_one(
    cluster: Cluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a sweep would take the case, which passed, for one whose job may still run."""

    def release(jobs: Sequence[JobRef]) -> dict[JobRef, Unreachable]:
        return {job: Unreachable("403 Forbidden") for job in jobs if job.name == WIDE.id}

    cluster.ends[WIDE.id], cluster.logs[WIDE.id] = [BROKEN], "no step\n"
    monkeypatch.setattr(cluster, "release", release)
    session = start(WIDE, policy=Policy(retries=1))
    entry = session.finish()[WIDE.id]
    assert (entry.try_number, entry.failure, entry.may_run) == (2, "", False)
    assert any("job 1 could not be removed: 403 Forbidden" in line for line in told(session))


def test_a_job_that_breaks_each_time_ends_after_the_last_try(cluster: Cluster, start: Start) -> None:
    for name in (WIDE.id, f"{WIDE.id}-try2", f"{WIDE.id}-try3"):
        cluster.ends[name], cluster.logs[name] = [BROKEN], "no step\n"
    session = start(WIDE, policy=Policy(retries=2))
    assert session.finish()[WIDE.id].state.raw == "NODE_FAIL"
    assert cluster.submitted == [WIDE.id, f"{WIDE.id}-try2", f"{WIDE.id}-try3"]
    assert [tried.state.raw for tried in session.ledger.earlier(WIDE.key)] == ["NODE_FAIL", "NODE_FAIL"]
    assert (session.fleet.folder / WIDE.key / "try-1" / "log.txt").read_text() == "no step\n"
    assert "gpu001" in (session.fleet.folder / WIDE.key / "errors.txt").read_text()


def test_the_nodes_that_are_blamed_are_kept_out_of_all_further_tries(cluster: Cluster, start: Start) -> None:
    for name in (WIDE.id, f"{WIDE.id}-try2", f"{WIDE.id}-try3", f"{WIDE.id}-try4"):
        cluster.ends[name], cluster.logs[name] = [BROKEN], "no step\n"
    cluster.blames = {WIDE.id: "gpu007", f"{WIDE.id}-try3": "gpu009"}
    session = start(WIDE, policy=Policy(retries=3, exclude_failed_nodes=True))
    assert session.finish()[WIDE.id].excluded == ("gpu007", "gpu009")
    assert cluster.excluded == [(), ("gpu007",), ("gpu007",), ("gpu007", "gpu009")]
    assert [tried.excluded for tried in session.ledger.earlier(WIDE.key)] == [(), ("gpu007",), ("gpu007",)]


def test_no_node_is_kept_out_unasked(cluster: Cluster, start: Start) -> None:
    cluster.ends[WIDE.id], cluster.logs[WIDE.id] = [BROKEN], "no step\n"
    cluster.blames = {WIDE.id: "gpu007"}
    start(WIDE, policy=Policy(retries=1)).finish()
    assert cluster.excluded == [(), ()]


def test_a_try_that_is_refused_tells_which_nodes_it_was_kept_from(cluster: Cluster, start: Start) -> None:
    def refuse(name: str) -> None:
        if name != WIDE.id:
            raise SubmitError("Requested node configuration is not available")

    cluster.on_submit = refuse
    cluster.ends[WIDE.id], cluster.logs[WIDE.id] = [BROKEN], "no step\n"
    cluster.blames = {WIDE.id: "gpu007"}
    entry = start(WIDE, policy=Policy(retries=1, exclude_failed_nodes=True)).finish()[WIDE.id]
    assert (entry.failure, entry.message) == (
        "infrastructure",
        "Requested node configuration is not available; nodes left out of this try: gpu007",
    )


def test_a_job_that_somebody_cancelled_is_not_tried_again(cluster: Cluster, start: Start) -> None:
    by_hand = JobState(Phase.FAILED, "CANCELLED by 1234")
    cluster.ends[WIDE.id], cluster.logs[WIDE.id] = [by_hand], "no step\n"
    entries = start(WIDE, policy=Policy(retries=2)).finish()
    assert (cluster.submitted, entries[WIDE.id].state.raw) == ([WIDE.id], "CANCELLED by 1234")


def test_a_refused_submission_is_tried_again(cluster: Cluster, start: Start) -> None:
    def refuse(name: str) -> None:
        if name == WIDE.id:
            raise SubmitError("Socket timed out")

    cluster.on_submit = refuse
    assert start(WIDE, policy=Policy(retries=1)).finish()[WIDE.id].failure == ""


def test_a_job_that_cannot_be_looked_up_keeps_no_other_waiting(
    cluster: Cluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(*_: object, **__: object) -> None:
        raise Unreachable("Socket timed out")

    cluster.on_submit = lambda name: lose() if name == NARROW.id else None
    monkeypatch.setattr(cluster, "find", lose)
    session = start(WIDE, NARROW)
    until(lambda: session.entries()[WIDE.id].status == "ended")
    entries = session.entries()
    assert (entries[WIDE.id].failure, entries[NARROW.id].status) == ("", "intent")


def test_a_submission_that_may_have_left_a_job_is_not_tried_again_but_swept(
    cluster: Cluster, start: Start
) -> None:
    def leave(name: str) -> None:
        raise SubmitError("no id; NOT confirmed", may_run=True)

    cluster.on_submit = leave
    entry = start(WIDE, policy=Policy(retries=3)).finish()[WIDE.id]
    assert cluster.submitted == [WIDE.id]
    assert entry.may_run
