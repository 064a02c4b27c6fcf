"""Tests suspect nodes, links and leaves once more, beside good ones. Accuses those that are slow again."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from plugins.isolation.answer import Answer, Part, Test
from plugins.isolation.evidence import Evidence, Peers, compared, explaining, often_slow
from plugins.isolation.probes import Pair, Search
from plugins.isolation.rounds import REFERENCES, good_pairs, measure

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
