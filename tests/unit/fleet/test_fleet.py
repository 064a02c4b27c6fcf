"""What the fleet does with a cluster that can be scripted to the moment: order, limits, and who waits for whom."""

from __future__ import annotations

import re
import signal
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.backends.base import Backend, ClusterTimes, InQueue, LogPiece, LogPlace
from fixtures.backends.section import Limits
from fixtures.fleet import follow, log_reading, submit
from fixtures.fleet.controller import Fleet
from fixtures.fleet.jobs import TrackedJobs
from fixtures.fleet.state import Policy
from fixtures.runs.ledger import Ledger
from fixtures.runs.planned import PlannedJob
from fixtures.runs.resume import resumed
from plugins.base.errors import Denied, SiteError, SubmitError, Unprovisioned, Unreachable
from plugins.recipes.cases import Case
from plugins.record.folder import ERRORS
from plugins.record.job import JobRef, JobState, Phase
from plugins.record.lines import JOBS_LOG
from tests.unit import examples
from tests.unit.cluster import (
    BROKEN,
    DONE,
    MIDDLE,
    NARROW,
    RUNNING,
    WIDE,
    Clock,
    Cluster,
    Session,
    Site,
    Start,
    told,
    until,
)
from tests.unit.examples import nemo2_text


def test_the_widest_case_is_submitted_first(cluster: Cluster, start: Start) -> None:
    start(NARROW, WIDE, MIDDLE, submissions_at_once=1).finish()
    assert cluster.submitted == [WIDE.id, MIDDLE.id, NARROW.id]


def test_a_case_that_does_not_fit_lets_smaller_ones_pass(cluster: Cluster, start: Start) -> None:
    cluster.ends[WIDE.id] = [RUNNING] * 20 + [DONE]
    session = start(WIDE, MIDDLE, NARROW, gpus_in_flight=600, submissions_at_once=1)
    session.finish()
    assert cluster.submitted == [WIDE.id, NARROW.id, MIDDLE.id]


def test_the_limit_of_jobs_holds(cluster: Cluster, start: Start) -> None:
    for case in (WIDE, MIDDLE, NARROW):
        cluster.ends[case.id] = [RUNNING] * 5 + [DONE]
    session = start(WIDE, MIDDLE, NARROW, jobs_in_flight=1)
    most = 0
    while session.fleet.running:
        most = max(most, len([e for e in session.entries().values() if e.status in ("intent", "submitted")]))
    assert most == 1


def test_a_launcher_that_hangs_holds_nobody_up(cluster: Cluster, start: Start) -> None:
    release = threading.Event()

    def hang(name: str) -> None:
        if name == WIDE.id:
            release.wait(120)

    cluster.on_submit = hang
    session = start(WIDE, NARROW)
    deadline = time.monotonic() + 60
    while session.entries()[NARROW.id].status != "ended":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert session.entries()[WIDE.id].status == "intent"
    release.set()
    assert session.finish()[WIDE.id].failure == ""


def test_a_job_that_starts_does_not_run_yet_and_has_a_limit_of_its_own(
    cluster: Cluster, start: Start, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    polls: list[int] = []

    def poll(jobs: Sequence[JobRef]) -> dict[JobRef, JobState]:
        polls.append(len(jobs))
        return Cluster.poll(cluster, jobs)

    monkeypatch.setattr(cluster, "poll", poll)
    starting = JobState(Phase.STARTING, "Starting", "15 of 16 pods run", "gpu001")
    cluster.ends = {WIDE.id: [starting], NARROW.id: [starting]}
    session = start(WIDE, NARROW, start_minutes=5, run_minutes=1)
    until(lambda: polls.count(2) > 1)
    # Longer than it may run, and shorter than it may start.
    clock.ahead = 120
    before = len(polls)
    until(lambda: len(polls) > before + 1)
    cluster.ends[WIDE.id] = [RUNNING, DONE]
    until(lambda: session.entries()[WIDE.id].status == "ended")
    clock.ahead = 310
    entries = session.finish()
    assert entries[WIDE.id].failure == ""
    assert entries[NARROW.id].failure == "infrastructure"
    assert (
        "its containers do not run; the cluster says: 15 of 16 pods run; cancelled"
        in entries[NARROW.id].message
    )
    assert any("70b-fp8-64gpus: starting on gpu001" in line for line in told(session))


DENIED = "/logs/log cannot be read: Permission denied"


def test_a_log_that_cannot_be_read_stops_nobody_and_is_read_by_the_next_session(
    cluster: Cluster, start: Start, tmp_path: Path
) -> None:
    def refuse(name: str) -> None:
        if name == WIDE.id:
            raise Unreachable(DENIED)

    cluster.on_read = refuse
    session = start(WIDE, NARROW, unreachable_minutes=0.005)
    entries = session.finish()
    assert entries[NARROW.id].failure == ""
    lost = entries[WIDE.id]
    assert (lost.failure, lost.may_run) == ("lost", False)
    assert lost.message == (
        f"job {lost.ref.id} ended COMPLETED, but its log could not be read for 0.005 minutes: {DENIED}; "
        f"nothing was removed: `--resume {tmp_path.name}` reads it"
    )
    assert (cluster.released, cluster.cancelled) == ([NARROW.id], set())
    cluster.on_read = lambda name: None
    plan = PlannedJob(WIDE, "slurm", JobRef(WIDE.recipe, WIDE.id, WIDE.id), "nemo2")
    plans = resumed(session.ledger, "lab", [plan], {"slurm": cluster})
    site = Site(gpu="h100", limits=Limits(log_settle_seconds=0.05))
    session.fleet = Fleet(tmp_path, session.ledger, plans, {"slurm": cluster}, {"slurm": site}, Policy())
    session.fleet.start()
    entry = session.finish()[WIDE.id]
    assert (entry.failure, entry.ref.id, len(cluster.submitted)) == ("", lost.ref.id, 2)


def endless(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Let the log of one job have more, whenever it is read, until the event that is returned is set."""
    over, read_log = threading.Event(), cluster.read_log

    def read(job: JobRef, place: LogPlace, wanted: Sequence[bytes]) -> LogPiece:
        if job.name != WIDE.id or over.is_set():
            return read_log(job, place, wanted)
        data = b"" if place.offset else nemo2_text().encode()
        return LogPiece(
            data,
            replace(place, file="log", offset=place.offset + len(data), mark=f"{place.mark}."),
            more=True,
        )

    monkeypatch.setattr(cluster, "read_log", read)
    return over


def test_a_long_log_of_a_job_that_is_over_holds_up_no_other_job(
    cluster: Cluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one with a hole of 30 GiB, which the login node searches for minutes."""
    monkeypatch.setattr(log_reading, "_SECONDS", 0.0)
    over = endless(cluster, monkeypatch)
    session = start(WIDE, NARROW)
    until(lambda: session.entries()[NARROW.id].status == "ended")
    # Every step of the first one was read, and not yet what its log says behind them.
    assert session.entries()[WIDE.id].status == "submitted"
    over.set()
    assert {entry.failure for entry in session.finish().values()} == {""}


def test_a_long_log_of_a_job_that_is_over_does_not_hold_up_the_end_of_the_session(
    cluster: Cluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless(cluster, monkeypatch)
    begun = threading.Event()
    cluster.ends[NARROW.id] = [RUNNING]
    monkeypatch.setattr(log_reading, "_SECONDS", 0.0)
    read = cluster.read_log

    def note(job: JobRef, place: LogPlace, wanted: Sequence[bytes]) -> LogPiece:
        if place.mark.endswith("....") and session.entries()[NARROW.id].status == "submitted":
            begun.set()
        return read(job, place, wanted)

    monkeypatch.setattr(cluster, "read_log", note)
    session = start(NARROW, WIDE)
    assert begun.wait(60)
    session.fleet.ask_to_stop()
    assert {entry.failure for entry in session.finish().values()} == {"interrupted"}
    assert NARROW.id in cluster.cancelled


def test_a_restart_that_is_heard_of_at_the_end_has_a_log_of_its_own(
    cluster: Cluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read is the first start's. The launcher may give each start a log, or one to all."""
    places: list[LogPlace] = []

    def read(job: JobRef, place: LogPlace, wanted: Sequence[bytes]) -> LogPiece:
        places.append(place)
        data = nemo2_text().encode()[place.offset :]
        return LogPiece(data, replace(place, file=f"log-{place.attempt}", offset=place.offset + len(data)))

    cluster.ends[WIDE.id] = [RUNNING] * 5 + [DONE]
    monkeypatch.setattr(cluster, "read_log", read)
    monkeypatch.setattr(cluster, "times", lambda job: ClusterTimes(restarts=1))
    assert start(WIDE).finish()[WIDE.id].attempts == 2
    assert LogPlace(attempt=2) in places


def test_a_job_that_runs_goes_on_while_its_log_cannot_be_read(
    cluster: Cluster, start: Start, clock: Clock
) -> None:
    def refuse(name: str) -> None:
        if len(cluster.ends[WIDE.id]) > 1:
            clock.ahead += 20
            raise Unreachable(DENIED)

    cluster.on_read, cluster.ends[WIDE.id] = refuse, [RUNNING] * 8 + [DONE]
    session = start(WIDE, unreachable_minutes=1)
    assert session.finish(3600)[WIDE.id].failure == ""
    assert clock.ahead > 60
    assert (cluster.cancelled, len(cluster.submitted)) == (set(), 1)
    assert len([line for line in told(session) if "its log cannot be read, will go on trying" in line]) == 1


def test_every_step_is_judged_though_its_log_can_no_longer_be_read(cluster: Cluster, start: Start) -> None:
    """The access to the logs is lost after the last step, and the job ends by itself."""

    def refuse(name: str) -> None:
        if len(cluster.ends[WIDE.id]) == 1:
            raise Unreachable("pods/log is forbidden")

    cluster.on_read, cluster.ends[WIDE.id] = refuse, [RUNNING] * 30 + [DONE]
    entry = start(WIDE, unreachable_minutes=1).finish()[WIDE.id]
    assert (entry.failure, entry.times.cancel_asked, cluster.cancelled) == ("", None, set())
    assert "every step was read, but what its log says after them could not be read" in entry.log_note


def test_every_step_is_judged_though_the_cluster_can_no_longer_be_asked(
    cluster: Cluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.ends[WIDE.id] = [RUNNING]
    session = start(WIDE, unreachable_minutes=0.002)
    until(lambda: session.fleet.board[WIDE.key].done == WIDE.steps)

    def refuse(*_: object) -> None:
        raise Unreachable("401 Unauthorized")

    for name in ("poll", "read_log", "cancel"):
        monkeypatch.setattr(cluster, name, refuse)
    entry = session.finish()[WIDE.id]
    assert (entry.failure, entry.may_run) == ("hung", True)
    assert "could not be asked for 0.002 minutes: 401 Unauthorized; the job may still run" in entry.message


def test_a_job_that_ends_by_itself_while_it_is_cancelled_was_not_cancelled(
    cluster: Cluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(jobs: Sequence[JobRef]) -> None:
        cluster.ends[WIDE.id] = [DONE]

    monkeypatch.setattr(cluster, "cancel", end)
    cluster.ends[WIDE.id], cluster.logs[WIDE.id] = [RUNNING], nemo2_text([10.0] * 3)
    entry = start(WIDE, run_minutes=0.001).finish()[WIDE.id]
    assert entry.message.endswith("; it ended COMPLETED meanwhile")


def test_a_job_that_does_not_end_when_asked_to_is_named_with_what_the_cluster_says(
    cluster: Cluster, start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cluster, "cancel", lambda jobs: None)
    cluster.ends[WIDE.id] = [replace(RUNNING, reason="it has finalizers")]
    cluster.logs[WIDE.id] = nemo2_text([10.0] * 3)
    entry = start(WIDE, run_minutes=0.001, cancel_seconds=0.1).finish()[WIDE.id]
    assert (entry.failure, entry.may_run) == ("infrastructure", True)
    assert entry.message.startswith("job 1: ")
    assert entry.message.endswith(
        "; its cancellation was asked for but NOT confirmed (it has finalizers), look after it"
    )
    assert (tmp_path / WIDE.key / ERRORS).read_text() == "srun: error: gpu001: task 3: Killed\n"


def test_whoever_waits_goes_on_once_when_a_case_has_ended(cluster: Cluster, start: Start) -> None:
    session = start(WIDE)
    began = time.monotonic()
    session.fleet.wait(60)
    session.finish()
    ended = time.monotonic()
    session.fleet.wait(0.2)
    assert ended - began < 60
    assert time.monotonic() - ended >= 0.2


def test_the_end_of_a_session_waits_once_for_what_cannot_be_cancelled(
    cluster: Cluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    def cancel(backend: Backend, ledger: Ledger, jobs: Iterable[JobRef], seconds: float) -> dict[JobRef, str]:
        waits.append(max(0.0, seconds))
        time.sleep(waits[-1])
        return dict.fromkeys(jobs, "pods that have not ended: a on node-0")

    cluster.ends[WIDE.id] = [RUNNING]
    monkeypatch.setattr("fixtures.fleet.ending.cancel", cancel)
    session = start(WIDE, cancel_seconds=0.2)
    until(lambda: session.entries()[WIDE.id].status == "submitted")
    session.fleet.stop()
    said = "which is NOT confirmed (pods that have not ended: a on node-0): look after it"
    assert said in session.finish()[WIDE.id].message
    assert (len(waits), waits[1]) == (2, 0.0)


@pytest.mark.parametrize(("end", "noted"), [(DONE, True), (BROKEN, False)])
def test_a_log_that_ends_before_a_job_that_completes_is_told_what_may_have_cut_it(
    cluster: Cluster, start: Start, end: JobState, noted: bool
) -> None:
    cluster.cut_log = "the disk was full for a moment"
    cluster.ends[WIDE.id] = [end]
    cluster.logs[WIDE.id] = nemo2_text([10.0] * 3)
    assert start(WIDE).finish()[WIDE.id].log_note == cluster.cut_log * noted


def test_a_job_that_completes_while_it_is_cancelled_is_not_called_cancelled(
    cluster: Cluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.ends[WIDE.id] = [RUNNING]

    def complete(jobs: Sequence[JobRef]) -> None:
        cluster.ends[WIDE.id] = [DONE]

    monkeypatch.setattr(cluster, "cancel", complete)
    session = start(WIDE)
    until(lambda: session.entries()[WIDE.id].status == "submitted")
    session.fleet.stop()
    assert session.finish()[WIDE.id].message.endswith("; job 1 had completed before it could be cancelled")


def test_what_could_not_be_removed_is_left_to_a_sweep(
    cluster: Cluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(jobs: Sequence[JobRef]) -> dict[JobRef, Unreachable]:
        return dict.fromkeys(jobs, Unreachable("403 Forbidden"))

    monkeypatch.setattr(cluster, "release", refuse)
    session = start(WIDE)
    entry = session.finish()[WIDE.id]
    assert (entry.failure, entry.may_run) == ("", True)
    assert any("could not be removed: 403 Forbidden" in line for line in told(session))


def test_no_launcher_waits_while_logs_are_read(
    cluster: Cluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = examples.case("8b-bf16-8gpus")
    reading, submitted, met = threading.Event(), threading.Event(), threading.Event()
    wake = TrackedJobs.wake

    def woken(jobs: TrackedJobs) -> None:
        # By the only launcher, which is free by now.
        if reading.is_set():
            submitted.set()
        wake(jobs)

    monkeypatch.setattr(TrackedJobs, "wake", woken)

    def submit(name: str) -> None:
        if name == NARROW.id:
            assert reading.wait(60)

    def read(name: str) -> None:
        if name == WIDE.id and NARROW.id in cluster.submitted and not reading.is_set():
            reading.set()
            assert submitted.wait(60)
        elif name == MIDDLE.id and reading.is_set() and not met.is_set():
            deadline = time.monotonic() + 60
            while last.id not in cluster.submitted and time.monotonic() < deadline:
                time.sleep(0.01)
            met.set()
            assert last.id in cluster.submitted

    cluster.on_submit, cluster.on_read = submit, read
    for case in (WIDE, MIDDLE):
        cluster.ends[case.id] = [RUNNING] * 20 + [DONE]
    entries = start(WIDE, MIDDLE, NARROW, last, submissions_at_once=1).finish()
    assert {entry.failure for entry in entries.values()} == {""}
    assert met.is_set()


def test_what_spoils_a_second_life_is_looked_for_although_the_first_had_it_too(
    cluster: Cluster, start: Start
) -> None:
    """A backend may leave out lines that the parser does not want; a new life's parser wants them all again."""
    socket = "gpu001:1:1 [0] NCCL INFO Using network Socket\n"
    asked: list[Sequence[bytes]] = []
    lives = [socket + "Training epoch", socket + nemo2_text()]

    def read(job: JobRef, place: LogPlace, wanted: Sequence[bytes]) -> LogPiece:
        attempt = 1 if not place.file else 2
        begin = place.offset if place.attempt == attempt else 0
        asked.append(wanted)
        data = "".join(
            line
            for line in lives[attempt - 1].splitlines(keepends=True)
            if any(w in line.encode() for w in wanted)
        )
        return LogPiece(data.encode()[begin:], LogPlace(f"log{attempt}", len(lives[attempt - 1]), attempt))

    cluster.read_log = read  # type: ignore[method-assign]
    cluster.ends[WIDE.id] = [RUNNING, RUNNING, RUNNING, DONE]
    session = start(WIDE)
    session.finish()
    collected = (session.fleet.folder / WIDE.key / "log.txt").read_text()
    assert socket in collected
    assert len(asked[-1]) < len(asked[0])


def test_a_submission_that_was_denied_in_its_middle_is_looked_up(cluster: Cluster, start: Start) -> None:
    """The job may be there, and only what it mounts was denied."""

    def deny(name: str) -> None:
        if name == WIDE.id:
            raise Denied("POST /configmaps: 401")

    def find(job: JobRef, *, to_end: bool = False) -> JobRef | None:
        return replace(job, id="17", folder="/logs")

    cluster.on_submit = deny
    cluster.find = find  # type: ignore[method-assign]
    entries = start(WIDE, NARROW, submissions_at_once=1).finish()
    assert (entries[WIDE.id].ref.id, entries[WIDE.id].failure) == ("17", "")
    # Nor does it end those that are still to come.
    assert entries[NARROW.id].failure == ""
    assert cluster.submitted == [WIDE.id, NARROW.id]


def test_a_denied_submission_that_nobody_can_look_up_may_run(cluster: Cluster, start: Start) -> None:
    def deny(*_: object, **__: object) -> None:
        raise Denied("401")

    cluster.on_submit = deny
    cluster.find = deny  # type: ignore[method-assign]
    entries = start(WIDE, NARROW, submissions_at_once=1, jobs_in_flight=1, unreachable_minutes=0.005).finish()
    assert (entries[WIDE.id].failure, entries[WIDE.id].may_run) == ("lost", True)
    assert "look for the name" in entries[WIDE.id].message
    assert entries[NARROW.id].message == "never submitted: 401"


def test_whoever_is_denied_from_the_start_does_not_wait(cluster: Cluster, start: Start) -> None:
    def deny(case: Case) -> None:
        raise Denied("the credentials are refused")

    cluster.on_check = deny
    entry = start(WIDE).finish()[WIDE.id]
    assert (entry.failure, entry.message) == (
        "infrastructure",
        "never submitted: the credentials are refused",
    )


def test_what_the_check_found_is_said_once(cluster: Cluster, start: Start) -> None:
    cluster.remarks = ["the bucket is written by the nodes"]
    session = start(MIDDLE, NARROW)
    session.finish()
    said = [line.partition(" ")[2] for line in told(session)]
    assert [line for line in said if "written" in line] == [f"{MIDDLE.recipe}: {cluster.remarks[0]}"]


def test_a_set_up_is_run_for_what_it_mends_and_not_for_a_mistake(cluster: Cluster, start: Start) -> None:
    asked: list[str] = []

    def provision(case: Case, name: str) -> JobRef | None:
        asked.append(name)
        return None

    def mistaken(case: Case) -> None:
        raise SiteError("values.claims means nothing")

    def bare(case: Case) -> None:
        if not asked:
            raise Unprovisioned("the data set is missing")

    cluster.provision = provision  # type: ignore[method-assign]
    cluster.on_check = mistaken
    entry = start(WIDE, policy=Policy(provision=True)).finish()[WIDE.id]
    assert (asked, entry.message) == ([], "values.claims means nothing")
    cluster.on_check = bare
    entries = start(WIDE, policy=Policy(provision=True), run="run-2").finish()
    assert (len(asked), entries[WIDE.id].failure) == (1, "")


def test_what_refused_a_set_up_stands_in_the_verdict(cluster: Cluster, start: Start) -> None:
    def refused(case: Case, name: str) -> JobRef | None:
        raise SubmitError("the StorageClass is there and another one")

    def lack(case: Case) -> None:
        raise Unprovisioned("the claim is missing")

    cluster.provision, cluster.on_check = refused, lack  # type: ignore[method-assign]
    entry = start(WIDE, policy=Policy(provision=True)).finish()[WIDE.id]
    assert entry.failure == "infrastructure"
    assert entry.message == (
        "the claim is missing\nThe recipe's own set-up did not mend that: the StorageClass is there and another one"
    )


def test_a_stage_that_is_not_ready_is_never_tried_again(cluster: Cluster, start: Start) -> None:
    checks = []

    def lack(case: Case) -> None:
        checks.append(case)
        raise SiteError("the container image is missing")

    cluster.on_check = lack
    entries = start(WIDE, policy=Policy(retries=5)).finish()
    assert (entries[WIDE.id].try_number, len(checks), cluster.submitted) == (1, 1, [])


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        OSError(122, "Disk quota exceeded"),
    ],
)
def test_a_full_disk_leaves_no_job_and_nobody_waiting_and_says_how_to_go_on(
    cluster: Cluster, start: Start, error: Exception
) -> None:
    def fail(name: str) -> None:
        raise error

    cluster.ends[WIDE.id] = [RUNNING]
    cluster.on_read = fail
    session = start(WIDE)
    entries = session.finish()
    assert cluster.cancelled == {WIDE.id}
    assert entries[WIDE.id].status == "ended"
    for reason in (entries[WIDE.id].message, session.fleet.defect):
        assert f"the disk of the results folder is full ({error})" in reason
        assert re.search(r"`--resume [\w-]+` goes on", reason)
    assert any(line.endswith("; cancelling what is left") for line in told(session))


def test_a_cluster_that_cannot_be_asked_for_a_while_is_said_to_answer_again(
    cluster: Cluster, start: Start
) -> None:
    answers = iter([True, False, False, *[True] * 1000])

    def read(name: str) -> None:
        if not next(answers):
            raise Unreachable("squeue: Socket timed out")

    def poll(jobs: Sequence[JobRef]) -> dict[JobRef, JobState]:
        read("")
        return Cluster.poll(cluster, jobs)

    cluster.ends[WIDE.id] = [RUNNING] * 10 + [DONE]
    cluster.poll = poll  # type: ignore[method-assign]
    session = start(WIDE)
    assert session.finish()[WIDE.id].failure == ""
    lines = [line.partition(" ")[2] for line in told(session)]
    first = next(n for n, line in enumerate(lines) if line.startswith("slurm: cannot be asked, "))
    assert lines.index("slurm: answers again") > first


def test_stopping_cancels_what_runs_and_ends_what_waits(cluster: Cluster, start: Start) -> None:
    cluster.ends[WIDE.id] = [RUNNING]
    session = start(WIDE, NARROW, jobs_in_flight=1)
    until(lambda: session.entries()[WIDE.id].status == "submitted")
    session.fleet.stop()
    entries = session.entries()
    assert cluster.cancelled == {WIDE.id}
    assert entries[WIDE.id].times.cancel_confirmed is not None
    assert "it was never submitted" in entries[NARROW.id].message


def test_what_no_launcher_has_begun_was_never_submitted(
    cluster: Cluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The only launcher is at the check of another recipe until nothing else can begin."""
    other, closed = examples.case("15b-bf16-64gpus", "nemotron4"), threading.Event()

    class Launchers(ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            closed.set()
            super().shutdown(wait=wait)

    def check(case: Case) -> None:
        if case == other:
            closed.wait(60)

    monkeypatch.setattr(submit, "ThreadPoolExecutor", Launchers)
    cluster.on_check = check
    session = start(WIDE, other, submissions_at_once=1)
    until(lambda: session.entries()[WIDE.id].status == "intent")
    session.fleet.stop()
    entry = session.entries()[WIDE.id]
    assert (cluster.submitted, entry.may_run) == ([], False)
    assert entry.message.endswith("; it was never submitted")


def test_stopping_does_not_wait_for_a_launcher_to_cancel_the_others(cluster: Cluster, start: Start) -> None:
    release = threading.Event()

    def hang(name: str) -> None:
        if name == NARROW.id:
            release.wait(120)

    cluster.ends[WIDE.id] = [RUNNING]
    cluster.on_submit = hang
    session = start(WIDE, NARROW)
    deadline = time.monotonic() + 60
    while session.entries()[WIDE.id].status != "submitted" or len(cluster.submitted) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    session.fleet.ask_to_stop()
    while not session.entries()[WIDE.id].times.cancel_confirmed:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert session.entries()[NARROW.id].status == "intent"
    release.set()
    entries = session.finish()
    assert cluster.cancelled == {WIDE.id, NARROW.id}
    assert entries[NARROW.id].times.cancel_confirmed is not None


def test_a_signal_that_does_not_end_the_wait_for_the_fleet_is_heard(cluster: Cluster, start: Start) -> None:
    heard, main = threading.Event(), threading.main_thread()
    in_time = []

    def launch(name: str) -> None:
        until(lambda: sys._current_frames()[main.ident or 0].f_code.co_name == "_wait_for_tstate_lock")
        # To this thread: so the main thread's wait goes on, as it does if a signal comes just before it.
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        in_time.append(heard.wait(60))

    before = signal.signal(signal.SIGUSR1, lambda *_: heard.set())
    try:
        cluster.on_submit = launch
        session = start(WIDE)
        until(lambda: cluster.submitted == [WIDE.id])
        session.fleet.stop()
        assert in_time == [True]
        assert session.finish()[WIDE.id].times.cancel_confirmed is not None
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_check_that_waits_is_told_to_end_before_anybody_waits_for_it(
    cluster: Cluster, start: Start
) -> None:
    waiting = threading.Event()

    def wait(case: Case) -> None:
        waiting.set()
        assert cluster.aborted.wait(60), "nobody told it"
        raise SiteError("not ready")

    cluster.on_check = wait
    session = start(WIDE)
    assert waiting.wait(60)
    session.fleet.stop()
    assert session.entries()[WIDE.id].status == "ended"
    assert cluster.submitted == []


@pytest.mark.parametrize("how", ["removed", "a file"])
def test_results_that_vanish_leave_no_job_and_submit_none(
    cluster: Cluster, start: Start, how: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cluster.ends[WIDE.id] = [RUNNING]
    session = start(WIDE, NARROW, jobs_in_flight=1)
    until(lambda: session.entries()[WIDE.id].status == "submitted")
    folder = session.fleet.folder
    folder.rename(tmp_path_factory.mktemp("away") / "run")
    if how == "a file":
        folder.touch()
    until(lambda: not session.fleet.running)
    assert cluster.cancelled == {WIDE.id}
    assert cluster.submitted == [WIDE.id]
    assert session.fleet.defect.startswith("the results folder cannot be written to any more (")
    assert "the results folder cannot be written to any more" in "\n".join(told(session))


def test_a_ledger_that_is_gone_before_it_is_opened_keeps_no_job_of_an_earlier_session(
    cluster: Cluster, tmp_path: Path
) -> None:
    session = Session(tmp_path, cluster, [WIDE], Policy())
    job = JobRef(WIDE.recipe, WIDE.id, WIDE.id, "4711", "/logs")
    plans = [PlannedJob(WIDE, "slurm", job, "nemo2", age=0.0)]
    (tmp_path / JOBS_LOG).unlink()
    (tmp_path / JOBS_LOG).mkdir()
    fleet = Fleet(tmp_path, session.ledger, plans, {"slurm": cluster}, {"slurm": Site(gpu="h100")}, Policy())
    fleet.start()
    fleet.stop()
    assert cluster.cancelled == {WIDE.id}
    assert (
        fleet.defect
        == f"the results folder cannot be written to any more ([Errno 22] it is no regular file: '{tmp_path / JOBS_LOG}')"
    )


def test_a_job_that_is_over_says_so_at_once_frees_its_place_and_has_ended_when_the_cluster_says(
    cluster: Cluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = nemo2_text()
    cluster.logs[WIDE.id] = whole[: whole.index("iteration 49/49")]

    def submitted(name: str) -> None:
        if name == NARROW.id:
            # The rest of the log comes only now, so this place is that of a job whose case has not ended.
            cluster.logs[WIDE.id] = whole

    cluster.on_submit, cluster.ends[WIDE.id] = submitted, [RUNNING, DONE]
    ran = ClusterTimes(started=1000.0, ended=1234.5, earlier_seconds=60.0)
    monkeypatch.setattr(cluster, "times", lambda job: ran if job.name == WIDE.id else ClusterTimes())
    session = start(WIDE, NARROW, jobs_in_flight=1, log_settle_seconds=30)
    entries = session.finish()
    assert cluster.submitted == [WIDE.id, NARROW.id]
    assert (entries[WIDE.id].times.started, entries[WIDE.id].times.ended) == (1000.0, 1234.5)
    assert entries[WIDE.id].times.seconds == 294.5
    # A cluster that does not tell: when that was seen.
    ended, submitted_at = entries[NARROW.id].times.ended, entries[NARROW.id].times.submitted
    assert ended is not None
    assert submitted_at is not None
    assert submitted_at <= ended <= time.time()
    said = [line for line in told(session) if "is over" in line]
    assert [line.partition(" ")[2] for line in said] == [
        f"{WIDE.key}: job 1 is over: completed; the rest of its log is awaited"
    ]


def test_a_cluster_that_cannot_be_asked_for_the_end_ends_nothing(
    cluster: Cluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(job: JobRef) -> ClusterTimes:
        raise Unreachable("scontrol: no answer")

    monkeypatch.setattr(cluster, "times", refuse)
    assert start(WIDE).finish()[WIDE.id].failure == ""


def test_the_queue_is_asked_for_jobs_that_wait_longer(
    cluster: Cluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    queued = JobState(Phase.QUEUED, "PENDING", reason="Priority")
    asked: list[list[str]] = []

    def in_queue(jobs: Sequence[JobRef]) -> dict[JobRef, InQueue]:
        asked.append([job.name for job in jobs])
        return {job: InQueue(7) for job in jobs}

    monkeypatch.setattr(follow, "_SOON", 0.0)
    monkeypatch.setattr(cluster, "in_queue", in_queue)
    cluster.ends[WIDE.id], cluster.ends[NARROW.id] = [queued], [RUNNING]
    session = start(WIDE, NARROW)
    deadline = time.monotonic() + 60
    while "position 7, Priority" not in session.fleet.board[WIDE.key].waits:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert asked == [[WIDE.id]]
    session.fleet.stop()


SUSPENDED = JobState(Phase.QUEUED, "Suspended", "Preempted: by a workload of higher priority")


@pytest.mark.parametrize(
    ("states", "hours"),
    [
        ([RUNNING, SUSPENDED, JobState(Phase.FAILED, "CANCELLED")], 1),
        ([RUNNING, SUSPENDED, RUNNING, DONE], 2),
        ([RUNNING, JobState(Phase.QUEUED, "PENDING", "Priority"), RUNNING, DONE], 2),
        # A pod is lost, and the others hold their nodes.
        ([RUNNING, JobState(Phase.QUEUED, "Pending", "pod p-1", nodes="gpu001"), DONE], 11),
        ([SUSPENDED, RUNNING, DONE], 1),
    ],
    ids=["suspended", "resumed", "requeued", "lost", "first queued"],
)
def test_a_job_that_waits_again_after_it_ran_costs_no_gpu_hours_meanwhile(
    cluster: Cluster, start: Start, monkeypatch: pytest.MonkeyPatch, states: list[JobState], hours: float
) -> None:
    """A JobSet that Kueue evicts, or that is suspended, has no pods. One hour runs, ten hours wait."""
    real, ahead, left = time.time, [0.0], list(states)
    monkeypatch.setattr("time.time", lambda: real() + ahead[0])

    def state(job: JobRef) -> JobState:
        if not left:
            return states[-1]
        before = states[len(states) - len(left) - 1] if len(left) < len(states) else None
        if before is not None:
            ahead[0] += 3600 if before.phase is Phase.RUNNING else 36_000
        return left.pop(0)

    monkeypatch.setattr(cluster, "_state", state)
    session = start(WIDE)
    entry = session.finish()[WIDE.id]
    assert entry.gpu_hours == pytest.approx(hours * 512, rel=0.01)
    assert session.ledger.gpu_hours() == pytest.approx(hours * 512, rel=0.01)


def test_a_job_that_is_cancelled_while_it_is_suspended_cost_only_what_it_ran(
    cluster: Cluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, ahead, states = time.time, [0.0], [RUNNING, SUSPENDED]
    monkeypatch.setattr("time.time", lambda: real() + ahead[0])
    is_suspended = threading.Event()

    def state(job: JobRef) -> JobState:
        if job.name in cluster.cancelled:
            return JobState(Phase.FAILED, "CANCELLED")
        if len(states) > 1:
            return states.pop(0)
        is_suspended.set()
        return states[0]

    monkeypatch.setattr(cluster, "_state", state)
    session = start(WIDE)
    assert is_suspended.wait(60)
    until(lambda: session.fleet.board[WIDE.key].phase == "queued")
    ahead[0] = 36_000
    # Also before its end.
    assert session.ledger.gpu_hours() < 1
    session.fleet.stop()
    entry = session.entries()[WIDE.id]
    assert (entry.failure, entry.times.started) == ("interrupted", None)
    assert entry.gpu_hours is not None
    assert entry.gpu_hours < 1
