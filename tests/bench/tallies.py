"""The cells of the simulation, what became of their runs, and how such shares are written."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from plugins.record.verdict import Kind
from tests.bench import clusters
from tests.bench.clusters import Cluster
from tests.bench.mlperf import systems

OTHERS, SAMPLED, REST, UNSEEN = 10, 40, 100, 1000
"""The two cells that the aims name first get all runs. The other aims' and the other healthy ones get a tenth of them, what else is in
the document a hundredth, and what no table shows a thousandth. A real system that prints each step gets a tenth too, another one a fortieth."""

LEAST = 5
"""So many runs has every cell."""

AIM = (0.02, 0.02)
"""Noise and hiccups that the aims are stated for."""

WHERE = f"{100 * AIM[0]:.0f} % noise and {100 * AIM[1]:.0f} % hiccups"

SURE = 1.96
"""Standard deviations of an interval of 95 %."""


@dataclass(frozen=True)
class Cell:
    """One line of the table: runs of this cluster, judged by this statistic."""

    figure: str
    cluster: Cluster

    def runs(self, most: int) -> int:
        """How many runs it gets where the first aims get `most`: what happens seldom needs more of them."""
        if self.cluster in clusters.VARIANTS.values():
            return most
        if self.cluster.real:
            return max(LEAST, most // (OTHERS if systems()[self.cluster.real].every == 1 else SAMPLED))
        slow, even = self.cluster.slow, not self.cluster.between
        part = REST if even else UNSEEN
        if (self.cluster.noise, self.cluster.hiccups) == AIM:
            part = 1 if even and slow in (clusters.HEALTHY, clusters.THROUGHOUT) else OTHERS
        elif slow == clusters.HEALTHY:
            part = OTHERS
        return max(LEAST, most // part)


@dataclass
class Tally:
    """What became of the runs of a cell: verdicts of one run each, of as many as it took, and how many that were."""

    once: Counter[Kind] = field(default_factory=Counter)
    repeated: Counter[Kind] = field(default_factory=Counter)
    lengths: Counter[int] = field(default_factory=Counter)

    @property
    def runs(self) -> int:
        return self.once.total()

    @property
    def mean_runs(self) -> float:
        return sum(length * count for length, count in self.lengths.items()) / self.lengths.total()

    def add(self, other: Tally) -> None:
        self.once += other.once
        self.repeated += other.repeated
        self.lengths += other.lengths


Table = Mapping[Cell, Tally]


@dataclass(frozen=True)
class Share:
    """So many of `runs`, with the interval that holds the true share in 95 of 100 simulations."""

    count: int
    runs: int

    @property
    def value(self) -> float:
        return self.count / self.runs

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's score interval: those shares from which what was counted lies 1.96 of their standard deviations away or less.

        Source: E. B. Wilson, Probable inference, the law of succession, and statistical inference, JASA 22 (1927), 209-212.
        """
        n, z = self.runs, SURE
        middle = (self.count + z * z / 2) / (n + z * z)
        half = z / (n + z * z) * math.sqrt(self.count * (n - self.count) / n + z * z / 4)
        # Where nothing or all was counted, arithmetic would leave 1e-19 of an end that is exact.
        return (
            0.0 if self.count == 0 else middle - half,
            1.0 if self.count == n else middle + half,
        )

    def __str__(self) -> str:
        low, high = self.interval
        return f"{percent(self.value)} ({percent(low)}-{percent(high)})"


def percent(share: float) -> str:
    """In percent, with more digits the nearer to nothing or to all."""
    near = min(share, 1 - share)
    digits = 3 if near < 0.0005 else 2 if near < 0.01 else 1
    text = f"{100 * share:.{digits}f}"
    return text.rstrip("0").rstrip(".") if near < 1e-9 else text


def failing(kinds: Counter[Kind]) -> Share:
    return Share(kinds.total() - kinds[Kind.PASSED], kinds.total())
