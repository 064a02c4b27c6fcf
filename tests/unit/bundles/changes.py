"""What somebody may change of the files of a run: each returns what makes other files of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from plugins.record.lines import JOBS_LOG
from tests.unit.bundles.runs import PASSED, Change, Members, changed, replaced
from tests.unit.jobs_log import Content, line_of, lines_of, link, log_of

SUMMARY, CHOICE = "summary.json", "basis/choices/llama3.json"


def text(name: str, old: str, new: str, times: int = 1) -> Change:
    return lambda members: replaced(members, name, old, new, times)


def without(name: str) -> Change:
    return lambda members: {other: data for other, data in members.items() if other != name}


def also(name: str, data: bytes = b"x") -> Change:
    return lambda members: {**members, name: data}


def summary(change: Callable[[Content], Any] | None = None, **values: Any) -> Change:
    """Another summary: by a change of it, or with other values."""
    return lambda members: changed(members, SUMMARY, change or (lambda found: found.update(values)))


def record(case_id: str, **values: Any) -> Change:
    """Another record of a case in the summary."""
    return summary(lambda found: case_of(found, case_id).update(values))


def case_of(summary: Content, case_id: str) -> Content:
    found: Content = next(case for case in summary["cases"] if case["id"] == f"llama3/{case_id}")
    return found


def choice(**values: Any) -> Change:
    return lambda members: changed(members, CHOICE, lambda found: found.update(values))


def journal(change: Callable[[list[Content]], list[Content]]) -> Change:
    """Other lines of `jobs.log`, with a chain that is made anew."""
    return lambda members: {**members, JOBS_LOG: log_of(change(lines_of(members[JOBS_LOG])))}


def chained(old: str, new: str) -> Change:
    """Another text in the lines of `jobs.log`, with a chain that is made anew."""

    def change(members: Members) -> Members:
        lines, last = list[bytes](), b""
        for line in members[JOBS_LOG].decode().replace(old, new).splitlines():
            words = re.sub(r'"after": "[^"]*"', f'"after": "{link(last)}"', line.partition(" ")[2])
            last = line_of(words)
            lines.append(last)
        return {**members, JOBS_LOG: b"\n".join([*lines, b""])}

    return change


def cut(change: Callable[[list[bytes]], list[bytes]]) -> Change:
    """The lines of `jobs.log` as they are, but left out or moved."""
    return lambda members: {
        **members,
        JOBS_LOG: b"".join(change(members[JOBS_LOG].splitlines(keepends=True))),
    }


def jobs(line: Content, case_id: str, values: Content) -> Content:
    """The line, in which the jobs of a case have other facts, wherever in a job these stand."""
    made: Content = json.loads(json.dumps(line))
    for job in made["jobs"]:
        if job["ref"]["case_id"] == case_id:
            for name, value in values.items():
                part = next((job[part] for part in ("ref", "state", "times") if name in job[part]), job)
                part[name] = value
    return made


def throughout(case_id: str = PASSED, **values: Any) -> Change:
    """Other facts of a case's jobs in each line."""
    return journal(lambda lines: [jobs(line, case_id, values) for line in lines])


def at_last(**values: Any) -> Change:
    """Other facts of the passed case's job in its last line."""

    def change(lines: list[Content]) -> list[Content]:
        last = max(n for n, line in enumerate(lines) if PASSED in [j["ref"]["case_id"] for j in line["jobs"]])
        return [*lines[:last], jobs(lines[last], PASSED, values), *lines[last + 1 :]]

    return journal(change)


def run(line: Content, **values: Any) -> Content:
    """The line, in which the run has other facts."""
    return {**line, "run": {**line["run"], **values}}


def in_turn(*changes: Change) -> Change:
    def change(members: Members) -> Members:
        for each in changes:
            members = each(members)
        return members

    return change


def unsubmitted(case_id: str) -> Change:
    """Without the first submission of a case."""

    def is_other(job: Content) -> bool:
        return (job["ref"]["case_id"], job["try_number"]) != (case_id, 1)

    return journal(lambda lines: [{**line, "jobs": [*filter(is_other, line["jobs"])]} for line in lines])


def unsummarised(case_id: str, verdict: str) -> Change:
    def shorter(found: Content) -> None:
        found["cases"].remove(case_of(found, case_id))
        found["totals"][verdict] -= 1

    return summary(shorter)


def renamed(old: str, new: str) -> Change:
    """The same run of a case or of a recipe of another name."""

    def change(members: Members) -> Members:
        made = {}
        for name, data in members.items():
            other = data if name.endswith("log.txt") else data.replace(old.encode(), new.encode())
            made[name.replace(old, new)] = other
        return {**made, JOBS_LOG: log_of(lines_of(made[JOBS_LOG]))}

    return change
