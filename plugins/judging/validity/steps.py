"""Whether the log has every step of the recipe, once and in order. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from itertools import pairwise

from plugins.judging.validity.run import Check, TimedRun, absent, are_missing, listed, without_time

MAX_GARBLED = 2
"""A run with this many garbled step lines is valid, unless the statistic needs one of them."""


PROCESSES_APART = 1.3
"""By this factor the times of a step may differ between the processes of one run, in the median of the steps."""


def statistic_fits(run: TimedRun) -> Iterator[str]:
    last = run.case.steps - 1
    if run.statistic.indices(run.case.steps)[-1] > last:
        yield f"the statistic {run.statistic} needs steps beyond {last}, the recipe's last"


def announced(run: TimedRun) -> Iterator[str]:
    """The run announces as many steps as the recipe has."""
    planned, steps = run.log.planned, run.case.steps
    if planned is not None and planned != steps:
        announcement = "two different numbers of steps"
        if planned:
            announcement = f"{planned} steps"
        yield f"the run announced {announcement}, the recipe runs {steps}"


def another_run(run: TimedRun) -> Iterator[str]:
    """A run that reached its last step does not start over, unless the cluster or a launcher starts the job again."""
    last = run.case.steps - 1
    earlier = run.log.earlier
    whole = [attempt for attempt in earlier if attempt.last >= last and not attempt.mark]
    # Each start of the job is one attempt. torchrun starts the processes of one again.
    starts = run.started.times + sum("worker group" in attempt.mark for attempt in earlier)
    if whole and len(earlier) >= starts:
        attempt = whole[0]
        pace = "" if attempt.seconds is None else f" at {attempt.seconds:.4g} s a step"
        yield (
            f"an earlier run in the same log reached step {attempt.last}{pace}, and nothing says that the job was "
            f"started again: two runs share this log"
        )


def another_file(run: TimedRun) -> Iterator[str]:
    label = run.log.other_file
    if label:
        yield f'steps stand behind "{label}", so they are another file\'s: judge that file by itself'


def sequence(run: TimedRun) -> Iterator[str]:
    """Each line covers as many steps as the recipe says. If so, the checks in `SEQUENCE` apply."""
    means, every = run.case.means, run.log.every
    # A single line does not tell its interval.
    if every == means.every or not (every or means.single):
        for check in SEQUENCE:
            yield from check(run)
        return
    stated = f"means over {every or 'an unknown number of'} steps"
    if every == 1:
        stated = "single steps"
    wanted = f"this recipe's are means over {means.every} (--log-interval {means.every})"
    if means.single:
        wanted = f"the statistic {run.statistic} needs single ones"
    yield f"the log states {stated}, and {wanted}"


def missing(run: TimedRun) -> Iterator[str]:
    case, indices = run.case, [step.index for step in run.log.steps]
    first, last = min(indices), max(indices)
    gaps = absent(case, run.log, case.steps if run.whole else min(last, case.steps))
    before = run.log.restarted_after[-1:]
    if gaps and before and before[0] < first <= before[0] + case.means.every:
        yield f"the run was started again behind step {before[0]} and went on with step {first}, so no attempt ran all steps: {are_missing(gaps)}"
    elif gaps and gaps == list(range(last + 1, case.steps)):
        yield f"the last step seen is {last} of 0 to {case.steps - 1}: {are_missing(gaps)}"
    elif gaps:
        yield f"{are_missing(gaps)} between steps {first} and {last}"


def out_of_order(run: TimedRun) -> Iterator[str]:
    late = [after.index for before, after in pairwise(run.log.steps) if after.index < before.index]
    if late:
        yield f"{listed(late)}: printed behind a later one, so that two runs may share this log"


def beyond_last(run: TimedRun) -> Iterator[str]:
    last = max(step.index for step in run.log.steps)
    if last >= run.case.steps:
        yield f"the log goes on to step {last}, the recipe ends at {run.case.steps - 1}"


def repeated(run: TimedRun) -> Iterator[str]:
    indices = run.log.repeated
    if indices:
        yield f"{listed(indices)} printed more than once: two processes write this log, or two runs share it"


def positive(run: TimedRun) -> Iterator[str]:
    """Each step time is positive, also by itself if the printed times are means."""
    case, steps = run.case, run.log.steps
    zero = [s.index for s in steps if s.seconds is not None and not 0 < s.seconds < math.inf]
    if zero:
        yield f"{listed(zero)}: the step time is not a positive number"
        return
    if max(step.index for step in steps) >= case.steps:
        return
    contradiction = case.means.contradiction(steps)
    if contradiction:
        yield (
            f"the printed step times are not means over the last {case.means.over} steps, as this recipe's are: {contradiction}; "
            f"the run's step_timing_kwargs.buffer_size is another one"
        )


def garbled(run: TimedRun) -> Iterator[str]:
    indices = [step.index for step in run.log.steps if step.seconds is None]
    lines = run.case.means.lines(run.statistic.indices(run.case.steps))
    needed = [index for index in indices if index in lines]
    if needed:
        yield (
            f"{listed(needed)}: {without_time(run.log, needed)}, and the statistic {run.statistic} needs it"
        )
    elif len(indices) > MAX_GARBLED:
        yield f"{listed(indices)}: {without_time(run.log, indices)}; only {MAX_GARBLED} such steps are allowed"


def processes_of_a_step(run: TimedRun) -> Iterator[str]:
    ranks, gpus = run.log.ranks, run.case.gpus
    if ranks is not None and gpus % ranks:
        yield f"{ranks} processes print each step, which does not divide this case's {gpus} GPUs"


def one_loss(run: TimedRun) -> Iterator[str]:
    """All processes print the same loss for a step."""
    apart = [step.index for step in run.log.steps if step.disagreeing]
    if apart:
        yield f"{listed(apart)}: its processes print different losses, so that two runs may share this log"


def one_pace(run: TimedRun) -> Iterator[str]:
    """Each step needs all processes, so over many steps they take the same time."""
    settled = range(run.case.means.warm_up(run.case.steps), run.case.steps)
    apart = [
        step.slowest_seconds / step.seconds
        for step in run.log.steps
        if step.index in settled and step.seconds and step.slowest_seconds
    ]
    if apart and statistics.median(apart) > PROCESSES_APART:
        yield (
            f"the slowest process takes {statistics.median(apart):.3g} times as long as the others in most steps, so that "
            f"two runs may share this log"
        )


SEQUENCE: tuple[Check, ...] = (missing, out_of_order, beyond_last, repeated, positive, garbled)
CHECKS: tuple[Check, ...] = (
    statistic_fits,
    announced,
    another_run,
    another_file,
    sequence,
    processes_of_a_step,
    one_loss,
    one_pace,
)
