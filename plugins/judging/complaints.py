"""Finds the lines that say why a job died, among all that it printed outside its log. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

_COMPLAINT = re.compile(rb"(?i)^(?:\S*/)?srun: (?!warning)|error|kill|cancel|fail|traceback|no space|denied")

# What srun prints first when it ends a step. Then it prints lines for each node, because a task may answer
# SIGTERM with an exit code.
ENDING = r"srun: (?:(?:launch/slurm: _step_signal: )?Terminating |Job step aborted|Force Terminated )"
_ENDING = re.compile(ENDING.encode())
_ENDED = re.compile(
    rb"srun: error: [^:]+: tasks? [^:]+: "
    rb"|slurmstepd(?:-\S+)?: error: \*\*\* (?:STEP|JOB) \S+ ON \S+ CANCELLED AT \S+ \*\*\*"
)
BAR = re.compile(rb"\d/\d+ \[[\d:]+<[\d:?]+, ")
"""tqdm's progress bar (tqdm/std.py, `format_meter`)."""

BROKEN_OFF = re.compile(
    rb"\*\*\* (?:STEP|JOB) \S+ ON \S+ CANCELLED AT |Traceback \(most recent call last\)"
    rb"|srun: error: [^:]+: tasks? [^:]+: (?:Exited with exit code [1-9]|Aborted|Killed|Terminated|Segmentation fault)"
    rb"|Watchdog caught collective operation timeout|terminate called (?:after|without)|Fatal Python error"
    rb"|Segmentation fault|core dumped|ChildFailedError|death signal"
)
"""A line by which a job did not end well: slurmstepd, srun, Python, ProcessGroupNCCL.cpp, torchrun, the C library."""

NODES = 3
"""So many lines of srun are shown of each kind: more of them would hide the cause."""

_COUNTED = re.compile(rb"0x[0-9a-f]+|\d+")


def complaints(said: bytes) -> list[bytes]:
    """The lines that complain, without a script's trace; if there are none, all lines with text.

    If srun ended a step, its lines on the ended tasks are left out. Only the first line of each kind is kept.
    """
    lines = said.splitlines()
    complaints = [line for line in lines if _COMPLAINT.search(line) and not line.startswith(b"+")]
    causes, ending = [], False
    for line in complaints:
        if _ENDING.search(line):
            ending = True
        elif not (ending and _ENDED.search(line)):
            causes.append(line)
    return of_each_kind(causes or complaints or [line for line in lines if line.strip()])


def of_each_kind(lines: Sequence[bytes]) -> list[bytes]:
    """The first of all lines that differ in numbers alone, as many ranks print them.

    Of srun's, which name the nodes, the first `NODES` are kept, and how many follow is said.
    """
    kinds: dict[bytes, list[bytes]] = {}
    for line in dict.fromkeys(lines):
        kinds.setdefault(_COUNTED.sub(b"#", line), []).append(line)
    kept = []
    for alike in kinds.values():
        shown = alike[: NODES if b"srun: " in alike[0] else 1]
        more = len(alike) - len(shown)
        if more and len(shown) == NODES:
            shown[-1] += b" (and %d more such lines)" % more
        kept += shown
    return kept
