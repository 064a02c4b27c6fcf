"""Judges a case: first whether its run is valid, then whether it is fast enough. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from plugins.baselines.expected import Expected, expected
from plugins.baselines.file import Reference
from plugins.baselines.numbers import Numbers
from plugins.baselines.store import Baseline
from plugins.baselines.versions import mixed, since, versions_of
from plugins.digests.artefacts import Artefacts
from plugins.digests.gpu_samples import Gpus
from plugins.judging import checkpoints, identity, modes, validity
from plugins.judging import cpus as cpu_judging
from plugins.judging import gpus as gpu_judging
from plugins.judging.checkpoints import Written
from plugins.judging.diagnosis import Diagnosis
from plugins.judging.diagnosis import explain as explain_diagnosis
from plugins.judging.evidence import Evidence
from plugins.judging.model import counted_by
from plugins.judging.repeats import Repeats, judge_runs, remarks_on, together, unsure
from plugins.judging.validity.times import clock_remark, even_remark
from plugins.judging.verdicts import Verdict, describe, explain, stall_remarks, steadiness
from plugins.judging.verdicts import judge as judge_pace
from plugins.logs import Attempt, Log
from plugins.metrics import Measurement, MfuBasis, Statistic, Timing, levelled, timing, with_pace
from plugins.outcome import Outcome
from plugins.recipes.cases import Case
from plugins.record.baseline import Tolerance
from plugins.record.verdict import Kind

# If the step time of the slowest process is above the median of all by this share, a remark names the
# process.
SLOW_RANK = 0.02

# If a job ran longer than this many times its steps, plus this many seconds for its start, a remark says so.
STEPS_SHARE = 1.3
START_SECONDS = 1800.0

BY_AGREED = "judged by the tolerance of the acceptance plan"
"""So begins the remark on such a tolerance."""


@dataclass(frozen=True)
class Judgement:
    """The judgement of one case: the verdict, and what it rests on.

    `measurement` and `expected` are None if nothing was measured, or if there is no baseline. `written` is
    the checkpoint of a case that writes one, `artefacts` what a run in another mode left on the cluster; such
    cases have no measurement. `references` are figures of others for comparison, `details` the lines of the
    report below the headline. `diagnosis` is what is known of the cause of a verdict, `gpus` what the log tells
    of its GPUs.

    If the case ran several times, `runs` has the measurement of each run: the earlier ones in the order of
    `outcome.earlier`, then this one.
    """

    case: Case
    outcome: Outcome
    log: Log
    verdict: Verdict
    statistic: Statistic
    measurement: Measurement | None = None
    expected: Expected | None = None
    references: tuple[Reference, ...] = ()
    details: tuple[str, ...] = ()
    runs: tuple[Measurement, ...] = ()
    written: Written | None = None
    artefacts: Artefacts | None = None
    diagnosis: Diagnosis | None = None
    gpus: Gpus | None = None

    @property
    def versions(self) -> dict[str, str]:
        """The versions that the run was made with, as far as they are known."""
        return versions_of(self.outcome, self.log)

    @property
    def diagnosable(self) -> bool:
        """Whether it is worth finding the cause: the pace is measured, and it is not the expected one."""
        return self.measurement is not None and self.verdict.kind in (Kind.TOO_SLOW, Kind.NOISY)

    @property
    def text(self) -> str:
        """Headline, figures and remarks, for a terminal."""
        found = explain_diagnosis(self.diagnosis) if self.diagnosis else []
        lines = [f"  {line}" for line in (*self.details, *found)]
        lines += [f"  remark    {remark}" for remark in self.verdict.remarks]
        return "\n".join([f"{self.case.key}: {self.verdict.headline}", *lines])


def judge(evidence: Evidence) -> Judgement:
    """Judge a case by its evidence."""
    case, outcome, log, numbers = evidence.case, evidence.outcome, evidence.log, evidence.numbers
    baseline, statistic, part, gpu = numbers.baseline, numbers.statistic, numbers.accelerator, numbers.gpu
    gpus, artefacts, saved = evidence.own.gpus, evidence.artefacts, evidence.saved
    last_lines, errors = evidence.last_lines, evidence.errors

    def ended(kind: Kind, headline: str, *, details: Sequence[str] = ()) -> Judgement:
        verdict = Verdict(kind, f"{kind}: {headline}", _log_remarks(outcome))
        return Judgement(case, outcome, log, verdict, statistic, details=tuple(details), gpus=gpus)

    job, failure, message = _job_lines(outcome), outcome.job.failure, outcome.job.message
    if failure == "lost":
        return ended(Kind.LOST, message, details=job)
    if failure == "skipped":
        return ended(Kind.SKIPPED, message)
    if failure in ("infrastructure", "interrupted"):
        return ended(Kind.INFRASTRUCTURE, message, details=[*job, *_quoted((), errors)])
    if failure == "given up" and baseline is not None:
        return _judge_given_up(evidence.alone(), baseline)
    problems = validity.problems(case, log, statistic, part, started=evidence.own.started)
    problems += _fault_of_log(outcome)
    for number, run in enumerate(evidence.runs[:-1], start=1):
        found = validity.problems(case, run.log, statistic, part, started=run.started)
        problems += [f"run {number}: {problem}" for problem in found]
    for number, run in enumerate(evidence.runs[:-1], start=1):
        found = [*gpu_judging.spoiled(run.gpus), gpu_judging.unended(case, run.gpus)]
        problems += [f"run {number}: {problem}" for problem in found if problem]
    left = modes.problems(case, artefacts, nodes=evidence.site.nodes, network=evidence.site.network)
    problems += left + gpu_judging.spoiled(gpus)
    if validity.died(case, log, succeeded=outcome.succeeded):
        why = [_died(case, outcome, log), *(left if artefacts and case.leaves_checkpoint else ())]
        why += gpus.not_idle if gpus else ()
        return ended(Kind.INFRASTRUCTURE, "; ".join(why), details=[*job, *_quoted(last_lines, errors)])
    problems += checkpoints.load_problems(case, log, saved)
    if problems:
        # A launcher may hide its program's exit code. If the run is incomplete, the end of its log may say
        # why.
        quoted = [] if validity.complete(case, log) else _quoted(last_lines, errors)
        problems += gpus.not_idle if gpus and not log.steps else ()
        if artefacts is not None and not case.leaves_checkpoint:
            quoted = [*modes.explain(case, log, artefacts), *quoted]
        return ended(Kind.INVALID, "; ".join(problems), details=[*job, *quoted])
    if early := gpu_judging.unended(case, gpus):
        early = f"{early}; {message}" if message else early
        return ended(Kind.INVALID, early, details=[*job, *_quoted(last_lines, errors)])
    remarks = _job_remarks(case, outcome, log)
    if case.checkpoint is not None:
        written = checkpoints.written_by(case, log, artefacts, evidence.site.promised)
        kind, headline = checkpoints.judge(written)
        details = (*checkpoints.explain(case, written), *job)
        verdict = Verdict(kind, headline, remarks)
        return Judgement(case, outcome, log, verdict, statistic, written=written, details=details)
    if saved is not None and case.after is not None:
        headline = f"{Kind.PASSED}: {checkpoints.load_headline(case, log, saved)}"
        verdict = Verdict(Kind.PASSED, headline, (*checkpoints.load_remarks(log, saved), *remarks))
        details = (*_identity_line(case, log), *job)
        return Judgement(case, outcome, log, verdict, statistic, details=details)
    if case.mode is not None and artefacts is not None:
        verdict = Verdict(Kind.PASSED, f"{Kind.PASSED}: {modes.headline(case, artefacts)}", remarks)
        details = (*modes.explain(case, log, artefacts), *_identity_line(case, log), *job)
        return Judgement(case, outcome, log, verdict, statistic, artefacts=artefacts, details=details)
    basis = evidence.basis
    if basis is None and baseline is not None:
        return ended(
            Kind.INVALID, "the run did not state its machine's own peak, which MFU is counted against"
        )
    others = numbers.references
    runs = [_measurement(case, run, statistic, basis) for run in evidence.logs]
    if baseline is None or basis is None:
        measurement = together(runs)
        pace = f"{measurement.step_time:.4g} s a step, {measurement.tokens_per_second:,.0f} tokens/s, {steadiness(measurement)}"
        verdict = Verdict(
            Kind.NO_BASELINE,
            f"{Kind.NO_BASELINE}: measured {pace}; nothing to compare with: baselines/{case.recipe}.yaml has no "
            f"{case.id} of release {case.release} on {gpu}{f', {numbers.why_none}' if numbers.why_none else ''}",
            (*remarks_on(runs), *stall_remarks(measurement, Tolerance()), *remarks),
        )
        of_gpus = gpu_judging.lines(gpus, measurement, part)
        details = (
            *describe(measurement, others),
            *of_gpus,
            *_run_lines(runs),
            *_identity_line(case, log),
            *job,
        )
        verdict = gpu_judging.explained(verdict, gpus, None)
        verdict = cpu_judging.explained(verdict, case, evidence.logs, measurement, None)
        return Judgement(
            case, outcome, log, verdict, statistic, measurement, None, others, details,
            runs=tuple(runs) if len(runs) > 1 else (), gpus=gpus,
        )  # fmt: skip
    target = expected(case, baseline, basis)
    measurement, verdict = _judged(runs, target, strict_last=evidence.strict_last)
    verdict = Verdict(
        verdict.kind,
        verdict.headline,
        (
            *verdict.remarks,
            *_agreed(runs, target, verdict, strict_last=evidence.strict_last),
            *_dispatched(case, log, statistic),
            *_other_versions(baseline, outcome, log),
            *remarks,
        ),
    )
    changes = _changes(verdict, measurement, target, outcome, log)
    of_run = next(
        (run.gpus for run, measured in zip(evidence.runs, runs, strict=True) if measured is measurement), gpus
    )
    verdict = gpu_judging.explained(verdict, of_run, baseline.table.product)
    verdict = cpu_judging.explained(verdict, case, evidence.logs, measurement, target)
    if verdict.kind is Kind.PASSED and (
        low := [
            f"run {number}: {why}"
            for number, run in enumerate(evidence.runs, start=1)
            for why in gpu_judging.low(run.gpus, baseline.table.product)
        ]
    ):
        verdict = Verdict(
            Kind.INVALID, f"{Kind.INVALID}: {'; '.join(low)}", (verdict.headline, *verdict.remarks)
        )
    details = (
        *explain(measurement, target, others),
        *gpu_judging.lines(of_run, measurement, part, baseline.table),
        *_run_lines(runs),
        *_identity_line(case, log),
        *changes,
        *_job_lines(outcome),
    )
    return Judgement(
        case, outcome, log, verdict, statistic, measurement, target, others, details,
        runs=tuple(runs) if len(runs) > 1 else (), gpus=gpus,
    )  # fmt: skip


def another_run(case: Case, logs: Sequence[Log], numbers: Numbers, repeats: Repeats) -> str:
    """Why the case needs one more run; "" if the runs of `logs` are enough.

    All runs of `logs` ended well. If a run is not valid, the case is decided; so it is without a baseline,
    unless every case runs several times.
    """
    baseline = numbers.baseline
    more = f"run {len(logs)} of {repeats.at_most} has ended" if len(logs) < repeats.at_most else ""
    if not case.is_timed or not more:
        return ""
    if baseline is None:
        return more if repeats.always else ""
    basis, part = numbers.counting.basis(cpu_judging.peak(case, logs)), numbers.accelerator
    if basis is None or any(validity.problems(case, log, baseline.statistic, part) for log in logs):
        return ""
    if repeats.always:
        return more
    target = expected(case, baseline, basis)
    runs = [_measurement(case, log, baseline.statistic, basis) for log in logs]
    return unsure(runs, target, repeats.at_most)


def _measurement(case: Case, log: Log, statistic: Statistic, basis: MfuBasis | None) -> Measurement:
    return Measurement(case, _timing(case, log, statistic), basis)


def _timing(case: Case, log: Log, statistic: Statistic) -> Timing:
    """The step times of a valid run, levelled if the format prints them from dispatch to dispatch."""
    steps = levelled(log.steps) if log.queued else log.steps
    return timing(steps, statistic, case.means)


def _dispatched(case: Case, log: Log, statistic: Statistic) -> list[str]:
    """The remark on the steps of the statistic whose printed time was levelled; empty if there are none."""
    needed = case.means.lines(statistic.indices(case.steps)) if log.queued else ()
    changed = [
        f"{printed.index} (printed: {printed.seconds:.4g} s)"
        for printed, step in zip(log.steps, levelled(log.steps), strict=True)
        if printed.index in needed and printed.seconds is not None and step.seconds != printed.seconds
    ]
    steps = f"step{'s' if len(changed) > 1 else ''} {', '.join(changed)}"
    return [f"{steps}: a time between dispatches, seen together with its neighbour's"] if changed else []


def _judged(
    runs: Sequence[Measurement], target: Expected, *, strict_last: bool
) -> tuple[Measurement, Verdict]:
    return (
        (runs[-1], judge_pace(runs[-1], target, strict_last=True))
        if strict_last
        else judge_runs(runs, target)
    )


def _agreed(
    runs: Sequence[Measurement], target: Expected, verdict: Verdict, *, strict_last: bool
) -> list[str]:
    """The remark on a tolerance that an acceptance plan put in the place of the baseline's own."""
    baseline = target.baseline
    own, now = baseline.published_tolerance.model_dump(), baseline.tolerance.model_dump()
    told = [
        f"{key} {value:g} (the baseline's own is {own[key]:g})"
        for key, value in now.items()
        if value != own[key]
    ]
    if not told:
        return []
    by_own = replace(target, baseline=replace(baseline, agreed=None))
    _, otherwise = _judged(runs, by_own, strict_last=strict_last)
    differs = otherwise.kind is not verdict.kind
    alone = f"; by the baseline's own it would be {otherwise.headline}" if differs else ""
    return [f"{BY_AGREED}: {', '.join(told)}{alone}"]


def _other_versions(baseline: Baseline, outcome: Outcome, log: Log) -> list[str]:
    """The remarks on versions that differ from those that the baseline was measured with."""
    now = versions_of(outcome, log)
    return [
        f"the run has {name} {now[name]}, the baseline was measured with {version}"
        for name, version in baseline.table.versions.items()
        if now.get(name, version) != version
    ]


def _identity_line(case: Case, log: Log) -> list[str]:
    """What the log states of the run's identity, and what it does not state: a line of the report."""
    said = identity.stated_by(case, log)
    told = ", ".join(f"{kind} ({words})" for kind, words in said.items() if words)
    untold = ", ".join(kind for kind, words in said.items() if not words)
    rated = len(log.flops) > 1 and any(step.flops_per_gpu for step in log.steps)
    counted = f"; its TFLOP/s are by {counted_by(case, log)}" if rated else ""
    made = "".join(f"; {name} {value}" for name, value in log.versions if name == "jax")
    return [f"identity  {told or 'nothing'}" + (f"; not stated: {untold}" if untold else "") + counted + made]


def _run_lines(runs: Sequence[Measurement]) -> list[str]:
    """The line of the report on each run, if there are several."""
    return [
        f"run {number}     {run.step_time:.4g} s a step, steady {run.timing.steady:.4g} s, spread {100 * run.timing.spread:.2g} %, "
        f"{len(run.timing.hiccups)} stalls"
        for number, run in enumerate(runs, start=1)
        if len(runs) > 1
    ]


def _judge_given_up(evidence: Evidence, baseline: Baseline) -> Judgement:
    """Judge a run that was cancelled for its pace. It must be valid, but its last steps may be missing."""
    case, outcome, log, gpus = evidence.case, evidence.outcome, evidence.log, evidence.own.gpus
    job, part = _job_lines(outcome), evidence.numbers.accelerator
    problems = validity.problems(
        case, log, baseline.statistic, part, started=evidence.own.started, whole=False
    )
    problems += _fault_of_log(outcome)
    problems += gpu_judging.spoiled(gpus)
    basis = evidence.basis
    timed = with_pace(log.steps, case.means)
    if problems or basis is None or not timed:
        words = "; ".join(problems) or (
            "the run did not state its machine's own peak"
            if timed
            else "it was given up for its pace, and no settled step in its log has a time that can be read"
        )
        return Judgement(
            case,
            outcome,
            log,
            Verdict(Kind.INVALID, f"{Kind.INVALID}: {words}", _log_remarks(outcome)),
            baseline.statistic,
            details=tuple(job),
            gpus=gpus,
        )
    # The published statistic needs steps that never ran, so the last step and the steady median are measured.
    measurement = _measurement(case, replace(log, steps=timed), Statistic(), basis)
    target = expected(case, baseline, basis)
    verdict = Verdict(
        Kind.TOO_SLOW, f"{Kind.TOO_SLOW}: {outcome.job.message}", _job_remarks(case, outcome, log)
    )
    verdict = gpu_judging.explained(verdict, gpus, baseline.table.product)
    changes = _changes(verdict, measurement, target, outcome, log)
    details = (*explain(measurement, target), *gpu_judging.lines(gpus, measurement, part), *changes, *job)
    return Judgement(
        case, outcome, log, verdict, Statistic(), measurement, target, details=details, gpus=gpus
    )


def _changes(
    verdict: Verdict, measurement: Measurement, target: Expected, outcome: Outcome, log: Log
) -> list[str]:
    """What changed since the run that recorded the baseline, if this run does not reach it."""
    recorded = target.baseline.cell.recorded
    if recorded is None or not verdict.fails:
        return []
    return since(recorded, outcome, log, measurement.timing.spread)


def _died(case: Case, outcome: Outcome, log: Log) -> str:
    """`job 17 ended NODE_FAIL on gpu[001-064] after step 17 of 0 to 49`."""
    last = log.last_index
    after = "before its first step" if last is None else f"after step {last} of 0 to {case.steps - 1}"
    state = outcome.job.state
    where = f" on {state.nodes}" if state.nodes else ""
    why = ", ".join(
        part
        for part in (
            f"reason {state.reason}" if state.reason else "",
            f"exit code {state.exit_code}" if state.exit_code else "",
        )
        if part
    )
    return f"job {outcome.job.ref.id} ended {state.raw or 'without a state'}{where} {after}" + (
        f" ({why})" if why else ""
    )


def _job_lines(outcome: Outcome) -> list[str]:
    ref, state, times = outcome.job.ref, outcome.job.state, outcome.job.times
    if not ref.id:
        return []
    run = times.ended - times.started if times.ended and times.started else None
    parts = [f"{ref.id} ({ref.name})"]
    parts += [state.raw] if state.raw else []
    parts += [f"nodes {state.nodes}"] if state.nodes else []
    parts += [f"queued {times.queued:.0f} s"] if times.queued is not None else []
    parts += [f"ran {run:.0f} s"] if run is not None else []
    parts += [f"without {','.join(outcome.job.excluded)}"] if outcome.job.excluded else []
    tries = [
        f"try {tried.try_number}     {tried.ref.label}"
        + (f", without {','.join(tried.excluded)}" if tried.excluded else "")
        + f": {tried.message or tried.state.raw}"
        for tried in outcome.earlier
    ]
    return tries + [f"job       {', '.join(parts)}"] + ([f"log       {outcome.log}"] if outcome.log else [])


def _quoted(log: Sequence[str], errors: Sequence[str]) -> list[str]:
    return [*(f"its log   | {line}" for line in log), *(f"its error | {line}" for line in errors)]


def _idle(case: Case, outcome: Outcome, log: Log) -> str:
    """The remark on a job that ran far longer than its steps and a start take; "" if it did not."""
    known = case.means.times(log.steps)
    times = outcome.job.times
    if times.started is None or times.ended is None or outcome.job.attempts > 1 or not case.is_timed:
        return ""
    ran, steps = times.ended - times.started, case.means.every * sum(known.values())
    if ran <= STEPS_SHARE * steps + START_SECONDS:
        return ""
    return f"the job ran {ran / 60:.0f} minutes, and its steps took {steps / 60:.1f} of them: look at what the others went into"


def _fault_of_log(outcome: Outcome) -> list[str]:
    """Why the log that was read may not be the job's own; empty if it is."""
    fault = outcome.job.log_fault
    return [f"the log on the cluster is not the one that was read: {fault}"] if fault else []


def _log_remarks(outcome: Outcome) -> tuple[str, ...]:
    return (outcome.job.log_note,) if outcome.job.log_note else ()


def _end_of(attempt: Attempt) -> str:
    """`step 17, at 2.041 s a step`."""
    pace = f", at {attempt.seconds:.4g} s a step" if attempt.seconds is not None else ""
    return f"step {attempt.last}{pace}"


def _job_remarks(case: Case, outcome: Outcome, log: Log) -> tuple[str, ...]:
    notes = (
        _idle(case, outcome, log),
        identity.untold(case, log) or identity.anonymous(case, log),
        clock_remark(case, log),
        even_remark(log),
        identity.garbled(log),
        _slow_process(log),
        _garbled_steps(case, log),
    )
    return (
        *_end_remarks(case, outcome),
        *_log_remarks(outcome),
        *_attempt_remarks(outcome, log),
        *mixed(outcome, log),
        *filter(None, notes),
    )


def _end_remarks(case: Case, outcome: Outcome) -> list[str]:
    """How this job ended, and the case's jobs before it."""
    remarks, job = [], outcome.job
    if broken := [tried for tried in outcome.earlier if tried.failure != "repeated"]:
        jobs = f"{len(broken)} job{'s' if len(broken) > 1 else ''}"
        reason = broken[-1].message or broken[-1].state.raw
        remarks.append(f"{jobs} of this case ended as infrastructure before, lastly: {reason}")
    if job.excluded:
        nodes = ",".join(job.excluded)
        remarks.append(f"kept away from {nodes}, which the end of an earlier job is blamed on")
    if job.failure == "hung":
        remarks.append(f"job {job.ref.id}: {job.message}; the pace of its steps stands")
    elif job.failure:
        pass
    elif not outcome.succeeded:
        done = "its checkpoint is there" if case.checkpoint else "every step is there, so the pace stands"
        remarks.append(
            f"job {job.ref.id} ended {job.state.raw} (exit code {job.state.exit_code or 'unknown'}) after its last "
            f"step: {done}, but look at its clean-up"
        )
    elif job.state.reason:
        remarks.append(job.state.reason)
    return remarks


def _attempt_remarks(outcome: Outcome, log: Log) -> list[str]:
    remarks, job = [], outcome.job
    if job.attempts > 1:
        if job.times.seconds is not None and not job.times.earlier_seconds:
            remarks.append(
                "its GPU-hours are of its last attempt: the cluster does not tell how long the others ran"
            )
        remarks.append(f"the job was started {job.attempts} times; judged by its last attempt")
    if log.earlier:
        ends = ", ".join(_end_of(attempt) for attempt in log.earlier)
        remarks.append(f"training started over in the same log (after {ends}); judged by the last attempt")
    return remarks


def _slow_process(log: Log) -> str:
    """The slowest process in the last step, if it is far behind the others; "" if none is."""
    last = log.steps[-1]
    if not (last.seconds and last.slowest_seconds and last.slowest_seconds > (1 + SLOW_RANK) * last.seconds):
        return ""
    process = f"process {last.slowest_rank}" if last.slowest_rank is not None else "the slowest process"
    return (
        f"{process} of {last.ranks} took {last.slowest_seconds:.4g} s in step {last.index}, the median is "
        f"{last.seconds:.4g} s"
    )


def _garbled_steps(case: Case, log: Log) -> str:
    """Which steps have no time because of other output; "" if none."""
    garbled = [step.index for step in log.steps if step.seconds is None]
    if not garbled:
        return ""
    means = (
        f", and where the printed means over {case.means.over} steps do not tell a single step, by what they do tell: "
        f"the mean of a few"
        if case.means.computed
        else ""
    )
    return f"the log lines of steps {garbled} are garbled by other output; judged without them{means}"
