"""Jobs as Slurm tells of them: squeue's lines and the completion log (jobcomp/filetxt)."""

from __future__ import annotations

from dataclasses import dataclass

# The name comes last: it is the only field that may hold the separator.
SQUEUE_FORMAT = "%i|%T|%r|%D|%u|%j"


@dataclass(frozen=True)
class LabJob:
    """`nodes`: what it has, asks for, or had; 0 if it ended before it got any. `reason`: "" once it ended."""

    id: int
    name: str
    state: str
    reason: str
    nodes: int
    user: str


def from_squeue(text: str) -> list[LabJob]:
    """Jobs from `squeue -h -o SQUEUE_FORMAT`."""
    rows = [line.split("|", 5) for line in text.splitlines()]
    return [LabJob(int(i), name, state, reason, int(n), user) for i, state, reason, n, user, name in rows]


def from_completion_log(text: str) -> list[LabJob]:
    """One entry for each time a job ended; a requeued job has several. A line that is being written is left out."""
    jobs = []
    for line in text.split("\n")[:-1]:
        entry = dict(part.partition("=")[::2] for part in line.split(" ") if "=" in part)
        job = LabJob(
            id=int(entry["JobId"]),
            name=entry["Name"],
            state=entry["JobState"],
            reason="",
            nodes=0 if entry["NodeList"] in ("", "(null)") else int(entry["NodeCnt"]),
            user=entry["UserId"].partition("(")[0],
        )
        jobs.append(job)
    return jobs
