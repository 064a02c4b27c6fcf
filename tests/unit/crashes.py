"""A session on a cluster in a file, with a point before, in and behind each line of its log of jobs and each request.

At a point a test may copy what stands on the disk, which is what a `kill -9` would leave there, or fail.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fixtures.backends.section import Limits
from fixtures.fleet.controller import Fleet
from fixtures.fleet.state import Policy
from fixtures.runs import known
from fixtures.runs.ledger import Ledger
from fixtures.runs.planned import PlannedJob, job_of
from plugins.recipes.cases import Case
from plugins.record.job import JobRef, JobState, Phase
from plugins.record.lines import JOBS_LOG
from tests.unit.cluster import DONE, NARROW, RUNNING, WIDE, Cluster, Site

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


def site() -> Site:
    limits = Limits(log_settle_seconds=0.01, cancel_seconds=2, hopeless_seconds=0.01, submissions_at_once=1)
    return Site(gpu="h100", limits=limits)


def begin(folder: Path) -> tuple[Ledger, list[PlannedJob]]:
    """A new run."""
    ledger = Ledger.create(folder / JOBS_LOG, RUN, "lab")
    planned = plans()
    ledger.plan(planned)
    return ledger, planned


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
    ledger, planned = begin(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(known, "os", DiskOf(point))
        return drive(folder, ledger, planned, cluster)
