"""From the steps of a run to its step time: the published statistic, the steady pace, and how far that can be trusted. Pure."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from plugins.errors import ConfigError
from plugins.logs import Step
from plugins.logs.means import SINGLE, Means
from plugins.scatter import regular, robust_sigma, scatter

# A step is an outlier if it is away from the median by this many robust standard deviations of the settled
# steps, and by at least this share. In a very steady run, the share keeps mere rounding from making outliers.
OUTLIER_SIGMAS = 5.0
OUTLIER_FLOOR = 0.02

# If each printed time is a mean over the last steps, and a line rises by this share of the median, the line
# ends in a stalled step. If the pace falls, every line rises a little. For means over five steps, the share
# is a stall of 15 %.
STALL_RISE = 0.03

# If a format prints a step when the host has handed it over, up to this many steps next to it may have taken
# its time. If a step takes at least this share of the usual time, by itself or together with them, it is
# plausible.
NEIGHBOURS = 2
QUEUE_SHARE = 5 / 6

# The standard error of the median of n normal values is this times their standard deviation / sqrt(n).
MEDIAN_ERROR = 1.2533


_Steps = Sequence[tuple[int, float]]


@dataclass(frozen=True)
class Statistic:
    """Which step time a baseline publishes: `last`, or `mean:A-B` over the 0-based steps A to B inclusive."""

    first: int | None = None
    last: int | None = None

    @classmethod
    def parse(cls, text: str) -> Statistic:
        """Parse either form. Raises ConfigError for any other text."""
        if text == "last":
            return cls()
        match = re.fullmatch(r"mean:(\d+)-(\d+)", text)
        if not match or int(match[1]) > int(match[2]):
            raise ConfigError(f"statistic '{text}' is unknown; write last or mean:A-B, A not above B")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        if self.first is None:
            return "last"
        return f"mean:{self.first}-{self.last}"

    def indices(self, steps: int) -> range:
        """The 0-based steps that the statistic needs in a run of `steps` steps."""
        if self.first is None or self.last is None:
            return range(steps - 1, steps)
        return range(self.first, self.last + 1)

    def cuts(self, means: Means) -> bool:
        """Whether the window begins or ends within steps of which only the mean is known."""
        return self.first is not None and means.cut(self.indices(0))


@dataclass(frozen=True)
class Timing:
    """The step times of a valid run, summarised. Times are in seconds, errors and spreads are relative.

    As printed: `step_time` is the published statistic, `window` its steps as (index, seconds), and `last` the
    last step. All other figures are of single steps, if these can be computed from the printed `means`.

    The settled steps are those after the warm-up, the first fifth of the run: `settled` is their median and
    `settled_steps` their number. `spread` is their robust standard deviation. `mean` is their mean, which
    includes what a median hides. `hiccups` are their slow outliers, and `periodic` says that these come at
    equal distances. `fast` are the fast outliers among all steps: a warm-up makes no step faster.

    The last steps: `steady` is the median of the last ten, and `tail` that of the last five. `steady_error`
    is the standard error of `steady`. `tail_error` is that of the difference between `tail` and `settled`, by
    the scatter of the steps before the tail.

    The window: `outliers` are the outliers among the steps that the statistic covers, and `without_outliers`
    is the mean of the others. `resolution` is the rounding of the steps that are judged.

    If single steps cannot be computed, each figure is of the means that are `judged`, named by the last of
    their steps. `steady` is then the median of all settled means and of the lines between them, and `tail` is
    the faster of the last two. The lines between only show which means include one stalled step; `tail` is
    without that stall. Such means scatter less than steps do, and a mean hides how many of its steps were
    slow. `settled_steps` still counts steps, and counts one for each hiccup. `lasting`: the interval before
    an outlier of the window is slow too, so the pace fell, and it was not one stalled step.

    `runs`: the figures are those of this many runs together (`plugins.judging.repeats`).
    """

    statistic: Statistic
    step_time: float
    steady: float
    steady_error: float
    settled: float
    spread: float
    tail: float
    tail_error: float
    resolution: float
    window: tuple[tuple[int, float], ...]
    last: tuple[int, float]
    outliers: tuple[tuple[int, float], ...]
    without_outliers: float
    hiccups: tuple[tuple[int, float], ...]
    fast: tuple[tuple[int, float], ...]
    periodic: bool
    settled_steps: int
    mean: float
    means: Means = SINGLE
    lasting: bool = False
    runs: int = 1

    @property
    def settled_error(self) -> float:
        """The relative standard error of `settled`."""
        return MEDIAN_ERROR * self.spread / math.sqrt(self.settled_steps / self.judged.every)

    @property
    def fell(self) -> bool:
        """Whether the last steps are slower than the others by more than chance explains."""
        beyond = max(OUTLIER_FLOOR, self.judged.unit.sigmas * self.tail_error)
        return self.tail > (1 + beyond) * self.settled

    def share_of(self, steps: Sequence[tuple[int, float]]) -> float:
        """The time that these steps took beyond the median, or less, as a share of the settled time."""
        beyond = math.fsum(abs(seconds - self.settled) for _, seconds in steps)
        return beyond / self.settled * self.judged.every / self.settled_steps

    @property
    def judged(self) -> Means:
        return self.means.judged

    @property
    def alone(self) -> bool:
        """Whether the published statistic is a single step."""
        return self.judged.single and len(self.window) == 1


def levelled(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Correct the times of steps that a format prints when the host has handed them over to the GPU.

    So a step may take no time, because its neighbours took it. If a step is too short to be a step time, it and
    the steps that took its time all get their mean. Those are the step before it, or else the one after it, or two
    of them. No time is lost. If more than a sixth of a step is missing, the step stays as printed.
    """
    known = {step.index: step.seconds for step in steps if step.seconds is not None}
    usual = statistics.median(known.values() or [0.0])
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


def with_pace(steps: Sequence[Step], means: Means) -> tuple[Step, ...]:
    """The steps of a run that was cut off, up to the last that `timing` judges; empty if it has no settled time."""
    judged = means.judged
    known = [s.index for s in steps if s.seconds is not None and (s.index + 1) % judged.every == 0]
    last = max(known, default=-1)
    settled = any(judged.covered(index)[0] >= judged.warm_up(last + 1) for index in known)
    return tuple(step for step in steps if settled and step.index <= last)


def timing(steps: Sequence[Step], statistic: Statistic, means: Means = SINGLE) -> Timing:
    """Summarise the steps of a valid run. Every step that the statistic needs must have a time."""
    judged, times = means.judged, means.times(steps)
    steps = [step for step in steps if (step.index + 1) % judged.every == 0]
    printed = {step.index: step.seconds for step in steps if step.seconds is not None}
    known = {i: times[i] for i in printed}
    count = max(step.index for step in steps) + 1
    begin = judged.steady(count)[0]
    last = [i for i in known if i >= begin]
    # The lines between count too: if the log had single steps after all, the judged ones alone would not show its pace.
    median = statistics.median(t for i, t in times.items() if i >= begin)
    window = tuple((i, printed[i]) for i in judged.lines(statistic.indices(count)))
    reach = range(max(0, window[0][0] - means.over + 1), window[-1][0] + 1)
    single = tuple((i, known[i]) for i in reach if i in known)
    warm = judged.warm_up(count)
    settled = {i: t for i, t in known.items() if judged.covered(i)[0] >= warm}
    stalls = judged.stalls(times, STALL_RISE * median)
    plain = {i: t - stalls.get(i, 0.0) for i, t in known.items()}
    pace, sigma = statistics.median(settled.values()), robust_sigma([plain[i] for i in settled])
    limit = max(OUTLIER_SIGMAS * sigma, OUTLIER_FLOOR * median)
    outliers = _outliers(single, plain, median, limit)
    hiccups = tuple((i, t) for i, t in settled.items() if t - pace > limit)
    usual = _usual(single, plain, outliers, count if judged.single else max(plain))
    tail = [plain[i] for i in sorted(plain)[-judged.unit.tail :]]
    # The tail is left out, so that a fall at the end does not add to the scatter.
    error = scatter([settled[i] for i in sorted(settled)[: -judged.unit.tail] or sorted(settled)])
    high = median + max(OUTLIER_FLOOR * median, judged.unit.sigmas * error)
    return Timing(
        statistic=statistic,
        step_time=statistics.fmean(t for _, t in window),
        steady=median,
        settled=pace,
        steady_error=MEDIAN_ERROR * sigma / median / math.sqrt(len(last)),
        spread=sigma / median,
        tail=judged.unit.end(tail),
        tail_error=MEDIAN_ERROR * error / median * math.sqrt(1 / len(tail) + 1 / len(settled)),
        resolution=statistics.median(step.resolution for step in steps if step.index in last) / median,
        window=window,
        last=max(printed.items()),
        outliers=outliers,
        without_outliers=statistics.fmean(usual or [median]),
        hiccups=hiccups,
        fast=tuple((i, t) for i, t in known.items() if pace - t > limit),
        periodic=regular([index for index, _ in hiccups]),
        settled_steps=len(settled) * judged.every,
        mean=statistics.fmean(settled.values()),
        means=means,
        lasting=not judged.single
        and any(min(plain.get(i - judged.every, 0.0), plain[i]) > high for i, _ in outliers),
    )


def _outliers(
    steps: _Steps, plain: Mapping[int, float], median: float, limit: float
) -> tuple[tuple[int, float], ...]:
    """The outliers among the steps of a window: by their own median, or if there is one step, by the steady median."""
    if len(steps) > 1:
        median = statistics.median(seconds for _, seconds in steps)
    return tuple((i, t) for i, t in steps if abs(t - median) > limit or plain[i] < t)


def _usual(steps: _Steps, plain: Mapping[int, float], outliers: _Steps, end: int) -> list[float]:
    """The times of the steps of a window that are no outliers, and of those whose stall is known, without it.

    The `end` always counts: after the last interval no line shows whether it stalled or the pace fell. An earlier
    interval may be left out.
    """
    return [plain[i] for i, t in steps if (i, t) not in outliers or plain[i] < t or i == end]
