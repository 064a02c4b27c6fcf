"""The end of a case's job, as the code that runs jobs hands it to the code that judges them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from plugins.base.words import first_of
from plugins.isolation.probes import SHOWN, Answer
from plugins.record.case import ProofRun
from plugins.record.folder import LOG
from plugins.record.job import Job, Phase

UNKNOWN_JOB = "of unknown id"
"""The id of a replayed log's job, if the name of the log does not state it."""

THIS_MACHINE = "this machine"
"""The node of jobs that run on this machine. Their ids are those of processes, so an id may occur again."""


@dataclass(frozen=True)
class Isolated:
    """The answer of an isolation, after so many `rounds` of probes and so many GPU-hours.

    `causes` say what the GPUs of slow nodes show. `symptoms` say what the case's own jobs logged about some nodes.
    `proof` is the run of the case without the accused nodes, None if there was none. `command` runs the case without
    them; "" if no node is accused.
    """

    answer: Answer
    rounds: int
    gpu_hours: float
    causes: tuple[str, ...] = ()
    proof: ProofRun | None = None
    command: str = ""
    symptoms: tuple[str, ...] = ()

    @property
    def headline(self) -> str:
        """The answer in words, after the symptoms that were known without a probe."""
        if not self.symptoms:
            return self._of_probes
        return f"the job itself told: {first_of(self.symptoms, SHOWN)}; the probes: {self._of_probes}"

    @property
    def _of_probes(self) -> str:
        if not self.rounds:
            return str(self.answer)
        words = "; ".join([str(self.answer), *self.causes])
        parts = [f"{words} ({self.rounds} rounds of probes, {self.gpu_hours:.2g} GPU-hours)"]
        if self.proof is not None:
            parts.append(self.proof.headline)
        if self.command:
            parts.append(f"to run it without them: {self.command}")
        return "; ".join(parts)


@dataclass(frozen=True)
class Outcome:
    """The end of a case's last job.

    `gpu` is the type of accelerator that the case is judged as. `folder` is its folder in the results. `log`
    is the collected training log of the job's last attempt. `earlier` has the case's jobs before this one,
    oldest first. `setup` says what was done before the launch. `versions` are those that the site file
    states.

    `isolated` is None if no node was probed.
    """

    gpu: str
    folder: Path
    log: Path | None
    job: Job
    earlier: tuple[Job, ...] = ()
    setup: str = "the stage was checked and ready"
    versions: Mapping[str, str] = field(default_factory=dict)
    isolated: Isolated | None = None

    @property
    def succeeded(self) -> bool:
        """The cluster's own answer."""
        return self.job.state.phase is Phase.SUCCEEDED

    @property
    def repeated(self) -> tuple[Job, ...]:
        """The earlier jobs that are judged together with this one, oldest first."""
        return tuple(job for job in self.earlier if job.failure == "repeated")

    @property
    def run(self) -> str:
        """The name of the case's run, which is the name of its folder in the results."""
        return self.folder.parent.parent.name

    @property
    def known_job(self) -> str:
        """The job's id if no other job of the cluster has it; "" if there is no such id."""
        job = self.job
        return "" if job.ref.id == UNKNOWN_JOB or job.state.nodes == THIS_MACHINE else job.ref.id


def outcome_of(job: Job, folder: Path, gpu: str = "", earlier: Sequence[Job] = ()) -> Outcome:
    """What the judge gets of a case whose last job is `job`; `earlier` are those before it, oldest first.

    `folder` is the case's folder in the results. `gpu` is the type of accelerator that the case is judged as.
    """
    log = folder / LOG
    return Outcome(gpu, folder, log if log.exists() else None, job, tuple(earlier))
