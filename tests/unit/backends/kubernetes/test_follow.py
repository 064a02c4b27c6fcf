"""A log that is followed: whole and once, whatever becomes of its files and of the connection; a gap is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.backends.base import LogPlace
from fixtures.backends.kubernetes import follow
from fixtures.backends.kubernetes.api import Api
from fixtures.backends.kubernetes.follow import Logs
from fixtures.backends.kubernetes.logs import Overtaken, Read
from fixtures.backends.kubernetes.section import Kubernetes
from plugins.base.errors import Unreachable
from plugins.record.job import JobRef
from tests.unit import kubeapi
from tests.unit.kubelet import Kubelet

JOB = JobRef("llama3_gke", "70b-fp8-128gpus", "run.llama3_gke-70b", "pm-1", "runs")
LOG = ("runs", "pod-0", "workload")


@pytest.fixture
def kubelet() -> Iterator[Kubelet]:
    made = Kubelet()
    yield made
    made.close()


@pytest.fixture
def session(kubelet: Kubelet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """Reads besides only where a test is about them."""
    monkeypatch.setattr(follow, "_FIRST_SILENCE", 60.0)
    monkeypatch.setattr(follow, "_LAST_LINES_SECONDS", 0.1)
    monkeypatch.setattr(follow, "_READS_PER_SECOND", 1000.0)
    path = kubeapi.kubeconfig(tmp_path / "config", kubelet.url)
    made = Session(Api("lab", Kubernetes(gpu="h100", namespace="runs", kubeconfig=str(path))))
    yield made
    made.close()


class Session:
    """Reads one job's log as the fleet does."""

    def __init__(self, api: Api) -> None:
        self.logs = Logs(api)
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

    def until(self, last: str) -> None:
        self.until_it(lambda: self.text[-1:] == [last], f"{last}, but there is {self.text[-3:]}")

    def until_it(self, holds: Callable[[], bool], what: str = "it") -> None:
        deadline = time.monotonic() + 60
        while not holds():
            assert time.monotonic() < deadline, what
            self.look()
            time.sleep(0.005)

    def close(self) -> None:
        self.logs.close()


def spoken(kubelet: Kubelet, begin: int, end: int) -> list[str]:
    """Lines of these numbers."""
    said = [f"line {number}" for number in range(begin, end)]
    for line in said:
        kubelet.say(line)
    return said


def lines(end: int) -> list[str]:
    return [f"line {number}" for number in range(end)]


def test_a_log_that_is_rotated_again_and_again_is_whole_by_one_request(
    kubelet: Kubelet, session: Session
) -> None:
    for number in range(20):
        spoken(kubelet, 10 * number, 10 * number + 10)
        session.until(f"line {10 * number + 9}")
        kubelet.rotate()
    assert (session.text, session.lost) == (lines(200), [])
    assert kubelet.asked == [True]


def test_lines_of_the_file_that_was_rotated_away_come_before_those_of_the_new_one(
    kubelet: Kubelet, session: Session
) -> None:
    spoken(kubelet, 0, 1)
    session.until("line 0")
    with kubelet.changed:
        # All of it between two looks of the kubelet.
        spoken(kubelet, 1, 50)
        kubelet.rotate()
        spoken(kubelet, 50, 60)
    session.until("line 59")
    assert (session.text, session.lost) == (lines(60), [])


@pytest.mark.parametrize("behind", [0, 1, 7])
def test_a_connection_that_breaks_is_made_again_where_it_broke(
    kubelet: Kubelet, session: Session, behind: int
) -> None:
    """Also one that a proxy cuts because it was idle: the pause before the next is no longer than the first."""
    for number in range(10):
        spoken(kubelet, 8 * number, 8 * number + 8 - behind)
        session.until(f"line {8 * number + 7 - behind}")
        kubelet.cut()
        spoken(kubelet, 8 * number + 8 - behind, 8 * number + 8)
    session.until("line 79")
    assert (session.text, session.lost) == (lines(80), [])


def test_a_line_with_the_same_stamp_and_text_is_another_line(kubelet: Kubelet, session: Session) -> None:
    for number in range(1, 4):
        kubelet.say("again", seconds=0.0)
        session.until_it(lambda: len(session.text) >= number)  # noqa: B023 - called at once
        kubelet.cut()
    kubelet.say("another")
    session.until("another")
    assert session.text == [*["again"] * 3, "another"]


def test_a_log_that_was_rotated_while_nobody_followed_goes_on_behind_a_gap(
    kubelet: Kubelet, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "_FIRST_SILENCE", 0.02)
    monkeypatch.setattr(follow, "_LATE_SECONDS", 0.02)
    spoken(kubelet, 0, 5)
    session.until("line 4")
    with kubelet.changed:
        kubelet.cut()
        spoken(kubelet, 5, 8)
        kubelet.rotate()
        spoken(kubelet, 8, 10)
        kubelet.say("line 10", seconds=5.0)
    session.until("line 10")
    assert (session.text, session.lost) == ([*lines(5), "line 8", "line 9", "line 10"], ["line 8"])


def test_a_file_that_a_kubelet_skips_is_a_gap_and_the_next_one_comes_once(
    kubelet: Kubelet, session: Session
) -> None:
    """It is two rotations behind: of the second it hears when it has long shown the newest file."""
    spoken(kubelet, 0, 5)
    session.until("line 4")
    with kubelet.changed:
        kubelet.rotate()
        spoken(kubelet, 5, 10)
        kubelet.rotate()
        spoken(kubelet, 10, 15)
    session.until("line 14")
    spoken(kubelet, 15, 20)
    session.until("line 19")
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
    session.until("line 3")
    assert (session.text, session.lost) == (["line 1", "line 2", "line 3"], ["line 2"])


def test_a_clock_that_is_put_back_costs_no_line(kubelet: Kubelet, session: Session) -> None:
    spoken(kubelet, 0, 5)
    session.until("line 4")
    kubelet.say("line 5", seconds=-100.0)
    spoken(kubelet, 6, 9)
    session.until("line 8")
    kubelet.cut()
    spoken(kubelet, 9, 12)
    session.until("line 11")
    spoken(kubelet, 12, 15)
    while session.look(over=True).data:
        pass
    assert session.text == lines(15)


@pytest.mark.parametrize("late", [0, 3])
def test_a_kubelet_that_stays_with_the_old_file_is_overtaken_by_a_read(
    kubelet: Kubelet, session: Session, monkeypatch: pytest.MonkeyPatch, late: int
) -> None:
    """As older ones do (kubernetes/kubernetes#115701). Whether the old file had more nobody knows."""
    monkeypatch.setattr(follow, "_FIRST_SILENCE", 0.02)
    monkeypatch.setattr(follow, "_LATE_SECONDS", 0.02)
    kubelet.deaf = True
    spoken(kubelet, 0, 5)
    session.until("line 4")
    kubelet.rotate()
    kubelet.say("line 5", seconds=5.0)
    session.until("line 5")
    spoken(kubelet, 6, 9)
    session.until("line 8")
    assert (session.text, session.lost) == (lines(9), ["line 5"])


def test_a_silent_log_is_read_besides_more_and_more_seldom(kubelet: Kubelet, session: Session) -> None:
    spoken(kubelet, 0, 5)
    session.until("line 4")
    # Only from here on: while the first lines are on their way, each look would read besides.
    session.logs._feeds[JOB.name].doubt.silence = 0.01
    ends = time.monotonic() + 0.5
    while time.monotonic() < ends or kubelet.asked.count(False) < 2:
        session.look()
    assert kubelet.asked.count(True) == 1
    assert kubelet.asked.count(False) <= 8
    spoken(kubelet, 5, 6)
    session.until("line 5")
    assert (session.text, session.lost) == (lines(6), [])


def test_a_log_that_cannot_be_read_says_so_until_it_can(kubelet: Kubelet, session: Session) -> None:
    spoken(kubelet, 0, 5)
    session.until("line 4")
    kubelet.status = 503
    kubelet.cut()
    assert kubelet.wait(0)
    with pytest.raises(Unreachable, match="503"):
        session.until("nothing")
    with pytest.raises(Unreachable, match="503"):
        session.look()
    kubelet.status = 0
    spoken(kubelet, 5, 6)
    session.until("line 5")
    assert (session.text, session.lost) == (lines(6), [])


def test_a_log_that_is_gone_is_gone_until_it_is_there(kubelet: Kubelet, session: Session) -> None:
    kubelet.status = 404
    session.look()
    session.until_it(lambda: session.look().gone)
    kubelet.status = 0
    spoken(kubelet, 0, 1)
    session.until("line 0")


def test_an_empty_log_is_awaited(kubelet: Kubelet, session: Session) -> None:
    session.look()
    assert kubelet.wait(1)
    spoken(kubelet, 0, 3)
    session.until("line 2")
    assert kubelet.asked == [True]


@pytest.mark.parametrize("ended", [True, False])
def test_what_was_said_last_is_read_when_the_job_is_over(
    kubelet: Kubelet, session: Session, ended: bool
) -> None:
    spoken(kubelet, 0, 5)
    session.until("line 4")
    spoken(kubelet, 5, 9)
    if ended:
        kubelet.end()
    while session.look(runs=False, over=True).data:
        pass
    assert (session.text, session.lost) == (lines(9), [])
    assert kubelet.wait(0)


def test_the_end_of_a_log_is_read_once_and_late_lines_are_found_all_the_same(
    kubelet: Kubelet, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "_END_SECONDS", 0.01)
    spoken(kubelet, 0, 5)
    for _ in range(20):
        session.look(runs=False)
        time.sleep(0.005)
    assert kubelet.asked == [False]
    spoken(kubelet, 5, 9)
    deadline = time.monotonic() + 60
    while session.text != lines(9):
        assert time.monotonic() < deadline
        session.look(runs=False, over=True)


def test_what_came_before_the_pod_went_is_kept(kubelet: Kubelet, session: Session) -> None:
    spoken(kubelet, 0, 1)
    session.until("line 0")
    spoken(kubelet, 1, 5)
    buffer = session.logs._feeds[JOB.name].lines
    with buffer.news:
        assert buffer.news.wait_for(lambda: buffer.data.count(b"\n") == 4, 60)
    kubelet.status = 404
    found = list[bytes]()
    while (read := session.logs.last_lines(JOB, session.place)).data:
        found.append(read.data)
        session.place = read.place
    assert b"".join(found).decode().splitlines() == lines(5)[1:]
    assert session.look(runs=False, over=True).gone


def test_the_end_of_a_long_log_is_read_by_one_request(
    kubelet: Kubelet, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fixtures.backends.kubernetes.logs.PIECE", 64)
    spoken(kubelet, 0, 50)
    while session.look(runs=False, over=True).data:
        pass
    assert (session.text, len(session.found) > 5) == (lines(50), True)
    # And once more, for what is behind its end.
    assert kubelet.asked == [False]


def test_another_life_of_the_job_is_followed_from_its_beginning(kubelet: Kubelet, session: Session) -> None:
    spoken(kubelet, 0, 3)
    session.until("line 2")
    session.place = LogPlace("pod-0-again", attempt=2)
    session.found.clear()
    session.until("line 2")
    assert session.text == lines(3)
    assert kubelet.wait(1)


def test_whoever_does_not_take_it_makes_the_kubelet_wait(
    kubelet: Kubelet, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "_HELD", 1000)
    session.look()
    for _ in range(10):
        kubelet.say("x" * 999)
    assert kubelet.wait(1)
    buffer = session.logs._feeds[JOB.name].lines
    assert len(buffer.data) <= 11_000
    session.until_it(lambda: len(session.text) == 10)


def test_nothing_is_left_open(kubelet: Kubelet, session: Session) -> None:
    others = [replace(JOB, name=f"{JOB.name}-{n}", id=f"pm-{n}") for n in range(8)]
    spoken(kubelet, 0, 3)
    for job in others:
        session.logs.read(job, LOG, LogPlace("pod-0"), runs=True, over=False)
    assert kubelet.wait(8)
    session.logs.forget(others[0])
    assert kubelet.wait(7)
    threads = [thread for thread in threading.enumerate() if thread.name == "log pod-0"]
    session.logs.close()
    assert kubelet.wait(0)
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_a_log_that_nobody_asks_for_is_not_followed_for_ever(
    kubelet: Kubelet, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoken(kubelet, 0, 3)
    session.until("line 2")
    assert kubelet.wait(1)
    monkeypatch.setattr(follow, "_FORGOTTEN_SECONDS", 0.05)
    # A follow hears of its end with a line.
    deadline = time.monotonic() + 60
    while not kubelet.wait(0, 0.1):
        assert time.monotonic() < deadline
        kubelet.say("more")
