"""Which of a job's Nsight Systems reports are missing or faulty, from the listing of their folder. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from plugins.words import shown

# A report of one process begins with tables that alone are larger.
_SMALLEST = 4096
_NAMED = re.compile(r"_(?P<job>\d+)_node\d+_rank(?P<rank>\d{1,6})\.nsys-rep$")


@dataclass(frozen=True)
class Entry:
    """A file of a folder's listing. `modified` is in seconds since the epoch."""

    name: str
    size: int
    modified: float


def megatron_reports(
    listing: Iterable[Entry], ranks: int, started: float, job: str | None = None
) -> list[str]:
    """What is wrong with the reports of a NeMo or Megatron Bridge job: one sentence for each fault.

    `ranks` is how many ranks were to be profiled; `started` is when the job started by the cluster's clock, in
    seconds since the epoch. NeMo-Run names a report `profile_%p.nsys-rep`, and Nsight Systems puts the process id for `%p`: the
    name does not say the rank, so the reports are counted. Newer NeMo and Megatron Bridge add the rank at
    the end: `profile_%p_<job>_node<node>_rank<rank>.nsys-rep`; then each rank of `job` is looked for.

    Sources: NVIDIA/NeMo-Run nemo_run/core/execution/launcher.py, NVIDIA/NeMo nemo/lightning/run/plugins.py.
    """
    mine, faults = _of_job(listing, started, lambda name: name.startswith("profile_"))
    named = {name: found for name in mine if (found := _NAMED.search(name))}
    others = [name for name, found in named.items() if job is not None and found["job"] != job]
    faults += [f"{shown(name)} is another job's" for name in others]
    mine = [name for name in mine if name not in others]
    if mine and all(name in named for name in mine):
        there = {int(named[name]["rank"]) for name in mine}
        missing = [str(rank) for rank in range(ranks) if rank not in there]
        if missing:
            faults.append(f"no report of rank {', '.join(missing)}")
    elif len(mine) < ranks:
        faults.append(
            f"{len(mine)} reports for {ranks} profiled ranks; their names hold process ids, so that they do not "
            "say which rank has none"
        )
    if len(mine) > ranks:
        faults.append(f"{len(mine)} reports for {ranks} profiled ranks: some are of another attempt")
    return faults


def maxtext_reports(listing: Iterable[Entry], run_name: str, started: float) -> list[str]:
    """What is wrong with the pair of reports of a MaxText job, `<run name>-prof` and `-perf`."""
    wanted = [f"{run_name}-{kind}.nsys-rep" for kind in ("prof", "perf")]
    mine, faults = _of_job(listing, started, lambda name: name in wanted)
    return [*faults, *(f"{name} is missing" for name in wanted if name not in mine)]


def _of_job(
    listing: Iterable[Entry], started: float, ours: Callable[[str], bool]
) -> tuple[list[str], list[str]]:
    """The names of this job's reports, and the faults of single files.

    A faulty file counts as there, so that it is told once. A file of an earlier job counts as not there.
    """
    mine, faults = [], []
    for entry in sorted(listing, key=lambda entry: entry.name):
        name = PurePosixPath(entry.name).name
        if not name.endswith(".nsys-rep") or not ours(name):
            continue
        if entry.modified < started:
            faults.append(f"{shown(name)} is older than the job, so it is another job's")
            continue
        mine.append(name)
        if not entry.size:
            faults.append(f"{shown(name)} is empty: the profiler was ended before it wrote the report")
        elif entry.size < _SMALLEST:
            faults.append(f"{shown(name)} has {entry.size} bytes: too small for a whole report")
    return mine, faults
