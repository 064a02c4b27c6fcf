"""Validity comes before speed: was it this job, this configuration, and all of it? Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from itertools import groupby
from itertools import pairwise

from plugins.baselines.file import Accelerator
from plugins.judging import checkpoints
from plugins.judging import identity
from plugins.logs import Log
from plugins.logs import Step
from plugins.logs.smoothing import NEIGHBOURS
from plugins.logs.smoothing import QUEUE_SHARE
from plugins.logs.smoothing import desmoothed
from plugins.logs.smoothing import impossible
from plugins.metrics import Statistic
from plugins.metrics import recent_count
from plugins.metrics import steady_lines
from plugins.metrics import warm_up_steps
from plugins.recipes.cases import Case

# A step line that other output cut in two is known to have run, though not how long it took. Two of fifty say
# nothing about the pace; more, or one that the statistic needs, and the log is no evidence.
MAX_GARBLED = 2

# So much longer than its steps a run may take by the clock of its log; more is time that no step tells of.
CLOCK_MARGIN = 1.3
HOUR = 3600.0

# A time that is rounded by more than this share of itself tells no pace.
MAX_ROUNDING = 0.03

# The last step that a recipe with a profiler has it on (maxtext_llama2: `skip_first_n_steps_for_profiler=9 profiler_steps=3`).
PROFILED_UNTIL = 11

# Where a format states its run's configuration: without the first two half the work, or other arithmetic, may look like
# the case; a run without the others counts, because other output may have garbled them. The batch is told by each step.
_DEMANDED = {"sequence_length": "the sequence length", "fp8": "whether it computed in FP8"}
_MODEL = {
    "layers": "the number of layers",
    "hidden": "the hidden size",
    "sequence_length": "the sequence length",
}
_WANTED = {"layers": "the number of layers", "precision": "the precision"}

# Of more steps, or ranges of them, only the number is told.
_MOST_LISTED = 6

_MARK_WORDS = {
    "checkpoint": "a checkpoint was saved or loaded during the run",
    "nccl trace": "NCCL tracing was on",
    "profiler": "a profiler was on",
    "diagnostics": "a diagnostic that slows the run was on",
    "socket fallback": "NCCL fell back to TCP sockets: the fast network was not used",
    "socket network": "NCCL fell back to TCP sockets: the fast network was not used",
}


def problems(
    case: Case,
    log: Log,
    statistic: Statistic,
    part: Accelerator | None = None,
    *,
    job: str = "",
    whole: bool = True,
) -> list[str]:
    """What makes this log no evidence for `case`, in words; empty when it is valid.

    `part` is the type of the GPUs and `job` the id of the job, None and "" where nobody knows.

    Checks: every step from 0 to the last exactly once, or every interval of them where the recipe logs means; in their
    order; the number of steps that the run announced; the number of
    processes where each prints; what the run states of itself; global batch size, consumed samples and tokens a step against the case, and the
    tokens and FLOPs that follow from printed rates; no step faster than the GPU's peak; the clock of the log; loss and gradient norm
    finite and not all zero; nothing in the log that spoils a timed run. The profiler of a recipe that was published with one spoils nothing, nor the checkpoint of a case that is about
    writing one. With `whole` off, the run was
    ended on purpose: its last steps and the statistic's may be missing.
    """
    found: list[str] = []
    if not log.steps:
        if log.restarted_after:
            return [
                f"the last attempt has no training step; the one before it ended after step {log.restarted_after[-1]}"
            ]
        return ["the log has no training step" + (" (it is empty)" if not log.size else "")]
    if statistic.indices(case.steps)[-1] >= case.steps:
        found.append(f"the statistic {statistic} needs steps beyond {case.steps - 1}, the recipe's last")
    if log.planned is not None and log.planned != case.steps:
        announced = f"{log.planned} steps" if log.planned else "two different numbers of steps"
        found.append(f"the run announced {announced}, the recipe runs {case.steps}")
    # One line does not tell its interval.
    if log.interval == case.interval or not (log.interval or case.interval == 1):
        found += _sequence(case, log, statistic, whole=whole)
    else:
        means = (
            f"means over {log.interval or 'an unknown number of'} steps"
            if log.interval != 1
            else "single steps"
        )
        wanted = (
            f"the statistic {statistic} needs single ones"
            if case.interval == 1
            else f"this recipe's are means over {case.interval} (--log-interval {case.interval})"
        )
        found.append(f"the log states {means}, and {wanted}")
    if log.ranks is not None and case.gpus % log.ranks:
        found.append(
            f"{log.ranks} processes print each step, which does not divide this case's {case.gpus} GPUs"
        )
    if apart := [step.index for step in log.steps if step.disagreeing]:
        found.append(
            f"{_list(apart)}: its processes print different losses, so that two runs may share this log"
        )
    found += _demanded(log)
    found += identity.contradictions(case, log, part, job)
    found += _configuration(case, log)
    found += _too_fast(case, log, part)
    found += _clock(case, log)
    found += _digits(log)
    found += _updates(case, log.steps, statistic)
    for name, values in (
        ("loss", ((s.index, s.loss) for s in log.steps)),
        ("gradient norm", ((s.index, s.grad_norm) for s in log.steps)),
    ):
        bad = [index for index, value in values if value is not None and not math.isfinite(value)]
        if bad:
            found.append(f"the {name} is not a finite number from step {bad[0]} on ({len(bad)} steps)")
    if case.profiled and (late := (log.captured_after or 0)) > PROFILED_UNTIL:
        found.append(
            f"{_MARK_WORDS['profiler']} behind step {late}, and not on steps 9 to {PROFILED_UNTIL} as in the published run"
        )
    # Megatron-LM prints no loss where it is zero, and none of updates that were all skipped.
    updated = [
        step for step in log.steps if step.seconds is not None and step.skipped_iterations != case.interval
    ]
    if updated and not any(step.loss for step in updated):
        found.append("every loss is zero, or none is stated")
    # Within NVLink's reach no network carries anything, whichever is chosen.
    reach = part.nvlink if part else 1
    fine = {
        kind
        for kind, is_fine in (
            ("profiler", case.profiled),
            ("checkpoint", case.checkpoint),
            ("socket network", case.gpus <= reach),
        )
        if is_fine
    }
    found += [f"{_MARK_WORDS[kind]}: {line}" for kind, line in log.marks if kind not in fine]
    if case.checkpoint is not None:
        found += checkpoints.problems(case, log)
    return found


def untold(case: Case, log: Log) -> str:
    """What the log might tell of its run and does not, where the run counts all the same; "" where it tells all."""
    if log.tells == "configuration" and (missing := identity.unstated(log.facts, _WANTED)):
        return (
            f"the log does not state {missing} (its record of the configuration is garbled); judged without"
        )
    told = any(step.flops_per_gpu for step in log.steps) or not identity.unstated(log.facts, _MODEL)
    if log.tells == "rate" and case.checkpoint is None and not told:
        return (
            "nothing in the log tells which model ran, and of which sequence length: Megatron-LM prints its throughput, "
            "which would, with --log-throughput only"
        )
    return ""


def complete(case: Case, log: Log) -> bool:
    """Whether every step of the case has been seen, and its checkpoint: the run did its work, however its clean-up ended."""
    if case.checkpoint is not None and not log.saves:
        return False
    interval = log.interval or case.interval
    stated = {step.index - back for step in log.steps for back in range(min(interval, case.steps))}
    return stated >= set(range(case.steps))


def missing(case: Case, log: Log) -> str:
    """What a log that is not whole lacks, as `steps 27, 28 and 31 to 35 are missing`."""
    absent = _missing(case, log, case.steps)
    if not log.steps:
        return "no step was seen"
    return f"{_list(absent)} {_verb(absent)} missing" if absent else "not all of it was seen"


def died(case: Case, log: Log, *, succeeded: bool) -> bool:
    """Whether a job that is over ended before its work was done, and not by the numbers of its own training."""
    not_finite = any(step.loss is not None and not math.isfinite(step.loss) for step in log.steps)
    return not succeeded and not complete(case, log) and not not_finite


def _missing(case: Case, log: Log, end: int) -> list[int]:
    """The steps before `end` that no line is of. A line of means is of all the steps that end there."""
    seen, every = {step.index for step in log.steps}, case.interval
    lines = (line for line in range(every - 1, end, every) if line not in seen)
    return [step for line in lines for step in range(line - every + 1, line + 1)]


def _sequence(case: Case, log: Log, statistic: Statistic, *, whole: bool) -> list[str]:
    found: list[str] = []
    indices = [step.index for step in log.steps]
    seen, last, every = set(indices), max(indices), case.interval
    if absent := _missing(case, log, case.steps if whole else last):
        there = f"{_list(absent)} {_verb(absent)} missing"
        ends = absent == list(range(last + 1, case.steps))
        found.append(
            f"the last step seen is {last} of 0 to {case.steps - 1}: {there}"
            if ends
            else f"{there} between steps {min(seen)} and {last}"
        )
    if late := [after for before, after in pairwise(indices) if after < before]:
        found.append(f"{_list(late)}: printed behind a later one, so that two runs may share this log")
    if last >= case.steps:
        found.append(f"the log goes on to step {last}, the recipe ends at {case.steps - 1}")
    if log.repeated:
        found.append(
            f"{_list(log.repeated)} printed more than once: two processes write this log, or two runs share it"
        )
    zero = [s.index for s in log.steps if s.seconds is not None and not 0 < s.seconds < math.inf]
    if zero:
        found.append(f"{_list(zero)}: the step time is not a positive number")
    elif last < case.steps:
        found += _means(case, log)
    garbled = [s.index for s in log.steps if s.seconds is None]
    needed = [i for i in garbled if i in statistic.lines(case.steps, every)]
    if needed:
        found.append(
            f"{_list(needed)}: the log line is garbled by other output, and the statistic {statistic} needs it"
        )
    elif len(garbled) > MAX_GARBLED:
        found.append(f"{len(garbled)} step lines are garbled by other output: {_list(garbled)}")
    return found


def _means(case: Case, log: Log) -> list[str]:
    """Whether the printed times can be the means that they should be; a time of its own is always positive."""
    if case.averaged > 1 and (at := impossible(log.steps, case.averaged)) is not None:
        return [
            f"the printed step times are not means over the last {case.averaged} steps, as this recipe's are: no steps have such means "
            f"up to step {at}; the run's step_timing_kwargs.buffer_size is another one"
        ]
    raw = sorted(desmoothed(log.steps, case.smoothing).items())
    bad = [(index, seconds) for index, seconds in raw if seconds <= 0]
    if not bad:
        return []
    index, seconds = bad[0]
    return [
        f"the printed step times are not means over the last {case.smoothing} steps, as this recipe's are: step {index} "
        f"alone would have taken {seconds:.4g} s; the run's step_timing_kwargs.buffer_size is another one"
    ]


def _demanded(log: Log) -> list[str]:
    """What a format that states its run's configuration must state of it."""
    if log.tells == "configuration" and not log.facts:
        return ["the log does not state its run's configuration: its record (PARAMETER) is missing"]
    missing = identity.unstated(log.facts, _DEMANDED) if log.tells == "configuration" else ""
    return [f"the log does not state {missing}: its record (PARAMETER) is garbled"] if missing else []


def _too_fast(case: Case, log: Log, part: Accelerator | None) -> list[str]:
    """Steps that are faster than the GPU's peak allows, by the fewest FLOPs that anybody counts."""
    peak = part.peak.get(case.dtype) if part else None
    if peak is None or case.checkpoint is not None:
        return []
    least = identity.flops_of_a_step(case, "causal-attention") / (peak * 1e12)
    known = desmoothed(log.steps, case.smoothing)
    rounding = {step.index: step.resolution for step in log.steps}
    usual = QUEUE_SHARE * statistics.median(known.values()) if log.queued else 0.0
    fast = []
    for index, seconds in sorted(known.items()):
        if seconds + rounding[index] >= least:
            continue
        firsts = range(index - NEIGHBOURS, index + 1) if log.queued else ()
        rows = [[known[i] for i in range(first, first + NEIGHBOURS + 1) if i in known] for first in firsts]
        if max((statistics.fmean(row) for row in rows if len(row) > NEIGHBOURS), default=0.0) < max(
            least, usual
        ):
            fast.append(index)
    if not fast:
        return []
    return [
        f"{_list(fast)}: faster than {part.name if part else ''} can be: {known[fast[0]]:.3g} s where {case.dtype} at its peak of "
        f"{peak:.4g} TFLOP/s takes {least:.3g} s"
    ]


def _clock(case: Case, log: Log) -> list[str]:
    """Whether more time passed between the first settled step and the last one than these steps took, by the stamps of the log."""
    known = desmoothed(log.steps, case.smoothing)
    stamped = sorted(
        (
            step
            for step in log.steps
            if step.stamp is not None and step.index >= warm_up_steps(case.steps, case.interval)
        ),
        key=lambda step: step.index,
    )
    if not stamped:
        return []
    first, last = stamped[0], stamped[-1]
    usual = statistics.median(known.values()) if known else 0.0
    told = passed = 0.0
    shifted = False
    for before, after in pairwise(stamped):
        assert before.stamp is not None
        assert after.stamp is not None
        between = range(before.index + case.interval, after.index + 1, case.interval)
        took, gap = (
            case.interval * sum(known.get(index, usual) for index in between),
            after.stamp - before.stamp,
        )
        # A clock is put forward by an hour once a year.
        if not shifted and HOUR <= gap + 1 - took <= HOUR + took + 2:
            gap, shifted = gap - HOUR, True
        told, passed = told + took, passed + gap
    if passed <= told * CLOCK_MARGIN + first.stamp_resolution + last.stamp_resolution:
        return []
    return [
        f"by the log's own clock {passed:.0f} s passed between steps {first.index} and {last.index}, which add up to {told:.0f} s: "
        f"the rest is time that no step tells of"
    ]


def _digits(log: Log) -> list[str]:
    """Whether the times are printed in enough digits to tell a pace."""
    timed = [step for step in log.steps if step.seconds and 0 < step.seconds < math.inf]
    if not timed:
        return []
    coarse = statistics.median(step.resolution for step in timed) / statistics.median(
        step.seconds or 0.0 for step in timed
    )
    return (
        [f"the step times are printed in too few digits: each is known to {100 * coarse:.2g} %"]
        if coarse > MAX_ROUNDING
        else []
    )


def _configuration(case: Case, log: Log) -> list[str]:
    steps, flops = log.steps, identity.flops_of_a_step(case, identity.counted_by(case, log))
    found: list[str] = []
    if all(step.gbs is None and step.consumed_samples is None and step.tokens is None for step in steps):
        return ["no line states the global batch size, the consumed samples or the tokens of a step"]
    for step in steps:
        if step.gbs is not None and step.gbs != case.gbs:
            found.append(f"global batch size {step.gbs} at step {step.index}, this case runs {case.gbs}")
        elif (
            step.consumed_samples is not None
            and abs(step.consumed_samples - (step.index + 1) * case.gbs) > step.consumed_resolution
        ):
            rounded = f" (rounded to {2 * step.consumed_resolution:g})" if step.consumed_resolution else ""
            found.append(
                f"{step.consumed_samples} consumed samples{rounded} after step {step.index}, "
                f"{step.index + 1} x GBS {case.gbs} is {(step.index + 1) * case.gbs}"
            )
        elif step.tokens is not None and step.tokens != case.tokens_per_step:
            found.append(
                f"{step.tokens} tokens (total_weights) at step {step.index}, GBS {case.gbs} x sequence length "
                f"{case.sequence_length} is {case.tokens_per_step}"
            )
        elif other := identity.counts_as(case, step, flops):
            found.append(other)
    return found[:1] + ([f"and {len(found) - 1} more such steps"] if len(found) > 1 else [])


def _updates(case: Case, steps: tuple[Step, ...], statistic: Statistic) -> list[str]:
    """Steps without an update. Skipped ones are shorter; mixed precision skips some when it begins, which is fine.

    FP16 begins with a loss scale of 2^32 and halves it at each step that it skips, so into the second ten steps.
    """
    found: list[str] = []
    bad = [step.index for step in steps if step.nan_iterations]
    if bad:
        found.append(f"{_list(bad)}: the loss or a gradient was not a number")
    if case.checkpoint is not None:
        # Its steps are not judged.
        return found
    last = steady_lines(case.steps, case.interval)[-recent_count(case.interval) :]
    judged = {*statistic.lines(case.steps, case.interval), *last}
    skipped = [step.index for step in steps if step.skipped_iterations and step.index in judged]
    if skipped:
        found.append(f"{_list(skipped)}: the update was skipped, and the judgement needs it")
    return found


def _list(indices: Iterable[int]) -> str:
    """`step 7`, `steps 7 and 8`, or `steps 7, 8, 11 to 15 and 12 more`."""
    known = list(indices)
    runs = groupby(enumerate(known), lambda pair: pair[1] - pair[0])
    found = [[index for _, index in run] for _, run in runs]
    parts = [part for run in found for part in ([run] if len(run) > 2 else [[index] for index in run])]
    words = [f"{part[0]} to {part[-1]}" if len(part) > 1 else f"{part[0]}" for part in parts[:_MOST_LISTED]]
    if rest := sum(map(len, parts[_MOST_LISTED:])):
        words.append(f"{rest} more")
    listed = " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
    return f"step{'s' if len(known) > 1 else ''} {listed}"


def _verb(indices: list[int]) -> str:
    return "are" if len(indices) > 1 else "is"
