"""From steps to tokens/s, TFLOP/s/GPU, MFU and days. Pure arithmetic; every formula has its source.

The formulas are from NVIDIA's recipe READMEs (release 25.04, sections "Expected Performance" and "Notes").
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise

from pydantic import Field, model_validator

from plugins.errors import ConfigError
from plugins.logs import FlopsName, Step
from plugins.logs.means import SINGLE, Means
from plugins.recipes.cases import Case
from plugins.recipes.models import Model
from plugins.yamlfile import Strict

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

# This many stalls at equal distances are not chance.
PERIODIC = 4

# The standard error of the median of n normal values is this times their standard deviation / sqrt(n).
MEDIAN_ERROR = 1.2533

# The distance between the third and the seventh tenth of normal values is this times their standard deviation.
TENTHS = 1.0488
MANY = 20

# For the correlation of neighbours a value counts as at most this many standard deviations away: a stall says
# nothing of it. Few values do not tell a correlation near 1 from a drift.
CLIPPED = 2.5
MOST_ALIKE = 0.9

SECONDS_PER_DAY = 86_400


class FlopsDefinition(Strict):
    """How the model FLOPs of one sequence are counted. MFU figures are comparable only if this agrees.

    `full-attention` counts the whole s x s score matrix (the recipe READMEs and NeMo 2's own figure).
    `causal-attention` counts half of it (Megatron-Bridge). `nemotron-24.11` is what the Nemotron README of
    that release prints: it assumes as many key and value heads as queries, and counts the projections twice.

    `query_groups` replaces the model's own number, if a published table was computed with another one.
    `significant_digits` is the rounding of the published FLOPs.
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
    """The model FLOPs of one sequence of `sequence_length` tokens, forward and backward.

    With layers L, hidden size h, FFN size f, query groups g, heads a, vocabulary V and sequence length s:
    s * (12 L h^2 (1 + g/a + c s/h) + m L f h + 6 V h). c is 1 for full and 1/2 for causal attention, m is 18
    for an MLP with a gate and 12 for one without. Source: "Notes" of the llama3.1 README, release 25.04
    (c = 1, m = 18). Of a mixture of experts the k experts that a token uses count, k m; its router does not. nemotron-24.11: s * (24 L h^2 + 12 L h s + 48 L h^2 + 6 V h). Source: "Notes" of its
    README_340b, release 24.11.
    """
    h, layers = model.hidden, model.layers
    if definition.definition == "nemotron-24.11":
        attention = 24.0 * layers * h * h + 12 * layers * h * sequence_length
        mlp = 48 * layers * h * h
    else:
        groups = definition.query_groups or model.query_groups
        share = 1.0 if definition.definition == "full-attention" else 0.5
        attention = 12 * layers * h * h * (1 + groups / model.heads + share * sequence_length / h)
        mlp = (18 if model.mlp == "gated" else 12) * model.top_k * layers * model.ffn * h
    embedding = 6 * model.vocab * h
    flops = sequence_length * (attention + mlp + embedding)
    if definition.significant_digits is not None:
        flops = float(f"{flops:.{definition.significant_digits - 1}e}")
    return flops


@dataclass(frozen=True)
class MfuBasis:
    """What turns a step time into MFU: the FLOPs and the peak, each with its definition.

    `flops` is of one sequence, `peak_tflops` of one GPU. `beside` has the FLOPs by a second definition, for
    comparison.
    """

    flops: float
    definition: FlopsDefinition
    peak_tflops: float
    beside: MfuBasis | None = None


def tokens_per_second(case: Case, step_time: float) -> float:
    """(sequence length) x (global batch size) / (step time in s)."""
    return case.tokens_per_step / step_time


def tflops_per_gpu(case: Case, step_time: float, flops: float) -> float:
    """(global batch size) x (model FLOPs of a sequence) / (step time in s) / GPUs, in TFLOP/s."""
    return case.gbs * flops / step_time / case.gpus / 1e12


def mfu(case: Case, step_time: float, mfu_basis: MfuBasis) -> float:
    """Model FLOPs utilization in percent of the peak of its basis."""
    return 100 * tflops_per_gpu(case, step_time, mfu_basis.flops) / mfu_basis.peak_tflops


def days_per_1t_tokens(case: Case, step_time: float) -> float:
    """Days to train on 1e12 tokens at this pace."""
    return 1e12 / tokens_per_second(case, step_time) / SECONDS_PER_DAY


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
        return "last" if self.first is None else f"mean:{self.first}-{self.last}"

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

    So a step may take no time, because its neighbours took it. If a step is too short to be a step time, it and the steps that took its time all get their mean. Those
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
    # The lines between those that are judged count too. If the log had single steps after all, the judged
    # lines alone would not show its pace.
    median = statistics.median(t for i, t in times.items() if i >= begin)
    window = tuple((i, printed[i]) for i in judged.lines(statistic.indices(count)))
    reach = range(max(0, window[0][0] - means.over + 1), window[-1][0] + 1)
    single = tuple((i, known[i]) for i in reach if i in known)
    settled = {i: t for i, t in known.items() if judged.covered(i)[0] >= judged.warm_up(count)}
    stalls = judged.stalls(times, STALL_RISE * median)
    plain = {i: t - stalls.get(i, 0.0) for i, t in known.items()}
    pace, sigma = statistics.median(settled.values()), _robust_sigma([plain[i] for i in settled])
    limit = max(OUTLIER_SIGMAS * sigma, OUTLIER_FLOOR * median)
    # The steps of a window are compared with their own median, a single step with the steady median.
    middle = statistics.median(t for _, t in single) if len(single) > 1 else median
    outliers = tuple((i, t) for i, t in single if abs(t - middle) > limit or plain[i] < t)
    hiccups = tuple((i, t) for i, t in settled.items() if t - pace > limit)
    # After the last interval no line shows whether it stalled or the pace fell, so it always counts. An
    # earlier one may be left out.
    end = count if judged.single else max(plain)
    rest = [plain[i] for i, t in single if (i, t) not in outliers or plain[i] < t or i == end]
    tail = [plain[i] for i in sorted(plain)[-judged.unit.tail :]]
    in_order = [settled[i] for i in sorted(settled)]
    # The tail is left out, so that a fall at the end does not add to the scatter.
    before = in_order[: -judged.unit.tail] or in_order
    scatter = _scatter(before)
    high = max(OUTLIER_FLOOR * median, judged.unit.sigmas * scatter)
    return Timing(
        statistic=statistic,
        step_time=statistics.fmean(t for _, t in window),
        steady=median,
        settled=pace,
        steady_error=MEDIAN_ERROR * sigma / median / math.sqrt(len(last)),
        spread=sigma / median,
        tail=judged.unit.end(tail),
        tail_error=MEDIAN_ERROR * scatter / median * math.sqrt(1 / len(tail) + 1 / len(settled)),
        resolution=statistics.median(step.resolution for step in steps if step.index in last) / median,
        window=window,
        last=max(printed.items()),
        outliers=outliers,
        without_outliers=statistics.fmean(rest) if rest else median,
        hiccups=hiccups,
        fast=tuple((i, t) for i, t in known.items() if pace - t > limit),
        periodic=regular([index for index, _ in hiccups]),
        settled_steps=len(settled) * judged.every,
        mean=statistics.fmean(settled.values()),
        means=means,
        lasting=not judged.single
        and any(min(plain.get(i - judged.every, 0.0), plain[i]) > median + high for i, _ in outliers),
    )


def regular(indices: Sequence[int]) -> bool:
    """Whether `PERIODIC` or more of these steps, and all but one of them, follow at equal distances.

    Distances that differ by one are equal.
    """
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
    """1.4826 x the median absolute deviation: a normal sample's standard deviation, whatever its outliers."""
    median = statistics.median(values)
    return 1.4826 * statistics.median(abs(v - median) for v in values)


def _scatter(values: Sequence[float]) -> float:
    """The standard deviation by which a median of such values, in their order, is uncertain.

    If more than half of the values are nearly equal, their median deviation is near 0, although the others
    differ: steps that alternate between two paces are such. The distance of two quantiles shows them. If
    successive values are alike, they say less than as many independent ones: with a correlation r of
    neighbours the variance of a mean is (1 + r) / (1 - r) times as large (for a first-order autoregression).
    Fewer values than `MANY` tell neither.
    """
    sigma = _robust_sigma(values)
    if len(values) < MANY:
        return sigma
    tenths = statistics.quantiles(values, n=10, method="inclusive")
    sigma = max(sigma, (tenths[6] - tenths[2]) / TENTHS)
    alike = _correlation(values, sigma)
    return sigma * math.sqrt((1 + alike) / (1 - alike))


def _correlation(values: Sequence[float], sigma: float) -> float:
    """The correlation of each value with the next, less its standard error, from 0 to `MOST_ALIKE`.

    Outliers count as far as `CLIPPED`.
    """
    median = statistics.median(values)
    limit = CLIPPED * sigma
    clipped = [min(max(value - median, -limit), limit) for value in values]
    mean = statistics.fmean(clipped)
    centred = [value - mean for value in clipped]
    square = math.fsum(value * value for value in centred)
    product = math.fsum(value * after for value, after in pairwise(centred))
    if not square:
        return 0.0
    return min(max(product / square - 1 / math.sqrt(len(values)), 0.0), MOST_ALIKE)


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
        return self.timing.step_time

    @property
    def tokens_per_second(self) -> float:
        return tokens_per_second(self.case, self.step_time)

    @property
    def tokens_per_second_per_gpu(self) -> float:
        return self.tokens_per_second / self.case.gpus

    @property
    def tflops_per_gpu(self) -> float | None:
        return tflops_per_gpu(self.case, self.step_time, self.mfu_basis.flops) if self.mfu_basis else None

    @property
    def mfu(self) -> float | None:
        return self.mfu_of(self.step_time)

    def mfu_of(self, step_time: float) -> float | None:
        """MFU in percent at this step time in s; None if it is above 100, by the table's FLOPs."""
        share = mfu(self.case, step_time, self.mfu_basis) if self.mfu_basis else None
        return share if share is not None and share <= 100 else None

    @property
    def mfu_beside(self) -> float | None:
        """MFU in percent by the recipe's second definition of FLOPs, if it has one; never judged."""
        beside = self.mfu_basis.beside if self.mfu_basis else None
        share = mfu(self.case, self.step_time, beside) if beside else None
        return share if share is not None and share <= 100 else None

    @property
    def days_per_1t_tokens(self) -> float:
        return days_per_1t_tokens(self.case, self.step_time)
