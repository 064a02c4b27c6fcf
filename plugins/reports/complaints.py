"""The lines that say why a job died, in the midst of what else was said besides its log. Pure."""

from __future__ import annotations

import re

_COMPLAINT = re.compile(rb"(?i)^srun: (?!warning)|error|kill|cancel|fail|traceback|no space|denied")

# From the first one that died on, Slurm ends the others, and has a line for each node.
_ENDING = re.compile(rb"^srun: (?:(?:launch/slurm: _step_signal: )?Terminating |Job step aborted)")
_ENDED = re.compile(
    rb"^srun: error: [^:]+: tasks? [^:]+: (?:Killed|Terminated)"
    rb"|^slurmstepd: error: \*\*\* (?:STEP|JOB) \S+ ON \S+ CANCELLED AT \S+ \*\*\*"
)


def complaints(said: bytes) -> list[bytes]:
    """The lines that complain, without a script's trace; where none does, all that say something."""
    lines = said.splitlines()
    found = [line for line in lines if _COMPLAINT.search(line) and not line.startswith(b"+")]
    causes, ending = [], False
    for line in found:
        if _ENDING.search(line):
            ending = True
        elif not (ending and _ENDED.search(line)):
            causes.append(line)
    return causes or found or [line for line in lines if line.strip()]
