"""From the steps of a run to its step time: the published statistic, the steady pace, and how far that can be trusted. Pure.

Single steps and intervals differ in four functions, which `SingleSteps` and `Intervals` have. A line is plain without the time
that stalled steps are known to have added to it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from plugins.base.scatter import regular, robust_sigma, scatter
from plugins.judging.measurement import MEDIAN_ERROR, OUTLIER_FLOOR, Line, Published, Settled, Timing
from plugins.logs import Step
from plugins.logs.means import SINGLE, Means
from plugins.record.baseline import Statistic

# A line is an outlier if it is off the median by this many robust standard deviations of the settled lines.
OUTLIER_SIGMAS = 5.0

# If each printed time is a mean over the last steps, and a line rises by this share of the median, the line
# ends in a stalled step. If the pace falls, every line rises a little. For means over five steps, the share
# is a stall of 15 %.
STALL_RISE = 0.03

# The median of five single steps hides as many stalled ones as this, so the mean over five is without them too.
FORGIVEN = 2

# If a format prints a step when the host has handed it over, up to this many steps next to it may have taken
# its time. If a step takes at least this share of the usual time, by itself or together with them, it is
# plausible.
NEIGHBOURS = 2
QUEUE_SHARE = 5 / 6
# The steps that are seen together: how many, and how many of them are before the short one.
_ROWS = [(count, before) for count in range(2, NEIGHBOURS + 2) for before in reversed(range(count))]

_Times = Mapping[int, float]


def levelled(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Correct the times of steps that a format prints when the host has handed them over to the GPU.

    So a step may take no time, because its neighbours took it. If a step is too short to be a step time, it and
    the steps that took its time all get their mean. Those are the step before it, or else the one after it, or two
    of them. No time is lost. If more than a sixth of a step is missing, the step stays as printed.
    """
    known = {step.index: step.seconds for step in steps if step.seconds is not None}
    usual = statistics.median(known.values() or [0.0])
    for index in sorted(known):
        for count, before in _ROWS:
            if known[index] >= QUEUE_SHARE * usual:
                break
            row = range(index - before, index - before + count)
            together = [known[i] for i in row if i in known]
            missing = count * usual - math.fsum(together)
            if len(together) == count and missing <= (1 - QUEUE_SHARE) * usual:
                known.update(dict.fromkeys(row, statistics.fmean(together)))
    return tuple(replace(step, seconds=known.get(step.index)) for step in steps)


def with_pace(steps: Sequence[Step], means: Means) -> tuple[Step, ...]:
    """The steps of a run that was cut off, up to the last that `timing` judges; empty if it has no settled time."""
    judged = means.judged
    known = [s.index for s in steps if s.seconds is not None and (s.index + 1) % judged.every == 0]
    last = max(known, default=-1)
    settled = any(judged.covered(index)[0] >= judged.warm_up(last + 1) for index in known)
    return tuple(step for step in steps if settled and step.index <= last)


class SingleSteps:
    """Each line is a step. The steady pace is the median of the last ten, and the end that of the last five."""

    def plain(self, lines: _Times, _printed: _Times, _rise: float, /) -> _Times:
        """The plain lines are the lines: no stall hides in the time of another step."""
        return lines

    def end(self, tail: Sequence[float], /) -> float:
        """The time of the end of the run, by its last lines."""
        return statistics.median(tail)

    def usual(self, window: Sequence[Line], outliers: Sequence[Line], _plain: _Times, /) -> list[float]:
        """The times of the lines of a window that are no outliers."""
        return [seconds for index, seconds in window if (index, seconds) not in outliers]

    def lasting(self, _outliers: Sequence[Line], _plain: _Times, _slow: float, /) -> bool:
        """Whether the pace fell at an outlier: no, each is a step by itself."""
        return False


@dataclass(frozen=True)
class Intervals:
    """Each line is the mean over `every` steps. It scatters less than a step does, and hides how many of them were slow.

    The steady pace is the median of all settled lines and of those that are printed between them. The end is the faster
    of the last two lines.
    """

    every: int

    def plain(self, lines: _Times, printed: _Times, rise: float, /) -> _Times:
        """The lines without `FORGIVEN` stalled steps each, at most. `printed` has the lines between, too.

        A step adds t_k - t_(k-w) = w (m_k - m_(k-1)) over the one that it takes the place of. So a line that
        rises by more than `rise` s, or by as much over a stalled step that it no longer has, ends in a stalled
        step. The stalls rise by more than all other steps of their line together.
        """
        rises: dict[int, float] = {}
        for after in sorted(printed):
            before = rises.get(after - self.every, 0.0)
            risen = printed[after] - printed.get(after - 1, printed[after])
            rises[after] = max(0.0, risen + before * (before > rise))
        plain = dict(lines)
        for line in lines:
            steps = [rises.get(step, 0.0) for step in range(line - self.every + 1, line + 1)]
            stalled = math.fsum(sorted(step for step in steps if step > rise)[-FORGIVEN:])
            if stalled > math.fsum(steps) / 2:
                plain[line] -= stalled
        return plain

    def end(self, tail: Sequence[float], /) -> float:
        return min(tail)

    def usual(self, window: Sequence[Line], outliers: Sequence[Line], plain: _Times, /) -> list[float]:
        """The plain times of the lines of a window that are no outliers, have a known stall, or end the run.

        After the last line no other shows whether it stalled or the pace fell.
        """
        last = max(plain)
        return [plain[i] for i, t in window if (i, t) not in outliers or plain[i] < t or i == last]

    def lasting(self, outliers: Sequence[Line], plain: _Times, slow: float, /) -> bool:
        """Whether the pace fell at an outlier: the line before it takes more than `slow` s, too."""
        return any(min(plain.get(i - self.every, 0.0), plain[i]) > slow for i, _ in outliers)


def timing(steps: Sequence[Step], statistic: Statistic, means: Means = SINGLE) -> Timing:
    """Summarise the steps of a valid run. Every step that the statistic needs must have a time."""
    judged, times = means.judged, means.times(steps)
    kind = SingleSteps() if judged.single else Intervals(judged.every)
    steps = [step for step in steps if (step.index + 1) % judged.every == 0]
    printed = {step.index: step.seconds for step in steps if step.seconds is not None}
    lines = {i: times[i] for i in printed}
    count = max(step.index for step in steps) + 1
    begin, warm, tail = judged.steady(count)[0], judged.warm_up(count), judged.unit.tail
    recent = [i for i in lines if i >= begin]
    # The lines between count too: if the log had single steps after all, the judged ones alone would not show its pace.
    steady = statistics.median(t for i, t in times.items() if i >= begin)
    window = tuple((i, printed[i]) for i in judged.lines(statistic.indices(count)))
    # The printed times of the window may be means, which reach back over the steps before.
    reach = range(max(0, window[0][0] - means.over + 1), window[-1][0] + 1)
    covered = tuple((i, lines[i]) for i in reach if i in lines)
    plain = kind.plain(lines, times, STALL_RISE * steady)
    settled = {i: t for i, t in lines.items() if judged.covered(i)[0] >= warm}
    sigma = robust_sigma([plain[i] for i in settled])
    # The tail is left out, so that a fall at the end does not add to the scatter.
    error = scatter([settled[i] for i in sorted(settled)[:-tail] or sorted(settled)])
    limit = max(OUTLIER_SIGMAS * sigma, OUTLIER_FLOOR * steady)
    slow = steady + max(OUTLIER_FLOOR * steady, judged.unit.sigmas * error)
    outliers = _outliers(covered, plain, steady, limit)
    usual = statistics.fmean(kind.usual(covered, outliers, plain) or [steady])
    lasting = kind.lasting(outliers, plain, slow)
    step_time, last = statistics.fmean(t for _, t in window), max(printed.items())
    ends = [plain[i] for i in sorted(plain)[-tail:]]
    return Timing(
        Published(statistic, step_time, window, last, outliers, usual, lasting),
        _settled(lines, settled, limit, sigma / steady, judged.every),
        steady,
        steady_error=MEDIAN_ERROR * sigma / steady / math.sqrt(len(recent)),
        tail=kind.end(ends),
        tail_error=MEDIAN_ERROR * error / steady * math.sqrt(1 / len(ends) + 1 / len(settled)),
        resolution=statistics.median(step.resolution for step in steps if step.index in recent) / steady,
        judged=judged,
    )


def _outliers(lines: Sequence[Line], plain: _Times, median: float, limit: float) -> tuple[Line, ...]:
    """The outliers among the lines of a window: by their own median, or if there is one line, by the steady median."""
    if len(lines) > 1:
        median = statistics.median(seconds for _, seconds in lines)
    return tuple((i, t) for i, t in lines if abs(t - median) > limit or plain[i] < t)


def _settled(lines: _Times, settled: _Times, limit: float, spread: float, every: int) -> Settled:
    median, mean = statistics.median(settled.values()), statistics.fmean(settled.values())
    hiccups = tuple((i, t) for i, t in settled.items() if t - median > limit)
    fast = tuple((i, t) for i, t in lines.items() if median - t > limit)
    periodic = regular([index for index, _ in hiccups])
    return Settled(median, mean, spread, hiccups, fast, periodic, len(settled) * every)
