"""The digest of an NCCL trace as values. Pure.

`plugins.modes.nccl` makes the digest where the trace lies. It comes from a cluster, so nothing of it is trusted.
"""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, StringConstraints, ValidationError, model_validator

from plugins.errors import Infrastructure
from plugins.yaml_mistakes import first_mistake
from plugins.yamlfile import Strict

MOST_BYTES = 1_000_000
"""No digest is longer."""

# A process with fewer calls than this share of the median is no rank: its name is that of a torn line.
_STRAY = 0.01
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


class TraceFile(NamedTuple):
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
    """See `plugins.modes.nccl` for what is counted, and what a byte is. What is `other` had no room of its own."""

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
    files: tuple[TraceFile, ...]
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
