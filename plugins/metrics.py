"""From steps to tokens/s, TFLOP/s/GPU, MFU and days: pure arithmetic, every formula with its source.

The formulas are those of NVIDIA's recipe READMEs (release 25.04, sections "Expected Performance" and "Notes").
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from pydantic import Field
from pydantic import model_validator

from plugins.errors import ConfigError
from plugins.logs import FlopsName
from plugins.logs import Step
from plugins.logs.smoothing import desmoothed
from plugins.recipes.cases import Case
from plugins.recipes.file import Model
from plugins.yamlfile import Strict

STEADY_STEPS = 10
"""The steady median is taken over this many last steps; where the log has means over an interval, over all settled ones."""

TAIL_STEPS = 5
TAIL_INTERVALS = 2
"""The end of a run: so many last steps, or so many last means over an interval."""

# A step is an outlier when it is this many robust standard deviations of the settled steps, and at least this
# share, away from the median. The floor keeps a very quiet run from calling its own rounding an outlier.
OUTLIER_SIGMAS = 5.0
OUTLIER_FLOOR = 0.02

# Where each printed time is a mean over the last steps, one line that rises by this share of the median ends in a stalled step:
# a pace that falls raises every line a little. Of means over five, a stall of 15 %.
STALL_RISE = 0.03

# So many stalls at equal distances are no chance.
PERIODIC = 4

# The standard error of the median of n normal values is this times their standard deviation / sqrt(n).
MEDIAN_ERROR = 1.2533

SECONDS_PER_DAY = 86_400


class FlopsDefinition(Strict):
    """How the model FLOPs of one sequence are counted. Two MFU figures compare only when this agrees.

    `full-attention` counts the whole s x s score matrix (the recipe READMEs and NeMo 2's own figure);
    `causal-attention` counts half of it (Megatron-Bridge). `nemotron-24.11` is what the Nemotron README of that
    release prints: as many key and value heads as queries, and twice the projections. `query_groups` replaces the model's own number where a
    published table was computed with another one; `significant_digits` is the rounding of the published FLOPs.
    """

    definition: FlopsName
    query_groups: int | None = Field(default=None, gt=0)
    significant_digits: int | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _groups_count(self) -> FlopsDefinition:
        if self.query_groups is not None and self.definition == "nemotron-24.11":
            raise ValueError("nemotron-24.11 knows no query groups; take query_groups out")
        return self

    def __str__(self) -> str:
        extra = [f"{self.query_groups} query groups"] if self.query_groups else []
        extra += [f"{self.significant_digits} digits"] if self.significant_digits else []
        return self.definition + (f" ({', '.join(extra)})" if extra else "")


def flops_per_sequence(model: Model, sequence_length: int, definition: FlopsDefinition) -> float:
    """Model FLOPs of one sequence of `sequence_length` tokens, forward and backward.

    With layers L, hidden size h, FFN size f, query groups g, heads a, vocabulary V and sequence length s:
    s * (12 L h^2 (1 + g/a + c s/h) + m L f h + 6 V h), c = 1 for full and 1/2 for causal attention, m = 18 for an
    MLP with a gate and 12 for one without. Source: "Notes" of the llama3.1 README, release 25.04 (c = 1, m = 18).
    nemotron-24.11: s * (24 L h^2 + 12 L h s + 48 L h^2 + 6 V h). Source: "Notes" of its README_340b, release 24.11.
    """
    h, layers = model.hidden, model.layers
    if definition.definition == "nemotron-24.11":
        attention = 24.0 * layers * h * h + 12 * layers * h * sequence_length
        mlp = 48 * layers * h * h
    else:
        groups = definition.query_groups or model.query_groups
        share = 1.0 if definition.definition == "full-attention" else 0.5
        attention = 12 * layers * h * h * (1 + groups / model.heads + share * sequence_length / h)
        mlp = (18 if model.mlp == "gated" else 12) * layers * model.ffn * h
    embedding = 6 * model.vocab * h
    flops = sequence_length * (attention + mlp + embedding)
    if definition.significant_digits is not None:
        flops = float(f"{flops:.{definition.significant_digits - 1}e}")
    return flops


@dataclass(frozen=True)
class Yardstick:
    """What turns a step time into MFU: the FLOPs of a step and the peak, each with its definition.

    `flops` counts one sequence; `peak_tflops` is per GPU. `beside` counts the FLOPs in a second way, for comparison.
    """

    flops: float
    definition: FlopsDefinition
    peak_tflops: float
    beside: Yardstick | None = None


def tokens_per_second(case: Case, step_time: float) -> float:
    """(sequence length) x (global batch size) / (step time in s)."""
    return case.tokens_per_step / step_time


def tflops_per_gpu(case: Case, step_time: float, flops: float) -> float:
    """(global batch size) x (model FLOPs of a sequence) / (step time in s) / GPUs, in TFLOP/s."""
    return case.gbs * flops / step_time / case.gpus / 1e12


def mfu(case: Case, step_time: float, yardstick: Yardstick) -> float:
    """Model FLOPs utilization in percent of the yardstick's peak."""
    return 100 * tflops_per_gpu(case, step_time, yardstick.flops) / yardstick.peak_tflops


def days_per_1t_tokens(case: Case, step_time: float) -> float:
    """Days to train on 1e12 tokens at this pace."""
    return 1e12 / tokens_per_second(case, step_time) / SECONDS_PER_DAY


@dataclass(frozen=True)
class Statistic:
    """Which step time a baseline publishes: `last`, or `mean:A-B` over the 0-based steps A to B, both included."""

    first: int | None = None
    last: int | None = None

    @classmethod
    def parse(cls, text: str) -> Statistic:
        """Raises ConfigError when `text` is neither form."""
        if text == "last":
            return cls()
        match = re.fullmatch(r"mean:(\d+)-(\d+)", text)
        if not match or int(match[1]) > int(match[2]):
            raise ConfigError(f"statistic '{text}' is unknown; write last or mean:A-B, A not above B")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return "last" if self.first is None else f"mean:{self.first}-{self.last}"

    def indices(self, steps: int) -> range:
        """The 0-based steps that the statistic needs in a run of `steps` steps."""
        if self.first is None or self.last is None:
            return range(steps - 1, steps)
        return range(self.first, self.last + 1)

    def lines(self, steps: int, interval: int) -> range:
        """The steps whose lines it needs, where there is one for every `interval` steps alone, printed at the last of them."""
        needed = self.indices(steps)
        return (
            needed
            if interval == 1 or self.first is None
            else range(needed[0] + interval - 1, needed[-1] + 1, interval)
        )

    def cuts(self, interval: int) -> bool:
        """Whether the window begins or ends within an interval, of which only the mean is known."""
        return (
            self.first is not None
            and self.last is not None
            and bool(self.first % interval or (self.last + 1) % interval)
        )


def warm_up_steps(steps: int, interval: int = 1) -> int:
    """The first fifth of a run, in which it settles: no hiccups are counted there. At least the first interval."""
    return max(steps // 5, interval if interval > 1 else 0)


def recent_count(interval: int = 1) -> int:
    """How many last lines of a log tell the present pace of a run that goes on: ten steps, or five intervals."""
    return STEADY_STEPS if interval == 1 else 5


def steady_lines(steps: int, interval: int = 1) -> range:
    """The steps whose lines the steady median is taken over, in a run of `steps` steps."""
    begun = max(0, steps - STEADY_STEPS) if interval == 1 else warm_up_steps(steps, interval)
    first = math.ceil(begun / interval) * interval + interval - 1
    return range(min(first, steps - 1), steps, interval)


@dataclass(frozen=True)
class Timing:
    """The step times of a valid run, boiled down. Seconds throughout.

    `step_time` is the published statistic; `window` its steps as (index, seconds), `last` the last step. These three
    are as printed; where that is a mean over `smoothing` steps, all that follows is of single ones. The settled steps are those
    behind the first fifth of the run (warm-up): `settled` is their median, `spread` their robust relative standard deviation,
    `mean` their mean, which includes what a median hides, and `hiccups` are their slow outliers. `steady` is the median of the last
    `STEADY_STEPS` steps and `tail` that of the last `TAIL_STEPS`; `steady_error` and `tail_error` are the relative standard errors of
    `steady`, and of `tail` against `settled` by the scatter of the steps before it. `periodic`: the hiccups come at equal distances. `outliers` are those of the steps that the statistic's window reaches over, `without_outliers`
    is the mean of the others. `resolution` is the relative rounding of the steps that are judged.

    With an `interval` each of these is of means over so many steps, named by the last of them; `steady` is the median of all settled
    ones and of the lines between, and `tail` the faster of the last `TAIL_INTERVALS`. Such means scatter less than steps do, and one of them hides how many
    of its steps were slow: `settled_steps` counts steps all the same, and of each hiccup one. So it is where each printed time is a
    mean over the last steps that cannot be taken apart: every so many-th line is the mean of steps of its own, and the lines
    between tell only which means have one stalled step in them, which `tail` leaves out.
    `lasting`: the interval before an outlier of the window is slow too, as it is where the pace fell and no step stalled.
    `runs`: the figures are those of so many runs together (`plugins.judging.repeats`).
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
    smoothing: int
    outliers: tuple[tuple[int, float], ...]
    without_outliers: float
    hiccups: tuple[tuple[int, float], ...]
    periodic: bool
    settled_steps: int
    mean: float
    interval: int = 1
    lasting: bool = False
    runs: int = 1

    @property
    def settled_error(self) -> float:
        """The relative standard error of `settled`."""
        return MEDIAN_ERROR * self.spread / math.sqrt(self.settled_steps / self.interval)


def timing(steps: Sequence[Step], statistic: Statistic, smoothing: int = 1, interval: int = 1) -> Timing:
    """Boil down the steps of a valid run (every index that the statistic needs has its seconds).

    `smoothing` is the number of last steps that each printed time is the mean over; `interval` that of the steps which
    have one line together, or one that is judged.
    """
    lines = {step.index: step.seconds for step in steps if step.seconds is not None}
    steps = [step for step in steps if (step.index + 1) % interval == 0]
    printed = {step.index: step.seconds for step in steps if step.seconds is not None}
    known = desmoothed(steps, smoothing)
    count = max(step.index for step in steps) + 1
    begin = steady_lines(count, interval)[0]
    last = [i for i in known if i >= begin]
    # The lines between such means are means as well. Were they times of single steps, every so many-th alone would not tell.
    median = statistics.median(t for i, t in (lines if interval > 1 else known).items() if i >= begin)
    window = tuple((i, printed[i]) for i in statistic.lines(count, interval))
    reach = range(max(0, window[0][0] - smoothing + 1), window[-1][0] + 1)
    single = tuple((i, known[i]) for i in reach if i in known)
    settled = {i: t for i, t in known.items() if i - interval + 1 >= warm_up_steps(count, interval)}
    sigma = _robust_sigma(list(settled.values()))
    limit = max(OUTLIER_SIGMAS * sigma, OUTLIER_FLOOR * median)
    plain = (
        {i: _without_stall(lines, i, interval, STALL_RISE * median) for i in known} if interval > 1 else known
    )
    # A window of several steps has a middle of its own; a single step is seen against the steady ones.
    middle = statistics.median(t for _, t in single) if len(single) > 1 else median
    outliers = tuple((i, t) for i, t in single if abs(t - middle) > limit or plain[i] < t)
    hiccups = tuple((i, t) for i, t in settled.items() if t - median > limit)
    # Nothing comes behind the last interval that would tell a stall from a fall of the pace; another one may be left out.
    end = max(plain) if interval > 1 else count
    rest = [plain[i] for i, t in single if (i, t) not in outliers or plain[i] < t or i == end]
    at_end = TAIL_STEPS if interval == 1 else TAIL_INTERVALS
    tail = [plain[i] for i in sorted(plain)[-at_end:]]
    # A fall at the end must not hide itself by the scatter that it makes.
    before = [settled[i] for i in sorted(settled)[:-at_end]] or list(settled.values())
    return Timing(
        statistic=statistic,
        step_time=statistics.fmean(t for _, t in window),
        steady=median,
        settled=statistics.median(settled.values()),
        steady_error=MEDIAN_ERROR * sigma / median / math.sqrt(len(last)),
        spread=sigma / median,
        tail=statistics.median(tail) if interval == 1 else min(tail),
        tail_error=MEDIAN_ERROR
        * _robust_sigma(before)
        / median
        * math.sqrt(1 / len(tail) + 1 / len(settled)),
        resolution=statistics.median(step.resolution for step in steps if step.index in last) / median,
        window=window,
        last=max(printed.items()),
        smoothing=smoothing,
        outliers=outliers,
        without_outliers=statistics.fmean(rest) if rest else median,
        hiccups=hiccups,
        periodic=regular([index for index, _ in hiccups]),
        settled_steps=len(settled) * interval,
        mean=statistics.fmean(settled.values()),
        interval=interval,
        lasting=interval > 1
        and any(
            plain.get(i - interval, 0.0) > (1 + OUTLIER_FLOOR) * median for i, t in outliers if t > median
        ),
    )


def _without_stall(lines: Mapping[int, float], index: int, interval: int, rise: float) -> float:
    """The mean that ends with step `index`, less what one stalled step added to it, where the lines between show one.

    A line that rises by more than `rise` s has it, and by more than all others together.
    """
    pairs = ((i - 1, i) for i in range(index - interval + 1, index + 1))
    rises = [
        max(0.0, lines[after] - lines[before]) for before, after in pairs if {before, after} <= lines.keys()
    ]
    most = max(rises, default=0.0)
    return lines[index] - (most if most > max(rise, sum(rises) / 2) else 0.0)


def regular(indices: Sequence[int]) -> bool:
    """Whether `PERIODIC` or more of these steps, and all of them but one, follow each other at distances that differ by one at most."""
    known = set(indices)
    longest = 0
    for first, second in combinations(sorted(known), 2):
        for distances in ((second - first, second - first + 1), (second - first - 1, second - first)):
            here, length = second, 2
            while there := next((here + d for d in distances if d > 0 and here + d in known), 0):
                here, length = there, length + 1
            longest = max(longest, length)
    return longest >= max(PERIODIC, len(known) - 1)


def _robust_sigma(values: Sequence[float]) -> float:
    """1.4826 x the median absolute deviation: the standard deviation of a normal sample, deaf to a few outliers."""
    median = statistics.median(values)
    return 1.4826 * statistics.median(abs(v - median) for v in values)


@dataclass(frozen=True, repr=False)
class Measurement:
    """What a valid run measured. `tokens_per_second`, `tflops_per_gpu`, `mfu` (percent) and `days_per_1t_tokens`
    follow from the published statistic. Without a yardstick (a GPU of unknown peak) there is no MFU."""

    case: Case
    timing: Timing
    yardstick: Yardstick | None

    def __repr__(self) -> str:
        return f"<{self.case.key}: {self.step_time:.4g} s a step, {self.tokens_per_second:,.0f} tokens/s>"

    @property
    def step_time(self) -> float:
        return self.timing.step_time

    @property
    def tokens_per_second(self) -> float:
        return tokens_per_second(self.case, self.step_time)

    @property
    def tokens_per_second_per_gpu(self) -> float:
        return self.tokens_per_second / self.case.gpus

    @property
    def tflops_per_gpu(self) -> float | None:
        return tflops_per_gpu(self.case, self.step_time, self.yardstick.flops) if self.yardstick else None

    @property
    def mfu(self) -> float | None:
        return self.mfu_of(self.step_time)

    def mfu_of(self, step_time: float) -> float | None:
        """MFU in percent at this step time in s; None beyond the peak, which the FLOPs that a table counts by may put a run."""
        share = mfu(self.case, step_time, self.yardstick) if self.yardstick else None
        return share if share is not None and share <= 100 else None

    @property
    def mfu_beside(self) -> float | None:
        """MFU in percent by the second way to count FLOPs, where the recipe has one; never judged."""
        beside = self.yardstick.beside if self.yardstick else None
        share = mfu(self.case, self.step_time, beside) if beside else None
        return share if share is not None and share <= 100 else None

    @property
    def days_per_1t_tokens(self) -> float:
        return days_per_1t_tokens(self.case, self.step_time)
