"""A cluster that can be scripted to the moment, and a fleet on it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from fixtures.backends.base import Backend, LogCopy, LogPiece, LogPlace
from fixtures.backends.section import Limits, Machine
from fixtures.fleet.controller import Fleet
from fixtures.fleet.state import Policy
from fixtures.runs.ledger import Ledger
from fixtures.runs.planned import PlannedJob
from plugins.base.errors import Unreachable
from plugins.recipes.cases import Case
from plugins.record.job import Job, JobRef, JobState, Phase
from plugins.record.lines import JOBS_LOG
from tests.unit import examples
from tests.unit.examples import nemo2_text

RUNNING = JobState(Phase.RUNNING, "RUNNING", nodes="gpu001")
DONE = JobState(Phase.SUCCEEDED, "COMPLETED", nodes="gpu001")
BROKEN = JobState(Phase.FAILED, "NODE_FAIL", nodes="gpu001")
WIDE, MIDDLE, NARROW = (
    examples.case(f"70b-fp8-{gpus}gpus") for gpus in (512, 128, 64)
)  # fmt: skip


def failing(error: BaseException, *names: str) -> Callable[..., Any]:
    """A function that raises this error; of jobs with these names alone, if there are names."""

    def fail(*values: object, **_: object) -> None:
        if not names or values[0] in names:
            raise error

    return fail


class Site(Machine):
    """Asked as often as one likes."""

    fastest_poll: ClassVar[float] = 0.01


class Cluster(Backend):
    """A backend in memory. Jobs end as soon as they are asked about, with a whole log, but for what a test changes."""

    def __init__(self) -> None:
        self.submitted: list[str] = []
        self.excluded: list[tuple[str, ...]] = []
        self.blames: dict[str, str] = {}
        self.cancelled: set[str] = set()
        self.ends: dict[str, list[JobState]] = {}
        self.logs: dict[str, str] = {}
        self.on_check: Callable[[Case], object] = lambda case: None
        self.on_submit: Callable[[str], object] = lambda name: None
        self.released: list[str] = []
        self.aborted = threading.Event()
        self.copies: dict[str, LogCopy] = {}
        self.where = ""
        self.remarks: list[str] = []
        self.on_read: Callable[[str], object] = lambda name: None

    def use(self, **methods: Callable[..., Any]) -> None:
        """Answer by these functions."""
        vars(self).update(methods)

    def breaks(self, *names: str, end: JobState = BROKEN) -> None:
        """Let these jobs end so before their first step."""
        for name in names:
            self.ends[name], self.logs[name] = [end], "no step\n"

    def run(self, *cases: Case) -> None:
        """Let the jobs of these cases run until they are cancelled."""
        self.ends |= {case.id: [RUNNING] for case in cases}

    def check(self, case: Case) -> list[str]:
        self.on_check(case)
        return self.remarks

    def plan(self, case: Case, name: str, excluded: tuple[str, ...] = ()) -> str:
        return name

    def submit(self, case: Case, name: str, excluded: tuple[str, ...] = ()) -> JobRef:
        self.submitted.append(name)
        self.excluded.append(excluded)
        self.on_submit(name)
        return JobRef(case.recipe, case.id, name, str(len(self.submitted)), "/logs")

    def location(self) -> str:
        return self.where

    def find(self, job: JobRef, *, to_end: bool = False) -> JobRef | None:
        return None

    def listed(self, prefix: str) -> list[JobRef]:
        return []

    def poll(self, jobs: Sequence[JobRef]) -> dict[JobRef, JobState]:
        return {job: self._state(job) for job in jobs}

    def _state(self, job: JobRef) -> JobState:
        if job.name in self.cancelled:
            return JobState(Phase.FAILED, "CANCELLED")
        states = self.ends.get(job.name, [DONE])
        return states.pop(0) if len(states) > 1 else states[0]

    def read_log(self, job: JobRef, place: LogPlace, wanted: Sequence[bytes]) -> LogPiece:
        self.on_read(job.name)
        data = self.logs.get(job.name, _usual_log()).encode()[place.offset :]
        return LogPiece(data, LogPlace("log", place.offset + len(data)))

    def read_copy(self, job: JobRef, place: LogPlace) -> LogCopy | None:
        return self.copies.get(job.name)

    def read_errors(self, job: JobRef) -> bytes:
        return b"srun: error: gpu001: task 3: Killed\n"

    def log_trouble(self, job: JobRef, place: LogPlace) -> str:
        return ""

    def blamed(self, job: JobRef) -> str:
        if job.name not in self.blames:
            raise Unreachable("squeue: Socket timed out")
        return self.blames[job.name]

    def cancel(self, jobs: Sequence[JobRef]) -> None:
        self.cancelled.update(job.name for job in jobs)

    def release(self, jobs: Sequence[JobRef]) -> Mapping[JobRef, Unreachable]:
        self.released += [job.name for job in jobs]
        return {}

    def provision(self, case: Case, name: str) -> JobRef | None:
        return None

    def abort_waits(self) -> None:
        self.aborted.set()

    def close(self) -> None:
        """Nothing is open."""


@cache
def _usual_log() -> str:
    """The log of a job that ended well."""
    return nemo2_text()


class Clock:
    """The monotonic clock, `ahead` by so many seconds."""

    def __init__(self) -> None:
        self.ahead, self._real = 0.0, time.monotonic

    def __call__(self) -> float:
        return self._real() + self.ahead


class Session:
    """A fleet with its ledger, as a session has them."""

    def __init__(
        self, folder: Path, cluster: Cluster, cases: Sequence[Case], policy: Policy, **limits: object
    ):
        limits = {"log_settle_seconds": 0.05, "cancel_seconds": 2, **limits}
        site = Site(gpu="h100", limits=Limits(**limits))  # type: ignore[arg-type]
        path = folder / JOBS_LOG
        self.ledger = Ledger.create(path, "run-1", "lab")
        plans = [
            PlannedJob(case, "slurm", JobRef(case.recipe, case.id, case.id), "nemo2", minutes=case.gpus / 100)
            for case in cases
        ]
        self.ledger.plan(plans)
        self.fleet = Fleet(folder, self.ledger, plans, {"slurm": cluster}, {"slurm": site}, policy)
        self.cases = cases

    def resume(self, folder: Path, cluster: Cluster, plans: Sequence[PlannedJob]) -> None:
        """Go on with a fleet that has these jobs."""
        site = Site(gpu="h100", limits=Limits(log_settle_seconds=0.05))
        self.fleet = Fleet(folder, self.ledger, plans, {"slurm": cluster}, {"slurm": site}, Policy())
        self.fleet.start()

    def finish(self, seconds: float = 60) -> dict[str, Job]:
        deadline = time.monotonic() + seconds
        while self.fleet.running:
            assert time.monotonic() < deadline, list(self.fleet.board.values())
            time.sleep(0.01)
        return self.entries()

    def end(self, seconds: float = 60) -> Job:
        """The job of the first case, once all have ended."""
        return self.finish(seconds)[self.cases[0].id]

    def job(self, case: Case) -> Job:
        return self.entries()[case.id]

    def await_submitted(self, *cases: Case) -> None:
        """Wait until the jobs of these cases are submitted, of all if none is named."""
        until(lambda: all(self.job(case).status == "submitted" for case in cases or self.cases))

    def await_running(self, *cases: Case) -> None:
        """Wait until the cluster has said so of these cases, of all if none is named."""
        until(lambda: all(self.job(case).state == RUNNING for case in cases or self.cases))

    def messages(self) -> list[str]:
        """What the fleet has said since this was asked last, without the time."""
        return [message.partition(" ")[2] for message in told(self)]

    def entries(self) -> dict[str, Job]:
        return {entry.ref.case_id: entry for entry in self.ledger.entries()}


Start = Callable[..., Session]


def until(holds: Callable[[], bool]) -> None:
    """Wait until it holds."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def told(session: Session) -> list[str]:
    """What the fleet has said since this was asked last."""
    said = []
    while not session.fleet.messages.empty():
        said.append(session.fleet.messages.get())
    return said
