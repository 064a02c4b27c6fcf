"""The values of an isolation: the nodes of the slow job, probes on one or two of them, and what they measured."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Generator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TypeVar

Pair = tuple[str, str]
Groups = Sequence[tuple[str, ...]]
# So many nodes of a leaf are slow by its uplink, and not each by itself.
UPLINK = 4


@dataclass(frozen=True)
class Run:
    """One start of the probe on all nodes of its test.

    `seconds` is the median time of its steps; `error` the standard error of that, as a share of it. If its pace fell on the
    way, `seconds` is that of its last steps, which are slow from step `since` on.
    """

    seconds: float
    error: float
    since: int = 0


@dataclass(frozen=True)
class Expected:
    """The baseline of a probe: the `seconds` of a step, and the share `band` by which a healthy machine may be slower."""

    seconds: float
    band: float


@dataclass(frozen=True)
class Probe:
    """A job on one node, or on two: the probe is started `runs` times, and each start takes `length` times the usual steps."""

    nodes: tuple[str, ...]
    runs: int = 1
    length: int = 1


@dataclass(frozen=True)
class Result:
    """What a probe measured. `runs` is empty if it failed, and `reason` says how. `expected` is None if it has no baseline."""

    probe: Probe
    runs: tuple[Run, ...] = ()
    reason: str = ""
    expected: Expected | None = None

    @property
    def seconds(self) -> float:
        """The mean time of a step over all starts."""
        return statistics.fmean(run.seconds for run in self.runs)

    def at(self, pace: float) -> Result:
        """What it measured, in times of a fleet that takes 1/`pace` as long."""
        return replace(self, runs=tuple(replace(run, seconds=run.seconds / pace) for run in self.runs))


@dataclass(frozen=True)
class Nodes:
    """The nodes of the job that was slow, in the order of its ring, and the leaf switch of each, where known.

    `missing` is how many nodes it had that the cluster did not name.
    """

    ring: tuple[str, ...]
    leaves: Mapping[str, str]
    missing: int = 0

    @property
    def count(self) -> int:
        return len(self.ring) + self.missing

    def neighbours(self, excluded: Collection[str] = ()) -> list[Pair]:
        """Each node with the next one in the ring, which closes over those that are excluded."""
        ring = [node for node in self.ring if node not in excluded]
        if len(ring) < 3:
            return list(pairwise(ring))
        return [*pairwise(ring), (ring[-1], ring[0])]

    @cached_property
    def leaves_known(self) -> bool:
        """Whether the leaf of each node is known, and there are several."""
        return len(set(self.leaves.values())) > 1 and self.leaves.keys() >= set(self.ring)

    def leaf_of(self, *nodes: str) -> str:
        """The leaf that these nodes are on; "" if they are on several, or the leaf of any node of the job is not known."""
        leaves = {self.leaves[node] for node in nodes} if self.leaves_known else set()
        return leaves.pop() if len(leaves) == 1 else ""

    def same_leaf(self, first: str, second: str) -> bool:
        """Whether both nodes are on one leaf, as far as is known: all are if the leaf of any node is not."""
        return not self.leaves_known or self.leaves[first] == self.leaves[second]

    def by_leaf(self, excluded: Collection[str] = ()) -> list[str]:
        """The nodes with those of a leaf side by side, otherwise in the order of the ring."""
        order = {leaf: place for place, leaf in enumerate(dict.fromkeys(map(self.leaves.get, self.ring)))}
        nodes = [node for node in self.ring if node not in excluded]
        return sorted(nodes, key=lambda node: order[self.leaves.get(node)])

    def side_by_side(self, excluded: Collection[str] = ()) -> list[Pair]:
        """Pairs of nodes that share no node, most of one leaf."""
        order = self.by_leaf(excluded)
        return list(zip(order[::2], order[1::2], strict=False))

    def far_apart(self, excluded: Collection[str] = ()) -> list[Pair]:
        """Pairs of nodes half of the fleet apart, those of a leaf side by side."""
        order = self.by_leaf(excluded)
        half = len(order) // 2
        return list(zip(order[:half], order[half:], strict=False))

    def within_leaves(self, excluded: Collection[str] = ()) -> list[Pair]:
        """Pairs of nodes of one leaf that share no node, and are no neighbours."""
        neighbours = {frozenset(pair) for pair in self.neighbours(excluded)}
        pairs = [pair for pair in self.side_by_side(excluded) if self.same_leaf(*pair)]
        return [pair for pair in pairs if frozenset(pair) not in neighbours]

    def behind_uplinks(self, slow: Set[tuple[str, ...]], fast: Set[tuple[str, ...]]) -> set[tuple[str, ...]]:
        """The slow pairs of nodes on two leaves that a slow uplink would explain: no pair of its leaf is fast, and `UPLINK` of its nodes are slow."""
        working = {self.leaves[node] for pair in fast for node in pair}
        nodes = Counter(self.leaves[node] for node in {node for pair in slow for node in pair})
        uplinks = {leaf for leaf, count in nodes.items() if leaf not in working and count >= UPLINK}
        return {pair for pair in slow if any(self.leaves[node] in uplinks for node in pair)}


Value = TypeVar("Value")
Search = Generator[list[Probe], list[Result], Value]
"""A part of a search: it yields the probes of a round, is sent their results, and returns its value."""


def disjoint(groups: Groups) -> list[list[tuple[str, ...]]]:
    """The groups of nodes in rounds, each in the first one that its nodes allow: no node is twice in a round."""
    rounds: list[list[tuple[str, ...]]] = []
    busy: list[set[str]] = []
    for nodes in groups:
        place = next((n for n, members in enumerate(busy) if members.isdisjoint(nodes)), len(rounds))
        if place == len(rounds):
            rounds.append([])
            busy.append(set())
        rounds[place].append(nodes)
        busy[place].update(nodes)
    return rounds
