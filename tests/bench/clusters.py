"""Simulated clusters: what is wrong with them, the steps of a run on one, and what a log would print of these.

Which clusters there are, and which published statistics their runs are judged by, stands here; `tests/bench/rates.py` judges them.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from plugins.baselines.baseline_file import Cell, Table
from plugins.baselines.expected import Expected, counting, expected
from plugins.baselines.metrics import FlopsDefinition
from plugins.baselines.store import Baseline
from plugins.judging.measurement import Measurement
from plugins.judging.steadiness import PUBLISHED, Noise
from plugins.judging.timing import timing
from plugins.logs import Step
from plugins.logs.numbers import resolution
from plugins.record.baseline import Statistic, Tolerance
from tests.bench.mlperf import systems
from tests.unit import examples

NOISES = (0.01, 0.02, 0.03)
"""Relative standard deviations of a step."""

HICCUPS = (0.0, 0.01, 0.02)
"""Shares of the steps that stall at random."""

BETWEEN = (0.0, 0.005)
"""Relative standard deviations of the pace from one run to the next."""

STALL = 1.3
"""A stalled step takes so many times as long."""

WARM_UP = 4.0
"""So does the first step of every run."""

USUAL_STEPS = 50
"""A slow-down names the steps of a run of so many; in a longer run it begins later in proportion."""

GPU = "h100"
MADE_UP = 78.0
"""Nobody has published a step time for gpt3_aks, in s: this one stands in."""


@dataclass(frozen=True)
class SlowDown:
    """What is wrong with a cluster: the steps from `first` on, and before `end`, take `factor` times as long.

    With `every` only each so many-th step does. With `drift` the last step does, and those before come near it evenly.
    """

    name: str
    factor: float = 1.0
    first: int = 0
    end: int = USUAL_STEPS
    every: int = 0
    drift: bool = False

    def factors(self, steps: int, rng: random.Random) -> list[float]:
        """How many times as long each step takes; periodic stalls begin anywhere in their first period."""
        if self.drift:
            return [1 + (self.factor - 1) * i / (steps - 1) for i in range(steps)]
        if self.every:
            phase = rng.randrange(self.every)
            return [self.factor if i % self.every == phase else 1.0 for i in range(steps)]
        slow = range(self.first * steps // USUAL_STEPS, self.end * steps // USUAL_STEPS)
        return [self.factor if i in slow else 1.0 for i in range(steps)]


HEALTHY, LITTLE, THROUGHOUT = "healthy", "3 %", "8 %"
ENDS = ("8 % from 31", "8 % from 40", "8 % from 45", "30 % from 47")
DRIFT = "drift to 8 %"
STALLS = ("stall, every 7th", "stall, every 8th", "stall, every 10th")
SLOW_DOWNS = {
    slow.name: slow
    for slow in (
        SlowDown(HEALTHY),
        SlowDown(LITTLE, 1.03),
        SlowDown(THROUGHOUT, 1.08),
        SlowDown(ENDS[0], 1.08, first=31),
        SlowDown(ENDS[1], 1.08, first=40),
        SlowDown(ENDS[2], 1.08, first=45),
        SlowDown(ENDS[3], STALL, first=47),
        SlowDown(DRIFT, 1.08, drift=True),
        SlowDown(STALLS[0], STALL, every=7),
        SlowDown(STALLS[1], STALL, every=8),
        SlowDown(STALLS[2], STALL, every=10),
    )
}


ALTERNATING, FAST_HALF, FAST_PART = "every 2nd 2.5 % longer", "first 49 % in 0.7", "40 % in half"
# Of a healthy pace. Whether such runs pass is told apart from the table of noise and hiccups.
OTHER_PATTERNS = {
    pattern.name: pattern
    for pattern in (
        SlowDown(ALTERNATING, 1.025, every=2),
        SlowDown(FAST_HALF, 0.7, end=25),
        SlowDown(FAST_PART, 0.5, first=20, end=40),
    )
}


@dataclass(frozen=True)
class Cluster:
    """What runs are drawn from: how its steps and its runs scatter, what share of the steps stalls, and what is wrong with it.

    `correlation` is that of the noise of one step with that of the next. `long` is the share of the steps that take 5 to
    30 % longer, evenly spread. `real` is the system in `mlperf` whose steps these are; nothing else scatters then.
    """

    noise: float
    hiccups: float
    between: float
    slow: str
    correlation: float = 0.0
    long: float = 0.0
    real: str = field(default="", repr=False)

    def draw(self, steps: int, rng: random.Random) -> list[float]:
        """The step times of one run, as multiples of the baseline's."""
        pattern = SLOW_DOWNS.get(self.slow) or OTHER_PATTERNS[self.slow]
        if self.real:
            window = systems()[self.real].window(steps, rng)
            times = [factor * time for factor, time in zip(pattern.factors(steps, rng), window, strict=True)]
        else:
            times = self._simulated(pattern, steps, rng)
        times[0] *= WARM_UP
        return times

    def _simulated(self, pattern: SlowDown, steps: int, rng: random.Random) -> list[float]:
        """All that scatters is normal."""
        pace = 1 + rng.gauss(0, self.between)
        noise = Noise(self.noise, self.correlation).steps(steps, rng)
        times = [
            pace * factor * (1 + deviation) * (STALL if rng.random() < self.hiccups else 1)
            for factor, deviation in zip(pattern.factors(steps, rng), noise, strict=True)
        ]
        if self.long:
            times = [time * rng.uniform(1.05, 1.3) if rng.random() < self.long else time for time in times]
        return times


CORRELATIONS = (0.35, 0.8)
CORRELATED = {
    f"{slow}, noise correlated by {correlation:g}": Cluster(0.02, 0.02, 0.0, slow, correlation)
    for correlation in CORRELATIONS
    for slow in (HEALTHY, THROUGHOUT)
}
UNEVEN = {
    f"healthy, 3 % of the steps 5 to 30 % longer, {100 * noise:g} % noise": Cluster(
        noise, 0.0, 0.0, HEALTHY, long=0.03
    )
    for noise in (0.01, 0.02)
}
PATTERNS = {f"{name}, 0.5 % noise": Cluster(0.005, 0.0, 0.0, name) for name in OTHER_PATTERNS}
PUBLISHED_NOISE = {
    f"{slow}, the noise that `--plan` counts on": Cluster(
        PUBLISHED.step, 0.003, PUBLISHED.between, slow, PUBLISHED.correlation
    )
    for slow in (HEALTHY, LITTLE, THROUGHOUT)
}
VARIANTS = {**CORRELATED, **PUBLISHED_NOISE, **UNEVEN, **PATTERNS}
"""Clusters beyond the table of noise and hiccups, by what is said of them."""

REAL = {
    slow: [Cluster(0.0, 0.0, 0.0, slow, real=name) for name in systems()] for slow in (HEALTHY, THROUGHOUT)
}
"""Clusters that scatter as those of MLPerf do, by what is wrong with them."""


# What logs print


@lru_cache(maxsize=100_000)
def _step(index: int, printed: str, digits: int) -> Step:
    return Step(index, float(printed), resolution(printed, digits))


def nemo2(seconds: Sequence[float]) -> list[Step]:
    """As NeMo 2 prints them: in four digits."""
    return [_step(i, f"{value:.4g}", 4) for i, value in enumerate(seconds)]


def megatron_bridge(seconds: Sequence[float]) -> list[Step]:
    """As Megatron-Bridge prints each iteration: in ms, with one digit behind the point."""
    printed = [f"{1000 * value:.1f}" for value in seconds]
    return [Step(i, float(text) / 1000, resolution(text) / 1000) for i, text in enumerate(printed)]


def running_means(seconds: Sequence[float], size: int = 5) -> list[float]:
    """What NeMo's timer has after each step: the mean over the last `size` steps, at the start over as many as there are."""
    return [sum(seconds[max(0, i - size + 1) : i + 1]) / min(i + 1, size) for i in range(len(seconds))]


def nemo1(seconds: Sequence[float]) -> list[Step]:
    """As NeMo 1 prints means over the last five: in three digits."""
    return [_step(i, f"{value:.3g}", 3) for i, value in enumerate(running_means(seconds))]


def dllogger(seconds: Sequence[float]) -> list[Step]:
    """As DLLogger prints means over the last five: in full."""
    return [Step(i, value) for i, value in enumerate(running_means(seconds))]


def megatron_lm(seconds: Sequence[float]) -> list[Step]:
    """As Megatron-LM prints the mean of each ten: in ms, with one digit behind the point."""
    steps = []
    for first in range(0, len(seconds), 10):
        printed = f"{1000 * statistics.fmean(seconds[first : first + 10]):.1f}"
        steps.append(Step(first + 9, float(printed) / 1000, resolution(printed) / 1000))
    return steps


# What runs are judged by


@dataclass(frozen=True)
class Figure:
    """A published statistic: the log that it is read from, and what it should reach."""

    name: str
    words: str
    printed: Callable[[Sequence[float]], list[Step]]
    target: Expected
    statistic: Statistic

    def measured(self, cluster: Cluster, rng: random.Random) -> Measurement:
        """One run of the case on this cluster."""
        case = self.target.case
        steps = self.printed([self.target.step_time * times for times in cluster.draw(case.steps, rng)])
        boiled = timing(steps, self.statistic, case.means)
        return Measurement(case, boiled, self.target.mfu_basis)


def published(case_id: str, recipe: str, release: str | None, statistic: str) -> Expected:
    """What was published for the case, judged by this statistic and within the usual band."""
    found = examples.baseline(case_id, recipe, release=release, statistic=statistic)
    table = found.table.model_copy(update={"tolerance": Tolerance()})
    return _expected(replace(found, table=table), case_id, recipe, release)


def made_up(case_id: str, recipe: str, step_time: float, statistic: str) -> Expected:
    """A baseline for a case that nothing was published for."""
    case = examples.case(case_id, recipe)
    cell = Cell.model_validate(
        {
            **case.configuration(),
            "size": case.size,
            "dtype": case.dtype,
            "gpus": case.gpus,
            "step_time": step_time,
            "tokens_per_second": case.tokens_per_step / step_time,
            "mfu": 45.0,
        }
    )
    table = Table(
        release=case.release,
        gpu=GPU,
        framework="Megatron-LM",
        source="made up for a simulation",
        statistic=statistic,
        peak={case.dtype: 989.0},
        flops={case.size: FlopsDefinition(definition="causal-attention")},
        cells=[cell],
    )
    return _expected(Baseline(Path("made_up.yaml"), table, cell), case_id, recipe, None)


def _expected(baseline: Baseline, case_id: str, recipe: str, release: str | None) -> Expected:
    case = examples.case(case_id, recipe, release=release)
    basis = counting(case, baseline, GPU, examples.BASELINES).basis()
    assert basis is not None
    return expected(case, baseline, basis)


@lru_cache
def figures() -> dict[str, Figure]:
    """Every statistic that is simulated, by its name."""
    nemo = "NeMo 2, four digits"
    rows = [
        *(
            (name, nemo, nemo2, published(examples.CASE, "llama3", None, name))
            for name in ("last", "mean:11-44", "mean:35-44")
        ),
        (
            "mean:35-49",
            "Megatron-Bridge, ms with one digit behind the point",
            megatron_bridge,
            published("llama3-70b-fp8_cs-64gpus", "megatron_bridge", "26.04", "mean:35-49"),
        ),
        (
            "last, nemo1, over: 5",
            "NeMo 1, means over the last five steps in three digits",
            nemo1,
            published("405b-fp8-576gpus", "llama3", "25.02", "last"),
        ),
        (
            "mean:15-40, dllogger, over: 5",
            "DLLogger, means over the last five steps in full",
            dllogger,
            published("70b-fp8-128gpus", "llama3_gke", None, "mean:15-40"),
        ),
        (
            "mean:50-99, over: 10, every: 10",
            "Megatron-LM, the mean of each ten of 100 steps",
            megatron_lm,
            made_up("175b-fp16-512gpus", "gpt3_aks", MADE_UP, "mean:50-99"),
        ),
    ]
    return {
        name: Figure(name, words, printed, target, target.baseline.statistic)
        for name, words, printed, target in rows
    }
