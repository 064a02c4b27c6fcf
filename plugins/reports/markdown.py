"""The verdicts of a run as Markdown: the summary of a job of CI. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plugins.outcome import UNKNOWN_JOB
from plugins.record.verdict import Kind
from plugins.reports.pace import off
from plugins.words import shown

_COLUMNS = ("case", "verdict", "s/step", "steady", "expected", "throughput", "tokens/s", "MFU", "job")


def verdicts(summary: Mapping[str, Any], most_bytes: int) -> str:
    """A table of the cases, those first that did not pass, with why not and what else a reader must know; "" if there is no room for a line."""
    cases = sorted(summary["cases"], key=lambda case: case["verdict"] == Kind.PASSED)
    left_out = {"left out": sum(left["cases"] for left in summary["left_out"])}
    counts = ", ".join(
        f"{count} {kind}" for kind, count in {**summary["totals"], **left_out}.items() if count
    )
    lines = [
        f"## Pacemark: {summary['outcome']}",
        "",
        f"{counts}, on site {code(summary['site'])}, {_hours(summary['gpu_hours'])} GPU-hours, "
        f"run {code(summary['run'])}, Pacemark {summary['versions']['pacemark']}{_commit(summary)}",
        "",
        f"| {' | '.join(_COLUMNS)} |",
        f"| --- | --- {'| ---: ' * (len(_COLUMNS) - 3)}| --- |",
        *(_row(case) for case in cases),
        "",
        *_decision(summary["acceptance"]),
        *(_left_out(left) for left in summary["left_out"]),
        *(f"- {code(text)}" for text in [*summary["regressions"], *summary["uncompared"]]),
        *(line for case in cases if case["verdict"] != Kind.PASSED or case["remarks"] for line in _told(case)),
    ]  # fmt: skip
    return _cut(lines, most_bytes)


def _left_out(left: Mapping[str, Any]) -> str:
    names = f": {code(', '.join(left['ids']))}" if left.get("ids") else ""
    return f"- {left['cases']} of {code(left['recipe'])} left out: {code(left['reason'])}{names}"


def code(text: str) -> str:
    """A text from anywhere as code, in which nothing is markup and nothing a link."""
    plain = " ".join(shown(text).split()).replace("`", "'").replace("|", "\\|")
    return f"`{plain or ' '}`"


def _row(case: Mapping[str, Any]) -> str:
    step_time, expected, mfu = case["step_time"], case["expected"], case["mfu"]
    distance = off(case)
    cells = [
        code(case["id"]),
        case["verdict"],
        f"{step_time:.4g}" if step_time else "",
        f"{case['steady_median']:.4g}" if case["steady_median"] else "",
        f"{expected['step_time']:.4g}" if expected else "",
        f"{distance:+.1f} %" if distance is not None else "",
        f"{case['tokens_per_second']:,.0f}" if case["tokens_per_second"] else "",
        f"{mfu:.2f} %" if mfu else "",
        "" if (job := case["job"]["id"] or case["job"]["name"]) == UNKNOWN_JOB else code(job),
    ]
    return f"| {' | '.join(cells)} |"


def _decision(acceptance: Mapping[str, Any] | None) -> list[str]:
    """What speaks against a plan, and what is missing of it."""
    if acceptance is None:
        return []
    return [
        f"- acceptance: **{acceptance['decision']}**, plan {code(acceptance['digest'])}",
        *(f"  - failed: {code(key)}: {code(why)}" for key, why in acceptance["failed"].items()),
        *(f"  - missing: {code(key)}: {code(why)}" for key, why in acceptance["missing"].items()),
    ]


def _told(case: Mapping[str, Any]) -> list[str]:
    """The headline of a case and its remarks."""
    remarks = [f"  - {code(remark)}" for remark in case["remarks"]]
    return [f"- {code(case['id'])}: {code(case['headline'])}", *remarks]


def _hours(value: float) -> str:
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"


def _commit(summary: Mapping[str, Any]) -> str:
    if summary["commit"] is None:
        return ""
    return f" at {code(summary['commit'][:12])}{', with changes' if summary['dirty'] else ''}"


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
