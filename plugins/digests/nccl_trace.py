"""What the digest of an NCCL trace says: whether all ranks took part, over which transport, and what was sent. Pure.

`plugins.digests.nccl` makes the digest where the trace lies. It comes from a cluster, so nothing of it is trusted.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, StringConstraints, ValidationError, model_validator

from plugins.errors import Infrastructure
from plugins.words import listed
from plugins.yamlfile import Strict

MOST_BYTES = 1_000_000
"""No digest is longer."""

# A process with fewer calls than this share of the median is no rank: its name is that of a torn line.
_STRAY = 0.01
# If more of the calls than this share cannot be read, the trace is of a format that is not known, or damaged. NeMo-Run
# asks for output without buffers (SLURM_UNBUFFEREDIO), with which srun tears lines of ranks that print at once.
_TORN = 0.25
# So many calls of a rank may be torn lines, if as many are torn in all: a number, or a share of its calls beyond twice the
# share that is torn in all.
_LOST, _LOST_SHARE = 3, 0.02
_MOST_NAMED = 4

_Number = Annotated[int, Field(ge=0, lt=1 << 63)]
_Host = Annotated[str, StringConstraints(pattern=r"^[\w.-]{1,63}$")]
_Version = Annotated[str, StringConstraints(pattern=r"^[\w.+-]{1,64}$")]
_Name = Annotated[str, StringConstraints(pattern=r"^[\w ./;:-]{1,64}$")]


class Call(NamedTuple):
    """The calls of one collective, size of communicator and size of message: below 2**`bits` bytes, and at least half of it."""

    collective: _Name
    nranks: _Number
    bits: _Number
    calls: _Number
    bytes: _Number


class Communicators(NamedTuple):
    """The handles of communicators of one size that carried the same. Each rank of a communicator has a handle.

    What follows `handles` is of one handle.
    """

    nranks: _Number
    handles: _Number
    collectives: _Number
    collective_bytes: _Number
    transfers: _Number
    transfer_bytes: _Number


class Rank(NamedTuple):
    """A process and its GPU. `rank` is known only if the subsystem INIT was on. `setup` is None if there was no room."""

    host: _Number
    pid: _Number
    gpu: _Number
    rank: _Number | None
    setup: _Number | None
    calls: _Number
    bytes: _Number


class File(NamedTuple):
    path: str
    size: _Number
    read: _Number


class Setup(Strict):
    """What ranks chose: networks and plug-ins by name, the transports of their channels, the network devices of these.

    If there are too many set-ups to list, some are without their devices.
    """

    networks: tuple[_Name, ...]
    plugins: tuple[_Name, ...]
    transports: tuple[_Name, ...]
    devices: tuple[_Name, ...]


class Uneven(Strict):
    """Communicators of one size whose members differ: `fewer` has ranks that made fewer than `calls`, `of` so many."""

    nranks: _Number
    calls: _Number
    fewer: tuple[tuple[_Number, _Number], ...]
    of: _Number


class Counts(Strict):
    """Lines: all; those of NCCL, and of these calls, set-up; calls that are not whole; too long; of an unknown datatype."""

    lines: _Number
    nccl: _Number
    calls: _Number
    setup: _Number
    torn: _Number
    long: _Number
    untyped: _Number


class NcclDigest(Strict):
    """See `plugins.digests.nccl` for what is counted, and what a byte is. What is `other` had no room of its own."""

    version: Literal[1]
    counts: Counts
    nccl: tuple[_Version, ...]
    calls: tuple[Call, ...]
    other_calls: tuple[_Number, _Number]
    communicators: tuple[Communicators, ...]
    other_communicators: _Number
    untracked_calls: _Number
    hosts: tuple[_Host, ...]
    setups: tuple[Setup, ...]
    world: _Number
    ranks: tuple[Rank, ...]
    other_ranks: tuple[_Number, _Number]
    uneven: tuple[Uneven, ...]
    other_uneven: _Number
    files: tuple[File, ...]
    done: bool
    warnings: tuple[str, ...]

    @model_validator(mode="after")
    def _points_to_what_is_there(self) -> NcclDigest:
        for rank in self.ranks:
            if rank.host >= len(self.hosts) or (rank.setup is not None and rank.setup >= len(self.setups)):
                raise ValueError("a rank is on a host, or has a set-up, that is not listed")
        if any(index >= len(self.ranks) for uneven in self.uneven for index, _ in uneven.fewer):
            raise ValueError("a rank that made fewer calls is not listed")
        return self

    @property
    def torn_share(self) -> float:
        """The share of the calls that cannot be read."""
        return self.counts.torn / max(1, self.counts.calls + self.counts.torn)

    def members(self) -> list[Rank]:
        """The ranks, without what torn lines seem to name: a host's name cut or glued, or a few calls."""
        if not self.ranks:
            return []
        least = _STRAY * median(rank.calls for rank in self.ranks)
        named: defaultdict[tuple[int, int], list[tuple[str, int]]] = defaultdict(list)
        for rank in self.ranks:
            named[rank.pid, rank.gpu].append((self.hosts[rank.host], rank.calls))

        def is_torn(rank: Rank) -> bool:
            name = self.hosts[rank.host]
            return any(
                rank.calls < calls and (other.endswith(name) or name.endswith(other))
                for other, calls in named[rank.pid, rank.gpu]
            )

        return [rank for rank in self.ranks if rank.calls >= least and not is_torn(rank)]


class _Error(Strict):
    error: str


def read_digest(answer: bytes) -> NcclDigest:
    """The digest that a cluster answered.

    Raises:
        Infrastructure: the trace could not be read there, or the answer is no digest.
    """
    if len(answer) > MOST_BYTES:
        raise Infrastructure(
            f"the digest of the NCCL trace has {len(answer)} bytes, {MOST_BYTES} at most are expected"
        )
    try:
        said = _Error.model_validate_json(answer).error
    except ValidationError:
        pass
    else:
        raise Infrastructure(f"the NCCL trace cannot be read where it lies: {said[:300]}")
    try:
        return NcclDigest.model_validate_json(answer)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        began = answer[:80].decode("utf-8", "replace")
        raise Infrastructure(
            f"the answer is no digest of an NCCL trace: {f'{where}: ' if where else ''}{first['msg']}. It begins: {began}"
        ) from None


def problems(digest: NcclDigest, gpus: int, nodes: int, expected_transport: str | None = None) -> list[str]:
    """Why this is no whole trace of a case on so many GPUs and nodes, over the expected network.

    `expected_transport`: how the name of the network begins as NCCL prints it, without the vendor before it: `IB`
    (which `IBext_v8` is too), `Libfabric`, `Socket`; `IB/GDRDMA` also demands GPUDirect RDMA. On one node
    nothing is demanded.
    """
    counts, members = digest.counts, digest.members()
    if not members:
        begun = f", but {counts.torn} lines that are not whole" if counts.torn else ""
        return [f"the trace has no NCCL call in {counts.lines} lines{begun}"]
    found = list(_unread(digest))
    missing = list(_attendance(digest, members, gpus, nodes))
    found += missing
    if not missing and not digest.untracked_calls:
        found += _uneven(digest)
    if nodes > 1 and expected_transport is not None:
        found += _transport(digest, members, expected_transport)
    return found


def _unread(digest: NcclDigest) -> Iterator[str]:
    counts = digest.counts
    if not digest.done:
        size, read = (
            sum(column) for column in zip(*((file.size, file.read) for file in digest.files), strict=True)
        )
        yield f"the trace was not read to its end: {read} bytes of at least {size}"
    if digest.torn_share > _TORN:
        yield f"{counts.torn} of {counts.calls + counts.torn} calls cannot be read: the lines are torn, or of a format that is not known"
    if digest.other_ranks[0]:
        yield f"{digest.other_ranks[0]} calls are of more ranks than can be told apart"
    if digest.untracked_calls:
        yield f"{digest.untracked_calls} calls are of more communicators than can be told apart: the trace may not be whole"


def _attendance(digest: NcclDigest, members: Sequence[Rank], gpus: int, nodes: int) -> Iterator[str]:
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
        yield f"the ranks are on {hosts} host{'s' if hosts > 1 else ''}, the case has {nodes} node{'s' if nodes > 1 else ''}"


def _absent(digest: NcclDigest, members: Sequence[Rank], gpus: int, nodes: int) -> str:
    """`rank 3 is missing` if NCCL printed ranks; otherwise which hosts have fewer of them than the others."""
    known = {rank.rank for rank in members}
    if digest.world == gpus and None not in known:
        absent = sorted(set(range(gpus)) - {rank for rank in known if rank is not None})
        return f"{listed('rank', absent)} {'are' if len(absent) > 1 else 'is'} missing"
    each = Counter(rank.host for rank in members)
    full = gpus // nodes
    few = [f"{digest.hosts[host]} has {seen} of {full}" for host, seen in sorted(each.items()) if seen < full]
    if len(each) < nodes:
        few.insert(0, f"{len(each)} of {nodes} nodes have any")
    return _some(few) if few else f"{len(each)} hosts have some"


def _uneven(digest: NcclDigest) -> Iterator[str]:
    members = set(digest.members())
    # A call whose line lost the begin of its host's name is one of a rank that there is not.
    torn = digest.counts.torn + sum(rank.calls for rank in digest.ranks if rank not in members)
    for uneven in digest.uneven:
        fewer = [
            (digest.ranks[index], calls) for index, calls in uneven.fewer if digest.ranks[index] in members
        ]
        share = _LOST_SHARE + 2 * digest.torn_share
        # Lines are torn where several ranks print at once, so in short traces they are not spread evenly.
        lost = min(torn, max(_LOST, share * uneven.calls, 2 * math.sqrt(uneven.calls)))
        fewer = [(rank, calls) for rank, calls in fewer if uneven.calls - calls > lost]
        if fewer:
            least, most = min(calls for _, calls in fewer), max(calls for _, calls in fewer)
            yield (
                f"the trace is not whole: in communicators of {uneven.nranks} ranks others made {uneven.calls} collective "
                f"calls, {_named(digest, [rank for rank, _ in fewer])} {f'{least} to {most}' if least < most else least}"
            )


def _transport(digest: NcclDigest, members: Iterable[Rank], expected: str) -> Iterator[str]:
    """A channel between nodes is positive proof; what a rank merely chose counts if it shows no channel."""
    other: defaultdict[str, list[Rank]] = defaultdict(list)
    unknown: list[Rank] = []
    proved, hosts = set(), set()
    for rank in members:
        hosts.add(rank.host)
        if rank.setup is None:
            unknown.append(rank)
            continue
        setup = digest.setups[rank.setup]
        networks = [
            name.partition("/")[2] for name in setup.transports if name.startswith(("NET/", "COLLNET/"))
        ]
        if networks:
            proved.add(rank.host)
        for network in networks or [
            name for name in setup.networks if _is(name, "Socket") and not _is(expected, "Socket")
        ]:
            if not _is(network, expected):
                other[network].append(rank)
    for network, ranks in sorted(other.items()):
        yield f"the network is {network}, not {expected}: {_named(digest, ranks)}"
    if unknown:
        yield f"too many set-ups: the network of {_named(digest, unknown)} is not known"
    unproved = sorted(hosts - proved - {rank.host for ranks in other.values() for rank in ranks})
    if unproved:
        yield f"no channel over a network is seen on {_some([digest.hosts[host] for host in unproved])}"


def _is(network: str, expected: str) -> bool:
    """Whether `AWS Libfabric/GDRDMA` is `Libfabric`. An aggregation network (SHARP) is that of InfiniBand."""
    name, *flags = network.split("/")
    wanted, *needed = expected.split("/")
    starts = name.rpartition(" ")[2].lower().startswith(wanted.lower()) or (
        name == "SHARP" and wanted.lower() == "ib"
    )
    return starts and set(needed) <= set(flags)


def _named(digest: NcclDigest, ranks: Sequence[Rank]) -> str:
    """`ranks 8 to 15 on gpu-01`, or by GPUs if NCCL printed no ranks."""
    hosts: defaultdict[int, list[Rank]] = defaultdict(list)
    for rank in ranks:
        hosts[rank.host].append(rank)
    told = []
    for host, there in sorted(hosts.items()):
        known = [rank.rank for rank in there if rank.rank is not None]
        which = (
            listed("rank", sorted(known))
            if len(known) == len(there)
            else listed("GPU", sorted({rank.gpu for rank in there}))
        )
        told.append(f"{which} on {digest.hosts[host]}")
    return _some(told)


def _some(texts: Sequence[str]) -> str:
    rest = len(texts) - _MOST_NAMED
    return ", ".join(texts[:_MOST_NAMED]) + (f" and {rest} more hosts" if rest > 0 else "")


def table(digest: NcclDigest) -> str:
    """Calls, bytes and mean size by collective and size of communicator, the most bytes first. Of all ranks together."""
    sums: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for call in digest.calls:
        row = sums[call.collective, str(call.nranks)]
        row[0] += call.calls
        row[1] += call.bytes
    if digest.other_calls[0]:
        sums["others", ""] = list(digest.other_calls)
    lines = [f"{'collective':<15} {'ranks':>6} {'calls':>12} {'bytes':>12} {'mean size':>12}"]
    for (name, nranks), (calls, size) in sorted(sums.items(), key=lambda item: (-item[1][1], item[0])):
        lines.append(f"{name:<15} {nranks:>6} {calls:>12} {in_units(size):>12} {in_units(size / calls):>12}")
    return "\n".join(lines)


def in_units(size: float) -> str:
    """`512 B`, `1.50 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.3g} {unit}"
