"""The record of a run in the Common Test Report Format (https://ctrf.io).

pytest-json-ctrf has no place for a verdict, a figure or a job, and its durations are those of the tests, which
only wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plugins.files import write_json
from plugins.outcome import UNKNOWN_JOB
from plugins.record.case import CaseRecord
from plugins.record.folder import CTRF
from plugins.record.public import stamp
from plugins.record.summary import Summary
from plugins.record.verdict import Kind
from plugins.words import shown

_STATUSES = ("passed", "failed", "skipped", "pending", "other")


class CtrfReport:
    """`ctrf.json`."""

    name = CTRF

    def write(self, summary: Summary, folder: Path) -> Path:
        """Write the report into the run's folder. Raises OSError."""
        path = folder / self.name
        write_json(path, ctrf(summary))
        return path


def ctrf(summary: Summary) -> dict[str, Any]:
    """The report. Times are in ms, of each case's last job; the duration of a case without them is 0."""
    tests = [_test(record) for record in summary.cases]
    counts = Counter(test["status"] for test in tests)
    facts = {
        "outcome": summary.outcome,
        "exit_code": summary.exit_code,
        "gpu_hours": summary.gpu_hours,
        "commit": summary.commit,
        "acceptance": summary.acceptance.decision if summary.acceptance else None,
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
    if job.times.started is not None and job.times.ended is not None:
        times = {"start": _ms(job.times.started), "stop": _ms(job.times.ended)}
    figures = {
        "step_time": record.step_time,
        "expected_step_time": record.expected.step_time if record.expected else None,
        "tokens_per_second": record.tokens_per_second,
        "mfu": record.mfu,
        "job": "" if job.ref.id == UNKNOWN_JOB else shown(job.ref.label),
        "nodes": shown(job.state.nodes),
    }
    return {
        "testId": record.id,
        "name": record.id,
        "suite": [record.recipe],
        "status": _status(record.verdict),
        "rawStatus": record.verdict,
        "message": shown(record.headline),
        "duration": times["stop"] - times["start"] if times else 0,
        **times,
        "retries": sum(earlier.failure != "repeated" for earlier in record.earlier_jobs),
        "extra": _extra(figures),
    }


def _extra(values: Mapping[str, Any]) -> dict[str, Any]:
    """What CTRF has no key for, in our own namespace."""
    return {f"pacemark.{name}": value for name, value in values.items() if value not in (None, "")}


def _status(verdict: Kind) -> str:
    if verdict in (Kind.NO_BASELINE, Kind.SKIPPED):
        return "skipped"
    return "passed" if verdict == Kind.PASSED else "failed"


def _ms(seconds: float) -> int:
    return round(1000 * seconds)
