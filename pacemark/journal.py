"""Checks the journal of a run: whether it is whole, and whether it says what the ledger says."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from fixtures.runs import journal
from fixtures.runs.journal import JOURNAL, Key
from fixtures.runs.ledger import run_seal
from pacemark.differences import differences, few
from pacemark.findings import Findings
from pacemark.ledger import EXPORT, Export
from pacemark.statement import once


def check_journal(folder: Path, ledger: Export, found: Findings) -> None:
    """Check that no line of the journal was changed or left out, and that it says what the ledger says."""
    path = folder / JOURNAL
    if not path.is_file():
        found.wrong.append(f"{JOURNAL} is missing")
        return
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

    `plans` and `seals` are those of its lines on the run; a run without a plan has the plan "". If the first line is
    not on the run, `plans` has "?", which is no plan of any run. `revisions` are the numbers of the changes of each submission, `ids` those of its job.
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


def _label(key: Key) -> str:
    return f"{key[0]}/{key[1]} try {key[2]}"
