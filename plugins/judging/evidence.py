"""All that a case is judged by, as one value. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest

from plugins.baselines.numbers import Numbers
from plugins.digests.artefacts import Artefacts
from plugins.digests.gpu_samples import Gpus
from plugins.judging import cpus
from plugins.judging.checkpoints import Saved
from plugins.judging.validity import UNKNOWN, Started
from plugins.logs import Log
from plugins.metrics import MfuBasis
from plugins.outcome import Outcome
from plugins.recipes.cases import Case


@dataclass(frozen=True)
class Run:
    """A run of a case: the parsed log of its job's last attempt, what that tells of its GPUs, and its job.

    `gpus` is None if logs of this recipe tell nothing of them.
    """

    log: Log
    gpus: Gpus | None = None
    started: Started = UNKNOWN


@dataclass(frozen=True)
class SiteFacts:
    """What the site file states that a case is judged by.

    The case runs on so many `nodes`, between which NCCL should name the `network` so; None: as it likes. `promised` is
    the bandwidth of the shared storage in bytes/s, None if it is unknown.
    """

    nodes: int = 1
    network: str | None = None
    promised: float | None = None


@dataclass(frozen=True)
class Evidence:
    """A case, the end of its job, and all that its verdict follows from.

    `runs` are the earlier runs of the case that ended well without a clear verdict, oldest first, then its own: all
    are judged together. `artefacts` is what a run in another mode left on the cluster, `saved` what the job left whose
    checkpoint this one loads. If the job died or hung, the verdict quotes `last_lines`, the end of its log, and
    `errors`, the error messages outside the log. With `strict_last` the published statistic alone decides.
    """

    case: Case
    outcome: Outcome
    runs: tuple[Run, ...]
    numbers: Numbers
    site: SiteFacts = SiteFacts()
    artefacts: Artefacts | None = None
    saved: Saved | None = None
    last_lines: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    strict_last: bool = False

    @property
    def own(self) -> Run:
        """The run of the case's last job."""
        return self.runs[-1]

    @property
    def log(self) -> Log:
        """The log of the case's last job."""
        return self.own.log

    @property
    def logs(self) -> list[Log]:
        """The logs of all runs."""
        return [run.log for run in self.runs]

    @cached_property
    def basis(self) -> MfuBasis | None:
        """What MFU is counted with; None if no peak is known."""
        return self.numbers.counting.basis(cpus.peak(self.case, self.logs))

    def alone(self) -> Evidence:
        """The evidence without the earlier runs."""
        return replace(self, runs=self.runs[-1:])


def runs_of(outcome: Outcome, logs: Sequence[Log], gpus: Sequence[Gpus | None] = ()) -> tuple[Run, ...]:
    """The runs with these logs, oldest first: the last is that of the outcome's own job."""
    jobs = [Started(job.ref.id, job.attempts) for job in outcome.repeated[: len(logs) - 1]]
    jobs += [UNKNOWN] * (len(logs) - 1 - len(jobs))
    jobs.append(Started(outcome.known_job, outcome.job.attempts))
    return tuple(Run(log, told, started) for log, told, started in zip_longest(logs, gpus[: len(logs)], jobs))
