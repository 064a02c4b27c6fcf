"""Who has this machine's processors while a program trains on them. Linux tells it in /proc.

It is printed as lines of the log, one for each step, with the rate of the matrix products that follow the step:

    cpu sample: {"step": 3, "tflops": 0.21, "share": 0.52, "own_s": 1.52, "others_s": 1.1, "programs": {"firefox": 0.9}, ...}

`plugins.logs.log` reads them.
"""

import json
import os
import resource
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
NAMED = 4  # programs of a line, the busiest ones
TICK = os.sysconf("SC_CLK_TCK")

Key = tuple[int, int]  # of a process: its id, and when it began, because ids are given again


def allowed() -> set[int]:
    """The processors that this program may use."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def threads() -> int:
    """How many of them XLA computes on at once."""
    given = os.environ.get("NPROC", "")
    return min(int(given), len(allowed())) if given.isdecimal() and int(given) else len(allowed())


@dataclass(frozen=True)
class Process:
    """A line of /proc/*/stat. `used` and `of_children`, those that it has waited for, are in s."""

    name: str
    parent: int
    used: float
    of_children: float


@dataclass(frozen=True)
class Use:
    """What was used so far, in s of the processors that this program may use; None where nothing tells.

    `program` is of this program and the children that have ended, `descendants` of those that live, `busy` of all
    programs. `stolen` is what a hypervisor gave to other machines, `held` what the limit of a cgroup kept from this
    program.
    """

    at: float
    program: float
    descendants: float
    busy: float | None
    stolen: float
    held: float

    @property
    def own(self) -> float:
        return self.program + self.descendants


class Processors:
    """What this program, its descendants and all others use of the processors."""

    def __init__(self) -> None:
        self._descendants: set[Key] = set()
        self._living: dict[Key, Process] = {}
        self._before = self._product = self._use()
        self._known = self._living

    def begin(self) -> None:
        """The products behind a step begin."""
        # To look takes time, which is no part of the products.
        self._product = replace(self._use(), program=used_so_far(), at=time.monotonic())

    def sample(self, step: int, tflops: float) -> str:
        """The line on all that was used since the last one. `tflops` is the rate of the products that have just ended."""
        before, product = self._before, self._product
        now = self._before = self._use()
        sample: dict[str, object] = {
            "step": step,
            "tflops": round(tflops, 6),
            "share": round((now.own - product.own) / (now.at - product.at) / threads(), 4),
            "seconds": round(now.at - before.at, 4),
            "processors": len(allowed()),
            "own_s": round(now.own - before.own, 4),
        }
        if now.busy is not None and before.busy is not None:
            others = now.busy - before.busy - (now.own - before.own)
            sample["others_s"] = round(max(0.0, others), 4)
            sample["stolen_s"] = round(max(0.0, now.stolen - before.stolen), 4)
            sample["held_s"] = round(max(0.0, now.held - before.held), 4)
            sample["programs"] = self._programs()
        self._known = self._living
        return f"cpu sample: {json.dumps(sample)}"

    def _use(self) -> Use:
        at, program, (busy, stolen) = time.monotonic(), used_so_far(), busy_and_stolen()
        self._living = processes()
        while new := self._of_the_family():
            self._descendants |= new
        family = (self._living[key] for key in self._descendants & self._living.keys())
        descendants = sum(process.used + process.of_children for process in family)
        return Use(at, program, descendants, busy, stolen, held())

    def _of_the_family(self) -> set[Key]:
        """Children of this program or of a descendant. A descendant stays one if its parent ends."""
        parents = {os.getpid(), *(pid for pid, _ in self._descendants)}
        children = {key for key, process in self._living.items() if process.parent in parents}
        return children - self._descendants

    def _programs(self) -> dict[str, float]:
        """The busiest other programs since the last sample, with their time in s."""
        used: defaultdict[str, float] = defaultdict(float)
        for key, process in self._living.items():
            if key[0] != os.getpid() and key not in self._descendants:
                used[process.name] += process.used - (self._known[key].used if key in self._known else 0.0)
        busiest = sorted(used, key=lambda name: -used[name])[:NAMED]
        return {name: round(used[name], 2) for name in busiest if used[name] > 0}


def used_so_far() -> float:
    """What this program has used of the processors, with the children that it has waited for, in s."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in used)


def busy_and_stolen() -> tuple[float | None, float]:
    """The time of all programs, and of other machines, on the processors that this program may use."""
    names = {f"cpu{number}" for number in allowed()}
    rows: list[list[int]] = []
    with suppress(OSError):
        lines = [line.split() for line in (PROC / "stat").read_text().splitlines()]
        rows = [[int(ticks) for ticks in line[1:9]] for line in lines if line and line[0] in names]
    if not any(map(sum, rows)):
        return None, 0.0
    user, nice, system, _, _, irq, softirq, stolen = (sum(column) for column in zip(*rows, strict=True))
    return (user + nice + system + irq + softirq) / TICK, stolen / TICK


def processes() -> dict[Key, Process]:
    """All processes that this one can see."""
    found = {}
    for path in PROC.glob("[0-9]*/stat"):
        with suppress(OSError):
            head, _, tail = path.read_text(errors="replace").rpartition(")")
            fields = tail.split()
            user, system, of_children, system_of_children = (int(ticks) / TICK for ticks in fields[11:15])
            found[int(path.parent.name), int(fields[19])] = Process(
                head.partition("(")[2], int(fields[1]), user + system, of_children + system_of_children
            )
    return found


def held() -> float:
    """How long the limits of this program's cgroups kept processors from it so far, in s."""
    seconds = 0.0
    with suppress(OSError):
        for line in (PROC / "self" / "cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "cpu" not in controllers.split(","):
                continue
            root = CGROUPS / controllers
            own = root / path.strip("/")
            # A pod or a job may have a limit around that of its container or its step.
            folders = [own, *own.parents][: len(own.relative_to(root).parts) + 1]
            seconds += sum(map(throttled, folders))
    return seconds


def throttled(folder: Path) -> float:
    """How long a cgroup's own limit held it, in s; 0 if it has none."""
    with suppress(OSError):
        counts = dict(line.split() for line in (folder / "cpu.stat").read_text().splitlines())
        return int(counts.get("throttled_usec", 0)) / 1e6 + int(counts.get("throttled_time", 0)) / 1e9
    return 0.0
