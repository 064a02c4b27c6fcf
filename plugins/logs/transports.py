"""Which network each process of a run used, by the lines of NCCL: in a trace, and in the log of any run. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from plugins.logs.log import Process
from plugins.logs.nccl import Digest
from plugins.words import first_of, listed

MAX_LINES = 1 << 18
"""So many lines of NCCL are read: of thousands of ranks, some dozens each."""

HINTS = (b" nNodes ", b" nranks ", b"Assigned NET plugin ", b"NET/", b"Using network ")
"""The first two are of lines that state a rank, `NET/` is of channels, devices and plug-ins."""

_LABELLED = re.compile(rb" *(\d{1,5}): ([\w.-]{1,63}):\d{1,10}:\d{1,10} \[\d{1,4}\] NCCL INFO ")
_BATCH, _MOST_KNOWN = 1 << 10, 1 << 14
_MOST_NAMED = 4


class TransportLines:
    """Takes lines that contain one of `hints`. `plugins.logs.nccl` reads them, many at once.

    `hosts` has the host of each process that Slurm labels, by its label.
    """

    def __init__(self) -> None:
        self.hints: tuple[bytes, ...] = HINTS
        self.hosts: dict[int, str] = {}
        self._digest = Digest()
        self._lines: list[bytes] = []
        self._known: set[tuple[bytes, bytes, int]] = set()
        self._count = 0
        self._processes: tuple[Process, ...] | None = ()

    def knows(self, line: bytes) -> bool:
        """Whether a line of the same process was taken that says the same, but of another channel or communicator."""
        return _key(line) in self._known

    def add(self, line: bytes, *, alone: bool) -> bool:
        """Take a whole line; `alone`: it is of no use to anybody else. Returns whether no more are looked for from now on."""
        self._count += 1
        self._lines.append(line)
        self._processes = None
        label = _LABELLED.match(line)
        if label:
            self.hosts[int(label[1])] = label[2].decode()
        if alone:
            self._known.add(_key(line))
        if len(self._lines) >= _BATCH:
            self._feed()
        if self._count >= MAX_LINES:
            self.hints = ()
        return not self.hints

    def processes(self) -> tuple[Process, ...]:
        """What each process chose, by the lines so far."""
        if self._processes is None:
            self._feed()
            self._processes = tuple(
                Process(host, gpu, rank, **{name: tuple(values) for name, values in setup.items()})
                for host, gpu, rank, setup in self._digest.processes()
            )
        return self._processes

    def _feed(self) -> None:
        self._digest.feed(b"".join(line + b"\n" for line in self._lines))
        self._lines = []
        if len(self._known) > _MOST_KNOWN:
            self._known.clear()


def _key(line: bytes) -> tuple[bytes, bytes, int]:
    """Who prints a line of NCCL, the transport that it ends with or all that it says, and its length."""
    who, _, text = line.partition(b" NCCL INFO ")
    return who, text.rpartition(b" via ")[2], len(text)


def other_networks(processes: Iterable[Process], expected: str) -> Iterator[str]:
    """Which processes use another network than the expected one (`Process.unlike`)."""
    users: defaultdict[str, list[Process]] = defaultdict(list)
    for process in processes:
        for network in process.unlike(expected):
            users[network].append(process)
    if expected.lower().startswith("roce"):
        expected += ", which NCCL calls IB"
    for network, using in sorted(users.items()):
        yield f"the network is {network}, not {expected}: {named(using)}"


def named(processes: Iterable[Process]) -> str:
    """`ranks 8 to 15 on gpu-01`, or by GPUs if NCCL printed no ranks."""
    hosts: defaultdict[str, list[Process]] = defaultdict(list)
    for process in processes:
        hosts[process.host].append(process)
    names = []
    for host, on_host in hosts.items():
        known = sorted(process.rank for process in on_host if process.rank is not None)
        if len(known) == len(on_host):
            name = listed("rank", known)
        else:
            name = listed("GPU", sorted({process.gpu for process in on_host}))
        names.append(f"{name} on {host}")
    return some_hosts(names)


def some_hosts(texts: Sequence[str]) -> str:
    """The first of these texts on hosts, and how many more there are."""
    return first_of(texts, _MOST_NAMED, "more hosts")
