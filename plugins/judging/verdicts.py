"""Verdicts: how a measurement compares with its baseline. Every case gets exactly one. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from plugins.baselines.expected import Expected
from plugins.baselines.file import Reference
from plugins.baselines.store import Baseline
from plugins.metrics import OUTLIER_FLOOR, Measurement, regular, tokens_per_second
from plugins.record.baseline import Tolerance
from plugins.record.verdict import Kind

# If more runs than this are needed to decide, the verdict says so and gives no number.
MAX_USEFUL_RUNS = 20

# At most this many outliers of a run excuse a published mean that is out of the band. If each of ten steps
# stalls with a probability of 2 %, four of them stall in three runs of 100,000.
MAX_FORGIVEN = 3

# Stalls at equal distances have one cause, so each counts as much as this many random ones.
PERIODIC_WEIGHT = 1.5

# Many steps far from the median are too many only if they cost, or save, this share of the time, whatever loss is
# tolerated: if 3 % of the steps stall by 5 to 30 %, six of forty do so in one run of a thousand.
COSTLY = 0.0275

# The rounding of a log's times is told from this share on: below it, no band feels it.
_TOLD_ROUNDING = 1e-5


@dataclass(frozen=True)
class Verdict:
    """How a case ended: `headline` says it in one line, `remarks` are what else a reader must know."""

    kind: Kind
    headline: str
    remarks: tuple[str, ...] = ()

    @property
    def fails(self) -> bool:
        return self.kind not in (Kind.PASSED, Kind.NO_BASELINE, Kind.SKIPPED)


@dataclass(frozen=True)
class Band:
    """The step times that pass, in seconds: `fastest` <= step time <= `slowest`.

    `resolution` is the relative rounding of the log, which widens the band.
    """

    expected: Expected
    resolution: float

    @property
    def fastest(self) -> float:
        return self.expected.step_time / (1 + self.expected.baseline.tolerance.faster) * (1 - self.resolution)

    @property
    def slowest(self) -> float:
        return self.expected.step_time / (1 - self.expected.baseline.tolerance.slower) * (1 + self.resolution)

    def side(self, step_time: float) -> Kind:
        """Where a step time is: in the band (passed), too slow or too fast. What is no number is too slow."""
        if self.fastest <= step_time <= self.slowest:
            return Kind.PASSED
        return Kind.TOO_FAST if step_time < self.fastest else Kind.TOO_SLOW


def judge(measurement: Measurement, expected: Expected, *, strict_last: bool = False) -> Verdict:
    """Judge a valid run by its published statistic and its steady median.

    The first of these that holds decides:

    - If the median is out of the band, the run is too slow or too fast, even if the statistic is in the band.
    - If the last steps became too slow, the run is too slow.
    - If the steps scatter or stall beyond the baseline's limits, or if the mean, which includes all stalls,
      is too slow, the run is noisy.
    - If only the statistic is out of the band, the run has passed with a remark if few outliers explain it,
      or if the statistic is a single step. Otherwise the run is noisy. It is noisy too if the interval before
      an outlier is slow, because then the pace fell.
    - If both are in the band, the run has passed.

    If both are on one side, the headline has the slower one.

    With `strict_last` the published statistic alone decides.
    """
    timing = measurement.timing
    band = Band(expected, timing.resolution)
    tolerance = expected.baseline.tolerance
    published, steady = band.side(timing.step_time), band.side(timing.steady)
    worse = max(timing.step_time, timing.steady)
    remarks = stall_remarks(measurement, tolerance)
    if strict_last:
        return Verdict(published, _headline(published, expected, timing.step_time), remarks)
    if steady is not Kind.PASSED:
        by_median = () if published is steady else (_lucky(measurement, published),)
        decided = timing.steady if by_median else worse
        return Verdict(steady, _headline(steady, expected, decided), (*by_median, *remarks))
    if fell(measurement, band):
        slow = _headline(Kind.TOO_SLOW, expected, timing.tail)
        return Verdict(Kind.TOO_SLOW, slow, (_fallen(measurement), *remarks))
    if what := instability(measurement, tolerance) or _stalled(measurement, band):
        return Verdict(Kind.NOISY, f"noisy: {what}; {_more_runs(measurement, band)}", remarks)
    if published is not Kind.PASSED:
        explained = bool(timing.outliers) and band.side(timing.without_outliers) is Kind.PASSED
        # A single step says less than the steady steps around it, whether it is an outlier or not.
        few = len(timing.outliers) <= MAX_FORGIVEN * timing.runs
        if ((explained and few) or timing.alone) and not timing.lasting:
            cause = (
                f"because of {_steps(measurement, timing.outliers)}"
                if timing.outliers
                else f"as far as such steps scatter ({_percent(timing.spread)})"
            )
            remark = (
                f"{_statistic(measurement)} is {_seconds(timing.step_time)}, out of the band, {cause}; judged by the steady "
                f"median {_seconds(timing.steady)}"
            )
            headline = _headline(Kind.PASSED, expected, timing.steady)
            if published is Kind.TOO_SLOW:
                headline += f"; {_statistic(measurement)} {_seconds(timing.step_time)}, {_signed(expected.step_time / timing.step_time - 1)}"
            return Verdict(Kind.PASSED, headline, (remark, *remarks))
        why = (
            f"what explains it is more than a hiccup: {_steps(measurement, timing.outliers)}"
            if explained
            else "no outlier explains it"
        )
        what = (
            f"{_statistic(measurement)} is {_seconds(timing.step_time)}, out of the band, the median of the "
            f"{timing.judged.steady_of(timing.settled_steps)} is {_seconds(timing.steady)}, inside, and {why}; spread {_percent(timing.spread)}"
        )
        return Verdict(Kind.NOISY, f"noisy: {what}; {_more_runs(measurement, band)}", remarks)
    return Verdict(Kind.PASSED, _headline(Kind.PASSED, expected, worse), remarks)


def fell(measurement: Measurement, band: Band) -> bool:
    """Whether the run became too slow at its end.

    Its last steps are out of the band, and slower than the other steps by more than chance explains.
    """
    timing = measurement.timing
    beyond = max(OUTLIER_FLOOR, timing.judged.unit.sigmas * timing.tail_error)
    return band.side(timing.tail) is Kind.TOO_SLOW and timing.tail > (1 + beyond) * timing.settled


def instability(measurement: Measurement, tolerance: Tolerance) -> str:
    """Why the steps do not show a steady pace, whatever the pace is; "" if they do."""
    timing = measurement.timing
    if timing.spread > tolerance.spread:
        of = "" if timing.judged.single else f" of means over {timing.judged.over} steps"
        return (
            f"the settled steps scatter by {_percent(timing.spread)} (standard deviation{of}, limit "
            f"{_percent(tolerance.spread)})"
        )
    limit = tolerance.hiccups * timing.settled_steps
    # If a cause recurs regularly, as a snapshot or a full buffer does, fewer stalls than random ones suffice.
    weight = PERIODIC_WEIGHT if timing.periodic else 1.0
    lost = timing.mean / timing.settled - 1
    many = weight * len(timing.hiccups) > limit and weight * timing.share_of(timing.hiccups) > COSTLY
    if many or lost > tolerance.slower:
        how = ", at equal distances, so that they have one cause" if many and timing.periodic else ""
        return (
            f"{_hiccups(measurement)}{how}; the median hides such stalls, which cost {_percent(lost)} of the pace "
            f"({_limits(tolerance, weight if many else 1.0)})"
        )
    weight = PERIODIC_WEIGHT if regular([index for index, _ in timing.fast]) else 1.0
    many = weight * len(timing.fast) > limit and weight * timing.share_of(timing.fast) > COSTLY
    if many or -lost > tolerance.slower:
        return (
            f"{_fast(measurement)}; the median hides that the mean of the settled steps is {_percent(-lost)} below it "
            f"({_limits(tolerance, weight if many else 1.0)})"
        )
    return ""


def _limits(tolerance: Tolerance, weight: float = 1.0) -> str:
    """The limits of `instability`, of which stalls at equal distances have lower ones."""
    steps, share = tolerance.hiccups / weight, COSTLY / weight
    return (
        f"limits: {100 * steps:.3g} % of the steps with {_percent(share)} of the time; "
        f"{_percent(tolerance.slower)} of the pace in the mean"
    )


def steadiness(measurement: Measurement) -> str:
    """How steady the pace of a run without a baseline is, by the usual tolerances."""
    spread = f"spread {_percent(measurement.timing.spread)}"
    unsteady = instability(measurement, Tolerance())
    return f"{spread}, and not steady: {unsteady}" if unsteady else spread


def _stalled(measurement: Measurement, band: Band) -> str:
    """What the stalls cost, if the mean that includes them is too slow for the band; "" if it is not."""
    timing, expected = measurement.timing, band.expected
    if band.side(timing.mean) is not Kind.TOO_SLOW:
        return ""
    stalls = f" ({_hiccups(measurement)})" if timing.hiccups else ""
    return (
        f"the mean of all {timing.settled_steps} settled steps is {_seconds(timing.mean)}, "
        f"{_signed(expected.step_time / timing.mean - 1)} throughput (limit "
        f"-{_percent(expected.baseline.tolerance.slower)}): the steady median {_seconds(timing.steady)} is in the band, "
        f"and what it hides costs {_percent(timing.mean / timing.steady - 1)} of the pace{stalls}; a mean of "
        f"up to {_seconds(band.slowest)} would be"
    )


def describe(measurement: Measurement, references: Sequence[Reference] = ()) -> list[str]:
    """The lines of the report on a run without a baseline, with the figures of others."""
    lines = [*_measured(measurement, None), *_counted(measurement)]
    return lines + [beside(measurement, reference) for reference in references]


def beside(measurement: Measurement, reference: Reference) -> str:
    """The line that compares the measured figure with somebody else's."""
    here, there = measurement.tokens_per_second_per_gpu, reference.tokens_per_second_per_gpu
    return (
        f"beside    {here:,.0f} tokens/s/GPU here; {there:,.0f} tokens/s/GPU: {reference.name} on {reference.gpus} GPUs "
        f"({100 * here / there:.1f} %), for comparison, not judged"
    )


def explain(measurement: Measurement, expected: Expected, references: Sequence[Reference] = ()) -> list[str]:
    """The lines of the report below the headline: measured, expected, and the baseline's source."""
    timing, baseline = measurement.timing, expected.baseline
    band = Band(expected, timing.resolution)
    tolerance = baseline.tolerance
    told = timing.resolution >= _TOLD_ROUNDING
    rounding = f", log rounding {_percent(timing.resolution)}" if told else ""
    lines = [
        *_measured(measurement, expected),
        f"expected  {_row(measurement, expected.step_time)}  {expected.days_per_1t_tokens:.2f} days for 1T tokens",
        f"band      {_seconds(band.fastest):>11} to {_seconds(band.slowest)}  (throughput "
        f"-{_percent(tolerance.slower)} to +{_percent(tolerance.faster)}{rounding})",
        f"baseline  {baseline.origin}",
        *_own(baseline),
        *_counted(measurement),
        *_corrected(measurement, expected),
    ]
    return lines + [beside(measurement, reference) for reference in references]


def _own(baseline: Baseline) -> list[str]:
    """The site's own number, if the case is judged by a published one."""
    own = baseline.beside
    if own is None:
        return []
    figure = _seconds(own.cell.step_time) if own.cell.step_time else f"MFU {own.cell.mfu:.2f} %"
    return [f"own       {figure}, {own.origin}: not judged, the published baseline wins"]


def _measured(measurement: Measurement, expected: Expected | None) -> list[str]:
    """The published statistic, the last step if the statistic is a mean, and the steady median."""
    timing = measurement.timing

    def line(name: str, step_time: float, what: str) -> str:
        off = f"{_signed(expected.step_time / step_time - 1)} throughput  " if expected else ""
        return f"{name:<10}{_row(measurement, step_time)}  {off}{what}"

    means, printed, single = timing.means, "", ""
    if means.computed:
        printed, single = f", printed as means over {means.over} steps", ", of single steps"
    elif means.span > 1:
        single = f" of these means over {means.span}; single steps scatter more"
    lines = [line("measured", timing.step_time, f"{_statistic(measurement)}{printed}")]
    if len(timing.window) > 1:
        index, seconds = timing.last
        lines.append(line("last", seconds, f"{timing.judged.named(index)}{printed}"))
    if timing.runs > 1:
        single += f", mean of {timing.runs} runs"
    steady = f"median of the {timing.judged.steady_of(timing.settled_steps)}, spread {_percent(timing.spread)}{single}"
    return [*lines, line("steady", timing.steady, steady), *_model(measurement)]


def _model(measurement: Measurement) -> list[str]:
    """How large the model is, if its name does not say."""
    case = measurement.case
    if case.parameters is None:
        return []
    shape = f"{case.model.layers} layers of hidden size {case.model.hidden}, sequence length {case.sequence_length}"
    return [f"model     {billions(case.parameters)} parameters, {shape}"]


def billions(parameters: int) -> str:
    """`174.6 B`, `0.065 B`: digits enough, because the names of some models are off by a factor of six."""
    value = parameters / 1e9
    return f"{value:.1f} B" if value >= 100 else f"{value:.3g} B" if value >= 0.1 else f"{value:.2g} B"


def _counted(measurement: Measurement) -> list[str]:
    """How MFU was counted, and the MFU by the recipe's second definition, if it has one."""
    basis = measurement.mfu_basis
    if basis is None:
        return []
    how = f"{basis.definition} FLOPs, peak {basis.peak_tflops:.4g} TFLOP/s per GPU, statistic {measurement.timing.statistic}"
    lines = [f"MFU by    {how}"]
    if basis.beside is not None:
        lines[0] += f": {measurement.tflops_per_gpu:.1f} TFLOP/s per GPU"
        lines.append(
            f"beside    MFU {measurement.mfu_beside:.2f} % by {basis.beside.definition} FLOPs, "
            f"{_signed(basis.beside.flops / basis.flops - 1)}; for comparison, not judged"
        )
    return lines


def _row(measurement: Measurement, step_time: float) -> str:
    share = measurement.mfu_of(step_time)
    used = (
        f"  MFU {share:5.2f} %" if share is not None else "  beyond the peak" if measurement.mfu_basis else ""
    )
    return (
        f"{_seconds(step_time):>11}  {tokens_per_second(measurement.case, step_time):>14,.0f} tokens/s{used}"
    )


def _corrected(measurement: Measurement, expected: Expected) -> list[str]:
    """The MFU by the right FLOPs, if the published definition is known to be wrong."""
    right, target = (expected.corrected_mfu(time) for time in (measurement.step_time, expected.step_time))
    if expected.corrected is None or right is None or target is None:
        return []
    excess = expected.mfu_basis.flops / expected.corrected.flops - 1
    return [
        f"corrected MFU {right:.2f} %, expected {target:.2f} %, by {expected.corrected.definition} FLOPs: the published "
        f"definition is {_signed(excess)} off; shown for comparison, not judged"
    ]


def _headline(kind: Kind, expected: Expected, step_time: float) -> str:
    ratio = expected.step_time / step_time - 1
    tolerance = expected.baseline.tolerance
    beyond = {Kind.TOO_SLOW: -tolerance.slower, Kind.TOO_FAST: tolerance.faster}.get(kind)
    # What is beyond the limit must not look like it.
    digits = next(
        (d for d in (1, 2, 3) if beyond is None or round(100 * ratio, d) != round(100 * beyond, d)), 4
    )
    limit = {
        Kind.TOO_SLOW: f" (limit -{_percent(tolerance.slower)})",
        Kind.TOO_FAST: f" (limit +{_percent(tolerance.faster)}); was it really this configuration?",
    }.get(kind, "")
    run = expected.baseline.cell.recorded
    recorded = f", as run {run.run} recorded on {run.date}" if run else ""
    return (
        f"{kind}: {_seconds(step_time)} a step where {_seconds(expected.step_time)} is expected{recorded}, "
        f"{_signed(ratio, digits)} throughput{limit}"
    )


def stall_remarks(measurement: Measurement, tolerance: Tolerance) -> tuple[str, ...]:
    """The remarks on steps that stalled or were too fast, and on a slow last interval; empty if none was."""
    timing = measurement.timing
    remarks = [_hiccups(measurement)] if timing.hiccups else []
    remarks += [_fast(measurement)] if timing.fast else []
    index, seconds = timing.last
    beyond = seconds / timing.settled - 1
    if not timing.judged.single and beyond > tolerance.slower:
        remarks.append(
            f"the last line, {timing.judged.named(index)}, is {_seconds(seconds)} a step, {_percent(beyond)} above the median of "
            f"the settled ones: if another run has it too, the pace falls"
        )
    return tuple(remarks)


def _fallen(measurement: Measurement) -> str:
    timing = measurement.timing
    return (
        f"it became slow at its end: the {timing.judged.unit.end_is} {_seconds(timing.tail)}, the median of all settled steps is "
        f"{_seconds(timing.settled)}"
    )


def _lucky(measurement: Measurement, published: Kind) -> str:
    timing = measurement.timing
    where = "inside the band" if published is Kind.PASSED else f"'{published}'"
    return (
        f"judged by the steady median {_seconds(timing.steady)}: {_statistic(measurement)} alone, "
        f"{_seconds(timing.step_time)}, would be {where}"
    )


def _statistic(measurement: Measurement) -> str:
    """`last step (49)`, `mean of steps 35 to 44`, `mean of steps 35 to 44 of 3 runs`."""
    timing = measurement.timing
    first, last = timing.window[0][0], timing.window[-1][0]
    named = f"last step ({last})" if timing.alone else f"mean of {timing.judged.named(first, last)}"
    return named + (f" of {timing.runs} runs" if timing.runs > 1 else "")


def _hiccups(measurement: Measurement) -> str:
    timing = measurement.timing
    settled, unit = timing.settled_steps // timing.judged.every, timing.judged.unit
    slow = _steps(measurement, timing.hiccups)
    return f"{len(timing.hiccups)} of {settled} settled {unit.name} far above the median{unit.each}: {slow}"


def _fast(measurement: Measurement) -> str:
    timing = measurement.timing
    return f"far below the median{timing.judged.unit.each}: {_steps(measurement, timing.fast)}"


def _steps(measurement: Measurement, steps: tuple[tuple[int, float], ...]) -> str:
    more = f" and {len(steps) - 5} more" if len(steps) > 5 else ""
    return measurement.timing.judged.listed([(i, _seconds(t)) for i, t in steps[:5]]) + more


def _more_runs(measurement: Measurement, band: Band) -> str:
    """How many more runs would decide: their mean must be two standard errors from the nearest limit."""
    timing = measurement.timing
    margin = min(abs(band.slowest - timing.steady), abs(timing.steady - band.fastest)) / timing.steady
    spread = max(timing.spread, abs(timing.mean / timing.steady - 1))
    runs = math.ceil((2 * spread / margin) ** 2) if margin else MAX_USEFUL_RUNS + 1
    if runs > MAX_USEFUL_RUNS:
        cause = (
            "the pace stands on the limit itself"
            if spread < band.expected.baseline.tolerance.slower / 2
            else "find what disturbs the steps first"
        )
        return f"more than {MAX_USEFUL_RUNS} further runs would be needed to tell: {cause}"
    return f"about {max(2, runs)} more runs would tell"


def _seconds(value: float) -> str:
    return f"{value:.4g} s" if value < 1000 else f"{value:.0f} s"


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"


def _signed(share: float, digits: int = 1) -> str:
    return f"{100 * share:+.{digits}f} %"
