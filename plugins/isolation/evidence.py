"""What is known in the middle of an isolation: the tests so far, who is accused, and how a suspect is confirmed.

What measures is a generator: it yields the probes of a round and is sent their results.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from plugins.isolation.answer import Answer, Culprit, Ending, Part, Test, percent
from plugins.isolation.probes import Groups, Nodes, Probe, Result, disjoint
from plugins.isolation.statistics import FEWEST, LEAST, MANY, SHARE, Peers, tail, two_kinds

Value = TypeVar("Value")
Search = Generator[list[Probe], list[Result], Value]

# The noise of a probe, as a share, for which its usual length is enough.
NOISE = 0.006
# A part explains the loss of a job if it is slower by this share of the loss. Nobody is suspected for less, nor for less than `LEAST`.
EXPLAINS = 0.5
# The share of fleets in which a good part has as many slow tests by chance as one that is accused.
DOUBT = 0.001
# What is slow half of the time is slow in this share of its tests.
OFTEN = 0.4
# Good nodes are of two kinds if these are so many times as far apart as one node is from the others by chance.
UNEQUAL = 1.2


class Unequal(Exception):
    """The good nodes of a round do not tell how fast the fleet is by then, so it proves nothing, and the search ends."""


@dataclass
class Evidence:
    """What is known so far. `loss` is by how much the job was slow, as a share; `length` is that of the probes from now on.
    `beside` says what tests are compared with. `first` has the time of a node alone, 1, and of a pair, 2, in the
    first round that told it. `slower` has the parts that were slower in a part of the search, and by how much.
    """

    nodes: Nodes
    loss: float
    length: int = 1
    beside: str = "its peers"
    alone: Peers | None = None
    pairs: Peers | None = None
    tests: list[Test] = field(default_factory=list)
    culprits: list[Culprit] = field(default_factory=list)
    failed: list[Result] = field(default_factory=list)
    first: dict[int, float] = field(default_factory=dict)
    slower: dict[str, float] = field(default_factory=dict)

    @property
    def least(self) -> float:
        """The slowness below which nobody is suspected."""
        return max(LEAST, EXPLAINS * self.loss)

    def measure(
        self, groups: Groups, runs: int = 1, references: Groups | None = None
    ) -> Search[list[Result]]:
        """Probe these nodes or pairs, as many at once as share no node. What failed is tried once more: it tells nothing.

        The pace of a fleet, or of a leaf, may change from round to round, by heat, say. So times are told as they would have been
        at first: by those of `references`, which run in each round, or if None are given, by all that no uplink slows.
        Raises `Unequal` if none of the references ran, or if they are of two kinds by then.
        """
        results: list[Result] = []
        good = [Probe(pair, 1, self.length) for pair in references or ()]
        for members in disjoint(groups):
            tried = yield [*(Probe(nodes, runs, self.length) for nodes in members), *good]
            ran = [result for result in tried if result.runs]
            beside = [result for result in ran if result.probe in good]
            inner = [each for each in ran if self.nodes.same_leaf(each.probe.nodes[0], each.probe.nodes[-1])]
            if good and not beside:
                self.failed += [result for result in tried if not result.runs]
                raise Unequal("no probe ran on the good nodes that tell how fast the fleet is by then")
            self._require_alike(beside)
            paces = self._paces(inner, FEWEST) if references is None else self._paces(beside, 1)
            again = [each.probe for each in tried if not each.runs and each.probe not in good]
            tried = (yield again) if again else []
            ran += [result for result in tried if result.runs]
            for result in ran:
                pace = max(paces[self.nodes.leaf_of(node)] for node in result.probe.nodes)
                results += [] if result in beside else [result.at(pace)]
            self.failed += [result for result in tried if not result.runs]
        return results

    def _paces(self, results: Sequence[Result], fewest: int) -> Mapping[str, float]:
        """How many times as long the nodes of each leaf take as the first ones did; 1 if these are too few to tell.

        A leaf is slower than all are only if each of its pairs is.
        """
        if len(results) < fewest:
            return defaultdict(lambda: 1.0)
        # A quarter is faster, so that a slow half changes nothing.
        fleet = sorted(result.seconds for result in results)[len(results) // 4]
        first = self.first.setdefault(len(results[0].probe.nodes), fleet)
        paces = defaultdict(lambda: fleet / first)
        for leaf, seconds in self._by_leaf(results).items():
            if leaf and len(seconds) >= max(fewest - 1, 2) and min(seconds) > fleet:
                paces[leaf] = min(seconds) / first
                self.note(f"leaf {leaf}", min(seconds) / fleet - 1)
        return paces

    def _by_leaf(self, results: Sequence[Result]) -> Mapping[str, list[float]]:
        """The seconds of the pairs of each leaf; under "" those of all others."""
        of_leaf: defaultdict[str, list[float]] = defaultdict(list)
        for result in results:
            leaf = self.nodes.leaf_of(*result.probe.nodes)
            of_leaf[leaf if len(result.probe.nodes) == 2 else ""].append(result.seconds)
        return of_leaf

    def _require_alike(self, results: Sequence[Result]) -> None:
        """Raise `Unequal` if a quarter of these good nodes are slower than others, and whole leaves do not explain it."""
        of_leaves = self._by_leaf(results)
        good = [seconds for leaf, seconds in of_leaves.items() if leaf or len(of_leaves) == 1]
        seconds = sorted(each for of_leaf in good for each in of_leaf)
        if self.alone is None or len(seconds) < FEWEST:
            return
        # One may be fast by chance, and one slow.
        fast, slow = seconds[1], seconds[-max(round(SHARE * len(seconds)), 2)]
        third = (slow - fast) / 3
        mixed = any(min(of_leaf) < fast + third and max(of_leaf) > slow - third for of_leaf in good)
        if mixed and slow / fast - 1 > UNEQUAL * self.alone.noise:
            raise Unequal(
                f"good nodes took up to {percent(slow / fast - 1)} longer than others in a part of the search"
            )

    def note(self, part: str, slowness: float) -> None:
        """Note that a part was slower by so much, a share, in a part of the search."""
        if slowness > self.least:
            self.slower[part] = max(slowness, self.slower.get(part, 0.0))

    def judge(self, results: Sequence[Result], peers: Peers) -> list[Test]:
        """Each start of these probes beside its peers."""
        tests = []
        for result in results:
            for run in result.runs:
                slowness = peers.slowness(run.seconds)
                # No healthy test is so slow, whatever the job lost.
                lesser = 2 * peers.noise < slowness <= peers.limit
                tests.append(Test(result.probe.nodes, slowness, slowness > peers.limit, run.since, lesser))
        self.tests += tests
        return tests

    @property
    def excluded(self) -> set[str]:
        """The nodes that are no part of further steps: culprits, and nodes on which no probe runs by itself."""
        unfit = {result.probe.nodes[0] for result in self.failed if len(result.probe.nodes) == 1}
        culprits = [culprit for culprit in self.culprits if culprit.part is not Part.LINK]
        return unfit | {node for culprit in culprits for node in culprit.nodes}

    @property
    def unspoiled(self) -> list[Test]:
        """The tests that no excluded node has a part in."""
        excluded = self.excluded
        return [test for test in self.tests if excluded.isdisjoint(test.nodes)]

    def unresolved(self) -> list[Test]:
        """Tests of nodes that are not accused, which were slow, also by less than explains the loss."""
        accused = {node for culprit in self.culprits for node in culprit.nodes}
        tests = [test for test in self.tests if accused.isdisjoint(test.nodes)]
        return [test for test in tests if test.slow or test.lesser]

    def missing(self) -> str:
        """What was not tested, in words; "" if nothing is missing.

        Each node is to be tested alone and in a pair, its leaf, if it is known, with another one, and each link of the ring.
        """
        alone = {test.nodes[0] for test in self.tests if len(test.nodes) == 1}
        pairs = [test.nodes for test in self.tests if len(test.nodes) == 2]
        tested = alone.intersection(node for pair in pairs for node in pair)
        if self.nodes.leaves_known:
            leaves = self.nodes.leaves
            crossed = {leaves[node] for pair in pairs if not self.nodes.same_leaf(*pair) for node in pair}
            tested = {node for node in tested if leaves[node] in crossed}
        if len(tested) < self.nodes.count:
            return f"too few ran on {self.nodes.count - len(tested)} of {self.nodes.count} nodes"
        links, ran = self.nodes.neighbours(self.excluded), {frozenset(test.nodes) for test in self.tests}
        return next(
            (f"none ran on {' with '.join(link)}" for link in links if frozenset(link) not in ran), ""
        )

    def peers(self, results: Sequence[Result]) -> Peers:
        """What these results are compared to: the fast ones, if many have a slow node. Where half of them are many, these tell the scatter."""
        seconds = [result.seconds for result in results]
        seconds, _ = two_kinds(seconds) or (seconds, [])
        center = statistics.median(seconds)
        fast = [each for each in seconds if each <= center]
        if len(fast) < MANY // 4:
            return Peers.of(seconds, self.least)
        mirrored = Peers.of([*fast, *(2 * center - each for each in fast)], self.least)
        return replace(mirrored, count=len(seconds))

    def beside_baseline(self, results: Sequence[Result]) -> Peers | None:
        """What these results are compared to if each has the same baseline; None if not."""
        baselines = {result.expected for result in results}
        baseline = baselines.pop() if len(baselines) == 1 else None
        if baseline is None:
            return None
        return Peers(baseline.seconds, NOISE, MANY, max(baseline.band, EXPLAINS * self.loss))

    def slow_alone(self, results: Sequence[Result], peers: Peers) -> Search[list[str]]:
        """The nodes that are slow by themselves: those that are in these results are probed twice more."""
        suspects = [test.nodes[0] for test in self.judge(results, peers) if test.slow]
        self.judge((yield from self.measure([(node,) for node in suspects], 2, ())), peers)
        return [node for node in suspects if self.slowness(node) > peers.limit]

    def slowness(self, node: str) -> float:
        """The mean slowness of a node by itself."""
        return statistics.fmean(test.slowness for test in self.tests if test.nodes == (node,))

    def answer(self, ending: Ending, reason: str = "") -> Answer:
        peers = self.pairs or self.alone
        smallest = peers.smallest if peers else math.inf
        doubtful = frozenset(node for test in self.unresolved() for node in test.nodes)
        return Answer(ending, reason, tuple(self.culprits), tuple(self.failed), smallest, doubtful)

    def cannot_tell(self, reason: str) -> Answer:
        return self.answer(Ending.CANNOT_TELL, reason)

    def whole_fleet(self, count: int, slowness: float, apart: str = "") -> Answer:
        """The answer if the median of so many nodes is slower than the baseline. Those that ran may be a minority."""
        words = f"the median node is {percent(slowness)} slower than the baseline of one node{apart}"
        if 2 * count > self.nodes.count:
            return self.answer(Ending.WHOLE_FLEET, words)
        return self.cannot_tell(f"probes ran on {count} of {self.nodes.count} nodes: {words}")

    def accuse(self, part: Part, nodes: tuple[str, ...], tests: Sequence[Test], name: str = "") -> None:
        slow = [test for test in tests if test.slow]
        slowness, since = statistics.fmean(test.slowness for test in slow), max(test.since for test in slow)
        self.culprits.append(Culprit(part, nodes, slowness, len(slow), len(tests), name, self.beside, since))

    def by_chance(self, nodes: Iterable[str], tests: Sequence[Test]) -> bool:
        """Whether so many of these tests of some nodes are slow by chance, as tests of other nodes are that are mostly fast."""
        suspected = set(nodes)
        others = [test for test in self.unspoiled if suspected.isdisjoint(test.nodes)]
        suspects = set(often_slow((node, test.slow) for test in others for node in test.nodes))
        fast = [test.slow for test in others if not suspects & set(test.nodes)]
        # Of none that is slow, half of one may be (Jeffreys).
        share = (sum(fast) + 0.5) / (len(fast) + 1)
        return tail(sum(test.slow for test in tests), len(tests), share) > DOUBT / self.nodes.count

    def fast(self, node: str) -> float:
        """Which share of the pairs of a node was fast."""
        pairs = [test for test in self.tests if node in test.nodes and len(test.nodes) == 2]
        return sum(not test.slow for test in pairs) / max(len(pairs), 1)

    def unfit(self, suspects: Iterable[str]) -> set[str]:
        """These nodes, and those that a slow test had a part in."""
        doubtful = {node for test in self.tests if test.slow for node in test.nodes}
        return doubtful | self.excluded | set(suspects)


def often_slow(tests: Iterable[tuple[str, bool]]) -> list[str]:
    """The nodes or leaves of which many tests are slow; each test is given by one of these, and whether it is slow."""
    slow: defaultdict[str, list[bool]] = defaultdict(list)
    for name, is_slow in tests:
        slow[name].append(is_slow)
    return [name for name, each in slow.items() if statistics.fmean(each) >= OFTEN]
