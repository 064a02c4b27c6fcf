"""Judges a case by its evidence: first whether it is valid, then what it says of the case. Pure.

The stages: the end of the job, the checks of its runs, and what its kind of case is judged by. The first that comes
to a conclusion decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from plugins.judging import hardware, validity
from plugins.judging.choice import Repeats
from plugins.judging.evidence import Evidence, Run
from plugins.judging.job_words import error_quotes, how_it_died, job_lines, log_faults, quotes
from plugins.judging.judgement import Conclusion, Judgement, ended
from plugins.judging.kinds import kind_of
from plugins.judging.kinds.timed import judge_given_up
from plugins.judging.repeats import unsure
from plugins.recipes.cases import Case
from plugins.record.job import REPLAY
from plugins.record.outcome import Outcome
from plugins.record.verdict import Kind


def judge(evidence: Evidence) -> Judgement:
    """Judge a case by its evidence."""
    finding = _unfinished(evidence) or _invalid(evidence) or kind_of(evidence.case).judge(evidence)
    return Judgement(**vars(finding), evidence=evidence)


def another_run(judgement: Judgement, repeats: Repeats) -> str:
    """Why the case needs one more run; "" if those that were judged, which all ended well, are enough.

    If a run is not valid, the case is decided; so it is without a baseline, unless every case runs several times.
    """
    case, evidence, measurement = judgement.case, judgement.evidence, judgement.measurement
    baseline, count = evidence.numbers.baseline, len(evidence.runs)
    if not case.is_timed or count >= repeats.at_most or not (repeats.always or baseline):
        return ""
    more = f"run {count} of {repeats.at_most} has ended"
    if baseline is None:
        return more
    if measurement is None or judgement.expected is None:
        return ""
    if repeats.always:
        return more
    return unsure(judgement.runs or [measurement], judgement.expected, repeats.at_most)


def _unfinished(evidence: Evidence) -> Conclusion | None:
    """How the case ends if its job was lost, broken, cancelled for its pace or never submitted; None if it ran."""
    job = evidence.outcome.job
    if job.failure == "lost":
        return ended(evidence, Kind.LOST, [job.message], job_lines(evidence.outcome))
    if job.failure == "skipped":
        return ended(evidence, Kind.SKIPPED, [job.message])
    if job.failure in ("infrastructure", "interrupted"):
        lines = [*job_lines(evidence.outcome), *error_quotes(evidence.errors)]
        # Where logs are replayed there is no cluster: the files are not those of the case, and to run it again changes nothing.
        kind = Kind.INVALID if job.backend == REPLAY else Kind.INFRASTRUCTURE
        return ended(evidence, kind, [job.message], lines)
    if job.failure == "given up" and evidence.numbers.baseline is not None:
        return judge_given_up(replace(evidence, runs=(evidence.own,)), evidence.numbers.baseline)
    return None


def _invalid(evidence: Evidence) -> Conclusion | None:
    """How the case ends if its job died, or if what it left is no evidence; None if all is."""
    case, log, outcome, gpus = evidence.case, evidence.log, evidence.outcome, evidence.own.gpus
    kind = kind_of(case)
    unmet = kind.problems(evidence)
    not_idle = () if gpus is None else gpus.not_idle
    lines = job_lines(outcome)
    if validity.died(case, log, succeeded=outcome.succeeded):
        # What was saved until then is looked at, because it says more of the end.
        saved = unmet if case.leaves_checkpoint and evidence.artefacts is not None else []
        reasons = [how_it_died(case, outcome, log), *saved, *not_idle]
        return ended(evidence, Kind.INFRASTRUCTURE, reasons, [*lines, *quotes(evidence)])
    reasons = [*_elsewhere(case, outcome), *_problems(evidence), *unmet, *hardware.spoiled(gpus)]
    if reasons:
        lines += kind.left_lines(evidence)
        if not validity.complete(case, log):
            # A launcher may hide its program's exit code. The end of the log may say why the run is incomplete.
            lines += quotes(evidence)
        if not log.steps:
            reasons += not_idle
        return ended(evidence, Kind.INVALID, reasons, lines)
    early = hardware.unended(case, gpus)
    if early:
        reasons = [early, *filter(None, [outcome.job.message])]
        return ended(evidence, Kind.INVALID, reasons, [*lines, *quotes(evidence)])
    return None


def _elsewhere(case: Case, outcome: Outcome) -> Iterator[str]:
    """Why the runs tell nothing of the node that the case screens. The node of a replayed log is not known."""
    for job in (*outcome.repeated, outcome.job):
        ran = job.state.nodes.replace(" ", "-")
        if case.node and job.backend != REPLAY and ran != case.node:
            yield f"it was to run on {case.node}, and ran on {ran or 'a node that the cluster does not tell'}"


def _problems(evidence: Evidence) -> list[str]:
    """The reasons why the logs of these runs are no evidence, those of the last run first."""
    reasons = [*_of_log(evidence, evidence.own), *log_faults(evidence.outcome)]
    earlier = list(enumerate(evidence.runs[:-1], start=1))
    for number, run in earlier:
        reasons += [f"run {number}: {reason}" for reason in _of_log(evidence, run)]
    for number, run in earlier:
        spoiled = [*hardware.spoiled(run.gpus), hardware.unended(evidence.case, run.gpus)]
        reasons += [f"run {number}: {reason}" for reason in spoiled if reason]
    return reasons


def _of_log(evidence: Evidence, run: Run) -> list[str]:
    reasons = validity.problems(evidence.timed(run, evidence.numbers.statistic))
    none_read = not run.log.steps and not run.log.restarted_after
    if none_read and run is evidence.own and evidence.like_a_step:
        reasons[-1] += f'; none can be read from lines such as "{evidence.like_a_step}"'
    return reasons
