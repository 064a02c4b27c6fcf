"""A run in a bundle, which may be anybody's: what its log of jobs says, and whether all of it is there."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from plugins.base.errors import ConfigError
from plugins.base.words import first_of
from plugins.bundle.findings import Examination
from plugins.bundle.statement import once
from plugins.judging.rejudge import Basis
from plugins.record.job import Job
from plugins.record.lines import JOBS_LOG, Line, OtherVersionError, Replay, Run, parsed, text_of
from plugins.record.summary import Summary

_MOST = 3
# A job is one of these before its submission is answered.
_BEFORE_SUBMITTED = ("intent", "submitted", "ended")


@dataclass(frozen=True)
class BundledRun:
    """A run whose files are in `folder`, and what they say of it.

    `tries` has the jobs by the key of their case, oldest first; also those that are no case's own. `roots` are folders
    with suites and baselines: Pacemark's own, then that of the verifier if there is one.
    """

    folder: Path
    roots: tuple[Path, ...]
    summary: Summary
    log: Run
    tries: dict[str, list[Job]]

    @property
    def jobs(self) -> list[Job]:
        """All jobs, those of a case together."""
        return [job for tries in self.tries.values() for job in tries]

    @property
    def published(self) -> Path:
        return self.roots[0]

    def unlike(self, root: Path, different: str) -> str:
        """How what a bundle has differs from what one of the roots has, in words."""
        if root == self.published:
            return f"is not the published one: {different} (published, bundle)"
        return f"is not that of --recipes: {different} (--recipes, bundle)"

    @cached_property
    def basis(self) -> Basis:
        return Basis(self.folder)


def named(job: Job) -> str:
    """A job in words."""
    return f"{job.case} try {job.try_number}"


def read_jobs(folder: Path, findings: Examination) -> tuple[Run, dict[str, list[Job]]]:
    """What the log of jobs says: whose it is, and the `tries` of a `BundledRun`. Notes what is wrong with its lines. Raises ConfigError if it says nothing, and OSError."""
    path = folder / JOBS_LOG
    if not path.is_file():
        raise ConfigError(f"{JOBS_LOG} is missing")
    data = path.read_bytes()
    replay = Replay()
    try:
        lines = list(_lines(data))
        replay.feed(data)
    except (OtherVersionError, RecursionError) as error:
        raise ConfigError(f"{JOBS_LOG}: a line is none of Pacemark's: {error}") from None
    if replay.run is None:
        raise ConfigError(f"{JOBS_LOG}: none of its lines is whole")
    findings.wrong += _broken(data, replay)
    damage = [words for line in lines for words in line.damage]
    if damage:
        findings.cannot.append(
            f"{JOBS_LOG} was damaged, so whether it has each submission is not known: {'; '.join(damage[:_MOST])}"
        )
    jobs = {case: [tries[number] for number in sorted(tries)] for case, tries in replay.tries.items()}
    findings.wrong += _left_out(lines, jobs)
    if not damage:
        findings.cannot += _unsent(lines)
    return replay.run, jobs


def _lines(data: bytes) -> Iterator[Line]:
    """The lines that are whole. Raises OtherVersionError."""
    for raw in filter(None, data.split(b"\n")[:-1]):
        line = parsed(raw)
        if line is None:
            continue
        try:
            json.loads(text_of(raw), object_pairs_hook=once)
        except ValueError as error:
            raise OtherVersionError(str(error)) from None
        yield line


def _broken(data: bytes, replay: Replay) -> Iterator[str]:
    if replay.damage:
        yield f"{JOBS_LOG}: {first_of(replay.damage, 1)}: lines were changed, left out or moved"
    if replay.size < len(data):
        yield f"{JOBS_LOG}: its last line is cut off"


def _left_out(lines: Sequence[Line], jobs: Mapping[str, Sequence[Job]]) -> Iterator[str]:
    """Jobs that are missing, by what is there of others."""
    ids = defaultdict[str, dict[str, None]](dict)
    for job in (job for line in lines for job in line.jobs if job.ref.id):
        ids[named(job)][job.ref.id] = None
    for name, several in sorted(ids.items()):
        if len(several) > 1:
            yield f"{name}: {JOBS_LOG} has it as the jobs {', '.join(several)}: one of them was left out"
    for case, tries in jobs.items():
        numbers = [job.try_number for job in tries]
        missing = sorted(set(range(1, numbers[-1] + 1)) - set(numbers))
        if missing:
            yield f"{case}: try {missing[0]} is missing, and there is a try {numbers[-1]}: a submission was left out"


def _unsent(lines: Sequence[Line]) -> Iterator[str]:
    """Jobs that were submitted, and no line says that they were about to be."""
    status: dict[str, str] = {}
    for job in (job for line in lines for job in line.jobs):
        name = named(job)
        if job.status == "submitted" and status.get(name) not in _BEFORE_SUBMITTED:
            yield f"{name}: {JOBS_LOG} lacks a change of it: it was submitted, and no line says that it was about to be"
        status[name] = job.status
