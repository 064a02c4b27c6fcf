"""What an isolation knows so far, what follows from it, and the limits that decide. Pure: each result makes new evidence.

A node, a link or a leaf with a slow test is a suspect. If further tests of it are slow, it is accused: a culprit.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from plugins.base.scatter import robust_sigma
from plugins.isolation.probes import Answer, Culprit, Ending, Nodes, Part, Result, Run, Test, percent

# The share of healthy fleets in which some test is over the limit by chance, before it is repeated.
CHANCE = 0.01
# Below so many values a robust scatter is itself uncertain.
MANY = 32
# If the true slowness is this many scatters above the limit, 99 % of tests are above the limit.
POWER = 2.33
# The slower of two kinds of hardware is at least this share of the nodes.
SHARE = 0.25
# Fewer do not tell which of them is slow: two of three may be.
FEWEST = 4
APART = 4.0
# A smaller slowness, as a share, accuses nobody, and is no sign of another kind of hardware.
LEAST = 0.025


@dataclass(frozen=True)
class Peers:
    """What tests of one kind are compared with: a `center` in s, and a `scatter` as a share of it.

    `count` is the number of values behind the scatter. Nobody is suspected for a slowness below `least`, a share.
    """

    center: float
    scatter: float
    count: int
    least: float

    @classmethod
    def of(cls, seconds: Sequence[float], least: float) -> Peers:
        center = statistics.median(seconds)
        return cls(center, robust_sigma(seconds) / center, len(seconds), least)

    def slowness(self, seconds: float) -> float:
        """By how much a test is slower than its peers, as a share."""
        return seconds / self.center - 1

    @property
    def limit(self) -> float:
        """The slowness above which a test is suspect."""
        return max(self.noise, self.least)

    @property
    def noise(self) -> float:
        """The slowness of the slowest of these tests that chance explains, and `LEAST` at least."""
        return max(quantile(self.count) * self.scatter, LEAST)

    @property
    def smallest(self) -> float:
        """The smallest slowness that is over the limit in 99 of 100 tests."""
        return self.limit + POWER * self.scatter


def quantile(count: int) -> float:
    """How many scatters above their median one of `count` normal values is by chance in one of 1 / `CHANCE` samples.

    Below `MANY` values it is a t quantile: a scatter of few values is itself uncertain.
    """
    if count >= MANY:
        return statistics.NormalDist().inv_cdf(1 - CHANCE / count)
    # It takes a third of a second to load, scipy.stats twice as long and as much memory.
    from scipy.special import stdtrit

    return float(stdtrit(count - 1, 1 - CHANCE / count))


def tail(count: int, tests: int, share: float) -> float:
    """The probability that `count` or more of independent `tests` are slow, if each is slow with probability `share`."""
    return sum(math.comb(tests, k) * share**k * (1 - share) ** (tests - k) for k in range(count, tests + 1))


def two_kinds(seconds: Sequence[float]) -> tuple[list[float], list[float]] | None:
    """The fast and the slow values, if they are of two kinds, each large; None if they are of one.

    Two normal kinds of equal size have two maxima if Ashman's D, the distance of their means by the root of the mean of
    their variances, is above 2 (Ashman, Bird and Zepf, 1994). The halves of one normal sample have 2.7.
    """
    values = sorted(seconds)
    fewest = max(FEWEST, round(SHARE * len(values)))
    splits = range(fewest, len(values) - fewest + 1)
    if not splits:
        return None
    sums = list(accumulate(values, initial=0.0))

    def between(n: int) -> float:
        """The scatter between both parts of a split. It is largest where the scatter within the parts is smallest."""
        return sums[n] ** 2 / n + (sums[-1] - sums[n]) ** 2 / (len(values) - n)

    split = max(splits, key=between)
    fast, slow = values[:split], values[split:]
    distance = statistics.fmean(slow) - statistics.fmean(fast)
    within = (statistics.variance(fast) + statistics.variance(slow)) / 2
    if distance < LEAST * statistics.fmean(fast) or distance**2 < APART**2 * within:
        return None
    return fast, slow


# The noise of a probe, as a share, for which its usual length is enough.
NOISE = 0.006
# A part explains a loss, or the slowness of tests, if its own slowness is more than this share of it.
EXPLAINS = 0.5
# A part is accused only if a good part has as many slow tests by chance in at most this share of fleets.
DOUBT = 0.001
# A node or a leaf is often slow if at least this share of its tests is. If it is slow half of the time, most samples reach that.
OFTEN = 0.4
# If the fast half has fewer values, it alone does not tell how they scatter.
FEWEST_FAST = 8


@dataclass(frozen=True)
class Evidence:
    """What is known so far.

    `loss` is by how much the job was slow, as a share. `length` is the length of the next probes, in usual lengths.
    Tests of one node are compared with `alone`, tests of two with `pairs`; both are None before their first round.
    `beside` names in words what they are compared with.
    `first` has, by the number of nodes of a probe, its seconds in the first round with such probes.
    `slower` has the parts that became slower during the search, and the most by which they did, as a share.
    """

    nodes: Nodes
    loss: float
    length: int = 1
    beside: str = "its peers"
    alone: Peers | None = None
    pairs: Peers | None = None
    tests: tuple[Test, ...] = ()
    culprits: tuple[Culprit, ...] = ()
    failed: tuple[Result, ...] = ()
    first: Mapping[int, float] = field(default_factory=dict)
    slower: Mapping[str, float] = field(default_factory=dict)

    # With what was learnt

    def with_tests(self, tests: Sequence[Test]) -> Evidence:
        return replace(self, tests=(*self.tests, *tests))

    def with_failed(self, results: Sequence[Result]) -> Evidence:
        """With the probes of these results that did not run."""
        return replace(self, failed=(*self.failed, *(result for result in results if not result.runs)))

    def with_slower(self, part: str, slowness: float) -> Evidence:
        """With a part that became slower by so much, a share; without it if it is too little to be anybody's fault."""
        if slowness <= self.least:
            return self
        return replace(self, slower={**self.slower, part: max(slowness, self.slower.get(part, 0.0))})

    def accusing(self, part: Part, nodes: tuple[str, ...], tests: Sequence[Test], name: str = "") -> Evidence:
        """With a culprit, whose tests these are."""
        slow = [test for test in tests if test.slow]
        slowness, since = statistics.fmean(test.slowness for test in slow), max(test.since for test in slow)
        culprit = Culprit(part, nodes, slowness, len(slow), len(tests), name, self.beside, since)
        return replace(self, culprits=(*self.culprits, culprit))

    # What tests are compared with

    @property
    def least(self) -> float:
        """The slowness below which nobody is suspected."""
        return max(LEAST, EXPLAINS * self.loss)

    def peers(self, results: Sequence[Result]) -> Peers:
        """What these results are compared with: those of the faster kind, if they are of two kinds.

        The scatter is that of the fast half, mirrored at the median; of all values if the fast half has too few.
        """
        seconds = [result.seconds for result in results]
        seconds, _ = two_kinds(seconds) or (seconds, [])
        center = statistics.median(seconds)
        fast = [each for each in seconds if each <= center]
        if len(fast) < FEWEST_FAST:
            return Peers.of(seconds, self.least)
        mirrored = Peers.of([*fast, *(2 * center - each for each in fast)], self.least)
        return replace(mirrored, count=len(seconds))

    def baseline(self, results: Sequence[Result]) -> Peers | None:
        """The baseline of these results, to compare them with; None if they do not all have the same one."""
        baselines = {result.expected for result in results}
        baseline = baselines.pop() if len(baselines) == 1 else None
        if baseline is None:
            return None
        return Peers(baseline.seconds, NOISE, MANY, max(baseline.band, EXPLAINS * self.loss))

    # Whom to test, and whom to believe

    @property
    def excluded(self) -> set[str]:
        """The nodes that take no part in further steps: those on which no probe of one node ran, and accused ones.

        The ends of an accused link are not among them.
        """
        idle = {result.probe.nodes[0] for result in self.failed if len(result.probe.nodes) == 1}
        culprits = [culprit for culprit in self.culprits if culprit.part is not Part.LINK]
        return idle | {node for culprit in culprits for node in culprit.nodes}

    @property
    def unfit(self) -> set[str]:
        """The nodes that are no good partner of a suspect: excluded ones, and those with a slow test."""
        return self.excluded | {node for test in self.tests if test.slow for node in test.nodes}

    @property
    def unspoiled(self) -> list[Test]:
        """The tests without an excluded node."""
        excluded = self.excluded
        return [test for test in self.tests if excluded.isdisjoint(test.nodes)]

    def slowness(self, node: str) -> float:
        """The mean slowness of a node by itself."""
        return statistics.fmean(test.slowness for test in self.tests if test.nodes == (node,))

    def share_fast(self, node: str) -> float:
        """Which share of the tests of a node with another one was fast."""
        pairs = [test for test in self.tests if node in test.nodes and len(test.nodes) == 2]
        return sum(not test.slow for test in pairs) / max(len(pairs), 1)

    def by_chance(self, nodes: Iterable[str], tests: Sequence[Test]) -> bool:
        """Whether chance explains the slow ones among these `tests` of `nodes`.

        The tests of other nodes, without those that are often slow, tell how often a test is slow by chance.
        """
        suspected = set(nodes)
        others = [test for test in self.unspoiled if suspected.isdisjoint(test.nodes)]
        suspects = set(often_slow((node, test.slow) for test in others for node in test.nodes))
        fast = [test.slow for test in others if suspects.isdisjoint(test.nodes)]
        # If none of them is slow, half a test counts as slow (Jeffreys).
        share = (sum(fast) + 0.5) / (len(fast) + 1)
        return tail(sum(test.slow for test in tests), len(tests), share) > DOUBT / self.nodes.count

    # What to answer

    def unresolved(self) -> list[Test]:
        """The slow tests that no culprit explains. Those that are too little slow to explain the loss count too."""
        accused = {node for culprit in self.culprits for node in culprit.nodes}
        tests = [test for test in self.tests if accused.isdisjoint(test.nodes)]
        return [test for test in tests if test.slow or test.lesser]

    def missing(self) -> str:
        """What was not tested, in words; "" if nothing is missing.

        Each node must be tested alone and in a pair, and each link of the ring must be tested. If the leaves are known,
        each leaf must be tested with another one.
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

    def answer(self, ending: Ending, reason: str = "") -> Answer:
        peers = self.pairs or self.alone
        smallest = peers.smallest if peers else math.inf
        doubtful = frozenset(node for test in self.unresolved() for node in test.nodes)
        return Answer(ending, reason, self.culprits, self.failed, smallest, doubtful)

    def cannot_tell(self, reason: str) -> Answer:
        return self.answer(Ending.CANNOT_TELL, reason)

    def whole_fleet(self, count: int, slowness: float, apart: str = "") -> Answer:
        """The answer if the median of `count` nodes is slower than the baseline: cannot tell if these are no majority."""
        words = f"the median node is {percent(slowness)} slower than the baseline of one node{apart}"
        if 2 * count > self.nodes.count:
            return self.answer(Ending.WHOLE_FLEET, words)
        return self.cannot_tell(f"probes ran on {count} of {self.nodes.count} nodes: {words}")


def compared(results: Sequence[Result], peers: Peers) -> list[Test]:
    """Each start of these probes as a test beside its peers."""
    return [_test(result.probe.nodes, run, peers) for result in results for run in result.runs]


def _test(nodes: tuple[str, ...], run: Run, peers: Peers) -> Test:
    slowness = peers.slowness(run.seconds)
    # No healthy test is so slow, whatever the job lost.
    lesser = 2 * peers.noise < slowness <= peers.limit
    return Test(nodes, slowness, slowness > peers.limit, run.since, lesser)


def explaining(tests: Sequence[Test]) -> float:
    """The slowness above which a part of these tests explains them."""
    return EXPLAINS * statistics.fmean(test.slowness for test in tests)


def often_slow(tests: Iterable[tuple[str, bool]]) -> list[str]:
    """The nodes or leaves with at least the share `OFTEN` of their tests slow. A test is a name, and whether it was slow."""
    slow: defaultdict[str, list[bool]] = defaultdict(list)
    for name, is_slow in tests:
        slow[name].append(is_slow)
    return [name for name, each in slow.items() if statistics.fmean(each) >= OFTEN]
