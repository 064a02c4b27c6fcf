"""What a log tells of the node that printed a line: errors of its GPUs' driver, and NCCL's of its network. Pure.

An XID is as the kernel's log has it, behind the name of the host. The warnings are those of NCCL 2.19 to 2.30:
src/debug.cc (the host), src/transport/net_ib.cc `ncclIbAsyncThreadMain` and `ncclIbTest`.
"""

from __future__ import annotations

import re

from plugins.logs.log import Symptom

HINTS = (b"NVRM: Xid (", b"NCCL WARN NET/IB")

MAX_LINES, MOST = 1 << 14, 256
"""So many lines are read, and so many different symptoms are kept."""

_XID = re.compile(
    r"(?<![\w.:-])(?P<host>[\w.-]{1,63}) kernel: (?:\[[ \d.]{1,20}\] )?NVRM: Xid \([\w:.]{1,40}\): (?P<xid>\d{1,4})\b"
)
_WARNING = re.compile(
    r"(?<![\w.-])(?P<host>[\w.-]{1,63}):\d{1,10}:\d{1,10} \[\d{1,4}\] (?:\S{1,80}:\d{1,6} )?(?:\(\w{1,60}\) )?"
    r"(?P<words>NCCL WARN NET/IB ?: (?:\S{1,40} )?"
    r"(?:Got async (?:error )?event ?: (?:port error|local catastrophic error)|async fatal event|Got completion from peer).{0,80})"
)


class SymptomLines:
    """Takes lines that contain one of `hints`, which are none once enough was read."""

    def __init__(self) -> None:
        self.hints: tuple[bytes, ...] = HINTS
        self._symptoms: dict[tuple[str, str], Symptom] = {}
        self._lines = 0

    @property
    def symptoms(self) -> tuple[Symptom, ...]:
        """The first of each kind of a host."""
        return tuple(self._symptoms.values())

    def read(self, line: str) -> None:
        xid, warning = _XID.search(line), _WARNING.search(line)
        if xid:
            self._keep(Symptom(xid["host"], f"XID {xid['xid']}"))
        if warning:
            self._keep(Symptom(warning["host"], " ".join(warning["words"].split())))
        self._lines += 1
        if self._lines >= MAX_LINES or len(self._symptoms) >= MOST:
            self.hints = ()

    def _keep(self, symptom: Symptom) -> None:
        self._symptoms.setdefault((symptom.host, symptom.kind), symptom)
