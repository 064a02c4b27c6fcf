"""The digest of an NCCL trace: as values, as a table, and as a plot of bytes by size of message and collective. Pure.

`plugins.logs.nccl` makes the digest where the trace lies. It comes from a cluster, so nothing of it is trusted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from statistics import median
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, StringConstraints, ValidationError, model_validator

from plugins.base.errors import Infrastructure
from plugins.base.svg import stacked_bars
from plugins.base.yamlfile import Strict, first_mistake
from plugins.logs.log import Process

MOST_BYTES = 1_000_000
"""No digest is longer."""

# A process with fewer calls than this share of the median is no rank: its name is that of a torn line.
_STRAY = 0.01
_COLOURS = ("#1f5fa8", "#2e8b57", "#c0392b", "#8e6bbf", "#d08a1d", "#4aa3a3", "#888888")

_Number = Annotated[int, Field(ge=0, lt=1 << 63)]
_Host = Annotated[str, StringConstraints(pattern=r"^[\w.-]{1,63}$")]
_Name = Annotated[str, StringConstraints(pattern=r"^[\w ./;:-]{1,64}$")]


class Call(NamedTuple):
    """The calls of one collective, size of communicator and size of message: below 2**`bits` bytes, and at least half of it."""

    collective: _Name
    nranks: _Number
    bits: _Number
    calls: _Number
    bytes: _Number


class Rank(NamedTuple):
    """A process and its GPU. `rank` is known only if the subsystem INIT was on. `setup` is None if there was no room."""

    host: _Number
    pid: _Number
    gpu: _Number
    rank: _Number | None
    setup: _Number | None
    calls: _Number


class Setup(Strict):
    """What ranks chose: networks and plug-ins by name, the transports of their channels, the network devices of these.

    If there are too many set-ups to list, some are without their devices.
    """

    networks: tuple[_Name, ...]
    plugins: tuple[_Name, ...]
    transports: tuple[_Name, ...]
    devices: tuple[_Name, ...]


class Uneven(Strict):
    """Communicators of one size whose members differ: `fewer` has ranks that made fewer than `calls`, with theirs."""

    nranks: _Number
    calls: _Number
    fewer: tuple[tuple[_Number, _Number], ...]


class Counts(Strict):
    """Lines: all, calls, and calls that are not whole."""

    lines: _Number
    calls: _Number
    torn: _Number


class NcclDigest(Strict):
    """See `plugins.logs.nccl` for what is counted, and what a byte is. What is `other` had no room of its own.

    Of `size` bytes so many were `read`; `done`: up to the end.
    """

    version: Literal[1]
    counts: Counts
    calls: tuple[Call, ...]
    other_calls: tuple[_Number, _Number]
    untracked_calls: _Number
    hosts: tuple[_Host, ...]
    setups: tuple[Setup, ...]
    world: _Number
    ranks: tuple[Rank, ...]
    other_ranks: _Number
    uneven: tuple[Uneven, ...]
    size: _Number
    read: _Number
    done: bool

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

    def process(self, rank: Rank) -> Process:
        """What this rank chose; nothing where there was no room for its set-up."""
        setup = {} if rank.setup is None else self.setups[rank.setup].model_dump()
        return Process(self.hosts[rank.host], rank.gpu, rank.rank, **setup)

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
        return NcclDigest.model_validate_json(answer)
    except ValidationError as mistake:
        reason = first_mistake(mistake)
    try:
        error = _Error.model_validate_json(answer).error
    except ValidationError:
        began = answer[:80].decode("utf-8", "replace")
        raise Infrastructure(
            f"the answer is no digest of an NCCL trace: {reason}. It begins: {began}"
        ) from None
    raise Infrastructure(f"the NCCL trace cannot be read where it lies: {error[:300]}")


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


def messages_svg(digest: NcclDigest, title: str) -> str:
    """Stacked bars: one for each power of two of the message's size, a colour for each collective.

    The collectives beyond the six with the most bytes share the last colour.
    """
    names, by_size = _bars(digest)
    bars = [
        (
            f"< {in_units(2**bits)}",
            {name: sizes[name] for name in names if sizes[name]},
            in_units(sum(sizes.values())),
        )
        for bits, sizes in sorted(by_size.items())
    ]
    colours = dict(zip(names, _COLOURS, strict=False))
    return stacked_bars(f"{title}: bytes by size of the message", colours, bars)


def _bars(digest: NcclDigest) -> tuple[list[str], Mapping[int, Mapping[str, int]]]:
    """The names of the collectives, most bytes first, and the bytes of each by the size of the message in bits."""
    totals: Counter[str] = Counter()
    for call in digest.calls:
        totals[call.collective] += call.bytes
    names = sorted(totals, key=lambda name: (-totals[name], name))
    if len(names) >= len(_COLOURS):
        names[len(_COLOURS) - 1 :] = ["others"]
    bars: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for call in digest.calls:
        bars[call.bits][call.collective if call.collective in names else "others"] += call.bytes
    return names, bars


def in_units(size: float) -> str:
    """`512 B`, `1.50 MiB`."""
    if size < 1024:
        return f"{size:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if size < 1024:
            return f"{size:.3g} {unit}"
    return f"{size / 1024:.3g} TiB"
