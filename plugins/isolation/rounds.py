"""The rounds of an isolation: which probes run together, and how their times compare with those of the first round.

`progress` tells from the results of the probes' jobs how far the isolation is.
`confirm` and `confirm_leaves` test suspects once more, beside good ones, and accuse those that are slow again.
"""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from plugins.isolation.evidence import FEWEST, Evidence, Peers, compared, explaining, often_slow
from plugins.isolation.probes import (
    Answer,
    Groups,
    Nodes,
    Pair,
    Part,
    Probe,
    Result,
    Search,
    Test,
    disjoint,
    percent,
)

# How many good nodes, or pairs of them, run beside suspects. They tell how fast the fleet is in that round.
REFERENCES = 8
# How many pairs within a leaf tell its pace: of all pairs that run; of references, which are known to be good.
PAIRS_OF_LEAF, GOOD_PAIRS_OF_LEAF = 3, 2
# Good nodes are of two kinds if their distance is more than this many times what chance explains for one node.
UNEQUAL = 1.2
# Each of the two kinds is at least this share of the good nodes.
UNEQUAL_SHARE = 0.25


class Unequal(Exception):
    """The good nodes of a round do not tell how fast the fleet is. So it proves nothing: the search ends with `evidence`."""

    def __init__(self, reason: str, evidence: Evidence) -> None:
        super().__init__(reason)
        self.evidence = evidence


@dataclass(frozen=True)
class _Pace:
    """How many seconds a probe of `count` nodes takes in a round: on the fleet, and on each leaf that is slower than the fleet."""

    count: int
    fleet: float
    leaves: Mapping[str, float]

    @classmethod
    def of(cls, nodes: Nodes, results: Sequence[Result], fewest: int) -> _Pace:
        """The pace of these results. A leaf is slower than the fleet only if `fewest` of its pairs ran, and each is slower."""
        # A quarter is faster, so that a slow half changes nothing.
        fleet = sorted(result.seconds for result in results)[len(results) // 4]
        fastest = {
            leaf: min(seconds)
            for leaf, seconds in _by_leaf(nodes, results).items()
            if leaf and len(seconds) >= fewest
        }
        leaves = {leaf: seconds for leaf, seconds in fastest.items() if seconds > fleet}
        return cls(len(results[0].probe.nodes), fleet, leaves)

    def on(self, leaves: Iterable[str]) -> float:
        """The seconds of a probe on nodes of these leaves. The slowest leaf counts."""
        return max(self.leaves.get(leaf, self.fleet) for leaf in leaves)


def measure(
    evidence: Evidence, groups: Groups, runs: int = 1, references: Groups | None = None
) -> Search[tuple[Evidence, list[Result]]]:
    """Probe these nodes or pairs in rounds; groups of one round share no node. A probe that failed is tried once more.

    The fleet, or a leaf, may become slower from round to round, for example when it heats up. So each time is converted
    to what it would have been in the first round.

    The `references` are good nodes or pairs that run in each round, and tell how much slower the fleet is now. If they
    are None, all pairs within leaves tell it. If they are empty, times are not converted.

    Raises `Unequal` if no reference ran, or if the references are of two kinds.
    """
    measured: list[Result] = []
    good = [Probe(nodes, 1, evidence.length) for nodes in references or ()]
    for members in disjoint(groups):
        tried = yield [*(Probe(nodes, runs, evidence.length) for nodes in members), *good]
        ran = [result for result in tried if result.runs]
        if references is None:
            pace = _pace_within_leaves(evidence.nodes, ran)
        else:
            beside = [result for result in ran if result.probe in good]
            if good and not beside:
                reason = "no probe ran on the good nodes that tell how fast the fleet is by then"
                raise Unequal(reason, evidence.with_failed(tried))
            _require_alike(evidence, beside)
            pace = _Pace.of(evidence.nodes, beside, GOOD_PAIRS_OF_LEAF) if beside else None
        again = [result.probe for result in tried if not result.runs and result.probe not in good]
        repeated = (yield again) if again else []
        results = [result for result in (*ran, *repeated) if result.runs and result.probe not in good]
        if pace is not None:
            evidence = _with_pace(evidence, pace)
            results = [_in_first_round(evidence, pace, result) for result in results]
        measured += results
        evidence = evidence.with_failed(repeated)
    return evidence, measured


def _pace_within_leaves(nodes: Nodes, results: Sequence[Result]) -> _Pace | None:
    """The pace of the nodes and pairs that no uplink slows; None if too few of them ran."""
    inner = [result for result in results if nodes.same_leaf(result.probe.nodes[0], result.probe.nodes[-1])]
    return _Pace.of(nodes, inner, PAIRS_OF_LEAF) if len(inner) >= FEWEST else None


def _with_pace(evidence: Evidence, pace: _Pace) -> Evidence:
    """The evidence with the pace of a round and its slower leaves. It is the first pace if there was none before."""
    evidence = replace(evidence, first={pace.count: pace.fleet, **evidence.first})
    for leaf, seconds in pace.leaves.items():
        evidence = evidence.with_slower(f"leaf {leaf}", seconds / pace.fleet - 1)
    return evidence


def _in_first_round(evidence: Evidence, pace: _Pace, result: Result) -> Result:
    """What a probe of the round with this pace would have measured in the first round."""
    leaves = {evidence.nodes.leaf_of(node) for node in result.probe.nodes}
    return result.at(pace.on(leaves) / evidence.first[pace.count])


def _by_leaf(nodes: Nodes, results: Sequence[Result]) -> Mapping[str, list[float]]:
    """The seconds of the pairs within each leaf; under "" those of all other results."""
    of_leaf: defaultdict[str, list[float]] = defaultdict(list)
    for result in results:
        pair = len(result.probe.nodes) == 2
        of_leaf[nodes.leaf_of(*result.probe.nodes) if pair else ""].append(result.seconds)
    return of_leaf


def _require_alike(evidence: Evidence, results: Sequence[Result]) -> None:
    """Raise `Unequal` if a quarter of these good nodes are slower than others, and whole leaves do not explain it."""
    of_leaves = _by_leaf(evidence.nodes, results)
    good = [seconds for leaf, seconds in of_leaves.items() if leaf or len(of_leaves) == 1]
    seconds = sorted(each for of_leaf in good for each in of_leaf)
    if evidence.alone is None or len(seconds) < FEWEST:
        return
    # One may be fast by chance, and one slow.
    fast, slow = seconds[1], seconds[-max(round(UNEQUAL_SHARE * len(seconds)), 2)]
    third = (slow - fast) / 3
    mixed = any(min(of_leaf) < fast + third and max(of_leaf) > slow - third for of_leaf in good)
    apart = slow / fast - 1
    if mixed and apart > UNEQUAL * evidence.alone.noise:
        reason = f"good nodes took up to {percent(apart)} longer than others in a part of the search"
        raise Unequal(reason, evidence)


def good_pairs(evidence: Evidence, near: Iterable[str], busy: Iterable[str]) -> list[Pair]:
    """Good pairs of nodes that are not busy, as references. They were fast within a leaf, or their nodes were never slow.

    Two pairs of each leaf with a `near` node come first, then pairs of all leaves in turn. There are at most
    `REFERENCES`, or two for each near leaf if that is more.
    """
    nodes = evidence.nodes
    leaves, taken = {nodes.leaf_of(node) for node in near}, evidence.excluded.union(busy)
    fast = [test.nodes for test in evidence.tests if len(test.nodes) == 2 and not test.slow]
    tested = [pair for pair in fast if nodes.same_leaf(*pair)]
    pairs: defaultdict[str, list[Pair]] = defaultdict(list)
    for pair in (*tested, *nodes.side_by_side(evidence.unfit | taken)):
        if taken.isdisjoint(pair):
            taken.update(pair)
            pairs[nodes.leaf_of(*pair)].append(pair)
    ranks = [(n > 1 or leaf not in leaves, n, pair) for leaf in pairs for n, pair in enumerate(pairs[leaf])]
    return [pair for *_, pair in sorted(ranks)[: max(REFERENCES, 2 * len(leaves))]]


_MODE = re.compile(r"isolate(\d+)x(\d+)\.(\d+)-(.+)")


@dataclass(frozen=True)
class ProbeJob:
    """A job of an isolation: a start of a probe in a round, both counted from 1. Its name is the mode of the job."""

    round: int
    probe: Probe
    run: int

    @property
    def name(self) -> str:
        return f"isolate{self.round}x{self.probe.length}.{self.run}-{'+'.join(self.probe.nodes)}"

    @classmethod
    def parse(cls, mode: str) -> ProbeJob | None:
        """The job with this mode, as that of a probe that was started once; None if it is no job of an isolation."""
        match = _MODE.fullmatch(mode)
        if match is None:
            return None
        number, length, run, nodes = match.groups()
        return cls(int(number), Probe(tuple(nodes.split("+")), length=int(length)), int(run))


def nodes_of(mode: str) -> str:
    """The list of nodes that a job with this mode runs on; "" if it is no job of an isolation."""
    job = ProbeJob.parse(mode)
    return ",".join(job.probe.nodes) if job else ""


def jobs_of(number: int, probe: Probe) -> list[ProbeJob]:
    """The jobs of a probe in a round."""
    return [ProbeJob(number, probe, run) for run in range(1, probe.runs + 1)]


@dataclass(frozen=True)
class Round:
    """The probes of a round that are not over."""

    number: int
    probes: tuple[Probe, ...]


def progress(search: Search[Answer], result: Callable[[int, Probe], Result | None]) -> Round | Answer:
    """The answer, or the round that the search is in. `result` gives what a probe measured in a round; None if it is not over."""
    try:
        probes = next(search)
        for number in count(1):
            results = [result(number, probe) for probe in probes]
            over = [each for each in results if each is not None]
            if len(over) < len(probes):
                return Round(
                    number, tuple(probe for probe, each in zip(probes, results, strict=True) if each is None)
                )
            probes = search.send(over)
    except StopIteration as end:
        answer: Answer = end.value
        return answer
    raise AssertionError("a search ends")


# How often a confirming probe is started. A part that is slow half of the time is slow in one of several starts.
CONFIRMING = 2
# The same where a link is confirmed. An end whose network is slow half of the time may look like a slow link.
CONFIRMING_LINKS = 4
# How many pairs test a leaf the second time.
SAMPLE = 3
# A leaf of fewer nodes does not have two other pairs that tell its pace. So each of its nodes is probed alone.
SMALL = SAMPLE + 4


def confirm(evidence: Evidence, suspects: Sequence[str], links: Sequence[Pair]) -> Search[Evidence]:
    """Test suspect nodes and links again, and accuse those that are slow again.

    1. Each suspect, and each end of a link, is tested with a good node. An end that is slow is a suspect from now on.
    2. Each suspect is tested with another good node. Each link without a suspect end is tested.
    3. Nodes, or their networks, are accused.
    4. A link with a suspect end is tested now if no end was accused. Links are accused.
    """
    starts = CONFIRMING_LINKS if links else CONFIRMING
    # A suspect gets partners on its own leaf. An end of a link gets one on the other end's leaf, behind the same uplink.
    places = {node: node for node in suspects}
    ends = {node: end for link in links for node, end in (link, link[::-1]) if node not in places}
    evidence, tests = yield from _test_pairs(evidence, _partners(evidence, places | ends), starts)
    places |= {test.nodes[0]: test.nodes[0] for test in tests if test.slow}
    second = [link for link in links if places.keys().isdisjoint(link)]
    evidence, _ = yield from _test_pairs(evidence, [*_partners(evidence, places), *second], starts)
    evidence = yield from _alone_again(evidence, places)
    # A good node is slow in its tests with two bad nodes, and fast in others. The bad ones come first, so that these
    # tests do not count for the good one.
    for node in sorted(places, key=evidence.share_fast):
        evidence = _with_node(evidence, node)
    cleared = [link for link in links if evidence.excluded.isdisjoint(link) and link not in second]
    evidence, _ = yield from _test_pairs(evidence, cleared, starts)
    for link in (*second, *cleared):
        evidence = _with_link(evidence, link)
    return evidence


def confirm_leaves(evidence: Evidence, suspects: Sequence[str], paths: Peers) -> Search[Evidence | Answer]:
    """Test pairs of nodes between each suspect leaf and a good leaf, and accuse the leaves that are slow again."""
    if not suspects:
        return evidence
    members = _members(evidence)
    pairs = _between_leaves(evidence, suspects, members)
    ends = {node for pair in pairs for node in pair}
    evidence, results = yield from measure(evidence, pairs, 1, good_pairs(evidence, ends, ends))
    tests = compared(results, paths)
    evidence, slow = evidence.with_tests(tests), slow_leaves(evidence, tests)
    across = {leaf: _leaving(evidence, members[leaf]) for leaf in suspects if leaf in slow}
    small = [node for leaf in across if len(members[leaf]) < SMALL for node in members[leaf]]
    evidence = yield from _alone_again(evidence, small)
    # A leaf that is slow only with slow leaves comes last, so that these tests do not count for it.
    for leaf in sorted(across, key=lambda leaf: statistics.fmean(not test.slow for test in across[leaf])):
        evidence = _with_leaf(evidence, leaf, members[leaf])
    if evidence.culprits:
        return evidence
    return evidence.cannot_tell(
        f"leaves {' and '.join(suspects)} are slow, but not with each of their partners"
    )


def slow_leaves(evidence: Evidence, tests: Sequence[Test]) -> list[str]:
    """The leaves with at least the share `OFTEN` of their pairs slow in these tests."""
    return often_slow((evidence.nodes.leaves[node], test.slow) for test in tests for node in test.nodes)


# Which pairs are tested


def _partners(evidence: Evidence, places: Mapping[str, str]) -> list[Pair]:
    """A pair of each node in `places` with a good node, if there is one that it was not tested with before.

    If possible, the good node is in no other pair, and is on the leaf of the node that `places` gives.
    """
    nodes, unfit = evidence.nodes, evidence.unfit.union(places)
    before = {frozenset(test.nodes) for test in evidence.tests}
    pairs: list[Pair] = []
    used: set[str] = set()
    for suspect, place in places.items():
        fit = [node for node in nodes.ring if node not in unfit and frozenset((suspect, node)) not in before]
        if fit:
            partner = min(fit, key=lambda node: (node in used, not nodes.same_leaf(place, node)))
            used.add(partner)
            pairs.append((suspect, partner))
    return pairs


def _members(evidence: Evidence) -> dict[str, list[str]]:
    """The nodes of each leaf that are not excluded."""
    leaves, order = evidence.nodes.leaves, evidence.nodes.by_leaf(evidence.excluded)
    return {leaf: [node for node in order if leaves[node] == leaf] for leaf in set(leaves.values())}


def _between_leaves(
    evidence: Evidence, suspects: Sequence[str], members: Mapping[str, Sequence[str]]
) -> list[Pair]:
    """Up to `SAMPLE` pairs of nodes between each suspect leaf and a good leaf.

    If possible, it is a good leaf that the suspect was not tested with before. The good leaves take turns.
    """
    leaves = evidence.nodes.leaves
    before = {frozenset(leaves[node] for node in test.nodes) for test in evidence.tests}
    good = [leaf for leaf in dict.fromkeys(leaves.values()) if leaf not in suspects]
    pairs: list[Pair] = []
    for leaf in suspects:
        good.sort(key=lambda partner: frozenset((leaf, partner)) in before)
        for partner in good[:1]:
            pairs += list(zip(members[leaf], members[partner], strict=False))[:SAMPLE]
        good = good[1:] + good[:1]
    return pairs


# Rounds that confirm


def _test_pairs(
    evidence: Evidence, pairs: Sequence[Pair], starts: int
) -> Search[tuple[Evidence, list[Test]]]:
    """Probe pairs of nodes beside good pairs. Returns the new evidence and the tests of these pairs."""
    if not pairs:
        return evidence, []
    ends = {node for pair in pairs for node in pair}
    evidence, results = yield from measure(evidence, pairs, starts, good_pairs(evidence, ends, ends))
    if evidence.pairs is None and evidence.alone is not None and 2 in evidence.first:
        # So few pairs do not tell their scatter, so that of single nodes is used.
        evidence = replace(evidence, pairs=replace(evidence.alone, center=evidence.first[2]))
    tests = compared(results, evidence.pairs) if evidence.pairs else []
    return evidence.with_tests(tests), tests


def _alone_again(evidence: Evidence, nodes: Iterable[str]) -> Search[Evidence]:
    """Probe the nodes that were fast alone once more, beside good nodes. Many may have become slow together."""
    peers, slow = evidence.alone, {test.nodes for test in evidence.tests if test.slow}
    groups = [(node,) for node in nodes if (node,) not in slow]
    if len(groups) < 2 or peers is None:
        return evidence
    unfit = evidence.unfit.union(nodes)
    good = [(node,) for node in evidence.nodes.by_leaf() if node not in unfit]
    references = good[:: len(good) // REFERENCES + 1]
    evidence, results = yield from measure(evidence, groups, CONFIRMING, references)
    return evidence.with_tests(compared(results, peers))


# Who is accused


def _with_node(evidence: Evidence, node: str) -> Evidence:
    """Accuse a node that was slow alone and with another node, or with two others. Tests with accused nodes do not count.

    If the node alone is slow enough to explain the slow pairs, it is accused itself, else its network.
    """
    tests = [test for test in evidence.unspoiled if node in test.nodes]
    with_others = [test for test in tests if len(test.nodes) == 2]
    slow = [test for test in with_others if test.slow]
    if not slow or len({test.nodes for test in tests if test.slow}) < 2:
        return evidence
    became = _became_slow(evidence, node, slow)
    if became is not None:
        return evidence.with_slower(node, became)
    by_itself = evidence.slowness(node) > explaining(slow)
    if evidence.by_chance((node,), tests if by_itself else with_others):
        return evidence
    if by_itself:
        return evidence.accusing(Part.NODE, (node,), tests)
    if _within_leaf(evidence, node, with_others):
        return evidence.accusing(Part.NETWORK, (node,), with_others)
    return evidence


def _became_slow(evidence: Evidence, node: str, tests: Sequence[Test]) -> float | None:
    """The slowness of a node alone, if it was fast in its first test and has become slow enough to explain `tests`; else None."""
    first, *again = [test.slowness for test in evidence.tests if test.nodes == (node,)]
    enough = explaining(tests)
    return min(again) if again and first <= enough < min(again) else None


def _within_leaf(evidence: Evidence, node: str, tests: Sequence[Test]) -> bool:
    """Whether a node is slow with a node of its own leaf that is fast with others, so that its uplink is not the cause.

    If leaves are not known: whether it is slow in all of these tests.
    """
    slow = [test for test in tests if test.slow]
    if not evidence.nodes.leaves_known:
        return len(slow) == len(tests)
    partners = {end for test in slow if evidence.nodes.same_leaf(*test.nodes) for end in test.nodes} - {node}
    return any(evidence.share_fast(partner) for partner in partners)


def _with_link(evidence: Evidence, link: Pair) -> Evidence:
    """Accuse a link that was slow in each of two tests or more, if no test of only one of its ends explains that.

    Each end must have been tested with a third node.
    """
    tests = [test for test in evidence.tests if set(test.nodes) == set(link)]
    if len(tests) < 2 or not all(test.slow for test in tests) or evidence.by_chance(link, tests):
        return evidence
    of_ends = [test for test in evidence.unspoiled if len(set(test.nodes) & set(link)) == 1]
    tested = {node for test in of_ends if len(test.nodes) == 2 for node in test.nodes}
    # If all pairs of an end are somewhat slow, some are below the limit by chance.
    explained = any(test.slow or test.slowness > explaining(tests) for test in of_ends)
    if explained or not tested.issuperset(link):
        return evidence
    return evidence.accusing(Part.LINK, link, tests)


def _with_leaf(evidence: Evidence, leaf: str, members: Sequence[str]) -> Evidence:
    """Accuse the uplink of a leaf that is slow with other leaves, if neither a single node nor chance explains it."""
    tests = [test for test in _leaving(evidence, members) if evidence.excluded.isdisjoint(test.nodes)]
    slow = {node for test in tests if test.slow for node in test.nodes if node in members}
    if len(slow) == 1 < len(members):
        return evidence  # One of its nodes explains it.
    became = {node: _became_slow(evidence, node, tests) for node in members}
    fell = {node: slowness for node, slowness in became.items() if slowness is not None}
    for node, slowness in fell.items():
        evidence = evidence.with_slower(node, slowness)
    if fell or evidence.by_chance(members, tests):
        return evidence
    return evidence.accusing(Part.LEAF, tuple(members), tests, leaf)


def _leaving(evidence: Evidence, members: Sequence[str]) -> list[Test]:
    """The tests of pairs with one node among these members of a leaf and the other on another leaf."""
    pairs = [test for test in evidence.tests if len(test.nodes) == 2]
    return [test for test in pairs if len(set(test.nodes) & set(members)) == 1]
