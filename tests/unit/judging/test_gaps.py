"""Lines of a log that are known to be lost: what they may have told is never assumed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from fixtures.backends.base import LogCopy, LogPiece, LogPlace
from fixtures.backends.kubernetes.job_logs import with_gap
from fixtures.backends.kubernetes.logs import Read
from fixtures.fleet.state import Policy
from plugins.record.job import Job, JobRef
from tests.unit.cluster import BROKEN, DONE, NARROW, RUNNING, WIDE, Cluster, Session
from tests.unit.examples import nemo2_text

WHOLE = nemo2_text()
GAP = "the kubelet rotated the log of pod p away"
SOURCE = "gs://bucket/nemo-experiments/job/dllogger.json"
HALF = len(WHOLE) // 2


def cluster(*pieces: tuple[str, str], more: bool = False) -> Cluster:
    """Its one log comes in these pieces, each with the gap that is known up to there."""
    made, ends = Cluster(), [0]
    for text, _ in pieces:
        ends.append(ends[-1] + len(text))

    def read(job: JobRef, place: LogPlace, wanted: Sequence[bytes]) -> LogPiece:
        made.on_read(job.name)
        number = ends.index(place.offset)
        if number == len(pieces):
            return LogPiece(b"", place)
        text, gap = pieces[number]
        return LogPiece(text.encode(), LogPlace("log", ends[number + 1], gap=gap), more=more)

    made.read_log = read  # type: ignore[method-assign]
    return made


def follow(folder: Path, made: Cluster) -> Job:
    session = Session(folder, made, [WIDE], Policy())
    session.fleet.start()
    try:
        return session.finish()[WIDE.id]
    finally:
        session.fleet.stop()


@pytest.mark.parametrize("end", [DONE, BROKEN])
@pytest.mark.parametrize("pieces", [[(WHOLE, GAP)], [("a first line\n", ""), (WHOLE, GAP)]])
def test_nobody_judges_a_run_that_told_what_it_is_in_lines_that_are_lost(
    tmp_path: Path, pieces: list[tuple[str, str]], end: Any
) -> None:
    made = cluster(*pieces)
    made.ends[WIDE.id] = [end]
    entry = follow(tmp_path, made)
    assert entry.failure == "infrastructure"
    assert (
        f"every step was seen, but {GAP}; the lost lines state its network and configuration" in entry.message
    )


def test_lines_that_are_lost_behind_the_first_step_are_a_remark(tmp_path: Path) -> None:
    entry = follow(tmp_path, cluster((WHOLE[:HALF], ""), (WHOLE[HALF:], GAP)))
    assert entry.failure == ""
    assert entry.log_note == f"{GAP}; the rest of these lines was not read"


def test_a_run_that_hung_at_its_end_does_not_pass_with_its_first_lines_lost(tmp_path: Path) -> None:
    made = cluster((WHOLE, GAP))
    made.ends[WIDE.id] = [RUNNING]
    session = Session(tmp_path, made, [WIDE], Policy(), stall_seconds=0.2, stall_factor=0.001)
    session.fleet.start()
    entry = session.finish()[WIDE.id]
    session.fleet.stop()
    assert entry.failure == "infrastructure"
    assert "after its last step, but " + GAP in entry.message


def test_the_buckets_copy_takes_the_place_of_a_log_without_its_first_lines(tmp_path: Path) -> None:
    made = cluster((WHOLE, GAP))
    copied = WHOLE + "the end\n"
    made.copies[WIDE.id] = LogCopy(LogPlace("log"), SOURCE, GAP, copied.encode())
    entry, folder = follow(tmp_path, made), tmp_path / WIDE.key
    assert entry.failure == ""
    assert entry.log_note.startswith(
        f"{GAP}; the steps were read from {SOURCE}; the rest of what the job printed"
    )
    assert ((folder / "log.txt").read_text(), (folder / "log.own.txt").read_text()) == (copied, WHOLE)


def test_a_copy_that_is_not_whole_makes_nothing_good(tmp_path: Path) -> None:
    made = cluster((WHOLE, GAP))
    made.copies[WIDE.id] = LogCopy(LogPlace("log"), SOURCE, GAP, WHOLE[:HALF].encode())
    assert follow(tmp_path, made).failure == "infrastructure"


def resumed(folder: Path, made: Cluster, *earlier: str) -> Path:
    """The case's folder, where earlier sessions collected these logs."""
    place = folder / WIDE.key
    place.mkdir(parents=True)
    for name, text in zip(("log.txt", "log.earlier.txt"), earlier, strict=False):
        (place / name).write_text(text)
    follow(folder, made)
    return place


def test_what_an_earlier_session_read_is_kept_while_the_new_log_lacks_its_head(tmp_path: Path) -> None:
    folder = resumed(tmp_path, cluster((WHOLE, GAP)), "the middle\n", "the head\n")
    assert (folder / "log.earlier.txt").read_text() == "the head\nthe middle\n"
    assert (folder / "log.txt").read_text() == WHOLE


def test_it_is_fetched_again_where_it_is_whole(tmp_path: Path) -> None:
    folder = resumed(tmp_path, cluster((WHOLE, "")), "the head\n")
    assert sorted(path.name for path in folder.glob("log*")) == ["log.txt"]


def test_with_a_copy_it_stays_as_what_the_job_said(tmp_path: Path) -> None:
    made = cluster((WHOLE, GAP))
    made.copies[WIDE.id] = LogCopy(LogPlace("log"), SOURCE, GAP, f"{WHOLE}\n".encode())
    folder = resumed(tmp_path, made, "the head\n")
    assert (folder / "log.own.txt").read_text() == "the head\n" + WHOLE
    assert not (folder / "log.earlier.txt").exists()


def test_a_log_that_grows_faster_than_it_is_read_is_read_on(tmp_path: Path) -> None:
    made = cluster(*((line, "") for line in WHOLE.splitlines(keepends=True)), more=True)
    made.ends[WIDE.id] = made.ends[NARROW.id] = [RUNNING]
    asked: list[str] = []
    made.on_read = asked.append
    session = Session(tmp_path, made, [WIDE, NARROW], Policy())
    session.fleet.start()
    while set(asked[-8:]) != {WIDE.id, NARROW.id} or len(asked) < 150:
        assert session.fleet.running
    session.fleet.stop()
    # Neither one piece in each look, nor all of them before the other one has its turn.
    assert (NARROW.id, 16) in [(name, len(list(run))) for name, run in groupby(asked)]


HEAD = r"Pod on \S+ is running"


def seen(text: str, *, lost: bool = False, before: LogPlace | None = None) -> LogPlace:
    before = before or LogPlace("p")
    place = LogPlace("p", before.offset + len(text), mark="2026-11-21T09:00:00Z 1", gap=before.gap)
    return with_gap(Read(text.encode(), place, lost=lost), before, "p", HEAD)


def test_a_log_that_does_not_begin_at_its_beginning_has_a_gap() -> None:
    assert seen("a warning\nPod on p is running\n").gap == ""
    assert "rotated the first lines of pod p away unread" in seen("step 17\nPod on p is exiting\n").gap
    assert with_gap(Read(b"step 17\n", LogPlace("p", 8)), LogPlace("p"), "p", None).gap == ""


def test_a_head_that_comes_a_moment_later_is_there() -> None:
    first = seen("bash: warning: setlocale\n")
    assert first.gap
    assert seen("Pod on p is running\n", before=first).gap == ""
    assert seen("step 17\n", before=first).gap == first.gap


def test_a_gap_stays_a_gap() -> None:
    place = seen("step 17\n", lost=True, before=seen("Pod on p is running\n"))
    assert "away before all of it was read" in place.gap
    assert seen("Pod on p is running\n", before=place).gap == place.gap
