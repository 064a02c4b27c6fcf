"""Simulated fleets: nodes of which some are slow, by themselves, with others or behind a leaf, and probes that scatter or fail."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterable, Set
from dataclasses import dataclass, field
from functools import partial

from plugins.isolation.probes import Answer, Culprit, Expected, Nodes, Probe, Result, Run
from plugins.isolation.search import isolate

LEAF = 16
SPREAD = 0.007
"""By how much healthy nodes differ, as a share, as cards of one type do."""

BAND = 0.05
"""The band of a baseline, as `baselines/proxy.yaml` has it."""

SLOW, CONGESTED = 0.08, 0.10
"""By how much a slow node, and a slow network, slow the step of a probe."""

DRIFTS = (0.03, 0.05, 0.08)
"""By how much nodes become slower during a search."""

Name = tuple[str, str]


@dataclass
class Fleet:
    """`noise` is that of a probe, as a share. The tables have the slowness of nodes, network cards, links and leaves.

    Each fault happens in the share `often` of all starts; a probe fails by the share `failing`, and is `SLOW` by chance by the
    share `stalling`. `baselines` are those of a node
    and of a pair, in steps of the median node; none if 0. `paces` are how many times as long the probes of each round take on
    the nodes that are `drifting`, or on all if it is None; the last one is that of all further rounds.
    """

    size: int
    noise: float
    random: random.Random
    often: float = 1.0
    failing: float = 0.0
    stalling: float = 0.0
    leaves_known: bool = True
    baselines: tuple[float, float] = (0.0, 0.0)
    paces: tuple[float, ...] = (1.0,)
    drifting: Set[str] | None = None
    nodes: dict[str, float] = field(default_factory=dict)
    cards: dict[str, float] = field(default_factory=dict)
    links: dict[frozenset[str], float] = field(default_factory=dict)
    leaves: dict[str, float] = field(default_factory=dict)
    rounds: int = 0
    node_lengths: int = 0

    def __post_init__(self) -> None:
        self.names = [f"n{number:04}" for number in range(self.size)]
        self.spread = {name: self.random.gauss(0, SPREAD) for name in self.names}
        self.leaf = {name: f"leaf{number // LEAF}" for number, name in enumerate(self.names)}

    def isolate(self, loss: float) -> Answer:
        """Search the fleet as a session does, with probes that are only computed."""
        nodes = Nodes(tuple(self.names), self.leaf if self.leaves_known else {})
        return answered(isolate(nodes, loss), self.round)

    @property
    def faults(self) -> set[Name]:
        links = {("link", "-".join(sorted(link))) for link in self.links}
        return (
            {("node", n) for n in self.nodes}
            | {("network", n) for n in self.cards}
            | links
            | {("leaf", n) for n in self.leaves}
        )

    @property
    def faulty(self) -> set[str]:
        """The nodes that a fault touches, and one that alone becomes slow."""
        alone = self.drifting if self.drifting and len(self.drifting) == 1 else set()
        behind = {name for name in self.names if self.leaf[name] in self.leaves}
        return {*alone, *self.nodes, *self.cards, *(node for link in self.links for node in link), *behind}

    def round(self, probes: list[Probe]) -> list[Result]:
        self.rounds += 1
        return [self.result(probe) for probe in probes]

    def result(self, probe: Probe) -> Result:
        self.node_lengths += len(probe.nodes) * probe.runs * probe.length
        if self.random.random() < self.failing:
            return Result(probe, reason="the node did not answer")
        seconds = self.baselines[len(probe.nodes) - 1]
        return Result(
            probe,
            tuple(self._run(probe) for _ in range(probe.runs)),
            expected=Expected(seconds, BAND) if seconds else None,
        )

    def _run(self, probe: Probe) -> Run:
        noise = self.noise / probe.length**0.5
        slowness = max(self.spread[node] + self._happens(self.nodes.get(node)) for node in probe.nodes)
        if len(probe.nodes) == 2:
            network = [self.cards.get(node) for node in probe.nodes]
            network.append(self.links.get(frozenset(probe.nodes)))
            leaves = {self.leaf[node] for node in probe.nodes}
            if len(leaves) == 2:
                network += [self.leaves.get(leaf) for leaf in leaves]
            slowness += max(map(self._happens, network))
        if self.stalling and self.random.random() < self.stalling:
            slowness += SLOW
        seconds = 1 + slowness + self.random.gauss(0, noise)
        if self.drifting is None or not self.drifting.isdisjoint(probe.nodes):
            seconds *= self.paces[: max(self.rounds, 1)][-1]
        return Run(seconds, noise * self.random.uniform(0.7, 1.3))

    def _happens(self, slowness: float | None) -> float:
        return slowness if slowness is not None and self.random.random() < self.often else 0.0


def answered(
    search: Generator[list[Probe], list[Result], Answer], measure: Callable[[list[Probe]], list[Result]]
) -> Answer:
    """The answer of a search whose rounds are measured so."""
    probes = next(search)
    while True:
        try:
            probes = search.send(measure(probes))
        except StopIteration as end:
            answer: Answer = end.value
            return answer


def name_of(culprit: Culprit) -> Name:
    return str(culprit.part), culprit.name or "-".join(sorted(culprit.nodes))


def slow_nodes(fleet: Fleet, count: int) -> None:
    fleet.nodes = dict.fromkeys(fleet.random.sample(fleet.names, count), SLOW)


def slow_cards(fleet: Fleet, count: int) -> None:
    fleet.cards = dict.fromkeys(fleet.random.sample(fleet.names, count), CONGESTED)


def slow_link(fleet: Fleet) -> None:
    first = fleet.random.randrange(fleet.size)
    fleet.links = {frozenset((fleet.names[first], fleet.names[(first + 1) % fleet.size])): CONGESTED}


def slow_leaf(fleet: Fleet) -> None:
    fleet.leaves = {fleet.random.choice(sorted(set(fleet.leaf.values()))): CONGESTED}


def slow_leaf_across(fleet: Fleet) -> None:
    """A slow leaf, and a ring in which each node is on another leaf than the next."""
    leaves = sorted(set(fleet.leaf.values()))
    fleet.leaf = {name: leaves[number % len(leaves)] for number, name in enumerate(fleet.names)}
    slow_leaf(fleet)


def any_fault(fleet: Fleet) -> None:
    """One that slows a job by `CONGESTED`, about."""
    one, five = (partial(slow_nodes, count=count) for count in (1, 5))
    fleet.random.choice((one, five, partial(slow_cards, count=1), slow_link, slow_leaf))(fleet)


def of_leaves(fleet: Fleet, share: float) -> list[str]:
    """The nodes of this share of the leaves, of one at least."""
    leaves = sorted(set(fleet.leaf.values()))
    chosen = fleet.random.sample(leaves, max(round(share * len(leaves)), 1))
    return [name for name in fleet.names if fleet.leaf[name] in chosen]


def of_nodes(fleet: Fleet, share: float) -> list[str]:
    """This share of the nodes, one at least."""
    return fleet.random.sample(fleet.names, max(round(share * fleet.size), 1))


def drift(fleet: Fleet, part: Callable[[Fleet], Iterable[str]], linear: bool) -> None:
    """Let the nodes of a part become slower: from one round to the next, or by as much in each of five rounds."""
    most = fleet.random.choice(DRIFTS)
    fleet.drifting = frozenset(part(fleet))
    fleet.paces = tuple(1 + most * number / 5 for number in range(6))
    if not linear:
        fleet.paces = (*[1.0] * fleet.random.randint(1, 4), 1 + most)
