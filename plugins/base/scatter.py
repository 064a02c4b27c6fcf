"""The scatter of values with outliers, such as the steps of a run in which some stall. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import combinations, pairwise

# This many stalls at equal distances are not chance.
PERIODIC = 4

# The distance between the third and the seventh tenth of normal values is this times their standard deviation.
TENTHS = 1.0488
MANY = 20

# For the correlation of neighbours a value counts as at most this many standard deviations away: a stall says
# nothing of it. Few values do not tell a correlation near 1 from a drift.
CLIPPED = 2.5
MOST_ALIKE = 0.9


def regular(indices: Sequence[int]) -> bool:
    """Whether `PERIODIC` or more of these steps, and all but one of them, follow at equal distances.

    Distances that differ by one are equal.
    """
    known = set(indices)
    needed = max(PERIODIC, len(known) - 1)
    # Such steps begin with two of the first three.
    for first, second in combinations(sorted(known)[:3], 2):
        for distances in ((second - first, second - first + 1), (second - first - 1, second - first)):
            here, length = second, 2
            while there := next((here + d for d in distances if d > 0 and here + d in known), 0):
                here, length = there, length + 1
            if length >= needed:
                return True
    return False


def robust_sigma(values: Sequence[float]) -> float:
    """1.4826 x the median absolute deviation: a normal sample's standard deviation, whatever its outliers."""
    median = statistics.median(values)
    return 1.4826 * statistics.median(abs(v - median) for v in values)


def scatter(values: Sequence[float]) -> float:
    """The standard deviation by which a median of such values, in their order, is uncertain.

    If more than half of the values are nearly equal, their median deviation is near 0, although the others
    differ: steps that alternate between two paces are such. The distance of two quantiles shows them. If
    successive values are alike, they say less than as many independent ones: with a correlation r of
    neighbours the variance of a mean is (1 + r) / (1 - r) times as large (for a first-order autoregression).
    Fewer values than `MANY` tell neither.
    """
    sigma = robust_sigma(values)
    if len(values) < MANY:
        return sigma
    tenths = statistics.quantiles(values, n=10, method="inclusive")
    sigma = max(sigma, (tenths[6] - tenths[2]) / TENTHS)
    alike = _correlation(values, sigma)
    return sigma * math.sqrt((1 + alike) / (1 - alike))


def _correlation(values: Sequence[float], sigma: float) -> float:
    """The correlation of each value with the next, less its standard error, from 0 to `MOST_ALIKE`.

    Outliers count as far as `CLIPPED`.
    """
    median = statistics.median(values)
    limit = CLIPPED * sigma
    clipped = [min(max(value - median, -limit), limit) for value in values]
    mean = statistics.fmean(clipped)
    centred = [value - mean for value in clipped]
    square = math.fsum(value * value for value in centred)
    product = math.fsum(value * after for value, after in pairwise(centred))
    if not square:
        return 0.0
    return min(max(product / square - 1 / math.sqrt(len(values)), 0.0), MOST_ALIKE)
