"""The verdicts of a run as Markdown: the summary of a job of CI. Pure."""

from __future__ import annotations

from plugins.outcome import UNKNOWN_JOB
from plugins.record.case import CaseRecord
from plugins.record.summary import AcceptanceRecord, Summary
from plugins.record.verdict import Kind, LeftOut
from plugins.words import markdown_code as code

_COLUMNS = ("case", "verdict", "s/step", "steady", "expected", "throughput", "tokens/s", "MFU", "job")


def verdicts(summary: Summary, most_bytes: int) -> str:
    """A table of the cases, those first that did not pass, with why not and what else a reader must know; "" if there is no room for a line."""
    cases = sorted(summary.cases, key=lambda record: record.verdict is Kind.PASSED)
    left_out = sum(group.cases for group in summary.left_out)
    totals = [*summary.totals.items(), ("left out", left_out)]
    counts = ", ".join(f"{count} {kind}" for kind, count in totals if count)
    lines = [
        f"## Pacemark: {summary.outcome}",
        "",
        f"{counts}, on site {code(summary.site)}, {_hours(summary.gpu_hours)} GPU-hours, "
        f"run {code(summary.run)}, Pacemark {summary.versions['pacemark']}{_commit(summary)}",
        "",
        f"| {' | '.join(_COLUMNS)} |",
        f"| --- | --- {'| ---: ' * (len(_COLUMNS) - 3)}| --- |",
        *map(_row, cases),
        "",
        *_decision(summary.acceptance),
        *map(_left_out, summary.left_out),
        *(f"- {code(text)}" for text in [*summary.regressions, *summary.uncompared]),
        *(line for record in cases for line in _reasons(record)),
    ]  # fmt: skip
    return _cut(lines, most_bytes)


def _left_out(group: LeftOut) -> str:
    names = f": {code(', '.join(group.ids))}" if group.ids else ""
    return f"- {group.cases} of {code(group.recipe)} left out: {code(group.reason)}{names}"


def _row(record: CaseRecord) -> str:
    job = record.job.ref.label
    cells = [
        code(record.id),
        record.verdict,
        _figure(record.step_time, ".4g"),
        _figure(record.steady_median, ".4g"),
        _figure(record.expected.step_time if record.expected else None, ".4g"),
        "" if record.off is None else f"{record.off:+.1f} %",
        _figure(record.tokens_per_second, ",.0f"),
        _figure(record.mfu, ".2f", " %"),
        "" if job == UNKNOWN_JOB else code(job),
    ]
    return f"| {' | '.join(cells)} |"


def _figure(value: float | None, form: str, unit: str = "") -> str:
    return f"{value:{form}}{unit}" if value else ""


def _decision(acceptance: AcceptanceRecord | None) -> list[str]:
    """What speaks against a plan, and what is missing of it."""
    if acceptance is None:
        return []
    return [
        f"- acceptance: **{acceptance.decision}**, plan {code(acceptance.digest)}",
        *(f"  - failed: {code(key)}: {code(reason)}" for key, reason in acceptance.failed.items()),
        *(f"  - missing: {code(key)}: {code(reason)}" for key, reason in acceptance.missing.items()),
    ]


def _reasons(record: CaseRecord) -> list[str]:
    """The headline of a case and its remarks; none if it passed without a remark."""
    if record.verdict is Kind.PASSED and not record.remarks:
        return []
    remarks = [f"  - {code(remark)}" for remark in record.remarks]
    return [f"- {code(record.id)}: {code(record.headline)}", *remarks]


def _hours(value: float) -> str:
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"


def _commit(summary: Summary) -> str:
    if summary.commit is None:
        return ""
    return f" at {code(summary.commit[:12])}{', with changes' if summary.dirty else ''}"


def _cut(lines: list[str], most_bytes: int) -> str:
    """The first of these lines, and how many more there were."""
    room = most_bytes - 100
    if room < 0:
        return ""
    for number, line in enumerate(lines):
        room -= len(line.encode()) + 1
        if room < 0:
            lines = [
                *lines[:number],
                "",
                f"{len(lines) - number} more lines are left out: summary.json has all.",
            ]
            break
    return "\n".join(lines) + "\n"
