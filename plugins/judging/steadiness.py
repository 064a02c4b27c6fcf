"""Whether the steps of a run show a steady pace, which of them stand out, and how often chance makes a run too slow. Pure."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from statistics import NormalDist

from plugins.base.scatter import regular
from plugins.base.words import percent, seconds, signed
from plugins.judging.measurement import MEDIAN_ERROR, Measurement, steps_listed
from plugins.judging.verdicts import Band
from plugins.recipes.cases import Case
from plugins.record.baseline import Tolerance
from plugins.record.verdict import Kind

MAX_USEFUL_RUNS = 20
"""If more runs than this are needed to decide, the verdict says so and gives no number."""

PERIODIC_WEIGHT = 1.5
"""Stalls at equal distances have one cause, so each counts as much as this many random ones."""

COSTLY = 0.0275
"""Many steps far from the median are too many only if they cost, or save, this share of the time, whatever loss is tolerated.

If 3 % of the steps stall by 5 to 30 %, six of forty do so in one run of a thousand.
"""


BY_CHANCE = 0.5
"""The steady median is out of the band by chance if it is so by less than this many of its standard errors.

The error is that of independent steps. If each step is like the one before, ten of them together are out of the band in
one healthy run of 4,000, but seldom by more.
"""


def fell(measurement: Measurement, band: Band) -> bool:
    """Whether the run became too slow at its end.

    Its last steps are out of the band, and slower than the other steps by more than chance explains.
    """
    timing = measurement.timing
    return band.side(timing.tail) is Kind.TOO_SLOW and timing.fell


def undecided(measurement: Measurement, band: Band) -> str:
    """Why the last steps do not tell the pace although they are out of the band; "" if they tell, or are inside.

    They are out of it by less than chance explains, and the median of all settled steps is inside.
    """
    timing = measurement.timing
    place, end, error = timing.judged.unit.end_is, timing.tail, timing.tail_error
    if band.side(timing.steady) is not Kind.PASSED:
        place, end, error = "steady median is", timing.steady, BY_CHANCE * timing.steady_error
    elif not fell(measurement, band):
        return ""
    sides = {band.side(end * (1 - error)), band.side(end * (1 + error))}
    if Kind.PASSED not in sides or band.side(timing.settled.median) is not Kind.PASSED:
        return ""
    return (
        f"the {place} {seconds(end)}, out of the band by less than chance explains ({percent(error)}), and the median of all "
        f"settled steps is {seconds(timing.settled.median)}, inside"
    )


def instability(measurement: Measurement, tolerance: Tolerance) -> str:
    """Why the steps do not show a steady pace, whatever the pace is; "" if they do."""
    settled, judged = measurement.timing.settled, measurement.timing.judged
    if settled.spread > tolerance.spread:
        means = "" if judged.single else f" of means over {judged.over} steps"
        return (
            f"the settled steps scatter by {percent(settled.spread)} (standard deviation{means}, limit "
            f"{percent(tolerance.spread)})"
        )
    lost = settled.mean / settled.median - 1
    many, weight = _are_many(measurement, settled.hiccups, tolerance, periodic=settled.periodic)
    if many or lost > tolerance.slower:
        regularity = ""
        if many and settled.periodic:
            regularity = ", at equal distances, so that they have one cause"
        return (
            f"{_hiccups(measurement)}{regularity}; the median hides such stalls, which cost {percent(lost)} of the pace "
            f"({_limits(tolerance, weight)})"
        )
    periodic = regular([index for index, _ in settled.fast])
    many, weight = _are_many(measurement, settled.fast, tolerance, periodic=periodic)
    if many or -lost > tolerance.slower:
        return (
            f"{_fast(measurement)}; the median hides that the mean of the settled steps is {percent(-lost)} below it "
            f"({_limits(tolerance, weight)})"
        )
    return ""


def _are_many(
    measurement: Measurement, steps: tuple[tuple[int, float], ...], tolerance: Tolerance, *, periodic: bool
) -> tuple[bool, float]:
    """Whether these outliers are too many and cost too much, and how much each counts for that.

    If a cause recurs regularly, as a snapshot or a full buffer does, fewer stalls than random ones suffice.
    """
    timing, weight = measurement.timing, PERIODIC_WEIGHT if periodic else 1.0
    many = weight * len(steps) > tolerance.hiccups * timing.settled.steps
    costly = weight * timing.share_of(steps) > COSTLY
    if many and costly:
        return True, weight
    return False, 1.0


def _limits(tolerance: Tolerance, weight: float) -> str:
    """The limits of `instability`, of which stalls at equal distances have lower ones."""
    steps, share = tolerance.hiccups / weight, COSTLY / weight
    return (
        f"limits: {100 * steps:.3g} % of the steps with {percent(share)} of the time; "
        f"{percent(tolerance.slower)} of the pace in the mean"
    )


def steadiness(measurement: Measurement) -> str:
    """How steady the pace of a run without a baseline is, by the usual tolerances."""
    spread = f"spread {percent(measurement.timing.settled.spread)}"
    reason = instability(measurement, Tolerance())
    if reason:
        return f"{spread}, and not steady: {reason}"
    return spread


def stalled(measurement: Measurement, band: Band) -> str:
    """What the stalls cost, if the mean that includes them is too slow for the band; "" if it is not."""
    timing, expected = measurement.timing, band.expected
    if band.side(timing.settled.mean) is not Kind.TOO_SLOW:
        return ""
    stalls = f" ({_hiccups(measurement)})" if timing.settled.hiccups else ""
    return (
        f"the mean of all {timing.settled.steps} settled steps is {seconds(timing.settled.mean)}, "
        f"{signed(expected.deviation(timing.settled.mean))} throughput (limit "
        f"-{percent(expected.baseline.tolerance.slower)}): the steady median {seconds(timing.steady)} is in the band, "
        f"and what it hides costs {percent(timing.settled.mean / timing.steady - 1)} of the pace{stalls}; a mean of "
        f"up to {seconds(band.slowest)} would be"
    )


def more_runs(measurement: Measurement, band: Band) -> str:
    """How many more runs would decide: their mean must be two standard errors from the nearest limit."""
    timing = measurement.timing
    margin = min(abs(band.slowest - timing.steady), abs(timing.steady - band.fastest)) / timing.steady
    spread = max(timing.settled.spread, abs(timing.settled.mean / timing.steady - 1))
    runs = MAX_USEFUL_RUNS + 1
    if margin:
        runs = math.ceil((2 * spread / margin) ** 2)
    if runs <= MAX_USEFUL_RUNS:
        return f"about {max(2, runs)} more runs would tell"
    advice = "find what disturbs the steps first"
    if spread < band.expected.baseline.tolerance.slower / 2:
        advice = "the pace stands on the limit itself"
    return f"more than {MAX_USEFUL_RUNS} further runs would be needed to tell: {advice}"


def stall_remarks(measurement: Measurement, tolerance: Tolerance) -> tuple[str, ...]:
    """The remarks on steps that stalled or were too fast, and on a slow last interval; empty if none was."""
    timing, remarks = measurement.timing, []
    if timing.settled.hiccups:
        remarks.append(_hiccups(measurement))
    if timing.settled.fast:
        remarks.append(_fast(measurement))
    index, last = timing.published.last
    beyond = last / timing.settled.median - 1
    if not timing.judged.single and beyond > tolerance.slower:
        remarks.append(
            f"the last line, {timing.judged.named(index)}, is {seconds(last)} a step, {percent(beyond)} above the median of "
            f"the settled ones: if another run has it too, the pace falls"
        )
    return tuple(remarks)


def _hiccups(measurement: Measurement) -> str:
    timing = measurement.timing
    settled, unit = timing.settled.steps // timing.judged.every, timing.judged.unit
    slow = steps_listed(measurement, timing.settled.hiccups)
    return f"{len(timing.settled.hiccups)} of {settled} settled {unit.name} far above the median{unit.each}: {slow}"


def _fast(measurement: Measurement) -> str:
    timing = measurement.timing
    return f"far below the median{timing.judged.unit.each}: {steps_listed(measurement, timing.settled.fast)}"


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
