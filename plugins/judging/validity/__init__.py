"""Whether a log is evidence for its case, which is asked before its speed is judged. Pure.

Each check is a function that takes the run and yields reasons why it is invalid. It is in the `CHECKS` of its
module, in the order in which the verdict gives the reasons. A line that spoils a timed run is an entry of
`plugins.logs.marks`.
"""

from __future__ import annotations

import math

from plugins.judging.validity import configuration, steps, times
from plugins.judging.validity.run import UNKNOWN as UNKNOWN
from plugins.judging.validity.run import Check, absent, are_missing
from plugins.judging.validity.run import Started as Started
from plugins.judging.validity.run import TimedRun as TimedRun
from plugins.logs import Log
from plugins.recipes.cases import Case

CHECKS: tuple[Check, ...] = (*steps.CHECKS, *configuration.CHECKS, *times.CHECKS, *steps.TRAINING_CHECKS)


def problems(run: TimedRun) -> list[str]:
    """The reasons why the log of this run is no evidence for its case; empty if the run is valid."""
    log = run.log
    if log.contents:
        return [f"the log is {log.contents}, not the text of one log"]
    if log.steps:
        return [reason for check in CHECKS for reason in check(run)]
    if log.restarted_after:
        last = log.restarted_after[-1]
        return [f"the last attempt has no training step; the one before it ended after step {last}"]
    if not log.size:
        return ["the log has no training step (it is empty)"]
    return ["the log has no training step"]


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
    if not gaps:
        return "not all of it was seen"
    return are_missing(gaps)


def died(case: Case, log: Log, *, succeeded: bool) -> bool:
    """Whether a job that is over ended early. If a loss is not finite, the run is invalid instead."""
    not_finite = any(step.loss is not None and not math.isfinite(step.loss) for step in log.steps)
    return not succeeded and not complete(case, log) and not not_finite
