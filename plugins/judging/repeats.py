"""What several runs tell: of one case, whether another run is needed and what all measured; of two runs of the same cases,
which cases are faster or slower in the second. Pure.

The unit is the run, not the step: what a cluster does differently from run to run is the same in all steps of
a run. So the medians of the runs of a case are averaged, and the distance between them counts as well as the scatter of
the steps. Of two runs, the scatter of the cases' ratios says what a ratio of 1 may look like.

`compare`: the logarithms of the ratios are explained by as few effects as possible. An effect is of one case, or of all
cases that share a property, such as a dtype. Effects are added one by one, always the one that explains most.
The last one that passes its test is the last that counts, as in Rosner's test for several outliers
(B. Rosner, Technometrics 25 (1983) 165, "generalized extreme Studentized deviate"). The variance is that of what
the effects leave unexplained, moderated by `RUN_TO_RUN` as if that had been seen in `PRIOR` cases (G. K. Smyth,
Stat. Appl. Genet. Mol. Biol. 3 (2004) 3, equation 1).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain
from statistics import fmean, stdev

from plugins.baselines.expected import Expected
from plugins.judging.choice import MAX_RUNS
from plugins.judging.measurement import Measurement, Settled, Timing
from plugins.judging.pace import judge_pace
from plugins.judging.steadiness import fell
from plugins.judging.verdicts import Band, Verdict
from plugins.record.verdict import Kind

# If the steady median is closer than this many of its standard errors to a limit of the band, it is in doubt.
SIGMAS = 3.0

# The median of all settled steps must be beyond a limit by at least this share to be beyond doubt, because
# runs differ from each other.
SURE = 0.01

# Between these shares of the limit, the number of stalls is in doubt: of 40 steps, from 3 to 7 stalls.
FEW, MANY = 0.5, 1.5


def unsure(runs: Sequence[Measurement], expected: Expected, at_most: int = MAX_RUNS) -> str:
    """Why another run of the case would help to decide; "" if these runs decide, or if there are `at_most`.

    If one of the runs fails beyond doubt, the case is not run again.
    """
    if len(runs) >= at_most or any(_clear_failure(run, expected) for run in runs):
        return ""
    return _doubt(together(runs), expected)


def judge_runs(runs: Sequence[Measurement], expected: Expected) -> tuple[Measurement, Verdict]:
    """What all runs of a case measured together, and their verdict.

    If one of them fails beyond doubt, its measurement and verdict are returned.
    """
    for number, run in enumerate(runs, start=1):
        if len(runs) > 1 and _clear_failure(run, expected):
            verdict = judge_pace(run, expected)
            alone = f"run {number} of {len(runs)} decides by itself; the others change nothing of it"
            return run, replace(verdict, remarks=(alone, *verdict.remarks))
    measurement = together(runs)
    verdict = judge_pace(measurement, expected)
    return measurement, replace(verdict, remarks=(*remarks_on(runs), *verdict.remarks))


def remarks_on(runs: Sequence[Measurement]) -> list[str]:
    """The remark that the figures are of several runs; empty if there is one."""
    if len(runs) == 1:
        return []
    medians = ", ".join(f"{run.timing.steady:.4g}" for run in runs)
    return [f"{len(runs)} runs of this case are judged together: steady medians {medians} s"]


def _clear_failure(run: Measurement, expected: Expected) -> bool:
    return not _doubt(run, expected) and judge_pace(run, expected).fails


def _doubt(measurement: Measurement, expected: Expected) -> str:
    """What these figures leave undecided; "" if they decide."""
    timing, band = measurement.timing, Band(expected, measurement.timing.resolution)
    off = SIGMAS * timing.steady_error
    sides = {band.side(timing.steady * (1 + sign * off)) for sign in (-1, 0, 1)}
    # All settled steps together say more than the last ten.
    slow = timing.settled.median * (1 - max(SURE, SIGMAS * timing.settled_error))
    if band.side(timing.steady) is band.side(slow) is Kind.TOO_SLOW:
        return ""
    if len(sides) > 1:
        return (
            f"the steady median {timing.steady:.4g} s is within {SIGMAS:.0f} standard errors ({100 * off:.2g} %) of a limit of "
            f"the band"
        )
    if sides != {Kind.PASSED}:
        return ""
    if fell(measurement, band) and band.side(timing.tail * (1 - SIGMAS * timing.tail_error)) is Kind.TOO_SLOW:
        # The run is slow at its end beyond doubt.
        return ""
    share = len(timing.settled.hiccups) / timing.settled.steps / expected.baseline.tolerance.hiccups
    if FEW < share <= MANY:
        return f"{len(timing.settled.hiccups)} of {timing.settled.steps} settled steps stalled, which may be chance"
    verdict = judge_pace(measurement, expected)
    if not verdict.fails or share > MANY:
        return ""
    return verdict.headline


def together(runs: Sequence[Measurement]) -> Measurement:
    """What several runs of a case measured."""
    return replace(runs[-1], timing=pooled([run.timing for run in runs]))


def pooled(runs: Sequence[Timing]) -> Timing:
    """Combine the figures of several runs: means of the runs' figures, and all their stalls.

    The window and the last line are those of the last run. `periodic` and `lasting` are true if they are for most
    runs.
    """
    if len(runs) == 1:
        return runs[0]
    published, settled = [run.published for run in runs], [run.settled for run in runs]
    steady = fmean(run.steady for run in runs)
    between = stdev(run.steady for run in runs) / steady / math.sqrt(len(runs))
    return replace(
        runs[-1],
        published=replace(
            published[-1],
            step_time=fmean(run.step_time for run in published),
            outliers=tuple(chain.from_iterable(run.outliers for run in published)),
            without_outliers=fmean(run.without_outliers for run in published),
            lasting=2 * sum(run.lasting for run in published) > len(runs),
        ),
        settled=Settled(
            median=fmean(run.median for run in settled),
            mean=fmean(run.mean for run in settled),
            spread=fmean(run.spread for run in settled),
            hiccups=tuple(chain.from_iterable(run.hiccups for run in settled)),
            fast=tuple(chain.from_iterable(run.fast for run in settled)),
            periodic=2 * sum(run.periodic for run in settled) > len(runs),
            steps=sum(run.steps for run in settled),
        ),
        steady=steady,
        steady_error=max(math.hypot(*(run.steady_error for run in runs)) / len(runs), between),
        tail=fmean(run.tail for run in runs),
        tail_error=math.hypot(*(run.tail_error for run in runs)) / len(runs),
        resolution=fmean(run.resolution for run in runs),
        runs=len(runs),
    )


RUN_TO_RUN = 0.008
"""Standard deviation of the pace from run to run, as a share, before the runs themselves say what it is."""

PRIOR = 3.0
"""So many degrees of freedom `RUN_TO_RUN` counts for."""

ALPHA = 0.02
"""Two runs that are equal are told to differ with at most this probability."""

CONFIDENCE = 0.95
"""Of the intervals."""

MAX_EFFECTS = 5

ALL = "all cases"

SAME = 0.03
"""Two paces are the same if the whole interval of their ratio is within this share of 1."""


class Finding(StrEnum):
    """What the second run is against the first."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True)
class Pair:
    """A case in two runs: the steady step times in s of its jobs in each, and its properties, e.g. its dtype."""

    key: str
    first: tuple[float, ...]
    second: tuple[float, ...]
    properties: Mapping[str, str]

    @property
    def change(self) -> float:
        """The logarithm of the ratio of the paces; negative: the second is slower."""
        return _mean_log(self.first) - _mean_log(self.second)

    @property
    def variance(self) -> float:
        """The variance of `change` in units of the variance from run to run."""
        return 1 / len(self.first) + 1 / len(self.second)


@dataclass(frozen=True)
class Ratio:
    """A ratio of two paces, and its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Effect:
    """What is common to these cases alone: "all fp8 cases", or one case."""

    name: str
    cases: tuple[str, ...]
    ratio: Ratio


@dataclass(frozen=True)
class Comparison:
    """What two runs have in common.

    `run_to_run` is the standard deviation, as a share, that the tests used.
    """

    effects: tuple[Effect, ...]
    ratios: Mapping[str, Ratio]
    findings: Mapping[str, Finding]
    run_to_run: float


def compare(pairs: Sequence[Pair]) -> Comparison:
    """Compare two runs, case by case and property by property."""
    if not pairs:
        return Comparison((), {}, {}, RUN_TO_RUN)
    fit = _explain(pairs)
    effects = tuple(
        Effect(group.name, tuple(pair.key for pair in pairs if pair.key in group.cases), ratio)
        for group, ratio in zip(fit.groups, fit.effects(), strict=True)
    )
    ratios = {pair.key: fit.ratio(pair.change, fit.sigma**2 * pair.variance) for pair in pairs}
    findings = {
        pair.key: _finding(fitted, ratios[pair.key]) for pair, fitted in zip(pairs, fit.fitted(), strict=True)
    }
    return Comparison(effects, ratios, findings, fit.sigma)


def _finding(fitted: Ratio, own: Ratio) -> Finding:
    """The finding on a case, from the ratio that the effects predict (`fitted`) and from its own ratio."""
    if fitted.low > 1:
        return Finding.FASTER
    if fitted.high < 1:
        return Finding.SLOWER
    return Finding.SAME if own.low > 1 - SAME and own.high < 1 + SAME else Finding.CANNOT_TELL


@dataclass(frozen=True)
class _Group:
    """Cases that may share an effect."""

    name: str
    cases: frozenset[str]


class _Fit:
    """The effects of these groups, fitted to the changes of all cases by weighted least squares."""

    def __init__(self, pairs: Sequence[Pair], groups: Sequence[_Group]) -> None:
        import numpy

        self.groups = tuple(groups)
        self.design = numpy.array([[pair.key in group.cases for group in groups] for pair in pairs], float)
        root = numpy.array([pair.variance for pair in pairs]) ** 0.5
        changes = numpy.array([pair.change for pair in pairs])
        weighted = self.design / root[:, None]
        inverse = numpy.linalg.pinv(weighted)
        self.estimates = inverse @ (changes / root)
        self.unexplained = float((((changes - self.design @ self.estimates) / root) ** 2).sum())
        self.freedom = PRIOR + len(pairs) - len(groups)
        self.sigma = math.sqrt((PRIOR * RUN_TO_RUN**2 + self.unexplained) / self.freedom)
        self.covariance = self.sigma**2 * (inverse @ inverse.T)

    def chance(self) -> float:
        """The probability that the last effect, or a larger one, is seen where there is none."""
        from scipy.special import stdtr

        error = math.sqrt(self.covariance[-1, -1])
        return 2 * float(stdtr(self.freedom, -abs(self.estimates[-1]) / error))

    def ratio(self, change: float, variance: float) -> Ratio:
        """A ratio of paces by its logarithm, and the variance of that."""
        from scipy.special import stdtrit

        reach = math.sqrt(variance) * float(stdtrit(self.freedom, (1 + CONFIDENCE) / 2))
        return Ratio(math.exp(change), math.exp(change - reach), math.exp(change + reach))

    def effects(self) -> list[Ratio]:
        return [self.ratio(change, self.covariance[i, i]) for i, change in enumerate(self.estimates)]

    def fitted(self) -> list[Ratio]:
        """The ratio that the effects make of each case."""
        return [
            self.ratio(float(row @ self.estimates), float(row @ self.covariance @ row)) for row in self.design
        ]


def _explain(pairs: Sequence[Pair]) -> _Fit:
    """The fit of the effects that count."""
    candidates = _groups(pairs)
    counted = latest = _Fit(pairs, [])
    for _ in range(min(MAX_EFFECTS, max(1, len(pairs) // 4))):
        taken = latest.groups
        more = (_Fit(pairs, [*taken, group]) for group in candidates if group not in taken)
        latest = min(more, key=lambda fit: fit.unexplained)
        if latest.chance() * len(candidates) < ALPHA:
            counted = latest
    return counted


def _groups(pairs: Sequence[Pair]) -> list[_Group]:
    """All cases, those of each property, and each case alone; of groups with the same cases, the first."""
    named = {ALL: [pair.key for pair in pairs]}
    for name in sorted({name for pair in pairs for name in pair.properties}):
        for pair in pairs:
            if name in pair.properties:
                named.setdefault(f"all {pair.properties[name]} cases", []).append(pair.key)
    named |= {pair.key: [pair.key] for pair in pairs if len(pairs) > 1}
    first = {frozenset(cases): name for name, cases in reversed(named.items())}
    alone = {frozenset([pair.key]): pair.key for pair in pairs}
    return [_Group(name, cases) for cases, name in (first | alone).items()]


def _mean_log(seconds: Sequence[float]) -> float:
    return sum(map(math.log, seconds)) / len(seconds)
