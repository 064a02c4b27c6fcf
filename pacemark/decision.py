"""Checks the acceptance plan of a run, and makes its decision anew."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from pacemark.jobs import JobsOfRun
from plugins.acceptance.decision import asked, waivers
from plugins.acceptance.recorded import acceptance_lines, decided, scale_record, scaling_record, why_ended
from plugins.acceptance.scaling import curves
from plugins.acceptance.shown import RunShown, Shown
from plugins.bundle import terms
from plugins.bundle.differences import differing
from plugins.bundle.findings import Examination
from plugins.errors import ConfigError
from plugins.judging.choice import Choice
from plugins.recipes.cases import Case, load_recipe
from plugins.record.case import CaseRecord
from plugins.record.folder import BASIS, SUMMARY
from plugins.record.job import REPLAY
from plugins.record.plan import PLAN, Agreed, parse_plan
from plugins.record.stored import as_json
from plugins.record.summary import Summary
from plugins.rejudge import Basis, promised_otherwise

_THE_RUN = "the run"
"""By this `decide` says why a run is no evidence at all."""


def check_plan(
    folder: Path,
    summary: Summary,
    ledger: JobsOfRun,
    records: Mapping[str, CaseRecord],
    published: Path,
    found: Examination,
) -> None:
    """Make the decision on the run's plan anew, and its scaling, and set them beside those of the summary.

    `records` are what was made anew of the cases.
    """
    found.doing = "the acceptance plan"
    agreed = _agreed(folder, ledger, found)
    if agreed is None:
        if summary.acceptance is not None and not ledger.run.plan:
            found.wrong.append(f"{SUMMARY} has a decision, and the run has no plan")
        found.wrong += _scaling_without_plan(folder, summary, records)
        return
    recorded, basis = summary.acceptance, Basis(folder)
    if agreed.plan.site != ledger.run.site:
        found.wrong.append(f"{PLAN} is for site {agreed.plan.site}, the run is of site {ledger.run.site}")
    for name in sorted({case.partition("/")[0] for case in records}):
        if basis.of(name).choice.agreed != agreed.plan.tolerance:
            found.wrong.append(f"{BASIS}/choices/{name}.json: its tolerance is not that of {PLAN}")
    for key in records:
        case = basis.case(key)
        difference = promised_otherwise(agreed.plan, case, basis.of(case.recipe).choice)
        if difference:
            found.wrong.append(f"{key}: {difference}")
    try:
        cases = asked(agreed.plan, list(_known(folder, basis, ledger, published)), PLAN)
    except ConfigError as error:
        found.wrong.append(str(error))
        return
    shown = {key: Shown.of(record) for key, record in records.items()}
    begun = datetime.fromtimestamp(summary.started, UTC).date()
    run = RunShown(shown, begun, recorded.missing if recorded else {}, _spoiled(summary, ledger))
    made = decided(agreed, cases, run, summary.outcome, summary.regressions)
    said, anew = as_json(recorded) or {}, as_json(made)
    if said.get("decision") != anew["decision"]:
        reasons = "; ".join(f"{key}: {text}" for key, text in {**made.failed, **made.missing}.items())
        found.wrong.append(
            f"{SUMMARY} says '{said.get('decision', 'nothing')}' of {PLAN}, its logs say: {made.decision}"
            + (f": {reasons}" if reasons else "")
        )
    elif differing(said, anew):
        found.wrong.append(f"{SUMMARY}: its decision differs from its logs in {differing(said, anew)}")
    scaling = scaling_record(curves(cases, shown, agreed.plan.scaling, waivers(agreed.plan, shown, begun)))
    different = differing([*map(as_json, summary.scaling)], [*map(as_json, scaling)])
    if different:
        found.wrong.append(f"{SUMMARY}: its scaling differs from its logs in {different}")
    if found.verdicts.total() < len(records):
        found.notes.append("no decision was made anew: not every case can be judged")
        return
    found.decision = made.decision
    found.notes += [*list(acceptance_lines(made))[1:], *terms.agreed(agreed.plan)]


def _scaling_without_plan(folder: Path, summary: Summary, records: Mapping[str, CaseRecord]) -> Iterator[str]:
    """How the scaling that a summary tells differs from its logs. Its limits are those that the session was given."""
    basis, recorded = Basis(folder), [scale for curve in summary.scaling for scale in curve.scales]
    cases = [basis.case(scale.case) for scale in recorded]
    found = curves(cases, {key: Shown.of(record) for key, record in records.items()})
    made = {point.case: scale_record(point) for curve in found for point in curve.points}
    for scale in recorded:
        anew = made.get(scale.case)
        if anew is not None:
            anew = replace(anew, limit=scale.limit, why=scale.why, waived=scale.waived)
        different = differing(as_json(scale), as_json(anew) or {})
        if different:
            yield f"{SUMMARY}: its scaling of {scale.case} differs from its logs in {different}"


def _agreed(folder: Path, ledger: JobsOfRun, found: Examination) -> Agreed | None:
    """The plan that the ledger had before the first job; None if it had none, or its file is another one."""
    path, digest = folder / PLAN, ledger.run.plan
    if not digest:
        if path.exists():
            found.wrong.append(f"{PLAN} was added: no plan was in the ledger before the first job")
        return None
    if not path.is_file():
        found.wrong.append(f"{PLAN} is missing: the ledger had it before the first job")
        return None
    try:
        agreed = parse_plan(Path(PLAN), path.read_bytes())
    except ConfigError as error:
        found.wrong.append(str(error))
        return None
    if agreed.digest != digest:
        found.wrong.append(
            f"{PLAN} is not the plan that the ledger had before the first job: its SHA-256 is {agreed.digest}, that was {digest}"
        )
        return None
    return agreed


def _known(folder: Path, basis: Basis, ledger: JobsOfRun, published: Path) -> Iterator[Case]:
    """The cases that a plan may name: of the run's recipes, and all that are published."""
    run = sorted(path.parent.name for path in (folder / BASIS / "suites").glob("*/recipe.yaml"))
    recorded: set[str] = set()
    for name in run:
        recipe = basis.of(name).recipe
        recorded |= {case.key for case in recipe.cases}
        yield from (case for case in recipe.cases if not case.variant or case.key in ledger.tries)
    for path in sorted((published / "suites").glob("*/recipe.yaml")):
        name = path.parent.name
        choice = basis.of(name).choice if name in run else Choice()
        known = load_recipe(path.parent, choice.release, choice.gpu, choice.models)
        yield from (case for case in known.cases if not case.variant and case.key not in recorded)


def _spoiled(summary: Summary, ledger: JobsOfRun) -> str:
    """Why the run is no evidence, besides how the session ended, which the summary tells with it."""
    recorded = summary.acceptance.missing.get(_THE_RUN, "") if summary.acceptance else ""
    ended = why_ended(summary.outcome, summary.regressions)
    besides = recorded.removesuffix(ended).removesuffix("; ")
    if besides:
        return besides
    if any(job.backend == REPLAY for job in ledger.all):
        return "its logs were replayed"
    return "the session was shut down" if summary.exit_code is None else ""
