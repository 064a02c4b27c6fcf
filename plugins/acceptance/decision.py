"""The acceptance of a cluster: what a plan asks for, and whether a run has shown it. Pure.

The plan is a YAML file on which buyer and vendor agree before the first job. The decision follows from the
plan, its cases and the cases' entries of `summary.json` alone, so that anyone can make it again.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from plugins.acceptance.scaling import RunShown, Shown, curves, groups
from plugins.base.errors import ConfigError
from plugins.base.yamlfile import meant
from plugins.judging.choice import Repeats
from plugins.recipes.cases import Case
from plugins.record.job import node_names
from plugins.record.plan import Agreed, Decision, Plan, Waiver
from plugins.record.summary import AcceptanceRecord, WaivedCase
from plugins.record.verdict import Kind, Outcome

# A step time may follow from tokens/s.
_SAME = 1e-4

AGAINST = (Kind.TOO_SLOW, Kind.NOISY)
"""What a case ends as that shows something against the cluster. Any other end than a pass shows nothing."""

# A session that ended so has not brought its cases to an end, or not by their verdicts alone.
_NO_END = (Outcome.FAILED, Outcome.INTERRUPTED, Outcome.INTERNAL_ERROR, Outcome.USAGE, Outcome.EMPTY)


def runs_of(plan: Plan) -> Repeats | None:
    """How often a case of the plan may run; None: once."""
    repeats = plan.repeats
    if repeats.at_most < 2:
        return None
    return Repeats(repeats.at_most, always=repeats.always)


def asked(plan: Plan, known: Sequence[Case], where: str) -> list[Case]:
    """The cases of the plan, of those that are `known`, in their order.

    Raises ConfigError, which names the file `where`, if the plan asks for what there is not.
    """
    mistake = _of_other_releases(plan, known)
    if mistake:
        raise ConfigError(f"{where}: {mistake}")
    keys = [case.key for case in known]
    for pattern in plan.cases:
        if not any(fnmatchcase(key, pattern) for key in keys):
            raise ConfigError(f"{where}: cases: no case is {pattern}; {_near(pattern, keys)}")
    cases = [case for case in known if any(fnmatchcase(case.key, pattern) for pattern in plan.cases)]
    mistake = _mistake(plan, cases)
    if mistake:
        raise ConfigError(f"{where}: {mistake}")
    return cases


def _mistake(plan: Plan, cases: Sequence[Case]) -> str:
    """What the plan says of its cases that is not so; "" if all is."""
    keys = [case.key for case in cases]
    if plan.number not in (None, len(cases)):
        more = ", ..." if len(keys) > 5 else ""
        return f"number: the plan says {plan.number} cases, and `cases` selects {len(cases)}: {', '.join(keys[:5])}{more}"
    for name, named in (("waivers", [waiver.case for waiver in plan.waivers]), ("numbers", [*plan.numbers])):
        unknown = next((key for key in named if key not in keys), "")
        if unknown:
            return f"{name}: {unknown} is no case of this plan; {_near(unknown, keys)}"
    for recipe in plan.releases:
        if recipe not in {case.recipe for case in cases}:
            return f"releases: the plan has no case of {recipe}"
    if plan.scaling is not None and not groups(cases):
        return "scaling: no two cases of the plan differ in their number of GPUs alone, so there is none"
    return ""


def _of_other_releases(plan: Plan, known: Sequence[Case]) -> str:
    """Which recipe has other cases here, because the site file says another release; "" if none."""
    for case in known:
        release = plan.releases.get(case.recipe, case.release)
        if case.release != release:
            return (
                f"releases: the plan asks for {case.recipe} {release}, and its cases are of {case.release} here: correct the "
                "plan, or `release` in the site file, in `replay` if logs are judged"
            )
    return ""


def _near(given: str, known: Sequence[str]) -> str:
    hint = meant(given, known)
    if hint.startswith("did you mean"):
        return hint
    return "`pytest suites --collect-only -q` shows all"


def why_ended(outcome: Outcome, regressions: Sequence[str]) -> str:
    """Why a session that ended so is no evidence for its plan; "" if it is."""
    reasons = list(regressions)
    if outcome in _NO_END:
        reasons.insert(0, f"the session ended as {outcome}")
    return "; ".join(filter(None, reasons))


def decide(
    agreed: Agreed,
    cases: Sequence[Case],
    run: RunShown,
    outcome: Outcome,
    regressions: Sequence[str] = (),
) -> AcceptanceRecord:
    """Whether a run that ended so has shown what the plan asks of these cases.

    Nothing but a pass, or a waiver for the very verdict, stands for a case. `outcome` and `regressions` are those of
    `summary.json`.
    """
    plan, spoiled = agreed.plan, "; ".join(filter(None, [run.spoiled, why_ended(outcome, regressions)]))
    waived = waivers(plan, run.cases, run.begun)
    failed: dict[str, str] = {}
    missing: dict[str, str] = {}
    passed: set[str] = set()
    for case in cases:
        shown = run.cases.get(case.key)
        if shown is None:
            missing[case.key] = run.unrun.get(case.key) or "it was not run"
        elif case.key in waived:
            continue
        elif shown.kind in AGAINST:
            failed[case.key] = _unwaived(plan, case, shown, run.begun)
        else:
            reason = _lacking(plan, case, shown, run.begun)
            if reason:
                missing[case.key] = reason
            else:
                passed.add(case.key)
    short, untold = _scaling(plan, cases, run, waived)
    failed |= short
    missing |= _nodes(plan, [run.cases[key] for key in passed]) | untold
    if not passed:
        missing["the plan"] = "no case passed"
    if spoiled:
        missing["the run"] = spoiled
    return AcceptanceRecord(
        decision=_decision(failed, missing),
        digest=agreed.digest,
        plan=plan,
        cases=tuple(case.key for case in cases),
        failed=failed,
        missing=missing,
        waived=tuple(_waived_case(waiver, run.cases[key]) for key, waiver in waived.items()),
        unpublished=_unpublished(cases, run),
    )


def _decision(failed: Mapping[str, str], missing: Mapping[str, str]) -> Decision:
    if failed:
        return Decision.NOT_ACCEPTED
    if missing:
        return Decision.INCOMPLETE
    return Decision.ACCEPTED


def _waived_case(waiver: Waiver, shown: Shown) -> WaivedCase:
    return WaivedCase(
        case=waiver.case,
        verdict=shown.kind,
        headline=shown.headline,
        reason=waiver.reason,
        agreed_by=waiver.agreed_by,
        until=waiver.until,
    )


def _lacking(plan: Plan, case: Case, shown: Shown, begun: datetime.date) -> str:
    """Why a case did not pass as the plan asks; "" if it did."""
    if shown.kind is Kind.PASSED:
        return _other(plan, case, shown)
    return _unwaived(plan, case, shown, begun)


def _unwaived(plan: Plan, case: Case, shown: Shown, begun: datetime.date) -> str:
    """The headline of a case that did not pass, and why its waiver does not count. It has one at most."""
    reasons = [_why_not(waiver, shown, begun) for waiver in plan.waivers if waiver.case == case.key]
    return "; ".join([shown.headline, *reasons])


def _nodes(plan: Plan, passed: Sequence[Shown]) -> dict[str, str]:
    """The lists of nodes that the cases that passed did not all run on, and which of them."""
    ran_on = frozenset().union(*(shown.nodes for shown in passed))
    missing = {}
    for text in plan.nodes:
        names = node_names(text)
        idle = names - ran_on
        if idle and idle == names:
            missing[f"nodes {text}"] = f"no case that passed ran on {text}"
        elif idle:
            missing[f"nodes {text}"] = f"no case that passed ran on {', '.join(sorted(idle))}"
    return missing


def _scaling(
    plan: Plan, cases: Sequence[Case], run: RunShown, waived: Mapping[str, Waiver]
) -> tuple[dict[str, str], dict[str, str]]:
    """Which scaling falls short, and which cannot be told."""
    short: dict[str, str] = {}
    missing: dict[str, str] = {}
    if plan.scaling is None:
        return short, missing
    scaling = curves(cases, run.cases, plan.scaling, waived)
    for curve in scaling:
        # Two curves may have the same name.
        name = f"scaling of {curve.name}"
        for reasons, texts in ((short, curve.short), (missing, curve.missing)):
            if texts:
                reasons[name] = "; ".join([*filter(None, [reasons.get(name)]), *texts])
    scales = [scale for curve in scaling for scale in curve.scales]
    if not any(scale.why or scale.limit is not None for scale in scales):
        missing["scaling"] = "no two scales are left beside the waived cases"
    return short, missing


def _other(plan: Plan, case: Case, shown: Shown) -> str:
    """Why a pass is not the one that the plan asks for; "" if it is."""
    release = plan.releases.get(case.recipe, shown.release)
    if shown.release != release:
        return f"it was judged by release {shown.release}, and the plan asks for {release}"
    if plan.gpu not in (None, shown.gpu):
        return f"it was judged as a {shown.gpu}, and the plan asks for {plan.gpu}"
    if shown.recorded and not plan.recorded_baselines:
        return f"it was judged by a number that run {shown.recorded} recorded, which the plan does not allow"
    if shown.by_range and plan.by != "expected":
        return "it was judged by its expected range, which the plan does not promise"
    reason = unagreed(plan, case, shown.number)
    if reason:
        return reason
    if case.is_timed and plan.repeats.always and shown.runs < plan.repeats.at_most:
        return f"it ran {shown.runs} times, and the plan asks for {plan.repeats.at_most}"
    return ""


def unagreed(plan: Plan, case: Case, number: float | None) -> str:
    """Why the plan does not agree with a step time in s that the site's own baselines have by hand; "" if it does.

    None: the case is judged by no such number.
    """
    stated = plan.numbers.get(case.key)
    if stated is None and number is None:
        return ""
    if stated is None:
        return f"the site's own baselines have {number:g} s, written by hand, which `numbers` of the plan does not say"
    if number is None:
        return f"`numbers` of the plan says {stated:g} s, and the site's own baselines have no such number for it"
    if math.isclose(stated, number, rel_tol=_SAME):
        return ""
    return f"`numbers` of the plan says {stated:g} s, and the site's own baselines {number:g} s"


def waivers(plan: Plan, shown: Mapping[str, Shown], begun: datetime.date) -> dict[str, Waiver]:
    """The cases that did not pass and need not, in a run that began on this day (UTC), with their waivers."""
    ended = [(waiver, shown[waiver.case]) for waiver in plan.waivers if waiver.case in shown]
    return {
        waiver.case: waiver
        for waiver, case in ended
        if case.kind is not Kind.PASSED and not _why_not(waiver, case, begun)
    }


def _why_not(waiver: Waiver, shown: Shown, begun: datetime.date) -> str:
    """Why the waiver of a case does not count; "" if it does."""
    if not shown.release:
        return "it was not judged, so it cannot be waived"
    if shown.kind not in waiver.verdicts:
        return f"its waiver is for {' or '.join(waiver.verdicts)}"
    if max(begun, shown.submitted or begun) > waiver.until:
        return f"its waiver ended on {waiver.until}"
    return ""


def _unpublished(cases: Sequence[Case], run: RunShown) -> dict[str, str]:
    """What judged each case for which nobody published a number."""
    shown = {case.key: run.cases[case.key].unpublished for case in cases if case.key in run.cases}
    return {key: words for key, words in shown.items() if words}


def acceptance_lines(record: AcceptanceRecord) -> Iterator[str]:
    """The decision in lines for a terminal. No text of the plan or of a verdict makes a line of its own."""
    return (" ".join(line.split()) for line in _lines(record))


def _lines(record: AcceptanceRecord) -> Iterator[str]:
    first = f"{record.decision.upper()}: {len(record.cases)} case(s) of the plan with SHA-256 {record.digest}"
    yield "; ".join(filter(None, [first, record.basis]))
    for word, reasons in (("failed", record.failed), ("missing", record.missing)):
        for key, reason in reasons.items():
            yield f"{word}: {key}: {reason}"
    for waived in record.waived:
        yield (
            f"waived: {waived.case}: {waived.headline} (until {waived.until}, agreed by {waived.agreed_by}: "
            f"{waived.reason})"
        )
