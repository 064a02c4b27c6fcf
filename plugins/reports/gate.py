"""The session in one word, and the exit code that `--gate` makes of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from plugins.record.plan import Decision
from plugins.record.summary import Ending, NodeState
from plugins.record.verdict import Kind, Outcome
from plugins.words import counted

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

NOT_SHOWN = 14
"""That of `--gate` if every case passed, and the run has not shown all of its acceptance plan."""

_PYTEST = {code: outcome for outcome, code in CODES.items() if code < 10}


def overall(
    status: int,
    totals: Mapping[Kind, int],
    *,
    regressed: bool = False,
    uncompared: bool = False,
    other: bool = False,
) -> Outcome:
    """How a session ended.

    `status` is pytest's exit status, `totals` are the cases by verdict. `regressed`: a case is slower than in
    the benchmark that it is compared with. `uncompared`: a case is not in that benchmark. `other`: a test failed
    by itself and not by its case's verdict, or cases were cut off.
    """
    if status > 1:
        return _PYTEST.get(status, Outcome.FAILED)
    if other:
        return Outcome.FAILED
    outcomes = {outcome for outcome, kinds in _CLASSES.items() if any(totals[kind] for kind in kinds)}
    if regressed:
        outcomes.add(Outcome.PERFORMANCE)
    if status and not outcomes - {Outcome.NO_BASELINE}:
        # No verdict is why the session failed.
        return Outcome.FAILED
    if uncompared:
        outcomes.add(Outcome.NO_BASELINE)
    if outcomes:
        return next(outcome for outcome in _CLASSES if outcome in outcomes)
    if totals[Kind.PASSED]:
        return Outcome.PASSED
    return Outcome.EMPTY


def exit_code(status: int, outcome: Outcome, decision: Decision | None = None, *, gate: bool = True) -> int:
    """The exit code of a session. `status` is pytest's own, which stays if it is above 1, or without `gate`.

    With an acceptance plan it is 0 if, and only if, the `decision` is accepted.
    """
    code = status
    if gate and status <= 1:
        code = CODES[outcome]
    if decision is None:
        return code
    if decision is Decision.ACCEPTED and status <= 1:
        return 0
    not_shown = NOT_SHOWN if gate else 1
    return code or not_shown


def undecided(ending: Ending, totals: Mapping[Kind, int]) -> str:
    """The line of a terminal on a session that shows nothing for or against its cluster; "" if it shows something."""
    passing = ending.screening is not None and ending.screening.having(NodeState.PASSING)
    if ending.outcome is not Outcome.NO_BASELINE or totals.get(Kind.PASSED) or passing:
        return ""
    words = f"nothing was decided: of {counted(sum(totals.values()), 'case')} none passed or failed; "
    words += f"exit code {ending.exit_code}"
    if ending.exit_code != CODES[ending.outcome]:
        words += f", with --gate {CODES[ending.outcome]}"
    return words
