"""What a log tells of the node that printed a line: errors of its GPUs' driver, and NCCL's of its network. Pure.

An XID is as the kernel's log has it, behind the name of the host. The warnings are those of NCCL 2.19 to 2.30:
src/debug.cc (the host), src/transport/net_ib.cc `ncclIbAsyncThreadMain` and `ncclIbTest`.
"""

from __future__ import annotations

import re

from plugins.logs.log import HostError

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
