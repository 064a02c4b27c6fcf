"""What a run prints of its nodes: the versions of NCCL and drivers, and errors of GPUs and networks. Pure.

    NCCL version 2.21.5+cuda12.4
    node aks-7, GPUs and driver: 8 NVIDIA H100 80GB HBM3, 550.144.03
    node aks-8, GPUs and driver: 4 NVIDIA H100 80GB HBM3, 550.144.03; 4 NVIDIA H100 80GB HBM3, 550.163.01

NCCL prints its line with NCCL_DEBUG=VERSION and above, for each of its communicators. Our launchers print the
other line, for each node whose output is in the log: what nvidia-smi lists, counted. If nodes or GPUs differ,
each value is kept.
"""

from __future__ import annotations

import re

from plugins.logs.log import HostError

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
