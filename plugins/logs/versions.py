"""The versions that a run prints, by name. Pure.

    NCCL version 2.21.5+cuda12.4
    node aks-7, GPUs and driver: 8 NVIDIA H100 80GB HBM3, 550.144.03
    node aks-8, GPUs and driver: 4 NVIDIA H100 80GB HBM3, 550.144.03; 4 NVIDIA H100 80GB HBM3, 550.163.01

NCCL prints its line with NCCL_DEBUG=VERSION and above, for each of its communicators. Our launchers print the
other line, for each node whose output is in the log: what nvidia-smi lists, counted. If nodes or GPUs differ,
each value is kept.
"""

from __future__ import annotations

import re

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
