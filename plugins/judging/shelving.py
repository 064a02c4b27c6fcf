"""Records a site's own baselines: a valid run's measurement becomes a cell for judging later runs. Pure.

An offer is made when a case is judged, and kept in the case's record. At the end of the session it is put
into the site's table. Only a steady run is recorded; a noisy one is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from plugins.base.yaml_text import as_yaml
from plugins.base.yamlfile import Stated, Strict
from plugins.baselines.baseline_file import BaselineFile, Cell, Table
from plugins.baselines.changes import differences, nodes_of
from plugins.baselines.metrics import FlopsDefinition
from plugins.judging.hardware import busy
from plugins.judging.identity import fingerprint, untold
from plugins.judging.judgement import Judgement
from plugins.judging.measurement import Measurement
from plugins.judging.steadiness import instability
from plugins.record.baseline import Recorded, Tolerance
from plugins.record.verdict import Kind

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
    figure, steady, tolerance = measurement.timing.published, measurement.timing.steady, Tolerance()
    reason = instability(measurement, tolerance)
    if reason:
        return f"too noisy to be held against other runs: {reason}"
    moved = figure.step_time / figure.without_outliers - 1
    if figure.outliers and abs(moved) > MOVED_BY_OUTLIERS:
        steps = ", ".join(f"{index} ({seconds:.4g} s)" for index, seconds in figure.outliers[:5])
        return f"its outliers move {figure.statistic} by {100 * moved:+.1f} %: step {steps}; run it again"
    off = figure.step_time / steady - 1
    if abs(off) > tolerance.slower:
        return f"{figure.statistic} is {100 * off:+.1f} % off the steady median {steady:.4g} s; run it again"
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
        spread=round(timing.settled.spread, 6),
        hiccups=len(timing.settled.hiccups),
        job=outcome.known_job or None,
        log=fingerprint(judgement.log),
        nodes=nodes_of(outcome) or None,
        versions=judgement.versions,
    )
    place = {"size": case.size, "dtype": case.dtype, "gpus": case.gpus}
    return Cell.model_validate({**place, **case.identity(), **numbers, "recorded": recorded})


_TABLE_KEYS = ("release", "gpu", "framework", "source", "statistic")

_HEAD = """\
# The own baselines of site {site}, recorded with --record-baselines. A case is judged against them where nothing was
# published for it. Each recording writes this file anew: comments are lost, `note` and `notes` stay.
# Units: step_time in s, tokens_per_second in tokens/s, mfu in % of `peak`, days_per_1t_tokens in days; spread is a share.
"""


def shelve(
    file: BaselineFile | None, recipe: str, new: Offer, *, verdict: str, replace: bool
) -> tuple[BaselineFile | None, str]:
    """The site's file with this offer in it, and what was done, in words.

    The first number of a case is recorded. If a later run passes against it, the run confirms the number. The
    number itself stays, so that a slow decline does not move it. If a later run does not pass, the change is
    reported. Only with `replace` does the new number take the place of the old one, which stays in the file
    as expired. If the old number is of another configuration, it expires and the new one is recorded.
    """
    run = new.cell.recorded
    assert run is not None
    table, old = _find(file, new)
    if file is None or table is None or old is None:
        return _with(file, recipe, new), f"recorded: {_pace(new.cell)}, {_window(new)}"
    if old.recorded is None:
        return file, f"not recorded: the site's own number, {_pace(old)}, was written by hand; edit it"
    if old.recorded.run == run.run:
        return file, f"recorded by this run before: {_pace(old)}"
    before = f"{_pace(old)} of run {old.recorded.run} ({old.recorded.date})"
    unlike = old.unlike(new.cell.configuration)
    if unlike and not replace:
        expired = _swap(file, table, old, _expire(old, run.date))
        return _with(expired, recipe, new), (
            f"recorded: {_pace(new.cell)}, {_window(new)}; {before} was measured with another {unlike} and has expired"
        )
    change = f"{before} -> {_pace(new.cell)}, {100 * (_speed(new.cell) / _speed(old) - 1):+.1f} % throughput"
    difference = differences(old.recorded, run)
    if difference:
        change += f", with {difference}"
    if replace:
        expired = _swap(file, table, old, _expire(old, run.date))
        return _with(expired, recipe, new), f"replaced: {change}; the old number is kept as expired"
    counted = _counted(old.recorded, run)
    if counted:
        return file, f"not confirmed: {before} counts {counted} already"
    if verdict != Kind.PASSED:
        return file, f"not replaced: {change}, {verdict}; --replace-baselines takes the new number"
    recorded = _confirmed(old.recorded, run)
    confirmed = _swap(file, table, old, old.model_copy(update={"recorded": recorded}))
    return confirmed, f"confirmed: {change}; {recorded.runs} runs agree, the number stays"


def as_text(file: BaselineFile, site: str) -> str:
    """The file as YAML with one line for each cell, like the published tables."""
    lines = [_HEAD.format(site=site) + f"recipe: {_flow(file.recipe)}", "tables:"]
    for table in file.tables:
        keys = table.model_dump(mode="json", exclude_defaults=True)
        cells = keys.pop("cells")
        for place, (key, value) in enumerate(keys.items()):
            lines.append(f"  {' ' if place else '-'} {key}: {_flow(value)}")
        lines += ["    cells:", *(f"      - {_flow(cell)}" for cell in cells)]
    return "\n".join(lines) + "\n"


def _find(file: BaselineFile | None, new: Offer) -> tuple[Table | None, Cell | None]:
    """The number that counts for this case now, and its table."""
    for table in file.tables if file else []:
        if table.gpu == new.gpu and table.is_of(new.release):
            for cell in table.cells:
                same = (cell.size, cell.dtype, cell.gpus) == (new.cell.size, new.cell.dtype, new.cell.gpus)
                if same and not cell.expired:
                    return table, cell
    return None, None


def _with(file: BaselineFile | None, recipe: str, new: Offer) -> BaselineFile:
    """The file with the new cell, in a table with the same definitions, or in a new one if there is none."""
    tables = [] if file is None else list(file.tables)
    place = next((place for place, table in enumerate(tables) if _takes(table, new)), len(tables))
    keys: dict[str, Any] = {key: getattr(new, key) for key in _TABLE_KEYS}
    if place < len(tables):
        keys = dict(tables[place])
    keys["flops"] = {**keys.get("flops", {}), new.cell.size: new.flops}
    keys["cells"] = [*keys.get("cells", []), new.cell]
    if new.peak == "measured":
        keys["peak"] = new.peak
    else:
        keys["peak"] = {**keys.get("peak", {}), new.cell.dtype: new.peak}
    tables[place : place + 1] = [Table(**keys)]
    return BaselineFile(recipe=recipe, tables=tables)


def _takes(table: Table, new: Offer) -> bool:
    # Recorded numbers are of one release only.
    if table.also or any(getattr(table, key) != getattr(new, key) for key in _TABLE_KEYS):
        return False
    if table.flops.get(new.cell.size, new.flops) != new.flops:
        return False
    if isinstance(table.peak, str) or isinstance(new.peak, str):
        return table.peak == new.peak
    return table.peak.get(new.cell.dtype, new.peak) == new.peak


def _swap(file: BaselineFile, table: Table, old: Cell, new: Cell) -> BaselineFile:
    """The file with `new` in the place of `old`. `old` is compared by identity."""
    cells = [new if cell is old else cell for cell in table.cells]
    changed = table.model_copy(update={"cells": cells})
    return file.model_copy(update={"tables": [changed if known is table else known for known in file.tables]})


def _confirmed(old: Recorded, new: Recorded) -> Recorded:
    """What is known of a number, with the run that confirms it."""
    return old.model_copy(
        update={
            "status": "confirmed",
            "runs": old.runs + 1,
            "confirmed_by": new.run,
            "confirmed_on": new.date,
            "confirmed_jobs": [*old.confirmed_jobs, *filter(None, [new.job])],
            "confirmed_logs": [*old.confirmed_logs, *filter(None, [new.log])],
        }
    )


def _counted(old: Recorded, new: Recorded) -> str:
    """The job or log of this run, in words, if the number counts it already; "" if it does not."""
    if new.job is not None and new.job in (old.job, *old.confirmed_jobs):
        return f"job {new.job}"
    # The same rule as in `Recorded.is_from`.
    unknown = new.job is None or old.job is None
    if unknown and new.log is not None and new.log in (old.log, *old.confirmed_logs):
        return "this very log"
    return ""


def _expire(cell: Cell, date: str) -> Cell:
    assert cell.recorded is not None
    recorded = cell.recorded.model_copy(update={"status": "expired", "expired_on": date})
    return cell.model_copy(update={"recorded": recorded})


def _speed(cell: Cell) -> float:
    """The figure that is compared: tokens/s, or MFU if each run measures its own machine's peak."""
    speed = cell.tokens_per_second or cell.mfu
    assert speed is not None
    return speed


def _pace(cell: Cell) -> str:
    if cell.step_time:
        return f"{cell.step_time:.4g} s a step"
    return f"MFU {cell.mfu:.2f} %"


def _window(new: Offer) -> str:
    assert new.cell.recorded is not None
    return f"{new.statistic}, MFU {new.cell.mfu:.2f} %, spread {100 * new.cell.recorded.spread:.2g} %"


def _flow(value: object) -> str:
    """A value on one line."""
    text = as_yaml(value, flow=True)
    return text.removesuffix("...\n").strip()
