"""What became of a case's job: handed from whoever ran it to whoever judges it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path
from typing import Literal

Failure = Literal["", "infrastructure", "lost", "interrupted", "given up", "hung", "undecided"]
"""What kept a job from ending by itself; "" when nothing did.

`given up`: cancelled because its pace could not come back into the band. `hung`: cancelled because it went on
after its last step. `undecided`: it ended well, and its case was run again because it alone did not tell.
"""

UNKNOWN_JOB = "of unknown id"
"""The id of the job behind a replayed log whose name does not say it."""

THIS_MACHINE = "this machine"
"""The node of what runs here. The ids of its jobs come again, for they are those of processes."""


@dataclass(frozen=True)
class Try:
    """An earlier job of the same case, which another one followed. `log` is that of one that is `undecided`."""

    job_id: str
    job_name: str
    state: str
    nodes: str
    failure: str
    message: str
    excluded: str = ""
    log: Path | None = None


@dataclass(frozen=True)
class Outcome:
    """The end of a job. Times are seconds since the epoch, None where unknown.

    `succeeded` is the cluster's own opinion. `failure` names what kept the job from ending by itself ("" when
    nothing did) and `message` says it in words. `log` is the collected training log of the last attempt, `gpu` the
    type of accelerator that it is judged as, `folder` the case's place in the results. `images` are the digests of the
    container images that ran, where the cluster tells; more than one where its pods differ. `versions` are those that
    the site file states. `job_kind` is the kind of the job's object on Kubernetes. `attempts` counts the lives of
    this job, `earlier` has the jobs of the case before it. `excluded` are nodes that the job was kept away from, with
    commas between them. `log_note` says where the log was read, if not from the job itself, or why that was not
    possible. `setup` says what was done before the launch.
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

    @property
    def undecided(self) -> tuple[Try, ...]:
        """The earlier jobs that are judged together with this one, oldest first."""
        return tuple(tried for tried in self.earlier if tried.failure == "undecided")

    @property
    def run(self) -> str:
        """The name of the run that the case is of, which is that of its folder in the results."""
        return self.folder.parent.parent.name

    @property
    def known_job(self) -> str:
        """The id that no other job of the cluster has; "" where there is none."""
        return "" if self.job_id == UNKNOWN_JOB or self.nodes == THIS_MACHINE else self.job_id
