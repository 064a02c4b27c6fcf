"""Examines the files of a run: whether they are complete, and whether they say what their logs say.

The files may be anybody's, and are believed nowhere: each verdict is made anew of the logs. What cannot be told
from them, a scheduler's word on a job, is taken from the ledger.

The decision on an acceptance plan is made anew too: `check_plan`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from plugins.acceptance.decision import AGAINST, acceptance_lines, asked, decide, waivers, why_ended
from plugins.acceptance.scaling import UNCHOSEN, RunShown, Shown, curves, scaling_record
from plugins.acceptance.screening import screening
from plugins.base.errors import ConfigError
from plugins.bundle.cases import agreed_terms, check_cases, left_out
from plugins.bundle.findings import Examination, differing
from plugins.bundle.run import BundledRun, named, read_jobs
from plugins.bundle.statement import ENVELOPE, SBOM, STAMP, once
from plugins.judging.choice import Choice
from plugins.judging.job_files import ParsedLogs
from plugins.judging.rejudge import promised_otherwise
from plugins.recipes.cases import Case
from plugins.recipes.expansion import load_recipe
from plugins.record.case import CaseRecord
from plugins.record.folder import BASIS, SENT, SUMMARY, digests, try_folder
from plugins.record.job import REPLAY, SETUP_CASE, Job, Times
from plugins.record.lines import JOBS_LOG, stamp
from plugins.record.plan import PLAN, Agreed, Plan, parse_plan
from plugins.record.stored import NewerSchemaError, as_json, read_summary
from plugins.record.summary import AcceptanceRecord, RunsSaved, Summary
from plugins.record.verdict import Kind, Outcome
from plugins.reports.gate import overall

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
    findings.notes += [
        *filter(None, [made.basis]),
        *list(acceptance_lines(made))[1:],
        *agreed_terms(agreed.plan),
    ]


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
    """The cases that a plan may name: of the run's recipes, and all that the verifier has."""
    names = sorted(path.parent.name for path in (run.folder / BASIS / "suites").glob("*/recipe.yaml"))
    recorded: set[str] = set()
    for name in names:
        recipe = run.basis.of(name).recipe
        recorded |= {case.key for case in recipe.cases}
        yield from (case for case in recipe.cases if not case.variant or case.key in run.tries)
    for path in (path for root in run.roots for path in sorted((root / "suites").glob("*/recipe.yaml"))):
        name, choice = path.parent.name, Choice()
        if name in names:
            choice = run.basis.of(name).choice
        known = load_recipe(path.parent, choice.release, choice.gpu, choice.models)
        yield from (case for case in known.cases if not case.variant and case.key not in recorded)
        recorded |= {case.key for case in known.cases}


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


MOST_BYTES = 64 << 20
"""No file but a log is larger."""

OF_RUN = (SUMMARY, JOBS_LOG, PLAN)
"""The files of a run itself that a bundle has, besides the bill of materials."""

# In seconds, from the start of a session to that of its ledger.
_LONGEST_START = 3600.0
# In seconds. The times of a job may be by the clock of the cluster and by that of the session.
_CLOCKS_DIFFER = 3600.0
_JUDGED = (Outcome.PASSED, Outcome.PERFORMANCE, Outcome.INVALID, Outcome.INFRASTRUCTURE, Outcome.NO_BASELINE)


def examine(
    folder: Path, predicate: Mapping[str, Any], roots: tuple[Path, ...], findings: Examination
) -> None:
    """Examine the run in `folder`, whose name is the run's, and what the `predicate` of its statement says of it.

    `roots` are those of a `BundledRun`. If it is cut off, `findings` has what was found so far.

    Raises ConfigError if the summary or the ledger cannot be read at all, and OSError.
    """
    before = len(findings.wrong)
    findings.doing = "its records"
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in files:
        # Logs are read in pieces.
        if not path.name.startswith("log") and path.stat().st_size > MOST_BYTES:
            raise ConfigError(f"{path.relative_to(folder)}: has more than {MOST_BYTES >> 20} MiB")
    findings.wrong += _ambiguous(folder, files)
    if not (folder / SUMMARY).is_file():
        raise ConfigError(f"{SUMMARY} is missing")
    try:
        summary = read_summary(folder)
    except NewerSchemaError as error:
        findings.cannot.append(_without(folder, error))
        return
    except ConfigError as error:
        raise ConfigError(_without(folder, error)) from None
    run = BundledRun(folder, roots, summary, *read_jobs(folder, findings))
    if not summary.run == run.log.id == folder.name:
        findings.wrong.append(
            f"{SUMMARY} is of run {summary.run}, {JOBS_LOG} of run {run.log.id}, the bundle of run {folder.name}"
        )
    for key, value in (("site", run.log.site), ("plan", run.log.plan)):
        if predicate.get(key) != value:
            findings.wrong.append(f"{ENVELOPE} says {key} {predicate.get(key)!r}, {JOBS_LOG} says {value!r}")
    for check in (_unended, _backwards, _shared, _unexplained, _of_session):
        findings.wrong += check(run)
    findings.wrong += _changed_logs(run)
    findings.doing = "its cases"
    records = check_cases(run, findings)
    try:
        check_plan(run, records, findings)
    except Exception as error:
        # Files that somebody made may be wrong in any way.
        findings.wrong.append(f"the acceptance plan cannot be checked: {_without(folder, error)}")
    findings.notes += left_out(summary.left_out)
    if len(findings.wrong) > before and summary.commit:
        findings.notes.append(
            f"the run was made with commit {summary.commit} of Pacemark: with another one its records may differ"
        )


def _ambiguous(folder: Path, files: Sequence[Path]) -> Iterator[str]:
    """JSON that two readers could read differently."""
    for path in files:
        if path.suffix == ".json":
            try:
                json.loads(path.read_bytes(), object_pairs_hook=once)
            except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
                # Told where it is read.
                continue
            except ValueError as error:
                yield f"{path.relative_to(folder)}: {error}"


def _unended(run: BundledRun) -> Iterator[str]:
    if run.log.ended is None:
        yield f"{JOBS_LOG}: the run has not ended"
    for entry in run.jobs:
        if entry.status != "ended":
            yield f"{named(entry)} has not ended, it is {entry.status}"


def _backwards(run: BundledRun) -> Iterator[str]:
    """What ends before it begins, by the summary or by the log of jobs."""
    summary, log = run.summary, run.log
    if summary.ended < summary.started:
        yield (
            f"{SUMMARY} says that the run ended at {stamp(summary.ended)}, before its start at {stamp(summary.started)}"
        )
    if log.ended is not None and log.ended < log.started:
        yield f"{JOBS_LOG}: the run ended {log.started - log.ended:,.0f} s before its start"
    for entry in run.jobs:
        for words, early in _times_backwards(entry.times):
            if early > _CLOCKS_DIFFER:
                yield f"{named(entry)}: {words.format(f'{early:,.0f} s')} in {JOBS_LOG}"


def _times_backwards(times: Times) -> Iterator[tuple[str, float]]:
    """What may be backwards of a job, and by how many seconds it is."""
    for words, first, last in (
        ("its end is {} before its start", times.started, times.ended),
        ("its end is {} before it was submitted", times.submitted, times.ended),
        ("its start is {} before it was submitted", times.submitted, times.started),
        ("its cancellation was confirmed {} before it was asked for", times.cancel_asked, times.cancel_confirmed),
    ):  # fmt: skip
        if first is not None and last is not None:
            yield words, first - last


def _shared(run: BundledRun) -> Iterator[str]:
    """Submissions that are one job. The ids of processes and of logs may occur again."""
    jobs_by_id: dict[tuple[str, str], Job] = {}
    for entry in run.jobs:
        if entry.ref.id and entry.ref.case_id != SETUP_CASE and entry.backend not in ("local", REPLAY):
            first = jobs_by_id.setdefault((entry.location, entry.ref.id), entry)
            if first is not entry:
                yield f"{named(first)} and {named(entry)} are one job in {JOBS_LOG}, {entry.ref.id}"


def _unexplained(run: BundledRun) -> Iterator[str]:
    """Files that no submission explains, and submissions whose files are missing."""
    folder, tries, known = run.folder, run.tries, (*OF_RUN, SBOM, ENVELOPE, STAMP)
    for path in sorted(folder.iterdir()):
        if not path.is_dir() and path.name not in known and not path.name.startswith(f"{JOBS_LOG}.damaged"):
            yield f"{path.name} has no place in a bundle: nothing in it is checked"
    for case, entries in tries.items():
        if entries[-1].ref.case_id == SETUP_CASE:
            continue
        for entry in entries:
            case_folder = folder / case
            place = case_folder if entry is entries[-1] else try_folder(case_folder, entry.try_number)
            if entry.ref.id and not (place / SENT).is_file():
                yield f"{named(entry)}: what was sent is missing ({place.relative_to(folder)}/{SENT})"
    explained = set(tries)
    explained |= {
        f"{case}/try-{entry.try_number}" for case, entries in tries.items() for entry in entries[:-1]
    }
    unexplained = set[str]()
    for path in sorted(folder.glob("*/**/*")):
        name = path.relative_to(folder)
        if path.is_dir() or name.parts[0] == BASIS:
            continue
        if len(name.parts) == 2:
            yield f"{name} has no place in a bundle: nothing in it is checked"
        elif f"{name.parent}" not in explained:
            unexplained.add(f"{name.parent}")
    for place_of_none in sorted(unexplained):
        yield f"{place_of_none} has files and no submission in {JOBS_LOG}"


def _changed_logs(run: BundledRun) -> Iterator[str]:
    """Logs, also those that nobody judges, that are not what the session had at its end."""
    recorded, actual = run.summary.files, digests(run.folder)
    for name in sorted(recorded.keys() | actual.keys()):
        if name not in actual:
            yield f"{name} is missing: {SUMMARY} has its digest"
        elif name not in recorded:
            yield f"{name} was not there when the session ended: {SUMMARY} has no digest of it"
        elif recorded[name] != actual[name]:
            yield f"{name} was changed after the session ended: its SHA-256 is not that in {SUMMARY}"


def _of_session(run: BundledRun) -> Iterator[str]:
    """How what the summary says of the whole session differs from the ledger and from its own cases."""
    summary = run.summary
    ran = [entries[-1] for entries in run.tries.values() if entries[-1].is_case]
    ids, known = [case.id for case in summary.cases], {entry.case for entry in ran}
    for case, entries in run.tries.items():
        if entries[-1].ref.case_id != SETUP_CASE and not all(entry.gpus for entry in entries):
            yield f"{case} is a job without a GPU in {JOBS_LOG}, so that it would be no case"
    for case in sorted(known - set(ids)):
        yield f"{case} was run and is left out of {SUMMARY}"
    for case in sorted(set(ids) - known):
        yield f"{case} is in {SUMMARY} and was not run"
    if len(ids) != len(set(ids)):
        yield f"{SUMMARY} has a case twice"
    counts = Counter(case.verdict for case in summary.cases)
    totals = {kind: counts[kind] for kind in Kind}
    if summary.totals != totals:
        yield f"{SUMMARY}: its totals are not those of its cases: {differing(summary.totals, totals)}"
    if summary.site != run.log.site:
        yield f"{SUMMARY} is of site {summary.site}, {JOBS_LOG} of site {run.log.site}"
    if abs(summary.started - run.log.started) > _LONGEST_START:
        yield f"{SUMMARY} says that the run began at {stamp(summary.started)}, {JOBS_LOG} at {run.log.started:.0f}"
    hours = sum(entry.gpu_hours or 0.0 for entry in run.jobs if entry.backend != REPLAY)
    if abs(summary.gpu_hours - hours) > 0.001:
        yield f"{SUMMARY} has {summary.gpu_hours} GPU-hours, the jobs in {JOBS_LOG} took {hours:.3f}"
    if summary.repeated is not None:
        records = [record for record in summary.cases if record.id in known]
        anew = RunsSaved.of(summary.repeated.at_most, run.tries, records)
        different = differing(as_json(summary.repeated), as_json(anew))
        if different:
            yield f"{SUMMARY}: what repeats saved differs from the ledger in {different}"
    # What fell short of other cases is a finding too.
    short = any(curve.short for curve in summary.scaling)
    short |= summary.screening is not None and bool(summary.screening.unlike)
    regressed = bool(summary.regressions) or short or summary.outcome is Outcome.PERFORMANCE
    ending = overall(0, totals, regressed=regressed, uncompared=bool(summary.uncompared))
    if summary.outcome in _JUDGED and summary.outcome is not ending:
        yield f"{SUMMARY} says that the session ended as '{summary.outcome}', by its verdicts it is '{ending}'"


def _without(folder: Path, error: Exception) -> str:
    """What an error says, without the folder in which the bundle was opened."""
    return str(error).replace(f"{folder}/", "")
