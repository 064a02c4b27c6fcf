"""What the fleet does with a cluster that can be scripted to the moment: order, limits, and who waits for whom."""

from __future__ import annotations

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
from fixtures.fleet import follow, log_reading, submit
from fixtures.fleet.state import Policy
from fixtures.runs.ledger import Ledger
from fixtures.runs.planned import PlannedJob
from fixtures.runs.resume import resumed
from plugins.base.errors import Denied, SiteError, Unreachable
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
    Start,
    failing,
    until,
)
from tests.unit.examples import nemo2_text
from tests.unit.jobs_log import planned

OTHER = examples.case("15b-bf16-64gpus", "nemotron4")
DENIED = "/logs/log cannot be read: Permission denied"
BEGUN = nemo2_text([10.0] * 3)
CANCELLED = JobState(Phase.FAILED, "CANCELLED")


# What is submitted, and what is never


def test_a_launcher_that_hangs_holds_nobody_up(cluster: Cluster, start: Start) -> None:
    release = threading.Event()
    cluster.on_submit = lambda name: release.wait(120) if name == WIDE.id else None
    session = start(WIDE, NARROW)
    until(lambda: session.job(NARROW).status == "ended")
    assert session.job(WIDE).status == "intent"
    release.set()
    assert session.end().failure == ""


def test_a_submission_that_was_denied_in_its_middle_is_looked_up(cluster: Cluster, start: Start) -> None:
    """The job may be there, and only what it mounts was denied. Nor does it end those that are still to come."""
    cluster.on_submit = failing(Denied("POST /configmaps: 401"), WIDE.id)
    cluster.use(find=lambda job, **_: replace(job, id="17", folder="/logs"))
    entries = start(WIDE, NARROW, submissions_at_once=1).finish()
    assert (entries[WIDE.id].ref.id, entries[WIDE.id].failure) == ("17", "")
    assert entries[NARROW.id].failure == ""
    assert cluster.submitted == [WIDE.id, NARROW.id]


def test_a_denied_submission_that_nobody_can_look_up_may_run(cluster: Cluster, start: Start) -> None:
    cluster.on_submit = failing(Denied("401"))
    cluster.use(find=failing(Denied("401")))
    entries = start(WIDE, NARROW, submissions_at_once=1, jobs_in_flight=1, unreachable_minutes=0.005).finish()
    assert (entries[WIDE.id].failure, entries[WIDE.id].may_run) == ("lost", True)
    assert "look for the name" in entries[WIDE.id].message
    assert entries[NARROW.id].message == "never submitted: 401"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Denied("the credentials are refused"), "never submitted: the credentials are refused"),
        (SiteError("the container image is missing"), "the container image is missing"),
    ],
)
def test_whoever_is_denied_from_the_start_does_not_wait_and_a_missing_stage_is_not_tried_again(
    cluster: Cluster, start: Start, error: Exception, message: str
) -> None:
    checks = list[Case]()

    def check(case: Case) -> None:
        checks.append(case)
        raise error

    cluster.on_check = check
    entry = start(WIDE, policy=Policy(retries=5)).end()
    assert (entry.failure, entry.message, entry.try_number) == ("infrastructure", message, 1)
    assert (len(checks), cluster.submitted) == (1, [])


def test_what_the_check_found_is_said_once(cluster: Cluster, start: Start) -> None:
    cluster.remarks = ["the bucket is written by the nodes"]
    session = start(MIDDLE, NARROW)
    session.finish()
    remarks = [line for line in session.messages() if "written" in line]
    assert remarks == [f"{MIDDLE.recipe}: {cluster.remarks[0]}"]


# States of a job


def test_a_job_that_starts_does_not_run_yet_and_has_a_limit_of_its_own(
    cluster: Cluster, start: Start, clock: Clock
) -> None:
    polls = list[int]()

    def poll(jobs: Sequence[JobRef]) -> dict[JobRef, JobState]:
        polls.append(len(jobs))
        return Cluster.poll(cluster, jobs)

    cluster.use(poll=poll)
    starting = JobState(Phase.STARTING, "Starting", "15 of 16 pods run", "gpu001")
    cluster.ends = {WIDE.id: [starting], NARROW.id: [starting]}
    session = start(WIDE, NARROW, start_minutes=5, run_minutes=1)
    until(lambda: polls.count(2) > 1)
    # Longer than it may run, and shorter than it may start.
    clock.ahead = 120
    before = len(polls)
    until(lambda: len(polls) > before + 1)
    cluster.ends[WIDE.id] = [RUNNING, DONE]
    until(lambda: session.job(WIDE).status == "ended")
    clock.ahead = 310
    entries = session.finish()
    assert (entries[WIDE.id].failure, entries[NARROW.id].failure) == ("", "infrastructure")
    reason = "its containers do not run; the cluster says: 15 of 16 pods run; cancelled"
    assert reason in entries[NARROW.id].message
    assert any("70b-fp8-64gpus: starting on gpu001" in line for line in session.messages())


def test_a_job_that_is_over_says_so_at_once_frees_its_place_and_has_ended_when_the_cluster_says(
    cluster: Cluster, start: Start
) -> None:
    whole = nemo2_text()
    cluster.logs[WIDE.id] = whole[: whole.index("iteration 49/49")]
    # The rest of the log comes only now, so this place is that of a job whose case has not ended.
    cluster.on_submit = lambda name: cluster.logs.update({WIDE.id: whole} if name == NARROW.id else {})
    cluster.ends[WIDE.id] = [RUNNING, DONE]
    ran = ClusterTimes(started=1000.0, ended=1234.5, earlier_seconds=60.0)
    cluster.use(times=lambda job: ran if job.name == WIDE.id else ClusterTimes())
    session = start(WIDE, NARROW, jobs_in_flight=1, log_settle_seconds=30)
    entries = session.finish()
    assert cluster.submitted == [WIDE.id, NARROW.id]
    times = entries[WIDE.id].times
    assert (times.started, times.ended, times.seconds) == (1000.0, 1234.5, 294.5)
    # A cluster that does not tell: when that was seen.
    ended, submitted_at = entries[NARROW.id].times.ended, entries[NARROW.id].times.submitted
    assert ended is not None
    assert submitted_at is not None
    assert submitted_at <= ended <= time.time()
    assert [line for line in session.messages() if "is over" in line] == [
        f"{WIDE.key}: job 1 is over: completed; the rest of its log is awaited"
    ]


def test_a_cluster_that_cannot_be_asked_for_the_end_ends_nothing(cluster: Cluster, start: Start) -> None:
    cluster.use(times=failing(Unreachable("scontrol: no answer")))
    assert start(WIDE).end().failure == ""


def test_a_cluster_that_cannot_be_asked_for_a_while_is_said_to_answer_again(
    cluster: Cluster, start: Start
) -> None:
    answers = iter([True, False, False, *[True] * 1000])

    def poll(jobs: Sequence[JobRef]) -> dict[JobRef, JobState]:
        if not next(answers):
            raise Unreachable("squeue: Socket timed out")
        return Cluster.poll(cluster, jobs)

    cluster.ends[WIDE.id] = [RUNNING] * 10 + [DONE]
    cluster.use(poll=poll)
    session = start(WIDE)
    assert session.end().failure == ""
    lines = session.messages()
    first = next(n for n, line in enumerate(lines) if line.startswith("slurm: cannot be asked, "))
    assert lines.index("slurm: answers again") > first


def test_the_queue_is_asked_for_jobs_that_wait_longer(
    cluster: Cluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[list[str]]()

    def in_queue(jobs: Sequence[JobRef]) -> dict[JobRef, InQueue]:
        asked.append([job.name for job in jobs])
        return {job: InQueue(7) for job in jobs}

    monkeypatch.setattr(follow, "_SOON", 0.0)
    cluster.use(in_queue=in_queue)
    cluster.run(NARROW)
    cluster.ends[WIDE.id] = [JobState(Phase.QUEUED, "PENDING", reason="Priority")]
    session = start(WIDE, NARROW)
    until(lambda: "position 7, Priority" in session.fleet.board[WIDE.key].waits)
    assert asked == [[WIDE.id]]


SUSPENDED = JobState(Phase.QUEUED, "Suspended", "Preempted: by a workload of higher priority")


@pytest.mark.parametrize(
    ("states", "hours"),
    [
        ([RUNNING, SUSPENDED, CANCELLED], 1),
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

    cluster.use(_state=state)
    session = start(WIDE)
    assert session.end().gpu_hours == pytest.approx(hours * 512, rel=0.01)
    assert session.ledger.gpu_hours() == pytest.approx(hours * 512, rel=0.01)


def test_a_job_that_is_cancelled_while_it_is_suspended_cost_only_what_it_ran(
    cluster: Cluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, ahead = time.time, [0.0]
    monkeypatch.setattr("time.time", lambda: real() + ahead[0])
    cluster.ends[WIDE.id] = [RUNNING, SUSPENDED]
    session = start(WIDE)
    until(lambda: session.job(WIDE).state == SUSPENDED)
    until(lambda: session.fleet.board[WIDE.key].phase == "queued")
    ahead[0] = 36_000
    # Also before its end.
    assert session.ledger.gpu_hours() < 1
    session.fleet.stop()
    entry = session.job(WIDE)
    assert (entry.failure, entry.times.started) == ("interrupted", None)
    assert entry.gpu_hours is not None
    assert entry.gpu_hours < 1


# Logs


def test_a_log_that_cannot_be_read_stops_nobody_and_is_read_by_the_next_session(
    cluster: Cluster, start: Start, tmp_path: Path
) -> None:
    cluster.on_read = failing(Unreachable(DENIED), WIDE.id)
    session = start(WIDE, NARROW, unreachable_minutes=0.005)
    lost = session.end()
    assert session.job(NARROW).failure == ""
    assert (lost.failure, lost.may_run) == ("lost", False)
    assert lost.message == (
        f"job {lost.ref.id} ended COMPLETED, but its log could not be read for 0.005 minutes: {DENIED}; "
        f"nothing was removed: `--resume {tmp_path.name}` reads it"
    )
    assert (cluster.released, cluster.cancelled) == ([NARROW.id], set())
    cluster.on_read = lambda name: None
    plans = resumed(session.ledger, "lab", [planned(WIDE, "slurm", WIDE.id)], {"slurm": cluster})
    session.resume(tmp_path, cluster, plans)
    entry = session.end()
    assert (entry.failure, entry.ref.id, len(cluster.submitted)) == ("", lost.ref.id, 2)


def endless(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Let the log of one job have more, whenever it is read, until the event that is returned is set."""
    over, read_log = threading.Event(), cluster.read_log

    def read(job: JobRef, place: LogPlace, wanted: Sequence[bytes]) -> LogPiece:
        if job.name != WIDE.id or over.is_set():
            return read_log(job, place, wanted)
        data = b"" if place.offset else nemo2_text().encode()
        marked = replace(place, file="log", offset=place.offset + len(data), mark=f"{place.mark}.")
        return LogPiece(data, marked, more=True)

    monkeypatch.setattr(log_reading, "_SECONDS", 0.0)
    cluster.use(read_log=read)
    return over


def test_a_long_log_of_a_job_that_is_over_holds_up_no_other_job(
    cluster: Cluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one with a hole of 30 GiB, which the login node searches for minutes."""
    over = endless(cluster, monkeypatch)
    session = start(WIDE, NARROW)
    until(lambda: session.job(NARROW).status == "ended")
    # Every step of the first one was read, and not yet what its log says behind them.
    assert session.job(WIDE).status == "submitted"
    over.set()
    assert {entry.failure for entry in session.finish().values()} == {""}


def test_a_long_log_of_a_job_that_is_over_does_not_hold_up_the_end_of_the_session(
    cluster: Cluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless(cluster, monkeypatch)
    cluster.run(NARROW)
    begun, read = threading.Event(), cluster.read_log

    def note(job: JobRef, place: LogPlace, wanted: Sequence[bytes]) -> LogPiece:
        if place.mark.endswith("....") and session.job(NARROW).status == "submitted":
            begun.set()
        return read(job, place, wanted)

    cluster.use(read_log=note)
    session = start(NARROW, WIDE)
    assert begun.wait(60)
    session.fleet.ask_to_stop()
    assert {entry.failure for entry in session.finish().values()} == {"interrupted"}
    assert NARROW.id in cluster.cancelled


def test_a_restart_that_is_heard_of_at_the_end_has_a_log_of_its_own(cluster: Cluster, start: Start) -> None:
    """What was read is the first start's. The launcher may give each start a log, or one to all."""
    places = list[LogPlace]()

    def read(job: JobRef, place: LogPlace, wanted: Sequence[bytes]) -> LogPiece:
        places.append(place)
        data = nemo2_text().encode()[place.offset :]
        return LogPiece(data, replace(place, file=f"log-{place.attempt}", offset=place.offset + len(data)))

    cluster.ends[WIDE.id] = [RUNNING] * 5 + [DONE]
    cluster.use(read_log=read, times=lambda job: ClusterTimes(restarts=1))
    assert start(WIDE).end().attempts == 2
    assert LogPlace(attempt=2) in places


def test_what_spoils_a_second_life_is_looked_for_although_the_first_had_it_too(
    cluster: Cluster, start: Start
) -> None:
    """A backend may leave out lines that the parser does not want; a new life's parser wants them all again."""
    socket = "gpu001:1:1 [0] NCCL INFO Using network Socket\n"
    asked = list[Sequence[bytes]]()
    lives = [socket + "Training epoch", socket + nemo2_text()]

    def read(job: JobRef, place: LogPlace, wanted: Sequence[bytes]) -> LogPiece:
        attempt = 1 if not place.file else 2
        begin = place.offset if place.attempt == attempt else 0
        asked.append(wanted)
        lines = lives[attempt - 1].encode().splitlines(keepends=True)
        data = b"".join(line for line in lines if any(word in line for word in wanted))
        return LogPiece(data[begin:], LogPlace(f"log{attempt}", len(lives[attempt - 1]), attempt))

    cluster.use(read_log=read)
    cluster.ends[WIDE.id] = [RUNNING, RUNNING, RUNNING, DONE]
    session = start(WIDE)
    session.finish()
    assert socket in (session.fleet.folder / WIDE.key / "log.txt").read_text()
    assert len(asked[-1]) < len(asked[0])


def test_a_job_that_runs_goes_on_while_its_log_cannot_be_read(
    cluster: Cluster, start: Start, clock: Clock
) -> None:
    def refuse(name: str) -> None:
        if len(cluster.ends[WIDE.id]) > 1:
            clock.ahead += 20
            raise Unreachable(DENIED)

    cluster.on_read, cluster.ends[WIDE.id] = refuse, [RUNNING] * 8 + [DONE]
    session = start(WIDE, unreachable_minutes=1)
    assert session.end(3600).failure == ""
    assert clock.ahead > 60
    assert (cluster.cancelled, len(cluster.submitted)) == (set(), 1)
    assert sum("its log cannot be read, will go on trying" in line for line in session.messages()) == 1


def test_every_step_is_judged_though_its_log_can_no_longer_be_read(cluster: Cluster, start: Start) -> None:
    """The access to the logs is lost after the last step, and the job ends by itself."""

    def refuse(name: str) -> None:
        if len(cluster.ends[WIDE.id]) == 1:
            raise Unreachable("pods/log is forbidden")

    cluster.on_read, cluster.ends[WIDE.id] = refuse, [RUNNING] * 30 + [DONE]
    entry = start(WIDE, unreachable_minutes=1).end()
    assert (entry.failure, entry.times.cancel_asked, cluster.cancelled) == ("", None, set())
    assert "every step was read, but what its log says after them could not be read" in entry.log_note


def test_every_step_is_judged_though_the_cluster_can_no_longer_be_asked(
    cluster: Cluster, start: Start
) -> None:
    cluster.run(WIDE)
    session = start(WIDE, unreachable_minutes=0.002)
    until(lambda: session.fleet.board[WIDE.key].done == WIDE.steps)
    refuse = failing(Unreachable("401 Unauthorized"))
    cluster.use(poll=refuse, read_log=refuse, cancel=refuse)
    entry = session.end()
    assert (entry.failure, entry.may_run) == ("hung", True)
    assert "could not be asked for 0.002 minutes: 401 Unauthorized; the job may still run" in entry.message


@pytest.mark.parametrize(("end", "noted"), [(DONE, True), (BROKEN, False)])
def test_a_log_that_ends_before_a_job_that_completes_is_told_what_may_have_cut_it(
    cluster: Cluster, start: Start, end: JobState, noted: bool
) -> None:
    cluster.cut_log = "the disk was full for a moment"
    cluster.ends[WIDE.id], cluster.logs[WIDE.id] = [end], BEGUN
    assert start(WIDE).end().log_note == cluster.cut_log * noted


# Cancellations, and what is removed


def complete(cluster: Cluster) -> None:
    """Let the job complete by itself when it is cancelled."""
    cluster.run(WIDE)
    cluster.use(cancel=lambda jobs: cluster.ends.update({WIDE.id: [DONE]}))


def test_a_job_that_ends_by_itself_while_it_is_cancelled_was_not_cancelled(
    cluster: Cluster, start: Start
) -> None:
    complete(cluster)
    cluster.logs[WIDE.id] = BEGUN
    assert start(WIDE, run_minutes=0.001).end().message.endswith("; it ended COMPLETED meanwhile")


def test_a_job_that_completes_while_it_is_cancelled_is_not_called_cancelled(
    cluster: Cluster, start: Start
) -> None:
    complete(cluster)
    session = start(WIDE)
    session.await_submitted()
    session.fleet.stop()
    assert session.end().message.endswith("; job 1 had completed before it could be cancelled")


def test_a_job_that_does_not_end_when_asked_to_is_named_with_what_the_cluster_says(
    cluster: Cluster, start: Start, tmp_path: Path
) -> None:
    cluster.use(cancel=lambda jobs: None)
    cluster.ends[WIDE.id], cluster.logs[WIDE.id] = [replace(RUNNING, reason="it has finalizers")], BEGUN
    entry = start(WIDE, run_minutes=0.001, cancel_seconds=0.1).end()
    assert (entry.failure, entry.may_run) == ("infrastructure", True)
    assert entry.message.startswith("job 1: ")
    reason = "its cancellation was asked for but NOT confirmed (it has finalizers), look after it"
    assert entry.message.endswith(f"; {reason}")
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
    waits = list[float]()

    def cancel(backend: Backend, ledger: Ledger, jobs: Iterable[JobRef], seconds: float) -> dict[JobRef, str]:
        waits.append(max(0.0, seconds))
        time.sleep(waits[-1])
        return dict.fromkeys(jobs, "pods that have not ended: a on node-0")

    cluster.run(WIDE)
    monkeypatch.setattr("fixtures.fleet.ending.cancel", cancel)
    session = start(WIDE, cancel_seconds=0.2)
    session.await_submitted()
    session.fleet.stop()
    reason = "which is NOT confirmed (pods that have not ended: a on node-0): look after it"
    assert reason in session.end().message
    assert (len(waits), waits[1]) == (2, 0.0)


def test_what_could_not_be_removed_is_left_to_a_sweep(cluster: Cluster, start: Start) -> None:
    cluster.use(release=lambda jobs: dict.fromkeys(jobs, Unreachable("403 Forbidden")))
    session = start(WIDE)
    entry = session.end()
    assert (entry.failure, entry.may_run) == ("", True)
    assert any("could not be removed: 403 Forbidden" in line for line in session.messages())


# The end of a session


def test_stopping_cancels_what_runs_and_ends_what_waits(cluster: Cluster, start: Start) -> None:
    cluster.run(WIDE)
    session = start(WIDE, NARROW, jobs_in_flight=1)
    session.await_submitted(WIDE)
    session.fleet.stop()
    assert cluster.cancelled == {WIDE.id}
    assert session.job(WIDE).times.cancel_confirmed is not None
    assert "it was never submitted" in session.job(NARROW).message


def test_what_no_launcher_has_begun_was_never_submitted(
    cluster: Cluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The only launcher is at the check of another recipe until nothing else can begin."""
    closed = threading.Event()

    class Launchers(ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            closed.set()
            super().shutdown(wait=wait)

    monkeypatch.setattr(submit, "ThreadPoolExecutor", Launchers)
    cluster.on_check = lambda case: closed.wait(60) if case == OTHER else None
    session = start(WIDE, OTHER, submissions_at_once=1)
    until(lambda: session.job(WIDE).status == "intent")
    session.fleet.stop()
    entry = session.job(WIDE)
    assert (cluster.submitted, entry.may_run) == ([], False)
    assert entry.message.endswith("; it was never submitted")


def test_stopping_does_not_wait_for_a_launcher_to_cancel_the_others(cluster: Cluster, start: Start) -> None:
    release = threading.Event()
    cluster.run(WIDE)
    cluster.on_submit = lambda name: release.wait(120) if name == NARROW.id else None
    session = start(WIDE, NARROW)
    session.await_submitted(WIDE)
    until(lambda: len(cluster.submitted) == 2)
    session.fleet.ask_to_stop()
    until(lambda: session.job(WIDE).times.cancel_confirmed is not None)
    assert session.job(NARROW).status == "intent"
    release.set()
    session.finish()
    assert cluster.cancelled == {WIDE.id, NARROW.id}
    assert session.job(NARROW).times.cancel_confirmed is not None


def test_a_signal_that_does_not_end_the_wait_for_the_fleet_is_heard(cluster: Cluster, start: Start) -> None:
    heard, main = threading.Event(), threading.main_thread()
    in_time = list[bool]()

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
        assert session.end().times.cancel_confirmed is not None
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
    assert (session.job(WIDE).status, cluster.submitted) == ("ended", [])


# A folder that can no longer be written


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), OSError(122, "Disk quota exceeded")]
)
def test_a_full_disk_leaves_no_job_and_nobody_waiting_and_says_how_to_go_on(
    cluster: Cluster, start: Start, error: Exception
) -> None:
    cluster.run(WIDE)
    cluster.on_read = failing(error)
    session = start(WIDE)
    entry = session.end()
    assert (cluster.cancelled, entry.status) == ({WIDE.id}, "ended")
    for reason in (entry.message, session.fleet.defect):
        assert f"the disk of the results folder is full ({error})" in reason
        assert f"`--resume {session.fleet.folder.name}` goes on" in reason
    assert any(line.endswith("; cancelling what is left") for line in session.messages())


@pytest.mark.parametrize("how", ["removed", "a file"])
def test_results_that_vanish_leave_no_job_and_submit_none(
    cluster: Cluster, start: Start, how: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cluster.run(WIDE)
    session = start(WIDE, NARROW, jobs_in_flight=1)
    session.await_submitted(WIDE)
    folder = session.fleet.folder
    folder.rename(tmp_path_factory.mktemp("away") / "run")
    if how == "a file":
        folder.touch()
    until(lambda: not session.fleet.running)
    assert (cluster.submitted, cluster.cancelled) == ([WIDE.id], {WIDE.id})
    reason = "the results folder cannot be written to any more"
    assert session.fleet.defect.startswith(f"{reason} (")
    assert reason in "\n".join(session.messages())


def test_a_ledger_that_is_gone_before_it_is_opened_keeps_no_job_of_an_earlier_session(
    cluster: Cluster, tmp_path: Path
) -> None:
    session = Session(tmp_path, cluster, [WIDE], Policy())
    path = tmp_path / JOBS_LOG
    path.unlink()
    path.mkdir()
    job = JobRef(WIDE.recipe, WIDE.id, WIDE.id, "4711", "/logs")
    session.resume(tmp_path, cluster, [PlannedJob(WIDE, "slurm", job, "nemo2", age=0.0)])
    session.fleet.stop()
    assert cluster.cancelled == {WIDE.id}
    trouble = f"[Errno 22] it is no regular file: '{path}'"
    assert session.fleet.defect == f"the results folder cannot be written to any more ({trouble})"
