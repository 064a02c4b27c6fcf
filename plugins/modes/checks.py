"""Whether a run in another mode left on the cluster what it is made for: its profiles, its trace, its checkpoint. Pure."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from plugins.base.words import counted, listed
from plugins.logs.nodes import named, other_networks, some_hosts
from plugins.modes import checkpoints
from plugins.modes.artefacts import Artefacts, are, few
from plugins.modes.traces import NcclDigest, Rank
from plugins.recipes.cases import Case
from plugins.recipes.variants import Profiles
from plugins.record.case import File

# If more of the calls than this share cannot be read, the trace is of a format that is not known, or damaged. NeMo-Run
# asks for output without buffers (SLURM_UNBUFFEREDIO), with which srun tears lines of ranks that print at once.
_TORN = 0.25


# So many calls of a rank may be torn lines, if as many are torn in all: a number, or a share of its calls beyond twice the
# share that is torn in all.
_LOST, _LOST_SHARE = 3, 0.02


def trace_problems(
    digest: NcclDigest, gpus: int, nodes: int, expected_transport: str | None = None
) -> list[str]:
    """Why this is no whole trace of a case on so many GPUs and nodes, over the expected network.

    `expected_transport`: how the name of the network begins as NCCL prints it, with or without the vendor before it: `IB`
    (which `IBext_v8` is too), `Libfabric`, `Socket`; `IB/GDRDMA` also demands GPUDirect RDMA. On one node
    nothing is demanded.
    """
    counts, members = digest.counts, digest.members()
    if not members:
        reason = f"the trace has no NCCL call in {counts.lines} lines"
        return [f"{reason}, but {counts.torn} lines that are not whole" if counts.torn else reason]
    reasons = list(_unread(digest))
    absent = list(_attendance(digest, members, gpus, nodes))
    reasons += absent
    if not absent and not digest.untracked_calls:
        reasons += _uneven(digest, members)
    if nodes > 1 and expected_transport is not None:
        reasons += _transport(digest, members, expected_transport)
    return reasons


def _unread(digest: NcclDigest) -> Iterator[str]:
    counts = digest.counts
    if not digest.done:
        yield f"the trace was not read to its end: {digest.read} bytes of at least {digest.size}"
    if digest.torn_share > _TORN:
        yield f"{counts.torn} of {counts.calls + counts.torn} calls cannot be read: the lines are torn, or of a format that is not known"
    if digest.other_ranks:
        yield f"{digest.other_ranks} calls are of more ranks than can be told apart"
    if digest.untracked_calls:
        yield f"{digest.untracked_calls} calls are of more communicators than can be told apart: the trace may not be whole"


def _attendance(digest: NcclDigest, members: Sequence[Rank], gpus: int, nodes: int) -> Iterator[str]:
    """How the ranks of the trace differ from those of the case."""
    largest = max((call.nranks for call in digest.calls), default=0)
    if largest > gpus:
        yield f"a communicator has {largest} ranks, the case has {gpus}: this is the trace of a larger job"
        return
    if len(members) > gpus:
        yield f"{len(members)} ranks made calls, the case has {gpus}: this is the trace of a larger job, or of several"
        return
    if len(members) < gpus:
        yield f"{len(members)} of {gpus} ranks made calls: {_absent(digest, members, gpus, nodes)}"
    hosts = len({rank.host for rank in members})
    if hosts > nodes or (hosts < nodes and len(members) == gpus):
        yield f"the ranks are on {counted(hosts, 'host')}, the case has {counted(nodes, 'node')}"


def _absent(digest: NcclDigest, members: Sequence[Rank], gpus: int, nodes: int) -> str:
    """`rank 3 is missing` if NCCL printed ranks; otherwise which hosts have fewer of them than the others."""
    known = {rank.rank for rank in members}
    if digest.world == gpus and None not in known:
        absent = sorted(set(range(gpus)) - {rank for rank in known if rank is not None})
        return f"{listed('rank', absent)} {are(absent)} missing"
    ranks_of = Counter(rank.host for rank in members)
    full = gpus // nodes
    few = [
        f"{digest.hosts[host]} has {ranks} of {full}"
        for host, ranks in sorted(ranks_of.items())
        if ranks < full
    ]
    if len(ranks_of) < nodes:
        few.insert(0, f"{len(ranks_of)} of {nodes} nodes have any")
    if not few:
        return f"{len(ranks_of)} hosts have some"
    return some_hosts(few)


def _uneven(digest: NcclDigest, members: Sequence[Rank]) -> Iterator[str]:
    """Communicators in which some ranks made fewer calls than others, by more than lines were torn."""
    known = set(members)
    # If a line lost the begin of its host's name, its call seems to be from a rank that does not exist.
    torn = digest.counts.torn + sum(rank.calls for rank in digest.ranks if rank not in known)
    for uneven in digest.uneven:
        share = _LOST_SHARE + 2 * digest.torn_share
        # Lines are torn where several ranks print at once, so in short traces they are not spread evenly.
        lost = min(torn, max(_LOST, share * uneven.calls, 2 * math.sqrt(uneven.calls)))
        calls_of = {
            digest.ranks[index]: calls
            for index, calls in uneven.fewer
            if digest.ranks[index] in known and uneven.calls - calls > lost
        }
        if calls_of:
            least, most = min(calls_of.values()), max(calls_of.values())
            calls = f"{least} to {most}" if least < most else f"{least}"
            yield (
                f"the trace is not whole: in communicators of {uneven.nranks} ranks others made {uneven.calls} collective "
                f"calls, {named(map(digest.process, calls_of))} {calls}"
            )


def _transport(digest: NcclDigest, members: Sequence[Rank], expected: str) -> Iterator[str]:
    """How the network between nodes is not the expected one, or not known. A channel is positive proof."""
    processes = [digest.process(rank) for rank in members if rank.setup is not None]
    yield from other_networks(processes, expected)
    unknown = [rank for rank in members if rank.setup is None]
    if unknown:
        yield f"too many set-ups: the network of {named(map(digest.process, unknown))} is not known"
    shown = {process.host for process in processes if process.channels or process.unlike(expected)}
    unproved = sorted({digest.hosts[rank.host] for rank in members} - shown)
    if unproved:
        yield f"no channel over a network is seen on {some_hosts(unproved)}"


SMALLEST = 4096
"""A report in bytes: it begins with tables that alone are larger."""


UNFINISHED = ".qdstrm"
"""nsys writes its data into a file with this suffix first, and makes the report of it at its end."""


def artefact_problems(
    case: Case, artefacts: Artefacts | None, *, nodes: int, network: str | None = None
) -> list[str]:
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
    return trace_problems(artefacts.trace, case.gpus, nodes, network)


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
