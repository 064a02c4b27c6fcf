"""Verdicts: how a case ended. Every case gets exactly one. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from plugins.baselines.expected import Expected
from plugins.record.verdict import Kind


@dataclass(frozen=True)
class Verdict:
    """How a case ended, for which reasons, and with `remarks`, which are what else a reader must know.

    `deviation` is the share by which the throughput in the reasons is above (+) or below (-) the expected one; None if
    they compare none.
    """

    kind: Kind
    reasons: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    deviation: float | None = None

    @property
    def headline(self) -> str:
        """The verdict in one line."""
        return f"{self.kind}: {'; '.join(self.reasons)}"

    @property
    def fails(self) -> bool:
        return self.kind.fails


@dataclass(frozen=True)
class Band:
    """The step times that pass, in seconds: `fastest` <= step time <= `slowest`.

    `resolution` is the relative rounding of the log, which widens the band.
    """

    expected: Expected
    resolution: float

    @property
    def fastest(self) -> float:
        return self.expected.step_time / (1 + self.expected.baseline.tolerance.faster) * (1 - self.resolution)

    @property
    def slowest(self) -> float:
        return self.expected.step_time / (1 - self.expected.baseline.tolerance.slower) * (1 + self.resolution)

    def side(self, step_time: float) -> Kind:
        """Where a step time is: in the band (passed), too slow or too fast. What is no number is too slow."""
        if self.fastest <= step_time <= self.slowest:
            return Kind.PASSED
        if step_time < self.fastest:
            return Kind.TOO_FAST
        return Kind.TOO_SLOW
