"""The lines of the log of jobs: what they say together, and what becomes of them."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_type_hints

import pytest

from fixtures.runs.lock import RunLock
from fixtures.session.choices import CHOICES
from fixtures.session.opening import begin_run
from plugins.base.errors import ConfigError
from plugins.record.case import EarlierJob, JobRecord
from plugins.record.folder import make_private
from plugins.record.job import Job, JobRef, JobState, Phase, Times
from plugins.record.lines import (
    JOBS_LOG,
    Line,
    OtherVersionError,
    Part,
    Replay,
    Run,
    hash_of,
    parsed,
    written,
)
from tests.unit.chosen import choices
from tests.unit.jobs_log import line_of

RUN = Run(id="run-1", site="lab", home="/results/run-1", started=1.8e9, pid=7)


def job(number: int, message: str = "x" * 20_000) -> Job:
    return Job(ref=JobRef("r", f"c{number}", f"job {number}"), message=message)


def log(*lines: Line) -> list[bytes]:
    made, last = list[bytes](), ""
    for line in lines:
        made.append(written(replace(line, after=last)))
        last = hash_of(made[-1])
    return [*made, b""]


@pytest.fixture
def lines() -> list[bytes]:
    """A log of six lines, some of them long."""
    jobs = [Line(after="", at=1.8e9, run=RUN, jobs=(job(number),)) for number in range(4)]
    first = Line(after="", at=1.8e9, run=RUN)
    return log(first, *jobs, replace(first, run=replace(RUN, ended=1.8e9 + 1)))


def replayed(lines: list[bytes]) -> Replay:
    replay = Replay()
    replay.feed(b"\n".join(lines))
    return replay


def test_each_line_follows_the_one_before_it(lines: list[bytes]) -> None:
    replay = replayed(lines)
    assert replay.damage == ()
    assert replay.jobs == tuple(job(number) for number in range(4))
    assert replay.run == replace(RUN, ended=1.8e9 + 1)
    assert replay.size == len(b"\n".join(lines))


@pytest.mark.parametrize("size", [1, 100, 25_000])
def test_pieces_say_what_the_whole_says(lines: list[bytes], size: int) -> None:
    data, replay = b"\n".join(lines), Replay()
    for end in range(0, len(data) + size, size):
        replay.feed(data[replay.size : end])
    assert replay == replayed(lines)


Change = Callable[[list[bytes]], list[bytes]]


@pytest.mark.parametrize(
    ("change", "damage"),
    [
        (lambda lines: [*lines[:2], *lines[3:]], ["line 3 does not follow the line before it"]),
        (lambda lines: lines[1:], ["line 1 does not follow the line before it"]),
        (
            lambda lines: [*lines[:1], *lines[2:0:-1], *lines[3:]],
            [f"line {number} does not follow the line before it" for number in (2, 3, 4)],
        ),
        (
            lambda lines: [*lines[:2], lines[2].replace(b"xxx", b"yyy", 1), *lines[3:]],
            ["line 3 has a wrong checksum"],
        ),
        (lambda lines: [*lines[:2], b"", *lines[2:]], []),
    ],
    ids=["left out", "the first left out", "swapped", "changed", "an empty line"],
)
def test_a_line_that_was_changed_breaks_the_chain(
    lines: list[bytes], change: Change, damage: list[str]
) -> None:
    assert list(replayed(change(lines)).damage) == damage


def test_the_last_good_line_of_a_job_counts() -> None:
    first, second = job(1, "first"), job(1, "second")
    lines = log(*(Line(after="", at=1.8e9, run=RUN, jobs=(one,)) for one in (first, second, job(2))))
    assert replayed(lines).tries["r/c1"] == {1: second}
    spoiled = [lines[0], lines[1].replace(b"second", b"secund"), *lines[2:]]
    assert replayed(spoiled).tries["r/c1"] == {1: first}
    assert replayed(spoiled).damage == ("line 2 has a wrong checksum",)


def test_a_line_of_another_run_tells_nothing_of_this_one(lines: list[bytes]) -> None:
    other = written(
        Line(after=hash_of(lines[-2]), at=1.8e9, run=replace(RUN, id="run-2"), jobs=(job(1, "no"),))
    )
    replay = replayed([*lines[:-1], other, b""])
    assert replay.damage == ("line 7 is of run run-2",)
    assert replay.run is not None
    assert (replay.run.id, replay.tries["r/c1"]) == ("run-1", {1: job(1)})


def test_a_line_that_tells_of_the_damage_before_it_ends_it(lines: list[bytes]) -> None:
    spoiled = [lines[0].replace(b"lab", b"lob"), *lines[1:-1]]
    mended = written(Line(after=hash_of(spoiled[-1]), at=1.8e9, run=RUN, damage=replayed(spoiled).damage))
    assert replayed([*spoiled, mended, b""]).damage == ()


@pytest.mark.parametrize(
    "text",
    [
        b'{"job": {"recipe": "llama3"}, "after": ""}',
        b"7",
        b"{",
        b"[" * 100_000,
        b'{"after": "", "at": 1.0, "jobs": [], "run": {"id": "x", "site": "", "home": "", "started": NaN}}',
        b'{"after": "", "at": 1.0, "jobs": [], "run": {"id": "x", "site": "", "home": "", "started": 1e999}}',
        b'{"after": "", "at": 1.0, "jobs": [], "run": {"id": "x", "site": "", "home": "", "started": 1}, "fan": 1}',
    ],
    ids=["of an older version", "a number", "no JSON", "deep", "no number", "infinite", "an unknown fact"],
)
def test_a_line_of_another_version_is_no_damage(text: bytes) -> None:
    with pytest.raises(OtherVersionError):
        parsed(line_of(text.decode()))


@pytest.mark.parametrize("recipe", ["../../etc", "/etc", "", "a/b", ".", "a\nb"])
def test_a_recipe_is_the_name_of_a_folder(recipe: str) -> None:
    line = Line(after="", at=1.0, run=RUN, jobs=(Job(ref=JobRef(recipe, "c", "name")),))
    with pytest.raises(OtherVersionError, match=r"jobs\.0\.ref\.recipe"):
        parsed(written(line))


# The folder of a run is its user's alone


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_run_is_private_and_its_parents_are_as_they_were(tmp_path: Path) -> None:
    folder = tmp_path / "shared" / "results" / "20261122-043152-abcd"
    folder.parent.parent.mkdir(mode=0o755)
    make_private(folder)
    assert (mode(folder), mode(folder.parent.parent)) == (0o700, 0o755)


def test_a_folder_that_allure_made_is_made_private(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    (folder / "allure").mkdir(parents=True)
    folder.chmod(0o755)
    make_private(folder)
    assert mode(folder) == 0o700


def test_a_link_is_no_folder_of_a_run(tmp_path: Path) -> None:
    other, link = tmp_path / "other", tmp_path / "run"
    other.mkdir(mode=0o755)
    link.symlink_to(other)
    with pytest.raises(PermissionError, match="is a link, or belongs to another user"):
        make_private(link)
    assert mode(other) == 0o755


def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    monkeypatch.setattr("os.geteuid", lambda: folder.stat().st_uid + 1)
    with pytest.raises(PermissionError, match="another user"):
        make_private(folder)


def test_a_run_of_another_session_of_the_same_second_is_refused(tmp_path: Path) -> None:
    first = RunLock(tmp_path)
    assert first.take()
    session: Any = SimpleNamespace(stash={CHOICES: choices(folder=tmp_path)})
    with pytest.raises(ConfigError, match="is the run of another session"):
        begin_run(session, [])
    assert not (tmp_path / JOBS_LOG).exists()
    first.release()


# Each fact of a job is in the record of its case, or in the list of those that are not

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
