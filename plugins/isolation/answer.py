"""What an isolation answers, as values and in words."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from plugins.base.words import first_of
from plugins.isolation.probes import Result

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
