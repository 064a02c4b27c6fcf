"""How a case can end."""

from __future__ import annotations

from enum import StrEnum


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


PACED = (Kind.PASSED, Kind.TOO_SLOW, Kind.TOO_FAST, Kind.NOISY)
"""The verdicts on a pace."""
