"""Records a site's own baselines: a valid run's measurement becomes a cell for judging later runs. Pure.

An offer is made when a case is judged, and kept in the case's record. At the end of the session it is put
into the site's table. Only a steady run is recorded; a noisy one is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from plugins.baselines.baseline_file import Cell
from plugins.baselines.changes import nodes_of
from plugins.judging.cpus import busy
from plugins.judging.identity import fingerprint, untold
from plugins.judging.judgement import Judgement
from plugins.judging.steadiness import instability
from plugins.metrics import FlopsDefinition, Measurement
from plugins.record.baseline import Recorded, Tolerance
from plugins.record.verdict import Kind
from plugins.yamlfile import Stated, Strict

# If outliers move the statistic by more than this share, other runs cannot be compared with it.
MOVED_BY_OUTLIERS = 0.01


class Offer(Strict):
    """A cell that is offered, and the head of the table that it belongs to. `peak` is in TFLOP/s per GPU."""

    release: Stated
    gpu: Stated
    framework: Stated
    source: Stated
    statistic: str
    peak: float | Literal["measured"]
    flops: FlopsDefinition
    cell: Cell


@dataclass(frozen=True)
class Origin:
    """Where and when what is offered was measured. `date` is the day (UTC)."""

    site: str
    framework: str
    run: str
    date: str


def offer_of(judgement: Judgement, origin: Origin) -> Offer | str:
    """What this judgement offers for the site's table, or the reason why there is none."""
    measurement = judgement.measurement
    if not judgement.case.is_timed:
        return "its pace is not judged"
    if measurement is None or judgement.outcome.job.failure == "given up":
        return f"no whole and valid run: {judgement.verdict.headline}"
    reason, basis = _refusal(judgement, measurement), measurement.mfu_basis
    if reason:
        return reason
    if basis is None:
        return (
            f"no {measurement.case.dtype} peak of {judgement.outcome.gpu} is known to count MFU by; add it to "
            f"baselines/accelerators.yaml"
        )
    if measurement.mfu is None:
        return "its MFU is beyond the peak: it was not this configuration"
    measured_peak = judgement.log.peak_tflops is not None
    return Offer(
        release=measurement.case.release,
        gpu=judgement.outcome.gpu,
        framework=origin.framework,
        source=f"recorded on site {origin.site}",
        statistic=str(judgement.statistic),
        peak="measured" if measured_peak else basis.peak_tflops,
        flops=basis.definition,
        cell=_cell(judgement, measurement, origin, with_time=not measured_peak),
    )


def _refusal(judgement: Judgement, measurement: Measurement) -> str:
    """Why no number is recorded of this run; "" if one is, as far as its log and its steps tell."""
    target, case, log = judgement.expected, judgement.case, judgement.log
    if target is not None and target.baseline.cell.recorded is None:
        return f"{target.baseline.path.name} has a baseline for it, which wins"
    neighbours = busy(case, (log,))
    if neighbours:
        return f"{neighbours}: run it again without them"
    reason = untold(case, log) or _unfit(measurement)
    if not reason and judgement.verdict.kind is Kind.NOISY:
        return judgement.verdict.headline
    return reason


def _unfit(measurement: Measurement) -> str:
    """Why other runs cannot be compared with these steps; "" if they can."""
    timing, tolerance = measurement.timing, Tolerance()
    reason = instability(measurement, tolerance)
    if reason:
        return f"too noisy to be held against other runs: {reason}"
    moved = timing.step_time / timing.without_outliers - 1
    if timing.outliers and abs(moved) > MOVED_BY_OUTLIERS:
        steps = ", ".join(f"{index} ({seconds:.4g} s)" for index, seconds in timing.outliers[:5])
        return f"its outliers move {timing.statistic} by {100 * moved:+.1f} %: step {steps}; run it again"
    off = timing.step_time / timing.steady - 1
    if abs(off) > tolerance.slower:
        return f"{timing.statistic} is {100 * off:+.1f} % off the steady median {timing.steady:.4g} s; run it again"
    return ""


def _cell(judgement: Judgement, measurement: Measurement, origin: Origin, *, with_time: bool) -> Cell:
    case, outcome, timing = measurement.case, judgement.outcome, measurement.timing
    assert measurement.mfu is not None
    numbers: dict[str, float] = {"mfu": float(f"{measurement.mfu:.6g}")}
    if with_time:
        numbers |= {
            "step_time": float(f"{measurement.step_time:.6g}"),
            "tokens_per_second": float(f"{measurement.tokens_per_second:.8g}"),
            "days_per_1t_tokens": float(f"{measurement.days_per_1t_tokens:.6g}"),
        }
    recorded = Recorded(
        status="recorded",
        run=origin.run,
        date=origin.date,
        spread=round(timing.spread, 6),
        hiccups=len(timing.hiccups),
        job=outcome.known_job or None,
        log=fingerprint(judgement.log),
        nodes=nodes_of(outcome) or None,
        versions=judgement.versions,
    )
    place = {"size": case.size, "dtype": case.dtype, "gpus": case.gpus}
    return Cell.model_validate({**place, **case.identity(), **numbers, "recorded": recorded})
