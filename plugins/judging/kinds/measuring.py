"""From the log of a valid run to the figures of its pace, and what a report says of them beside. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from plugins.baselines.changes import since
from plugins.baselines.expected import Expected
from plugins.judging.evidence import Evidence
from plugins.judging.verdicts import Verdict
from plugins.logs import Log
from plugins.metrics import Measurement, MfuBasis, Statistic, levelled, timing
from plugins.recipes.cases import Case


def measure(case: Case, log: Log, statistic: Statistic, basis: MfuBasis | None) -> Measurement:
    """The pace of a valid run. Its step times are levelled if the format prints them from dispatch to dispatch."""
    steps = levelled(log.steps) if log.queued else log.steps
    return Measurement(case, timing(steps, statistic, case.means), basis)


def dispatched(case: Case, log: Log, statistic: Statistic) -> list[str]:
    """The remark on the steps of the statistic whose printed time was levelled; empty if there are none."""
    if not log.queued:
        return []
    needed = case.means.lines(statistic.indices(case.steps))
    changed = [
        f"{printed.index} (printed: {printed.seconds:.4g} s)"
        for printed, step in zip(log.steps, levelled(log.steps), strict=True)
        if printed.index in needed and printed.seconds is not None and step.seconds != printed.seconds
    ]
    if not changed:
        return []
    steps = f"step{'s' if len(changed) > 1 else ''} {', '.join(changed)}"
    return [f"{steps}: a time between dispatches, seen together with its neighbour's"]


def run_lines(runs: Sequence[Measurement]) -> list[str]:
    """The line of the report on each run, if there are several."""
    if len(runs) == 1:
        return []
    return [
        f"run {number}     {run.step_time:.4g} s a step, steady {run.timing.steady:.4g} s, spread {100 * run.timing.spread:.2g} %, "
        f"{len(run.timing.hiccups)} stalls"
        for number, run in enumerate(runs, start=1)
    ]


def changes(evidence: Evidence, verdict: Verdict, measurement: Measurement, target: Expected) -> list[str]:
    """What changed since the run that recorded the baseline, if this run does not reach it."""
    recorded = target.baseline.cell.recorded
    if recorded is None or not verdict.fails:
        return []
    return since(recorded, evidence.outcome, evidence.log, measurement.timing.spread)
