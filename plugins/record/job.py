"""A job of a case and its nodes: what the cluster says of it, what the log of jobs keeps of it, and what the judge gets.

`jobs.log` has each field. `plugins.record.case` says which of them the records of cases have.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

Failure = Literal["", "infrastructure", "lost", "interrupted", "given up", "hung", "repeated", "skipped"]
"""Why a job did not end by itself; "" if it did.

`given up`: cancelled because its pace could not return to the band. `hung`: cancelled because it continued
after its last step. `repeated`: it ended well, but its case ran again because this job alone did not decide
the verdict, or because each case has several runs. `skipped`: it was never submitted, because what it needs is not there.
"""

Status = Literal["planned", "intent", "submitted", "ended", "held"]
"""How far a job is. `intent`: it is about to be submitted, so that the cluster may have it. `submitted`: the cluster has answered.
`held`: it has ended, and its case waits for an isolation that a later session has begun."""

Checkpoint = Literal["", "to be removed", "to be kept", "removed"]
"""What becomes of the checkpoint that a job saves; "" if the job saves none."""

SETUP_CASE = "setup"
"""The `case_id` of the job that is a recipe's own set-up."""

REPLAY = "replay"
"""The backend that has no jobs: it judges logs that were there before."""

REPLAYED = "REPLAYED"
"""The state of what it judges."""

Seconds = Annotated[float, Field(allow_inf_nan=False)]
"""A time in seconds since the epoch, or a duration."""

# What follows the address of a cluster on Kubernetes.
_CA = re.compile(r" \(CA (\w+)\)")
# They are names of folders.
_Recipe = Annotated[str, Field(pattern=r"^\w[\w.+-]*$")]
_CaseId = Annotated[str, Field(pattern=r"^\w[\w.+-]*(/\w[\w.+-]*)?$")]


class Phase(StrEnum):
    """The phase that a job is in, in the same words for every backend.

    STARTING: the job has all its nodes, but some of its containers do not run yet. Some clusters cannot tell
    this from RUNNING.
    SUSPENDED: the job has its nodes, and the cluster has stopped its program for a while.
    ENDING: the job's program has ended, and the cluster cleans up behind it.
    GONE: the cluster no longer knows the job.
    UNKNOWN: the job's state is in none of our tables. Such a job counts as still there.
    """

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    SUSPENDED = "suspended"
    ENDING = "ending"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    GONE = "gone"
    UNKNOWN = "unknown"

    @property
    def placed(self) -> bool:
        """Whether the job has its nodes."""
        return self in (Phase.STARTING, Phase.RUNNING, Phase.SUSPENDED, Phase.ENDING)

    @property
    def over(self) -> bool:
        return self in (Phase.SUCCEEDED, Phase.FAILED, Phase.GONE)


@dataclass(frozen=True)
class JobRef:
    """A job on its cluster.

    `recipe` and `case_id` are those of its case, or `SETUP_CASE`. The `case_id` of a job of an
    isolation is that of the case and the mode: `70b-fp8-512gpus/proof`. That of a job of another recipe, which probes the
    nodes of a case, begins with the recipe of the case: `llama3+70b-fp8-512gpus/isolate1x1.1-gpu017`.
    `name` is unique to the case and the run. `id` is the cluster's own id of the job, "" if it is not known.
    `folder` is where the job's logs are written, "" if that is not known.
    `kind` is the kind of the job's object on Kubernetes, "" elsewhere.
    `renamed` is the name that the cluster gave the job for `name`, "" if it kept it.
    `uid` is the uid of the job's object on Kubernetes, "" elsewhere: another object of that name is another job.
    """

    recipe: _Recipe
    case_id: _CaseId
    name: str
    id: str = ""
    folder: str = ""
    kind: str = ""
    renamed: str = ""
    uid: str = ""

    @property
    def cluster_name(self) -> str:
        """The job's name on its cluster."""
        return self.renamed or self.name

    @property
    def case(self) -> str:
        """The key of its case: `llama3/70b-fp8-512gpus`."""
        return f"{self.recipe}/{self.case_id}"

    @classmethod
    def of_probe(cls, recipe: str, case: str, mode: str, name: str) -> JobRef:
        """A job of `recipe` that probes nodes of a case of any recipe, which is given by its key."""
        return cls(recipe, f"{case.replace('/', '+')}/{mode}", name)

    @property
    def isolates(self) -> str:
        """The key of the case whose slow nodes this job is to find; "" for a case's own job."""
        case, _, mode = self.case_id.partition("/")
        if not mode:
            return ""
        recipe, of_another, case_id = case.partition("+")
        return f"{recipe}/{case_id}" if of_another else f"{self.recipe}/{case}"

    @property
    def mode(self) -> str:
        """What a job of an isolation runs: a probe, or the proof; "" for a case's own job."""
        return self.case_id.partition("/")[2]

    @property
    def label(self) -> str:
        """The job's id on its cluster, or its name if no id is known."""
        return self.id or self.name


@dataclass(frozen=True)
class JobState:
    """The state of a job, as the cluster gave it.

    `raw` is the cluster's own word for the state. `reason`, `nodes` and `exit_code` are as the cluster gave
    them.
    `images` are the digests of the job's container images, if the cluster tells them; if its pods differ,
    there are several.
    `hopeless`: `reason` shows that the job can never run.
    """

    phase: Phase = Phase.QUEUED
    raw: str = ""
    reason: str = ""
    nodes: str = ""
    exit_code: str = ""
    images: tuple[str, ...] = ()
    hopeless: bool = False

    @property
    def waits(self) -> bool:
        """Whether the job has no node: it has not begun, or waits again after it was suspended or requeued."""
        return self.phase is Phase.QUEUED and not self.nodes


@dataclass(frozen=True)
class Times:
    """When what happened to a job, in seconds since the epoch; None until then, or if unknown.

    `started` is when its last attempt began; the attempts before that ran `earlier_seconds`, 0 if that is unknown.
    """

    submitted: Seconds | None = None
    started: Seconds | None = None
    ended: Seconds | None = None
    earlier_seconds: Annotated[Seconds, Field(ge=0)] = 0.0
    cancel_asked: Seconds | None = None
    cancel_confirmed: Seconds | None = None

    @property
    def queued(self) -> float | None:
        """How long the job waited, if that is known. A cluster that tells whole seconds may have started it before it was submitted."""
        if self.submitted is None or self.started is None:
            return None
        return max(self.started - self.submitted, 0.0)

    @property
    def ran(self) -> float | None:
        """How long the last attempt ran, if that is known."""
        if self.started is None or self.ended is None:
            return None
        return max(self.ended - self.started, 0.0)

    @property
    def seconds(self) -> float | None:
        """How long all attempts ran; None if that is unknown."""
        if self.ran is None:
            return self.earlier_seconds or None
        return self.earlier_seconds + self.ran


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job of a case, or a recipe's set-up, with all that is known of it.

    `try_number` is its number among the jobs of its case. `backend` is how it runs. `location` says which cluster
    it is on, and where in it. `gpus` is 0 for a set-up. `attempts` is 1 + its restarts by the cluster.
    `excluded` are the nodes that it was kept away from. `log_note` says where its log was read, if not from
    itself, or why it was not. `log_fault` says that the log on the cluster is not the one that was read, "" if it
    is. `failure` says why it did not end by itself, `message` says it in words.
    """

    ref: JobRef
    try_number: Annotated[int, Field(ge=1)] = 1
    backend: str = ""
    location: str = ""
    gpus: Annotated[int, Field(ge=0)] = 0
    status: Status = "planned"
    state: JobState = JobState()
    times: Times = Times()
    attempts: int = 1
    excluded: tuple[str, ...] = ()
    checkpoint: Checkpoint = ""
    log_note: str = ""
    log_fault: str = ""
    failure: Failure = ""
    message: str = ""

    @property
    def case(self) -> str:
        """The key of its case."""
        return self.ref.case

    @property
    def is_case(self) -> bool:
        """Whether this is a case's own job, and so a row of the verdicts."""
        return bool(self.gpus) and not self.ref.isolates

    @property
    def may_run(self) -> bool:
        """Whether the job may still be on the cluster.

        If it has not ended, it may be there once it was about to be submitted. If it has ended, it may be there if
        its cancellation was never confirmed, or if the cluster could no longer be asked. A replay has no job.
        """
        if self.backend == REPLAY:
            return False
        if self.status == "ended":
            lost = self.failure == "lost" and not self.state.phase.over
            return (lost or bool(self.times.cancel_asked)) and not self.times.cancel_confirmed
        return self.status in ("intent", "submitted")

    @property
    def ended_by_itself(self) -> bool:
        """Whether its case has ended, and neither a stop nor the loss of the job is the reason."""
        return self.status == "ended" and self.failure not in ("lost", "interrupted")

    @property
    def left_remains(self) -> bool:
        """Whether the job is over, its case ended with it, and what it left on the cluster could not be removed."""
        return self.ended_by_itself and self.state.phase.over and self.may_run

    @property
    def leaves_checkpoint(self) -> bool:
        """Whether a checkpoint of this job may be on the cluster."""
        return self.checkpoint in ("to be removed", "to be kept") and self.times.submitted is not None

    @property
    def gpu_hours(self) -> float | None:
        """Those of this job; None if nobody knows when it began or ended."""
        seconds = self.times.seconds
        if seconds is None:
            return None
        return self.gpus * seconds / 3600

    def away(self, here: str) -> str:
        """Why the job cannot be asked about at `here`, a `Backend.location`: it is elsewhere. "" if it is not.

        If the job was only planned, or the cluster does not answer, a location is not known.
        """
        if not here or self.location in ("", here):
            return ""
        words = f"job {self.ref.label} is in {self.location}, and the site file leads to {here} now"
        former = _CA.search(self.location)
        if former is not None and _CA.sub("", self.location) == _CA.sub("", here):
            words += f" (if this is one cluster, whose CA was rotated, set `former_ca: {former[1]}` in the site file)"
        return words


_LISTED = re.compile(r"[^,\s\[\]]*(?:\[[^\[\]]*\][^,\s\[\]]*)*")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_MOST_NODES = 100_000
_SCREENING = re.compile(r".+-\d+gpus\.([^/]+)")


def screened_node(case_id: str) -> str:
    """The node that a case screens, by its id, `8b-8l-bf16-8gpus.gpu017`; "" if it screens none."""
    match = _SCREENING.fullmatch(case_id)
    return match[1] if match else ""


def node_names(text: str) -> frozenset[str]:
    """The nodes of a list, in any order; see `node_list`."""
    return frozenset(node_list(text))


def node_list(text: str) -> tuple[str, ...]:
    """The nodes of a list as Slurm and Kubernetes print it, in its order: `gpu[001-004,007],login1`.

    What is no such list is one name.
    """
    names: dict[str, None] = {}
    for name in _LISTED.findall(text):
        head, bracket, rest = name.partition("[")
        inside, _, tail = rest.partition("]")
        if not bracket or "[" in tail:
            if name:
                names[name] = None
            continue
        for item in inside.split(","):
            ends = _RANGE.fullmatch(item.strip())
            first, last = (int(ends[1]), int(ends[2] or ends[1])) if ends else (1, 0)
            if ends is None or not 0 <= last - first < _MOST_NODES - len(names):
                names[f"{head}[{item}]{tail}"] = None
            else:
                numbers = range(first, last + 1)
                names |= dict.fromkeys(f"{head}{number:0{len(ends[1])}d}{tail}" for number in numbers)
    return tuple(names)
