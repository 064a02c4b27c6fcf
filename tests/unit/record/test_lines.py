"""The lines of the log of jobs: what they say together, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from plugins.record.job import Job, JobRef
from plugins.record.lines import Line, OtherVersionError, Replay, Run, hash_of, parsed, written
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
