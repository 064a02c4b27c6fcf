"""What slurmctld saw: requests by type, and when its jobs were submitted, started and over.

Its log has milliseconds where `scontrol show job` and the completion log have whole seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

from tests.lab.slurm import SlurmLab

JOB_INFORMATION = ("REQUEST_JOB_INFO", "REQUEST_JOB_INFO_SINGLE", "REQUEST_JOB_USER_INFO")
# What the nodes say by themselves, and what the measurement asks.
_OWN = (
    "MESSAGE_NODE_REGISTRATION_STATUS",
    "MESSAGE_EPILOG_COMPLETE",
    "REQUEST_COMPLETE_BATCH_SCRIPT",
    "REQUEST_STATS_INFO",
)

_EVENTS = re.compile(
    r"^\[(?P<time>\S+)\] (?:"
    r"_slurm_rpc_submit_batch_job: JobId=(?P<submitted>\d+) "
    # A part of an array stands behind its own name: 17_3(20).
    r"|sched(?:/backfill: _start_job: Started|: Allocate) JobId=(?:\d+_\d+\()?(?P<started>\d+)\)? "
    r"|_job_complete: JobId=(?:\d+_\d+\()?(?P<ended>\d+)\)? done)",
    re.MULTILINE,
)
_REQUESTS = re.compile(r"^\s+(\w+)\s+\(\s*\d+\) count:(\d+)", re.MULTILINE)


@dataclass
class Record:
    """Times in s since the epoch by job id, and the number of requests by type."""

    submitted: dict[int, float] = field(default_factory=dict)
    started: dict[int, float] = field(default_factory=dict)
    ended: dict[int, float] = field(default_factory=dict)
    requests: dict[str, int] = field(default_factory=dict)

    @property
    def longest(self) -> float:
        """Seconds from start to end of the longest job: what all take that start at once."""
        return max(self.ended[job] - self.started[job] for job in self.ended)

    @property
    def span(self) -> float:
        """Seconds from the first job's submission to the last one's end."""
        return max(self.ended.values()) - min(self.submitted.values())

    @property
    def by_type(self) -> str:
        return ", ".join(f"{name} {count}" for name, count in sorted(self.requests.items()))

    @property
    def job_information(self) -> int:
        return sum(self.requests.get(name, 0) for name in JOB_INFORMATION)


class Watch:
    """Reads the controller's log from here on."""

    def __init__(self, lab: SlurmLab) -> None:
        self._log = lab.root / "log" / "slurmctld.log"
        self._start = self._log.stat().st_size

    def read(self) -> Record:
        with self._log.open("rb") as file:
            file.seek(self._start)
            text = file.read().decode()
        record = Record()
        for event in _EVENTS.finditer(text):
            kind = event.lastgroup or ""
            getattr(record, kind)[int(event[kind])] = datetime.fromisoformat(event["time"]).timestamp()
        return record


@contextmanager
def watching(lab: SlurmLab) -> Iterator[Record]:
    """A record of what happens inside the `with`, whole when it has been left."""
    watch, record = Watch(lab), Record()
    lab.run("sdiag", "--reset")
    yield record
    requests = requests_by_type(lab.run("sdiag"))
    seen = watch.read()
    record.submitted, record.started, record.ended = seen.submitted, seen.started, seen.ended
    record.requests = requests


def requests_by_type(sdiag: str) -> dict[str, int]:
    """`sdiag`'s table of requests by type, as far as users make them."""
    table = sdiag.partition("statistics by message type")[2].partition("statistics by user")[0]
    return {name: int(count) for name, count in _REQUESTS.findall(table) if name not in _OWN}
