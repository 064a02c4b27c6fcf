"""How slow a test may be beside its peers before it counts as slow, and what a fleet as a whole looks like. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from plugins.scatter import robust_sigma

# The share of healthy fleets in which some test is over the limit by chance, before it is repeated.
CHANCE = 0.01
# Below so many values a robust scatter is itself uncertain.
MANY = 32
# Of tests whose true slowness is this many scatters above the limit, 99 % are above it.
POWER = 2.33
# The slower of two kinds of hardware is at least this share of the nodes.
SHARE = 0.25
# Fewer do not tell which of them is slow: two of three may be.
FEWEST = 4
APART = 4.0
# So little slower, as a share, is nobody's fault, and no other kind of hardware.
LEAST = 0.025


@dataclass(frozen=True)
class Peers:
    """What tests of one kind are compared to: `center` in s, `scatter` as a share of it, of `count` tests.

    Nobody is suspected for less than `least`, a share.
    """

    center: float
    scatter: float
    count: int
    least: float

    @classmethod
    def of(cls, seconds: Sequence[float], least: float) -> Peers:
        center = statistics.median(seconds)
        return cls(center, robust_sigma(seconds) / center, len(seconds), least)

    def slowness(self, seconds: float) -> float:
        """By how much a test is slower than its peers, as a share."""
        return seconds / self.center - 1

    @property
    def limit(self) -> float:
        """The slowness above which a test is suspect."""
        return max(self.noise, self.least)

    @property
    def noise(self) -> float:
        """The slowness of the slowest of these tests that chance explains, and `LEAST` at least."""
        return max(quantile(self.count) * self.scatter, LEAST)

    @property
    def smallest(self) -> float:
        """The smallest slowness that is over the limit in 99 of 100 tests."""
        return self.limit + POWER * self.scatter


def quantile(count: int) -> float:
    """How many scatters above their median one of `count` normal values is by chance in one of 1 / `CHANCE` samples.

    Below `MANY` values it is a t quantile: a scatter of few values is itself uncertain.
    """
    if count >= MANY:
        return statistics.NormalDist().inv_cdf(1 - CHANCE / count)
    # It takes a third of a second to load, scipy.stats twice as long and as much memory.
    from scipy.special import stdtrit

    return float(stdtrit(count - 1, 1 - CHANCE / count))


def tail(count: int, tests: int, share: float) -> float:
    """The probability that at least `count` of so many independent tests are slow, of which each is with probability `share`."""
    return sum(math.comb(tests, k) * share**k * (1 - share) ** (tests - k) for k in range(count, tests + 1))


def two_kinds(seconds: Sequence[float]) -> tuple[list[float], list[float]] | None:
    """The fast and the slow values, if they are of two kinds, each large; None if they are of one.

    Two normal kinds of equal size have two maxima if Ashman's D, the distance of their means by the root of the mean of
    their variances, is above 2 (Ashman, Bird and Zepf, 1994). The halves of one normal sample have 2.7.
    """
    values = sorted(seconds)
    fewest = max(FEWEST, round(SHARE * len(values)))
    splits = range(fewest, len(values) - fewest + 1)
    if not splits:
        return None
    sums = list(accumulate(values, initial=0.0))

    def between(n: int) -> float:
        """The scatter that a split explains: the largest where that within both parts is the smallest."""
        return sums[n] ** 2 / n + (sums[-1] - sums[n]) ** 2 / (len(values) - n)

    split = max(splits, key=between)
    fast, slow = values[:split], values[split:]
    distance = statistics.fmean(slow) - statistics.fmean(fast)
    within = (statistics.variance(fast) + statistics.variance(slow)) / 2
    if distance < LEAST * statistics.fmean(fast) or distance**2 < APART**2 * within:
        return None
    return fast, slow
