"""Two runs of the same cases: which cases are faster or slower in the second, and by how much. Pure.

The unit is the run, not the step: what a cluster does differently from run to run is the same in all steps of a
run. The scatter of the cases' ratios therefore says what a ratio of 1 may look like, not the scatter of steps.

The logarithms of the ratios are explained by as few effects as possible. An effect is of one case, or of all
cases that share a property, such as a dtype. Effects are added one by one, always the one that explains most.
The last one that passes its test is the last that counts, as in Rosner's test for several outliers
(B. Rosner, Technometrics 25 (1983) 165, "generalized extreme Studentized deviate"). The variance is that of what
the effects leave unexplained, moderated by `RUN_TO_RUN` as if that had been seen in `PRIOR` cases (G. K. Smyth,
Stat. Appl. Genet. Mol. Biol. 3 (2004) 3, equation 1).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

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
