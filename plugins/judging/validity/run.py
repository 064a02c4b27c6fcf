"""What a check looks at, and how it names steps. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from plugins.base import words
from plugins.baselines.baseline_file import Accelerator
from plugins.logs import Log
from plugins.logs.log import Fact
from plugins.recipes.cases import Case
from plugins.record.baseline import Statistic


@dataclass(frozen=True)
class Started:
    """The job of a run: its id, "" if it is unknown, and how many of its starts may have written the log."""

    job: str = ""
    times: int = 1


UNKNOWN = Started()


@dataclass(frozen=True)
class TimedRun:
    """A run of a case as its checks see it.

    `part` is the type of GPU, None if it is unknown. It has so many `nodes`, between which NCCL should name the
    `network` so; None: as it likes. If the run was cancelled on purpose, `whole` is false: its last
    steps may be missing, and the statistic may need them.
    """

    case: Case
    log: Log
    statistic: Statistic
    part: Accelerator | None = None
    started: Started = UNKNOWN
    whole: bool = True
    nodes: int = 1
    network: str | None = None

    @cached_property
    def seconds(self) -> dict[int, float]:
        """The time of each step by itself if it can be computed, by index."""
        return self.case.means.times(self.log.steps)

    @property
    def within_nvlink(self) -> bool:
        """Whether NVLink connects all GPUs, so that nothing goes over the network."""
        return self.case.gpus <= (self.part.nvlink if self.part else 1)

    @cached_property
    def numbers(self) -> dict[str, list[tuple[int, Fact]]]:
        """The facts that are numbers, by name."""
        stated: dict[str, list[tuple[int, Fact]]] = {}
        for fact in self.log.facts:
            if isinstance(fact.value, int):
                stated.setdefault(fact.name, []).append((fact.value, fact))
        return stated


Check = Callable[[TimedRun], Iterator[str]]
"""Yields the reasons why the run is invalid."""


def quoted(fact: Fact) -> str:
    return f'the log says "{fact.said}"'


def listed(indices: Iterable[int]) -> str:
    """`step 7`, `steps 7 and 8`, or `steps 7, 8, 11 to 15 and 12 more`."""
    return words.listed("step", indices)


def without_time(log: Log, indices: Sequence[int]) -> str:
    """Why these steps have no time: `the log line is garbled by other output`."""
    few = any(2 * step.ranks < (log.ranks or 0) for step in log.steps if step.index in indices)
    if few:
        return f"fewer than half of the {log.ranks} processes have a whole line of it"
    return "the log line is garbled by other output"


def absent(case: Case, log: Log, end: int) -> list[int]:
    """The steps before `end` that no line covers. A line of means covers all the steps that end there."""
    indices = {step.index for step in log.steps}
    lines = (line for line in case.means.lines(range(end)) if line not in indices)
    return [step for line in lines for step in case.means.covered(line)]


def are_missing(steps: list[int]) -> str:
    """`steps 27, 28 and 31 to 35 are missing`."""
    if len(steps) == 1:
        return f"{listed(steps)} is missing"
    return f"{listed(steps)} are missing"
