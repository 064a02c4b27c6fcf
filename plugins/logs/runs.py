"""Tells apart the runs in one log, if all processes print every step into it without a label. Pure.

A step needs every process: no process can print step k + 2 before each has printed step k. So within a run a
line is late by a step or two, or by a few if the cluster forwards output slowly. The rules:

- If a line is more than `LATE` steps behind the newest, it begins another run. If lines are labelled, so does
  a line that goes back behind what the same process printed. The earlier run is dropped as a whole: two runs
  are never mixed.
- If a run died within its first `LATE` steps, that rule does not find it. At the end of the log it is found:
  the steps that it reached were printed more often than the later ones, and all its lines come before all
  lines of the next run. Then its lines are dropped. Otherwise these steps count as repeated.
- The number of processes is the number of lines that most steps have. If a step has fewer, other output
  garbled some of them. If it has less than half, the step ran, but its time is unknown. If a step has more,
  it is a repeat.

A step is summarised once no more lines of it can follow, so the memory does not grow with the log.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from plugins.logs.line_parser import MAX_STEPS
from plugins.logs.log import Step
from plugins.logs.numbers import resolution, worked

LATE = 7
"""Half of the shortest run that another run follows: the recipe's 15 steps of profiling."""

MAX_RANKS = 1 << 13
"""More processes than any recipe has. Further lines of a step are counted, but not kept."""


class Print(NamedTuple):
    """One process's line of a step. `order` is its place among the log's step lines, `rank` its label, `stamp` when it was collected.

    `fields` are seconds, TFLOP/s, tokens/s, total weights and loss, as printed.
    """

    seconds: float
    order: int
    rank: int | None
    fields: Sequence[str]
    stamp: float | None = None


@dataclass(frozen=True)
class RunSteps:
    """What a run's lines state together. `last` is the newest step; if there are none, it is -1.

    If an earlier run died too early to be told apart before, `restarted_after` has its last step.
    """

    steps: tuple[Step, ...]
    repeated: tuple[int, ...]
    restarted_after: tuple[int, ...]
    ranks: int | None
    last: int


class RunLines:
    """Collects the lines of one run. `newest` is the newest step, -1 before the first one."""

    def __init__(self) -> None:
        self.newest = -1
        self._counts: dict[int, int] = {}
        self._prints: dict[int, list[Print]] = {}
        self._settled: dict[int, Step] = {}
        self._last_of: dict[int, int] = {}

    def is_over(self, index: int, rank: int | None) -> bool:
        """Whether this step, printed by this process, can only belong to another run."""
        return index < self.newest - LATE or (rank is not None and index < self._last_of.get(rank, -1))

    def add(self, index: int, line: Print) -> None:
        if index not in self._counts and len(self._counts) >= MAX_STEPS:
            return
        self._counts[index] = self._counts.get(index, 0) + 1
        if line.rank is not None:
            self._last_of[line.rank] = index
        prints = self._prints.setdefault(index, [])
        if len(prints) < MAX_RANKS:
            prints.append(line)
        if index > self.newest:
            self.newest = index
            # The first steps are kept, because only the end shows whether an earlier run is among them.
            for old in [i for i in self._prints if LATE < i < index - LATE]:
                self._settled[old] = _boil(old, self._prints.pop(old))

    def summary(self) -> RunSteps:
        if not self._counts:
            return RunSteps((), (), (), None, -1)
        late = Counter(count for index, count in self._counts.items() if index > LATE)
        counts = late or Counter(self._counts.values())
        ranks = max(counts, key=lambda count: (counts[count], count))
        dropped = self._earlier_run(ranks) if late else -1
        repeated = tuple(i for i, count in sorted(self._counts.items()) if i > dropped and count > ranks)
        steps = dict(self._settled)
        for index, prints in self._prints.items():
            if index <= dropped:
                prints = prints[-ranks:]
            steps[index] = _boil(index, prints)
        return RunSteps(
            steps=tuple(_whole(steps[index], ranks) for index in sorted(steps)),
            repeated=repeated,
            restarted_after=(dropped,) if dropped >= 0 else (),
            ranks=ranks,
            last=self.newest,
        )

    def _earlier_run(self, ranks: int) -> int:
        """The last step of a run that died early and comes before this one; -1 if there is none."""
        early = {index: prints for index, prints in self._prints.items() if index <= LATE}
        surplus = [index for index, prints in sorted(early.items()) if len(prints) > ranks]
        if not surplus or surplus != list(range(len(surplus))):
            return -1
        if any(self._counts[index] > len(prints) for index, prints in early.items()):
            return -1
        # Of the surplus steps the last lines are this run's; of the others all are, no more than there are processes.
        before = max(early[index][-ranks - 1].order for index in surplus)
        first = min(prints[-ranks:][0].order for prints in early.values())
        return surplus[-1] if before < first else -1


def _whole(step: Step, ranks: int) -> Step:
    """The step, without its time if less than half of the processes print it."""
    if 2 * step.ranks >= ranks:
        return step
    return replace(step, seconds=None, slowest_seconds=None)


def _boil(index: int, prints: Sequence[Print]) -> Step:
    """Summarise the lines of a step. Its time is the middle one; of two in the middle, the slower."""
    ordered = sorted(prints)
    middle, slowest = ordered[len(ordered) // 2], ordered[-1]
    seconds, tflops, rate, *_ = middle.fields
    weights = {line.fields[3] for line in ordered}
    losses = [float(line.fields[4]) for line in ordered]
    return Step(
        index=index,
        seconds=middle.seconds,
        resolution=resolution(seconds),
        tokens=int(weights.pop()) if len(weights) == 1 else 0,
        tokens_per_gpu=worked(seconds, rate, 1),
        flops_per_gpu=worked(seconds, tflops, 1e12),
        tflops_per_gpu=float(tflops),
        loss=next((loss for loss in losses if not math.isfinite(loss)), float(middle.fields[4])),
        stamp=middle.stamp,
        collected=middle.stamp is not None,
        disagreeing=_disagree([line.fields[4] for line in ordered]),
        ranks=len(ordered),
        slowest_seconds=slowest.seconds,
        slowest_rank=slowest.rank,
    )


def _disagree(losses: Sequence[str]) -> bool:
    """Whether more than a quarter of the processes print another loss than most.

    If other output cut a line short, its loss does not count as another one.
    """
    (most, _), *second = Counter(losses).most_common(2)
    return any(4 * count > len(losses) and not most.startswith(loss) for loss, count in second)
