"""The record of a case, `case.json`: its verdict and what it rests on. docs/results.md tells of it.

Every key but `expected_range`, `isolation` and `slow_gpus` is always there. It is null if the case did not get that far,
or if there is no such figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any

from pydantic import Field

from plugins.base.yamlfile import Strict
from plugins.record.baseline import ExpectedRange, Recorded
from plugins.record.job import Failure, Job, Times, screened_node
from plugins.record.lines import Moment, Part, part_of
from plugins.record.verdict import STOPPED, Kind


@dataclass(frozen=True, kw_only=True)
class EarlierJob(Part):
    """A job of the case that another job followed."""

    id: str
    name: str
    state: str
    nodes: str
    failure: Failure
    """`repeated` if another run of the case followed it, `interrupted` if a stopped session cancelled it, empty if it broke itself."""
    message: str
    excluded_nodes: tuple[str, ...]

    @classmethod
    def of(cls, job: Job) -> EarlierJob:
        return part_of(cls, job.ref, job.state, job, state=job.state.raw, excluded_nodes=job.excluded)

    @property
    def label(self) -> str:
        """The job's id on its cluster, or its name if no id is known."""
        return self.id or self.name


@dataclass(frozen=True, kw_only=True)
class JobRecord(Part):
    """A job on its cluster, in the cluster's own words."""

    id: str
    name: str
    kind: str
    """On Kubernetes, the kind of its object; elsewhere empty."""
    state: str
    reason: str
    nodes: str
    exit_code: str
    submitted: Moment | None
    started: Moment | None
    ended: Moment | None
    attempts: int
    """1 + its restarts by the cluster."""
    earlier_seconds: float
    """How long the attempts before the last one ran; 0 if the cluster does not tell."""
    excluded_nodes: tuple[str, ...]
    """`--exclude-nodes` or `--exclude-failed-nodes` kept the job away from them."""

    @classmethod
    def of(cls, job: Job) -> JobRecord:
        return part_of(
            cls, job.ref, job.state, job.times, job, state=job.state.raw, excluded_nodes=job.excluded
        )

    @property
    def label(self) -> str:
        """The job's id on its cluster, or its name if no id is known."""
        return self.id or self.name

    @property
    def times(self) -> Times:
        return Times(self.submitted, self.started, self.ended, self.earlier_seconds)


@dataclass(frozen=True, kw_only=True)
class Means(Part):
    """What step times are of."""

    over: int
    """The log has lines with the mean over the last so many steps; 1: the step's own time."""
    every: int
    """It has a line every so many steps."""
    judged: int
    """Each figure of steps here is the mean over so many steps; 1: a single step."""


@dataclass(frozen=True, kw_only=True)
class Run(Part):
    """One of several runs that are judged together."""

    id: str
    """The job's id on its cluster."""
    name: str
    """The job's unique name."""
    nodes: str
    step_time: float
    steady_median: float
    spread: float
    hiccups: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class MfuDefinition(Part):
    """What MFU was counted with."""

    flops: str
    """The FLOPs definition."""
    flops_per_sequence: float
    beside_flops: str | None
    """The definition of `mfu_beside`."""
    beside_flops_per_sequence: float | None
    corrected_flops: str | None
    """The definition of `corrected_mfu`."""
    corrected_flops_per_sequence: float | None
    peak_tflops_per_gpu: float
    statistic: str


@dataclass(frozen=True, kw_only=True)
class Expected(Part):
    """What the case should reach by its baseline."""

    step_time: float
    tokens_per_second: float
    mfu: float
    days_per_1t_tokens: float | None
    fastest: float
    """The shortest step time that passes."""
    slowest: float
    """The longest step time that passes."""
    source: str
    """Where the number was published."""
    release: str
    """The release that printed it first."""
    framework: str
    gpu: str
    own: bool
    """Whether the number is the site's own, which nobody published."""
    recorded: Recorded | None
    """If the number is the site's own and not written by hand: the run in which it was measured."""

    @property
    def band(self) -> tuple[float, float]:
        """From where to where a deviation of the throughput passes, in percent; 0 where the step time is damaged."""
        low, high = (edge and 100 * (self.step_time / edge - 1) for edge in (self.slowest, self.fastest))
        return low, high

    @property
    def recorded_by(self) -> str:
        """The run in which the number was measured, if it is the site's own and not written by hand; "" if not."""
        return self.recorded.run if self.recorded else ""


@dataclass(frozen=True, kw_only=True)
class Compared(Part):
    """Somebody's figure at this size and dtype, shown beside the case's and never judged."""

    name: str
    gpus: int
    tokens_per_second_per_gpu: float
    source: str
    note: str | None
    text: str


@dataclass(frozen=True, kw_only=True)
class WrittenCheckpoint(Part):
    """A checkpoint that the case wrote."""

    seconds: float
    """Of its slowest rank."""
    bytes: int
    bytes_per_second: float
    promised_bytes_per_second: float | None
    """What the site file promises of the shared storage."""
    promised_seconds: float | None
    files: int
    """Their number, if they were counted; otherwise 0."""
    path: str
    """Where they were; empty if they were not counted."""


class File(Strict):
    """A file on the cluster: its path in the folder, its size in bytes, and when it was last written.

    `modified` is in seconds since the epoch, by the clock of the file's server.
    """

    name: str
    size: int = Field(ge=0, lt=1 << 63)
    modified: float = Field(lt=1e15)


@dataclass(frozen=True, kw_only=True)
class Left(Part):
    """What a run in another mode left on the cluster. Its digests are in `artefacts.json`."""

    host: str
    folder: str
    begun: float | None
    """When the job was submitted, in seconds since the epoch, by the clock of the files' server."""
    free: int | None
    """The bytes that are free on the file system, if that was asked."""
    files: tuple[File, ...]
    notes: tuple[str, ...]
    """What could not be found out, and why."""


@dataclass(frozen=True, kw_only=True)
class SlowPart(Part):
    """What slows the case: a node, its network, a link or a leaf."""

    part: str
    """`node`, `network` (of a node), `link`, `pair` (the link, or the network of one of the two) or `leaf` (its uplink)."""
    name: str
    """Of the leaf; else empty."""
    nodes: tuple[str, ...]
    slowness: float
    """By how much its slow probes were slower than their peers, of three nodes or fewer than the baseline, as a share."""
    slow: int
    """So many of its probes were slow."""
    tests: int
    """So many it had."""


@dataclass(frozen=True, kw_only=True)
class FailedProbe(Part):
    """A probe that measured nothing, also when it was tried again."""

    nodes: tuple[str, ...]
    reason: str


@dataclass(frozen=True, kw_only=True)
class ProofRun(Part):
    """What the case did once more, without the nodes that slow it."""

    nodes: tuple[str, ...]
    """It was kept off them."""
    verdict: Kind | None
    """Null if it did not run."""
    step_time: float | None
    """In seconds."""
    headline: str


@dataclass(frozen=True, kw_only=True)
class IsolatedParts(Part):
    """What slows a case that is too slow, by probes of its nodes."""

    ending: str
    """`isolated`, `all alike`, `slow as a whole`, `two kinds of nodes` or `cannot tell`."""
    headline: str
    parts: tuple[SlowPart, ...]
    smallest: float | None
    """The least slowness of a node or a link that would have been seen in 99 of 100 fleets, as a share."""
    rounds: int
    gpu_hours: float
    failed: tuple[FailedProbe, ...]
    proof: ProofRun | None
    """Null if no node is slow."""
    command: str | None
    """Runs the case without the nodes that slow it."""
    symptoms: tuple[str, ...]
    """What the case's own jobs told of some of its nodes: errors, another network, the slowest process. No probe measured it."""


@dataclass(frozen=True, kw_only=True)
class CaseRecord(Part):
    """A case: its verdict and what it rests on. Also in `case.json` in the case's folder."""

    id: str
    """`llama3/70b-fp8-512gpus`."""
    release: str | None
    """Of the recipe: it tells which cases were run and which numbers they are judged by."""
    verdict: Kind
    headline: str
    """The verdict in one line."""
    deviation: float | None
    """By how many percent the throughput is above (+) or below (-) the expected one: the number in the headline, or by the slower one of `step_time` and `steady_median` if the headline has none."""
    remarks: tuple[str, ...]
    """What else a reader must know."""
    statistic: str | None
    """`last` or `mean:A-B`."""
    means: Means | None
    step_time: float | None
    """Seconds, by the statistic, of printed times."""
    last_step_time: float | None
    """Seconds, as printed."""
    steady_median: float | None
    """The median of the last 10 steps, or of all settled intervals, in seconds."""
    spread: float | None
    """The relative spread of all settled steps."""
    hiccups: tuple[int, ...] | None
    """The indices of stalled steps, or of the last steps of stalled intervals."""
    runs: tuple[Run, ...] | None
    """If the case ran several times: every run that is judged, oldest first."""
    tokens_per_second: float | None
    tflops_per_gpu: float | None
    mfu: float | None
    """In percent."""
    mfu_beside: float | None
    """By a second way to count FLOPs, if the recipe names one; never judged."""
    corrected_mfu: float | None
    """By the right FLOPs, if the baseline's definition is known to be wrong; never judged."""
    days_per_1t_tokens: float | None
    mfu_definition: MfuDefinition | None
    expected: Expected | None
    expected_range: Annotated[ExpectedRange | None, Field(exclude_if=lambda value: value is None)] = None
    """Where its pace should be by the published numbers of other scales; left out unless the case has no number itself. `expected` is null, or the middle of the range if an acceptance plan has it decide."""
    references: tuple[Compared, ...] | None
    recording: Mapping[str, Any] | None
    """With `--record-baselines`: the cell that is offered for the site's own table, or `refused`."""
    checkpoint: WrittenCheckpoint | None
    artefacts: Left | None
    isolation: Annotated[IsolatedParts | None, Field(exclude_if=lambda value: value is None)] = None
    """Which of its nodes slow it, by probes of them; left out if none were made."""
    slow_gpus: Annotated[tuple[str, ...] | None, Field(exclude_if=lambda value: value is None)] = None
    """Of a case that screens a node, in words: each GPU that is slower than the others of the node; left out of other cases."""
    configuration: Mapping[str, int | str | None] | None
    """`gpus`, `dtype`, `gpu`, `variant`, `parameters`, `sequence_length`, `layers` and the parallel sizes and batches."""
    identity: Mapping[str, str] | None
    """For each kind of fact that identifies a run, the line of the log that stated it; empty if none did."""
    versions: Mapping[str, str] | None
    """What the run was made with, by name."""
    job: JobRecord
    earlier_jobs: tuple[EarlierJob, ...]
    """The jobs of this case that another job followed, oldest first."""

    @classmethod
    def unjudged(cls, job: Job, reason: str) -> CaseRecord:
        """The record of a case that was not judged, because the session was stopped first."""
        known = {
            "id": job.case,
            "verdict": Kind.INFRASTRUCTURE,
            "headline": f"{Kind.INFRASTRUCTURE}: {reason}",
            "remarks": (),
            "job": JobRecord.of(job),
            "earlier_jobs": (),
        }
        return cls(**(dict.fromkeys(field.name for field in fields(cls)) | known))  # type: ignore[arg-type]

    @property
    def recipe(self) -> str:
        return self.id.partition("/")[0]

    @property
    def node(self) -> str:
        """The node that the case screens; "" if it screens none."""
        return screened_node(self.id.partition("/")[2])

    @property
    def stopped(self) -> bool:
        """Whether nothing else kept the case from its end than that its session was stopped."""
        return self.headline.startswith(f"{Kind.INFRASTRUCTURE}: {STOPPED}")
