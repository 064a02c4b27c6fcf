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
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from fixtures import housekeeping
from fixtures.backends.section import Limits, Machine
from fixtures.runs.folders import Summary, all_runs, find_run, print_runs
from fixtures.runs.known import LogFile, process_start
from fixtures.runs.ledger import Ledger
from fixtures.runs.leftovers import cancel_left, stop_run
from fixtures.runs.lock import RunLock, take_run
from fixtures.site import Site
from plugins.base.errors import Absent, ConfigError, Denied, SubmitError, Unreachable
from plugins.record.job import Failure, JobRef
from plugins.record.lines import JOBS_LOG
from tests.unit.cluster import DONE, MIDDLE, NARROW, RUNNING, WIDE, Clock, Cluster
from tests.unit.jobs_log import line_of, planned, rewrite

BOUND = 0.0
ROOT = Path(__file__).resolve().parents[3]


class Lab(Site):
    """Its launchers are short."""

    def section(self, backend: str) -> Machine | None:
        return Brief(gpu="h100", limits=Limits(cancel_seconds=0.5)) if backend == "slurm" else None


class Brief(Machine):
    @property
    def launch_bound(self) -> float:
        return BOUND


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fixtures.runs.leftovers._LOOK_SECONDS", 0.1)
    monkeypatch.setattr("fixtures.runs.unconfirmed.LOOK_SECONDS", 0.05)
    monkeypatch.setattr("fixtures.runs.unconfirmed.LOOK_AGAIN_SECONDS", 0.1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A dead run of three cases: one has a job, one's launcher was cut off, one was never sent."""
    made = tmp_path / "run-1"
    made.mkdir()
    ledger = Ledger.create(made / JOBS_LOG, "run-1", "lab")
    ledger.plan([planned(case, "slurm", case.id) for case in (NARROW, WIDE, MIDDLE)])
    ledger.intend(NARROW.key)
    ledger.intend(WIDE.key)
    ledger.submitted(JobRef(WIDE.recipe, WIDE.id, WIDE.id, "5", "/logs"))
    return made


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


def swept(folder: Path, cluster: Cluster, site: Site | None = None) -> tuple[bool, str]:
    said = io.StringIO()
    good = cancel_left(folder, site or Lab(site="lab"), {"slurm": cluster}, said)
    return good, said.getvalue()


def left(folder: Path) -> list[str]:
    return [entry.case for entry in Summary.of(folder).left]


def test_known_jobs_are_cancelled_before_lost_ones_are_looked_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "BOUND", 60.0)
    clock = Clock()

    def sleep(seconds: float) -> None:
        clock.ahead += seconds

    monkeypatch.setattr(time, "monotonic", clock)
    monkeypatch.setattr(time, "sleep", sleep)
    cluster = Known()
    good, said = swept(folder, cluster)
    assert good
    assert cluster.cancelled == {WIDE.id}
    assert f"{WIDE.key}: job 5 is over" in said
    assert "may still submit a job; looking until" in said
    assert f"{NARROW.key}: there is no job named {NARROW.id}" in said
    # Not before its launcher must have ended.
    assert time.monotonic() - cluster.began > BOUND - 0.5
    assert left(folder) == []


@pytest.mark.parametrize("over", [True, False])
def test_a_copy_of_a_job_that_is_over_is_somebody_elses(
    folder: Path, monkeypatch: pytest.MonkeyPatch, over: bool
) -> None:
    """A JobSet that was deleted, and applied again from a copy with our name and annotation."""
    ledger, job = Ledger(folder / JOBS_LOG), JobRef(WIDE.recipe, WIDE.id, WIDE.id, "5", "/logs", uid="uid-1")
    ledger.submitted(job)
    if over:
        ledger.end(WIDE.key, "infrastructure", "somebody deleted the JobSet")
    cluster, ended = Known(), list[JobRef]()
    monkeypatch.setattr(cluster, "listed", lambda prefix: [replace(job, uid="uid-2")])
    monkeypatch.setattr(cluster, "find", lambda job, to_end=False: None)
    monkeypatch.setattr(cluster, "cancel", ended.extend)
    cluster.ends[WIDE.id] = [DONE]
    good, said = swept(folder, cluster)
    assert good, said
    assert ended == ([] if over else [job])


def test_a_run_of_another_site_is_left_alone(folder: Path) -> None:
    cluster = Known()
    with pytest.raises(ConfigError, match="run run-1 was on site lab, but --site is dc2"):
        swept(folder, cluster, Lab(site="dc2"))
    assert (cluster.cancelled, left(folder)) == (set(), [NARROW.key, WIDE.key])


def test_what_a_dead_run_left_on_the_stage_is_removed_with_its_job(folder: Path) -> None:
    cluster = Known()
    assert swept(folder, cluster)[0]
    assert cluster.released == [WIDE.id]


def test_all_cases_of_a_run_that_was_swept_have_ended(folder: Path) -> None:
    """Also one that waited for its isolation, and one that was never sent: otherwise nobody could bundle the run."""
    ledger = Ledger(folder / JOBS_LOG)
    ledger.end(NARROW.key, "", ended=5.0)
    ledger.hold([NARROW.key])
    assert swept(folder, Known())[0]
    entries = {entry.case: entry for entry in Ledger(folder / JOBS_LOG).entries()}
    ends = {key: (entry.status, entry.failure, entry.message) for key, entry in entries.items()}
    assert ends[NARROW.key] == ("ended", "", "")
    assert ends[MIDDLE.key] == ("ended", "interrupted", "it was never submitted")
    assert {entry.status for entry in entries.values()} == {"ended"}
    assert (entries[NARROW.key].times.ended, left(folder)) == (5.0, [])


@pytest.mark.parametrize("removed", [True, False])
def test_what_a_job_left_that_ended_is_removed_and_its_case_stays_as_it_ended(
    folder: Path, monkeypatch: pytest.MonkeyPatch, removed: bool
) -> None:
    ledger, cluster = Ledger(folder / JOBS_LOG), Known()
    ledger.end(NARROW.key, "interrupted")
    ledger.observe(WIDE.key, DONE)
    ledger.end(WIDE.key)
    # As a session does that could not remove it.
    ledger.cancel_asked(WIDE.key)
    if not removed:
        refusal = Unreachable("403 Forbidden")
        monkeypatch.setattr(cluster, "release", lambda jobs: dict.fromkeys(jobs, refusal))
    good, said = swept(folder, cluster)
    entry = Ledger(folder / JOBS_LOG).entry(WIDE.key)
    assert entry is not None
    assert (good, entry.failure, entry.state, entry.may_run) == (removed, "", DONE, not removed)
    assert cluster.cancelled == set()
    assert f"{WIDE.key}: what is left of job 5 " + ("is removed" if removed else "could not be") in said


@pytest.mark.parametrize("failure", ["hung", "given up", "infrastructure", "lost", "interrupted"])
def test_a_case_stays_as_it_ended_if_the_end_of_its_job_is_confirmed_later(
    folder: Path, failure: Failure
) -> None:
    ledger = Ledger(folder / JOBS_LOG)
    ledger.end(NARROW.key, "interrupted")
    ledger.cancel_asked(WIDE.key)
    ledger.end(WIDE.key, failure, "its cancellation is NOT confirmed")
    assert swept(folder, Known())[0]
    entry = Ledger(folder / JOBS_LOG).entry(WIDE.key)
    assert entry is not None
    assert (entry.state.phase.over, entry.may_run) == (True, False)
    # What a stop cut off and what is lost is to run again.
    expected = "interrupted" if failure == "lost" else failure
    assert (entry.failure, "NOT confirmed" in entry.message) == (expected, expected != "interrupted")


def test_what_a_cancelled_job_left_that_cannot_be_removed_is_told_and_swept_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Known()
    with monkeypatch.context() as patch:
        refusal = Unreachable("Read-only file system")
        patch.setattr(cluster, "release", lambda jobs: dict.fromkeys(jobs, refusal))
        good, said = swept(folder, cluster)
    assert (good, left(folder)) == (False, [WIDE.key])
    assert f"{WIDE.key}: what is left of job 5 could not be removed: Read-only file system" in said
    good, said = swept(folder, cluster)
    assert (good, left(folder), cluster.released) == (True, [], [WIDE.id])
    assert "could not be removed" not in said


def test_a_lost_job_is_cancelled_as_soon_as_it_is_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "BOUND", 60.0)
    cluster = Known()
    cluster.there[NARROW.id] = JobRef(NARROW.recipe, NARROW.id, NARROW.id, "6", "/logs")
    good, said = swept(folder, cluster)
    assert good
    assert cluster.cancelled == {WIDE.id, NARROW.id}
    assert f"{NARROW.key}: job 6 is over" in said
    assert time.monotonic() - cluster.began < BOUND
    assert left(folder) == []


def test_one_that_cannot_be_looked_up_keeps_no_other_alive(folder: Path) -> None:
    cluster = Known()
    cluster.error = SubmitError("but a part of it exists, and the rest is refused")
    good, said = swept(folder, cluster)
    assert not good
    assert cluster.cancelled == {WIDE.id}
    assert f"{NARROW.key}: cannot be looked up, so it may still run: but a part of it exists" in said
    assert left(folder) == [NARROW.key]


def test_a_lost_job_that_one_empty_list_hides_is_found_by_the_next_look(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the session looks, so does a sweep: its launcher ended long ago."""
    cluster = Known()
    answers = iter([None, JobRef(NARROW.recipe, NARROW.id, NARROW.id, "6", "/logs")])
    monkeypatch.setattr(cluster, "find", lambda job, **_: next(answers))
    good, said = swept(folder, cluster)
    assert (good, cluster.cancelled) == (True, {WIDE.id, NARROW.id})
    assert "looking until" not in said


@pytest.mark.parametrize(
    "error", [Absent("the name login cannot be resolved"), Denied("the login was refused")]
)
def test_a_cluster_whose_access_somebody_must_mend_is_said_once_with_the_jobs_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: Unreachable
) -> None:
    """Not asked again and again for the time that a cancellation may take."""
    cluster = Known()
    asked: list[str] = []

    def refuse(prefix: str) -> list[JobRef]:
        asked.append(prefix)
        raise error

    monkeypatch.setattr(cluster, "listed", refuse)
    good, said = swept(folder, cluster)
    assert not good
    assert said.count(str(error)) == 1
    assert f"slurm cannot be asked, so nothing was cancelled there: {error}" in said
    assert f"{WIDE.key}: job 5 may still run" in said
    assert f"{NARROW.key}: job {NARROW.id} may still run" in said
    assert (len(asked), cluster.cancelled) == (1, set())
    assert sorted(left(folder)) == sorted([NARROW.key, WIDE.key])


def test_ctrl_c_during_a_sweep_says_what_may_be_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(housekeeping, "_sweep", interrupt)
    option = SimpleNamespace(list_runs=False, cancel=None, sweep=True)
    config = SimpleNamespace(option=option, getoption=lambda name: str(tmp_path))
    assert housekeeping._keep_house(config, Lab(site="lab")) == pytest.ExitCode.INTERRUPTED  # type: ignore[arg-type]
    assert "interrupted: jobs without a line above may still run; repeat --sweep" in capsys.readouterr().out


def test_what_the_site_file_cannot_reach_is_said_and_stays_in_the_ledger(folder: Path) -> None:
    good, said = swept(folder, Known(), Site(site="lab"))
    assert not good
    assert f"{WIDE.key}: 5 is left as it is: the site file has no `slurm:` section" in said
    assert f"{NARROW.key}: {NARROW.id} is left as it is" in said
    assert left(folder) == [NARROW.key, WIDE.key]


def test_a_recipe_that_is_no_longer_there_is_said(folder: Path) -> None:
    said = io.StringIO()
    assert not cancel_left(folder, Lab(site="lab"), {}, said)
    assert "5 is left as it is: its recipe is not in suites/" in said.getvalue()


def test_a_copy_from_another_host_is_cancelled_only_where_it_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whether the original is alive there, nobody can know here."""
    copy = folder.rename(tmp_path / "copy")
    monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
    with pytest.raises(
        ConfigError, match="whether it is alive there cannot be seen from here; use --resume or"
    ):
        take_run(copy)
    assert Summary.of(copy).state == f"a copy of {folder} on {Ledger(copy / JOBS_LOG).run().host}"
    cluster = Known()
    good, said = swept(copy, cluster)
    assert good
    assert "is a copy of" in said
    assert WIDE.id in cluster.cancelled


def test_a_replay_leaves_nothing(folder: Path) -> None:
    made = folder.with_name("run-2")
    made.mkdir()
    ledger = Ledger.create(made / JOBS_LOG, "run-2", "lab")
    ledger.plan([planned(NARROW, "replay", NARROW.id)])
    ledger.intend(NARROW.key)
    assert left(made) == []


def test_a_run_that_may_not_be_looked_into_hides_no_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, stat = folder.with_name("run-0"), Path.stat
    other.mkdir()

    def private(path: Path, **asked: bool) -> os.stat_result:
        if path.parent == other:
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, **asked)

    monkeypatch.setattr(Path, "stat", private)
    said = io.StringIO()
    print_runs(folder.parent, said, 250)
    assert "run-0 ? its ledger cannot be read" in " ".join(said.getvalue().split())
    assert "3 not judged" in said.getvalue()


def test_a_file_system_without_locks_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", flock)
    said = io.StringIO()
    print_runs(folder.parent, said, 250)
    assert "run-1 ? its lock cannot be read" in " ".join(said.getvalue().split())
    with pytest.raises(ConfigError, match=r"cannot be locked \(Function not implemented\); the results need"):
        take_run(folder)


def test_who_looks_at_a_dead_run_makes_nobody_take_it_for_alive(folder: Path) -> None:
    looking = RunLock(folder)
    assert looking.look()
    assert not Summary.of(folder).live
    looking.release()
    assert looking.take()
    assert Summary.of(folder).live
    looking.release()


def test_a_name_that_no_folder_can_have_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no run 'xxx"):
        find_run(tmp_path, "x" * 300)


def test_a_ledger_that_cannot_be_written_keeps_no_job_alive(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    cluster = Known()
    cluster.there[NARROW.id] = JobRef(NARROW.recipe, NARROW.id, NARROW.id, "6", "/logs")
    monkeypatch.setattr(LogFile, "_write", full)
    good, said = swept(folder, cluster)
    assert good
    assert "job 5 is over" in said
    assert "job 6 is over" in said
    assert cluster.cancelled == {WIDE.id, NARROW.id}


def test_what_cannot_be_listed_has_not_no_runs(tmp_path: Path) -> None:
    """A sweep must not say that nothing is left there."""
    (tmp_path / "results").touch()
    with pytest.raises(NotADirectoryError):
        all_runs(tmp_path / "results")
    assert all_runs(tmp_path / "absent") == []


def test_a_run_whose_damage_cannot_be_recorded_hides_no_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = folder.with_name("run-0")
    broken.mkdir()
    Ledger.create(broken / JOBS_LOG, "run-0", "lab").finish()
    (broken / JOBS_LOG).write_bytes((broken / JOBS_LOG).read_bytes().replace(b"null", b"nill", 1))
    write = LogFile._write

    def full(file: LogFile, data: bytes, *, sync: bool) -> None:
        if file.path.parent == broken:
            raise OSError(28, "No space left on device")
        write(file, data, sync=sync)

    monkeypatch.setattr(LogFile, "_write", full)
    cluster = Known()
    monkeypatch.setattr(housekeeping, "make_backends", lambda *_, **__: {"slurm": cluster})
    monkeypatch.setattr(housekeeping, "results_folder", lambda _: folder.parent)
    option = SimpleNamespace(list_runs=False, cancel=None)
    assert housekeeping._keep_house(SimpleNamespace(option=option, rootpath=ROOT), Lab(site="lab")) == 1  # type: ignore[arg-type]
    assert f"its ledger in {broken} cannot be written" in capsys.readouterr().out
    assert cluster.cancelled == {WIDE.id}


@pytest.mark.parametrize("broken", ["empty", "cut", "of another version", "of an older checkout"])
def test_a_ledger_that_cannot_be_read_hides_no_other_run(folder: Path, broken: str) -> None:
    other = folder.with_name("run-0")
    other.mkdir()
    if broken == "empty":
        (other / JOBS_LOG).touch()
    elif broken == "cut":
        (other / JOBS_LOG).write_bytes((folder / JOBS_LOG).read_bytes()[:100])
    elif broken == "of an older checkout":
        # Its database, and lines of its journal that are whole.
        (other / "ledger.sqlite").write_bytes(b"SQLite format 3\0")
        row = {"after": "", "run": {"id": "run-0", "site": "lab", "host": "login01", "pid": 7}}
        (other / JOBS_LOG).write_bytes(line_of(json.dumps(row)) + b"\n")
    else:
        Ledger.create(other / JOBS_LOG, "run-0", "lab")
        rewrite(other / JOBS_LOG, lambda line: line["run"].update(machine="login01"))
    said = io.StringIO()
    print_runs(folder.parent, said, 250)
    assert "run-0 ? its ledger cannot be read ? look for pacemark-run-0*" in " ".join(said.getvalue().split())
    assert "3 not judged" in said.getvalue()
    with pytest.raises(
        ConfigError, match=r"run run-0: its ledger cannot be read .* begin with pacemark-run-0"
    ) as caught:
        Summary.of(other)
    assert ("another version of Pacemark wrote it" in str(caught.value)) == broken.startswith("of a")


def test_a_ledger_is_made_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / JOBS_LOG

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        Ledger.create(path, "run-1", "lab")
    assert not path.exists()
    monkeypatch.undo()
    Ledger.create(path, "run-1", "lab")
    with pytest.raises(FileExistsError):
        Ledger.create(path, "run-2", "lab")


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
def owner(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that owns the run. The ledger does not name it yet, as right after --resume has locked it."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(folder)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "taken\n"
            yield process
        finally:
            process.kill()


def name(folder: Path, pid: int, host: str = "") -> None:
    owner = {"pid": pid, "host": host or socket.gethostname()}
    rewrite(folder / JOBS_LOG, lambda line: line["run"].update(owner))


def test_the_owner_of_a_run_is_asked_to_end(folder: Path, owner: subprocess.Popen[str]) -> None:
    name(folder, owner.pid)
    assert stop_run(folder, 60) == ""
    assert owner.wait(60) == -signal.SIGTERM


def test_no_stranger_is_asked_to_end(
    folder: Path, owner: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fixtures.runs.leftovers._OWNER_SECONDS", 0.1)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as stranger:
        try:
            name(folder, stranger.pid)
            assert f"no process {stranger.pid} of this machine has it open" in stop_run(folder, 10)
            assert stranger.poll() is None
        finally:
            stranger.kill()
    # Gone by now.
    assert f"no process {stranger.pid} of this machine has it open" in stop_run(folder, 10)
    assert owner.poll() is None
    name(folder, owner.pid, "elsewhere")
    assert "on elsewhere, kill -TERM" in stop_run(folder, 10)


def test_a_run_of_another_user_is_said(
    folder: Path, owner: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(pid: int, number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    name(folder, owner.pid)
    monkeypatch.setattr("os.kill", kill)
    said = stop_run(folder, 10)
    monkeypatch.undo()
    assert "it is another user's" in said


def test_a_living_run_whose_lock_was_deleted_is_still_its_process(
    folder: Path, owner: subprocess.Popen[str]
) -> None:
    process = {"pid": owner.pid, "process": process_start(owner.pid)}
    rewrite(folder / JOBS_LOG, lambda line: line["run"].update(process))
    (folder / "lock").unlink()
    assert Summary.of(folder).live
    with pytest.raises(ConfigError, match=rf"still going on in process {owner.pid}, whose lock is gone"):
        swept(folder, Known())
    owner.kill()
    # It is dead before anybody asks how it ended.
    os.waitid(os.P_PID, owner.pid, os.WEXITED | os.WNOWAIT)
    assert not Summary.of(folder).live
    lock, _, _ = take_run(folder)
    lock.release()
