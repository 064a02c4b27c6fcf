"""What `--cancel`, `--sweep` and `--list-runs` do with what dead runs left, however little of it can be reached."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fixtures import housekeeping
from fixtures.backends.base import Backend
from fixtures.backends.section import Limits, Machine
from fixtures.runs.folders import Summary, all_runs, find_run, print_runs
from fixtures.runs.known import LogFile, process_start
from fixtures.runs.ledger import Ledger
from fixtures.runs.leftovers import cancel_left, stop_run
from fixtures.runs.lock import RunLock, take_run
from fixtures.site import Site
from plugins.base.errors import Absent, ConfigError, Denied, SubmitError, Unreachable
from plugins.recipes.cases import Case
from plugins.record.job import Failure, Job, JobRef
from plugins.record.lines import JOBS_LOG
from tests.unit.cluster import DONE, MIDDLE, NARROW, RUNNING, WIDE, Clock, Cluster
from tests.unit.jobs_log import line_of, planned, rewrite

BOUND = 0.0
FULL = OSError(28, "No space left on device")
SIXTH = JobRef(NARROW.recipe, NARROW.id, NARROW.id, "6", "/logs")
ROOT = Path(__file__).resolve().parents[3]


class Brief(Machine):
    @property
    def launch_bound(self) -> float:
        return BOUND


class Lab(Site):
    """Its launchers are short."""

    def section(self, backend: str) -> Machine | None:
        return Brief(gpu="h100", limits=Limits(cancel_seconds=0.5)) if backend == "slurm" else None


def raising(error: BaseException) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def keep_house(
    folder: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, site: str = "lab", **option: object
) -> int:
    """What `--sweep` of the runs beside this one exits with."""
    options = SimpleNamespace(**{"list_runs": False, "cancel": None, "sweep": True, **option})
    config: Any = SimpleNamespace(option=options, rootpath=ROOT)
    monkeypatch.setattr(housekeeping, "make_backends", lambda *_, **__: {"slurm": cluster})
    monkeypatch.setattr(housekeeping, "results_folder", lambda _: folder.parent)
    return int(housekeeping._keep_house(config, Lab(site=site)))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fixtures.runs.leftovers._LOOK_SECONDS", 0.1)
    monkeypatch.setattr("fixtures.runs.unconfirmed.LOOK_SECONDS", 0.05)
    monkeypatch.setattr("fixtures.runs.unconfirmed.LOOK_AGAIN_SECONDS", 0.1)


class Known(Cluster):
    """Its jobs run until they are cancelled; `there` are found by their names. `asked` is when each was cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.ends = {case.id: [RUNNING] for case in (NARROW, WIDE)}
        self.there: dict[str, JobRef] = {}
        self.error: Exception | None = None
        self.began = time.monotonic()

    def find(self, job: JobRef, *, to_end: bool = False) -> JobRef | None:
        if self.error is not None:
            raise self.error
        # What is found is looked for after what is known was cancelled.
        assert WIDE.id in self.cancelled
        return self.there.get(job.name)


class DeadRun:
    """A run of three cases whose session died: one has a job, one's launcher was cut off, one was never sent."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.patch, self.cluster = folder, patch, Known()
        folder.mkdir()
        ledger = Ledger.create(folder / JOBS_LOG, "run-1", "lab")
        ledger.plan([planned(case, "slurm", case.id) for case in (NARROW, WIDE, MIDDLE)])
        ledger.intend(NARROW.key)
        ledger.intend(WIDE.key)
        ledger.submitted(JobRef(WIDE.recipe, WIDE.id, WIDE.id, "5", "/logs"))

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.folder / JOBS_LOG)

    def sweep(self, site: Site | None = None) -> tuple[bool, str]:
        """Whether all is over, and what was said."""
        said = io.StringIO()
        good = cancel_left(self.folder, site or Lab(site="lab"), {"slurm": self.cluster}, said)
        return good, said.getvalue()

    def entry(self, case: Case) -> Job:
        job = self.ledger.entry(case.key)
        assert job is not None
        return job

    def shown(self) -> str:
        """What `--list-runs` says of the runs beside this one."""
        text = io.StringIO()
        print_runs(self.folder.parent, text, 250)
        return " ".join(text.getvalue().split())

    def left(self) -> list[str]:
        return [job.case for job in Summary.of(self.folder).left]

    def beside(self) -> Path:
        """The folder of another run."""
        path = self.folder.with_name("run-0")
        path.mkdir()
        return path


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeadRun:
    return DeadRun(tmp_path / "run-1", monkeypatch)


def test_known_jobs_are_cancelled_before_lost_ones_are_looked_for(run: DeadRun) -> None:
    run.patch.setitem(globals(), "BOUND", 60.0)
    clock = Clock()

    def sleep(seconds: float) -> None:
        clock.ahead += seconds

    run.patch.setattr(time, "monotonic", clock)
    run.patch.setattr(time, "sleep", sleep)
    good, said = run.sweep()
    assert good
    assert run.cluster.cancelled == {WIDE.id}
    assert f"{WIDE.key}: job 5 is over" in said
    assert "may still submit a job; looking until" in said
    assert f"{NARROW.key}: there is no job named {NARROW.id}" in said
    # Not before its launcher must have ended.
    assert time.monotonic() - run.cluster.began > BOUND - 0.5
    assert run.left() == []


@pytest.mark.parametrize("over", [True, False])
def test_a_copy_of_a_job_that_is_over_is_somebody_elses(run: DeadRun, over: bool) -> None:
    """A JobSet that was deleted, and applied again from a copy with our name and annotation."""
    ledger, job = run.ledger, replace(run.entry(WIDE).ref, uid="uid-1")
    ledger.submitted(job)
    if over:
        ledger.end(WIDE.key, "infrastructure", "somebody deleted the JobSet")
    ended = list[JobRef]()
    run.patch.setattr(run.cluster, "listed", lambda prefix: [replace(job, uid="uid-2")])
    run.patch.setattr(run.cluster, "find", lambda job, to_end=False: None)
    run.patch.setattr(run.cluster, "cancel", ended.extend)
    run.cluster.ends[WIDE.id] = [DONE]
    good, said = run.sweep()
    assert good, said
    assert ended == ([] if over else [job])


def test_a_run_of_another_site_is_left_alone(run: DeadRun) -> None:
    with pytest.raises(ConfigError, match="run run-1 was on site lab, but --site is dc2"):
        run.sweep(Lab(site="dc2"))
    assert (run.cluster.cancelled, run.left()) == (set(), [NARROW.key, WIDE.key])


def test_what_a_dead_run_left_on_the_stage_is_removed_with_its_job(run: DeadRun) -> None:
    assert run.sweep()[0]
    assert run.cluster.released == [WIDE.id]


def test_all_cases_of_a_run_that_was_swept_have_ended(run: DeadRun) -> None:
    """Also one that waited for its isolation, and one that was never sent: otherwise nobody could bundle the run."""
    ledger = run.ledger
    ledger.end(NARROW.key, "", ended=5.0)
    ledger.hold([NARROW.key])
    assert run.sweep()[0]
    narrow, wide, middle = (run.entry(case) for case in (NARROW, WIDE, MIDDLE))
    assert (narrow.status, narrow.failure, narrow.message, narrow.times.ended) == ("ended", "", "", 5.0)
    assert (middle.status, middle.failure, middle.message) == (
        "ended",
        "interrupted",
        "it was never submitted",
    )
    assert (wide.status, run.left()) == ("ended", [])


@pytest.mark.parametrize("removed", [True, False])
def test_what_a_job_left_that_ended_is_removed_and_its_case_stays(run: DeadRun, removed: bool) -> None:
    ledger = run.ledger
    ledger.end(NARROW.key, "interrupted")
    ledger.observe(WIDE.key, DONE)
    ledger.end(WIDE.key)
    # As a session does that could not remove it.
    ledger.cancel_asked(WIDE.key)
    if not removed:
        refusal = Unreachable("403 Forbidden")
        run.patch.setattr(run.cluster, "release", lambda jobs: dict.fromkeys(jobs, refusal))
    good, said = run.sweep()
    job = run.entry(WIDE)
    assert (good, job.failure, job.state, job.may_run) == (removed, "", DONE, not removed)
    assert run.cluster.cancelled == set()
    assert f"{WIDE.key}: what is left of job 5 " + ("is removed" if removed else "could not be") in said


@pytest.mark.parametrize("failure", ["hung", "given up", "infrastructure", "lost", "interrupted"])
def test_a_case_stays_as_it_ended_if_the_end_is_confirmed_later(run: DeadRun, failure: Failure) -> None:
    ledger = run.ledger
    ledger.end(NARROW.key, "interrupted")
    ledger.cancel_asked(WIDE.key)
    ledger.end(WIDE.key, failure, "its cancellation is NOT confirmed")
    assert run.sweep()[0]
    job = run.entry(WIDE)
    assert (job.state.phase.over, job.may_run) == (True, False)
    # What a stop cut off and what is lost is to run again.
    expected = "interrupted" if failure == "lost" else failure
    assert (job.failure, "NOT confirmed" in job.message) == (expected, expected != "interrupted")


def test_what_a_cancelled_job_left_that_cannot_be_removed_is_told_and_swept_again(run: DeadRun) -> None:
    with run.patch.context() as patch:
        refusal = Unreachable("Read-only file system")
        patch.setattr(run.cluster, "release", lambda jobs: dict.fromkeys(jobs, refusal))
        good, said = run.sweep()
    assert (good, run.left()) == (False, [WIDE.key])
    assert f"{WIDE.key}: what is left of job 5 could not be removed: Read-only file system" in said
    good, said = run.sweep()
    assert (good, run.left(), run.cluster.released) == (True, [], [WIDE.id])
    assert "could not be removed" not in said


def test_a_lost_job_is_cancelled_as_soon_as_it_is_found(run: DeadRun) -> None:
    run.patch.setitem(globals(), "BOUND", 60.0)
    run.cluster.there[NARROW.id] = SIXTH
    good, said = run.sweep()
    assert good
    assert run.cluster.cancelled == {WIDE.id, NARROW.id}
    assert f"{NARROW.key}: job 6 is over" in said
    assert time.monotonic() - run.cluster.began < BOUND
    assert run.left() == []


def test_one_that_cannot_be_looked_up_keeps_no_other_alive(run: DeadRun) -> None:
    run.cluster.error = SubmitError("but a part of it exists, and the rest is refused")
    good, said = run.sweep()
    assert not good
    assert run.cluster.cancelled == {WIDE.id}
    assert f"{NARROW.key}: cannot be looked up, so it may still run: but a part of it exists" in said
    assert run.left() == [NARROW.key]


def test_a_lost_job_that_one_empty_list_hides_is_found_by_the_next_look(run: DeadRun) -> None:
    """As the session looks, so does a sweep: its launcher ended long ago."""
    answers = iter([None, SIXTH])
    run.patch.setattr(run.cluster, "find", lambda job, **_: next(answers))
    good, said = run.sweep()
    assert (good, run.cluster.cancelled) == (True, {WIDE.id, NARROW.id})
    assert "looking until" not in said


@pytest.mark.parametrize(
    "error", [Absent("the name login cannot be resolved"), Denied("the login was refused")]
)
def test_a_cluster_whose_access_somebody_must_mend_is_said_once_with_the_jobs_there(
    run: DeadRun, error: Unreachable
) -> None:
    """Not asked again and again for the time that a cancellation may take."""
    asked: list[str] = []

    def refuse(prefix: str) -> list[JobRef]:
        asked.append(prefix)
        raise error

    run.patch.setattr(run.cluster, "listed", refuse)
    good, said = run.sweep()
    assert not good
    assert said.count(str(error)) == 1
    assert f"slurm cannot be asked, so nothing was cancelled there: {error}" in said
    assert f"{WIDE.key}: job 5 may still run" in said
    assert f"{NARROW.key}: job {NARROW.id} may still run" in said
    assert (len(asked), run.cluster.cancelled) == (1, set())
    assert sorted(run.left()) == sorted([NARROW.key, WIDE.key])


def test_ctrl_c_during_a_sweep_says_what_is_left(run: DeadRun, capsys: pytest.CaptureFixture[str]) -> None:
    run.patch.setattr(housekeeping, "_sweep", raising(KeyboardInterrupt()))
    assert keep_house(run.folder, run.cluster, run.patch) == pytest.ExitCode.INTERRUPTED
    assert "interrupted: jobs without a line above may still run; repeat --sweep" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("site", "clusters", "reason"),
    [
        (Site(site="lab"), {"slurm": Known()}, "the site file has no `slurm:` section"),
        (Lab(site="lab"), {}, "its recipe is not in suites/"),
    ],
    ids=["section", "recipe"],
)
def test_what_the_site_file_cannot_reach_is_said_and_stays_in_the_ledger(
    run: DeadRun, site: Site, clusters: dict[str, Backend], reason: str
) -> None:
    said = io.StringIO()
    assert not cancel_left(run.folder, site, clusters, said)
    assert f"{WIDE.key}: 5 is left as it is: {reason}" in said.getvalue()
    assert f"{NARROW.key}: {NARROW.id} is left as it is: {reason}" in said.getvalue()
    assert run.left() == [NARROW.key, WIDE.key]


def test_a_copy_from_another_host_is_cancelled_only_where_it_is_named(run: DeadRun) -> None:
    """Whether the original is alive there, nobody can know here."""
    original = run.folder
    run.folder = original.rename(original.with_name("copy"))
    run.patch.setattr(socket, "gethostname", lambda: "elsewhere")
    words = "whether it is alive there cannot be seen from here; use --resume or"
    with pytest.raises(ConfigError, match=words):
        take_run(run.folder)
    assert Summary.of(run.folder).state == f"a copy of {original} on {run.ledger.run().host}"
    good, said = run.sweep()
    assert good
    assert "is a copy of" in said
    assert WIDE.id in run.cluster.cancelled


def test_a_replay_leaves_nothing(run: DeadRun) -> None:
    made = run.beside()
    ledger = Ledger.create(made / JOBS_LOG, "run-0", "lab")
    ledger.plan([planned(NARROW, "replay", NARROW.id)])
    ledger.intend(NARROW.key)
    assert Summary.of(made).left == []


def test_a_run_that_may_not_be_looked_into_hides_no_other(run: DeadRun) -> None:
    other, stat = run.beside(), Path.stat

    def private(path: Path, **asked: bool) -> os.stat_result:
        if path.parent == other:
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, **asked)

    run.patch.setattr(Path, "stat", private)
    assert "run-0 ? its ledger cannot be read" in run.shown()
    assert "3 not judged" in run.shown()


def test_a_file_system_without_locks_is_told(run: DeadRun) -> None:
    run.patch.setattr("fcntl.flock", raising(OSError(38, "Function not implemented")))
    assert "run-1 ? its lock cannot be read" in run.shown()
    with pytest.raises(ConfigError, match=r"cannot be locked \(Function not implemented\); the results need"):
        take_run(run.folder)


def test_who_looks_at_a_dead_run_makes_nobody_take_it_for_alive(run: DeadRun) -> None:
    looking = RunLock(run.folder)
    assert looking.look()
    assert not Summary.of(run.folder).live
    looking.release()
    assert looking.take()
    assert Summary.of(run.folder).live
    looking.release()


def test_a_name_that_no_folder_can_have_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no run 'xxx"):
        find_run(tmp_path, "x" * 300)


def test_a_ledger_that_cannot_be_written_keeps_no_job_alive(run: DeadRun) -> None:
    run.cluster.there[NARROW.id] = SIXTH
    run.patch.setattr(LogFile, "_write", raising(FULL))
    good, said = run.sweep()
    assert good
    assert "job 5 is over" in said
    assert "job 6 is over" in said
    assert run.cluster.cancelled == {WIDE.id, NARROW.id}


def test_what_cannot_be_listed_has_not_no_runs(tmp_path: Path) -> None:
    """A sweep must not say that nothing is left there."""
    (tmp_path / "results").touch()
    with pytest.raises(NotADirectoryError):
        all_runs(tmp_path / "results")
    assert all_runs(tmp_path / "absent") == []


def test_a_run_whose_damage_cannot_be_recorded_hides_no_other(
    run: DeadRun, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = run.beside()
    Ledger.create(broken / JOBS_LOG, "run-0", "lab").finish()
    (broken / JOBS_LOG).write_bytes((broken / JOBS_LOG).read_bytes().replace(b"null", b"nill", 1))
    write = LogFile._write

    def full(file: LogFile, data: bytes, *, sync: bool) -> None:
        if file.path.parent == broken:
            raise FULL
        write(file, data, sync=sync)

    run.patch.setattr(LogFile, "_write", full)
    assert keep_house(run.folder, run.cluster, run.patch) == 1
    assert f"its ledger in {broken} cannot be written" in capsys.readouterr().out
    assert run.cluster.cancelled == {WIDE.id}


@pytest.mark.parametrize("broken", ["empty", "cut", "of another version", "of an older checkout"])
def test_a_ledger_that_cannot_be_read_hides_no_other_run(run: DeadRun, broken: str) -> None:
    other = run.beside()
    if broken == "empty":
        (other / JOBS_LOG).touch()
    elif broken == "cut":
        (other / JOBS_LOG).write_bytes((run.folder / JOBS_LOG).read_bytes()[:100])
    elif broken == "of an older checkout":
        # Its database, and lines of its journal that are whole.
        (other / "ledger.sqlite").write_bytes(b"SQLite format 3\0")
        row = {"after": "", "run": {"id": "run-0", "site": "lab", "host": "login01", "pid": 7}}
        (other / JOBS_LOG).write_bytes(line_of(json.dumps(row)) + b"\n")
    else:
        Ledger.create(other / JOBS_LOG, "run-0", "lab")
        rewrite(other / JOBS_LOG, lambda line: line["run"].update(machine="login01"))
    assert "run-0 ? its ledger cannot be read ? look for pacemark-run-0*" in run.shown()
    assert "3 not judged" in run.shown()
    words = r"run run-0: its ledger cannot be read .* begin with pacemark-run-0"
    with pytest.raises(ConfigError, match=words) as caught:
        Summary.of(other)
    assert ("another version of Pacemark wrote it" in str(caught.value)) == broken.startswith("of a")


def test_a_ledger_is_made_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / JOBS_LOG
    monkeypatch.setattr("os.fsync", raising(FULL))
    with pytest.raises(OSError, match="No space left"):
        Ledger.create(path, "run-1", "lab")
    assert not path.exists()
    monkeypatch.undo()
    Ledger.create(path, "run-1", "lab")
    with pytest.raises(FileExistsError):
        Ledger.create(path, "run-2", "lab")


Process = subprocess.Popen[str]
OWNER = """
import sys, time
from pathlib import Path
from fixtures.runs.lock import RunLock
lock = RunLock(Path(sys.argv[1]))
assert lock.take()
print("taken", flush=True)
time.sleep(60)
"""


@pytest.fixture
def owner(run: DeadRun) -> Iterator[Process]:
    """A process that owns the run. The ledger does not name it yet, as right after --resume has locked it."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(run.folder)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "taken\n"
            yield process
        finally:
            process.kill()


def name(run: DeadRun, pid: int, **facts: object) -> None:
    """Let the ledger name this process as the run's."""
    owner = {"pid": pid, "host": socket.gethostname(), **facts}
    rewrite(run.folder / JOBS_LOG, lambda line: line["run"].update(owner))


def test_the_owner_of_a_run_is_asked_to_end(run: DeadRun, owner: Process) -> None:
    name(run, owner.pid)
    assert stop_run(run.folder, 60) == ""
    assert owner.wait(60) == -signal.SIGTERM


def test_no_stranger_is_asked_to_end(run: DeadRun, owner: Process) -> None:
    run.patch.setattr("fixtures.runs.leftovers._OWNER_SECONDS", 0.1)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as stranger:
        try:
            name(run, stranger.pid)
            assert f"no process {stranger.pid} of this machine has it open" in stop_run(run.folder, 10)
            assert stranger.poll() is None
        finally:
            stranger.kill()
    # Gone by now.
    assert f"no process {stranger.pid} of this machine has it open" in stop_run(run.folder, 10)
    assert owner.poll() is None
    name(run, owner.pid, host="elsewhere")
    assert "on elsewhere, kill -TERM" in stop_run(run.folder, 10)


def test_a_run_of_another_user_is_said(run: DeadRun, owner: Process) -> None:
    name(run, owner.pid)
    run.patch.setattr("os.kill", raising(PermissionError(1, "Operation not permitted")))
    said = stop_run(run.folder, 10)
    run.patch.undo()
    assert "it is another user's" in said


def test_a_living_run_whose_lock_was_deleted_is_still_its_process(run: DeadRun, owner: Process) -> None:
    name(run, owner.pid, process=process_start(owner.pid))
    (run.folder / "lock").unlink()
    assert Summary.of(run.folder).live
    with pytest.raises(ConfigError, match=rf"still going on in process {owner.pid}, whose lock is gone"):
        run.sweep()
    owner.kill()
    # It is dead before anybody asks how it ended.
    os.waitid(os.P_PID, owner.pid, os.WEXITED | os.WNOWAIT)
    assert not Summary.of(run.folder).live
    lock, _, _ = take_run(run.folder)
    lock.release()
