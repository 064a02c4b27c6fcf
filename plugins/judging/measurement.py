"""What a valid run measured: its step times, summarised, and tokens/s, TFLOP/s/GPU, MFU and days by them.

Times are in seconds, errors and spreads are relative. A line is a judged time: of a single step, or of an interval of
which only the mean is known. It has the index of its last step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from plugins.base.words import seconds
from plugins.baselines.metrics import (
    MfuBasis,
    days_per_1t_tokens,
    possible_mfu,
    tflops_per_gpu,
    tokens_per_second,
)
from plugins.logs.means import Means
from plugins.recipes.cases import Case
from plugins.record.baseline import Statistic

Line = tuple[int, float]

# The standard error of the median of n normal values is this times their standard deviation / sqrt(n).
MEDIAN_ERROR = 1.2533

# A line is an outlier, or the end of a run slow, by at least this share. In a very steady run, the share keeps mere
# rounding from making outliers.
OUTLIER_FLOOR = 0.02


@dataclass(frozen=True)
class Published:
    """The published statistic: its step time, and the lines of its window, as they are printed.

    `last` is the last line of the run. `outliers` are the judged lines of the window that are far off their median, and
    `without_outliers` is the mean of the others. `lasting`: the pace fell at an outlier, so it is no single stalled step.
    """

    statistic: Statistic
    step_time: float
    window: tuple[Line, ...]
    last: Line
    outliers: tuple[Line, ...]
    without_outliers: float
    lasting: bool


@dataclass(frozen=True)
class Settled:
    """The settled lines: those after the warm-up, which is the first fifth of the run. They cover so many `steps`.

    `spread` is their robust standard deviation, without known stalls. The `mean` includes what the `median` hides. `hiccups` are their slow
    outliers, and `periodic` says that these come at equal distances. `fast` are the fast outliers among all lines of the
    run: a warm-up makes no step faster.
    """

    median: float
    mean: float
    spread: float
    hiccups: tuple[Line, ...]
    fast: tuple[Line, ...]
    periodic: bool
    steps: int


@dataclass(frozen=True)
class Timing:
    """The step times of a valid run, summarised.

    `steady` is the steady pace, and `tail` the time of the end of the run; `judged` says what its lines are of.
    `steady_error` is the standard error of `steady`. `tail_error` is that of the difference between `tail` and the settled
    median, by the scatter of the lines before the tail. `resolution` is the rounding of the lines that are judged.

    `runs`: the figures are those of this many runs together (`plugins.judging.repeats`).
    """

    published: Published
    settled: Settled
    steady: float
    steady_error: float
    tail: float
    tail_error: float
    resolution: float
    judged: Means
    runs: int = 1

    @property
    def settled_error(self) -> float:
        """The standard error of the settled median."""
        return MEDIAN_ERROR * self.settled.spread / math.sqrt(self.settled.steps / self.judged.every)

    @property
    def fell(self) -> bool:
        """Whether the last steps are slower than the others by more than chance explains."""
        beyond = max(OUTLIER_FLOOR, self.judged.unit.sigmas * self.tail_error)
        return self.tail > (1 + beyond) * self.settled.median

    def share_of(self, lines: Sequence[Line]) -> float:
        """The time that these lines took beyond the median, or less, as a share of the settled time."""
        beyond = math.fsum(abs(seconds - self.settled.median) for _, seconds in lines)
        return beyond / self.settled.median * self.judged.every / self.settled.steps

    @property
    def alone(self) -> bool:
        """Whether the published statistic is a single step."""
        return self.judged.single and len(self.published.window) == 1


@dataclass(frozen=True, repr=False)
class Measurement:
    """What a valid run measured. `mfu` is in percent.

    `tokens_per_second`, `tflops_per_gpu`, `mfu` and `days_per_1t_tokens` follow from the published statistic.
    If the GPU's peak is unknown, there is no MFU basis, and no MFU.
    """

    case: Case
    timing: Timing
    mfu_basis: MfuBasis | None

    def __repr__(self) -> str:
        return f"<{self.case.key}: {self.step_time:.4g} s a step, {self.tokens_per_second:,.0f} tokens/s>"

    @property
    def step_time(self) -> float:
        return self.timing.published.step_time

    @property
    def tokens_per_second(self) -> float:
        return tokens_per_second(self.case, self.step_time)

    @property
    def tflops_per_gpu(self) -> float | None:
        if self.mfu_basis is None:
            return None
        return tflops_per_gpu(self.case, self.step_time, self.mfu_basis.flops)

    @property
    def mfu(self) -> float | None:
        return self.mfu_of(self.step_time)

    def mfu_of(self, step_time: float) -> float | None:
        """MFU in percent at this step time in s; None if it is above 100, by the table's FLOPs."""
        return possible_mfu(self.case, step_time, self.mfu_basis)

    @property
    def mfu_beside(self) -> float | None:
        """MFU in percent by the recipe's second definition of FLOPs, if it has one; never judged."""
        if self.mfu_basis is None:
            return None
        return possible_mfu(self.case, self.step_time, self.mfu_basis.beside)

    @property
    def days_per_1t_tokens(self) -> float:
        return days_per_1t_tokens(self.case, self.step_time)


def statistic_name(measurement: Measurement) -> str:
    """`last step (49)`, `mean of steps 35 to 44`, `mean of steps 35 to 44 of 3 runs`."""
    timing = measurement.timing
    first, last = timing.published.window[0][0], timing.published.window[-1][0]
    name = f"mean of {timing.judged.named(first, last)}"
    if timing.alone:
        name = f"last step ({last})"
    if timing.runs > 1:
        name += f" of {timing.runs} runs"
    return name


def steps_listed(measurement: Measurement, steps: tuple[tuple[int, float], ...]) -> str:
    """The first of these steps with their times, and how many more there are."""
    listed = measurement.timing.judged.listed([(index, seconds(time)) for index, time in steps[:5]])
    if len(steps) > 5:
        listed += f" and {len(steps) - 5} more"
    return listed
