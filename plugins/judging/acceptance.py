"""The acceptance of a cluster: what a plan asks for, and whether a run has shown it. Pure.

The plan is a YAML file on which buyer and vendor agree before the first job. The decision follows from the
plan, its cases and the cases' entries of `summary.json` alone, so that anyone can make it again.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from plugins.errors import ConfigError
from plugins.judging.repeats import Repeats
from plugins.judging.scaling import curves, groups
from plugins.judging.shown import Shown
from plugins.recipes.cases import Case
from plugins.record.nodes import node_names
from plugins.record.plan import Decision, Plan, Waiver
from plugins.record.verdict import Kind
from plugins.yaml_mistakes import meant

_PATTERN = set("*?[")
# A step time may follow from tokens/s.
_SAME = 1e-4

AGAINST = (Kind.TOO_SLOW, Kind.NOISY)
"""What a case ends as that shows something against the cluster. Any other end than a pass shows nothing."""


@dataclass(frozen=True)
class Acceptance:
    """The decision on a plan.

    `failed` says what speaks against the cluster, `missing` what was not shown; both by the case, the list of
    nodes or the part of the plan. `waived` are the cases that need not pass, with their waivers.
    """

    decision: Decision
    failed: Mapping[str, str]
    missing: Mapping[str, str]
    waived: Mapping[str, Waiver]


def runs_of(plan: Plan) -> Repeats | None:
    """How often a case of the plan may run; None: once."""
    repeats = plan.repeats
    return Repeats(repeats.at_most, always=repeats.always) if repeats.at_most > 1 else None


def asked(plan: Plan, known: Sequence[Case], where: str) -> list[Case]:
    """The cases of the plan, of those that are `known`, in their order.

    Raises ConfigError, which names the file `where`, if the plan asks for what there is not.
    """
    keys = [case.key for case in known]
    for pattern in plan.cases:
        if not any(fnmatchcase(key, pattern) for key in keys):
            raise ConfigError(f"{where}: cases: no case is {pattern}; {_near(pattern, keys)}")
    found = [case for case in known if any(fnmatchcase(case.key, pattern) for pattern in plan.cases)]
    if plan.number not in (None, len(found)):
        raise ConfigError(
            f"{where}: number: the plan says {plan.number} cases, and `cases` selects {len(found)}: "
            f"{', '.join(case.key for case in found[:5])}{', ...' if len(found) > 5 else ''}"
        )
    chosen = [case.key for case in found]
    named = {"waivers": [waiver.case for waiver in plan.waivers], "numbers": plan.numbers}
    for key, case in ((key, case) for key, cases in named.items() for case in cases):
        if case not in chosen:
            raise ConfigError(f"{where}: {key}: {case} is no case of this plan; {_near(case, chosen)}")
    recipes = {case.recipe: case.release for case in found}
    for recipe, release in plan.releases.items():
        if recipe not in recipes:
            raise ConfigError(f"{where}: releases: the plan has no case of {recipe}")
        if recipes[recipe] != release:
            raise ConfigError(
                f"{where}: releases: the plan asks for {recipe} {release}, and its cases are of {recipes[recipe]} here: correct the "
                "plan, or `replay.release` in the site file if logs are judged"
            )
    if plan.scaling is not None and not groups(found):
        raise ConfigError(
            f"{where}: scaling: no two cases of the plan differ in their number of GPUs alone, so there is none"
        )
    return found


def _near(given: str, known: Sequence[str]) -> str:
    hint = meant(given, known)
    return hint if hint.startswith("did you mean") else "`pytest suites --collect-only -q` shows all"


def decide(
    plan: Plan,
    cases: Sequence[Case],
    shown: Mapping[str, Shown],
    begun: datetime.date,
    *,
    unrun: Mapping[str, str] | None = None,
    spoiled: str = "",
) -> Acceptance:
    """Whether a run that began on this day (UTC) has shown what the plan asks of these cases.

    Nothing but a pass, or a waiver for the very verdict, stands for a case. `unrun` says why cases were not run.
    `spoiled` says why the run is no evidence at all, however its cases ended; "" if it is.
    """
    failed: dict[str, str] = {}
    missing: dict[str, str] = {}
    waived = waivers(plan, shown, begun)
    passed: set[str] = set()
    for case in cases:
        found = shown.get(case.key)
        if found is None:
            missing[case.key] = (unrun or {}).get(case.key, "") or "it was not run"
        elif case.key in waived:
            continue
        elif found.kind is not Kind.PASSED:
            # A case has one waiver at most.
            unwaived = [_why_not(waiver, found, begun) for waiver in plan.waivers if waiver.case == case.key]
            (failed if found.kind in AGAINST else missing)[case.key] = "; ".join([found.headline, *unwaived])
        elif why := _other(plan, case, found):
            missing[case.key] = why
        else:
            passed.add(case.key)
    nodes = frozenset().union(*(shown[key].nodes for key in passed))
    for text in plan.nodes:
        if lacking := node_names(text) - nodes:
            where = ", ".join(sorted(lacking)) if lacking != node_names(text) else text
            missing[f"nodes {text}"] = f"no case that passed ran on {where}"
    if plan.scaling is not None:
        scaling = curves(cases, shown, plan.scaling, waived)
        for curve in scaling:
            if curve.short:
                failed[f"scaling of {curve.name}"] = "; ".join(curve.short)
            if curve.missing:
                missing[f"scaling of {curve.name}"] = "; ".join(curve.missing)
        points = [point for curve in scaling for point in curve.points]
        if not any(point.missing or point.limit is not None for point in points):
            missing["scaling"] = "no two scales are left beside the waived cases"
    if not passed:
        missing["the plan"] = "no case passed"
    if spoiled:
        missing["the run"] = spoiled
    decision = Decision.NOT_ACCEPTED if failed else Decision.INCOMPLETE if missing else Decision.ACCEPTED
    return Acceptance(decision, failed, missing, waived)


def _other(plan: Plan, case: Case, found: Shown) -> str:
    """Why a pass is not the one that the plan asks for; "" if it is."""
    release = plan.releases.get(case.recipe, found.release)
    if found.release != release:
        return f"it was judged by release {found.release}, and the plan asks for {release}"
    if plan.gpu not in (None, found.gpu):
        return f"it was judged as a {found.gpu}, and the plan asks for {plan.gpu}"
    if found.recorded and not plan.recorded_baselines:
        return f"it was judged by a number that run {found.recorded} recorded, which the plan does not allow"
    if why := unagreed(plan, case, found.number):
        return why
    if case.is_timed and plan.repeats.always and found.runs < plan.repeats.at_most:
        return f"it ran {found.runs} times, and the plan asks for {plan.repeats.at_most}"
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
    same = math.isclose(stated, number, rel_tol=_SAME)
    return (
        "" if same else f"`numbers` of the plan says {stated:g} s, and the site's own baselines {number:g} s"
    )


def waivers(plan: Plan, shown: Mapping[str, Shown], begun: datetime.date) -> dict[str, Waiver]:
    """The cases that did not pass and need not, in a run that began on this day (UTC), with their waivers."""
    return {
        waiver.case: waiver
        for waiver in plan.waivers
        if (found := shown.get(waiver.case)) is not None
        and found.kind is not Kind.PASSED
        and not _why_not(waiver, found, begun)
    }


def _why_not(waiver: Waiver, found: Shown, begun: datetime.date) -> str:
    """Why the waiver of a case does not count; "" if it does."""
    if not found.release:
        return "it was not judged, so it cannot be waived"
    if found.kind not in waiver.verdicts:
        return f"its waiver is for {' or '.join(waiver.verdicts)}"
    if max(begun, found.submitted or begun) > waiver.until:
        return f"its waiver ended on {waiver.until}"
    return ""
