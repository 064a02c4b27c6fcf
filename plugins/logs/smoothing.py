"""Computes the times of single steps, if a framework prints means, or times between dispatches. Pure.

NeMo 1's `train_step_timing in s` is the mean over the last `step_timing_kwargs.buffer_size` steps (1 unless a
recipe sets it); at the start it is the mean over as many as there are. With a size of 5, one slow step raises
five printed times, and the warm-up reaches into the sixth step. Let w be the size, m_k the printed time of
step k, and P_k the time of the steps 0 to k (0 before the first). Then

    min(k + 1, w) m_k = P_k - P_(k-w),    hence    P_k = P_(k-w) + min(k + 1, w) m_k,    and step k took P_k - P_(k-1).

If an entry cannot be read, P_k is unknown, and so are P_(k+w), P_(k+2w), ... But the time between two known
ends is known, so each step between them gets its mean: no time is lost, and no step looks faster than it was.
After the last known end, the printed means are used.

MaxText prints a step when the host has handed it over to the GPU. So a step may take no time, if the step
before it took the time of both.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

from plugins.logs import Step

# If a format prints a step when the host has handed it over, the step may take no time, because up to this
# many steps next to it took its time. If a step takes at least this share of the usual time, by itself or
# together with them, it is plausible.
NEIGHBOURS = 2
QUEUE_SHARE = 5 / 6


def desmoothed(steps: Sequence[Step], smoothing: int) -> dict[int, float]:
    """The seconds of each single step, by index. If a step's line cannot be read, the step is left out.

    `smoothing` is the number of last steps that a printed time is the mean over; with 1 the printed times are
    returned. If a value is not positive, the printed times are not such means.
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
    """Correct the times of steps that a format prints from dispatch to dispatch.

    If a step is too short to be a step time, it and the steps that took its time all get their mean. Those
    are the step before it, or else the one after it, or two of them. No time is lost. If more than a sixth of
    a step is missing, the step stays as printed.
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
    """The first step whose printed time shows that the printed times are not means; None if they may be.

    They may be means over the last `smoothing` steps if there are steps with positive times that have these
    means. This is for times that are rounded too much to compute single steps. Let t_k be the time of step k,
    m_k the printed mean, and w the number of steps. Two successive means differ by what a step takes longer
    than the one w steps before it: t_k - t_(k-w) = w (m_k - m_(k-1)). So the steps k, k + w, k + 2w, ... are
    known except for the first of them, which must be long enough for all later ones to take any time at all.
    The first w steps together take w m. If they had to take longer than that, the printed times are not such
    means.
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
