"""The lines of the report on a measured pace: measured, expected, and where the numbers come from. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from plugins.baselines.baseline_file import Reference
from plugins.baselines.expected import Expected
from plugins.baselines.store import Baseline
from plugins.judging.figures import billions, percent, seconds, signed, statistic_name
from plugins.judging.verdicts import Band
from plugins.metrics import Measurement, tokens_per_second

LEAST_ROUNDING = 1e-5
"""A report tells the rounding of a log's times from this share on: below it, no band feels it."""


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
    timing, means = measurement.timing, measurement.timing.means

    def line(name: str, step_time: float, source: str) -> str:
        ratio = ""
        if expected:
            ratio = f"{signed(expected.step_time / step_time - 1)} throughput  "
        return f"{name:<10}{_row(measurement, step_time)}  {ratio}{source}"

    printed = single = ""
    if means.computed:
        printed, single = f", printed as means over {means.over} steps", ", of single steps"
    elif means.span > 1:
        single = f" of these means over {means.span}; single steps scatter more"
    lines = [line("measured", timing.step_time, f"{statistic_name(measurement)}{printed}")]
    if len(timing.window) > 1:
        index, last = timing.last
        lines.append(line("last", last, f"{timing.judged.named(index)}{printed}"))
    if timing.runs > 1:
        single += f", mean of {timing.runs} runs"
    steady = f"median of the {timing.judged.steady_of(timing.settled_steps)}, spread {percent(timing.spread)}{single}"
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
        f"statistic {measurement.timing.statistic}"
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
