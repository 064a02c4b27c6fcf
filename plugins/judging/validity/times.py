"""Whether the step times are possible, account for the time that passed, and have enough digits. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from plugins.judging.model import flops_of_a_step, uncounted
from plugins.judging.timing import NEIGHBOURS, QUEUE_SHARE
from plugins.judging.validity.run import Check, TimedRun, listed
from plugins.logs import Log
from plugins.recipes.cases import Case

CLOCK_MARGIN = 1.3
"""By the clock of the log, a run may take this many times as long as its steps."""

CLOCK_REMARK = 1.1
"""From here on, a remark says so."""

CLOCKS_MARGIN, RANK_0_ROUNDING = 0.02, 0.005
"""The times of two processes may differ by this share, and by the rounding of rank 0's, in s. In a real log it was 0.4 %."""

MANY = 10
"""So many lines or more do not state the same time by chance."""

TOGETHER = 0.1
"""If two lines are collected within this share of the time of the step between them, they were kept back until then."""

HOUR = 3600.0

MAX_ROUNDING = 0.03
"""Step times may be rounded by at most this share of themselves."""


def below_peak(run: TimedRun) -> Iterator[str]:
    """No step is faster than the GPU's peak allows, by the definition that counts the fewest FLOPs.

    If a format prints a step when it is handed over, it may print no time for it. Then the mean with its
    neighbours counts.
    """
    case, accelerator, known = run.case, run.part, run.seconds
    if accelerator is None or case.dtype not in accelerator.peak or not case.is_timed or not known:
        return
    peak = accelerator.peak[case.dtype]
    least = enough = flops_of_a_step(case, "causal-attention") / (peak * 1e12)
    if run.log.queued:
        enough = max(least, QUEUE_SHARE * statistics.median(known.values()))
    rounding = {step.index: step.resolution for step in run.log.steps}
    fast = []
    for index, seconds in sorted(known.items()):
        if seconds + rounding[index] >= least:
            continue
        if not run.log.queued or _with_neighbours(known, index) < enough:
            fast.append(index)
    if fast:
        yield (
            f"{listed(fast)}: faster than {accelerator.name} can be: {known[fast[0]]:.3g} s where {case.dtype} at its peak of "
            f"{peak:.4g} TFLOP/s takes {least:.3g} s"
        )


def _with_neighbours(known: dict[int, float], index: int) -> float:
    """The longest mean of `NEIGHBOURS` + 1 steps in a row with this one; 0 if none are known."""
    firsts = range(index - NEIGHBOURS, index + 1)
    rows = [[known[i] for i in range(first, first + NEIGHBOURS + 1) if i in known] for first in firsts]
    return max((statistics.fmean(row) for row in rows if len(row) > NEIGHBOURS), default=0.0)


class Clock(NamedTuple):
    """What the stamps of the settled lines say: seconds `passed` by them, and seconds `counted` by the steps between them.

    `rounding` is that of both stamps, `back` counts the lines at which the clock goes back, out of `lines`.
    """

    first: int
    last: int
    counted: float
    passed: float
    rounding: float
    back: int
    lines: int


def clock_of(case: Case, log: Log) -> Clock | None:
    """None if the log has no stamps, or if they were made when lines were collected, several at once."""
    every, known = case.means.every, case.means.times(log.steps)
    settled = range(case.means.warm_up(case.steps), case.steps)
    stamped = sorted(
        (
            (step.index, step.stamp, step)
            for step in log.steps
            if step.stamp is not None and step.index in settled
        ),
        key=lambda row: row[0],
    )
    if not stamped:
        return None
    usual = statistics.median(known.values()) if known else 0.0
    counted = passed = 0.0
    shifted, back, together = False, 0, 0
    for (before, begun, _), (after, ended, step) in pairwise(stamped):
        between = range(before + every, after + 1, every)
        took = every * sum(known.get(index, usual) for index in between)
        back += ended < begun
        together += step.collected and abs(ended - begun) < TOGETHER * took
        # A clock that was put back says nothing of this time. It must not hide what is lost elsewhere.
        gap = ended - begun if ended >= begun else took
        # Once a year a clock is put forward by an hour.
        if not shifted and HOUR <= gap + 1 - took <= HOUR + took + 2:
            gap, shifted = gap - HOUR, True
        counted, passed = counted + took, passed + gap
    if together > 1:
        return None
    (first, _, first_step), (last, _, last_step) = stamped[0], stamped[-1]
    rounding = first_step.stamp_resolution + last_step.stamp_resolution
    return Clock(first, last, counted, passed, rounding, back, len(stamped))


def clock(run: TimedRun) -> Iterator[str]:
    """By the stamps of the log, the settled steps account for the time between the first and the last."""
    stamps = clock_of(run.case, run.log)
    if stamps is None:
        return
    if stamps.back > max(2, stamps.lines // 4):
        yield f"the log's own clock goes back at {stamps.back} of {stamps.lines} settled lines: they are not of one run in its order"
    if stamps.passed > stamps.counted * CLOCK_MARGIN + stamps.rounding:
        yield f"{_lost(stamps)}: the rest is time that no step tells of"


def clock_remark(case: Case, log: Log) -> str:
    """The remark on a valid run whose steps leave some of the time untold; "" if they do not."""
    stamps = clock_of(case, log)
    if stamps is None or stamps.passed <= stamps.counted * CLOCK_REMARK + stamps.rounding:
        return ""
    return f"{_lost(stamps)}: look at what the rest of the time went into"


def even_remark(log: Log) -> str:
    """The remark on a run whose first step took exactly as long as all others; "" if it did not."""
    seconds = [step.seconds for step in log.steps if step.seconds is not None]
    if len(seconds) < MANY or len(set(seconds)) > 1:
        return ""
    return f"all of {len(seconds)} lines, the first included, state the same time, {seconds[0]:.6g} s: is this the log of a real run?"


def _lost(stamps: Clock) -> str:
    return (
        f"by the log's own clock {stamps.passed:.0f} s passed between steps {stamps.first} and {stamps.last}, which add up to "
        f"{stamps.counted:.0f} s"
    )


def two_clocks(run: TimedRun) -> Iterator[str]:
    """In the last steps, the time that rank 0 prints with its rate is, in the median, that of the same step or of the one before."""
    times = {step.index: step.seconds for step in run.log.steps if step.seconds}
    rated = {step.index: step.rated_seconds for step in run.log.steps if step.rated_seconds is not None}
    last = sorted(rated.keys() & times.keys())[-run.case.means.unit.recent :]
    if not last:
        return
    ratios = ((_ratio(rated[i], times[i], times.get(i - 1, times[i])), i) for i in last)
    ratio, index = statistics.median_low(ratios)
    if abs(ratio - 1) > CLOCKS_MARGIN + RANK_0_ROUNDING / times[index]:
        yield (
            f"the log states two times of a step, such as {rated[index]:.2f} s by rank 0 (Step Time) and {times[index]:.4g} s by the "
            f"iteration's own line at step {index}: rank 0's is {ratio:.3f} times the other, in the median of {len(last)} lines"
        )


def _ratio(rated: float, *times: float) -> float:
    """Rank 0's time over the nearest of these times."""
    return min((rated / seconds for seconds in times), key=lambda ratio: abs(ratio - 1))


def rates(run: TimedRun) -> Iterator[str]:
    """Each settled line has a rate that the GPU can have.

    If a format prints a step when it is handed over, its time may be far too short, and its rate as far too high.
    """
    case, peak = run.case, None
    if run.part:
        peak = run.part.peak.get(case.dtype)
    least = flops_of_a_step(case, "causal-attention") / 1e12
    settled = range(case.means.warm_up(case.steps), case.steps)
    printed = [
        (step.index, step.seconds, step.tflops_per_gpu)
        for step in run.log.steps
        if step.index in settled and step.seconds and step.tflops_per_gpu is not None
    ]
    # A small rate may be rounded to 0.
    none = [index for index, seconds, tflops in printed if tflops <= 0 and least / seconds >= 1]
    if none and not uncounted(case, run.log):
        yield f"{listed(none)}: the printed rate is no positive number of TFLOP/s"
    if peak is None or run.log.queued:
        return
    beyond = [(index, tflops) for index, _, tflops in printed if tflops > peak]
    if beyond:
        yield f"{listed(i for i, _ in beyond)}: {beyond[0][1]:.4g} TFLOP/s is beyond the peak of {case.dtype}, {peak:.4g} TFLOP/s"


def digits(run: TimedRun) -> Iterator[str]:
    timed = [(s.seconds, s.resolution) for s in run.log.steps if s.seconds and 0 < s.seconds < math.inf]
    if not timed:
        return
    seconds, resolutions = zip(*timed, strict=True)
    coarse = statistics.median(resolutions) / statistics.median(seconds)
    if coarse > MAX_ROUNDING:
        yield f"the step times are printed in too few digits: each is known to {100 * coarse:.2g} %"


CHECKS: tuple[Check, ...] = (below_peak, clock, two_clocks, rates, digits)
