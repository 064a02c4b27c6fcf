"""The session in one word, and the exit code that `--gate` makes of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from plugins.judging.verdicts import Kind


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


# The first of these that a case has is the session's. A finding on the cluster comes first, because no retry
# removes it; then what would be judged if it ran again.
_CLASSES = {
    Outcome.PERFORMANCE: (Kind.TOO_SLOW, Kind.TOO_FAST, Kind.NOISY),
    Outcome.INVALID: (Kind.INVALID,),
    Outcome.INFRASTRUCTURE: (Kind.INFRASTRUCTURE, Kind.LOST),
    Outcome.NO_BASELINE: (Kind.NO_BASELINE, Kind.SKIPPED),
}

CODES = {
    Outcome.PASSED: 0,
    Outcome.FAILED: 1,
    Outcome.INTERRUPTED: 2,
    Outcome.INTERNAL_ERROR: 3,
    Outcome.USAGE: 4,
    Outcome.EMPTY: 5,
    Outcome.PERFORMANCE: 10,
    Outcome.INVALID: 11,
    Outcome.INFRASTRUCTURE: 12,
    Outcome.NO_BASELINE: 13,
}
"""The exit codes of `--gate`: up to 5 they mean what they mean to pytest."""

_PYTEST = {code: outcome for outcome, code in CODES.items() if code < 10}


def overall(
    status: int, totals: Mapping[Kind, int], *, regressed: bool = False, other: bool = False
) -> Outcome:
    """How a session ended.

    `status` is pytest's exit status. `totals` are the cases by verdict. `regressed`: a case is slower than in
    the benchmark that it was compared with. `other`: a test failed by itself and not by its case's verdict, or
    cases were cut off.
    """
    if status > 1:
        return _PYTEST.get(status, Outcome.FAILED)
    if other:
        return Outcome.FAILED
    if regressed:
        return Outcome.PERFORMANCE
    for outcome, kinds in _CLASSES.items():
        if any(totals[kind] for kind in kinds):
            # Verdicts that fail no test do not explain a session that failed.
            return outcome if outcome is not Outcome.NO_BASELINE or not status else Outcome.FAILED
    if status:
        return Outcome.FAILED
    return Outcome.PASSED if totals[Kind.PASSED] else Outcome.EMPTY


def exit_code(status: int, outcome: Outcome) -> int:
    """The exit code of `--gate`. `status` is pytest's own, which stays if it is none of those above."""
    return CODES[outcome] if status <= 1 else status
