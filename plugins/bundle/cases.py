"""Judges the cases of a run anew, and sets the verdicts beside those of its records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from plugins.bundle.findings import Examination, differing, few
from plugins.bundle.published import check_baseline, check_recipe
from plugins.bundle.run import BundledRun, named
from plugins.bundle.statement import NewerFormat
from plugins.bundle.terms import Terms
from plugins.judging.case_record import record_of
from plugins.judging.judgement import Judgement
from plugins.outcome import outcome_of
from plugins.record.case import CaseRecord
from plugins.record.folder import BASIS, CASE, SUMMARY
from plugins.record.job import Job
from plugins.record.lines import JOBS_LOG
from plugins.record.stored import case_as_json, read_case
from plugins.record.verdict import Kind

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
        findings.cases.append(_pace(anew))
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
        findings.wrong.append(f"{case}: {JOBS_LOG} says that it has {min(sizes)} GPUs")
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
        # An offer for the site's baselines, and what other jobs say of the cause, are not of its own log.
        comparable = replace(stored, recording=None, diagnosis=None, isolation=None)
        different = differing(case_as_json(comparable), case_as_json(made))
        if different:
            yield f"{case}: {name} differs from its log and the ledger in {different}"


def _pace(record: CaseRecord) -> str:
    """`llama3/70b-fp8-512gpus: passed, measured 10.11 s a step, expected 10.07 s, off by -0.4 %`."""
    seconds, expected = record.slower_pace, record.expected
    if seconds is None:
        return f"{record.id}: {record.headline}"
    measured = f"{record.id}: {record.verdict}, measured {seconds:.4g} s a step"
    if expected is None:
        return f"{measured}, nothing is expected"
    return f"{measured}, expected {expected.step_time:.4g} s, off by {record.off:+.1f} %"
