"""Judges the cases of a run anew, and sets the verdicts beside those of its records, and its basis beside what is published."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from plugins.base.errors import ConfigError
from plugins.base.words import counted
from plugins.baselines.baseline_file import ACCELERATORS, Table, accelerators
from plugins.baselines.expected import counting, usual_statistic
from plugins.baselines.expected_range import extrapolated
from plugins.baselines.store import Baseline, find, references
from plugins.bundle.archive import digest
from plugins.bundle.findings import Examination, differing, few
from plugins.bundle.run import BundledRun, named
from plugins.bundle.statement import NewerFormat
from plugins.judging.case_record import record_of
from plugins.judging.judgement import Judgement
from plugins.judging.kinds.timed import BY_AGREED
from plugins.modes.checkpoints import GB
from plugins.recipes.cases import Case, Recipe
from plugins.recipes.expansion import load_recipe
from plugins.record.case import CaseRecord
from plugins.record.folder import BASIS, CASE, SUMMARY
from plugins.record.job import REPLAY, Job
from plugins.record.lines import JOBS_LOG
from plugins.record.outcome import outcome_of
from plugins.record.plan import PLAN, Plan
from plugins.record.stored import case_as_json, read_case
from plugins.record.verdict import Kind, LeftOut

# What a case ends as that has no run to be judged.
_NOT_RUN = (Kind.INFRASTRUCTURE, Kind.LOST, Kind.SKIPPED)


def check_cases(run: BundledRun, findings: Examination) -> dict[str, CaseRecord]:
    """Judge each case anew, and return the records that follow.

    If the run did not judge a case, or it cannot be judged anew, its record is that of the run.
    """
    by_key = {record.id: record for record in run.summary.cases}
    records: dict[str, CaseRecord] = {}
    terms, unplanned, followed = Terms(run), Counter[str](), list[str]()
    for case, entries in run.tries.items():
        record, entry = by_key.get(case), entries[-1]
        if not entry.is_case or record is None:
            continue
        records[case] = record
        findings.doing = f"case {len(records)} of {len(by_key)}, {case}"
        followed += [
            f"{named(earlier)} ({earlier.message})"
            for earlier in entries[:-1]
            if earlier.failure != "repeated"
        ]
        try:
            judgement, anew = _judged(run, record, findings)
        except NewerFormat as error:
            findings.cannot.append(f"{case}: {error}")
            continue
        except Exception as error:
            # Files that somebody made may be wrong in any way.
            reason = f"it cannot be judged: {error}".replace(f"{run.folder}/", "")
            lines = findings.wrong
            if record.verdict is Kind.INFRASTRUCTURE:
                lines = findings.cannot
            lines.append(f"{case}: {SUMMARY} says '{record.verdict}', and {reason}")
            continue
        records[case] = anew
        findings.cases.append(f"{anew.id}: {anew.headline}")
        terms.add(entry, judgement)
        if not run.log.plan:
            choice = run.basis.of(entry.ref.recipe).choice
            unplanned["the tolerance"] += choice.agreed is not None
            unplanned["the promise"] += choice.by_expected
    findings.wrong += [
        f"{count} case(s) are judged by {what} of a plan in {BASIS}/choices/, and the run has no plan"
        for what, count in unplanned.items()
        if count
    ]
    findings.notes += terms.notes()
    if followed:
        findings.notes.append(f"by the ledger, another job had to follow {few(followed)}")
    return records


def _judged(run: BundledRun, record: CaseRecord, findings: Examination) -> tuple[Judgement, CaseRecord]:
    """Judge a case of the summary anew, and set it beside its records. Returns also the record that follows."""
    case, entries = record.id, run.tries[record.id]
    outcome = outcome_of(entries[-1], run.folder / case, earlier=entries[:-1])
    known = check_recipe(run, case, findings)
    judgement = run.basis.judge(case, outcome)
    made, judged = record_of(judgement), read_case(run.folder / case)
    findings.verdicts[judgement.verdict.kind] += 1
    sizes = {job.gpus for job in entries} - {judgement.case.gpus}
    if sizes:
        findings.wrong.append(f"{case}: {JOBS_LOG} says that it has {counted(min(sizes), 'GPU')}")
    findings.wrong += _told_otherwise(entries[-1], judgement, made, record, judged)
    if known is not None:
        check_baseline(run, judgement, known, findings)
    if judged is None and judgement.verdict.kind in _NOT_RUN:
        return judgement, record
    return judgement, made


def _told_otherwise(
    entry: Job,
    judgement: Judgement,
    made: CaseRecord,
    record: CaseRecord,
    judged: CaseRecord | None,
) -> Iterator[str]:
    """How the records of a case differ from the one that is `made` anew of its log.

    `record` is that of the summary, `judged` that of the case's folder; None if the run did not judge the case.
    """
    case, kind = entry.case, judgement.verdict.kind
    path = f"{case}/{CASE}"
    records = {SUMMARY: record}
    if judged is None and kind in _NOT_RUN and record.headline.startswith(f"{Kind.INFRASTRUCTURE}: "):
        made = replace(CaseRecord.unjudged(entry, ""), headline=record.headline)
    elif judged is None or record.verdict is not kind:
        recorded = f"{SUMMARY} says '{record.verdict}'"
        if judged is None:
            recorded += f" and {path} is missing"
        yield f"{case}: {recorded}, its log says: {judgement.verdict.headline}"
        return
    else:
        records[path] = judged
    for name, stored in records.items():
        # An offer for the site's baselines, and what probes say of its nodes, are not of its own log.
        comparable = replace(stored, recording=None, isolation=None)
        different = differing(case_as_json(comparable), case_as_json(made))
        if different:
            yield f"{case}: {name} differs from its log and the ledger in {different}"


def check_recipe(run: BundledRun, key: str, findings: Examination) -> tuple[Recipe, Case] | None:
    """Set what a case runs beside the case that this Pacemark has itself, which is returned if it has one.

    Raises ConfigError or NewerFormat if the case has a mode that is not Pacemark's own: a pattern of it would be
    used on names that somebody made, and may take for ever.
    """
    name, _, case_id = key.partition("/")
    setting, case = run.basis.of(name), run.basis.case(key)
    choice, none = setting.choice, f"no recipe {name}"
    for root in run.roots:
        folder = root / "suites" / name
        if not (folder / "recipe.yaml").is_file():
            continue
        known = load_recipe(folder, choice.release, choice.gpu, choice.models)
        none, same = f"no such case of release {case.release}", known.case(case_id)
        if known.unfit or same is None:
            continue
        different = differing(_plain(known, same), _plain(setting.recipe, case))
        if different:
            findings.wrong.append(f"{key}: its recipe {run.unlike(root, different)}")
            if case.mode != same.mode:
                raise ConfigError("its mode is not the published one, so no files are looked for by it")
        _tell_supplied(run, root, known.path, findings)
        return known, same
    if case.mode is not None:
        raise NewerFormat(f"this Pacemark has {none}, and looks for no files by another's patterns")
    findings.cannot.append(
        f"{key}: this Pacemark has {none}: it is judged by what the bundle says of it; --recipes DIR gives yours"
    )
    return None


def _tell_supplied(run: BundledRun, root: Path, path: Path, findings: Examination) -> None:
    """Tell of a file that is not Pacemark's own, and by which a case was judged."""
    if root == run.published:
        return
    name = str(path.relative_to(root))
    ours, in_bundle = digest(path), run.folder / BASIS / name
    theirs = digest(in_bundle) if in_bundle.is_file() else "none"
    line = f"judged by {name} of --recipes, which is not Pacemark's own: SHA-256 {ours}"
    if theirs != ours:
        line += f" (the bundle's file: {theirs})"
    if line not in findings.supplied:
        findings.supplied.append(line)


def check_baseline(
    run: BundledRun, judgement: Judgement, known: tuple[Recipe, Case], findings: Examination
) -> None:
    """Set the baseline of a case beside the one that this Pacemark has itself."""
    case, gpu = judgement.case, judgement.outcome.gpu
    recipe, table = run.basis.of(case.recipe).recipe, f"{BASIS}/baselines/{case.recipe}.yaml"
    root, there = known[0].folder.parents[1], run.basis.baselines
    try:
        root = next((root for root in run.roots if find(root / "baselines", *known, gpu)), root)
        here = root / "baselines"
        ours, theirs = find(here, *known, gpu), find(there, recipe, case, gpu)
        # Pacemark's own data sheet counts first, as all that it has itself.
        sheet_root = next((each for each in run.roots if gpu in accelerators(each / "baselines")), root)
        sheets = [accelerators(folder).get(gpu) for folder in (sheet_root / "baselines", there)]
    except ConfigError as error:
        findings.wrong.append(f"{case.key}: its baseline cannot be compared: {error}")
        return
    different = differing(*(sheet.model_dump(mode="json") if sheet else {} for sheet in sheets))
    if different:
        findings.wrong.append(
            f"{BASIS}/baselines: the data sheet of {gpu} {run.unlike(sheet_root, different)}"
        )
    elif sheets[0] is not None:
        _tell_supplied(run, sheet_root, sheet_root / "baselines" / ACCELERATORS, findings)
    if theirs is None:
        if ours is not None:
            findings.wrong.append(f"{case.key}: a number for it is published, and {table} has none")
            return
    elif ours is None:
        findings.cannot.append(
            f"{case.key}: this Pacemark has no number for it, the bundle has one in {table}: use a newer one, or --recipes DIR"
        )
        return
    different = differing(_figures(here, known[1], ours, gpu), _figures(there, case, theirs, gpu))
    if different:
        findings.wrong.append(f"{case.key}: {table} {run.unlike(root, different)}")
    if (here / f"{case.recipe}.yaml").is_file():
        # Without a number of the case it has how that is measured, and what its expected range is of.
        _tell_supplied(run, root, here / f"{case.recipe}.yaml", findings)


def _figures(folder: Path, case: Case, baseline: Baseline | None, gpu: str) -> dict[str, Any]:
    """What the tables in a folder say of a case: the numbers that it is judged by, or how it is measured without."""
    figures: dict[str, Any] = {"references": [item.model_dump() for item in references(folder, case, gpu)]}
    if baseline is None:
        figures["statistic"] = str(usual_statistic(folder, case))
        figures["MFU"] = repr(counting(case, None, gpu, folder).basis())
        scaled = extrapolated(case, gpu, folder)
        figures["expected range"] = scaled.why_none or repr(scaled.range)
        return figures
    of_all = set(Table.model_fields) - {"cells", "notes", "references", "also"}
    figures |= baseline.table.model_dump(mode="json", include=of_all)
    return {**figures, **baseline.cell.model_dump(mode="json"), "tolerance": baseline.tolerance.model_dump()}


def _plain(recipe: Recipe, case: Case) -> dict[str, Any]:
    """What a case runs, and how its log is read."""
    values = {field.name: getattr(case, field.name) for field in fields(case) if field.name != "after"}
    return {**values, "log": recipe.file.log, "program": recipe.file.program}


BY_RANGE = "judged by the lower end of the expected range, because nobody published a number"
"""So begins the note on such cases, which it names."""


@dataclass
class Terms:
    """By what the cases of a run were judged: `by` has each thing in words, with its cases."""

    run: BundledRun
    judged_as: set[str] = field(default_factory=set)
    by: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(self, entry: Job, judgement: Judgement) -> None:
        for words in self._of(entry, judgement):
            self.by[words].append(judgement.case.key)
        self.judged_as.add(self._as_what(entry.ref.recipe, judgement))

    def notes(self) -> Iterator[str]:
        if self.judged_as:
            yield f"judged as what the site file states: {', '.join(sorted(self.judged_as))}"
        for words, cases in self.by.items():
            if words.startswith((BY_AGREED, BY_RANGE)):
                yield f"{few(cases)}: {words}"
            else:
                yield f"{len(cases)} case(s) are {words}"

    def _as_what(self, name: str, judgement: Judgement) -> str:
        """`llama3 25.02 (its newest is 25.04) on h100`."""
        release, folder = judgement.case.release, self.run.published / "suites" / name
        judged_as = f"{name} {release}"
        if (folder / "recipe.yaml").is_file():
            newest = load_recipe(folder).file.release
            if newest != release:
                judged_as += f" (its newest is {newest})"
        return f"{judged_as} on {judgement.outcome.gpu}"

    def _of(self, entry: Job, judgement: Judgement) -> Iterator[str]:
        choice, target = self.run.basis.of(entry.ref.recipe).choice, judgement.expected
        if target is not None and target.baseline.path.parent != self.run.basis.baselines:
            yield f"judged by the site's own numbers, which nobody published: see {BASIS}/own/"
        if target is not None and target.baseline.range is not None:
            yield BY_RANGE
        if judgement.case.model_name in {model.size for model in choice.models}:
            yield f"of models that the site added, which nobody published: see {BASIS}/choices/"
        if entry.backend == REPLAY:
            yield "of logs that were there before: no job of this run wrote them"
        if choice.strict_last:
            yield "judged by the published statistic alone (--strict-last)"
        if judgement.written is not None:
            promised = judgement.written.promised
            if promised:
                yield f"judged by the {promised / GB:g} GB/s that the site file promises of the storage"
            else:
                yield "judged by no promised bandwidth of the storage"
        if len(judgement.runs) > 1:
            yield "judged by several runs together"
        yield from (remark for remark in judgement.verdict.remarks if remark.startswith(BY_AGREED))


def left_out(parts: Sequence[LeftOut]) -> Iterator[str]:
    """The cases that were selected and did not run."""
    for left_out in parts:
        yield f"by the session's word, {left_out.cases} case(s) of {left_out.recipe} were left out: {left_out.reason}"


def agreed_terms(plan: Plan) -> Iterator[str]:
    """What a plan allows beyond what is published, besides its tolerance and its waivers."""
    if plan.scaling is not None:
        yield f"by {PLAN}, scaling may fall short of the published efficiency by {100 * plan.scaling:g} %"
    if plan.recorded_baselines:
        yield f"by {PLAN}, numbers that this site itself recorded count"
    if plan.by == "expected":
        yield f"by {PLAN}, the lower end of its expected range decides on a case without a published number"
    if plan.numbers:
        yield f"by {PLAN}, both parties agreed on the numbers of {few(sorted(plan.numbers))}"
