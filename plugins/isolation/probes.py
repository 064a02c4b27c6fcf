"""The values of an isolation: the nodes of the slow job, probes on one or two of them, what they measured, and the answer."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Generator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from typing import TypeVar

from plugins.base.words import first_of

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


# So many nodes are named in a sentence.
SHOWN = 8


class Part(StrEnum):
    """What is slow."""

    NODE = "node"
    """A node by itself."""
    NETWORK = "network"
    """A node, as soon as it works with another one."""
    LINK = "link"
    """Two nodes with each other; each is fast with a third."""
    PAIR = "pair"
    """Two nodes with each other; no third one tells whether it is their link or the network of one of them."""
    LEAF = "leaf"
    """The nodes of a leaf switch with those of others, and not with each other."""


class Ending(StrEnum):
    """How an isolation ends."""

    ISOLATED = "isolated"
    ALIKE = "all alike"
    WHOLE_FLEET = "slow as a whole"
    TWO_KINDS = "two kinds of nodes"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True)
class Test:
    """A start of a probe beside its peers. `lesser`: it is slow beyond doubt, and by less than explains the loss."""

    nodes: tuple[str, ...]
    slowness: float
    slow: bool
    since: int = 0
    lesser: bool = False

    def __str__(self) -> str:
        slowness = percent(self.slowness)
        if self.since:
            slowness += f" from step {self.since} on"
        return f"{' with '.join(self.nodes)} ({slowness})"


@dataclass(frozen=True)
class Culprit:
    """A part that is slow, with the tests that say so. `slowness` is that of the slow tests, as a share, `beside` what they
    were compared with. One of them was slow from its step `since` on, if that is not 0.
    """

    part: Part
    nodes: tuple[str, ...]
    slowness: float
    slow: int
    tests: int
    name: str = ""
    beside: str = "its peers"
    since: int = 0

    def __str__(self) -> str:
        often = "each" if self.slow == self.tests else str(self.slow)
        words = f"{self._what}: {percent(self.slowness)} slower than {self.beside} in {often} of {self.tests} tests"
        if self.since:
            return f"{words}, intermittent: one was slow from step {self.since} on"
        if self.slow < self.tests:
            return f"{words}, intermittent"
        return words

    @property
    def _what(self) -> str:
        if self.part is Part.LEAF:
            return f"the uplink of leaf {self.name} ({len(self.nodes)} nodes)"
        if self.part is Part.LINK:
            return f"the link {self.nodes[0]}-{self.nodes[1]}"
        if self.part is Part.PAIR:
            return f"the link {self.nodes[0]}-{self.nodes[1]} (or the network of one of them)"
        if self.part is Part.NETWORK:
            return f"the network of {self.nodes[0]}"
        return self.nodes[0]


@dataclass(frozen=True)
class Answer:
    """How an isolation ended. `failed` are the tests that did not run, `smallest` the least slowness that was sure to be seen.

    `doubtful` are the nodes of slow tests which no culprit had a part in.
    """

    ending: Ending
    reason: str
    culprits: tuple[Culprit, ...] = ()
    failed: tuple[Result, ...] = ()
    smallest: float = 0.0
    doubtful: frozenset[str] = frozenset()

    def __str__(self) -> str:
        failed: dict[str, list[str]] = {}
        for result in self.failed:
            reason = " ".join(map(str.strip, result.reason.splitlines()[:2]))
            failed.setdefault(reason, []).append(" with ".join(result.probe.nodes))
        missing = (f"no probe ran on {first_of(nodes, SHOWN)}: {reason}" for reason, nodes in failed.items())
        return "; ".join([self._finding, *missing])

    @property
    def _finding(self) -> str:
        if self.ending is Ending.ISOLATED:
            return "; ".join(map(str, self.culprits))
        if self.ending is Ending.ALIKE:
            return f"no node: all are alike; what is {percent(self.smallest)} slower all of the time would have been seen"
        if self.ending is Ending.CANNOT_TELL:
            return f"cannot tell which node: {self.reason}"
        return f"no node: {self.reason}"

    @property
    def accused(self) -> frozenset[str]:
        return frozenset(node for culprit in self.culprits for node in culprit.nodes)


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"
