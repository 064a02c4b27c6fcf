"""What a suite's test compares the measured figures with. It works like `pytest.approx`."""

from __future__ import annotations

from dataclasses import dataclass

from plugins.judging.judgement import Judgement


@dataclass(frozen=True)
class Target:
    """A figure that a case should reach. `own` is the measured figure.

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
        return f"{figure(self.value)} {self.unit} (-{100 * self.slower:g} %, +{100 * self.faster:g} %)"


@dataclass(frozen=True)
class Targets:
    """The figures that a case should reach."""

    tokens_per_second: Target
    mfu: Target


@dataclass(frozen=True)
class Promise:
    """The figure that the shared storage should reach."""

    bytes_per_second: Target


def figure(value: float) -> str:
    """`833,030`, `39.54`."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.2f}"
