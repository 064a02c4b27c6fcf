"""What tells that lines are of another attempt of the job, or of another file. Pure."""

from __future__ import annotations

import re

RESTART_HINTS = (
    b" DUE TO JOB REQUEUE",
    b" DUE TO PREEMPTION",
    b" DUE TO NODE FAILURE",
    b"will restart worker group",
)
RESTART = re.compile(
    r"\*\*\* .{1,200} CANCELLED AT \S{1,30} DUE TO (?:JOB REQUEUE|PREEMPTION|NODE FAILURE)\b"
    r"|Worker group \w+\. \d+/\d+ attempts left; +will restart worker group"
)
"""What says that the job, or its processes, are started again.

Sources: Slurm 23.11 src/slurmd/slurmstepd/req.c, `_handle_signal_container`; PyTorch 2.7
torch/distributed/elastic/agent/server/api.py 945.
"""

HEADER_HINT = b"==> "
HEADER = re.compile(r"^==> (?P<file>.{1,300}) <==\s*$")
"""The line by which `head` and `tail` begin each of several files (coreutils src/head.c and tail.c, `write_header`)."""

# What `grep -H` and `grep -Hn` print before a line, and how mail and `diff` quote one.
_LABEL = re.compile(
    r"(?P<label>(?:[^\s:]{0,300}/)?[^\s:/]{1,200}\.(?:log|out|err|txt)(?:\.\w{1,4})?:(?:\d{1,9}:)?|[<>]+ )"
)


def label_of(line: str) -> str:
    """What stands before this line to say that it is another file's; "" if nothing does."""
    match = _LABEL.match(line)
    return match["label"].strip() if match else ""
