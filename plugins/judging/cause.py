"""What is known of the cause of a verdict, by the case's jobs in other modes, and how to learn it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from plugins.baselines.digests import load_digest, path_of
from plugins.errors import ConfigError, Infrastructure
from plugins.job_files import ParsedLogs
from plugins.judging import diagnosis
from plugins.judging.choice import Setting
from plugins.judging.diagnose import diagnose
from plugins.judging.diagnosis import Diagnosis, ModeRun
from plugins.judging.evidence import Evidence, read_evidence
from plugins.judging.judge import judge
from plugins.judging.judgement import Judgement
from plugins.outcome import Diagnosed, Outcome
from plugins.recipes.cases import Case
from plugins.record.verdict import Kind


def find_cause(
    judgement: Judgement, known: Diagnosed, setting: Setting, parsed: ParsedLogs
) -> Diagnosis | None:
    """The cause of a verdict that is too slow or noisy, or how to learn it; None of any other verdict.

    `known` is what was done to find it.
    """
    case, measurement = judgement.case, judgement.measurement
    if not judgement.diagnosable or measurement is None:
        return None
    if known.why_none:
        return diagnosis.undiagnosed(known.why_none)
    if known.jobs:
        runs = [_run_in(case, mode, outcome, setting, parsed) for mode, outcome in known.jobs.items()]
        return diagnose(case.gpus, runs, known.recording)
    startup = setting.recipe.file.startup_minutes
    modes = setting.recipe.diagnostic_modes(case)
    cost = sum(diagnosis.gpu_hours(mode, startup, measurement.step_time) for mode in modes)
    return diagnosis.advice(known.command, cost)


def _run_in(case: Case, mode: str, outcome: Outcome, setting: Setting, parsed: ParsedLogs) -> ModeRun:
    """A job of a diagnosis: whether it is evidence, and the recorded digest that it compares with."""
    recipe = setting.recipe
    case_in_mode = recipe.in_mode(case, mode)
    if case_in_mode is None or outcome.job.failure:
        reason = outcome.job.message or f"{recipe.name} has no such mode any more"
        return ModeRun(mode, outcome, why_not=reason)
    hours = case.gpus * (outcome.job.times.seconds or 0.0) / 3600
    try:
        evidence = read_evidence(case_in_mode, outcome, setting, parsed)
        judgement = judge(_without_findings(evidence))
    except (OSError, Infrastructure) as error:
        return ModeRun(mode, outcome, hours, why_not=str(error))
    if judgement.verdict.kind is not Kind.PASSED:
        return ModeRun(mode, outcome, hours, why_not=judgement.verdict.headline)
    run = ModeRun(mode, outcome, hours, evidence.artefacts)
    if not setting.choice.own:
        return replace(run, why_no_good="the site has no baselines of its own")
    try:
        good = load_digest(path_of(Path(setting.choice.own), case_in_mode))
    except ConfigError as error:
        return replace(run, why_no_good=str(error))
    if good is None:
        return replace(run, why_no_good="none is recorded")
    reason = good.unlike(case_in_mode, outcome.gpu)
    if reason:
        return replace(run, why_no_good=reason)
    return replace(run, good=good)


def _without_findings(evidence: Evidence) -> Evidence:
    """The evidence without what may be the cause itself: that the network is not the expected one."""
    marks = tuple(mark for mark in evidence.log.marks if mark[0] not in diagnosis.FINDINGS)
    run = replace(evidence.own, log=replace(evidence.log, marks=marks))
    return replace(evidence, runs=(run,), site=replace(evidence.site, network=None))
