"""Whether the step times are possible, account for the time that passed, and have enough digits. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from itertools import pairwise

from plugins.judging.model import flops_of_a_step
from plugins.judging.validity.run import Check
from plugins.judging.validity.run import TimedRun
from plugins.judging.validity.run import listed
from plugins.metrics import NEIGHBOURS
from plugins.metrics import QUEUE_SHARE

CLOCK_MARGIN = 1.3
"""By the clock of the log, a run may take this many times as long as its steps."""

HOUR = 3600.0

MAX_ROUNDING = 0.03
"""Step times may be rounded by at most this share of themselves."""


def below_peak(run: TimedRun) -> Iterator[str]:
    """No step is faster than the GPU's peak allows, by the definition that counts the fewest FLOPs.

    If a format prints a step when it is handed over, it may print no time for it. Then the mean with its
    neighbours counts.
    """
    case, part, known = run.case, run.part, run.seconds
    peak = part.peak.get(case.dtype) if part else None
    if part is None or peak is None or not case.is_timed or not known:
        return
    least = flops_of_a_step(case, "causal-attention") / (peak * 1e12)
    enough = max(least, QUEUE_SHARE * statistics.median(known.values())) if run.log.queued else least
    rounding = {step.index: step.resolution for step in run.log.steps}
    fast = []
    for index, seconds in sorted(known.items()):
        if seconds + rounding[index] >= least:
            continue
        if not run.log.queued or _with_neighbours(known, index) < enough:
            fast.append(index)
    if fast:
        yield (
            f"{listed(fast)}: faster than {part.name} can be: {known[fast[0]]:.3g} s where {case.dtype} at its peak of "
            f"{peak:.4g} TFLOP/s takes {least:.3g} s"
        )


def _with_neighbours(known: dict[int, float], index: int) -> float:
    """The longest mean of `NEIGHBOURS` + 1 steps in a row with this one; 0 if none are known."""
    firsts = range(index - NEIGHBOURS, index + 1)
    rows = [[known[i] for i in range(first, first + NEIGHBOURS + 1) if i in known] for first in firsts]
    return max((statistics.fmean(row) for row in rows if len(row) > NEIGHBOURS), default=0.0)


def clock(run: TimedRun) -> Iterator[str]:
    """By the stamps of the log, the settled steps account for the time between the first and the last."""
    every, known = run.case.means.every, run.seconds
    settled = range(run.case.means.warm_up(run.case.steps), run.case.steps)
    stamps = sorted(
        (step.index, step.stamp, step.stamp_resolution)
        for step in run.log.steps
        if step.stamp is not None and step.index in settled
    )
    if not stamps:
        return
    usual = statistics.median(known.values()) if known else 0.0
    told = passed = 0.0
    shifted = False
    for (before, begun, _), (after, ended, _) in pairwise(stamps):
        between = range(before + every, after + 1, every)
        took = every * sum(known.get(index, usual) for index in between)
        # A clock that was put back says nothing of this time. It must not hide what is lost elsewhere.
        gap = ended - begun if ended >= begun else took
        # Once a year a clock is put forward by an hour.
        if not shifted and HOUR <= gap + 1 - took <= HOUR + took + 2:
            gap, shifted = gap - HOUR, True
        told, passed = told + took, passed + gap
    (first, _, coarse), (last, _, coarse_too) = stamps[0], stamps[-1]
    if passed <= told * CLOCK_MARGIN + coarse + coarse_too:
        return
    yield (
        f"by the log's own clock {passed:.0f} s passed between steps {first} and {last}, which add up to {told:.0f} s: "
        f"the rest is time that no step tells of"
    )


def digits(run: TimedRun) -> Iterator[str]:
    timed = [(s.seconds, s.resolution) for s in run.log.steps if s.seconds and 0 < s.seconds < math.inf]
    if not timed:
        return
    seconds, resolutions = zip(*timed, strict=True)
    coarse = statistics.median(resolutions) / statistics.median(seconds)
    if coarse > MAX_ROUNDING:
        yield f"the step times are printed in too few digits: each is known to {100 * coarse:.2g} %"


CHECKS: tuple[Check, ...] = (below_peak, clock, digits)
