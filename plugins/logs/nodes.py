"""What a run prints of its nodes: versions of NCCL and drivers, networks, and errors of GPUs and networks. Pure.

    NCCL version 2.21.5+cuda12.4
    node aks-7, GPUs and driver: 8 NVIDIA H100 80GB HBM3, 550.144.03
    node aks-8, GPUs and driver: 4 NVIDIA H100 80GB HBM3, 550.144.03; 4 NVIDIA H100 80GB HBM3, 550.163.01

NCCL prints its line with NCCL_DEBUG=VERSION and above, for each of its communicators. Our launchers print the
other line, for each node whose output is in the log: what nvidia-smi lists, counted. If nodes or GPUs differ,
each value is kept.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from plugins.base.words import first_of, listed
from plugins.logs.log import HostError, Process
from plugins.logs.nccl import Digest

_NCCL = b"NCCL version "
GPUS = b", GPUs and driver: "
"""Our launchers print this line of each node when they begin."""
_NCCL_VERSION = re.compile(r"NCCL version (\d[\w.+-]{0,40})")
_NODE = re.compile(r"\bnode \S{1,253}, GPUs and driver: (.{1,500})$")
# `8 NVIDIA H100 80GB HBM3, 550.144.03`, up to the next such entry.
_COUNTED = re.compile(r"[\s;]*\d{1,4} ([^,;]{1,80}), (\d{1,5}(?:\.\d{1,5}){1,3})(?=[\s;]|$)")

MAX_VALUES = 4
OTHERS = "others"
"""All values after the first `MAX_VALUES`, because a log may have a line for each of a thousand nodes."""


class Versions:
    """The versions that were read so far. `hints` are the substrings of lines that may state a new one."""

    def __init__(self) -> None:
        self._values: dict[str, list[str]] = {}

    @property
    def hints(self) -> tuple[bytes, ...]:
        hints = []
        if "nccl" not in self._values:
            hints.append(_NCCL)
        if OTHERS not in self._values.get("driver", ()):
            hints.append(GPUS)
        return tuple(hints)

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Names and values. If the run states several values, the name occurs several times."""
        return tuple((name, value) for name, values in self._values.items() for value in values)

    def read(self, line: str) -> None:
        """Read a whole line that contains a hint."""
        nccl = _NCCL_VERSION.search(line)
        if nccl:
            self._values.setdefault("nccl", [nccl[1]])
        node = _NODE.search(line)
        if node:
            for gpu, driver in _counted(node[1]):
                self.keep("gpu", gpu)
                self.keep("driver", driver)

    def keep(self, name: str, value: str) -> None:
        known = self._values.setdefault(name, [])
        if value in known or OTHERS in known:
            return
        if len(known) >= MAX_VALUES:
            value = OTHERS
        known.append(value)


def _counted(text: str) -> list[tuple[str, str]]:
    """The GPUs and drivers of a node's line. If other output is in the line, there are none.

    The other output may have changed any of them.
    """
    entries, place = list[tuple[str, str]](), 0
    match = _COUNTED.match(text)
    while match:
        entries.append((match[1], match[2]))
        place = match.end()
        match = _COUNTED.match(text, place)
    return [] if text[place:].strip(" ;") else entries


# An XID is as the kernel's log has it, behind the name of the host. The warnings are those of NCCL 2.19 to 2.30:
# src/debug.cc (the host), src/transport/net_ib.cc `ncclIbAsyncThreadMain` and `ncclIbTest`.
SYMPTOM_HINTS = (b"NVRM: Xid (", b"NCCL WARN NET/IB")

MOST = 1 << 13
"""So many different symptoms are kept: some of each node of the largest job."""

_XID = re.compile(
    r"(?<![\w.:-])(?P<host>[\w.-]{1,63}) kernel: (?:\[[ \d.]{1,20}\] )?NVRM: Xid \([\w:.]{1,40}\): (?P<xid>\d{1,4})\b"
)
_WARNING = re.compile(
    r"(?<![\w.-])(?P<host>[\w.-]{1,63}):\d{1,10}:\d{1,10} \[\d{1,4}\] (?:\S{1,80}:\d{1,6} )?(?:\(\w{1,60}\) )?"
    r"(?P<words>NCCL WARN NET/IB ?: (?:\S{1,40} )?"
    r"(?:Got async (?:error )?event ?: (?:port error|local catastrophic error)|async fatal event|Got completion from peer).{0,80})"
)


def keep_symptoms(line: str, known: dict[tuple[str, str], HostError]) -> None:
    """Add the symptoms of a line that contains one of `SYMPTOM_HINTS` to those that are known by host and kind: the first of each."""
    symptoms = [HostError(match["host"], f"XID {match['xid']}") for match in _XID.finditer(line)]
    symptoms += [
        HostError(match["host"], " ".join(match["words"].split())) for match in _WARNING.finditer(line)
    ]
    for symptom in symptoms:
        if len(known) < MOST:
            known.setdefault((symptom.host, symptom.kind), symptom)


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
