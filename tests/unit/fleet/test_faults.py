"""What the fleet does where it fails itself, is told to stop, or never hears what became of a submission."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.backends.section import Limits
from fixtures.fleet import submit
from fixtures.fleet.controller import Fleet
from fixtures.fleet.jobs import TrackedJobs
from fixtures.fleet.state import Policy
from fixtures.runs.known import LogFile
from fixtures.runs.ledger import Ledger
from fixtures.runs.lock import set_aside
from plugins.base.errors import SubmitError, Unreachable, Unsent
from plugins.recipes.cases import Case
from plugins.record.job import JobRef, JobState, Phase
from plugins.record.lines import JOBS_LOG
from tests.unit import examples
from tests.unit.cluster import (
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
    failing,
    until,
)
from tests.unit.jobs_log import planned

FULL = OSError(28, "No space left on device")
CUT_OFF = Unreachable("ssh: the connection broke")
NO_SESSION = Unsent("ssh login: the server allows no further session")


def test_a_ledger_that_cannot_be_written_leaves_no_job(
    cluster: Cluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = threading.Event()

    def submit(name: str) -> None:
        if name != WIDE.id:
            # These launchers are under way when the ledger fails, and say what their job is only then.
            assert broken.wait(60)
            time.sleep(0.1)

    cases = (WIDE, MIDDLE, NARROW)
    cluster.on_submit = submit
    cluster.run(*cases)
    session = start(*cases)
    session.await_submitted(WIDE)
    until(lambda: len(cluster.submitted) == 3)
    monkeypatch.setattr(LogFile, "_write", failing(OSError(122, "Disk quota exceeded")))
    broken.set()
    session.finish()
    assert cluster.cancelled == {case.id for case in cases}
    assert "quota exceeded" in session.fleet.defect
    lines = "\n".join(session.messages())
    for case in cases:
        assert f"{case.key}: interrupted: {session.fleet.defect}; job" in lines


def test_a_refused_submission_is_not_tried_again_when_all_is_cancelled(
    cluster: Cluster, start: Start, tmp_path: Path
) -> None:
    begun, failed = threading.Event(), threading.Event()

    def refuse(name: str) -> None:
        if name == NARROW.id:
            begun.set()
            assert failed.wait(60)
            time.sleep(0.1)
            raise SubmitError("sbatch: error: invalid account")

    def fail(name: str) -> None:
        assert begun.wait(60)
        failed.set()
        raise FULL

    cluster.run(WIDE)
    cluster.on_submit, cluster.on_read = refuse, fail
    set_aside(tmp_path)
    entry = start(NARROW, WIDE, policy=Policy(retries=1)).end()
    # What follows needs the disk.
    assert not (tmp_path / "reserve").exists()
    assert (entry.try_number, entry.failure) == (1, "infrastructure")
    assert "invalid account" in entry.message


def test_the_answers_of_all_launchers_count_whatever_defects_they_meet(
    cluster: Cluster, start: Start
) -> None:
    together = threading.Barrier(3)

    def submit(name: str) -> None:
        together.wait(60)
        if name != NARROW.id:
            raise KeyError("foreseen by nobody")

    cluster.run(NARROW)
    cluster.on_submit = submit
    entry = start(NARROW, WIDE, MIDDLE, submissions_at_once=3).end()
    assert cluster.cancelled == {NARROW.id}
    assert (entry.failure, entry.may_run) == ("interrupted", False)


def test_what_a_broken_ledger_leaves_unconfirmed_is_named(cluster: Cluster, start: Start) -> None:
    """The cluster takes no cancellation, and one launcher ends with an error that nobody foresaw."""
    cluster.run(WIDE)
    cluster.on_submit = failing(KeyError("foreseen by nobody"), NARROW.id)
    cluster.use(cancel=failing(Unreachable("scancel: Socket timed out")))
    session = start(WIDE, NARROW, cancel_seconds=0.1)
    session.finish()
    lines = "\n".join(session.messages())
    assert "job 1 was asked to end, which is NOT confirmed" in lines
    assert f"look for a job named {NARROW.id}" in lines
    assert all(entry.may_run for entry in session.ledger.entries())


def test_no_backend_submits_a_job_whose_intent_is_not_on_disk(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fills up, and the backend that meets that first ignores what can no longer be written."""
    full, forgiven = threading.Event(), threading.Event()

    def read(name: str) -> None:
        full.set()
        raise FULL

    def write(file: LogFile, data: bytes, *, sync: bool) -> None:
        if full.is_set():
            raise FULL
        really(file, data, sync=sync)

    def forgive(ledger: Ledger) -> None:
        forgive_(ledger)
        forgiven.set()

    really, forgive_ = LogFile._write, Ledger.forgive
    monkeypatch.setattr(LogFile, "_write", write)
    monkeypatch.setattr(Ledger, "forgive", forgive)
    other = Cluster()
    cluster.run(WIDE)
    cluster.on_read, other.on_check = read, lambda case: forgiven.wait(60)
    backends = {"slurm": cluster, "local": other}
    plans = [planned(WIDE, "slurm", WIDE.id), planned(NARROW, "local", NARROW.id)]
    ledger = Ledger.create(tmp_path / JOBS_LOG, "run-1", "lab")
    ledger.plan(plans)
    site = Site(gpu="h100", limits=Limits(cancel_seconds=2))
    fleet = Fleet(tmp_path, ledger, plans, backends, dict.fromkeys(backends, site), Policy())
    fleet.start()
    until(lambda: not fleet.running)
    assert (cluster.submitted, cluster.cancelled, other.submitted) == ([WIDE.id], {WIDE.id}, [])
    assert "the disk of the results folder is full" in fleet.defect
    entry = Ledger(tmp_path / JOBS_LOG).entry(NARROW.key)
    assert entry is not None
    assert not entry.may_run


def test_a_signal_that_interrupts_the_handler_of_another_waits_for_nothing(
    cluster: Cluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To wake a thread takes a lock, and the handler that is interrupted may be the one that holds it."""
    cluster.run(WIDE)
    session = start(WIDE)
    calls = list[TrackedJobs]()
    wake = TrackedJobs.wake

    def interrupted(jobs: TrackedJobs) -> None:
        if threading.current_thread() is threading.main_thread():
            calls.append(jobs)
            assert len(calls) == 1, "would wait for its own lock"
            session.fleet.ask_to_stop()
        wake(jobs)

    with monkeypatch.context() as signals:
        signals.setattr(TrackedJobs, "wake", interrupted)
        session.fleet.ask_to_stop()
    assert (len(calls), session.fleet.stopping) == (1, True)
    session.finish()
    assert cluster.cancelled <= {WIDE.id}


# Submissions of which nobody knows what became


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launcher that was cut off can submit for half a second more."""
    monkeypatch.setattr(Site, "launch_bound", 0.5)
    monkeypatch.setattr("fixtures.runs.unconfirmed.LOOK_AGAIN_SECONDS", 0.3)


@pytest.mark.usefixtures("soon")
def test_a_job_that_one_empty_list_hides_is_found_by_the_next_look(cluster: Cluster, start: Start) -> None:
    asked = time.monotonic()

    def find(job: JobRef, *, to_end: bool = False) -> JobRef | None:
        return replace(job, id="7", folder="/logs") if time.monotonic() - asked > 0.7 else None

    cluster.use(find=find)
    cluster.on_submit = failing(CUT_OFF)
    entry = start(WIDE).end()
    assert (entry.failure, entry.ref.id, cluster.submitted) == ("", "7", [WIDE.id])


@pytest.mark.usefixtures("soon")
def test_a_job_that_cannot_be_looked_up_is_lost_and_holds_up_no_other(cluster: Cluster, start: Start) -> None:
    """The controller answers, and does not know it; only the accounting, which is down, could say that there is none."""
    cluster.use(find=failing(Unreachable("lab: sacct: Connection refused")))
    cluster.on_submit = failing(CUT_OFF, WIDE.id)
    cluster.ends[NARROW.id] = [RUNNING] * 50 + [DONE]
    session = start(WIDE, NARROW, policy=Policy(retries=1), unreachable_minutes=0.005)
    entry = session.end()
    assert (session.job(NARROW).failure, entry.failure) == ("", "lost")
    reason = "its job could not be looked up for 0.005 minutes: lab: sacct: Connection refused"
    assert entry.message == f"{reason}; it may run: look for the name {WIDE.id}"
    assert cluster.submitted == [WIDE.id, NARROW.id]
    assert [entry.ref.name for entry in session.ledger.entries() if entry.may_run] == [WIDE.id]


def test_a_job_that_cannot_be_looked_up_keeps_no_other_waiting(cluster: Cluster, start: Start) -> None:
    cluster.on_submit = failing(CUT_OFF, NARROW.id)
    cluster.use(find=failing(CUT_OFF))
    session = start(WIDE, NARROW)
    until(lambda: session.job(WIDE).status == "ended")
    assert (session.job(WIDE).failure, session.job(NARROW).status) == ("", "intent")


@pytest.mark.usefixtures("soon")
def test_the_bound_of_a_launcher_does_not_begin_before_itself(
    cluster: Cluster, start: Start, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """It waits here for the check of another recipe, which takes longer than that bound."""
    other = examples.case("15b-bf16-64gpus", "nemotron4")
    looks = list[str]()
    begun = threading.Event()

    def check(case: Case) -> None:
        if case.recipe == other.recipe:
            assert begun.wait(60)
            until(lambda: session.fleet.board[WIDE.key].phase == "sending")
            clock.ahead = 700

    def find(job: JobRef, *, to_end: bool = False) -> JobRef | None:
        """By the third look only: after the bound, the second one would be the last."""
        looks.append(job.name)
        return replace(job, id="7", folder="/logs") if len(looks) > 2 else None

    monkeypatch.setattr(Site, "launch_bound", 600)
    monkeypatch.setattr("fixtures.runs.unconfirmed.LOOK_AGAIN_SECONDS", 0.0)
    cluster.use(find=find)
    cluster.on_check, cluster.on_submit = check, failing(CUT_OFF, WIDE.id)
    session = start(WIDE, other, submissions_at_once=1)
    begun.set()
    entry = session.end(3600)
    assert (entry.failure, entry.ref.id) == ("", "7")


@pytest.mark.parametrize("minutes", [30.0, 0.0])
def test_a_submission_of_which_nothing_was_sent_is_made_again(
    cluster: Cluster, start: Start, monkeypatch: pytest.MonkeyPatch, minutes: float
) -> None:
    """No job is looked for, and nobody waits for the bound of a launcher."""
    monkeypatch.setattr(submit, "_AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(Site, "launch_bound", 3600)

    def refuse(name: str) -> None:
        if name == WIDE.id and cluster.submitted.count(name) < 3:
            raise NO_SESSION

    cluster.on_submit = refuse
    session = start(WIDE, NARROW, unreachable_minutes=minutes or 1e-9)
    entry = session.end()
    assert session.job(NARROW).failure == ""
    if minutes:
        assert (entry.failure, cluster.submitted.count(WIDE.id)) == ("", 3)
    else:
        message = f"nothing could be sent: {NO_SESSION}"
        assert (entry.failure, entry.message, entry.may_run) == ("infrastructure", message, False)


def test_what_could_not_be_sent_until_the_session_ends_was_never_submitted(
    cluster: Cluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submit, "_AGAIN_SECONDS", 0.01)
    cluster.on_submit = failing(NO_SESSION)
    session = start(WIDE)
    until(lambda: cluster.submitted.count(WIDE.id) > 1)
    session.fleet.stop()
    entry = session.end()
    message = "the session was stopped; it was never submitted"
    assert (entry.failure, entry.message) == ("interrupted", message)


def test_a_screened_node_that_is_drained_before_its_job_begins_is_not_waited_for(
    cluster: Cluster, tmp_path: Path, clock: Clock
) -> None:
    reason = "ReqNodeNotAvail, UnavailableNodes:gpu001"
    drained = JobState(Phase.QUEUED, "PENDING", reason=reason)
    # Another job runs there at first, for longer than a node that takes no jobs is waited for.
    busy = JobState(Phase.QUEUED, "PENDING", reason="Resources")

    def state(job: JobRef) -> JobState:
        if job.name in cluster.cancelled:
            return JobState(Phase.FAILED, "CANCELLED")
        clock.ahead += 60
        return drained if clock.ahead > 3600 else busy

    cluster.use(_state=state, on_nodes=lambda nodes: cluster)
    session = Session(tmp_path, cluster, [NARROW], Policy())
    (job,) = session.fleet._controllers[0].jobs.cases
    job.nodes = "gpu001"
    session.fleet.start()
    entry = session.end(90_000)
    assert (entry.failure, cluster.cancelled) == ("infrastructure", {NARROW.id})
    message = f"job 1: its nodes (gpu001) have taken no jobs for 15 minutes; the queue says: {reason}"
    assert entry.message.startswith(message)
    assert 3600 + 900 < clock.ahead < 3600 + 900 + 600
