"""The record of a run in the Common Test Report Format (https://ctrf.io). Pure.

pytest-json-ctrf has no place for a verdict, a figure or a job, and its durations are those of the tests, which
only wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from plugins.outcome import UNKNOWN_JOB
from plugins.record.verdict import Kind
from plugins.words import shown

_STATUSES = ("passed", "failed", "skipped", "pending", "other")


def ctrf(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The report. Times are in ms, of each case's last job; the duration of a case without them is 0."""
    tests = [_test(case) for case in summary["cases"]]
    counts = Counter(test["status"] for test in tests)
    return {
        "reportFormat": "CTRF",
        "specVersion": "0.0.0",
        "runId": summary["run"],
        "timestamp": summary["ended"],
        "generatedBy": "pacemark",
        "results": {
            "tool": {"name": "pacemark", "version": summary["versions"]["pacemark"]},
            "summary": {
                "tests": len(tests),
                **{status: counts[status] for status in _STATUSES},
                "start": _ms(summary["started"]),
                "stop": _ms(summary["ended"]),
                "extra": _extra(
                    {
                        **{key: summary[key] for key in ("outcome", "exit_code", "gpu_hours", "commit")},
                        "acceptance": (summary["acceptance"] or {}).get("decision"),
                    }
                ),
            },
            "environment": {"testEnvironment": summary["site"], "healthy": summary["outcome"] == "passed"},
            "tests": tests,
        },
    }


def _test(case: Mapping[str, Any]) -> dict[str, Any]:
    job, expected = case["job"], case["expected"] or {}
    start, stop = _ms(job["started"]), _ms(job["ended"])
    times = {} if start is None or stop is None else {"start": start, "stop": stop}
    figures = {
        "step_time": case["step_time"],
        "expected_step_time": expected.get("step_time"),
        "tokens_per_second": case["tokens_per_second"],
        "mfu": case["mfu"],
        "job": "" if job["id"] == UNKNOWN_JOB else shown(job["id"] or job["name"]),
        "nodes": shown(job["nodes"]),
    }
    return {
        "testId": case["id"],
        "name": case["id"],
        "suite": [case["id"].partition("/")[0]],
        "status": _status(case["verdict"]),
        "rawStatus": case["verdict"],
        "message": shown(case["headline"]),
        "duration": times["stop"] - times["start"] if times else 0,
        **times,
        "retries": sum(tried["failure"] != "repeated" for tried in case["earlier_jobs"]),
        "extra": _extra(figures),
    }


def _extra(values: Mapping[str, Any]) -> dict[str, Any]:
    """What CTRF has no key for, in our own namespace."""
    return {f"pacemark.{name}": value for name, value in values.items() if value not in (None, "")}


def _status(verdict: str) -> str:
    if verdict in (Kind.NO_BASELINE, Kind.SKIPPED):
        return "skipped"
    return "passed" if verdict == Kind.PASSED else "failed"


def _ms(stamp: str | None) -> int | None:
    return None if stamp is None else round(datetime.fromisoformat(stamp).timestamp() * 1000)
