"""A log that is gone before its last steps were read, and a copy of it elsewhere: what takes its place, and what not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fixtures.backends.base import LogCopy, LogPlace
from fixtures.fleet import log_reading
from fixtures.fleet.job import LogReading
from fixtures.fleet.log_reading import contradiction
from fixtures.fleet.state import Policy
from plugins.logs import Log
from plugins.logs.formats import parser
from plugins.record.folder import ERRORS
from plugins.record.job import Job, JobRef
from tests.unit.cluster import BROKEN, DONE, WIDE, Cluster, Session
from tests.unit.examples import nemo2_text, parse, times

SOURCE = "gs://bucket/nemo-experiments/job/dllogger.json"
WHOLE = nemo2_text()
BEGUN = nemo2_text(times()[:31])
SLOWER = [1.1 * seconds for seconds in times()]


def copy(text: str | None, *, attempt: int = 1, **given: Any) -> LogCopy:
    place = LogPlace("log" if attempt == 1 else f"log{attempt}", attempt=attempt)
    return LogCopy(place, SOURCE, "the pod is gone", None if text is None else text.encode(), **given)


@dataclass(frozen=True)
class Case:
    """What became of a case, and its files."""

    entry: Job
    folder: Path

    def read(self, name: str = "log.txt") -> str | None:
        path = self.folder / name
        return path.read_text() if path.exists() else None


def follow(folder: Path, cluster: Cluster, log: str = BEGUN, **limits: float) -> Case:
    """Run one case whose own log is no longer than that."""
    cluster.logs[WIDE.id] = log
    session = Session(folder, cluster, [WIDE], Policy(), **limits)
    session.fleet.start()
    try:
        return Case(session.finish()[WIDE.id], folder / WIDE.key)
    finally:
        session.fleet.stop()


@pytest.mark.parametrize("end", [DONE, BROKEN])
def test_a_copy_with_more_steps_takes_the_place_of_what_was_read(tmp_path: Path, end: Any) -> None:
    cluster = Cluster()
    cluster.ends[WIDE.id] = [end]
    cluster.copies[WIDE.id] = copy(WHOLE)
    case = follow(tmp_path, cluster)
    assert (case.read(), case.read("log.own.txt")) == (WHOLE, BEGUN)
    assert case.entry.log_note == f"the pod is gone; the steps were read from {SOURCE}"
    # It is another view of the same life.
    assert (case.entry.attempts, case.entry.failure) == (1, "")


def test_a_log_that_is_whole_needs_no_copy(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.copies[WIDE.id] = copy(nemo2_text(SLOWER))
    case = follow(tmp_path, cluster, WHOLE)
    assert (case.read(), case.read("log.own.txt"), case.entry.log_note) == (WHOLE, None, "")


def test_a_copy_of_another_life_is_not_taken(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.copies[WIDE.id] = copy(nemo2_text(SLOWER))
    case = follow(tmp_path, cluster)
    assert (case.read(), case.read("log.own.txt")) == (BEGUN, None)
    assert f"{SOURCE} is not of the attempt that was read: it has" in case.entry.log_note


def test_a_copy_that_says_no_more_is_not_taken(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.copies[WIDE.id] = copy(nemo2_text(times()[:20]))
    case = follow(tmp_path, cluster)
    assert (case.read(), case.read("log.own.txt")) == (BEGUN, None)
    assert case.entry.log_note == f"the pod is gone, and {SOURCE} has no more steps than were read"


def test_a_copy_of_a_later_life_is_that_lifes_log(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.copies[WIDE.id] = copy(nemo2_text(SLOWER), attempt=2)
    case = follow(tmp_path, cluster)
    assert (case.read(), case.read("log.attempt-1.txt")) == (nemo2_text(SLOWER), BEGUN)
    assert (case.read("log.own.txt"), case.entry.attempts) == (None, 2)
    assert case.entry.log_note.endswith("was not read")


def test_of_a_copy_with_two_lives_the_last_one_counts(tmp_path: Path) -> None:
    cluster = Cluster()
    both = nemo2_text(SLOWER[:40]) + WHOLE
    cluster.copies[WIDE.id] = copy(both)
    case = follow(tmp_path, cluster)
    assert case.read() == both
    assert "were read from" in case.entry.log_note


def test_a_copy_may_appear_a_moment_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reading, "_AGAIN_SECONDS", 0.02)
    cluster, answers = Cluster(), [copy(None, trouble="there is no such object")] * 5 + [copy(WHOLE)]

    def read_copy(job: JobRef, place: LogPlace) -> LogCopy:
        return answers.pop(0) if len(answers) > 1 else answers[0]

    cluster.read_copy = read_copy  # type: ignore[method-assign]
    case = follow(tmp_path, cluster, log_settle_seconds=300)
    assert case.read() == WHOLE
    assert "were read from" in case.entry.log_note


def test_without_a_copy_the_case_ends_as_ever(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.copies[WIDE.id] = copy(None, trouble="there is no such object")
    case = follow(tmp_path, cluster)
    assert (case.read(), case.entry.failure) == (BEGUN, "")
    assert case.entry.log_note == (
        f"the pod is gone, and {SOURCE} cannot be read instead: there is no such object"
    )


def test_steps_that_even_the_copy_lacks_never_ran(tmp_path: Path) -> None:
    """Where there is none, the log's own trouble is why it ends; with one, it is judged."""
    cluster = Cluster()
    cluster.log_trouble = lambda job, place: "the rest is gone"  # type: ignore[method-assign]
    cluster.copies[WIDE.id] = copy(nemo2_text(times()[:45]))
    assert follow(tmp_path, cluster).entry.failure == ""
    (tmp_path / "none").mkdir()
    del cluster.copies[WIDE.id]
    cluster.ends[WIDE.id] = [BROKEN]
    case = follow(tmp_path / "none", cluster)
    assert (case.entry.failure, "the rest is gone" in case.entry.message) == ("infrastructure", True)
    assert case.read(ERRORS) == "srun: error: gpu001: task 3: Killed\n"


def test_what_grows_is_awaited_also_in_a_copy(tmp_path: Path) -> None:
    jobs: Any = SimpleNamespace(folder=tmp_path, grown=0.0, note=lambda *_: None)
    job: Any = SimpleNamespace(key=WIDE.key, case=WIDE, log_format="nemo2", log=Log(), reading=LogReading())
    begun = copy(BEGUN)
    assert begun.data is not None
    assert log_reading._use(jobs, job, begun, begun.data) == ""
    assert job.reading.grown == jobs.grown > 0


def test_what_a_program_does_before_its_first_step_is_said_once() -> None:
    said: list[str] = []
    jobs: Any = SimpleNamespace(say=said.append, grown=0.0)
    job: Any = SimpleNamespace(key="proxy/8b", log=Log(), reading=LogReading())
    lines = parser("maxtext")
    for line in (b"proxy begins: to compile\n", b"proxy begins: to warm up\n", b"no line of ours\n"):
        log_reading._take(jobs, job, lines, line)
        job.log = job.reading.log
    assert said == ["proxy/8b: begins to compile", "proxy/8b: begins to warm up"]


@pytest.mark.parametrize(
    ("read", "other", "differs"),
    [
        (times()[:31], times(), False),
        (times(), times()[:31], False),
        ([], times(), False),
        (times(s7=13.1)[:31], times(), True),
    ],
)
def test_two_logs_of_one_life_tell_the_same(
    read: Sequence[float], other: Sequence[float], differs: bool
) -> None:
    one, two = (parse(nemo2_text(found)) for found in (read, other))
    assert bool(contradiction(one, two)) == differs


def test_a_garbled_step_contradicts_nothing() -> None:
    log = parse(WHOLE)
    garbled = replace(log, steps=(replace(log.steps[0], seconds=None), *log.steps[1:]))
    assert contradiction(garbled, log) == contradiction(log, garbled) == ""


def test_what_spoils_one_log_of_a_run_spoils_the_other() -> None:
    one = Log(marks=(("profiler", "a"),))
    other = Log(steps=parse(WHOLE).steps, marks=(("profiler", "b"), ("socket fallback", "c")))
    found = one.beside(other)
    assert found.marks == (("profiler", "a"), ("socket fallback", "c"))
    assert found.steps == ()
