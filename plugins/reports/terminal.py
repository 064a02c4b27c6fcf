"""The verdict table at the end of a session."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TextIO

from plugins.base.words import shown
from plugins.record.case import CaseRecord
from plugins.record.verdict import NOTHING, Kind

# What passed, what needs a look, what is the cluster's pace, and what says nothing about it.
_COLOURS = {
    Kind.PASSED: "green",
    Kind.NO_BASELINE: "yellow",
    Kind.SKIPPED: "yellow",
    Kind.TOO_SLOW: "red",
    Kind.TOO_FAST: "red",
    Kind.NOISY: "red",
}
_OTHER = "magenta"

# The groups of the table: at its end, nearest to the prompt, is what failed.
_GROUPS = (
    Kind.PASSED,
    Kind.NO_BASELINE,
    Kind.SKIPPED,
    Kind.TOO_FAST,
    Kind.NOISY,
    Kind.TOO_SLOW,
    Kind.INVALID,
    Kind.LOST,
    Kind.INFRASTRUCTURE,
)
_STOPPED = "stopped"
_NUMBER = re.compile(r"[\d.,]+")
_OVER = re.compile(r"; (?:job \S+ (?=was cancelled|had completed)|it was never submitted)")
"""How a case was stopped whose job runs no more. Any other job may still run, and is told by itself."""
_COLUMNS = ("case", "verdict", "s/step", "steady", "expected", "throughput", "tokens/s", "MFU")
# Those that a narrow terminal leaves out, the first one first.
_EXPENDABLE = ("tokens/s", "steady", "MFU", "expected", "s/step")


def colour_of(verdict: str) -> str:
    """The colour in which a terminal shows a verdict."""
    return _COLOURS.get(Kind(verdict), _OTHER)


def print_table(
    records: Sequence[CaseRecord], file: TextIO, width: int, *, colour: bool, details: bool = True
) -> None:
    """Print a row for each case, grouped by verdict.

    With `details`, remarks, failures and checkpoints follow below the table; without, stopped jobs that may still run.
    """
    # It is slow to import, and only needed once jobs have run.
    from rich.text import Text

    from plugins.base.console import PlainConsole, fitting

    records = sorted(records, key=lambda record: _GROUPS.index(record.verdict))
    console = PlainConsole(file=file, width=width, force_terminal=colour, no_color=not colour)
    cells = [(record.id, _verdict(record), *_figures(record)) for record in records]
    columns = fitting([_COLUMNS, *cells], width, [_COLUMNS.index(name) for name in _EXPENDABLE])
    rows: list[list[str | Text]] = []
    before = None
    for record, row in zip(records, cells, strict=True):
        if before not in (None, record.verdict):
            rows.append([])
        before = record.verdict
        verdict = Text(row[1], style="yellow" if record.stopped else colour_of(before))
        rows.append([verdict if index == 1 else row[index] for index in columns])
    console.print_rows((_COLUMNS[index] for index in columns), rows, _COLUMNS[2:], ("verdict",))
    # What is wrong with many cases is said with the first of them.
    alike = Counter(_trouble(r) for r in records if r.verdict is not Kind.PASSED or not r.step_time)
    for record in records:
        if not details and (not record.stopped or _OVER.search(record.headline)):
            continue
        count = alike.pop(_trouble(record), 0)
        if count:
            more = f" and {count - 1} more" if count > 1 else ""
            headline = record.headline
            if record.stopped:
                headline = f"{_STOPPED}:{headline.partition(';')[2]}"
            file.write(shown(f"{record.id}{more}: {headline}\n"))
        for line in _details(record):
            file.write(shown(f"{record.id}: {line}\n"))
    counts = Counter(map(_kind, records))
    against = sorted(filter(None, {_baseline(record) for record in records}))
    if against:
        console.print(f"judged against: {', '.join(against)}", style="dim")
    if any(record.remarks for record in records):
        console.print(f"* with remarks, {'above' if details else 'in the record'}", style="dim")
    kinds = (*_GROUPS, _STOPPED)
    console.print(", ".join(f"{counts[kind]} {kind}" for kind in kinds if counts[kind]), style="bold")


def _kind(record: CaseRecord) -> str:
    """What the terminal calls the verdict."""
    return _STOPPED if record.stopped else str(record.verdict)


def _trouble(record: CaseRecord) -> str:
    """What is wrong with a case, without what differs between cases that have the same trouble."""
    if record.verdict is Kind.NO_BASELINE:
        reason = record.headline.partition(NOTHING)[2].replace(record.id.partition("/")[2], "")
        return _NUMBER.sub("", reason)
    return _OVER.sub("; ", record.headline) if record.stopped else record.headline


def _details(record: CaseRecord) -> list[str]:
    """The remarks on a case, the nodes that slow it, and what others reached."""
    lines = [f"remark: {remark}" for remark in record.remarks]
    if record.isolation is not None:
        lines.append(record.isolation.headline)
    return lines + [" ".join(reference.text.split()) for reference in record.references or ()]


def _baseline(record: CaseRecord) -> str:
    """`llama3 25.04 on h100`; "" if the case was compared with nothing."""
    target = record.expected
    if target is None:
        return ""
    compared = f"{record.recipe} {record.release} on {target.gpu}"
    if record.expected_range is not None:
        compared += " by its expected range"
    if target.recorded_by:
        compared += f" as recorded by run {target.recorded_by}"
    return compared


def _verdict(record: CaseRecord) -> str:
    return f"{_kind(record)}{' *' if record.remarks else ''}"


def _figures(record: CaseRecord) -> list[str]:
    """The cells behind the verdict; all empty if nothing was measured."""
    if record.step_time is None:
        return [""] * 6
    figures = (
        (record.step_time, ".4g", ""),
        (record.steady_median, ".4g", ""),
        (record.expected and record.expected.step_time, ".4g", ""),
        (record.deviation, "+.1f", " %"),
        (record.tokens_per_second, ",.0f", ""),
        (record.mfu, ".2f", " %"),
    )
    return ["" if value is None else f"{value:{form}}{unit}" for value, form, unit in figures]
