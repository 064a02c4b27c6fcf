"""How a session ended: in one word, with what it shows of the cluster, and with its exit code. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property

from plugins.acceptance.decision import AGAINST, decide, waivers
from plugins.acceptance.scaling import UNCHOSEN, RunShown, Shown, curves, scaling_beside, scaling_record
from plugins.base.words import counted
from plugins.recipes.cases import Case
from plugins.record.case import CaseRecord
from plugins.record.plan import Agreed, Decision
from plugins.record.summary import AcceptanceRecord, Ending, NodeState, Scaling, Screening, Summary
from plugins.record.verdict import Kind, Outcome

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


@dataclass(frozen=True)
class Comparison:
    """What a comparison with earlier paces finds, a line for each case: those that regressed or differ, and those without a comparison."""

    regressions: Sequence[str] = ()
    uncompared: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class SessionState:
    """What is known of a session when it is asked how it ended.

    `status` is pytest's exit status by now. `final`: pytest finishes the session; otherwise it is shut down without that.
    `other`: a test failed by itself and not by its case's verdict, or cases were cut off.

    `cases` are the records of the run, which began on the day `begun` (UTC). The session runs those that are `selected`, and
    `left_out` says why not others. With --resume, earlier sessions left some of the records, and the record `resumed` of the run.

    `agreed` is the acceptance plan, if it is decided on, and `asked` are its cases. `spoiled` says why the run is no evidence
    for it. `scaling` is the tolerance by which scaling is judged, if it is. `benchmark` is what `--benchmark-compare-fail`
    finds, and `earlier_run` what `--fail-if` finds; None without it.
    """

    status: int
    final: bool
    other: bool
    gate: bool
    begun: date
    cases: Sequence[CaseRecord]
    selected: Sequence[Case]
    left_out: Mapping[str, str]
    agreed: Agreed | None = None
    asked: Sequence[Case] = ()
    spoiled: str = ""
    scaling: float | None = None
    benchmark: Comparison | None = None
    earlier_run: Comparison | None = None
    resumed: Summary | None = None
    screening: Screening | None = None

    @cached_property
    def keys(self) -> frozenset[str]:
        """Those of the cases that the session runs."""
        return frozenset(case.key for case in self.selected)


def ending_of(session: SessionState) -> Ending:
    """How a session ended."""
    run, comparison, screening = _shown(session), _comparison(session), session.screening
    scaling = _scaling(session, run)
    # xdist may end without the test of a case whose worker died.
    failing = any(record.verdict.fails for record in session.cases if record.id in session.keys)
    status = session.status or int(bool(comparison.regressions) or failing)
    short = any(curve.short for curve in scaling) or bool(screening and screening.unlike)
    outcome = overall(
        status,
        Counter(record.verdict for record in session.cases),
        regressed=bool(comparison.regressions) or short,
        uncompared=bool(comparison.uncompared),
        other=session.other,
    )
    accepted = _accepted(session, run, outcome, comparison)
    code = exit_code(status, outcome, accepted.decision if accepted else None, gate=session.gate)
    # Without a plan, a case that `--fail-if` cannot compare fails the session, also without `--gate`.
    if accepted is None and session.earlier_run is not None and session.earlier_run.uncompared:
        code = code or 1
    return Ending(
        outcome=outcome,
        # Nobody knows the exit code of a session that is shut down without its last hooks.
        exit_code=code if session.final else None,
        regressions=tuple(comparison.regressions),
        uncompared=tuple(comparison.uncompared),
        acceptance=accepted,
        scaling=scaling,
        screening=screening,
    )


def _shown(session: SessionState) -> RunShown:
    """What the cases show of the cluster.

    With --resume, another session left the records of the cases that are not selected now. They speak against a
    cluster, and never for it.
    """
    counted = [record for record in session.cases if record.id in session.keys or record.verdict in AGAINST]
    unrun = {record.id: UNCHOSEN for record in session.cases if record.id not in session.keys}
    shown = {record.id: Shown.of(record) for record in counted}
    return RunShown(shown, session.begun, {**unrun, **session.left_out})


def _comparison(session: SessionState) -> Comparison:
    """What the comparisons find; without any, what those of the resumed run found. A session that runs nothing tells nothing of that run."""
    comparisons = [each for each in (session.benchmark, session.earlier_run) if each is not None]
    if not comparisons and session.resumed is not None and session.cases:
        return Comparison(session.resumed.regressions, session.resumed.uncompared)
    return Comparison(
        [line for each in comparisons for line in each.regressions],
        [line for each in comparisons for line in each.uncompared],
    )


def _scaling(session: SessionState, run: RunShown) -> tuple[Scaling, ...]:
    """The scaling of the plan's cases or, without a plan, of the selected ones, and that of the resumed run beside it."""
    paces, agreed = run.cases, session.agreed
    if session.scaling is None:
        # Nothing is judged by it.
        paces = {record.id: Shown.of(record) for record in session.cases}
    waived = waivers(agreed.plan, paces, session.begun) if agreed else ()
    scaling = scaling_record(curves(session.asked or session.selected, paces, session.scaling, waived))
    if session.resumed is None or agreed is not None or not session.cases:
        return scaling
    return scaling_beside(session.resumed.scaling, scaling, run.cases)


def _accepted(
    session: SessionState, run: RunShown, outcome: Outcome, comparison: Comparison
) -> AcceptanceRecord | None:
    """The decision on the acceptance plan; None if there is no plan to decide on."""
    if session.agreed is None:
        return None
    reason = session.spoiled if session.final else "the session was shut down"
    return decide(
        session.agreed, session.asked, replace(run, spoiled=reason), outcome, comparison.regressions
    )


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


def heading(run: Summary) -> str:
    """How a run ended, in the first line of its report: `passed`, `not passed: performance`, `5 passed, 2 no baseline`."""
    if run.outcome is Outcome.PASSED:
        return run.outcome
    if run.outcome is not Outcome.NO_BASELINE:
        return f"not passed: {run.outcome}"
    if undecided(run, run.totals):
        return "nothing was decided"
    words = [f"{count} {kind}" for kind, count in run.totals.items() if count]
    if run.uncompared:
        words.append(f"{len(run.uncompared)} not compared")
    return ", ".join(words)
