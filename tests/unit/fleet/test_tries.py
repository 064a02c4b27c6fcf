"""Further tries of a case whose job broke, and further runs of one whose run alone does not tell."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from fixtures.backends.base import LogPiece, LogPlace
from fixtures.fleet.state import Policy
from plugins.base.errors import ConfigError, SubmitError, Unreachable
from plugins.judging.job_files import ParsedLogs
from plugins.recipes.cases import Case
from plugins.record.job import Job, JobRef, JobState, Phase
from plugins.record.outcome import outcome_of
from tests.unit.cluster import BROKEN, DONE, WIDE, Cluster, Session, Start, failing
from tests.unit.examples import nemo2_text, times

NAMES = FIRST, SECOND, THIRD, FOURTH, FIFTH = (WIDE.id, *(f"{WIDE.id}-try{number}" for number in range(2, 6)))
BY_HAND = JobState(Phase.FAILED, "CANCELLED by 1234", nodes="gpu001")


# Tries


def test_a_job_that_breaks_each_time_ends_after_the_last_try(cluster: Cluster, start: Start) -> None:
    cluster.breaks(*NAMES)
    session = start(WIDE, policy=Policy(retries=2))
    assert session.end().state.raw == "NODE_FAIL"
    assert cluster.submitted == [FIRST, SECOND, THIRD]
    assert [tried.state.raw for tried in session.ledger.earlier(WIDE.key)] == ["NODE_FAIL", "NODE_FAIL"]
    folder = session.fleet.folder / WIDE.key
    assert (folder / "try-1" / "log.txt").read_text() == "no step\n"
    assert "gpu001" in (folder / "errors.txt").read_text()


def test_a_try_that_another_one_follows_is_never_seen_as_the_end(cluster: Cluster, start: Start) -> None:
    """A test takes the first `ended` that it sees for its own."""

    def release(jobs: Sequence[JobRef]) -> dict[JobRef, Unreachable]:
        # As on a cluster where something must be deleted, by a server that takes its time.
        time.sleep(0.3)
        return {}

    cluster.breaks(FIRST)
    cluster.use(release=release)
    session = start(WIDE, policy=Policy(retries=2))
    seen = set[str]()
    while session.fleet.running:
        entry = session.job(WIDE)
        seen |= {entry.ref.name} if entry.status == "ended" else set()
    assert seen == {SECOND}
    assert cluster.submitted == [FIRST, SECOND]
    assert earlier(session) == [(FIRST, "", "job 1 ended NODE_FAIL on gpu001")]


def test_what_an_earlier_try_left_says_nothing_of_the_next_one(cluster: Cluster, start: Start) -> None:
    """Otherwise a sweep would take the case, which passed, for one whose job may still run."""

    def release(jobs: Sequence[JobRef]) -> dict[JobRef, Unreachable]:
        return {job: Unreachable("403 Forbidden") for job in jobs if job.name == FIRST}

    cluster.breaks(FIRST)
    cluster.use(release=release)
    session = start(WIDE, policy=Policy(retries=1))
    entry = session.end()
    assert (entry.try_number, entry.failure, entry.may_run) == (2, "", False)
    assert any("job 1 could not be removed: 403 Forbidden" in line for line in session.messages())


def test_the_nodes_that_are_blamed_are_kept_out_of_all_further_tries(cluster: Cluster, start: Start) -> None:
    cluster.breaks(*NAMES)
    cluster.blames = {FIRST: "gpu007", THIRD: "gpu009"}
    session = start(WIDE, policy=Policy(retries=3, exclude_failed_nodes=True))
    assert session.end().excluded == ("gpu007", "gpu009")
    assert cluster.excluded == [(), ("gpu007",), ("gpu007",), ("gpu007", "gpu009")]
    assert [tried.excluded for tried in session.ledger.earlier(WIDE.key)] == [(), ("gpu007",), ("gpu007",)]


def test_no_node_is_kept_out_unasked(cluster: Cluster, start: Start) -> None:
    cluster.breaks(FIRST)
    cluster.blames = {FIRST: "gpu007"}
    start(WIDE, policy=Policy(retries=1)).finish()
    assert cluster.excluded == [(), ()]


def test_a_try_that_is_refused_tells_which_nodes_it_was_kept_from(cluster: Cluster, start: Start) -> None:
    reason = "Requested node configuration is not available"
    cluster.on_submit = failing(SubmitError(reason), SECOND)
    cluster.breaks(FIRST)
    cluster.blames = {FIRST: "gpu007"}
    entry = start(WIDE, policy=Policy(retries=1, exclude_failed_nodes=True)).end()
    assert (entry.failure, entry.message) == (
        "infrastructure",
        f"{reason}; nodes left out of this try: gpu007",
    )


def test_a_refused_submission_is_tried_again(cluster: Cluster, start: Start) -> None:
    cluster.on_submit = failing(SubmitError("Socket timed out"), FIRST)
    assert start(WIDE, policy=Policy(retries=1)).end().failure == ""


def test_a_submission_that_may_have_left_a_job_is_not_tried_again_but_swept(
    cluster: Cluster, start: Start
) -> None:
    cluster.on_submit = failing(SubmitError("no id; NOT confirmed", may_run=True))
    assert start(WIDE, policy=Policy(retries=3)).end().may_run
    assert cluster.submitted == [FIRST]


# Runs


class Judge:
    """Says of so many runs of a case that they do not tell, and keeps what it was asked."""

    def __init__(self, undecided: int, folder: Path | None = None) -> None:
        self.undecided = undecided
        self.folder = folder
        self.asked: list[tuple[str, ...]] = []
        self.steps: list[list[int]] = []

    def __call__(self, case: Case, job: Job, earlier: Sequence[Job]) -> str:
        assert case == WIDE
        names = [f"try-{tried.try_number}" for tried in earlier if tried.failure == "repeated"]
        self.asked.append((*names, job.ref.case_id))
        if self.folder is not None:
            folders = [*(self.folder / case.key / name for name in names), self.folder / case.key]
            self.steps.append([len(ParsedLogs().read_log("nemo2", folder).steps) for folder in folders])
        runs = len(names) + 1
        return f"{runs} cannot tell" if runs <= self.undecided else ""


def earlier(session: Session) -> list[tuple[str, str, str]]:
    return [(job.ref.name, job.failure, job.message) for job in session.ledger.earlier(WIDE.key)]


def test_each_run_is_kept_and_all_are_asked_about(cluster: Cluster, start: Start, tmp_path: Path) -> None:
    for number, name in enumerate((FIRST, SECOND, THIRD)):
        cluster.logs[name] = nemo2_text([seconds + number for seconds in times()])
    judge = Judge(2, tmp_path)
    session = start(WIDE, policy=Policy(another_run=judge))
    entry = session.end()
    assert cluster.submitted == [FIRST, SECOND, THIRD]
    assert judge.asked == [(WIDE.id,), ("try-1", WIDE.id), ("try-1", "try-2", WIDE.id)]
    assert judge.steps == [[50], [50, 50], [50, 50, 50]]
    assert (entry.ref.name, entry.ref.id, entry.try_number, entry.failure) == (THIRD, "3", 3, "")
    assert earlier(session) == [(FIRST, "repeated", "1 cannot tell"), (SECOND, "repeated", "2 cannot tell")]
    folder = session.fleet.folder / WIDE.key
    for name, place in ((FIRST, folder / "try-1"), (SECOND, folder / "try-2"), (THIRD, folder)):
        assert (place / "log.txt").read_text() == cluster.logs[name]
        assert (place / "sent.txt").read_text() == name
    outcome = outcome_of(entry, folder, "h100", session.ledger.earlier(WIDE.key))
    assert [tried.try_number for tried in outcome.repeated] == [1, 2]
    assert [line for line in session.messages() if "; running" in line] == [
        f"{WIDE.key}: {run - 1} cannot tell; running it again (run {run})" for run in (2, 3)
    ]


@pytest.mark.parametrize(
    "broken",
    [(True, False, True, False, False), (False, False, True, True, False), (True, True, False, False, False)],
)
def test_tries_and_runs_are_counted_apart_in_any_order(
    cluster: Cluster, start: Start, broken: Sequence[bool]
) -> None:
    cluster.breaks(*(name for name, breaks in zip(NAMES, broken, strict=True) if breaks))
    judge = Judge(2)
    session = start(WIDE, policy=Policy(retries=2, another_run=judge))
    entry = session.end()
    assert cluster.submitted == [*NAMES]
    assert (entry.try_number, entry.failure, entry.state.raw) == (5, "", DONE.raw)
    assert [failure for _, failure, _ in earlier(session)] == ["" if b else "repeated" for b in broken[:4]]
    whole = [f"try-{number}" for number, breaks in enumerate(broken[:4], start=1) if not breaks]
    assert [set(asked) - {WIDE.id} for asked in judge.asked] == [set(), {whole[0]}, set(whole)]
    lines = [line.rpartition("; ")[2] for line in session.messages() if " again (" in line]
    tries = [line for line in lines if line.startswith("trying")]
    assert tries == ["trying again (1 of 2)", "trying again (2 of 2)"]


def test_nodes_that_were_kept_out_stay_out_and_none_is_blamed_for_a_run_that_ended_well(
    cluster: Cluster, start: Start
) -> None:
    cluster.breaks(FIRST)
    cluster.blames = {FIRST: "gpu007", SECOND: "gpu009"}
    start(WIDE, policy=Policy(retries=1, exclude_failed_nodes=True, another_run=Judge(1))).finish()
    assert cluster.excluded == [(), ("gpu007",), ("gpu007",)]


@pytest.mark.parametrize(
    ("end", "log"),
    [(BROKEN, "no step\n"), (BY_HAND, "no step\n"), (DONE, "no step\n"), (BY_HAND, nemo2_text())],
    ids=["broken", "cancelled", "no step", "cancelled after its last step"],
)
def test_what_did_not_end_well_is_not_run_again(
    cluster: Cluster, start: Start, end: JobState, log: str
) -> None:
    cluster.ends[FIRST], cluster.logs[FIRST] = [end], log
    judge = Judge(9)
    # What somebody cancelled is not tried again either.
    entry = start(WIDE, policy=Policy(another_run=judge, retries=end == BY_HAND)).end()
    assert (cluster.submitted, entry.state.raw, judge.asked) == ([FIRST], end.raw, [])


def test_a_session_that_is_stopped_runs_nothing_again(cluster: Cluster, start: Start) -> None:
    begun = threading.Event()

    def stop(case: Case, job: Job, earlier: Sequence[Job]) -> str:
        begun.wait(60)
        session.fleet.ask_to_stop()
        return "cannot tell"

    session = start(WIDE, policy=Policy(another_run=stop))
    begun.set()
    entry = session.end()
    assert cluster.submitted == [FIRST]
    message = "the session was stopped; it was never submitted"
    assert (entry.failure, entry.message) == ("interrupted", message)


def test_a_run_that_ends_well_while_its_session_stops_is_judged_as_it_is(
    cluster: Cluster, start: Start
) -> None:
    begun = threading.Event()

    def stop(name: str) -> None:
        begun.wait(60)
        session.fleet.ask_to_stop()

    cluster.on_read = stop
    judge = Judge(9)
    session = start(WIDE, policy=Policy(another_run=judge))
    begun.set()
    entry = session.end()
    assert (cluster.submitted, judge.asked) == ([FIRST], [])
    assert (entry.failure, entry.state.raw) == ("", DONE.raw)


@pytest.mark.parametrize(
    "error", [ConfigError("llama3.yaml: keep one baseline"), ZeroDivisionError("float division by zero")]
)
def test_a_question_without_an_answer_ends_the_case_as_it_is(
    cluster: Cluster, start: Start, error: Exception
) -> None:
    session = start(WIDE, policy=Policy(another_run=failing(error)))
    assert session.end().failure == ""
    assert (cluster.submitted, session.fleet.defect) == ([FIRST], "")
    question = "nobody can say whether another run would tell more"
    assert f"{WIDE.key}: {question}: {type(error).__name__}: {error}" in session.messages()


def test_what_is_wrong_with_a_log_stays_with_its_run(cluster: Cluster, start: Start) -> None:
    whole, gap = nemo2_text().encode(), "2 kB of its log are lost"

    def read_log(job: object, place: LogPlace, wanted: Sequence[bytes]) -> LogPiece:
        # Behind the first step: before it, nobody could say what the job ran.
        end = 1000 if not place.offset else len(whole)
        return LogPiece(whole[place.offset : end], LogPlace("log", end, gap=gap if place.offset else ""))

    cluster.use(read_log=read_log)
    session = start(WIDE, policy=Policy(another_run=Judge(1)))
    session.finish()
    ((name, failure, message),) = earlier(session)
    assert (name, failure) == (FIRST, "repeated")
    assert message.startswith(f"1 cannot tell; {gap}")
