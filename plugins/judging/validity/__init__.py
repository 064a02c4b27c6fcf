"""Whether a log is evidence for its case, which is asked before its speed is judged. Pure.

Each check is a function that takes the run and yields reasons why it is invalid. It is in the `CHECKS` of its
module, in the order in which the verdict gives the reasons. A line that spoils a timed run is an entry of
`plugins.logs.marks`.
"""

from __future__ import annotations

import math

from plugins.baselines.accelerators import Accelerator
from plugins.judging.validity import configuration, steps, times, training
from plugins.judging.validity.run import UNKNOWN as UNKNOWN
from plugins.judging.validity.run import Check, TimedRun, absent, are_missing
from plugins.judging.validity.run import Started as Started
from plugins.logs import Log
from plugins.metrics import Statistic
from plugins.recipes.cases import Case

CHECKS: tuple[Check, ...] = (*steps.CHECKS, *configuration.CHECKS, *times.CHECKS, *training.CHECKS)


def problems(
    case: Case,
    log: Log,
    statistic: Statistic,
    part: Accelerator | None = None,
    *,
    started: Started = UNKNOWN,
    whole: bool = True,
) -> list[str]:
    """The reasons why this log is no evidence for `case`; empty if the run is valid.

    `part` is the type of GPU, None if it is unknown. If the run was cancelled
    on purpose, `whole` is false: its last steps may be missing, and the statistic may need them.
    """
    if log.steps:
        run = TimedRun(case, log, statistic, part, started, whole)
        return [reason for check in CHECKS for reason in check(run)]
    if log.restarted_after:
        last = log.restarted_after[-1]
        return [f"the last attempt has no training step; the one before it ended after step {last}"]
    return ["the log has no training step" + (" (it is empty)" if not log.size else "")]


def complete(case: Case, log: Log) -> bool:
    """Whether the log has every step of the case, and its checkpoint if the case writes one."""
    if case.checkpoint is not None and not log.saves:
        return False
    every = min(log.every or case.means.every, case.steps)
    stated = {step.index - back for step in log.steps for back in range(every)}
    return stated >= set(range(case.steps))


def missing(case: Case, log: Log) -> str:
    """What a log that is not whole lacks, as `steps 27, 28 and 31 to 35 are missing`."""
    gaps = absent(case, log, case.steps)
    if not log.steps:
        return "no step was seen"
    return are_missing(gaps) if gaps else "not all of it was seen"


def died(case: Case, log: Log, *, succeeded: bool) -> bool:
    """Whether a job that is over ended early. If a loss is not finite, the run is invalid instead."""
    not_finite = any(step.loss is not None and not math.isfinite(step.loss) for step in log.steps)
    return not succeeded and not complete(case, log) and not not_finite
