"""What a training log states: values. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

SAMPLE_HINT = "cpu sample: "

Seconds = Annotated[float, Field(ge=0, lt=1e9)]
"""A damaged line may hold a number of any length."""


class ProcessorSample(BaseModel):
    """A step and the matrix products behind it, up to the end of these products. All times are in s.

    `tflops` is the mean rate of the products, `share` the part of their threads' time in which the program ran.

    In `seconds` each of the `processors` that the program may use could have run as long. `own_s` is what the program
    and its descendants used of that, `others_s` what other programs used, `stolen_s` what a hypervisor gave to
    other machines, `held_s` what the limit of a cgroup kept from the program; None if the machine does not tell.
    `programs` are the busiest of the others by name.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False, defer_build=True)

    step: Annotated[int, Field(ge=0, lt=10**9)]
    tflops: Annotated[float, Field(gt=0, lt=1e9)]
    share: Annotated[float, Field(gt=0, lt=1e3)]
    seconds: Annotated[float, Field(gt=0, lt=1e9)]
    processors: Annotated[int, Field(gt=0, lt=1 << 20)]
    own_s: Seconds
    others_s: Seconds | None = None
    stolen_s: Seconds | None = None
    held_s: Seconds | None = None
    programs: dict[str, Seconds] = {}


def read_sample(line: str) -> ProcessorSample | None:
    """The sample that the line states; None if it is damaged."""
    try:
        return ProcessorSample.model_validate_json(line.partition(SAMPLE_HINT)[2])
    except ValidationError:
        return None


Tells = Literal["", "rate", "configuration", "routing"]

FlopsName = Literal["full-attention", "causal-attention", "nemotron-24.11"]
"""How model FLOPs are counted (`plugins.baselines.metrics`)."""

PrintedMeans = Literal["none", "intervals", "moving", "separable"]
"""What means over several steps a format may print; `means` in `recipe.yaml` says over how many.

"intervals" are over the steps since the line before. "moving" ones have a line for each step; "separable" ones
have enough digits to compute the single steps too.
"""


GPU_NAME = re.compile(
    r"\b(G?[ABHLVT]\d{1,4}[A-Z]?|RTX|GeForce)\b(?!-\d+[ABCQ]\b)(?:.*\b(PCIe|NVL|MIG|HBM2e?)\b)?",
    re.IGNORECASE,
)
"""The part of a GPU's name that tells its type: model, and form factor if it is not SXM, or an older memory than HBM3.

`NVIDIA H100-80C` is virtual, and has no such part: others may compute on the same GPU.
"""


def type_of(name: str) -> str:
    """`h100` for `NVIDIA H100 80GB HBM3`, `h100-pcie` for `NVIDIA H100 PCIe`, which is another part."""
    match = GPU_NAME.search(name)
    if match is None or match[1].isalpha():
        words = [name.removeprefix("NVIDIA ")]
    else:
        words = [word for word in match.groups() if word]
    return re.sub(r"[^a-z0-9]+", "-", " ".join(words).lower()).strip("-")


@dataclass(frozen=True)
class Fact:
    """A fact that a run states. `name` is as in `plugins.judging.validity.configuration`.

    `said` is the text of the log, `lines` is how many lines state it.
    """

    name: str
    value: int | str
    said: str
    lines: int = 1


@dataclass(frozen=True)
class Span:
    """What a rounded figure may have been, both ends included."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True)
class Step:
    """One training step as the log states it; `None` is "not stated".

    `index` is 0-based. `seconds` is the step time. Each `resolution` is half a unit of the last printed
    digit; that of `consumed_samples` is 0 if the format prints them in full. `tokens` are those of the global
    batch, or 0 if processes contradict each other. `tokens_per_gpu` and `flops_per_gpu` are the printed rate
    x time. `rated_seconds` is a time of its own that a process printed with the rate; the step may be the one before. `skipped_iterations` and `nan_iterations` count steps without an update. If `disagreeing`,
    processes printed different losses. `stamp` is when the line was printed, in seconds;
    if `collected`, when somebody else took it, which may be later.

    If every process prints the step, `ranks` counts their lines, `seconds` is their median, and
    `slowest_seconds` is the longest time, of process `slowest_rank` if the line names it.
    """

    index: int
    seconds: float | None
    resolution: float = 0.0
    gbs: int | None = None
    consumed_samples: int | None = None
    consumed_resolution: float = 0.0
    tokens: int | None = None
    tokens_per_gpu: Span | None = None
    flops_per_gpu: Span | None = None
    tflops_per_gpu: float | None = None
    rated_seconds: float | None = None
    loss: float | None = None
    grad_norm: float | None = None
    skipped_iterations: int | None = None
    nan_iterations: int | None = None
    disagreeing: bool = False
    stamp: float | None = None
    stamp_resolution: float = 0.5
    collected: bool = False
    ranks: int = 1
    slowest_seconds: float | None = None
    slowest_rank: int | None = None


class Attempt(NamedTuple):
    """An attempt that another one follows in the same log.

    `last` is its last step, `seconds` the median of its printed step times, if it is known. `mark` is the line behind
    it that says that the job is started again, "" if there is none.
    """

    last: int
    seconds: float | None = None
    mark: str = ""


@dataclass(frozen=True)
class Process:
    """What a process chose on a GPU: networks and plug-ins by name, the transports of its channels, their devices.

    `rank` is None if NCCL did not print it.
    """

    host: str
    gpu: int
    rank: int | None = None
    networks: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()
    transports: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()

    @property
    def channels(self) -> list[str]:
        """The networks that its channels use, such as `IB/GDRDMA`."""
        return [name.partition("/")[2] for name in self.transports if name.startswith(("NET/", "COLLNET/"))]

    @property
    def network(self) -> str:
        """The network of its channels; if there are none, the one that it chose; "" if it chose none."""
        return " and ".join(sorted(set(self.channels or self.networks)))

    def unlike(self, expected: str) -> list[str]:
        """The networks that are not the expected one. A channel is a proof; without any, the choice counts, by its name.

        `expected`: how the name of the network begins as NCCL prints it, with or without the vendor before it: `IB` (which
        `IBext_v8` is too), `Libfabric`, `Socket`; `IB/GDRDMA` also demands GPUDirect RDMA of each channel.
        """
        if self.channels:
            return [network for network in self.channels if not _is(network, expected)]
        name = expected.partition("/")[0]
        return [network for network in self.networks if not _is(network, name)]


def _is(network: str, expected: str) -> bool:
    """Whether `AWS Libfabric/GDRDMA` is `Libfabric`. An aggregation network (SHARP) is that of InfiniBand."""
    name, *flags = network.lower().split("/")
    expected_name, *expected_flags = expected.lower().split("/")
    starts = name.startswith(expected_name) or name.rpartition(" ")[2].startswith(expected_name)
    sharp = name == "sharp" and expected_name == "ib"
    return (starts or sharp) and set(expected_flags) <= set(flags)


@dataclass(frozen=True)
class HostError:
    """An error that a line of this host states. Two errors of one `kind` differ only in numbers, except the number of an XID."""

    host: str
    words: str

    @property
    def kind(self) -> str:
        if self.words.startswith("XID "):
            return self.words
        return re.sub(r"0x[0-9a-f]+|\d+", "#", self.words)


@dataclass(frozen=True)
class Log:
    """What a log states of its last attempt.

    `steps` are in the order of their first lines; `repeated` are the indices that were printed again.
    `earlier` are the attempts before. `other_file` is the name of another file, if one stands before a line with a step. `planned` is the number of steps that the run
    announced, or 0 if it announced different ones. `facts` are what it states about its configuration,
    `garbled` the facts that other output changed, `marks` the lines that spoil a timed run, by kind. `captured_after` is the last step before a profiler began to record, `captured_until` the last one
    before it ended; if none ended, the last step of all.
    `versions` are names and values; if nodes differ, a name has several. `saves` are the seconds of each
    checkpoint, by its slowest rank, `saved_bytes` the size that the launcher counts at the end. `loaded` are
    the seconds in which the slowest rank loaded a checkpoint, `restored` is its path. `peak_tflops` is the
    rate of matrix products that the run measured, `processors` says who had the processors during its steps,
    `processes` which network each process of NCCL chose, `hosts` on which host a process runs by the label of its lines,
    `symptoms` what errors its nodes had.
    `activity` is what its program says that it does now, before the first step.

    There is a line for `every` steps, of which `index` is the last; 0 means that a single line does not tell
    it. `ranks` is the number of processes that print each step. `flops` are the definitions by which the format has
    counted FLOPs.
    `tells` is what identifies the model in this format: its "rate", its "configuration", the "routing" of its tokens to
    experts, or "" for nothing.
    If `queued`, a step is printed when it is handed to the GPU, which may be before it is done.
    `contents` says what the file is if it is not the text of one log, such as "a tar archive".
    """

    steps: tuple[Step, ...] = ()
    planned: int | None = None
    facts: tuple[Fact, ...] = ()
    garbled: tuple[Fact, ...] = ()
    repeated: tuple[int, ...] = ()
    earlier: tuple[Attempt, ...] = ()
    other_file: str = ""
    marks: tuple[tuple[str, str], ...] = ()
    captured_after: int | None = None
    captured_until: int | None = None
    versions: tuple[tuple[str, str], ...] = ()
    saves: tuple[float, ...] = ()
    saved_bytes: int | None = None
    loaded: float | None = None
    restored: str = ""
    peak_tflops: float | None = None
    processors: tuple[ProcessorSample, ...] = ()
    processes: tuple[Process, ...] = ()
    hosts: tuple[tuple[int, str], ...] = ()
    symptoms: tuple[HostError, ...] = ()
    activity: str = ""
    every: int = 1
    ranks: int | None = None
    flops: tuple[FlopsName, ...] = ("full-attention",)
    queued: bool = False
    tells: Tells = ""
    size: int = 0
    contents: str = ""

    def beside(self, other: Log) -> Log:
        """This log with the marks, facts, versions, processes and symptoms of another log of the same run."""
        marks, versions = dict(self.marks), dict(self.versions)
        facts = {(fact.name, fact.value): fact for fact in (*other.facts, *self.facts)}
        return replace(
            self,
            facts=tuple(facts.values()),
            garbled=(*self.garbled, *other.garbled),
            marks=(*self.marks, *(mark for mark in other.marks if mark[0] not in marks)),
            versions=(*self.versions, *(pair for pair in other.versions if pair[0] not in versions)),
            processes=tuple(dict.fromkeys((*self.processes, *other.processes))),
            symptoms=tuple(dict.fromkeys((*self.symptoms, *other.symptoms))),
        )

    @property
    def restarted_after(self) -> tuple[int, ...]:
        """The last step of each earlier attempt."""
        return tuple(attempt.last for attempt in self.earlier)

    @cached_property
    def last_index(self) -> int | None:
        return max((step.index for step in self.steps), default=None)
