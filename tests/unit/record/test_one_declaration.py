"""Each fact of a job is in the record of its case, or in the list of those that are not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, get_type_hints

import pytest

from plugins.record.case import EarlierJob, JobRecord
from plugins.record.job import Job, JobRef, JobState, Phase, Times
from plugins.record.lines import Part

JOB = Job(
    ref=JobRef("llama3", "70b-fp8-512gpus", "a-name", "77", "/a/folder", "JobSet", "another-name", "a-uid"),
    try_number=2,
    backend="slurm",
    location="a cluster",
    gpus=512,
    status="ended",
    state=JobState(Phase.FAILED, "FAILED", "a reason", "n[1-64]", "1:0", ("a digest",), True),
    times=Times(1.0, 2.0, 3.0, 4.0, 5.0, 6.0),
    attempts=3,
    excluded=("n65",),
    checkpoint="to be kept",
    log_note="a note",
    log_fault="a fault",
    failure="infrastructure",
    message="a message",
)

# A case's key and its folder have these; the others concern the session that owns the job alone.
NOT_PUBLIC = {
    "ref.recipe", "ref.case_id", "ref.folder", "ref.renamed", "ref.uid", "try_number", "backend", "location", "gpus", "status",
    "state.phase", "state.images", "state.hopeless", "times.cancel_asked", "times.cancel_confirmed", "checkpoint",
    "log_note", "log_fault",
}  # fmt: skip


def paths(of: type, above: str = "") -> Iterator[str]:
    """The facts of a job: the fields of its parts, by their paths."""
    kinds = get_type_hints(of)
    for field in fields(of):
        if is_dataclass(kinds[field.name]):
            yield from paths(kinds[field.name], f"{above}{field.name}.")
        else:
            yield f"{above}{field.name}"


def without(job: Any, path: str) -> Any:
    """The same job with another value of this fact."""
    first, _, rest = path.partition(".")
    value = without(getattr(job, first), rest) if rest else "changed"
    return replace(job, **{first: value})


@pytest.mark.parametrize("path", sorted(paths(Job)))
def test_a_fact_of_a_job_is_in_a_record_unless_it_is_listed(path: str) -> None:
    kinds: tuple[type[JobRecord | EarlierJob], ...] = (JobRecord, EarlierJob)
    in_a_record = any(kind.of(without(JOB, path)) != kind.of(JOB) for kind in kinds)
    assert in_a_record == (path not in NOT_PUBLIC)


@pytest.mark.parametrize("kind", [JobRecord, EarlierJob])
def test_each_key_of_a_record_is_a_fact_of_the_job(kind: type[JobRecord | EarlierJob]) -> None:
    assert issubclass(kind, Part)
    record = kind.of(JOB)
    assert all(getattr(record, field.name) for field in fields(kind))
