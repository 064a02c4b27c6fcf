"""Whether a run in another mode left on the cluster what it is made for: its profiles, its trace, its checkpoint. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from plugins.modes import checkpoints, trace_problems
from plugins.modes.artefacts import Artefacts, are, few
from plugins.recipes.cases import Case
from plugins.recipes.variants import Profiles
from plugins.record.case import File
from plugins.words import counted

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
    if profiles.ranks is None:
        return len(profiles.kinds)
    return min(profiles.ranks, case.gpus)


def _profile_problems(profiles: Profiles, case: Case, artefacts: Artefacts) -> Iterator[str]:
    files, count = reports(case, artefacts), expected_reports(case)
    yield from _small(artefacts, "empty", [file for file in files if not file.size])
    yield from _small(artefacts, "too small for a whole report", [f for f in files if 0 < f.size < SMALLEST])
    missing = _missing_kinds(profiles, files)
    if missing:
        yield f"there is no profile {' and no profile '.join(missing)} of this job in {artefacts.folder}"
    elif not files:
        yield f"no profiles of this job in {artefacts.folder}, where {count} are expected"
    elif len(files) != count:
        yield f"{counted(len(files), 'profile')} of this job in {artefacts.folder}, where {count} are expected"
    old = [f.name for f in artefacts.files if re.fullmatch(profiles.name, f.name) and f not in files]
    if old and len(files) != count:
        yield f"{few(old)} there {are(old)} from before this job"
    unfinished = [f.name for f in artefacts.files if PurePosixPath(f.name).suffix == UNFINISHED]
    if unfinished:
        yield f"nsys did not finish {few(unfinished)}"


def _missing_kinds(profiles: Profiles, files: Sequence[File]) -> list[str]:
    """The kinds of profiles that are to be there, and are not."""
    if not profiles.kinds:
        return []
    names = [re.fullmatch(profiles.name, file.name) for file in files]
    kinds = {name["kind"] for name in names if name is not None}
    return [kind for kind in profiles.kinds if kind not in kinds]


def _small(artefacts: Artefacts, fault: str, files: Sequence[File]) -> Iterator[str]:
    if files:
        yield f"{few([file.name for file in files])} {are(files)} {fault}, in {artefacts.folder}"
