"""Judges the cases of a run anew, and sets the verdicts beside those of its records."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fixtures.runs.lines import JOBS_LOG
from fixtures.runs.outcomes import outcome_of
from pacemark.basis import check_baseline, check_recipe
from pacemark.differences import differences, few
from pacemark.findings import Findings
from pacemark.jobs import JobsOfRun, named
from pacemark.milder import Terms
from pacemark.statement import NewerFormat
from plugins.judging.judgement import Judgement
from plugins.record.folder import BASIS, CASE, SUMMARY
from plugins.record.job import Job
from plugins.record.verdict import Kind
from plugins.rejudge import Basis
from plugins.reports import results
from plugins.reports.pace import line

# What the record of a case has that is not of its own log and ledger: an offer for the site's baselines, and
# what other jobs told of the cause.
_NOT_RECOMPUTED = ("recording", "diagnosis")
# What a case ends as that has no run to be judged.
_NOT_RUN = (Kind.INFRASTRUCTURE, Kind.LOST, Kind.SKIPPED)


def check_cases(
    folder: Path, told: Sequence[dict[str, Any]], ledger: JobsOfRun, published: Path, found: Findings
) -> dict[str, dict[str, Any]]:
    """Judge each case anew, and return the records that follow. `told` are the cases of the summary.

    If the run did not judge a case, or it cannot be judged anew, its record is that of the run.
    """
    basis, by_key = Basis(folder), {case["id"]: case for case in told}
    records: dict[str, dict[str, Any]] = {}
    terms, unplanned, followed = Terms(basis, published), 0, list[str]()
    for case, entries in ledger.tries.items():
        record, entry = by_key.get(case), entries[-1]
        if not entry.is_case or record is None:
            continue
        records[case] = record
        found.doing = f"case {len(records)} of {len(by_key)}, {case}"
        followed += [f"{named(one)} ({one.message})" for one in entries[:-1] if one.failure != "repeated"]
        try:
            outcome = outcome_of(entry, folder / case, earlier=entries[:-1])
            known = check_recipe(basis, case, published, found)
            judgement = basis.judge(case, outcome)
            made, judged = _as_json(results.record(judgement)), results.read_case(folder / case)
            found.verdicts[judgement.verdict.kind] += 1
            if other := {one.gpus for one in entries} - {judgement.case.gpus}:
                found.wrong.append(f"{case}: {JOBS_LOG} says that it has {min(other)} GPUs")
            found.wrong += _told_otherwise(entry, judgement, made, record, judged)
            if known is not None:
                check_baseline(basis, judgement, known, published, found)
        except NewerFormat as error:
            found.cannot.append(f"{case}: {error}")
            continue
        except Exception as error:
            # Files that somebody made may be wrong in any way.
            why = f"it cannot be judged: {error}".replace(f"{folder}/", "")
            said = f"{case}: {SUMMARY} says '{record['verdict']}', and {why}"
            (found.cannot if record["verdict"] == Kind.INFRASTRUCTURE else found.wrong).append(said)
            continue
        unjudged = judged is None and judgement.verdict.kind in _NOT_RUN
        records[case] = record if unjudged else made
        found.cases.append(line(records[case]))
        terms.add(entry, judgement)
        unplanned += basis.of(entry.ref.recipe)[1].agreed is not None and not ledger.run.plan
    if unplanned:
        found.wrong.append(
            f"{unplanned} case(s) are judged by the tolerance of a plan in {BASIS}/choices/, and the run has no plan"
        )
    found.notes += terms.notes()
    if followed:
        found.notes.append(f"by the ledger, another job had to follow {few(followed)}")
    return records


def _told_otherwise(
    entry: Job,
    judgement: Judgement,
    made: dict[str, Any],
    record: dict[str, Any],
    judged: dict[str, Any] | None,
) -> Iterator[str]:
    """How the records of a case differ from the one that is `made` anew of its log.

    `record` is that of the summary, `judged` that of the case's folder; None if the run did not judge the case.
    """
    case, kind = entry.case, judgement.verdict.kind
    own = f"{case}/{CASE}"
    records = {SUMMARY: record, own: judged}
    if judged is None and kind in _NOT_RUN and record["headline"].startswith(f"{Kind.INFRASTRUCTURE}: "):
        made = {**_as_json(results.unjudged(entry, "")), "headline": record["headline"]}
        del records[own]
    elif judged is None or record["verdict"] != kind:
        none = f" and {own} is missing" if judged is None else ""
        yield f"{case}: {SUMMARY} says '{record['verdict']}'{none}, its log says: {judgement.verdict.headline}"
        return
    for name, said in records.items():
        if different := list(differences({**(said or {}), **dict.fromkeys(_NOT_RECOMPUTED)}, made)):
            yield f"{case}: {name} differs from its log and the ledger in {few(different)}"


def _as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))
