"""A plugin for pytest (`-p tests.golden.recorded`): the backend `slurm` of a session plays recorded jobs, and asks no cluster.

`PACEMARK_GOLDEN` names the scenario: `SCENARIOS` has the life of each job of it, by the job's name without the run's prefix.
"""

from __future__ import annotations

import os
import signal
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from fixtures.backends.base import Backend, ClusterTimes, LogPiece, LogPlace
from fixtures.backends.section import BACKENDS, Limits, Machine
from plugins.modes.artefacts import Artefacts
from plugins.recipes.cases import Case, Recipe
from plugins.record.job import JobRef, JobState, Phase
from tests.golden.faults import whole
from tests.printed.nemo2 import nemo2_line
from tests.printed.run import JOB_ID
from tests.unit import examples
from tests.unit.cluster import Cluster
from tests.unit.examples import nemo2_text, times
from tests.unit.modes.test_saved_checkpoints import (
    FOLDER,
    LOADED,
    NAME,
    RESTORED,
    SAVES,
    left,
    steps,
)

BEGAN = 1_790_000_000.0
"""When each job began, in seconds since the epoch."""

NODES = "gpu[001-064]"
DONE = JobState(Phase.SUCCEEDED, "COMPLETED", nodes=NODES, exit_code="0:0")
QUEUED = JobState(Phase.QUEUED, "PENDING", reason="Priority")
BROKEN = JobState(Phase.FAILED, "NODE_FAIL", reason="NodeDown", nodes=NODES, exit_code="1:0")
GONE = JobState(Phase.GONE, "", nodes=NODES)


@dataclass(frozen=True)
class Life:
    """What becomes of a job: its whole log, the state that it stays in, and how long it ran, in seconds."""

    log: str
    state: JobState = DONE
    seconds: float = 900.0


def paced(factor: float, **changed: float) -> str:
    """A log of llama3 70b fp8 on 512 GPUs, at the published pace but for this factor of all step times."""
    return nemo2_text([seconds * factor for seconds in times(**changed)])


def _of(case_id: str, factor: float = 1.0, scatter: float = 0.002) -> str:
    """A log of any llama3 case at its published pace but for this factor, with this scatter of its steps."""
    case = examples.case(case_id)
    pace = examples.target(case_id).step_time * factor
    lines = [
        nemo2_line(index, pace * (1 + scatter * (index * 7 % 5 - 2)), gbs=case.gbs, last=case.steps - 1)
        for index in range(case.steps)
    ]
    start = f"All distributed processes registered. Starting with {case.gpus} processes"
    return "\n".join([start, *lines, ""])


def _of_format(name: str) -> str:
    run = whole(name)
    return run.cell.render(run.job).text()


def _job(case_id: str, more: str = "") -> str:
    return f"llama3-{case_id}{more}"


def _id(job: str) -> str:
    """The id of a job on its cluster, by its name without the run's prefix."""
    return str(1000 + zlib.crc32(job.encode()) % 9000)


FIRST = "70b-fp8-512gpus"
MAXTEXT = "maxtext_llama2-70b-fp8-1024gpus"
LOADS = (LOADED.format(0, "9.712"), RESTORED.format(f"{FOLDER}/{NAME}"))
SAVE, LOAD = "70b-checkpoint-fp8-512gpus", "70b-checkpoint-load-fp8-512gpus"


def _verdicts() -> dict[str, Life]:
    slower = "70b-fp8-256gpus"
    return {
        _job(FIRST): Life(paced(1.0)),
        _job(slower): Life(_of(slower, 1.09)),
        _job("70b-fp8-128gpus"): Life(_of("70b-fp8-128gpus", 0.7)),
        _job("70b-fp8-64gpus"): Life(_of("70b-fp8-64gpus", scatter=0.12)),
        _job("70b-bf16-512gpus"): Life(_of("70b-bf16-512gpus") * 2),
        _job("70b-bf16-256gpus"): Life(_of("70b-bf16-256gpus")[:4000], BROKEN, 300.0),
        _job("70b-bf16-128gpus"): Life("", GONE),
        _job("70b-bf16-64gpus"): Life(_of("70b-bf16-64gpus"), BROKEN),
        _job("405b-fp8-1024gpus"): Life(_of("405b-fp8-1024gpus"), seconds=9000.0),
        MAXTEXT: Life(_of_format("maxtext").replace(JOB_ID, _id(MAXTEXT))),
    }  # fmt: skip


def _again() -> dict[str, Life]:
    unsure = nemo2_text([seconds * (1.06 if index > 30 else 1.0) for index, seconds in enumerate(times())])
    narrow = "70b-fp8-64gpus"
    return {
        _job(FIRST): Life(unsure),
        _job(FIRST, more="-try2"): Life(paced(1.0)),
        _job(FIRST, more="-try3"): Life(paced(1.01)),
        _job("70b-fp8-256gpus"): Life(_of("70b-fp8-256gpus")[:4000], BROKEN, 300.0),
        _job("70b-fp8-256gpus", more="-try2"): Life(_of("70b-fp8-256gpus")),
        _job(narrow): Life(_of(narrow, 1.12)),
    }


def _checkpoints() -> dict[str, Life]:
    return {
        _job(SAVE): Life("\n".join([*steps(), *SAVES, ""])),
        _job(LOAD): Life("\n".join([*LOADS, nemo2_line(0, last=0, loss="11.95"), ""])),
    }


def _skipped() -> dict[str, Life]:
    return {_job(SAVE): Life("\n".join(steps()[:20]) + "\n", BROKEN, 300.0)}


def _accepted() -> dict[str, Life]:
    return {_job(case_id): Life(_of(case_id)) for case_id in ("70b-fp8-64gpus", "70b-fp8-128gpus")}


def _stopped() -> dict[str, Life]:
    return {
        _job(FIRST): Life(paced(1.0)),
        _job("70b-fp8-256gpus"): Life("", QUEUED),
    }


SCENARIOS = {
    "verdicts": _verdicts,
    "again": _again,
    "checkpoints": _checkpoints,
    "skipped": _skipped,
    "accepted": _accepted,
    "stopped": _stopped,
}


class Recorded(Machine):
    """The site file's section: asked as often as one likes."""

    fastest_poll: ClassVar[float] = 0.01
    examines: ClassVar[bool] = True

    limits: Limits = Limits(log_settle_seconds=0.05, cancel_seconds=5, jobs_in_flight=64)


class RecordedJobs(Cluster):
    """A backend whose jobs have ended as their scenario says."""

    def __init__(self, lives: Mapping[str, Life]) -> None:
        super().__init__()
        self._lives = lives
        self._interrupted = False

    def submit(self, case: Case, name: str, excluded: tuple[str, ...] = ()) -> JobRef:
        life = self._lives[_short(name)]
        self.logs[name], self.ends[name] = life.log, [life.state]
        return JobRef(case.recipe, case.id, name, _id(_short(name)), "/logs")

    def poll(self, jobs: Sequence[JobRef]) -> dict[JobRef, JobState]:
        self._interrupt(jobs)
        return super().poll(jobs)

    def read_log(self, job: JobRef, place: LogPlace, wanted: Sequence[bytes]) -> LogPiece:
        data = self.logs[job.name].encode()[place.offset :]
        return LogPiece(data, LogPlace("log", place.offset + len(data)))

    def times(self, job: JobRef) -> ClusterTimes:
        return ClusterTimes(started=BEGAN, ended=BEGAN + self._lives[_short(job.name)].seconds)

    def blamed(self, job: JobRef) -> str:
        return "gpu007" if self.ends[job.name][0] is BROKEN else ""

    def examine(self, case: Case, job: JobRef) -> Artefacts:
        return left()

    def discard(self, job: JobRef) -> str:
        return f"/lustre/{job.id}"

    def keeping(self, job: JobRef) -> str:
        return f"ssh login01 rm -r /lustre/{job.id}"

    def _interrupt(self, jobs: Sequence[JobRef]) -> None:
        """If a job of the scenario stays in the queue, stop the session once the first case is judged."""
        judged = Path(os.environ["PACEMARK_GOLDEN_RESULTS"]) / "latest" / "llama3" / FIRST / "case.json"
        endless = any(life.state is QUEUED for life in self._lives.values())
        if endless and not self._interrupted and judged.exists():
            self._interrupted = True
            os.kill(os.getpid(), signal.SIGINT)


def _short(name: str) -> str:
    """A job's name without the run's prefix."""
    return name.partition(".")[2]


def make(site: str, section: Machine, recipes: Sequence[Recipe], source: Path | None) -> Backend:
    return RecordedJobs(SCENARIOS[os.environ["PACEMARK_GOLDEN"]]())


BACKENDS["slurm"] = replace(BACKENDS["slurm"], section_class=f"{__name__}:Recorded", module=__name__)
