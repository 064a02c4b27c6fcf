"""Judges the pace of a valid run: how its measurement compares with its baseline, and the report's
lines on it. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from plugins.base.words import billions, counted, percent, seconds, signed
from plugins.baselines.baseline_file import Reference
from plugins.baselines.expected import Expected
from plugins.baselines.metrics import tokens_per_second
from plugins.baselines.store import Baseline
from plugins.judging.measurement import Measurement, statistic_name, steps_listed
from plugins.judging.steadiness import fell, instability, more_runs, stall_remarks, stalled, undecided
from plugins.judging.verdicts import Band, Verdict
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
    published, steady = band.side(measurement.step_time), band.side(timing.steady)
    slower = max(measurement.step_time, timing.steady)
    remarks = stall_remarks(measurement, tolerance)
    if strict_last:
        return _compared(published, expected, measurement.step_time, remarks)
    reason = undecided(measurement, band)
    if reason:
        return Verdict(Kind.NOISY, (reason, "another run would tell"), remarks)
    if steady is not Kind.PASSED and published is steady:
        return _compared(steady, expected, slower, remarks)
    if steady is not Kind.PASSED:
        by_median = _by_median(measurement, published)
        return _compared(steady, expected, timing.steady, (by_median, *remarks))
    if fell(measurement, band):
        return _compared(Kind.TOO_SLOW, expected, timing.tail, (_fallen(measurement), *remarks))
    reason, deviation = instability(measurement, tolerance), None
    if not reason and (reason := stalled(measurement, band)):
        deviation = expected.deviation(timing.settled.mean)
    if not reason and published is not Kind.PASSED:
        if _forgiven(measurement, band):
            return _passed_by_median(measurement, expected, published, remarks)
        reason = _statistic_beyond(measurement, band)
    if reason:
        return Verdict(Kind.NOISY, (reason, more_runs(measurement, band)), remarks, deviation)
    return _compared(Kind.PASSED, expected, slower, remarks)


def _explained(measurement: Measurement, band: Band) -> bool:
    """Whether outliers explain that the published statistic is out of the band."""
    timing = measurement.timing
    return bool(timing.published.outliers) and band.side(timing.published.without_outliers) is Kind.PASSED


def _forgiven(measurement: Measurement, band: Band) -> bool:
    """Whether a published statistic that is out of the band says less than the steady median.

    A single step says less than the steady steps around it, whether it is an outlier or not.
    """
    timing = measurement.timing
    few = len(timing.published.outliers) <= MAX_FORGIVEN * timing.runs
    return (timing.alone or (few and _explained(measurement, band))) and not timing.published.lasting


def _passed_by_median(
    measurement: Measurement, expected: Expected, published: Kind, remarks: tuple[str, ...]
) -> Verdict:
    timing, name = measurement.timing, statistic_name(measurement)
    cause = f"as far as such steps scatter ({percent(timing.settled.spread)})"
    if timing.published.outliers:
        cause = f"because of {steps_listed(measurement, timing.published.outliers)}"
    remark = (
        f"{name} is {seconds(measurement.step_time)}, out of the band, {cause}; judged by the steady "
        f"median {seconds(timing.steady)}"
    )
    verdict = _compared(Kind.PASSED, expected, timing.steady, (remark, *remarks))
    if published is not Kind.TOO_SLOW:
        return verdict
    pace = signed(expected.deviation(measurement.step_time))
    beside = f"{name} {seconds(measurement.step_time)}, {pace}"
    return replace(verdict, reasons=(*verdict.reasons, beside))


def _statistic_beyond(measurement: Measurement, band: Band) -> str:
    """Why a run is noisy whose published statistic alone is out of the band."""
    timing, outliers = measurement.timing, measurement.timing.published.outliers
    reason = "no outlier explains it"
    if _explained(measurement, band):
        reason = f"what explains it is more than a hiccup: {steps_listed(measurement, outliers)}"
    return (
        f"{statistic_name(measurement)} is {seconds(measurement.step_time)}, out of the band, the median of the "
        f"{timing.judged.steady_of(timing.settled.steps)} is {seconds(timing.steady)}, inside, and {reason}; "
        f"spread {percent(timing.settled.spread)}"
    )


def _compared(kind: Kind, expected: Expected, step_time: float, remarks: tuple[str, ...]) -> Verdict:
    """The verdict that this step time decides."""
    ratio, tolerance = expected.deviation(step_time), expected.baseline.tolerance
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
    reason = (
        f"{seconds(step_time)} a step where {seconds(expected.step_time)} {is_what}, "
        f"{signed(ratio, digits)} throughput{limit}"
    )
    return Verdict(kind, (reason,), remarks, ratio)


def _digits(ratio: float, limit: float) -> int:
    """With how many digits a ratio that is beyond a limit does not look like it."""
    apart = (digits for digits in (1, 2, 3) if round(100 * ratio, digits) != round(100 * limit, digits))
    return next(apart, 4)


def _fallen(measurement: Measurement) -> str:
    timing = measurement.timing
    return (
        f"it became slow at its end: the {timing.judged.unit.end_is} {seconds(timing.tail)}, the median of all settled steps is "
        f"{seconds(timing.settled.median)}"
    )


def _by_median(measurement: Measurement, published: Kind) -> str:
    timing = measurement.timing
    place = "inside the band" if published is Kind.PASSED else f"'{published}'"
    return (
        f"judged by the steady median {seconds(timing.steady)}: {statistic_name(measurement)} alone, "
        f"{seconds(measurement.step_time)}, would be {place}"
    )


LEAST_ROUNDING = 1e-5
"""A report tells the rounding of a log's times from this share on: below it, no band feels it."""


def describe(measurement: Measurement, references: Sequence[Reference] = ()) -> list[str]:
    """The lines of the report on a run without a baseline, with the figures of others."""
    lines = [*_measured(measurement, None), *_counted(measurement)]
    return lines + [beside(measurement, reference) for reference in references]


def beside(measurement: Measurement, reference: Reference) -> str:
    """The line that compares the measured figure with somebody else's."""
    here = measurement.tokens_per_second / measurement.case.gpus
    there = reference.tokens_per_second_per_gpu
    return (
        f"beside    {here:,.0f} tokens/s/GPU here; {there:,.0f} tokens/s/GPU: {reference.name} on {counted(reference.gpus, 'GPU')} "
        f"({100 * here / there:.1f} %), for comparison, not judged"
    )


def explain(measurement: Measurement, expected: Expected, references: Sequence[Reference] = ()) -> list[str]:
    """The lines of the report below the headline: measured, expected, and the baseline's source."""
    timing, baseline = measurement.timing, expected.baseline
    band, tolerance = Band(expected, timing.resolution), baseline.tolerance
    rounding = f", log rounding {percent(timing.resolution)}" if timing.resolution >= LEAST_ROUNDING else ""
    lines = [
        *_measured(measurement, expected),
        f"expected  {_row(measurement, expected.step_time)}  {expected.days_per_1t_tokens:.2f} days for 1T tokens",
        f"band      {seconds(band.fastest):>11} to {seconds(band.slowest)}  (throughput "
        f"-{percent(tolerance.slower)} to +{percent(tolerance.faster)}{rounding})",
        f"baseline  {baseline.origin}",
        *_of_site(baseline),
        *_counted(measurement),
        *_corrected(measurement, expected),
    ]
    return lines + [beside(measurement, reference) for reference in references]


def _of_site(baseline: Baseline) -> list[str]:
    """The site's own number, if the case is judged by a published one."""
    beside = baseline.beside
    if beside is None:
        return []
    figure = seconds(beside.cell.step_time) if beside.cell.step_time else f"MFU {beside.cell.mfu:.2f} %"
    return [f"own       {figure}, {beside.origin}: not judged, the published baseline wins"]


def _measured(measurement: Measurement, expected: Expected | None) -> list[str]:
    """The published statistic, the last step if the statistic is a mean, and the steady median."""
    timing, means = measurement.timing, measurement.case.means

    def line(name: str, step_time: float, source: str) -> str:
        ratio = ""
        if expected:
            ratio = f"{signed(expected.deviation(step_time))} throughput  "
        return f"{name:<10}{_row(measurement, step_time)}  {ratio}{source}"

    printed = single = ""
    if means.computed:
        printed, single = f", printed as means over {means.over} steps", ", of single steps"
    elif means.span > 1:
        single = f" of these means over {means.span}; single steps scatter more"
    lines = [line("measured", measurement.step_time, f"{statistic_name(measurement)}{printed}")]
    if len(timing.published.window) > 1:
        index, last = timing.published.last
        lines.append(line("last", last, f"{timing.judged.named(index)}{printed}"))
    if timing.runs > 1:
        single += f", mean of {timing.runs} runs"
    steady = f"median of the {timing.judged.steady_of(timing.settled.steps)}, spread {percent(timing.settled.spread)}{single}"
    return [*lines, line("steady", timing.steady, steady), *_model(measurement)]


def _model(measurement: Measurement) -> list[str]:
    """How large the model is, if its name does not say."""
    case = measurement.case
    if case.parameters is None:
        return []
    shape = f"{case.model.layers} layers of hidden size {case.model.hidden}, sequence length {case.sequence_length}"
    return [f"model     {billions(case.parameters)} parameters, {shape}"]


def _counted(measurement: Measurement) -> list[str]:
    """How MFU was counted, and the MFU by the recipe's second definition, if it has one."""
    basis = measurement.mfu_basis
    if basis is None:
        return []
    line = (
        f"MFU by    {basis.definition} FLOPs, peak {basis.peak_tflops:.4g} TFLOP/s per GPU, "
        f"statistic {measurement.timing.published.statistic}"
    )
    if basis.beside is None:
        return [line]
    return [
        f"{line}: {measurement.tflops_per_gpu:.1f} TFLOP/s per GPU",
        f"beside    MFU {measurement.mfu_beside:.2f} % by {basis.beside.definition} FLOPs, "
        f"{signed(basis.beside.flops / basis.flops - 1)}; for comparison, not judged",
    ]


def _row(measurement: Measurement, step_time: float) -> str:
    share, used = measurement.mfu_of(step_time), ""
    if share is not None:
        used = f"  MFU {share:5.2f} %"
    elif measurement.mfu_basis:
        used = "  beyond the peak"
    return (
        f"{seconds(step_time):>11}  {tokens_per_second(measurement.case, step_time):>14,.0f} tokens/s{used}"
    )


def _corrected(measurement: Measurement, expected: Expected) -> list[str]:
    """The MFU by the right FLOPs, if the published definition is known to be wrong."""
    right, target = (expected.corrected_mfu(time) for time in (measurement.step_time, expected.step_time))
    if expected.corrected is None or right is None or target is None:
        return []
    excess = expected.mfu_basis.flops / expected.corrected.flops - 1
    return [
        f"corrected MFU {right:.2f} %, expected {target:.2f} %, by {expected.corrected.definition} FLOPs: the published "
        f"definition is {signed(excess)} off; shown for comparison, not judged"
    ]
