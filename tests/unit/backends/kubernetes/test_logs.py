"""A pod's log, read in pieces: nothing twice, nothing left out, and a gap is noticed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.backends.base import LogPlace
from fixtures.backends.kubernetes import logs
from fixtures.backends.kubernetes.api import Api, Refused
from fixtures.backends.kubernetes.logs import Reading

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


class Kubelet:
    """Serves a log as the API server does: whole seconds for `sinceTime`, in chunks that end anywhere."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []
        self.refuses = 0
        self.zone: tzinfo = UTC
        self.size = 100

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
        data = "".join(shown).encode()
        yield (data[at : at + self.size] for at in range(0, len(data), self.size))


class Saying:
    """Answers anything with this."""

    def __init__(self, said: str) -> None:
        self.said = said

    @contextlib.contextmanager
    def chunks(self, path: str, query: Mapping[str, str], *, silent: float) -> Iterator[list[bytes]]:
        yield [self.said.encode()]


def read(kubelet: Kubelet | Saying, place: LogPlace) -> logs.Read:
    """The next piece."""
    reading = Reading(cast(Api, kubelet), ("default", "pod-0", "workload"), place)
    return next(iter(reading), logs.Read(b"", place))


def drain(kubelet: Kubelet, place: LogPlace, found: list[bytes]) -> LogPlace:
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
    kubelet, place, found = Kubelet(), LogPlace("pod-0"), list[bytes]()
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
    kubelet, place, found = Kubelet(), LogPlace("pod-0"), list[bytes]()
    for size in (2, 3, 7, 7, len(LINES)):
        kubelet.lines = LINES[:size]
        kubelet.zone = offset if size < 7 else UTC
        place = drain(kubelet, place, found)
    assert b"".join(found).decode() == "".join(text for _, text in LINES)


def test_a_rotated_log_goes_on_behind_the_gap_and_says_so() -> None:
    kubelet, found = Kubelet(), list[bytes]()
    kubelet.lines = LINES[:3]
    place = drain(kubelet, LogPlace("pod-0"), found)
    kubelet.lines = LINES[7:]
    piece = read(kubelet, place)
    assert piece.lost
    assert piece.data.decode() == "".join(text for _, text in LINES[7:])


def test_behind_a_gap_no_line_is_left_out_for_its_stamp() -> None:
    kubelet, found = Kubelet(), list[bytes]()
    kubelet.lines = LINES[:5]
    place = drain(kubelet, LogPlace("pod-0"), found)
    kubelet.lines = [LINES[3], LINES[5]]
    piece = read(kubelet, place)
    assert (piece.lost, piece.data.decode()) == (True, LINES[3][1] + LINES[5][1])


def test_a_log_that_is_not_there_is_no_end() -> None:
    kubelet = Kubelet()
    for kubelet.refuses in (400, 404):
        piece = read(kubelet, LogPlace("pod-0"))
        assert (piece.data, piece.gone, piece.place) == (b"", True, LogPlace("pod-0"))


@pytest.mark.parametrize(
    "said",
    [
        "unable to retrieve container logs for containerd://b91ca08d41",
        'failed to try resolving symlinks in path "/var/log/pods/0.log": no such file or directory\n',
    ],
)
def test_a_kubelet_that_has_no_log_says_so_as_if_it_were_one(said: str) -> None:
    place = LogPlace("pod-0", 70, 1, "2026-11-21T09:00:00.100000000Z 1 0")
    piece = read(Saying(said), place)
    assert (piece.data, piece.gone, piece.place) == (b"", True, place)


def test_the_beginning_of_a_line_is_no_remark() -> None:
    assert not read(Saying("2026-11-21T09:0"), LogPlace("pod-0")).gone


def test_what_the_kubelet_says_of_a_log_is_no_line_of_it() -> None:
    kubelet = Kubelet()
    kubelet.lines = [("failed", "to try resolving symlinks\n"), *LINES[:1]]
    assert read(kubelet, LogPlace("pod-0")).data.decode() == LINES[0][1]


def test_a_line_that_is_still_written_waits() -> None:
    kubelet = Kubelet()
    kubelet.lines = [LINES[0], (LINES[1][0], "half a li")]
    piece = read(kubelet, LogPlace("pod-0"))
    assert piece.data.decode() == LINES[0][1]
    kubelet.lines = [LINES[0], (LINES[1][0], "half a line\n")]
    assert read(kubelet, piece.place).data == b"half a line\n"
