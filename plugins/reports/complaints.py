"""The lines that say why a job died, in the midst of what else was said besides its log. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

_COMPLAINT = re.compile(rb"(?i)^srun: (?!warning)|error|kill|cancel|fail|traceback|no space|denied")

# What srun says first when it ends a step. Then it has a line or more for each node: a task may answer SIGTERM with an exit code.
ENDING = r"srun: (?:(?:launch/slurm: _step_signal: )?Terminating |Job step aborted|Force Terminated )"
_ENDING = re.compile(ENDING.encode())
_ENDED = re.compile(
    rb"srun: error: [^:]+: tasks? [^:]+: "
    rb"|slurmstepd(?:-\S+)?: error: \*\*\* (?:STEP|JOB) \S+ ON \S+ CANCELLED AT \S+ \*\*\*"
)
_COUNTED = re.compile(rb"0x[0-9a-f]+|\d+")


def complaints(said: bytes) -> list[bytes]:
    """The lines that complain, without a script's trace; where none does, all that say something. Of each kind the first."""
    lines = said.splitlines()
    found = [line for line in lines if _COMPLAINT.search(line) and not line.startswith(b"+")]
    causes, ending = [], False
    for line in found:
        if _ENDING.search(line):
            ending = True
        elif not (ending and _ENDED.search(line)):
            causes.append(line)
    return of_each_kind(causes or found or [line for line in lines if line.strip()])


def of_each_kind(lines: Sequence[bytes]) -> list[bytes]:
    """The first of all lines that differ in numbers alone, which many ranks print; each of srun's, which name the nodes."""
    kinds: dict[bytes, bytes] = {}
    for line in lines:
        kinds.setdefault(line if b"srun: " in line else _COUNTED.sub(b"#", line), line)
    return list(kinds.values())
