"""Step times that a framework prints as means over the last few steps, or from dispatch to dispatch, taken apart again. Pure.

NeMo 1's `train_step_timing in s` is the mean over the last `step_timing_kwargs.buffer_size` steps (1 unless a recipe sets
it), at the start over as many as there are: one slow step raises five printed times, and the warm-up reaches into the sixth step. With w for
that size, m_k for the printed time of step k and P_k for the time of the steps 0 to k (0 before the first),

    min(k + 1, w) m_k = P_k - P_(k-w),    hence    P_k = P_(k-w) + min(k + 1, w) m_k,    and step k took P_k - P_(k-1).

An entry that cannot be read leaves P_k unknown, and P_(k+w), P_(k+2w), ... with it. The time between two known ends
is known all the same, so the steps between them get its mean: no time is lost, and nothing looks faster than it was.
Behind the last known end the printed means stand in.

MaxText prints when the host has handed a step over, so that one may take no time where the step before it took the time of both.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

from plugins.logs import Step

# A step of a format that prints when the host has handed it over may take no time at all, where so many next to it have taken it. One that
# takes at least this share of the usual time, by itself or with them, is as it should be.
NEIGHBOURS = 2
QUEUE_SHARE = 5 / 6


def desmoothed(steps: Sequence[Step], smoothing: int) -> dict[int, float]:
    """The seconds that each step took by itself, by index; a step whose line cannot be read is left out.

    `smoothing` is the number of last steps that a printed time is the mean over; with 1 the printed times come back
    as they are. A value that is not positive means that the printed times are no such means.
    """
    printed = {step.index: step.seconds for step in steps if step.seconds is not None}
    if smoothing == 1:
        return printed
    ends = {-1: 0.0}
    for index, mean in sorted(printed.items()):
        start = ends.get(index - smoothing) if index >= smoothing else 0.0
        if start is not None and math.isfinite(mean):
            ends[index] = start + min(index + 1, smoothing) * mean
    known = sorted(ends)
    raw = {}
    for index, mean in printed.items():
        at = bisect_left(known, index)
        if at == len(known):
            raw[index] = mean
        else:
            before, end = known[at - 1], known[at]
            raw[index] = (ends[end] - ends[before]) / (end - before)
    return raw


def levelled(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Steps of a format that prints from dispatch to dispatch: one that is too short to be a step time has the mean of it and of those that took its time.

    Those are the one before it, or else the one behind it, or two of them. No time is lost; where more than a sixth of a step is missing, it stays
    as printed.
    """
    known = {step.index: step.seconds for step in steps if step.seconds is not None}
    usual = statistics.median(known.values()) if known else 0.0
    for index in sorted(known):
        rows = (
            range(first, first + count)
            for count in range(2, NEIGHBOURS + 2)
            for first in range(index - count + 1, index + 1)
        )
        for row in rows:
            if known[index] >= QUEUE_SHARE * usual:
                break
            together = [known[i] for i in row if i in known]
            missing = len(row) * usual - math.fsum(together)
            if len(together) == len(row) and missing <= (1 - QUEUE_SHARE) * usual:
                known.update(dict.fromkeys(row, statistics.fmean(together)))
    return tuple(replace(step, seconds=known.get(step.index)) for step in steps)


def impossible(steps: Sequence[Step], smoothing: int) -> int | None:
    """The step up to which no steps of positive times have the printed ones as means over the last `smoothing` steps; None where some have.

    For times that are rounded too much to be taken apart. Two means that follow each other differ by what one step takes longer than the
    one `smoothing` steps before it, t_k - t_(k-w) = w (m_k - m_(k-1)): so the steps k, k + w, k + 2w, ... are known but for the first of
    them, which must be long enough for all that follow to take any time at all. The w first ones together take w m: where they would have
    to take longer, the means are none.
    """
    printed = {step.index: step for step in steps if step.seconds is not None}
    for start in sorted(printed):
        least = dict.fromkeys(range(smoothing), 0.0)
        fallen = dict.fromkeys(range(smoothing), 0.0)
        if start < smoothing - 1:
            continue
        for index in range(start + 1, max(printed) + 1):
            before, after = printed.get(index - 1), printed.get(index)
            if before is None or after is None or not before.seconds or not after.seconds:
                break
            place = index % smoothing
            fallen[place] -= smoothing * (
                after.seconds - before.seconds + after.resolution + before.resolution
            )
            least[place] = max(least[place], fallen[place])
            base = printed[start]
            if sum(least.values()) > smoothing * ((base.seconds or 0.0) + base.resolution):
                return index
    return None
