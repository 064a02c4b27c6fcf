"""How the steps and the runs of a cluster scatter, and how often runs of it are found too slow. Pure."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from statistics import NormalDist

from plugins.recipes.cases import Case
from plugins.timing import MEDIAN_ERROR

REACH, POINTS = 8.0, 400
"""An integral over a normal value begins so many standard deviations below its mean, and has so many points."""

HEALTHY = 40
"""By so many healthy clusters, evenly chosen, an expected range stands for all."""


@dataclass(frozen=True)
class Noise:
    """How the step times of a cluster scatter, as shares of its pace.

    `step` is the standard deviation of a step, and `correlation` that of a step with the next one (a first-order
    autoregression). `between` is the standard deviation of the pace from one run to the next.
    """

    step: float
    correlation: float = 0.0
    between: float = 0.0

    def steps(self, count: int, rng: random.Random) -> list[float]:
        """The deviations of successive steps of a run, in the steady state of the autoregression."""
        fresh = self.step * math.sqrt(1 - self.correlation**2)
        series = [rng.gauss(0, self.step)]
        while len(series) < count:
            series.append(self.correlation * series[-1] + rng.gauss(0, fresh))
        return series

    def mean_error(self, steps: int) -> float:
        """The standard deviation of the mean of so many successive steps."""
        alike = math.fsum((1 - k / steps) * self.correlation**k for k in range(1, steps))
        return self.step * math.sqrt((1 + 2 * alike) / steps)

    def median_error(self, steps: int) -> float:
        """The standard deviation of their median. It is less certain than their mean, the less the more they are alike."""
        return self.mean_error(steps) * (1 + (MEDIAN_ERROR - 1) * (1 - self.correlation))


@dataclass(frozen=True)
class PaceGate:
    """What decides on the pace of a case: the median of the last `steady` steps and the mean of the last `settled` ones.

    Both are those of `runs` runs together. Either is too slow if its throughput is below the baseline's by more
    than the share `slower`.
    """

    steady: int
    settled: int
    slower: float
    runs: int = 1

    @classmethod
    def of(cls, case: Case, slower: float) -> PaceGate:
        """What decides on one run of a case, by the lines that are judged of its log."""
        judged = case.means.judged
        steady = len(judged.steady(case.steps)) * judged.every
        return cls(steady, case.steps - judged.warm_up(case.steps), slower)

    def found(self, noise: Noise, slow: float) -> float:
        """The chance that a cluster is found whose steps take longer by the share `slow`, but do not stall.

        The median and the mean are taken as normal, with the covariance of their common steps and their common runs.
        """
        between = noise.between**2
        mean = (noise.mean_error(self.settled) ** 2 + between) / self.runs
        median = NormalDist(0, math.sqrt((noise.median_error(self.steady) ** 2 + between) / self.runs))
        common = (noise.mean_error(self.steady) ** 2 * self.steady / self.settled + between) / self.runs
        slope = common / median.variance
        given_median = NormalDist(0, math.sqrt(mean - slope * common))
        limit = 1 / (1 - self.slower) / (1 + slow) - 1
        width = max(limit + REACH * median.stdev, 0.0) / POINTS
        medians = [limit - (i + 0.5) * width for i in range(POINTS)]
        passed = math.fsum(median.pdf(x) * given_median.cdf(limit - slope * x) * width for x in medians)
        return max(1 - passed, 0.0)

    def found_by_range(self, noise: Noise, slow: float, faster: float) -> float:
        """The same chance if the baseline is the middle of an expected range, which holds for 90 % of healthy clusters.

        Of the others, half are slower than the lower end, which `slower` is of, and half faster than the upper end, which
        is above the middle by the share `faster`. Within, the pace of a healthy cluster is taken as normal on each side.
        """
        chances = []
        for i in range(HEALTHY):
            off = NormalDist().inv_cdf((i + 0.5) / HEALTHY) / NormalDist().inv_cdf(0.95)
            pace = (1 + faster) ** off
            if off < 0:
                pace = (1 - self.slower) ** -off
            chances.append(self.found(noise, (1 + slow) / pace - 1))
        return math.fsum(chances) / HEALTHY


PUBLISHED = Noise(step=0.013, correlation=0.8, between=0.005)
"""Nine of ten published systems do not exceed it, so it is counted on for a cluster that nothing is known of.

Source: MLPerf Training v5.1, 354 logs of pre-training on 41 systems. The 90th percentiles of the systems, rounded up:
0.0121 and 0.0040; 0.71 for the `correlation`, which 10 systems tell because they print each step.
"""
