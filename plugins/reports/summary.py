"""The types of `summary.json`. Its JSON Schema is made of them: `docs/summary.schema.json`, by `python -m tests.schema`.

Every key is always there. It is null if the case did not get that far, or if there is no such figure.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from plugins.digests.artefacts import File
from plugins.record.baseline import Recorded
from plugins.record.job import Failure
from plugins.record.plan import Decision, Plan
from plugins.record.verdict import Cause, Kind, Outcome

SCHEMA = 1
"""It changes if a change would mislead a reader of the old schema."""


def _moment(text: str) -> str:
    when = datetime.fromisoformat(text)
    when.timestamp()
    if when.tzinfo is None:
        raise ValueError("has no time zone")
    return text


Stamp = Annotated[str, AfterValidator(_moment), Field(json_schema_extra={"format": "date-time"})]
"""ISO 8601, UTC."""


class Part(BaseModel):
    """A part of the record. Unknown keys and wrong types are errors."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class Means(Part):
    """What step times are of."""

    over: int
    """The log has lines with the mean over the last so many steps; 1: the step's own time."""
    every: int
    """It has a line every so many steps."""
    judged: int
    """Each figure of steps here is the mean over so many steps; 1: a single step."""


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
    hiccups: list[int]


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
    own: bool = False
    """Whether the number is the site's own, which nobody published."""
    recorded: Recorded | None
    """If the number is the site's own and not written by hand: the run in which it was measured."""


class Compared(Part):
    """Somebody's figure at this size and dtype, shown beside the case's and never judged."""

    name: str
    gpus: int
    tokens_per_second_per_gpu: float
    source: str
    note: str | None
    text: str


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


class Left(Part):
    """What a run in another mode left on the cluster. Its digests are in `artefacts.json`."""

    host: str
    folder: str
    begun: float | None
    """When the job was submitted, in seconds since the epoch, by the clock of the files' server."""
    free: int | None
    """The bytes that are free on the file system, if that was asked."""
    files: list[File]
    notes: list[str]
    """What could not be found out, and why."""


class Change(Part):
    """A part of a step, in seconds."""

    good: float | None
    now: float


class Transport(Part):
    """How many ranks use which network, in words."""

    good: str | None
    now: str | None


class GoodRun(Part):
    """The recorded digest that a job of a diagnosis compares with."""

    run: str
    date: str
    nodes: str


class DiagnosisJob(Part):
    """A job of the case in another mode."""

    mode: str
    id: str
    name: str
    state: str
    nodes: str
    gpu_hours: float | None
    why_not: str
    """Why it is no evidence; empty if it is."""
    good: GoodRun | None


class DiagnosedCause(Part):
    """What is known of the cause of a verdict that is too slow or noisy."""

    cause: Cause | None
    """null if no job tells anything."""
    headline: str
    ranks: list[str]
    """Where it is; empty: on all ranks."""
    slowest: str | None
    """The rank with the most work of its own."""
    last: str | None
    """The rank that arrives last at the collectives."""
    collective: str | None
    figures: dict[str, Change]
    """Each part of a step."""
    transport: Transport
    lines: list[str]
    jobs: list[DiagnosisJob]
    command: str | None
    """What would find the cause, if no diagnosis was made."""


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
    submitted: Stamp | None
    started: Stamp | None
    ended: Stamp | None
    attempts: int
    """1 + its restarts by the cluster."""
    earlier_seconds: float = 0.0
    """How long the attempts before the last one ran; 0 if the cluster does not tell."""
    excluded_nodes: list[str]
    """`--exclude-failed-nodes` kept the job away from them."""


class EarlierJob(Part):
    """A job of the case that another job followed."""

    id: str
    name: str
    state: str
    nodes: str
    failure: Failure
    """`repeated` if another run of the case followed it, `interrupted` if a stopped session cancelled it, empty if it broke itself."""
    message: str
    excluded_nodes: list[str]


class CaseRecord(Part):
    """A case: its verdict and what it rests on. Also in `case.json` in the case's folder."""

    id: str
    """`llama3/70b-fp8-512gpus`."""
    verdict: Kind
    headline: str
    """The verdict in one line."""
    remarks: list[str]
    """What else a reader must know."""
    release: str | None
    """Of the recipe: it tells which cases were run and which numbers they are judged by."""
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
    hiccups: list[int] | None
    """The indices of stalled steps, or of the last steps of stalled intervals."""
    runs: list[Run] | None
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
    references: list[Compared] | None
    recording: dict[str, Any] | None
    """With `--record-baselines`: the cell that is offered for the site's own table, or `digest`, or `refused`."""
    checkpoint: WrittenCheckpoint | None
    artefacts: Left | None
    diagnosis: DiagnosedCause | None
    configuration: dict[str, int | str | None] | None
    """`gpus`, `dtype`, `gpu`, `variant`, `parameters`, `sequence_length`, `layers` and the parallel sizes and batches."""
    identity: dict[str, str] | None
    """For each kind of fact that identifies a run, the line of the log that stated it; empty if none did."""
    versions: dict[str, str] | None
    """What the run was made with, by name."""
    job: JobRecord
    earlier_jobs: list[EarlierJob]
    """The jobs of this case that another job followed, oldest first."""


class RunsSaved(Part):
    """What `--repeat-undecided` saved: of the cases that their runs decided."""

    at_most: int
    """The most runs of a case."""
    runs: int
    """Those that were made."""
    not_needed: int
    """Those that were not made, because fewer decided."""
    gpu_hours_saved: float
    """What these would have cost: each as much as the case's own runs in the mean."""


class LeftOut(Part):
    """Cases that were selected, and that this site cannot run."""

    recipe: str
    reason: str
    cases: int
    """How many they are."""
    ids: list[str] = []
    """Their names; none in a record that is older than this key."""


class Scale(Part):
    """A scale of a size and dtype. Its pace is the steady one."""

    case: str
    gpus: int
    tokens_per_second_per_gpu: float | None
    """null if no valid run measured it."""
    published_tokens_per_second_per_gpu: float | None
    efficiency: float | None
    """`tokens_per_second_per_gpu` over that of the smallest scale."""
    published_efficiency: float | None
    """The same of the published numbers."""
    limit: float | None
    """The smallest efficiency that is enough, if one is asked for."""
    why: str
    """Why the limit is not reached, or why that cannot be told; empty if it is reached, or none is asked for."""
    waived: bool
    """Whether the plan waives the case: then it is neither judged nor compared with."""


class Scaling(Part):
    """The scaling of one recipe, size and dtype, with the same work per GPU at each scale."""

    recipe: str
    size: str
    dtype: str
    scales: list[Scale]
    """The smallest one first."""


class WaivedCase(Part):
    """A case that did not pass, and need not."""

    case: str
    verdict: Kind
    headline: str
    reason: str
    agreed_by: str
    until: date
    """The last day (UTC) of the waiver."""


class AcceptanceRecord(Part):
    """The decision on the run's acceptance plan. docs/acceptance.md says how it is made."""

    decision: Decision
    digest: str
    """The SHA-256 of the plan, which is `acceptance.yaml` in the run's folder; the run's first line in `jobs.log` has it too."""
    plan: Plan
    cases: list[str]
    """All cases of the plan."""
    failed: dict[str, str]
    """What speaks against the cluster, by the case or the part of the plan."""
    missing: dict[str, str]
    """What was not shown, by the case, the list of nodes or the part of the plan."""
    waived: list[WaivedCase]


class Ending(Part):
    """How the session ended."""

    outcome: Outcome
    """The whole session in one word: see docs/ci.md."""
    exit_code: int | None
    """Of the process; null if the session ended while it was being shut down."""
    regressions: list[str]
    """With `--benchmark-compare-fail` or `--fail-if`: the cases that regressed or differ, with their figures."""
    uncompared: list[str]
    """With `--benchmark-compare-fail` or `--fail-if`: the cases that could not be compared with the earlier run."""
    acceptance: AcceptanceRecord | None = None
    """With `--acceptance`: what the run has shown of its plan."""
    scaling: list[Scaling] = []
    """Of each recipe, size and dtype with at least two measured scales."""


class Summary(Ending):
    """The record of a run."""

    schema_: Literal[1] = Field(alias="schema")
    """It changes if a reader of the old schema would be misled."""
    run: str
    """The name of the run's folder."""
    site: str
    """The site file's `site`."""
    started: Stamp
    ended: Stamp
    commit: str | None
    """The commit of Pacemark's own checkout; null if it is none: then `versions` tells."""
    dirty: bool | None
    """Whether files of the checkout differed from that commit."""
    versions: dict[str, str]
    """Of Pacemark, Python and the relevant packages."""
    totals: dict[Kind, int]
    """The number of cases with each verdict."""
    gpu_hours: float
    """Of all jobs of the run: of earlier tries, diagnoses and cancelled jobs too. Of a job that the cluster started again, the earlier attempts count if the cluster tells how long they ran. A replay has none."""
    repeated: RunsSaved | None = None
    """null without `--repeat-undecided`."""
    left_out: list[LeftOut]
    files: dict[str, str] | None = None
    """The SHA-256 of each log, of what was sent and of the errors of each job, by the path in the run's folder; of earlier jobs too. null if an older Pacemark wrote the record."""
    cases: list[CaseRecord]
    """In the order of the session."""
