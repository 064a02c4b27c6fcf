"""Whether a run in another mode left on the cluster what it is made for: its profiles, its trace. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import PurePosixPath
from statistics import median

from plugins.digests import nccl_problems, nccl_view, profile_view
from plugins.digests.artefacts import Artefacts, few
from plugins.digests.profile import Digests
from plugins.judging import checkpoints
from plugins.logs import Log
from plugins.recipes.cases import Case
from plugins.recipes.file import Profiles
from plugins.record.case import File
from plugins.words import shown

SMALLEST = 4096
"""A report in bytes: it begins with tables that alone are larger."""

UNFINISHED = ".qdstrm"
"""nsys writes its data into a file with this suffix first, and makes the report of it at its end."""


def problems(case: Case, found: Artefacts | None, *, nodes: int, network: str | None = None) -> list[str]:
    """The reasons why the run did not leave what its mode is for; empty if it did.

    `nodes` is how many nodes it ran on, and `network` how NCCL should name the network between them; None: as
    it likes.
    """
    mode = case.mode
    if mode is None or not mode.leaves_files:
        return []
    if found is None:
        return ["nobody has looked at what it left on the cluster"]
    if found.files and found.begun is None and not mode.nccl_trace:
        return [
            f"nobody knows which of the {len(found.files)} files there are of this job: the file that was made in the stage "
            f"before it was submitted is gone"
        ]
    if case.leaves_checkpoint:
        return checkpoints.file_problems(case, found)
    if mode.profiles is not None:
        return list(_profile_problems(mode.profiles, case, found))
    if found.trace is None:
        return ["the job left no NCCL trace"]
    return nccl_problems.problems(found.trace, case.gpus, nodes, network)


def reports(case: Case, found: Artefacts) -> list[File]:
    """The profiles that the job itself wrote."""
    if case.mode is None or case.mode.profiles is None:
        return []
    return [file for file in found.own if re.fullmatch(case.mode.profiles.name, file.name)]


def expected_reports(case: Case) -> int:
    """How many profiles the run should leave."""
    if case.mode is None or case.mode.profiles is None:
        return 0
    profiles = case.mode.profiles
    return len(profiles.kinds) if profiles.ranks is None else min(profiles.ranks, case.gpus)


def _profile_problems(profiles: Profiles, case: Case, found: Artefacts) -> Iterator[str]:
    own, count = reports(case, found), expected_reports(case)
    old = [file for file in found.files if re.fullmatch(profiles.name, file.name) and file not in own]
    unfinished = [file for file in found.files if PurePosixPath(file.name).suffix == UNFINISHED]
    for what, limit in (("empty", 1), ("too small for a whole report", SMALLEST)):
        if small := [file.name for file in own if file.size < limit and (limit == 1 or file.size)]:
            yield f"{few(small)} {'is' if len(small) == 1 else 'are'} {what}, in {found.folder}"
    kinds = [
        match["kind"] for file in own if profiles.kinds and (match := re.fullmatch(profiles.name, file.name))
    ]
    if missing := [kind for kind in profiles.kinds if kind not in kinds]:
        yield f"there is no profile {' and no profile '.join(missing)} of this job in {found.folder}"
    elif len(own) != count:
        yield f"{len(own) or 'no'} profile{'' if len(own) == 1 else 's'} of this job in {found.folder}, where {count} are expected"
    if old and len(own) != count:
        yield f"{few([file.name for file in old])} there {'is' if len(old) == 1 else 'are'} from before this job"
    if unfinished:
        yield f"nsys did not finish {few([file.name for file in unfinished])}"


def explain(case: Case, log: Log, found: Artefacts) -> list[str]:
    """The lines of the report below the headline."""
    lines = []
    if own := reports(case, found):
        size = sum(file.size for file in own)
        lines.append(f"profiles  {len(own)} reports, {size / 1e6:,.1f} MB, in {found.folder} on {found.host}")
        lines += [f"          {file.name}  {file.size:,} bytes" for file in own]
        lines.append(f"fetch     {fetch(found)}")
    if found.profiles:
        digests = Digests(version=1, profiles=found.profiles, errors=())
        lines += [f"          {line}" for line in profile_view.table(digests).splitlines()]
    if found.trace is not None:
        lines += [f"warning   {shown(warning)}" for warning in found.trace.warnings]
        if found.trace.counts.torn:
            lines.append(
                f"note      {found.trace.counts.torn:,} calls are not counted: other ranks' output tore their lines "
                f"({found.trace.torn_share:.1%})"
            )
        lines += [f"trace     {line}" for line in nccl_view.table(found.trace).splitlines()]
    lines += [f"note      {note}" for note in found.notes]
    times = [step.seconds for step in log.steps if step.seconds is not None]
    if times:
        lines.append(
            f"steps     median {median(times):.4g} s of {len(times)} steps, not judged: it compares with no timed run"
        )
    return lines


def headline(case: Case, found: Artefacts) -> str:
    """What the run left, in a line."""
    if found.trace is not None:
        trace = found.trace
        networks = sorted({name for setup in trace.setups for name in setup.networks})
        return (
            f"{len(trace.members())} ranks on {len({rank.host for rank in trace.members()})} hosts made {trace.counts.calls:,} NCCL calls, network "
            f"{', '.join(networks) or 'not told'}"
        )
    own = reports(case, found)
    size = sum(file.size for file in own)
    return f"{len(own)} profiles of this job, {size / 1e6:,.1f} MB; to fetch them: {fetch(found)}"


def fetch(found: Artefacts) -> str:
    """The command that copies the files to the user's machine."""
    return f"scp -r {found.host}:{shlex.quote(found.folder)} ."
