"""Makes what the fixtures of a suite's test return. It is loaded when tests run."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from plugins.base.errors import Infrastructure, Lost
from plugins.base.words import shown
from plugins.judging.judgement import Judgement
from plugins.judging.kinds import save
from plugins.record.outcome import Outcome
from plugins.record.verdict import Kind
from plugins.reports import benchmark
from plugins.suite.judged import JUDGEMENT, judge_item
from plugins.suite.session import case_of


@dataclass(frozen=True)
class Target:
    """A figure that a case should reach. It works like `pytest.approx`. `own` is the measured figure.

    If the target is compared with `own`, the verdict decides, because it considers more than this one number.
    Any other number is equal if it is within the tolerance: `slower` and `faster` are shares of `value`.
    """

    value: float
    unit: str
    own: float | None
    slower: float
    faster: float
    judgement: Judgement

    def __eq__(self, other: object) -> bool:
        # None: the figure of the published statistic would be beyond the peak, and the steady median decides.
        if other == self.own:
            return not self.judgement.verdict.fails
        if not isinstance(other, int | float):
            return NotImplemented
        return self.value * (1 - self.slower) <= other <= self.value * (1 + self.faster)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{_figure(self.value)} {self.unit} (-{100 * self.slower:g} %, +{100 * self.faster:g} %)"


@dataclass(frozen=True)
class Targets:
    """The figures that a case should reach."""

    tokens_per_second: Target
    mfu: Target


@dataclass(frozen=True)
class Promise:
    """The figure that the shared storage should reach."""

    bytes_per_second: Target


def _figure(value: float) -> str:
    """`833,030`, `39.54`."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.2f}"


def judged(request: pytest.FixtureRequest, outcome: Outcome) -> Judgement:
    """The judged case of a test: its log is checked and compared with the baseline, and its record is written."""
    try:
        judgement = request.node.stash.get(JUDGEMENT, None) or judge_item(request.node, outcome)
    except OSError as error:
        raise Infrastructure(f"its files in the results folder cannot be read or written: {error}") from None
    if judgement.measurement is not None:
        benchmark.show(request, judgement)
    return judgement


class Figures:
    """The `judgement` of a case that has figures, and what it should reach. If its run was invalid, its test fails before its body runs.

    If the job did not run to its end, it raises an error. If there is no baseline, or if the job was not submitted
    because what it needs is not there, the test is skipped.
    """

    def __init__(self, judgement: Judgement) -> None:
        kind = judgement.verdict.kind
        if kind is Kind.INFRASTRUCTURE:
            raise Infrastructure(judgement.text)
        if kind is Kind.LOST:
            raise Lost(judgement.text)
        if kind in (Kind.NO_BASELINE, Kind.SKIPPED):
            pytest.skip(shown(judgement.verdict.headline))
        self.judgement = judgement

    @property
    def lacking(self) -> list[str]:
        verdict = self.judgement.verdict
        return [] if verdict.kind is Kind.PASSED else [verdict.headline]

    @property
    def expected(self) -> Targets | None:
        target, measured = self.judgement.expected, self.judgement.measurement
        if target is None or measured is None:
            return None
        band = target.baseline.tolerance.slower, target.baseline.tolerance.faster
        return Targets(
            Target(target.tokens_per_second, "tokens/s", measured.tokens_per_second, *band, self.judgement),
            Target(target.mfu, "% MFU", measured.mfu, *band, self.judgement),
        )

    @property
    def promised(self) -> Promise | None:
        written = self.judgement.written
        if written is None or written.promised is None:
            return None
        band = save.SLOWER, save.FASTER
        target = Target(written.promised, "bytes/s", written.bytes_per_second, *band, self.judgement)
        return Promise(target)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if case_of(item) is not None:
            benchmark.prepare(item)


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """The failure message of `measured == expected`."""
    if op != "==" or not isinstance(right, Target) or not isinstance(left, int | float):
        return None
    return [f"{_figure(left)} {right.unit} == {right!r}", *shown(right.judgement.text).splitlines()]
