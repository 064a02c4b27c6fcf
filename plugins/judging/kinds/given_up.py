"""A timed case whose job was cancelled because its pace could not return to the band. Pure."""

from __future__ import annotations

from dataclasses import replace

from plugins.baselines.expected import expected
from plugins.baselines.store import Baseline
from plugins.judging import gpus as gpu_judging
from plugins.judging import validity
from plugins.judging.evidence import Evidence
from plugins.judging.job_words import job_lines, log_faults, remarks
from plugins.judging.judgement import Finding, ended
from plugins.judging.kinds.measuring import changes, measure
from plugins.judging.pace_report import explain
from plugins.judging.verdicts import Verdict
from plugins.metrics import Statistic, with_pace
from plugins.record.verdict import Kind


def judge_given_up(evidence: Evidence, baseline: Baseline) -> Finding:
    """Judge a run that was cancelled for its pace. It must be valid, but its last steps may be missing."""
    case, outcome, log, own = evidence.case, evidence.outcome, evidence.log, evidence.own
    timed, basis, job = with_pace(log.steps, case.means), evidence.basis, job_lines(outcome)
    reasons = _problems(evidence, baseline)
    if not reasons and not timed:
        reasons = ["it was given up for its pace, and no settled step in its log has a time that can be read"]
    if not reasons and basis is None:
        reasons = ["the run did not state its machine's own peak"]
    if reasons or basis is None:
        return ended(evidence, Kind.INVALID, reasons, job)
    # The published statistic needs steps that never ran, so the last step and the steady median are measured.
    measurement = measure(case, replace(log, steps=timed), Statistic(), basis)
    target = expected(case, baseline, basis)
    verdict = Verdict(Kind.TOO_SLOW, (outcome.job.message,), remarks(evidence))
    verdict = gpu_judging.explained(verdict, own.gpus, baseline.table.product)
    details = (
        *explain(measurement, target),
        *gpu_judging.lines(own.gpus, measurement, evidence.numbers.accelerator),
        *changes(evidence, verdict, measurement, target),
        *job,
    )
    return Finding(verdict, details, measurement, target)


def _problems(evidence: Evidence, baseline: Baseline) -> list[str]:
    run, part = evidence.own, evidence.numbers.accelerator
    reasons = validity.problems(
        evidence.case, run.log, baseline.statistic, part, started=run.started, whole=False
    )
    return [*reasons, *log_faults(evidence.outcome), *gpu_judging.spoiled(run.gpus)]
