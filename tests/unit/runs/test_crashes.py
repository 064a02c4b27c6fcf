"""At each write of the log of jobs and each request, a session is killed, or its disk is full: no double, none left.

A session on a cluster in a file has a point before, in and behind each line of its log of jobs and each request. At a point a test may
copy what stands on the disk, which is what a `kill -9` would leave there, or fail.
"""

from __future__ import annotations

import errno
import io
import itertools
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fixtures.backends.section import Limits
from fixtures.fleet.controller import Fleet
from fixtures.fleet.state import Policy
from fixtures.runs import known
from fixtures.runs.folders import Summary
from fixtures.runs.ledger import Ledger, open_ledger
from fixtures.runs.leftovers import cancel_left
from fixtures.runs.planned import PlannedJob, job_of
from fixtures.runs.resume import resumed
from fixtures.site import Site
from plugins.recipes.cases import Case
from plugins.record.job import JobRef, JobState, Phase
from plugins.record.lines import JOBS_LOG
from tests.unit.cluster import DONE, NARROW, RUNNING, WIDE, Cluster
from tests.unit.cluster import Site as Quick

RUN = "run-1"
CASES = (WIDE, NARROW)
STUCK = JobState(Phase.QUEUED, "PENDING", "BadConstraints", hopeless=True)
# The first try of this case can never start.
BLOCKED = job_of(RUN, WIDE.recipe, WIDE.id).name
Point = Callable[[str], None]


def nothing(where: str) -> None:
    """Go on."""


class DiskOf:
    """The `os` of `known`, with a point before, in and behind each line."""

    def __init__(self, point: Point) -> None:
        self._point = point

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def write(self, handle: int, data: bytes) -> int:
        self._point("before a line")
        half = len(data) // 2
        os.write(handle, data[:half])
        self._point("in a line")
        os.write(handle, data[half:])
        self._point("behind a line")
        return len(data)

    def fsync(self, handle: int) -> None:
        os.fsync(handle)
        self._point("on disk")


class Kept(Cluster):
    """A cluster that outlives sessions: `file` has what was asked of it, one request a line."""

    def __init__(self, file: Path, point: Point = nothing, *, ends: bool = True) -> None:
        super().__init__()
        self._file, self._point, self._ends = file, point, ends
        self._polls: dict[str, int] = {}

    def requests(self, kind: str) -> list[str]:
        """The names of jobs, one for each request of this kind."""
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        return [name for what, name in map(json.loads, lines) if what == kind]

    def live(self) -> list[str]:
        return [name for name in self.requests("submit") if not self._is_over(name)]

    def _note(self, kind: str, name: str) -> None:
        with self._file.open("a") as file:
            file.write(json.dumps([kind, name]) + "\n")

    def _is_over(self, name: str) -> bool:
        return name in self.requests("cancel") or name in self.requests("end")

    def _ref(self, name: str, like: Case | JobRef) -> JobRef:
        case_id = like.case_id if isinstance(like, JobRef) else like.id
        return JobRef(like.recipe, case_id, name, str(1 + self.requests("submit").index(name)), "/logs")

    def submit(self, case: Case, name: str, excluded: tuple[str, ...] = ()) -> JobRef:
        self._point("before a submission")
        self._note("submit", name)
        self._point("behind a submission")
        return self._ref(name, case)

    def find(self, job: JobRef, *, to_end: bool = False) -> JobRef | None:
        return self._ref(job.name, job) if job.name in self.requests("submit") else None

    def listed(self, prefix: str) -> list[JobRef]:
        return [self._ref(name, JobRef("r", "c", name)) for name in self.live() if name.startswith(prefix)]

    def _state(self, job: JobRef) -> JobState:
        if job.name in self.requests("cancel"):
            return JobState(Phase.FAILED, "CANCELLED")
        if job.name == BLOCKED:
            return STUCK
        polls = self._polls[job.name] = self._polls.get(job.name, 0) + 1
        if not self._ends or polls < 3:
            return RUNNING
        self._note("end", job.name)
        return DONE

    def cancel(self, jobs: Sequence[JobRef]) -> None:
        self._point("before a cancellation")
        for each in jobs:
            self._note("cancel", each.name)
        self._point("behind a cancellation")


def plans() -> list[PlannedJob]:
    return [PlannedJob(case, "slurm", job_of(RUN, case.recipe, case.id), "nemo2") for case in CASES]


def site() -> Quick:
    limits = Limits(log_settle_seconds=0.01, cancel_seconds=2, hopeless_seconds=0.01, submissions_at_once=1)
    return Quick(gpu="h100", limits=limits)


def drive(folder: Path, ledger: Ledger, planned: Sequence[PlannedJob], cluster: Cluster) -> Fleet:
    """Run these jobs to their ends."""
    fleet = Fleet(folder, ledger, planned, {"slurm": cluster}, {"slurm": site()}, Policy(retries=1))
    fleet.start()
    deadline = time.monotonic() + 120
    while fleet.running:
        assert time.monotonic() < deadline, list(fleet.board.values())
        time.sleep(0.005)
    return fleet


def session(folder: Path, point: Point) -> Fleet:
    """A session that comes to these points."""
    folder.mkdir()
    cluster = Kept(folder / "cluster", point)
    ledger = Ledger.create(folder / JOBS_LOG, RUN, "lab")
    ledger.plan(plans())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(known, "os", DiskOf(point))
        return drive(folder, ledger, plans(), cluster)


class Lab(Site):
    def section(self, backend: str) -> Quick:
        return site()


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Quick, "launch_bound", 0.0)
    monkeypatch.setattr("fixtures.runs.unconfirmed.LOOK_AGAIN_SECONDS", 0.02)
    monkeypatch.setattr("fixtures.fleet.ending.LOOK_SECONDS", 0.02)
    monkeypatch.setattr("fixtures.runs.leftovers._LOOK_SECONDS", 0.02)
    monkeypatch.setattr("fixtures.runs.unconfirmed.LOOK_SECONDS", 0.02)


@pytest.fixture
def killed(tmp_path: Path) -> list[Path]:
    """What a session would have left on the disk if it had been killed: at each point, where that differs."""
    folder, known = tmp_path / "run-1", set[tuple[bytes, ...]]()
    copies: list[Path] = []
    one_at_a_time = threading.Lock()

    def point(where: str) -> None:
        with one_at_a_time:
            files = (folder / JOBS_LOG, folder / "cluster")
            content = tuple(file.read_bytes() if file.exists() else b"" for file in files)
            if content not in known:
                known.add(content)
                copies.append(Path(shutil.copytree(folder, tmp_path / f"{len(known)} {where}")))

    session(folder, point)
    return copies


def require_known(folder: Path, cluster: Kept, where: str) -> None:
    """No job was submitted twice, and the ledger knows each."""
    names = cluster.requests("submit")
    assert len(set(names)) == len(names), where
    assert set(names) <= {job.ref.name for job in open_ledger(folder)[0].jobs()}, where


def goes_on(folder: Path, where: str) -> None:
    """`--resume` ends each case, and leaves no job."""
    cluster = Kept(folder / "cluster")
    ledger, _ = open_ledger(folder)
    drive(folder, ledger, resumed(ledger, "lab", plans(), {"slurm": cluster}), cluster)
    require_known(folder, cluster, where)
    assert cluster.live() == [], where
    assert [entry.status for entry in ledger.entries()] == ["ended", "ended"], where
    assert not any(entry.may_run for entry in ledger.entries()), where
    assert {entry.failure for entry in ledger.entries()} == {""}, where


def swept(folder: Path, where: str) -> None:
    cluster = Kept(folder / "cluster", ends=False)
    assert cancel_left(folder, Lab(site="lab"), {"slurm": cluster}, io.StringIO()), where
    require_known(folder, cluster, where)
    assert (cluster.live(), Summary.of(folder).left) == ([], []), where


def test_a_session_killed_at_any_point_goes_on_and_leaves_no_job(killed: list[Path]) -> None:
    where = [folder.name.partition(" ")[2] for folder in killed]
    assert {"in a line", "behind a line", "behind a submission", "behind a cancellation"} <= set(where)
    for copy in killed:
        for end in (goes_on, swept):
            folder = copy.with_name("run-1")
            shutil.rmtree(folder)
            shutil.copytree(copy, folder)
            end(folder, copy.name)


def full_from(number: int) -> Callable[[str], None]:
    """The disk is full when the `number`-th line is half written, and stays so."""
    lines = itertools.count(1)

    def point(where: str) -> None:
        if where == "in a line" and next(lines) >= number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return point


def test_a_disk_that_is_full_at_any_line_leaves_no_job(tmp_path: Path) -> None:
    for number in itertools.count(1):
        folder = tmp_path / str(number)
        fleet = session(folder, full_from(number))
        cluster = Kept(folder / "cluster")
        where = f"line {number}"
        assert cluster.live() == [], where
        if not fleet.defect:
            break
        assert fleet.defect.startswith("the disk of the results folder is full"), where
        goes_on(folder, where)
    assert number > 10
