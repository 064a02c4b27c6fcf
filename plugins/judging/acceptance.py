"""The acceptance of a cluster: what a plan asks for, and whether a run has shown it. Pure.

The plan is a YAML file on which buyer and vendor agree before the first job. The decision follows from the
plan, its cases and the cases' entries of `summary.json` alone, so that anyone can make it again.
"""

from __future__ import annotations

import datetime
import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field, model_validator

from plugins.baselines.file import AgreedTolerance, Stated
from plugins.errors import ConfigError
from plugins.judging.repeats import Repeats
from plugins.judging.scaling import curves, groups
from plugins.judging.shown import Shown, node_names
from plugins.recipes.cases import Case
from plugins.record.verdict import Kind
from plugins.yamlfile import Strict, meant, parse, read_bytes

PLAN = "acceptance.yaml"
"""The name of the run's own copy of its plan."""

MOST_SHORTFALL = 0.2
"""A plan, or `--scaling`, cannot allow more than this."""

_PATTERN = set("*?[")
# A step time may follow from tokens/s.
_SAME = 1e-4
_NODE = re.compile(r"[\w.-]+")

AGAINST = (Kind.TOO_SLOW, Kind.NOISY)
"""What a case ends as that shows something against the cluster. Any other end than a pass shows nothing."""


class _Part(Strict):
    model_config = ConfigDict(use_attribute_docstrings=True)


class Waiver(_Part):
    """A case that need not pass, because both parties agree on it."""

    case: str
    """The id of the case, no pattern."""
    verdicts: list[Annotated[Kind, Field(strict=False)]] = Field(min_length=1)
    """What it may end as. A case that was not run at all cannot be waived."""
    reason: Stated
    agreed_by: Stated
    until: datetime.date
    """The last day (UTC), as 2027-01-31. The run must have begun by then, and the case's last job too."""


class Repeated(_Part):
    """How often a case runs."""

    at_most: int = Field(default=1, ge=1, le=20)
    """A further run follows only if the runs so far do not tell whether the case passes."""
    always: bool = False
    """Each case runs `at_most` times, also if fewer runs tell."""


class Plan(_Part):
    """What is to be shown of a site."""

    site: Stated
    """The `site` of the site file."""
    cases: list[Stated] = Field(min_length=1)
    """Ids of cases, such as `llama3/70b-fp8-512gpus`, or patterns with `*`: each of them must be shown. Those of a variant need `--variant`."""
    number: int | None = Field(default=None, gt=0)
    """How many cases these are; required if `cases` has a pattern, because a suite may get other cases."""
    nodes: list[Stated] = []
    """Nodes, or lists such as `"gpu[001-064]"`, in quotes: a case that passed must have run on each of them."""
    gpu: Stated | None = None
    """The type of GPU by whose numbers the cases are judged."""
    releases: dict[str, Stated] = {}
    """The release of each recipe; those of the site file or the recipes count for the others."""
    recorded_baselines: bool = False
    """Whether a number that this site itself recorded counts as a baseline."""
    numbers: dict[str, Annotated[float, Field(gt=0)]] = {}
    """Agreed step times in s, by the id of the case, where nobody published a number. The site's own baselines have them, without `recorded`."""
    repeats: Repeated = Repeated()
    tolerance: AgreedTolerance | None = None
    """It takes the place of the baselines' own."""
    scaling: float | None = Field(default=None, gt=0, le=MOST_SHORTFALL)
    """By which share the efficiency at a scale may fall short of the published one; none: it is not judged."""
    network: Stated | None = None
    """The network between the nodes, as the site file must have it: a case of `nccl-trace` is judged by it."""
    storage_gb_per_second: float | None = Field(default=None, gt=0)
    """What the shared storage promises, as the site file must have it: a case of `checkpoint` is judged by it."""
    waivers: list[Waiver] = []

    @model_validator(mode="after")
    def _consistent(self) -> Plan:
        if self.number is None and any(_PATTERN & set(text) for text in self.cases):
            raise ValueError("number: say how many cases these are, because `cases` has a pattern")
        named = [waiver.case for waiver in self.waivers]
        if twice := sorted({case for case in named if named.count(case) > 1}):
            raise ValueError(f"waivers: {', '.join(twice)} has two; keep one")
        if odd := [text for text in self.nodes if not _names_nodes(text)]:
            raise ValueError(f"nodes: {odd[0]!r} is no list of nodes, such as 'gpu[001-064]'")
        if self.numbers and self.tolerance is None:
            raise ValueError("numbers: say `tolerance` too, or the site's own baselines would choose it")
        if any(Kind.PASSED in waiver.verdicts for waiver in self.waivers):
            raise ValueError("waivers: a case that passed needs none")
        return self

    @property
    def runs(self) -> Repeats | None:
        """How often a case may run; None: once."""
        repeats = self.repeats
        return Repeats(repeats.at_most, always=repeats.always) if repeats.at_most > 1 else None


@dataclass(frozen=True)
class Agreed:
    """A plan with the bytes of its file."""

    plan: Plan
    data: bytes

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the file."""
        return hashlib.sha256(self.data).hexdigest()


class Decision(StrEnum):
    """What a run has shown of its plan."""

    ACCEPTED = "accepted"
    NOT_ACCEPTED = "not accepted"
    INCOMPLETE = "incomplete"


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


def read_plan(path: Path) -> Agreed:
    """Read an acceptance plan. Raises ConfigError."""
    return parse_plan(path, read_bytes(path))


def parse_plan(path: Path, data: bytes) -> Agreed:
    """The plan of a file of these bytes. Raises ConfigError, which names `path`."""
    return Agreed(parse(path, data, Plan), data)


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


def _names_nodes(text: str) -> bool:
    """Whether a text is a list of nodes; no part of it is left that is not a node's name."""
    names = node_names(text)
    return bool(names) and text.count("[") == text.count("]") and all(map(_NODE.fullmatch, names))


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
