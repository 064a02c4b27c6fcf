"""A pod's log, read in pieces or followed: whole and once, whatever becomes of its files and of the connection; a gap is told."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.backends.base import LogPlace
from fixtures.backends.kubernetes import follow, logs
from fixtures.backends.kubernetes.api import Api, Refused
from fixtures.backends.kubernetes.follow import Logs
from fixtures.backends.kubernetes.logs import Overtaken, Read, Reading
from fixtures.backends.kubernetes.section import Kubernetes
from plugins.base.errors import Unreachable
from plugins.record.job import JobRef
from tests.unit import kubeapi
from tests.unit.kubelet import Kubelet

# Stamps as a container runtime gives them: without trailing zeros, and sometimes the same for two lines.
STAMPS = [
    "2026-11-21T09:00:00.000000001Z",
    "2026-11-21T09:00:00.1Z",
    "2026-11-21T09:00:00.1Z",
    "2026-11-21T09:00:00.15Z",
    "2026-11-21T09:00:00.2Z",
    "2026-11-21T09:00:01Z",
    "2026-11-21T09:00:01.5Z",
    "2026-11-21T09:00:01.5Z",
    "2026-11-21T09:00:01.50000001Z",
    "2026-11-21T09:00:03.999999999Z",
]
LINES = [(stamp, f"line {number} of the log\n") for number, stamp in enumerate(STAMPS)]


class File:
    """Serves a log as the API server does: whole seconds for `sinceTime`, in chunks that end anywhere."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []
        self.refuses = 0
        self.zone: tzinfo = UTC
        self.size = 100
        # What is answered in place of a log.
        self.remark = b""

    def _local(self, stamp: str) -> str:
        if self.zone is UTC:
            return stamp
        second = datetime.fromisoformat(f"{stamp[:19]}Z").astimezone(self.zone).isoformat()
        return f"{second[:19]}{stamp[19:-1]}{second[19:]}"

    @contextlib.contextmanager
    def chunks(self, path: str, query: Mapping[str, str], *, silent: float) -> Iterator[Iterator[bytes]]:
        if self.refuses:
            raise Refused(self.refuses, "no log")
        since = query.get("sinceTime", "")[:19]
        shown = [f"{self._local(stamp)} {text}" for stamp, text in self.lines if stamp[:19] >= since]
        data = self.remark or "".join(shown).encode()
        yield (data[at : at + self.size] for at in range(0, len(data), self.size))


def read(kubelet: File, place: LogPlace) -> logs.Read:
    """The next piece."""
    reading = Reading(cast(Api, kubelet), ("default", "pod-0", "workload"), place)
    return next(iter(reading), logs.Read(b"", place))


def drain(kubelet: File, place: LogPlace, found: list[bytes]) -> LogPlace:
    while (piece := read(kubelet, place)).place != place:
        assert not piece.lost
        found.append(piece.data)
        place = piece.place
    return place


# As they may stand in a file: two threads of the runtime, one for each output, are not always in turn.
CROSSED = [0, 2, 1, 3, 5, 4, 8, 6, 7, 9]
SHUFFLED = [LINES[number] for number in CROSSED]


@given(
    st.lists(st.integers(0, len(LINES)), max_size=6).map(sorted),
    st.integers(1, 400),
    st.integers(1, 400),
    st.sampled_from([LINES, SHUFFLED]),
)
@settings(deadline=None)
def test_however_the_log_grows_it_arrives_whole_and_once(
    sizes: list[int], piece: int, chunk: int, whole: list[tuple[str, str]]
) -> None:
    kubelet, place, found = File(), LogPlace("pod-0"), list[bytes]()
    before, logs.PIECE, kubelet.size = logs.PIECE, piece, chunk
    try:
        for size in [*sizes, len(LINES)]:
            kubelet.lines = whole[:size]
            place = drain(kubelet, place, found)
    finally:
        logs.PIECE = before
    assert b"".join(found).decode() == "".join(text for _, text in whole)
    assert place.offset == sum(len(text) for _, text in whole)


@pytest.mark.parametrize("zone", ["+01:00", "-07:00", "+05:30"])
def test_a_node_tells_the_time_of_its_own_zone(zone: str) -> None:
    """The runtime's stamps have an offset then, and change it twice a year."""
    offset = timezone(datetime.fromisoformat(f"2026-11-21T09:00:00{zone}").utcoffset() or timedelta())
    kubelet, place, found = File(), LogPlace("pod-0"), list[bytes]()
    for size in (2, 3, 7, 7, len(LINES)):
        kubelet.lines = LINES[:size]
        kubelet.zone = offset if size < 7 else UTC
        place = drain(kubelet, place, found)
    assert b"".join(found).decode() == "".join(text for _, text in LINES)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (LINES[:3], LINES[7:]),
        # No line is left out for its stamp.
        (LINES[:5], [LINES[3], LINES[5]]),
    ],
)
def test_a_rotated_log_goes_on_behind_the_gap_and_says_so(
    before: list[tuple[str, str]], after: list[tuple[str, str]]
) -> None:
    kubelet = File()
    kubelet.lines = before
    place = drain(kubelet, LogPlace("pod-0"), [])
    kubelet.lines = after
    piece = read(kubelet, place)
    assert (piece.lost, piece.data.decode()) == (True, "".join(text for _, text in after))


@pytest.mark.parametrize(
    "answer",
    [
        400,
        404,
        b"unable to retrieve container logs for containerd://b91ca08d41",
        b'failed to try resolving symlinks in path "/var/log/pods/0.log": no such file or directory\n',
    ],
)
def test_a_kubelet_that_has_no_log_says_so_as_if_it_were_one(answer: int | bytes) -> None:
    """A log that is not there is no end."""
    kubelet = File()
    if isinstance(answer, int):
        kubelet.refuses = answer
    else:
        kubelet.remark = answer
    place = LogPlace("pod-0", 70, 1, "2026-11-21T09:00:00.100000000Z 1 0")
    piece = read(kubelet, place)
    assert (piece.data, piece.gone, piece.place) == (b"", True, place)


def test_a_line_that_is_still_written_waits() -> None:
    kubelet = File()
    kubelet.lines = [LINES[0], (LINES[1][0], "half a li")]
    piece = read(kubelet, LogPlace("pod-0"))
    assert piece.data.decode() == LINES[0][1]
    kubelet.lines = [LINES[0], (LINES[1][0], "half a line\n")]
    assert read(kubelet, piece.place).data == b"half a line\n"


# Logs that are followed


JOB = JobRef("llama3_gke", "70b-fp8-128gpus", "run.llama3_gke-70b", "pm-1", "runs")
LOG = ("runs", "pod-0", "workload")


class Session:
    """Reads one job's log as the fleet does, from a kubelet on loopback."""

    def __init__(self, api: Api, kubelet: Kubelet) -> None:
        self.logs, self.kubelet = Logs(api), kubelet
        self.place = LogPlace("pod-0")
        self.found: list[Read] = []

    @property
    def text(self) -> list[str]:
        return b"".join(read.data for read in self.found).decode().splitlines()

    @property
    def lost(self) -> list[str]:
        """The first line behind each gap."""
        return [read.data.decode().splitlines()[0] for read in self.found if read.lost]

    def look(self, *, runs: bool = True, over: bool = False) -> Read:
        read = self.logs.read(JOB, LOG, self.place, runs=runs, over=over)
        self.place = read.place
        if read.data:
            self.found.append(read)
        return read

    def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not holds():
            assert time.monotonic() < deadline, self.text[-3:]
            self.look()
            time.sleep(0.005)

    def speaks(self, begin: int, end: int) -> None:
        """The container prints the lines of these numbers."""
        for number in range(begin, end):
            self.kubelet.say(f"line {number}")

    def hears(self, begin: int, end: int) -> None:
        """The container prints the lines of these numbers, and the last one arrives."""
        self.speaks(begin, end)
        self.until(lambda: self.text[-1:] == [f"line {end - 1}"])

    def reads_the_end(self, *, runs: bool = False) -> None:
        while self.look(runs=runs, over=True).data:
            pass

    def has_all(self, end: int) -> bool:
        """Whether all lines before this number came, once each and without a gap."""
        return (self.text, self.lost) == (lines(end), [])


def lines(end: int) -> list[str]:
    return [f"line {number}" for number in range(end)]


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """Reads besides only where a test is about them."""
    monkeypatch.setattr(follow, "_FIRST_SILENCE", 60.0)
    monkeypatch.setattr(follow, "_LAST_LINES_SECONDS", 0.1)
    monkeypatch.setattr(follow, "_READS_PER_SECOND", 1000.0)
    with contextlib.closing(Kubelet()) as kubelet:
        config = kubeapi.kubeconfig(tmp_path / "config", kubelet.url)
        section = Kubernetes(gpu="h100", namespace="runs", kubeconfig=str(config))
        made = Session(Api("lab", section), kubelet)
        yield made
        made.logs.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch, session: Session) -> Session:
    """Reads besides as soon as a log is silent."""
    monkeypatch.setattr(follow, "_FIRST_SILENCE", 0.02)
    monkeypatch.setattr(follow, "_LATE_SECONDS", 0.02)
    return session


def test_a_log_that_is_rotated_again_and_again_is_whole_by_one_request(session: Session) -> None:
    for number in range(20):
        session.hears(10 * number, 10 * number + 10)
        session.kubelet.rotate()
    assert session.has_all(200)
    assert session.kubelet.follows == [True]


def test_lines_of_the_file_that_was_rotated_away_come_before_those_of_the_new_one(session: Session) -> None:
    session.hears(0, 1)
    with session.kubelet.changed:
        # All of it between two looks of the kubelet.
        session.speaks(1, 50)
        session.kubelet.rotate()
        session.speaks(50, 59)
    session.hears(59, 60)
    assert session.has_all(60)


@pytest.mark.parametrize("behind", [0, 1, 7])
def test_a_connection_that_breaks_is_made_again_where_it_broke(session: Session, behind: int) -> None:
    """Also one that a proxy cuts because it was idle: the pause before the next is no longer than the first."""
    for number in range(0, 80, 8):
        session.hears(number, number + 8 - behind)
        session.kubelet.cut()
        session.speaks(number + 8 - behind, number + 8)
    session.hears(80, 81)
    assert session.has_all(81)


def test_a_line_with_the_same_stamp_and_text_is_another_line(session: Session) -> None:
    for number in range(1, 4):
        session.kubelet.say("again", seconds=0.0)
        session.until(lambda: len(session.text) >= number)  # noqa: B023 - called at once
        session.kubelet.cut()
    session.hears(0, 1)
    assert session.text == [*["again"] * 3, "line 0"]


def test_a_file_that_a_kubelet_skips_is_a_gap_and_the_next_one_comes_once(session: Session) -> None:
    """It is two rotations behind: of the second it hears when it has long shown the newest file."""
    session.hears(0, 5)
    with session.kubelet.changed:
        session.kubelet.rotate()
        session.speaks(5, 10)
        session.kubelet.rotate()
        session.speaks(10, 14)
    session.hears(14, 15)
    session.hears(15, 20)
    assert session.text == [*lines(5), *lines(20)[10:]]
    assert len(session.lost) == 1


def test_a_gap_is_told_once_though_the_connection_breaks_behind_it(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reading brings lines up to an offset, and then breaks. The first is overtaken, and the second finds nothing."""
    broken, end = Unreachable("the connection broke"), LogPlace("pod-0")
    readings = iter([((1,), Overtaken()), ((), None), ((2,), broken), ((3,), None)])

    class Scripted:
        opened = True

        def __init__(self, _api: Api, _log: tuple[str, str, str], _place: LogPlace, **_how: bool) -> None:
            self.stopped = threading.Event()

        def __iter__(self) -> Iterator[Read]:
            offsets, error = next(readings)
            for offset in offsets:
                yield Read(f"line {offset}\n".encode(), replace(end, offset=offset))
            if error is not None:
                raise error
            if offsets:
                self.stopped.wait(60)

        def stop(self) -> None:
            self.stopped.set()

    monkeypatch.setattr(follow, "Reading", Scripted)
    session.until(lambda: session.text[-1:] == ["line 3"])
    assert (session.text, session.lost) == (["line 1", "line 2", "line 3"], ["line 2"])


def test_a_clock_that_is_put_back_costs_no_line(session: Session) -> None:
    session.hears(0, 5)
    session.kubelet.clock -= 100
    session.hears(5, 9)
    session.kubelet.cut()
    session.hears(9, 12)
    session.speaks(12, 15)
    session.reads_the_end(runs=True)
    assert session.text == lines(15)


def test_a_kubelet_that_stays_with_the_old_file_is_overtaken_by_a_read(impatient: Session) -> None:
    """As older ones do (kubernetes/kubernetes#115701). Whether the old file had more nobody knows."""
    session = impatient
    session.kubelet.deaf = True
    session.hears(0, 5)
    session.kubelet.rotate()
    session.kubelet.clock += 5
    session.hears(5, 6)
    session.hears(6, 9)
    assert (session.text, session.lost) == (lines(9), ["line 5"])


def test_a_log_that_cannot_be_read_says_so_until_it_can(session: Session) -> None:
    session.hears(0, 5)
    session.kubelet.status = 503
    session.kubelet.cut()
    assert session.kubelet.wait(0)
    with pytest.raises(Unreachable, match="503"):
        session.until(lambda: False)
    with pytest.raises(Unreachable, match="503"):
        session.look()
    session.kubelet.status = 0
    session.hears(5, 6)
    assert session.has_all(6)


@pytest.mark.parametrize("ended", [True, False])
def test_what_was_said_last_is_read_when_the_job_is_over(session: Session, ended: bool) -> None:
    session.hears(0, 5)
    session.speaks(5, 9)
    if ended:
        session.kubelet.end()
    session.reads_the_end()
    assert session.has_all(9)
    assert session.kubelet.wait(0)


def test_the_end_of_a_log_is_read_once_and_late_lines_are_found_all_the_same(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "_END_SECONDS", 0.01)
    session.speaks(0, 5)
    for _ in range(20):
        session.look(runs=False)
        time.sleep(0.005)
    assert session.kubelet.follows == [False]
    session.speaks(5, 9)
    session.until(lambda: session.look(runs=False, over=True).data == b"" and session.text == lines(9))


def test_what_came_before_the_pod_went_is_kept(session: Session) -> None:
    session.hears(0, 1)
    session.speaks(1, 5)
    buffer = session.logs._feeds[JOB.name].lines
    with buffer.news:
        assert buffer.news.wait_for(lambda: buffer.data.count(b"\n") == 4, 60)
    session.kubelet.status = 404
    found = list[bytes]()
    while (read := session.logs.last_lines(JOB, session.place)).data:
        found.append(read.data)
        session.place = read.place
    assert b"".join(found).decode().splitlines() == lines(5)[1:]
    assert session.look(runs=False, over=True).gone


def test_whoever_does_not_take_it_makes_the_kubelet_wait(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "_HELD", 1000)
    session.look()
    for _ in range(10):
        session.kubelet.say("x" * 999)
    assert session.kubelet.wait(1)
    assert len(session.logs._feeds[JOB.name].lines.data) <= 11_000
    session.until(lambda: len(session.text) == 10)


def test_nothing_is_left_open(session: Session) -> None:
    others = [replace(JOB, name=f"{JOB.name}-{n}", id=f"pm-{n}") for n in range(8)]
    session.speaks(0, 3)
    for job in others:
        session.logs.read(job, LOG, LogPlace("pod-0"), runs=True, over=False)
    assert session.kubelet.wait(8)
    session.logs.forget(others[0])
    assert session.kubelet.wait(7)
    threads = [thread for thread in threading.enumerate() if thread.name == "log pod-0"]
    session.logs.close()
    assert session.kubelet.wait(0)
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_a_log_that_nobody_asks_for_is_not_followed_for_ever(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.hears(0, 3)
    assert session.kubelet.wait(1)
    monkeypatch.setattr(follow, "_FORGOTTEN_SECONDS", 0.05)
    # A follow hears of its end with a line.
    deadline = time.monotonic() + 60
    while not session.kubelet.wait(0, 0.1):
        assert time.monotonic() < deadline
        session.kubelet.say("more")


def test_a_log_that_is_gone_is_gone_until_it_is_there(session: Session) -> None:
    session.kubelet.status = 404
    session.look()
    session.until(lambda: session.look().gone)
    session.kubelet.status = 0
    session.hears(0, 1)


def test_another_life_of_the_job_is_followed_from_its_beginning(session: Session) -> None:
    session.hears(0, 3)
    session.place = LogPlace("pod-0-again", attempt=2)
    session.found.clear()
    session.until(lambda: session.text == lines(3))
    assert session.kubelet.wait(1)
