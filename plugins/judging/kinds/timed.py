"""A case whose pace is judged by a baseline, also if its job was cancelled for its pace. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from plugins.baselines.changes import since, versions_of
from plugins.baselines.expected import Expected, expected
from plugins.baselines.expected_range import Numbers
from plugins.baselines.metrics import MfuBasis, tokens_per_second
from plugins.baselines.store import Baseline
from plugins.judging import hardware, validity
from plugins.judging.evidence import Evidence, Run
from plugins.judging.identity import identity_line
from plugins.judging.job_words import job_lines, log_faults, remarks
from plugins.judging.judgement import Conclusion, ended
from plugins.judging.measurement import Measurement
from plugins.judging.pace import describe, explain, judge_pace
from plugins.judging.repeats import judge_runs, remarks_on, together
from plugins.judging.steadiness import stall_remarks, steadiness
from plugins.judging.timing import levelled, timing, with_pace
from plugins.judging.verdicts import Verdict
from plugins.logs import Log
from plugins.recipes.cases import Case
from plugins.record.baseline import Statistic, Tolerance
from plugins.record.verdict import NOTHING, Kind

BY_AGREED = "judged by the tolerance of the acceptance plan"
"""So begins the remark on such a tolerance."""


def takes(case: Case) -> bool:
    """Whether the pace of the case is judged."""
    return case.is_timed


def problems(_: Evidence) -> list[str]:
    """Nothing: it leaves its log alone."""
    return []


def left_lines(_: Evidence) -> list[str]:
    """Nothing: it leaves its log alone."""
    return []


def judge(evidence: Evidence) -> Conclusion:
    """Judge the pace of valid runs."""
    baseline, basis = evidence.numbers.baseline, evidence.basis
    if baseline is None:
        return _without_baseline(evidence)
    if basis is None:
        reason = "the run did not state its machine's own peak, which MFU is counted against"
        return ended(evidence, Kind.INVALID, [reason])
    return _compared(evidence, baseline, basis)


def _without_baseline(evidence: Evidence) -> Conclusion:
    """The measured pace, which there is nothing to compare with."""
    case, numbers, gpus = evidence.case, evidence.numbers, evidence.own.gpus
    runs = measured(evidence)
    measurement = together(runs)
    reasons = f" ({numbers.lacking})" if numbers.lacking else ""
    reasons += f", {numbers.why_none}" if numbers.why_none else ""
    reason = (
        f"measured {measurement.step_time:.4g} s a step, {measurement.tokens_per_second:,.0f} tokens/s, "
        f"{steadiness(measurement)}; {NOTHING}: baselines/{case.recipe}.yaml has no "
        f"{replace(case, node='').id} of release {case.release} on {numbers.gpu}{reasons}{_beside_range(numbers, measurement)}"
    )
    stalls = stall_remarks(measurement, Tolerance())
    verdict = Verdict(Kind.NO_BASELINE, (reason,), (*remarks_on(runs), *stalls, *remarks(evidence)))
    verdict = hardware.explained_by_gpus(verdict, gpus, None)
    verdict = hardware.explained_by_cpus(verdict, case, evidence.logs, measurement, None)
    details = (
        *describe(measurement, numbers.references),
        *hardware.lines(gpus, measurement, numbers.accelerator),
        *_run_lines(runs),
        identity_line(case, evidence.log),
        *job_lines(evidence.outcome),
    )
    return Conclusion(verdict, details, measurement, references=numbers.references, runs=_if_several(runs))


def _beside_range(numbers: Numbers, measurement: Measurement) -> str:
    """Where the pace of a case without a number is beside that of other scales; "" if nobody published any."""
    if numbers.why_no_range:
        return f"; no expected range: {numbers.why_no_range}"
    if numbers.range is None:
        return ""
    case, timing = measurement.case, measurement.timing
    pace = tokens_per_second(case, timing.steady) / case.gpus
    side = numbers.range.side(pace, timing.resolution)
    return f"; its steady pace of {pace:,.0f} tokens/s/GPU is {side} the expected range, {numbers.range.text}"


def _compared(evidence: Evidence, baseline: Baseline, basis: MfuBasis) -> Conclusion:
    """The measured pace beside that of the baseline."""
    case, log, numbers = evidence.case, evidence.log, evidence.numbers
    target, runs = expected(case, baseline, basis), measured(evidence)
    measurement, verdict = _judge_runs(evidence, runs, target)
    notes = (
        *verdict.remarks,
        *_agreed(evidence, runs, target, verdict),
        *_dispatched(case, log, numbers.statistic),
        *_other_versions(evidence, baseline),
        *remarks(evidence),
        *_wide_band(baseline),
    )
    verdict = replace(verdict, remarks=notes)
    changed = _changes(evidence, verdict, measurement, target)
    decisive = _run_of(measurement, evidence, runs)
    verdict = hardware.explained_by_gpus(verdict, decisive.gpus, baseline.table)
    verdict = hardware.explained_by_cpus(verdict, case, evidence.logs, measurement, target)
    verdict = _veto(evidence, verdict, baseline)
    details = (
        *explain(measurement, target, numbers.references),
        *hardware.lines(decisive.gpus, measurement, numbers.accelerator, baseline.table),
        *_run_lines(runs),
        identity_line(case, log),
        *changed,
        *job_lines(evidence.outcome),
    )
    return Conclusion(
        verdict, details, measurement, target, references=numbers.references, runs=_if_several(runs)
    )


def judge_given_up(evidence: Evidence, baseline: Baseline) -> Conclusion:
    """Judge a run that was cancelled because its pace could not return to the band.

    It must be valid, but its last steps may be missing.
    """
    case, outcome, log, run = evidence.case, evidence.outcome, evidence.log, evidence.own
    timed, basis, job = with_pace(log.steps, case.means), evidence.basis, job_lines(outcome)
    checked = evidence.timed(run, baseline.statistic, whole=False)
    reasons = [*validity.problems(checked), *log_faults(outcome), *hardware.spoiled(run.gpus)]
    if not reasons and not timed:
        reasons = ["it was given up for its pace, and no settled step in its log has a time that can be read"]
    if not reasons and basis is None:
        reasons = ["the run did not state its machine's own peak"]
    if reasons or basis is None:
        return ended(evidence, Kind.INVALID, reasons, job)
    # The published statistic needs steps that never ran, so the last step and the steady median are measured.
    measurement = _measure(case, replace(log, steps=timed), Statistic(), basis)
    target = expected(case, baseline, basis)
    verdict = Verdict(Kind.TOO_SLOW, (outcome.job.message,), remarks(evidence))
    verdict = hardware.explained_by_gpus(verdict, run.gpus, baseline.table)
    details = (
        *explain(measurement, target),
        *hardware.lines(run.gpus, measurement, evidence.numbers.accelerator),
        *_changes(evidence, verdict, measurement, target),
        *job,
    )
    return Conclusion(verdict, details, measurement, target)


def measured(evidence: Evidence) -> list[Measurement]:
    """What each run measured."""
    statistic, basis = evidence.numbers.statistic, evidence.basis
    return [_measure(evidence.case, log, statistic, basis) for log in evidence.logs]


def _if_several(runs: Sequence[Measurement]) -> tuple[Measurement, ...]:
    return tuple(runs) if len(runs) > 1 else ()


def _run_of(measurement: Measurement, evidence: Evidence, runs: Sequence[Measurement]) -> Run:
    """The run that decided alone; if all did together, the last one."""
    pairs = zip(evidence.runs, runs, strict=True)
    return next((run for run, measured in pairs if measured is measurement), evidence.own)


def _judge_runs(
    evidence: Evidence, runs: Sequence[Measurement], target: Expected
) -> tuple[Measurement, Verdict]:
    if evidence.strict_last:
        return runs[-1], judge_pace(runs[-1], target, strict_last=True)
    return judge_runs(runs, target)


def _agreed(evidence: Evidence, runs: Sequence[Measurement], target: Expected, verdict: Verdict) -> list[str]:
    """The remark on a tolerance that an acceptance plan put in the place of the baseline's own."""
    baseline = target.baseline
    published, agreed = baseline.published_tolerance.model_dump(), baseline.tolerance.model_dump()
    changed = [
        f"{key} {value:g} (the baseline's own is {published[key]:g})"
        for key, value in agreed.items()
        if value != published[key]
    ]
    if not changed:
        return []
    remark = f"{BY_AGREED}: {', '.join(changed)}"
    by_published = replace(target, baseline=replace(baseline, agreed=None))
    otherwise = _judge_runs(evidence, runs, by_published)[1]
    if otherwise.kind is not verdict.kind:
        remark += f"; by the baseline's own it would be {otherwise.headline}"
    return [remark]


def _other_versions(evidence: Evidence, baseline: Baseline) -> list[str]:
    """The remarks on versions that differ from those that the baseline was measured with."""
    now = versions_of(evidence.outcome, evidence.log)
    return [
        f"the run has {name} {now[name]}, the baseline was measured with {version}"
        for name, version in baseline.table.versions.items()
        if now.get(name, version) != version
    ]


def _wide_band(baseline: Baseline) -> list[str]:
    """The remarks on a case whose machine measures its own peak, and why that decides little."""
    if baseline.table.peak != "measured":
        return []
    band = f"{-100 * baseline.tolerance.slower:g} to {100 * baseline.tolerance.faster:+g} %"
    return [f"its band is wide, {band}: {note}" for note in baseline.table.notes]


def _veto(evidence: Evidence, verdict: Verdict, baseline: Baseline) -> Verdict:
    """The verdict, unless a GPU of any run is too slow by its matrix product alone: then no pass counts."""
    low = [
        f"run {number}: {reason}"
        for number, run in enumerate(evidence.runs, start=1)
        for reason in hardware.low(run.gpus, baseline.table.product)
    ]
    if verdict.kind is not Kind.PASSED or not low:
        return verdict
    return hardware.vetoed(verdict, low)


def _measure(case: Case, log: Log, statistic: Statistic, basis: MfuBasis | None) -> Measurement:
    """The pace of a valid run. Its step times are levelled if the format prints them from dispatch to dispatch."""
    steps = levelled(log.steps) if log.queued else log.steps
    return Measurement(case, timing(steps, statistic, case.means), basis)


def _dispatched(case: Case, log: Log, statistic: Statistic) -> list[str]:
    """The remark on the steps of the statistic whose printed time was levelled; empty if there are none."""
    if not log.queued:
        return []
    needed = case.means.lines(statistic.indices(case.steps))
    changed = [
        (printed.index, f"printed: {printed.seconds:.4g} s")
        for printed, step in zip(log.steps, levelled(log.steps), strict=True)
        if printed.index in needed and printed.seconds is not None and step.seconds != printed.seconds
    ]
    if not changed:
        return []
    steps = case.means.judged.listed(changed)
    return [f"{steps}: a time between dispatches, seen together with its neighbour's"]


def _run_lines(runs: Sequence[Measurement]) -> list[str]:
    """The line of the report on each run, if there are several."""
    if len(runs) == 1:
        return []
    return [
        f"run {number}     {run.step_time:.4g} s a step, steady {run.timing.steady:.4g} s, spread {100 * run.timing.settled.spread:.2g} %, "
        f"{len(run.timing.settled.hiccups)} stalls"
        for number, run in enumerate(runs, start=1)
    ]


def _changes(evidence: Evidence, verdict: Verdict, measurement: Measurement, target: Expected) -> list[str]:
    """What changed since the run that recorded the baseline, if this run does not reach it."""
    recorded = target.baseline.cell.recorded
    if recorded is None or not verdict.fails:
        return []
    return since(recorded, evidence.outcome, evidence.log, measurement.timing.settled.spread)
