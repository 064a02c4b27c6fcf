"""What a suite's test compares a run's own figures with, in the manner of `pytest.approx`."""

from __future__ import annotations

from dataclasses import dataclass

from plugins.judging.judge import Judgement


@dataclass(frozen=True)
class Goal:
    """A figure that a case should reach. `own` is the run's, `slower` and `faster` are shares of `value`.

    Equal to the run's own figure when the verdict passes, which looks at more than that one number; equal to any
    other number when that lies inside the tolerance.
    """

    value: float
    unit: str
    own: float | None
    slower: float
    faster: float
    judgement: Judgement

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, int | float):
            return NotImplemented
        if other == self.own:
            return not self.judgement.verdict.fails
        return self.value * (1 - self.slower) <= other <= self.value * (1 + self.faster)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{figure(self.value)} {self.unit} (-{100 * self.slower:g} %, +{100 * self.faster:g} %)"


@dataclass(frozen=True)
class Goals:
    """The figures that a case should reach."""

    tokens_per_second: Goal
    mfu: Goal


@dataclass(frozen=True)
class Promise:
    """The figure that the shared storage should reach."""

    bytes_per_second: Goal


def figure(value: float) -> str:
    """`833,030`, `39.54`."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.2f}"
