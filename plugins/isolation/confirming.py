"""How suspects are confirmed: nodes, links and leaves are tested beside good nodes once more, and those that are slow again are accused."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from plugins.isolation.answer import Answer, Part, Test
from plugins.isolation.evidence import Evidence, Peers, compared, explaining, often_slow
from plugins.isolation.probes import Pair, Search
from plugins.isolation.rounds import REFERENCES, good_pairs, measure

# Starts of a probe that confirms: a part that is slow half of the time is slow in one of several.
CONFIRMING = 2
# Of one that confirms a link: the network of an end that is slow half of the time looks like it by chance.
CONFIRMING_LINKS = 4
# Pairs with which a leaf is tested a second time.
SAMPLE = 3
# A leaf of fewer nodes has no two further pairs that tell its pace: then its nodes do, each by itself.
SMALL = SAMPLE + 4


def confirm(evidence: Evidence, suspects: Sequence[str], links: Sequence[Pair]) -> Search[Evidence]:
    """Test each suspect with two different good nodes. Test each end of a link with a third node, then the link once more.

    An end that is slow with its third node is a suspect too. If it is not accused, its link is tested again at last.
    """
    starts = CONFIRMING_LINKS if links else CONFIRMING
    # Each suspect gets partners of its own leaf. An end of a link gets one of the other end's leaf, behind the same uplink.
    places = {node: node for node in suspects}
    ends = {node: end for link in links for node, end in (link, link[::-1]) if node not in places}
    evidence, tests = yield from _test_pairs(evidence, _partners(evidence, places | ends), starts)
    places |= {test.nodes[0]: test.nodes[0] for test in tests if test.slow}
    second = [link for link in links if places.keys().isdisjoint(link)]
    evidence, _ = yield from _test_pairs(evidence, [*_partners(evidence, places), *second], starts)
    evidence = yield from _alone_again(evidence, places)
    # A good node is slow with each of two bad ones, and fast with others. It comes after them: their tests then do not count.
    for node in sorted(places, key=evidence.share_fast):
        evidence = _with_node(evidence, node)
    cleared = [link for link in links if evidence.excluded.isdisjoint(link) and link not in second]
    evidence, _ = yield from _test_pairs(evidence, cleared, starts)
    for link in (*second, *cleared):
        evidence = _with_link(evidence, link)
    return evidence


def confirm_leaves(evidence: Evidence, suspects: Sequence[str], paths: Peers) -> Search[Evidence | Answer]:
    """Test pairs of each suspect leaf with another leaf, which is not suspect, and accuse those that are slow again."""
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
    # A leaf that is slow only with slow ones comes after them: their tests then do not count.
    for leaf in sorted(across, key=lambda leaf: statistics.fmean(not test.slow for test in across[leaf])):
        evidence = _with_leaf(evidence, leaf, members[leaf])
    if evidence.culprits:
        return evidence
    return evidence.cannot_tell(
        f"leaves {' and '.join(suspects)} are slow, but not with each of their partners"
    )


def slow_leaves(evidence: Evidence, tests: Sequence[Test]) -> list[str]:
    """The leaves of which most pairs in these tests are slow."""
    return often_slow((evidence.nodes.leaves[node], test.slow) for test in tests for node in test.nodes)


# Which pairs are tested


def _partners(evidence: Evidence, places: Mapping[str, str]) -> list[Pair]:
    """Each node of `places` with a good one that it was not tested with before, if there is one.

    The good one is of the leaf of the node that `places` names, and has no other partner, if possible.
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
    """Pairs of nodes of each suspect leaf and a good one: a leaf that it was not tested with before, and each in turn, if possible."""
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
    """Probe pairs of nodes beside good ones, and compare them."""
    if not pairs:
        return evidence, []
    ends = {node for pair in pairs for node in pair}
    evidence, results = yield from measure(evidence, pairs, starts, good_pairs(evidence, ends, ends))
    if evidence.pairs is None and evidence.alone is not None and 2 in evidence.first:
        # So few pairs do not tell how they scatter: as single nodes do.
        evidence = replace(evidence, pairs=replace(evidence.alone, center=evidence.first[2]))
    tests = compared(results, evidence.pairs) if evidence.pairs else []
    return evidence.with_tests(tests), tests


def _alone_again(evidence: Evidence, nodes: Iterable[str]) -> Search[Evidence]:
    """Probe those nodes that were fast by themselves once more, beside good ones: many may have become slow together."""
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
    """Accuse a node that was slow by itself and with another one, or with two others, none of which is accused."""
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
    """How slow a node has become by itself, if it was fast at first and that explains these tests; None if not."""
    first, *again = [test.slowness for test in evidence.tests if test.nodes == (node,)]
    enough = explaining(tests)
    return min(again) if again and first <= enough < min(again) else None


def _within_leaf(evidence: Evidence, node: str, tests: Sequence[Test]) -> bool:
    """Whether a node is slow within its leaf, so that it is not the uplink; if leaves are not known, in all of its tests."""
    slow = [test for test in tests if test.slow]
    if not evidence.nodes.leaves_known:
        return len(slow) == len(tests)
    partners = {end for test in slow if evidence.nodes.same_leaf(*test.nodes) for end in test.nodes} - {node}
    return any(evidence.share_fast(partner) for partner in partners)


def _with_link(evidence: Evidence, link: Pair) -> Evidence:
    """Accuse a link whose every test was slow, if both of its ends were fast by themselves and in all tests with others."""
    tests = [test for test in evidence.tests if set(test.nodes) == set(link)]
    if len(tests) < 2 or not all(test.slow for test in tests) or evidence.by_chance(link, tests):
        return evidence
    of_ends = [test for test in evidence.unspoiled if len(set(test.nodes) & set(link)) == 1]
    tested = {node for test in of_ends if len(test.nodes) == 2 for node in test.nodes}
    # Where all pairs of an end are somewhat slow, some are below the limit by chance.
    explained = any(test.slow or test.slowness > explaining(tests) for test in of_ends)
    if explained or not tested.issuperset(link):
        return evidence
    return evidence.accusing(Part.LINK, link, tests)


def _with_leaf(evidence: Evidence, leaf: str, members: Sequence[str]) -> Evidence:
    """Accuse the uplink of a leaf that is slow with others, if neither one of its nodes nor chance explains it."""
    tests = [test for test in _leaving(evidence, members) if evidence.excluded.isdisjoint(test.nodes)]
    slow = {node for test in tests if test.slow for node in test.nodes if node in members}
    if len(slow) == 1 < len(members):
        return evidence  # so is one of its nodes
    became = {node: _became_slow(evidence, node, tests) for node in members}
    fell = {node: slowness for node, slowness in became.items() if slowness is not None}
    for node, slowness in fell.items():
        evidence = evidence.with_slower(node, slowness)
    if fell or evidence.by_chance(members, tests):
        return evidence
    return evidence.accusing(Part.LEAF, tuple(members), tests, leaf)


def _leaving(evidence: Evidence, members: Sequence[str]) -> list[Test]:
    """The tests of the nodes of a leaf with those of other leaves."""
    pairs = [test for test in evidence.tests if len(test.nodes) == 2]
    return [test for test in pairs if len(set(test.nodes) & set(members)) == 1]
