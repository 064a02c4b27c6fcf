"""Checks the acceptance plan of a run, and makes its decision anew."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from plugins.acceptance.decision import AGAINST, acceptance_lines, asked, decide, waivers, why_ended
from plugins.acceptance.scaling import UNCHOSEN, RunShown, Shown, curves, scaling_record
from plugins.acceptance.screening import screening
from plugins.base.errors import ConfigError
from plugins.bundle.cases import agreed_terms
from plugins.bundle.findings import Examination, differing
from plugins.bundle.run import BundledRun
from plugins.judging.choice import Choice
from plugins.judging.job_files import ParsedLogs
from plugins.judging.rejudge import promised_otherwise
from plugins.recipes.cases import Case
from plugins.recipes.expansion import load_recipe
from plugins.record.case import CaseRecord
from plugins.record.folder import BASIS, SUMMARY
from plugins.record.job import REPLAY
from plugins.record.plan import PLAN, Agreed, Plan, parse_plan
from plugins.record.stored import as_json
from plugins.record.summary import AcceptanceRecord, Summary

_THE_RUN = "the run"
"""By this `decide` says why a run is no evidence at all."""


def check_plan(run: BundledRun, records: Mapping[str, CaseRecord], findings: Examination) -> None:
    """Make the decision on the run's plan anew, its scaling and its screening, and set them beside those of the summary.

    `records` are what was made anew of the cases.
    """
    _check_screening(run, records, findings)
    findings.doing = "the acceptance plan"
    agreed, summary = _agreed(run, findings), run.summary
    if agreed is None:
        if summary.acceptance is not None and not run.log.plan:
            findings.wrong.append(f"{SUMMARY} has a decision, and the run has no plan")
        findings.wrong += _scaling_without_plan(run, records)
        return
    findings.wrong += _promised_otherwise(run, agreed.plan, records)
    try:
        cases = asked(agreed.plan, list(_known(run)), PLAN)
    except ConfigError as error:
        findings.wrong.append(str(error))
        return
    begun = datetime.fromtimestamp(summary.started, UTC).date()
    unrun = summary.acceptance.missing if summary.acceptance else {}
    paces = {key: Shown.of(record) for key, record in records.items()}
    unchosen = [key for key in records if unrun.get(key) == UNCHOSEN and records[key].verdict not in AGAINST]
    shown = {key: case for key, case in paces.items() if key not in unchosen}
    if agreed.plan.scaling is not None:
        paces = shown
    made = decide(
        agreed, cases, RunShown(shown, begun, unrun, _spoiled(run)), summary.outcome, summary.regressions
    )
    findings.wrong += _decided_otherwise(summary, made)
    scaling = scaling_record(curves(cases, paces, agreed.plan.scaling, waivers(agreed.plan, paces, begun)))
    different = differing([*map(as_json, summary.scaling)], [*map(as_json, scaling)])
    if different:
        findings.wrong.append(f"{SUMMARY}: its scaling differs from its logs in {different}")
    if findings.verdicts.total() < len(records):
        findings.notes.append("no decision was made anew: not every case can be judged")
        return
    findings.decision = made.decision
    findings.notes += [*list(acceptance_lines(made))[1:], *agreed_terms(agreed.plan)]


def _promised_otherwise(run: BundledRun, plan: Plan, records: Mapping[str, CaseRecord]) -> Iterator[str]:
    """What the plan says, and what the run was judged by does not."""
    if plan.site != run.log.site:
        yield f"{PLAN} is for site {plan.site}, the run is of site {run.log.site}"
    for name in sorted({case.partition("/")[0] for case in records}):
        choice = run.basis.of(name).choice
        if choice.agreed != plan.tolerance:
            yield f"{BASIS}/choices/{name}.json: its tolerance is not that of {PLAN}"
        if choice.by_expected != (plan.by == "expected"):
            yield f"{BASIS}/choices/{name}.json: whether expected ranges decide is not as in {PLAN}"
    for key in records:
        case = run.basis.case(key)
        difference = promised_otherwise(plan, case, run.basis.of(case.recipe).choice)
        if difference:
            yield f"{key}: {difference}"


def _decided_otherwise(summary: Summary, made: AcceptanceRecord) -> Iterator[str]:
    """How the decision of the summary differs from the one that is `made` anew."""
    recorded, anew = as_json(summary.acceptance) or {}, as_json(made)
    if recorded.get("decision") != anew["decision"]:
        reasons = "; ".join(f"{key}: {text}" for key, text in {**made.failed, **made.missing}.items())
        decision = ": ".join(filter(None, [made.decision, reasons]))
        yield f"{SUMMARY} says '{recorded.get('decision', 'nothing')}' of {PLAN}, its logs say: {decision}"
        return
    different = differing(recorded, anew)
    if different:
        yield f"{SUMMARY}: its decision differs from its logs in {different}"


def _scaling_without_plan(run: BundledRun, records: Mapping[str, CaseRecord]) -> Iterator[str]:
    """How the scaling that a summary tells differs from its logs. Its limits are those that the session was given."""
    shown = {key: Shown.of(record) for key, record in records.items()}
    for curve in run.summary.scaling:
        measured = curves([run.basis.case(scale.case) for scale in curve.scales], shown)
        made = {scale.case: scale for anew in measured for scale in anew.scales}
        for scale in curve.scales:
            anew = made.get(scale.case)
            if anew is not None:
                anew = replace(anew, limit=scale.limit, why=scale.why, waived=scale.waived)
            different = differing(as_json(scale), as_json(anew) or {})
            if different:
                yield f"{SUMMARY}: its scaling of {scale.case} differs from its logs in {different}"


def _check_screening(run: BundledRun, records: Mapping[str, CaseRecord], findings: Examination) -> None:
    """Screen the nodes of the run's cases anew, and set that beside the screening of the summary."""
    recorded, folder, causes = run.summary.screening, run.folder, ParsedLogs().causes_beside
    # No log tells the leaves.
    leaves = {node.node: node.leaf for node in recorded.nodes} if recorded else {}
    made = screening(records.values(), leaves, lambda slow, good: causes(folder / slow, folder / good))
    different = differing(as_json(recorded) or {}, as_json(made) or {})
    if different:
        findings.wrong.append(f"{SUMMARY}: its screening differs from its logs in {different}")
    if made is not None:
        findings.notes.append(f"screening: {made.headline}")


def _agreed(run: BundledRun, findings: Examination) -> Agreed | None:
    """The plan that the ledger had before the first job; None if it had none, or its file is another one."""
    path, digest = run.folder / PLAN, run.log.plan
    if not digest:
        if path.exists():
            findings.wrong.append(f"{PLAN} was added: no plan was in the ledger before the first job")
        return None
    if not path.is_file():
        findings.wrong.append(f"{PLAN} is missing: the ledger had it before the first job")
        return None
    try:
        agreed = parse_plan(Path(PLAN), path.read_bytes())
    except ConfigError as error:
        findings.wrong.append(str(error))
        return None
    if agreed.digest != digest:
        findings.wrong.append(
            f"{PLAN} is not the plan that the ledger had before the first job: its SHA-256 is {agreed.digest}, that was {digest}"
        )
        return None
    return agreed


def _known(run: BundledRun) -> Iterator[Case]:
    """The cases that a plan may name: of the run's recipes, and all that are published."""
    names = sorted(path.parent.name for path in (run.folder / BASIS / "suites").glob("*/recipe.yaml"))
    recorded: set[str] = set()
    for name in names:
        recipe = run.basis.of(name).recipe
        recorded |= {case.key for case in recipe.cases}
        yield from (case for case in recipe.cases if not case.variant or case.key in run.tries)
    for path in sorted((run.published / "suites").glob("*/recipe.yaml")):
        name, choice = path.parent.name, Choice()
        if name in names:
            choice = run.basis.of(name).choice
        known = load_recipe(path.parent, choice.release, choice.gpu, choice.models)
        yield from (case for case in known.cases if not case.variant and case.key not in recorded)


def _spoiled(run: BundledRun) -> str:
    """Why the run is no evidence, besides how the session ended, which the summary tells with it."""
    summary, recorded = run.summary, ""
    if summary.acceptance is not None:
        recorded = summary.acceptance.missing.get(_THE_RUN, "")
    ended = why_ended(summary.outcome, summary.regressions)
    besides = recorded.removesuffix(ended).removesuffix("; ")
    if besides:
        return besides
    if any(job.backend == REPLAY for job in run.jobs):
        return "its logs were replayed"
    if summary.exit_code is None:
        return "the session was shut down"
    return ""
