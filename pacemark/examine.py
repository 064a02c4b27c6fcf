"""Examines the files of a run: whether they are complete, and whether they say what their logs say.

The files may be anybody's, and are believed nowhere: each verdict is made anew of the logs. What cannot be told
from them, a scheduler's word on a job, is taken from the ledger.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fixtures.backends.registry import REPLAY
from fixtures.runs import journal
from fixtures.runs.journal import JOURNAL
from fixtures.runs.journal import Key
from fixtures.runs.journal import Row
from fixtures.runs.ledger import Entry
from fixtures.runs.ledger import run_seal
from pacemark.acceptance import check_plan
from pacemark.differences import differences
from pacemark.differences import few
from pacemark.ledger import EXPORT
from pacemark.ledger import Export
from pacemark.ledger import read_export
from pacemark.sbom import SBOM
from pacemark.statement import ENVELOPE
from pacemark.statement import STAMP
from pacemark.statement import NewerFormat
from pacemark.statement import once
from plugins.baselines.file import Table
from plugins.baselines.store import Baseline
from plugins.baselines.store import accelerators
from plugins.baselines.store import find
from plugins.baselines.store import mfu_basis
from plugins.baselines.store import references
from plugins.baselines.store import usual_statistic
from plugins.errors import ConfigError
from plugins.job import SETUP_CASE
from plugins.judging.acceptance import PLAN
from plugins.judging.acceptance import Decision
from plugins.judging.judge import Judgement
from plugins.judging.verdicts import Kind
from plugins.recipes.cases import Case
from plugins.recipes.cases import Recipe
from plugins.recipes.cases import load_recipe
from plugins.rejudge import BASIS
from plugins.rejudge import Basis
from plugins.reports import results
from plugins.reports.acceptance import acceptance_lines
from plugins.reports.gate import Outcome
from plugins.reports.gate import overall
from plugins.reports.summary import SCHEMA
from plugins.reports.summary import Summary
from plugins.yamlfile import first_mistake

MOST_BYTES = 64 << 20
"""No file but a log is larger."""

OF_RUN = (results.SUMMARY, JOURNAL, PLAN)
"""The files of a run itself that a bundle has, besides the ledger and the bill of materials."""

# What the record of a case has that is not of its own log and ledger: an offer for the site's baselines, and
# what other jobs told of the cause.
_NOT_RECOMPUTED = ("recording", "diagnosis")
# What a case ends as that has no run to be judged.
_NOT_RUN = (Kind.INFRASTRUCTURE, Kind.LOST, Kind.SKIPPED)
# In seconds, from the start of a session to that of its ledger.
_LONGEST_START = 3600.0
_JUDGED = (Outcome.PASSED, Outcome.PERFORMANCE, Outcome.INVALID, Outcome.INFRASTRUCTURE, Outcome.NO_BASELINE)


@dataclass
class Findings:
    """What was found, a line each: what is `wrong`, what `cannot` be told, and what a reader should know."""

    wrong: list[str] = field(default_factory=list)
    cannot: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    verdicts: Counter[Kind] = field(default_factory=Counter)
    decision: Decision | None = None


def examine(folder: Path, said: Mapping[str, Any], published: Path) -> Findings:
    """Examine the run in `folder`, whose name is the run's, and what its statement `said` of it.

    `published` has Pacemark's own suites and baselines.

    Raises ConfigError if the summary or the ledger cannot be read at all, and OSError.
    """
    found = Findings()
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in files:
        # Logs are read in pieces.
        if not path.name.startswith("log") and path.stat().st_size > MOST_BYTES:
            raise ConfigError(f"{path.relative_to(folder)}: has more than {MOST_BYTES >> 20} MiB")
    found.wrong += _ambiguous(folder, files)
    if (version := _json(folder / results.SUMMARY).get("schema")) != SCHEMA:
        if isinstance(version, int) and version > SCHEMA:
            found.cannot.append(
                f"{results.SUMMARY} is of schema {version}, and this Pacemark knows {SCHEMA}: use a newer one"
            )
            return found
        raise ConfigError(f"{results.SUMMARY}: is no record of a run")
    summary = _summary(folder)
    ledger = read_export(_bytes(folder / EXPORT))
    if not summary.run == ledger.run.id == folder.name:
        found.wrong.append(
            f"{results.SUMMARY} is of run {summary.run}, {EXPORT} of run {ledger.run.id}, the bundle of run {folder.name}"
        )
    for what, own in (("site", ledger.run.site), ("plan", ledger.run.plan)):
        if said.get(what) != own:
            found.wrong.append(f"{ENVELOPE} says {what} {said.get(what)!r}, {EXPORT} says {own!r}")
    found.wrong += _unended(ledger)
    found.wrong += _shared(ledger)
    _check_journal(folder, ledger, found)
    found.wrong += _unexplained(folder, ledger)
    found.wrong += _of_session(summary, ledger)
    records = _check_cases(folder, ledger, published, found)
    try:
        decided, wrong = check_plan(folder, summary, ledger, records, published)
        if decided is not None:
            found.decision = decided.decision
            found.notes += list(acceptance_lines(decided))[1:]
    except Exception as error:
        wrong = [f"the acceptance plan cannot be checked: {error}".replace(f"{folder}/", "")]
    found.wrong += wrong
    if found.wrong and summary.commit:
        found.notes.append(
            f"commit {summary.commit} of Pacemark made it: with another one a record may differ for that"
        )
    return found


def _ambiguous(folder: Path, files: Sequence[Path]) -> Iterator[str]:
    for path in files:
        if path.suffix == ".json":
            try:
                json.loads(path.read_bytes(), object_pairs_hook=once)
            except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
                # Told where it is read.
                continue
            except ValueError as error:
                yield f"{path.relative_to(folder)}: {error}"


def _unended(ledger: Export) -> Iterator[str]:
    if ledger.run.ended is None:
        yield f"{EXPORT}: the run has not ended"
    for row in ledger.rows.values():
        if row["status"] != "ended":
            yield f"{_named(row)} has not ended, it is {row['status']}"


def _shared(ledger: Export) -> Iterator[str]:
    """Submissions that are one job. The ids of processes and of logs may occur again."""
    seen: dict[tuple[str, str], Entry] = {}
    for entry in (entry for tries in ledger.tries.values() for entry in tries):
        if entry.ref.id and entry.ref.case_id != SETUP_CASE and entry.backend not in ("local", REPLAY):
            other = seen.setdefault((entry.location, entry.ref.id), entry)
            if other is not entry:
                yield f"{_of(other)} and {_of(entry)} are one job in {EXPORT}, {entry.ref.id}"


# The journal


def _check_journal(folder: Path, ledger: Export, found: Findings) -> None:
    """The journal is a whole chain, and it says what the ledger says."""
    path = folder / JOURNAL
    if not path.is_file():
        found.wrong.append(f"{JOURNAL} is missing")
        return
    _bytes(path)
    try:
        lines, told, past = journal.broken(path), journal.read(path), _history(path)
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
        found.wrong.append(f"{JOURNAL}: a line is none of Pacemark's")
        return
    if lines:
        more = f" and {len(lines) - 1} more" if len(lines) > 1 else ""
        found.wrong.append(
            f"{JOURNAL}: line {lines[0]}{more} does not follow the line before it: lines were changed, left out or moved"
        )
    run = ledger.run.model_dump()
    if past.plans != {run["plan"]}:
        found.wrong.append(
            f"{JOURNAL}: its first line, before the first job, does not have the plan of {EXPORT}"
        )
    if past.seals != {run_seal(run)}:
        found.wrong.append(f"{JOURNAL} and {EXPORT} are of different runs")
    rows = ledger.rows
    for key in sorted(told.jobs.keys() - rows.keys()):
        found.wrong.append(f"{_label(key)} is in {JOURNAL} and not in {EXPORT}: a submission was left out")
    for key in sorted(rows.keys() - told.jobs.keys()):
        found.wrong.append(f"{_label(key)} is in {EXPORT} and not in {JOURNAL}: a submission was left out")
    for key in sorted(rows.keys() & told.jobs.keys()):
        if different := list(differences(told.jobs[key], rows[key])):
            found.wrong.append(f"{_label(key)}: {JOURNAL} and {EXPORT} differ in {few(different)}")
    for key, ids in sorted(past.ids.items()):
        if len(ids) > 1:
            found.wrong.append(
                f"{_label(key)}: {JOURNAL} has it as the jobs {', '.join(ids)}: one of them was left out"
            )
    for case, tries in ledger.tries.items():
        numbers = [entry.try_number for entry in tries]
        if missing := sorted(set(range(1, numbers[-1] + 1)) - set(numbers)):
            found.wrong.append(
                f"{case}: try {missing[0]} is missing, and there is a try {numbers[-1]}: a submission was left out"
            )
    damaged = sorted(path.name for path in folder.glob("*.damaged*"))
    if damaged:
        found.cannot.append(
            f"the ledger was damaged and made anew, so whether it has each submission is not known: see {', '.join(damaged)}"
        )
        return
    for key, seen in sorted(past.revisions.items()):
        if seen != list(range(1, len(seen) + 1)):
            found.cannot.append(
                f"{_label(key)}: {JOURNAL} lacks a change of it, by its numbers {seen}: a session that was killed at "
                "that moment leaves such a gap, and so does whoever leaves a line out"
            )


@dataclass
class _Past:
    """What all lines of a journal say.

    `plans` and `seals` are those of its lines on the run, a plan is "" for none. If the first line is not on the
    run, there is a plan that no run has. `revisions` are the numbers of the changes of each submission, `ids` those of its job.
    """

    plans: set[str] = field(default_factory=set)
    seals: set[str] = field(default_factory=set)
    revisions: dict[Key, list[int]] = field(default_factory=dict)
    ids: dict[Key, dict[str, None]] = field(default_factory=dict)


def _history(path: Path) -> _Past:
    found = _Past()
    for line in filter(None, path.read_bytes().split(b"\n")):
        said = json.loads(line.partition(b" ")[2], object_pairs_hook=once)
        if "run" in said:
            found.plans.add(str(said["run"].get("plan", "")))
            found.seals.add(run_seal(said["run"]))
            continue
        found.plans |= set() if found.plans else {"?"}
        job = said["job"]
        key = journal.key_of(job)
        found.revisions.setdefault(key, []).append(int(job["revision"]))
        found.ids.setdefault(key, {}).update({str(job["id"]): None} if job["id"] else {})
    return found


# The folders


def _unexplained(folder: Path, ledger: Export) -> Iterator[str]:
    """What has files and is in no ledger, and the reverse."""
    tries = ledger.tries
    known = (*OF_RUN, EXPORT, SBOM, ENVELOPE, STAMP)
    for path in sorted(folder.iterdir()):
        if not path.is_dir() and path.name not in known and not path.name.startswith(f"{JOURNAL}.damaged"):
            yield f"{path.name} has no place in a bundle: nothing in it is checked"
    for case, entries in tries.items():
        if entries[-1].ref.case_id == SETUP_CASE:
            continue
        for entry in entries:
            own = folder / case
            place = own if entry is entries[-1] else results.try_folder(own, entry.try_number)
            if entry.ref.id and not (place / results.SENT).is_file():
                yield f"{_of(entry)}: what was sent is missing ({place.relative_to(folder)}/{results.SENT})"
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
        yield f"{place_of_none} has files and no submission in {EXPORT}"


# The summary


def _of_session(summary: Summary, ledger: Export) -> Iterator[str]:
    """What the summary says of the whole session, beside the ledger and its own cases."""
    own = [entries[-1] for entries in ledger.tries.values() if entries[-1].is_case]
    told, known = [case.id for case in summary.cases], {entry.case for entry in own}
    for case, entries in ledger.tries.items():
        if entries[-1].ref.case_id != SETUP_CASE and not all(entry.gpus for entry in entries):
            yield f"{case} is a job without a GPU in {EXPORT}, so that it would be no case"
    for case in sorted(known - set(told)):
        yield f"{case} was run and is left out of {results.SUMMARY}"
    for case in sorted(set(told) - known):
        yield f"{case} is in {results.SUMMARY} and was not run"
    if len(told) != len(set(told)):
        yield f"{results.SUMMARY} has a case twice"
    counts = Counter(case.verdict for case in summary.cases)
    totals = {kind: counts[kind] for kind in Kind}
    if summary.totals != totals:
        yield f"{results.SUMMARY}: its totals are not those of its cases: {few(list(differences(summary.totals, totals)))}"
    if summary.site != ledger.run.site:
        yield f"{results.SUMMARY} is of site {summary.site}, {EXPORT} of site {ledger.run.site}"
    started = datetime.fromisoformat(summary.started).timestamp()
    if abs(started - ledger.run.started) > _LONGEST_START:
        yield f"{results.SUMMARY} says that the run began at {summary.started}, {EXPORT} at {ledger.run.started:.0f}"
    jobs = [entry for entries in ledger.tries.values() for entry in entries if entry.backend != REPLAY]
    hours = sum(entry.gpu_hours or 0.0 for entry in jobs)
    if abs(summary.gpu_hours - hours) > 0.001:
        yield f"{results.SUMMARY} has {summary.gpu_hours} GPU-hours, the jobs in {EXPORT} took {hours:.3f}"
    if summary.repeated is not None:
        runs = {entry.case: _hours_of_runs(ledger.tries[entry.case]) for entry in own}
        about = results.About(summary.site, 0.0, at_most=summary.repeated.at_most, runs=runs)
        records = [case.model_dump(mode="json") for case in summary.cases if case.id in runs]
        if different := list(differences(summary.repeated.model_dump(), results.repeated(about, records))):
            yield f"{results.SUMMARY}: what repeats saved differs from the ledger in {few(different)}"
    # Scaling that fell short is a finding too.
    regressed = bool(summary.regressions) or summary.outcome is Outcome.PERFORMANCE
    ending = overall(0, totals, regressed=regressed, uncompared=bool(summary.uncompared))
    if summary.outcome in _JUDGED and summary.outcome is not ending:
        yield f"{results.SUMMARY} says that the session ended as '{summary.outcome}', by its verdicts it is '{ending}'"


def _hours_of_runs(tries: Sequence[Entry]) -> list[float | None]:
    return [entry.gpu_hours for entry in tries if entry is tries[-1] or entry.failure == "repeated"]


# The verdicts


def _check_cases(folder: Path, ledger: Export, published: Path, found: Findings) -> dict[str, dict[str, Any]]:
    """Judge each case anew. Returns its record as it is then; that of the run if it was not judged there."""
    basis, told = Basis(folder), {case["id"]: case for case in _json(folder / results.SUMMARY)["cases"]}
    records: dict[str, dict[str, Any]] = {}
    own, added, replayed, strict, unplanned = 0, 0, 0, 0, 0
    judged_as, followed = set[str](), list[str]()
    for case, entries in ledger.tries.items():
        record, entry = told.get(case), entries[-1]
        if not entry.is_case or record is None:
            continue
        records[case] = record
        followed += [f"{_of(one)} ({one.message})" for one in entries[:-1] if one.failure != "repeated"]
        try:
            outcome = entry.outcome(folder / case, "", "", tuple(entries[:-1]), {})
            known = _check_recipe(basis, case, published, found)
            judgement = basis.judge(case, outcome)
            made, judged = _as_json(results.record(judgement)), results.read_case(folder / case)
            found.verdicts[judgement.verdict.kind] += 1
            if other := {one.gpus for one in entries} - {judgement.case.gpus}:
                found.wrong.append(f"{case}: {EXPORT} says that it has {min(other)} GPUs")
            found.wrong += _told_otherwise(entry, judgement, made, record, judged)
            if known is not None:
                _check_baseline(basis, judgement, known, published, found)
        except NewerFormat as error:
            found.cannot.append(f"{case}: {error}")
            continue
        except Exception as error:
            # Files that somebody made may be wrong in any way.
            why = f"it cannot be judged: {error}".replace(f"{folder}/", "")
            said = f"{case}: {results.SUMMARY} says '{record['verdict']}', and {why}"
            (found.cannot if record["verdict"] == Kind.INFRASTRUCTURE else found.wrong).append(said)
            continue
        records[case] = made if judged is not None else record
        replayed += entry.backend == REPLAY
        judged_as.add(f"{entry.ref.recipe} {judgement.case.release} on {judgement.outcome.gpu}")
        choice = basis.of(entry.ref.recipe)[1]
        added += judgement.case.model_name in {model.size for model in choice.models}
        strict += choice.strict_last
        unplanned += choice.agreed is not None and not ledger.run.plan
        target = judgement.expected
        own += target is not None and target.baseline.path.parent != basis.baselines
    if unplanned:
        found.wrong.append(
            f"{unplanned} case(s) are judged by the tolerance of a plan in {BASIS}/choices/, and the run has no plan"
        )
    if judged_as:
        found.notes.append(f"as the site says, it is {', '.join(sorted(judged_as))}")
    if followed:
        found.notes.append(f"as the ledger says, another job had to follow {few(followed)}")
    for count, what in (
        (own, f"judged by the site's own numbers, which nobody published: see {BASIS}/own/"),
        (added, f"of models that the site added, which nobody published: see {BASIS}/choices/"),
        (replayed, "of logs that were there before: no job of this run wrote them"),
        (strict, "judged by the published statistic alone (--strict-last)"),
    ):
        if count:
            found.notes.append(f"{count} case(s) are {what}")
    return records


def _told_otherwise(
    entry: Entry,
    judgement: Judgement,
    made: dict[str, Any],
    record: dict[str, Any],
    judged: dict[str, Any] | None,
) -> Iterator[str]:
    """How the records of a case differ from what was made anew of its log. `judged` is None if it was not judged."""
    case, kind = entry.case, judgement.verdict.kind
    own = f"{case}/{results.CASE}"
    records = {results.SUMMARY: record, own: judged}
    if judged is None and kind in _NOT_RUN and record["headline"].startswith(f"{Kind.INFRASTRUCTURE}: "):
        made = {**_as_json(results.unjudged(entry, "")), "headline": record["headline"]}
        del records[own]
    elif judged is None or record["verdict"] != kind:
        none = f" and {own} is missing" if judged is None else ""
        yield f"{case}: {results.SUMMARY} says '{record['verdict']}'{none}, its log says: {judgement.verdict.headline}"
        return
    for name, said in records.items():
        if different := list(differences({**(said or {}), **dict.fromkeys(_NOT_RECOMPUTED)}, made)):
            yield f"{case}: {name} differs from its log and the ledger in {few(different)}"


def _check_recipe(basis: Basis, key: str, published: Path, found: Findings) -> tuple[Recipe, Case] | None:
    """Set what a case runs beside the case that this Pacemark has itself, which is returned if it has one.

    Raises ConfigError or NewerFormat if the case has a mode that is not Pacemark's own: a pattern of it would be
    used on names that somebody made, and may take for ever.
    """
    name, _, case_id = key.partition("/")
    recipe, choice = basis.of(name)
    folder, case = published / "suites" / name, basis.case(key)
    known = (
        load_recipe(folder, choice.release, choice.gpu, choice.models)
        if (folder / "recipe.yaml").is_file()
        else None
    )
    same = known.case(case_id) if known is not None and not known.unfit else None
    if known is None or same is None:
        none = f"no recipe {name}" if known is None else f"no such case of release {case.release}"
        if case.mode is not None:
            raise NewerFormat(f"this Pacemark has {none}, and looks for no files by another's patterns")
        found.cannot.append(f"{key}: this Pacemark has {none}: it is judged by what the bundle says of it")
        return None
    if different := list(differences(_plain(known, same), _plain(recipe, case))):
        found.wrong.append(
            f"{key}: its recipe is not the published one: {few(different)} (published, bundle)"
        )
        if case.mode != same.mode:
            raise ConfigError("its mode is not the published one, so no files are looked for by it")
    return known, same


def _check_baseline(
    basis: Basis, judgement: Judgement, known: tuple[Recipe, Case], published: Path, found: Findings
) -> None:
    """Set the baseline of a case beside the one that this Pacemark has itself."""
    case, gpu = judgement.case, judgement.outcome.gpu
    recipe, name = basis.of(case.recipe)[0], f"{case.recipe}.yaml"
    try:
        ours, theirs = (
            find(published / "baselines", *known, gpu),
            find(basis.baselines, recipe, case, gpu),
        )
        parts = accelerators(published / "baselines").get(gpu), accelerators(basis.baselines).get(gpu)
    except ConfigError as error:
        found.wrong.append(f"{case.key}: its baseline cannot be compared: {error}")
        return
    if parts[0] != parts[1] and (different := list(differences(_dump(parts[0]), _dump(parts[1])))):
        found.wrong.append(
            f"{BASIS}/baselines: the data of {gpu} are not the published ones: {few(different)} (published, bundle)"
        )
    beside = (
        _beside(published / "baselines", known[1], ours, gpu),
        _beside(basis.baselines, case, theirs, gpu),
    )
    if (ours is None) == (theirs is None) and (different := list(differences(*beside))):
        found.wrong.append(
            f"{case.key}: {BASIS}/baselines/{name} is not the published one: {few(different)} (published, bundle)"
        )
    if ours is None and theirs is not None:
        found.cannot.append(
            f"{case.key}: this Pacemark has no number for it, the bundle has one in {BASIS}/baselines/{name}: use a newer one"
        )
    elif ours is not None and theirs is None:
        found.wrong.append(f"{case.key}: a number for it is published, and {BASIS}/baselines/{name} has none")
    elif (
        ours is not None
        and theirs is not None
        and (different := list(differences(_figures(ours), _figures(theirs))))
    ):
        found.wrong.append(
            f"{case.key}: {BASIS}/baselines/{name} is not the published one: {few(different)} (published, bundle)"
        )


def _beside(folder: Path, case: Case, baseline: Baseline | None, gpu: str) -> dict[str, Any]:
    """What the tables in a folder say of a case besides its baseline. Without one they say how it is measured."""
    told: dict[str, Any] = {"references": [one.model_dump() for one in references(folder, case, gpu)]}
    if baseline is None:
        told["statistic"] = str(usual_statistic(folder, case))
        told["MFU"] = repr(mfu_basis(case, None, gpu, folder, None))
    return told


def _plain(recipe: Recipe, case: Case) -> dict[str, Any]:
    """What a case runs, and how its log is read."""
    told = {one.name: getattr(case, one.name) for one in fields(case) if one.name != "after"}
    return {**told, "log": recipe.file.log, "program": recipe.file.program}


def _figures(baseline: Baseline) -> dict[str, Any]:
    """What a case is judged by: its cell, and what its table says of all of them."""
    head: dict[str, Any] = baseline.table.model_dump(
        mode="json", include=set(Table.model_fields) - {"cells", "notes", "references", "also"}
    )
    return {**head, **baseline.cell.model_dump(mode="json"), "tolerance": baseline.tolerance.model_dump()}


def _dump(part: Any) -> dict[str, Any]:
    return {} if part is None else dict(part.model_dump(mode="json"))


# Words


def _label(key: Key) -> str:
    return f"{key[0]}/{key[1]} try {key[2]}"


def _named(row: Row) -> str:
    return _label(journal.key_of(row))


def _of(entry: Entry) -> str:
    return f"{entry.case} try {entry.try_number}"


# Reading


def _bytes(path: Path) -> bytes:
    if not path.is_file():
        raise ConfigError(f"{path.name} is missing")
    return path.read_bytes()


def _as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(_bytes(path))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path.name}: is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{path.name}: is no record of a run")
    return found


def _summary(folder: Path) -> Summary:
    try:
        # Texts may have bytes that are not UTF-8.
        text = json.dumps(_json(folder / results.SUMMARY), ensure_ascii=False, allow_nan=False)
        return Summary.model_validate_json(text.encode(errors="replace"))
    except ValidationError as error:
        raise ConfigError(f"{results.SUMMARY}: is no record of a run: {first_mistake(error)}") from None
    except ValueError as error:
        raise ConfigError(f"{results.SUMMARY}: is no record of a run: {error}") from None
