"""What CI reads of a run: `ctrf.json`, `metrics.txt`, JUnit's XML, and the summary of a job.

The Common Test Report Format: https://ctrf.io. pytest-json-ctrf has no place for a verdict, a figure or a job, and its
durations are those of the tests, which only wait. `metrics.txt` is in the text format of OpenMetrics, which GitLab's
metrics reports and Prometheus read.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from plugins.acceptance.screening import compares
from plugins.base.files import write_json, write_whole
from plugins.base.words import nodes_in_words, shown
from plugins.record.case import CaseRecord, JobRecord
from plugins.record.folder import CTRF, METRICS
from plugins.record.lines import stamp
from plugins.record.outcome import UNKNOWN_JOB
from plugins.record.summary import NodeState, Screening, Summary
from plugins.record.verdict import Kind
from plugins.reports.markup import template

_MOST_ANNOTATIONS = 10
_STATUSES = ("passed", "failed", "skipped", "pending", "other")
_FIGURES = {
    "pacemark_deviation_percent": (
        "deviation",
        "Percent of throughput above (+) or below (-) the expected one.",
    ),
    "pacemark_step_seconds": ("step_time", "Seconds of a training step."),
    "pacemark_steady_step_seconds": ("steady_median", "Seconds of a steady training step."),
    "pacemark_expected_step_seconds": ("expected_step_time", "Seconds of a training step that are expected."),
    "pacemark_fastest_step_seconds": ("fastest", "Seconds of the shortest training step that passes."),
    "pacemark_slowest_step_seconds": ("slowest", "Seconds of the longest training step that passes."),
    "pacemark_tokens_per_second": ("tokens_per_second", "Tokens per second of all GPUs."),
    "pacemark_mfu_percent": ("mfu", "Model FLOPs utilization in percent."),
}


class CtrfReport:
    """`ctrf.json`."""

    name = CTRF

    def write(self, summary: Summary, folder: Path) -> None:
        """Write the report into the run's folder. Raises OSError."""
        write_json(folder / self.name, ctrf(summary))


class MetricsReport:
    """`metrics.txt`."""

    name = METRICS

    def write(self, summary: Summary, folder: Path) -> None:
        """Write the report into the run's folder. Raises OSError."""
        write_whole(folder / self.name, metrics(summary))


def ctrf(summary: Summary) -> dict[str, Any]:
    """The report in CTRF. Times are in ms, of each case's last job; the duration of a case without them is 0."""
    tests = [_test(record) for record in summary.cases]
    if summary.screening is not None:
        tests.append(_peers_test(summary.screening))
    counts = Counter(test["status"] for test in tests)
    facts = {
        "outcome": summary.outcome,
        "exit_code": summary.exit_code,
        "gpu_hours": summary.gpu_hours,
        "commit": summary.commit,
        "acceptance": summary.acceptance and summary.acceptance.decision,
    }
    return {
        "reportFormat": "CTRF",
        "specVersion": "0.0.0",
        "runId": summary.run,
        "timestamp": stamp(summary.ended),
        "generatedBy": "pacemark",
        "results": {
            "tool": {"name": "pacemark", "version": summary.versions["pacemark"]},
            "summary": {
                "tests": len(tests),
                **{status: counts[status] for status in _STATUSES},
                "start": _ms(summary.started),
                "stop": _ms(summary.ended),
                "extra": _extra(facts),
            },
            "environment": {"testEnvironment": summary.site, "healthy": summary.outcome == "passed"},
            "tests": tests,
        },
    }


def _test(record: CaseRecord) -> dict[str, Any]:
    job = record.job
    times = {}
    if job.started is not None and job.ended is not None:
        times = {"start": _ms(job.started), "stop": _ms(job.ended)}
    return {
        "testId": record.id,
        "name": record.id,
        "suite": [record.recipe],
        "status": _status(record.verdict),
        "rawStatus": record.verdict,
        "message": shown(record.headline),
        "duration": times.get("stop", 0) - times.get("start", 0),
        **times,
        "retries": sum(earlier.failure != "repeated" for earlier in record.earlier_jobs),
        "extra": _extra(_facts(record)),
    }


def _facts(record: CaseRecord) -> dict[str, Any]:
    """What the case ran as, what decides on it, and where it ran; None or "" if that is not known."""
    job, nodes = shown(_label(record.job)), shown(nodes_in_words(record.job.nodes))
    return {**_configuration(record), **_figures(record), "job": job, "nodes": nodes}


def _configuration(record: CaseRecord) -> dict[str, Any]:
    ran = record.configuration or {}
    known = {name: ran.get(name) for name in ("gpus", "dtype")}
    return {
        "recipe": record.recipe,
        "release": record.release,
        "gpu": shown(str(ran.get("gpu") or "")),
        **known,
    }


def _figures(record: CaseRecord) -> dict[str, Any]:
    """What decides on a case, by the names of its record."""
    target = record.expected
    return {
        "deviation": record.deviation,
        "step_time": record.step_time,
        "steady_median": record.steady_median,
        "expected_step_time": target and target.step_time,
        "fastest": target and target.fastest,
        "slowest": target and target.slowest,
        "tokens_per_second": record.tokens_per_second,
        "mfu": record.mfu,
    }


def _peers_test(screening: Screening) -> dict[str, Any]:
    """The test that compares the nodes of a screening: one that is slower than its peers may have passed its own."""
    status = "passed" if compares(screening) else "skipped"
    if screening.unlike:
        status = "failed"
    message = shown(screening.headline)
    return {"name": "test_peers", "suite": ["node"], "status": status, "message": message, "duration": 0}


def _extra(values: Mapping[str, Any]) -> dict[str, Any]:
    """What CTRF has no key for, in our own namespace."""
    return {f"pacemark.{name}": value for name, value in values.items() if value not in (None, "")}


def _status(verdict: Kind) -> str:
    if verdict in (Kind.NO_BASELINE, Kind.SKIPPED):
        return "skipped"
    if verdict is Kind.PASSED:
        return "passed"
    return "failed"


def _ms(seconds: float) -> int:
    return round(1000 * seconds)


def metrics(summary: Summary) -> str:
    """The number of cases with each verdict and of screened nodes in each state, the GPU-hours, and the figures of each case that has some."""
    lines = _head("pacemark_cases", "Cases with this verdict.")
    lines += [f'pacemark_cases{{verdict="{kind}"}} {count}' for kind, count in summary.totals.items()]
    if summary.screening is not None:
        lines += _head("pacemark_nodes", "Screened nodes in this state.")
        for state in NodeState:
            lines.append(f'pacemark_nodes{{state="{state}"}} {len(summary.screening.having(state))}')
    lines += _head("pacemark_gpu_hours", "GPU-hours of all jobs of the run.")
    lines.append(f"pacemark_gpu_hours {summary.gpu_hours}")
    for name, (key, label) in _FIGURES.items():
        lines += _head(name, label)
        for record in summary.cases:
            value = _figures(record)[key]
            if value is not None:
                lines.append(f"{name}{{{_labels(record)}}} {value:.10g}")
    return "\n".join([*lines, "# EOF", ""])


def _labels(record: CaseRecord) -> str:
    labels = {"case": record.id, **_configuration(record)}
    # OpenMetrics quotes a text of one line as JSON does.
    texts = {name: " ".join(str(value).split()) for name, value in labels.items() if value}
    return ",".join(f"{name}={json.dumps(text, ensure_ascii=False)}" for name, text in texts.items())


def _head(name: str, what: str) -> list[str]:
    return [f"# HELP {name} {what}", f"# TYPE {name} gauge"]


def junit_properties(record: CaseRecord) -> list[tuple[str, str]]:
    """The verdict and the facts of a case for JUnit's XML; without those that it does not have."""
    known = {"verdict": record.verdict, **_facts(record)}
    texts = {
        key: f"{value:.10g}" if isinstance(value, float) else str(value)
        for key, value in known.items()
        if value is not None
    }
    return [(name, shown(text)) for name, text in texts.items() if text]


def error_commands(records: Sequence[CaseRecord]) -> list[str]:
    """The lines by which GitHub shows why cases failed: the first ones, because it shows no more of a step."""
    failed = [record for record in records if record.verdict.fails][:_MOST_ANNOTATIONS]
    return [f"::error title={_escaped(record.id, ':,')}::{_escaped(record.headline)}" for record in failed]


def _escaped(text: str, separators: str = "") -> str:
    """A text in a command for GitHub, also as the value of one of its properties."""
    return re.sub(f"[%\n{separators}]", lambda match: f"%{ord(match[0]):02X}", shown(text))


def _label(job: JobRecord) -> str:
    """The job's id, or its name if no id is known; "" for a replayed log that does not state it."""
    if job.id == UNKNOWN_JOB:
        return ""
    return job.label


def verdicts(summary: Summary, most_bytes: int) -> str:
    """The summary of a job of CI in Markdown: the cases, those first that did not pass, with why not and what else a reader must know.

    It is cut at a line; "" if there is no room for one.
    """
    cases = sorted(summary.cases, key=lambda record: record.verdict is Kind.PASSED)
    hours = f"{summary.gpu_hours:,.0f}"
    if summary.gpu_hours < 100:
        hours = f"{summary.gpu_hours:.3g}"
    text = template("job.md").render(
        run=summary,
        cases=[(record, _label(record.job)) for record in cases],
        totals={**summary.totals, "left out": sum(group.cases for group in summary.left_out)},
        hours=hours,
    )
    return _cut(text.splitlines(), most_bytes)


def _cut(lines: list[str], most_bytes: int) -> str:
    """The first of these lines, and how many more there were."""
    room = most_bytes - 100
    if room < 0:
        return ""
    for number, line in enumerate(lines):
        room -= len(line.encode()) + 1
        if room < 0:
            more = f"{len(lines) - number} more lines are left out: summary.json has all."
            lines = [*lines[:number], "", more]
            break
    return "\n".join(lines) + "\n"
