"""The log of jobs and the ledger in a bundle of format 1, as lines of today.

There each line of `jobs.log` has the row of one job, or that of the run, and `ledger.json` has the last rows, which
must be the same, and the end of the run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from plugins.bundle.findings import Examination
from plugins.errors import ConfigError
from plugins.record.job import Job, JobRef, JobState, Times
from plugins.record.lines import JOBS_LOG, Line, OtherVersionError, Replay, Run, text_of
from plugins.yaml_mistakes import first_mistake

LEDGER = "ledger.json"
"""The member that only a bundle of format 1 has."""

_JOB, _RUN = TypeAdapter(Job), TypeAdapter(Run)
_PARTS = {"ref": JobRef, "state": JobState, "times": Times}


class LinesBefore:
    """Reads lines of format 1. Each line on a job has no word of its run, which is that of the line before."""

    def __init__(self) -> None:
        self._run: Run | None = None

    def __call__(self, raw: bytes) -> Line | None:
        """What a line says; None if its checksum is wrong. Raises OtherVersionError."""
        text = text_of(raw)
        if not text:
            return None
        try:
            content = json.loads(text)
            if "run" in content:
                self._run = _RUN.validate_python(content["run"], extra="forbid")
            if self._run is None:
                raise OtherVersionError("its first line does not say whose it is")
            jobs = (_job(content["job"]),) if "job" in content else ()
            return Line(after=str(content["after"]), at=0.0, run=self._run, jobs=jobs)
        except ValidationError as error:
            raise OtherVersionError(first_mistake(error)) from None
        except (KeyError, TypeError, AttributeError) as error:
            raise OtherVersionError(f"it lacks {error}") from None


def _job(row: dict[str, Any]) -> Job:
    """The job of a row, in which each fact is a column, and a list is JSON in a text."""
    columns = {name: value for name, value in row.items() if name != "revision"}
    for name in ("images", "excluded"):
        columns[name] = json.loads(columns[name])
    parts = {
        part: {field.name: columns.pop(field.name) for field in fields(kind) if field.name in columns}
        for part, kind in _PARTS.items()
    }
    return _JOB.validate_python({**columns, **parts}, extra="forbid")


def compare_ledger(folder: Path, replay: Replay, findings: Examination) -> Run:
    """The run with its end, which only the ledger has. Notes how the ledger differs from the lines. Raises ConfigError."""
    try:
        ledger = json.loads((folder / LEDGER).read_bytes())
        run = _RUN.validate_python(ledger["run"], extra="forbid")
        jobs = [_job(row) for row in ledger["submissions"]]
    except ValidationError as error:
        raise ConfigError(f"{LEDGER}: is no ledger: {first_mistake(error)}") from None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{LEDGER}: is no ledger: {error}") from None
    findings.wrong += _differences(replay, run, jobs)
    damaged = sorted(path.name for path in folder.glob("*.damaged*"))
    if damaged:
        findings.cannot.append(
            f"the ledger was damaged and made anew, so whether it has each submission is not known: see {', '.join(damaged)}"
        )
    return run


def _differences(replay: Replay, run: Run, jobs: list[Job]) -> Iterator[str]:
    if replay.run is None or not run.is_same(replace(replay.run, ended=None)):
        yield f"{JOBS_LOG} and {LEDGER} are of different runs"
    known = {(job.case, job.try_number): job for job in replay.jobs}
    by_try = {(job.case, job.try_number): job for job in jobs}
    if len(by_try) < len(jobs):
        yield f"{LEDGER}: two rows are of one submission"
    for case, number in sorted(known.keys() | by_try.keys()):
        if known.get((case, number)) != by_try.get((case, number)):
            yield f"{case} try {number}: {JOBS_LOG} and {LEDGER} differ"
