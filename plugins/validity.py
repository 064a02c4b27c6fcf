"""Validity comes before speed: was it this job, this configuration, and all of it? Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable

from plugins.cases import Case
from plugins.logs import Log
from plugins.logs import Step
from plugins.metrics import Statistic

# A step line that other output cut in two is known to have run, though not how long it took. Two of fifty say
# nothing about the pace; more, or one that the statistic needs, and the log is no evidence.
MAX_GARBLED = 2

_MARK_WORDS = {
    "checkpoint": "a checkpoint was saved or loaded during the run",
    "nccl trace": "NCCL tracing was on",
    "profiler": "a profiler was on",
    "socket fallback": "NCCL fell back to TCP sockets: the fast network was not used",
}


def problems(case: Case, log: Log, statistic: Statistic) -> list[str]:
    """What makes this log no evidence for `case`, in words; empty when it is valid.

    Checks: every step from 0 to the last exactly once; the number of steps that the run announced; global batch
    size, consumed samples and tokens a step against the case; loss and gradient norm finite; nothing in the log
    that spoils a timed run. The profiler of a recipe that was published with one spoils nothing.
    """
    found: list[str] = []
    if not log.steps:
        return ["the log has no training step" + (" (it is empty)" if not log.size else "")]
    if statistic.indices(case.steps)[-1] >= case.steps:
        found.append(f"the statistic {statistic} needs steps beyond {case.steps - 1}, the recipe's last")
    if log.planned is not None and log.planned != case.steps:
        announced = f"{log.planned} steps" if log.planned else "two different numbers of steps"
        found.append(f"the run announced {announced}, the recipe runs {case.steps}")
    found += _sequence(case, log, statistic)
    found += _configuration(case, log.steps)
    for name, values in (
        ("loss", ((s.index, s.loss) for s in log.steps)),
        ("gradient norm", ((s.index, s.grad_norm) for s in log.steps)),
    ):
        bad = [index for index, value in values if value is not None and not math.isfinite(value)]
        if bad:
            found.append(f"the {name} is not a finite number from step {bad[0]} on ({len(bad)} steps)")
    found += [
        f"{_MARK_WORDS[kind]}: {line}" for kind, line in log.marks if kind != "profiler" or not case.profiled
    ]
    return found


def complete(case: Case, log: Log) -> bool:
    """Whether every step of the case has been seen: the run did its work, however its clean-up ended."""
    return {step.index for step in log.steps} >= set(range(case.steps))


def _sequence(case: Case, log: Log, statistic: Statistic) -> list[str]:
    found: list[str] = []
    seen = {step.index for step in log.steps}
    last = max(seen)
    missing = sorted(set(range(case.steps)) - seen)
    if missing == list(range(last + 1, case.steps)) and missing:
        found.append(
            f"the last step seen is {last} of 0 to {case.steps - 1}: {_list(missing)} {_verb(missing)} missing"
        )
    elif missing:
        found.append(f"{_list(missing)} {_verb(missing)} missing between steps {min(seen)} and {last}")
    if last >= case.steps:
        found.append(f"the log goes on to step {last}, the recipe ends at {case.steps - 1}")
    if log.repeated:
        found.append(
            f"{_list(log.repeated)} printed more than once: two processes write this log, or two runs share it"
        )
    zero = [s.index for s in log.steps if s.seconds is not None and not 0 < s.seconds < math.inf]
    if zero:
        found.append(f"{_list(zero)}: the step time is not a positive number")
    garbled = [s.index for s in log.steps if s.seconds is None]
    needed = [i for i in garbled if i in statistic.indices(case.steps)]
    if needed:
        found.append(
            f"{_list(needed)}: the log line is garbled by other output, and the statistic {statistic} needs it"
        )
    elif len(garbled) > MAX_GARBLED:
        found.append(f"{len(garbled)} step lines are garbled by other output: {_list(garbled)}")
    return found


def _configuration(case: Case, steps: tuple[Step, ...]) -> list[str]:
    found: list[str] = []
    if all(step.gbs is None and step.consumed_samples is None and step.tokens is None for step in steps):
        return ["no line states the global batch size, the consumed samples or the tokens of a step"]
    for step in steps:
        if step.gbs is not None and step.gbs != case.gbs:
            found.append(f"global batch size {step.gbs} at step {step.index}, this case runs {case.gbs}")
        elif step.consumed_samples is not None and step.consumed_samples != (step.index + 1) * case.gbs:
            found.append(
                f"{step.consumed_samples} consumed samples after step {step.index}, "
                f"{step.index + 1} x GBS {case.gbs} is {(step.index + 1) * case.gbs}"
            )
        elif step.tokens is not None and step.tokens != case.tokens_per_step:
            found.append(
                f"{step.tokens} tokens (total_weights) at step {step.index}, GBS {case.gbs} x sequence length "
                f"{case.sequence_length} is {case.tokens_per_step}"
            )
    return found[:1] + ([f"and {len(found) - 1} more such steps"] if len(found) > 1 else [])


def _list(indices: Iterable[int]) -> str:
    """`step 7`, or `steps 7, 8, 9 and 12 more`."""
    known = list(indices)
    shown = ", ".join(map(str, known[:6])) + (f" and {len(known) - 6} more" if len(known) > 6 else "")
    return f"step{'s' if len(known) > 1 else ''} {shown}"


def _verb(indices: list[int]) -> str:
    return "are" if len(indices) > 1 else "is"
