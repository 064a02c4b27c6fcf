"""Whether a run in another mode left on the cluster what it is made for: its profiles, its trace, its checkpoint. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from plugins.modes import checkpoints, trace_problems
from plugins.modes.artefacts import Artefacts, few
from plugins.recipes.cases import Case
from plugins.recipes.variants import Profiles
from plugins.record.case import File

SMALLEST = 4096
"""A report in bytes: it begins with tables that alone are larger."""

UNFINISHED = ".qdstrm"
"""nsys writes its data into a file with this suffix first, and makes the report of it at its end."""


def problems(case: Case, artefacts: Artefacts | None, *, nodes: int, network: str | None = None) -> list[str]:
    """The reasons why the run did not leave what its mode is for; empty if it did.

    `nodes` is how many nodes it ran on, and `network` how NCCL should name the network between them; None: as
    it likes.
    """
    mode = case.mode
    if mode is None or not mode.leaves_files:
        return []
    if artefacts is None:
        return ["nobody has looked at what it left on the cluster"]
    if artefacts.files and artefacts.begun is None and not mode.nccl_trace:
        return [
            f"nobody knows which of the {len(artefacts.files)} files there are of this job: the file that was made in the stage "
            f"before it was submitted is gone"
        ]
    if case.leaves_checkpoint:
        return checkpoints.file_problems(case, artefacts)
    if mode.profiles is not None:
        return list(_profile_problems(mode.profiles, case, artefacts))
    if artefacts.trace is None:
        return ["the job left no NCCL trace"]
    return trace_problems.problems(artefacts.trace, case.gpus, nodes, network)


def reports(case: Case, artefacts: Artefacts) -> list[File]:
    """The profiles that the job itself wrote."""
    if case.mode is None or case.mode.profiles is None:
        return []
    return [file for file in artefacts.own if re.fullmatch(case.mode.profiles.name, file.name)]


def expected_reports(case: Case) -> int:
    """How many profiles the run should leave."""
    if case.mode is None or case.mode.profiles is None:
        return 0
    profiles = case.mode.profiles
    return len(profiles.kinds) if profiles.ranks is None else min(profiles.ranks, case.gpus)


def _profile_problems(profiles: Profiles, case: Case, artefacts: Artefacts) -> Iterator[str]:
    own, count = reports(case, artefacts), expected_reports(case)
    yield from _small(artefacts, "empty", [file for file in own if not file.size])
    yield from _small(artefacts, "too small for a whole report", [f for f in own if 0 < f.size < SMALLEST])
    names = [re.fullmatch(profiles.name, file.name) for file in own] if profiles.kinds else []
    kinds = {name["kind"] for name in names if name is not None}
    missing = [kind for kind in profiles.kinds if kind not in kinds]
    if missing:
        yield f"there is no profile {' and no profile '.join(missing)} of this job in {artefacts.folder}"
    elif len(own) != count:
        plural = "" if len(own) == 1 else "s"
        yield f"{len(own) or 'no'} profile{plural} of this job in {artefacts.folder}, where {count} are expected"
    old = [f.name for f in artefacts.files if re.fullmatch(profiles.name, f.name) and f not in own]
    if old and len(own) != count:
        yield f"{few(old)} there {_are(old)} from before this job"
    unfinished = [f.name for f in artefacts.files if PurePosixPath(f.name).suffix == UNFINISHED]
    if unfinished:
        yield f"nsys did not finish {few(unfinished)}"


def _small(artefacts: Artefacts, fault: str, files: Sequence[File]) -> Iterator[str]:
    if files:
        yield f"{few([file.name for file in files])} {_are(files)} {fault}, in {artefacts.folder}"


def _are(things: Sequence[object]) -> str:
    return "is" if len(things) == 1 else "are"
