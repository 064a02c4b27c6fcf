"""How a case and a session can end, and which cases are left out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from plugins.record.lines import Part


class Kind(StrEnum):
    """How a case can end. The values are in every record."""

    PASSED = "passed"
    TOO_SLOW = "too slow"
    TOO_FAST = "too fast"
    NOISY = "noisy"
    INVALID = "invalid run"
    INFRASTRUCTURE = "infrastructure"
    LOST = "lost"
    NO_BASELINE = "no baseline"
    SKIPPED = "skipped"

    @property
    def fails(self) -> bool:
        """Whether the test of a case that ends so fails."""
        return self not in (Kind.PASSED, Kind.NO_BASELINE, Kind.SKIPPED)


PACED = (Kind.PASSED, Kind.TOO_SLOW, Kind.TOO_FAST, Kind.NOISY)
"""The verdicts on a pace."""


UNNAMED = "this-machine"
"""The site of a session without a site file."""

STOPPED = "the session was stopped"
"""Why a case did not end whose session was stopped, as by Ctrl-C."""

NOTHING = "nothing to compare with"
"""So begins why a case that ran has no baseline."""

FAIL_IF = {"slower": ("slower",), "different": ("slower", "faster")}
"""What a comparison of two runs can fail for, by the choices of `--fail-if`."""


class Outcome(StrEnum):
    """How a session ended. The values are in every record."""

    PASSED = "passed"
    FAILED = "failed"
    """Not told by verdicts alone: a test failed by itself, `-x` or `--maxfail` cut the session off, or its record is not whole."""
    INTERRUPTED = "interrupted"
    INTERNAL_ERROR = "internal error"
    USAGE = "usage"
    EMPTY = "nothing selected"
    PERFORMANCE = "performance"
    INVALID = "invalid"
    INFRASTRUCTURE = "infrastructure"
    NO_BASELINE = "no baseline"


@dataclass(frozen=True, kw_only=True)
class LeftOut(Part):
    """Cases that were selected, and that this site cannot run."""

    recipe: str
    reason: str
    cases: int
    """How many they are."""
    ids: tuple[str, ...]
    """Their names."""

    @property
    def keys(self) -> list[str]:
        return [f"{self.recipe}/{case_id}" for case_id in self.ids]
