"""The end of a case's job, as the code that runs jobs hands it to the code that judges them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path
from typing import Literal

Failure = Literal["", "infrastructure", "lost", "interrupted", "given up", "hung", "undecided"]
"""Why a job did not end by itself; "" if it did.

`given up`: cancelled because its pace could not return to the band. `hung`: cancelled because it continued
after its last step. `undecided`: it ended well, but its case ran again because this job alone did not decide
the verdict.
"""

UNKNOWN_JOB = "of unknown id"
"""The id of a replayed log's job, if the name of the log does not state it."""

THIS_MACHINE = "this machine"
"""The node of jobs that run on this machine. Their ids are those of processes, so an id may occur again."""


@dataclass(frozen=True)
class Try:
    """An earlier job of the same case. `log` is its log, if its failure is `undecided`."""

    job_id: str
    job_name: str
    state: str
    nodes: str
    failure: str
    message: str
    excluded: str = ""
    log: Path | None = None


@dataclass(frozen=True)
class Diagnosed:
    """What was done to find the cause of a case's verdict.

    `jobs` are the ends of the case's jobs in other modes, by mode. They ran on the nodes of its own last job.
    `why_none` says why it was asked for and cannot be done at all. `command` runs the case again, but lacks
    the budget of a diagnosis; "" if none is possible, or if one was made. `recording` runs the case in its
    other modes, and records their digests.
    """

    jobs: Mapping[str, Outcome] = field(default_factory=dict)
    why_none: str = ""
    command: str = ""
    recording: str = ""


@dataclass(frozen=True)
class Outcome:
    """The end of a job. Times are seconds since the epoch, or None if unknown.

    The case: `gpu` is the type of accelerator that it is judged as, `folder` its folder in the results.
    `earlier` has the case's jobs before this one. `setup` says what was done before the launch.

    The job: `succeeded` is the cluster's own answer. `failure` says why the job did not end by itself,
    `message` says it in words. `job_kind` is the kind of the job's object on Kubernetes. `attempts` is the
    number of attempts. `excluded` are the nodes that the job was kept away from, separated by commas.

    The log: `log` is the collected training log of the last attempt. If it was not read from the job itself,
    `log_note` says where it was read, or why it could not be read.

    The versions: `images` are the digests of the container images that ran, if the cluster states them; if
    the pods differ, there are several. `versions` are those that the site file states.

    `diagnosis` is of interest if the verdict is too slow or noisy.
    """

    case: str
    gpu: str
    folder: Path
    log: Path | None
    job_id: str = ""
    job_name: str = ""
    job_kind: str = ""
    state: str = ""
    succeeded: bool = False
    reason: str = ""
    nodes: str = ""
    images: tuple[str, ...] = ()
    exit_code: str = ""
    submitted: float | None = None
    started: float | None = None
    ended: float | None = None
    attempts: int = 1
    log_note: str = ""
    failure: Failure = ""
    message: str = ""
    earlier: tuple[Try, ...] = ()
    excluded: str = ""
    setup: str = "the stage was checked and ready"
    versions: Mapping[str, str] = field(default_factory=dict)
    diagnosis: Diagnosed = field(default_factory=Diagnosed)

    @property
    def undecided(self) -> tuple[Try, ...]:
        """The earlier jobs that are judged together with this one, oldest first."""
        return tuple(tried for tried in self.earlier if tried.failure == "undecided")

    @property
    def run(self) -> str:
        """The name of the case's run, which is the name of its folder in the results."""
        return self.folder.parent.parent.name

    @property
    def known_job(self) -> str:
        """The job's id if no other job of the cluster has it; "" if there is no such id."""
        return "" if self.job_id == UNKNOWN_JOB or self.nodes == THIS_MACHINE else self.job_id
