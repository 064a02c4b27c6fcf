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
    """The first of all lines that differ in numbers alone, as many ranks print them. All of srun's are kept.

    srun's lines name the nodes.
    """
    kinds: dict[bytes, bytes] = {}
    for line in lines:
        kinds.setdefault(line if b"srun: " in line else _COUNTED.sub(b"#", line), line)
    return list(kinds.values())
