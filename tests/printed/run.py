"""What ran, and the pages of its log: the values that the dialects render."""

from __future__ import annotations

import datetime
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # The trainers of the labs print single lines, and start in a moment without the recipes.
    from plugins.recipes.cases import Case

DEVICES = {
    "h100": "NVIDIA H100 80GB HBM3",
    "gb200": "NVIDIA GB200",
    "b200": "NVIDIA B200",
    "a100": "NVIDIA A100-SXM4-80GB",
    "h200": "NVIDIA H200",
}
"""As the driver names them."""

DAY = datetime.datetime(2026, 11, 20, 9, 0, 0)
"""When every run starts."""

JOB_ID = "4711"


@dataclass(frozen=True)
class Style:
    """What sites and launchers vary without changing the run."""

    stderr: bool = True
    """Standard error is in the same file."""
    nccl: bool = False
    """NCCL_DEBUG=INFO."""
    ranks: int = 1
    """How many processes print what every process prints."""
    bare: bool = False
    """The least that upstream prints: no start-up lines."""
    stdout: bool = False
    """DLLogger: the output of the pod, not the file."""
    twice: bool = True
    """The progress bar is drawn with the old figures first."""
    first_consumed: bool = False
    """NeMo 2 prints `consumed_samples` at step 0 too."""
    newer: bool = False
    """A later release of the same program: Megatron-LM core 0.16 to 0.19, MaxText 0.2."""


@dataclass(frozen=True)
class Job:
    """A run as it really was, whatever it is judged as. Times in s; `clock` is the wall clock's time by that of the steps.

    `dtype` and such are those of `case`. `averaged` is NeMo 1's buffer_size. `announced` is the number of steps that the log
    says it will run.
    """

    case: Case
    release: str
    times: tuple[float, ...]
    losses: tuple[float, ...]
    gpu: str = "h100"
    per_node: int = 8
    averaged: int = 1
    clock: float = 1.0
    announced: int | None = None
    seed: int = 0
    nsys: bool = False
    job_id: str = JOB_ID
    style: Style = field(default_factory=Style)

    @property
    def total(self) -> int:
        return len(self.times) if self.announced is None else self.announced

    @property
    def nodes(self) -> int:
        return self.case.nodes(self.per_node)

    @property
    def device(self) -> str:
        return DEVICES[self.gpu]

    def moments(self, startup: float = 180.0) -> list[datetime.datetime]:
        """When each step ended, by the wall clock."""
        now, found = startup, []
        for seconds in self.times:
            now += seconds * self.clock
            found.append(DAY + datetime.timedelta(seconds=now))
        return found

    def means(self) -> list[float]:
        """What NeMo 1 prints with `averaged`: the mean over so many last steps, or all so far."""
        width = self.averaged
        return [
            math.fsum(self.times[max(0, i + 1 - width) : i + 1]) / min(i + 1, width)
            for i in range(len(self.times))
        ]

    def rng(self) -> random.Random:
        return random.Random(self.seed)


@dataclass
class Page:
    """A log in three parts; every piece carries its own end of line. `tells` is what its words state of the run."""

    head: list[str] = field(default_factory=list)
    steps: list[list[str]] = field(default_factory=list)
    tail: list[str] = field(default_factory=list)
    tells: dict[str, str | float] = field(default_factory=dict)

    def add(self, *lines: str) -> None:
        self.head += [line + "\n" for line in lines]

    def end(self, *lines: str) -> None:
        self.tail += [line + "\n" for line in lines]

    def tell(self, **stated: str | int | float | bool) -> None:
        for key, value in stated.items():
            self.tells[key] = value if isinstance(value, float) else str(value)

    def tell_of(self, case: Case, names: str) -> None:
        """These facts of the case, in one string."""
        model = case.model
        facts: dict[str, str | int] = {
            "processes": case.gpus,
            "size": case.model_name,
            "dtype": case.dtype,
            "sequence": case.sequence_length,
            "layers": model.layers,
            "hidden": model.hidden,
            "heads": model.heads,
            "vocab": model.vocab,
        }
        self.tell(**{name: facts[name] if name in facts else getattr(case, name) for name in names.split()})

    def before(self, step: int, line: str) -> None:
        """Another process's line before this step's first."""
        self.steps[step].insert(0, line + "\n")

    def text(self) -> str:
        return "".join([*self.head, *(piece for pieces in self.steps for piece in pieces), *self.tail])


Renderer = Callable[[Job], Page]


def flops(case: Case, *, causal: bool = False, groups: int | None = None) -> float:
    """Model FLOPs of one sequence, as docs/dev/verdicts.md and upstream's READMEs count them."""
    model, s = case.model, case.sequence_length
    h, layers = model.hidden, model.layers
    share = 0.5 if causal else 1.0
    attention = 12 * layers * h * h * (1 + (groups or model.query_groups) / model.heads + share * s / h)
    mlp = (18 if model.mlp == "gated" else 12) * layers * model.ffn * h
    return s * (attention + mlp + 6 * model.vocab * h)


def teraflops_of_a_step(case: Case, *, causal: bool = False) -> float:
    """TFLOP of one step for each GPU."""
    return case.gbs * flops(case, causal=causal) / case.gpus / 1e12


def parameters(case: Case) -> int:
    """Of the whole model, near enough."""
    m = case.model
    mlp = (3 if m.mlp == "gated" else 2) * m.ffn * m.hidden
    layer = 2 * m.hidden * m.hidden * (1 + m.query_groups / m.heads) + mlp + 2 * m.hidden
    return int(m.layers * layer + 2 * m.vocab * m.hidden)


def share_of_rank_0(case: Case) -> int:
    """What the first rank of the first pipeline stage holds of it; only an embedding where there are further stages.

    Where the layers do not divide, NeMo counts the embedding and the output layer as one each (account_for_..._in_pipeline_split).
    """
    m = case.model
    both = 2 * m.vocab * m.hidden
    layers = m.layers / case.pp if m.layers % (case.pp * case.vp) == 0 else (m.layers + 2) / case.pp - 1
    of_layers = (parameters(case) - both) / m.layers * layers
    return int((of_layers + both / (1 if case.pp == 1 else 2)) / case.tp)


def stamp(moment: datetime.datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def after_start(seconds: float) -> datetime.datetime:
    return DAY + datetime.timedelta(seconds=seconds)


def number(value: float | str, form: str) -> str:
    """The value in this format; what is text already stands as it is."""
    return value if isinstance(value, str) else format(value, form)
