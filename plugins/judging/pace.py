"""Judges the pace of a valid run: how its measurement compares with its baseline. Pure."""

from __future__ import annotations

from plugins.baselines.expected import Expected
from plugins.judging.figures import percent, seconds, signed, statistic_name, steps_listed
from plugins.judging.steadiness import fell, instability, more_runs, stall_remarks, stalled, undecided
from plugins.judging.verdicts import Band, Verdict
from plugins.metrics import Measurement
from plugins.record.verdict import Kind

MAX_FORGIVEN = 3
"""At most this many outliers of a run excuse a published mean that is out of the band.

If each of ten steps stalls with a probability of 2 %, four of them stall in three runs of 100,000.
"""


def judge_pace(measurement: Measurement, expected: Expected, *, strict_last: bool = False) -> Verdict:
    """Judge a valid run by its published statistic and its steady median.

    The first of these that holds decides:

    - If the median or the last steps are out of the band by less than chance explains, and the median of all settled
      steps is inside, the run is noisy.
    - If the median is out of the band, the run is too slow or too fast, even if the statistic is in the band.
    - If the last steps became too slow, the run is too slow.
    - If the steps scatter or stall beyond the baseline's limits, or if the mean, which includes all stalls,
      is too slow, the run is noisy.
    - If only the statistic is out of the band, the run has passed with a remark if few outliers explain it,
      or if the statistic is a single step. Otherwise the run is noisy. It is noisy too if the interval before
      an outlier is slow, because then the pace fell.
    - If both are in the band, the run has passed.

    If both are on one side, the reason has the slower one.

    With `strict_last` the published statistic alone decides.
    """
    timing = measurement.timing
    band, tolerance = Band(expected, timing.resolution), expected.baseline.tolerance
    published, steady = band.side(timing.step_time), band.side(timing.steady)
    slower = max(timing.step_time, timing.steady)
    remarks = stall_remarks(measurement, tolerance)
    if strict_last:
        return Verdict(published, (_reason(published, expected, timing.step_time),), remarks)
    reason = undecided(measurement, band)
    if reason:
        return Verdict(Kind.NOISY, (reason, "another run would tell"), remarks)
    if steady is not Kind.PASSED and published is steady:
        return Verdict(steady, (_reason(steady, expected, slower),), remarks)
    if steady is not Kind.PASSED:
        by_median = _by_median(measurement, published)
        return Verdict(steady, (_reason(steady, expected, timing.steady),), (by_median, *remarks))
    if fell(measurement, band):
        reason = _reason(Kind.TOO_SLOW, expected, timing.tail)
        return Verdict(Kind.TOO_SLOW, (reason,), (_fallen(measurement), *remarks))
    reason = instability(measurement, tolerance) or stalled(measurement, band)
    if not reason and published is not Kind.PASSED:
        if _forgiven(measurement, band):
            return _passed_by_median(measurement, expected, published, remarks)
        reason = _statistic_beyond(measurement, band)
    if reason:
        return Verdict(Kind.NOISY, (reason, more_runs(measurement, band)), remarks)
    return Verdict(Kind.PASSED, (_reason(Kind.PASSED, expected, slower),), remarks)


def _explained(measurement: Measurement, band: Band) -> bool:
    """Whether outliers explain that the published statistic is out of the band."""
    timing = measurement.timing
    return bool(timing.outliers) and band.side(timing.without_outliers) is Kind.PASSED


def _forgiven(measurement: Measurement, band: Band) -> bool:
    """Whether a published statistic that is out of the band says less than the steady median.

    A single step says less than the steady steps around it, whether it is an outlier or not.
    """
    timing = measurement.timing
    few = len(timing.outliers) <= MAX_FORGIVEN * timing.runs
    return (timing.alone or (few and _explained(measurement, band))) and not timing.lasting


def _passed_by_median(
    measurement: Measurement, expected: Expected, published: Kind, remarks: tuple[str, ...]
) -> Verdict:
    timing, name = measurement.timing, statistic_name(measurement)
    cause = f"as far as such steps scatter ({percent(timing.spread)})"
    if timing.outliers:
        cause = f"because of {steps_listed(measurement, timing.outliers)}"
    remark = (
        f"{name} is {seconds(timing.step_time)}, out of the band, {cause}; judged by the steady "
        f"median {seconds(timing.steady)}"
    )
    reasons = [_reason(Kind.PASSED, expected, timing.steady)]
    if published is Kind.TOO_SLOW:
        pace = signed(expected.step_time / timing.step_time - 1)
        reasons.append(f"{name} {seconds(timing.step_time)}, {pace}")
    return Verdict(Kind.PASSED, tuple(reasons), (remark, *remarks))


def _statistic_beyond(measurement: Measurement, band: Band) -> str:
    """Why a run is noisy whose published statistic alone is out of the band."""
    timing = measurement.timing
    reason = "no outlier explains it"
    if _explained(measurement, band):
        reason = f"what explains it is more than a hiccup: {steps_listed(measurement, timing.outliers)}"
    return (
        f"{statistic_name(measurement)} is {seconds(timing.step_time)}, out of the band, the median of the "
        f"{timing.judged.steady_of(timing.settled_steps)} is {seconds(timing.steady)}, inside, and {reason}; "
        f"spread {percent(timing.spread)}"
    )


def _reason(kind: Kind, expected: Expected, step_time: float) -> str:
    ratio, tolerance = expected.step_time / step_time - 1, expected.baseline.tolerance
    digits, limit = 1, ""
    if kind is Kind.TOO_SLOW:
        digits, limit = _digits(ratio, -tolerance.slower), f" (limit -{percent(tolerance.slower)})"
    elif kind is Kind.TOO_FAST:
        digits = _digits(ratio, tolerance.faster)
        limit = f" (limit +{percent(tolerance.faster)}); was it really this configuration?"
    run, is_what = expected.baseline.cell.recorded, "is expected"
    if run is not None:
        is_what += f", as run {run.run} recorded on {run.date}"
    if expected.baseline.range is not None:
        is_what = f"is the middle of the expected range, {expected.baseline.range.text}, whose lower end decides by the acceptance plan"
    return (
        f"{seconds(step_time)} a step where {seconds(expected.step_time)} {is_what}, "
        f"{signed(ratio, digits)} throughput{limit}"
    )


def _digits(ratio: float, limit: float) -> int:
    """With how many digits a ratio that is beyond a limit does not look like it."""
    apart = (digits for digits in (1, 2, 3) if round(100 * ratio, digits) != round(100 * limit, digits))
    return next(apart, 4)


def _fallen(measurement: Measurement) -> str:
    timing = measurement.timing
    return (
        f"it became slow at its end: the {timing.judged.unit.end_is} {seconds(timing.tail)}, the median of all settled steps is "
        f"{seconds(timing.settled)}"
    )


def _by_median(measurement: Measurement, published: Kind) -> str:
    timing = measurement.timing
    place = "inside the band" if published is Kind.PASSED else f"'{published}'"
    return (
        f"judged by the steady median {seconds(timing.steady)}: {statistic_name(measurement)} alone, "
        f"{seconds(timing.step_time)}, would be {place}"
    )
