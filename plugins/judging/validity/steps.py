"""Whether the log has every step of the recipe, once and in order, and whether these trained the model. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

from plugins.base.words import counted
from plugins.judging.validity.run import Check, TimedRun, absent, are_missing, listed, without_time
from plugins.logs.marks import MARKS
from plugins.logs.nodes import other_networks
from plugins.modes import checkpoints

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
        yield f"{ranks} processes print each step, which does not divide this case's {counted(gpus, 'GPU')}"


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


PROFILED_UNTIL = 11
"""If a recipe was published with a profiler, this is the last step that is profiled.

maxtext_llama2: `skip_first_n_steps_for_profiler=9 profiler_steps=3`.
"""

PROFILER_LATE = 3
"""The profiler's word that it has ended may come so many steps later: another process prints it."""

LOSS_LIMIT = 5
"""A loss of more than so many times ln(vocabulary) is no cross-entropy of a model that trains."""

MANY_LOSSES = 5
"""All of so many lines or more do not have the same loss by chance. A run of 100 iterations has ten lines, and FP16 skips the first."""


def _is_profile(run: TimedRun) -> bool:
    return run.case.mode is not None and run.case.mode.profiles is not None


EXPECTED: dict[str, Callable[[TimedRun], bool]] = {
    "profiler": lambda run: run.case.profiled is True or _is_profile(run),
    "profiler setting": lambda run: bool(run.case.profiled) or _is_profile(run),
    "profiler throughout": _is_profile,
    "nccl trace": lambda run: run.case.mode is not None and run.case.mode.nccl_trace,
    "checkpoint": lambda run: run.case.checkpoint is not None or run.case.after is not None,
    "socket network": lambda run: run.within_nvlink,
}
"""The kinds of marks that do not spoil every run, and which runs they do not spoil."""


def updates_are_numbers(run: TimedRun) -> Iterator[str]:
    bad = [step.index for step in run.log.steps if step.nan_iterations]
    if bad:
        yield f"{listed(bad)}: the loss or a gradient was not a number"


def updates_are_made(run: TimedRun) -> Iterator[str]:
    """No step that is judged skips its update, which makes it shorter.

    Mixed precision may skip some at the start: FP16 begins with a loss scale of 2^32 and halves it at each
    skipped step, up to the second ten steps. A case whose pace is not judged judges no step.
    """
    case = run.case
    if not case.is_timed:
        return
    last = case.means.steady(case.steps)[-case.means.unit.recent :]
    skipped = [step.index for step in run.log.steps if step.skipped_iterations]
    if skipped and case.dtype != "fp16":
        yield f"{listed(skipped)}: the update was skipped, for which {case.dtype} has no reason: only FP16 scales its loss"
        return
    judged = {*case.means.lines(run.statistic.indices(case.steps)), *last}
    needed = [index for index in skipped if index in judged]
    if needed:
        yield f"{listed(needed)}: the update was skipped, and the judgement needs it"


def finite(run: TimedRun) -> Iterator[str]:
    for name, values in (
        ("loss", [(step.index, step.loss) for step in run.log.steps]),
        ("gradient norm", [(step.index, step.grad_norm) for step in run.log.steps]),
    ):
        bad = [index for index, value in values if value is not None and not math.isfinite(value)]
        if bad:
            yield f"the {name} is not a finite number from step {bad[0]} on ({len(bad)} steps)"


def loss_of_training(run: TimedRun) -> Iterator[str]:
    """A cross-entropy is not negative, is near ln(vocabulary) at first, and changes with each update.

    A model that guesses every token alike has ln(vocabulary).
    """
    losses = [
        (step.index, step.loss)
        for step in run.log.steps
        if step.loss is not None and math.isfinite(step.loss)
    ]
    highest = LOSS_LIMIT * math.log(run.case.model.vocab)
    for index, loss in losses:
        if loss < 0:
            yield f"the loss is {loss:g} at step {index}: a cross-entropy is not negative"
            return
        if loss > highest:
            yield f"the loss is {loss:g} at step {index}: a model that guesses every token alike has {math.log(run.case.model.vocab):.1f}"
            return
    if len(losses) >= MANY_LOSSES and losses[0][1] and len({loss for _, loss in losses}) == 1:
        yield f"the loss is {losses[0][1]:g} in all of {len(losses)} lines: nothing was learnt"


def profiled_as_published(run: TimedRun) -> Iterator[str]:
    begun, ended = run.log.captured_after, run.log.captured_until or 0
    if not run.case.profiled or begun is None:
        return
    if begun > PROFILED_UNTIL:
        yield f"{MARKS['profiler'].says} behind step {begun}, and not on steps 9 to {PROFILED_UNTIL} as in the published run"
    elif ended > PROFILED_UNTIL + PROFILER_LATE:
        yield f"{MARKS['profiler'].says} until step {ended}, and not on steps 9 to {PROFILED_UNTIL} as in the published run"


def has_a_loss(run: TimedRun) -> Iterator[str]:
    """Each line has a loss, which is not zero, as far as an update was made. Other output may have garbled it in a few lines.

    Megatron-LM prints none if it is zero or not a number (training.py `training_log`: `if avg > 0.0`), or if all updates were
    skipped. MaxText prints 0.000 once synthetic data are learnt by heart.
    """
    every = run.case.means.every
    updated = [s for s in run.log.steps if s.seconds is not None and (s.skipped_iterations or 0) < every]
    losses = {step.index: step.loss for step in updated if not step.nan_iterations}
    lost = [index for index, loss in losses.items() if loss is None or (not loss and not run.log.queued)]
    if losses and not any(losses.values()):
        if any(loss is not None for loss in losses.values()):
            yield "every loss is zero"
        else:
            yield "no loss is stated"
    elif len(lost) > MAX_GARBLED or (lost and lost[-1] == max(losses)):
        yield f"{listed(lost)}: no loss above zero is stated, so it was not a number, or nothing was trained"


def gradients(run: TimedRun) -> Iterator[str]:
    """Some gradient is not zero. Megatron prints 0.000 if it does not clip the gradients (megatron/core/optimizer/optimizer.py `step`)."""
    norms = [step.grad_norm for step in run.log.steps if step.grad_norm is not None]
    if norms and not any(norms):
        yield f"the gradient norm is 0 in all of {len(norms)} lines: nothing was learnt, or the gradients were not clipped as in the published run"


def unspoilt(run: TimedRun) -> Iterator[str]:
    """No line says that something made the run slower, unless `EXPECTED` allows it."""
    for kind, line in run.log.marks:
        if kind not in EXPECTED or not EXPECTED[kind](run):
            yield f"{MARKS[kind].says}: {line}"


def over_the_network(run: TimedRun) -> Iterator[str]:
    """Between its nodes the run used the network of the site. The digest of a trace is judged by itself."""
    if run.network is None or run.nodes == 1 or EXPECTED["nccl trace"](run):
        return
    processes = run.log.processes
    if run.within_nvlink:
        processes = tuple(replace(process, networks=()) for process in processes)
    yield from other_networks(processes, run.network)


def checkpoint(run: TimedRun) -> Iterator[str]:
    """A case that writes a checkpoint wrote one, and all of it."""
    if run.case.checkpoint is not None:
        yield from checkpoints.problems(run.case, run.log)


TRAINING_CHECKS: tuple[Check, ...] = (
    updates_are_numbers,
    updates_are_made,
    finite,
    loss_of_training,
    profiled_as_published,
    has_a_loss,
    gradients,
    unspoilt,
    over_the_network,
    checkpoint,
)
