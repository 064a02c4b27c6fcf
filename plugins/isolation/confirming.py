"""How a suspect of an isolation is confirmed: nodes, links and leaves, with good ones beside them."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from plugins.isolation.answer import Answer, Part, Test
from plugins.isolation.evidence import EXPLAINS, Evidence, Search, often_slow
from plugins.isolation.probes import Pair
from plugins.isolation.statistics import Peers

# Pairs of good nodes, and good nodes, that run beside suspects, and tell how fast the fleet is by then.
REFERENCES = 8
# Starts of a probe that confirms: a part that is slow half of the time is slow in one of several.
CONFIRMING = 2
# Of one that confirms a link: the network of an end that is slow half of the time looks like it by chance.
CONFIRMING_LINKS = 4
# Pairs with which a leaf is tested a second time.
SAMPLE = 3
# A leaf of fewer nodes has no two further pairs that tell its pace: then its nodes do, each by itself.
SMALL = SAMPLE + 4


def references(evidence: Evidence, near: Iterable[str], busy: Iterable[str]) -> list[Pair]:
    """Good pairs of nodes that are not busy: two of each leaf of the near nodes, then those of all, `REFERENCES` at least."""
    leaves, taken = {evidence.nodes.leaf_of(node) for node in near}, evidence.excluded.union(busy)
    fast = [test.nodes for test in evidence.tests if len(test.nodes) == 2 and not test.slow]
    tested = [pair for pair in fast if evidence.nodes.same_leaf(*pair)]
    of_leaf: defaultdict[str, list[Pair]] = defaultdict(list)
    for pair in (*tested, *evidence.nodes.side_by_side(evidence.unfit(taken))):
        if taken.isdisjoint(pair):
            taken.update(pair)
            of_leaf[evidence.nodes.leaf_of(*pair)].append(pair)
    ranks = [
        (n > 1 or leaf not in leaves, n, pair) for leaf in of_leaf for n, pair in enumerate(of_leaf[leaf])
    ]
    return [pair for *_, pair in sorted(ranks)[: max(REFERENCES, 2 * len(leaves))]]


def _partners(evidence: Evidence, suspects: Mapping[str, str]) -> list[Pair]:
    """Each suspect with a good node that it was not tested with before, of the leaf of the node beside it if there is one."""
    unfit = evidence.unfit(suspects)
    before = {frozenset(test.nodes) for test in evidence.tests}
    pairs: list[Pair] = []
    used: set[str] = set()
    for suspect, place in suspects.items():
        new = [node for node in evidence.nodes.ring if frozenset((suspect, node)) not in before]
        fit = [node for node in new if node not in unfit]
        fit.sort(key=lambda node: (node in used, not evidence.nodes.same_leaf(place, node)))
        if fit:
            used.add(fit[0])
            pairs.append((suspect, fit[0]))
    return pairs


def confirm(evidence: Evidence, suspects: Sequence[str], links: Sequence[Pair]) -> Search[None]:
    """Test suspects with two different good nodes each; a link with each of its ends and a third node, and once more."""
    own_leaf = {node: node for node in suspects}
    ends = {node: end for link in links for node, end in (link, link[::-1]) if node not in own_leaf}
    runs = CONFIRMING_LINKS if links else CONFIRMING
    tests = yield from _together(evidence, _partners(evidence, own_leaf | ends), runs)
    own_leaf |= {test.nodes[0]: test.nodes[0] for test in tests if test.slow}
    second = [link for link in links if not set(link) & own_leaf.keys()]
    yield from _together(evidence, [*_partners(evidence, own_leaf), *second], runs)
    yield from _alone_again(evidence, own_leaf)
    # A good node is slow with each of two bad ones, and fast with others: it comes after them, whose tests then say nothing of it.
    for node in sorted(own_leaf, key=evidence.fast):
        _decide(evidence, node)
    cleared = [link for link in links if not set(link) & evidence.excluded and link not in second]
    yield from _together(evidence, cleared, runs)
    for link in (*second, *cleared):
        _decide_link(evidence, link)


def _alone_again(evidence: Evidence, nodes: Iterable[str]) -> Search[None]:
    """Probe several nodes that were fast by themselves once more, beside good ones: many may have become slow together."""
    slow = {test.nodes for test in evidence.tests if test.slow}
    suspects = [(node,) for node in nodes if (node,) not in slow]
    if len(suspects) < 2 or evidence.alone is None:
        return
    unfit = evidence.unfit(nodes)
    good = [(node,) for node in evidence.nodes.by_leaf() if node not in unfit]
    results = yield from evidence.measure(suspects, CONFIRMING, good[:: len(good) // REFERENCES + 1])
    evidence.judge(results, evidence.alone)


def _fell(evidence: Evidence, node: str, tests: Sequence[Test]) -> bool:
    """Whether a node that was fast by itself has become slow meanwhile, which explains these tests."""
    first, *again = [test.slowness for test in evidence.tests if test.nodes == (node,)]
    most = EXPLAINS * statistics.fmean(test.slowness for test in tests)
    if first > most or not again or min(again) <= most:
        return False
    evidence.note(node, min(again))
    return True


def _together(evidence: Evidence, pairs: Sequence[Pair], runs: int) -> Search[list[Test]]:
    """Probe pairs of nodes beside good ones, and judge them."""
    if not pairs:
        return []
    ends = {node for pair in pairs for node in pair}
    results = yield from evidence.measure(pairs, runs, references(evidence, ends, ends))
    if evidence.pairs is None and evidence.alone is not None and 2 in evidence.first:
        # So few pairs do not tell how they scatter: as single nodes do.
        evidence.pairs = replace(evidence.alone, center=evidence.first[2])
    return evidence.judge(results, evidence.pairs) if evidence.pairs else []


def _decide_link(evidence: Evidence, link: Pair) -> None:
    """Accuse a link whose every test was slow, if both of its ends were fast by themselves and with others, and with all of them."""
    tests = [test for test in evidence.tests if set(test.nodes) == set(link)]
    without = [test for test in evidence.unspoiled if len(set(test.nodes) & set(link)) == 1]
    if len(tests) < 2 or not all(test.slow for test in tests):
        return
    # Where all pairs of an end are somewhat slow, some are below the limit by chance.
    most = EXPLAINS * statistics.fmean(test.slowness for test in tests)
    tested = {node for test in without if len(test.nodes) == 2 for node in test.nodes}
    if evidence.by_chance(link, tests):
        return
    if tested.issuperset(link) and not any(test.slow or test.slowness > most for test in without):
        evidence.accuse(Part.LINK, link, tests)


def _decide(evidence: Evidence, node: str) -> None:
    """Accuse a node that was slow by itself and with another one, or with two others, none of which is accused."""
    tests = [test for test in evidence.unspoiled if node in test.nodes]
    with_others = [test for test in tests if len(test.nodes) == 2]
    slow = [test for test in with_others if test.slow]
    if not slow or len({test.nodes for test in tests if test.slow}) < 2 or _fell(evidence, node, slow):
        return
    by_itself = evidence.slowness(node) > EXPLAINS * statistics.fmean(test.slowness for test in slow)
    if evidence.by_chance((node,), tests if by_itself else with_others):
        return
    if by_itself:
        evidence.accuse(Part.NODE, (node,), tests)
    elif _within_leaf(evidence, node, slow, with_others):
        evidence.accuse(Part.NETWORK, (node,), with_others)


def _within_leaf(evidence: Evidence, node: str, slow: Sequence[Test], tests: Sequence[Test]) -> bool:
    """Whether these slow tests of the pairs of a node tell it from one behind a slow uplink, which is fast within its leaf."""
    if not evidence.nodes.leaves_known:
        return len(slow) == len(tests)
    partners = {end for test in slow if evidence.nodes.same_leaf(*test.nodes) for end in test.nodes} - {node}
    return any(evidence.fast(partner) for partner in partners)


def confirm_leaves(evidence: Evidence, suspects: Sequence[str], paths: Peers) -> Search[Answer | None]:
    """Test each leaf with another one, which is not suspect."""
    if not suspects:
        return None
    leaves, order = evidence.nodes.leaves, evidence.nodes.by_leaf(evidence.excluded)
    members = {leaf: [node for node in order if leaves[node] == leaf] for leaf in set(leaves.values())}
    before = {frozenset(leaves[node] for node in test.nodes) for test in evidence.tests}
    good = [leaf for leaf in dict.fromkeys(leaves.values()) if leaf not in suspects]
    pairs: list[Pair] = []
    for leaf in suspects:
        good.sort(key=lambda partner: frozenset((leaf, partner)) in before)
        for partner in good[:1]:
            pairs += list(zip(members[leaf], members[partner], strict=False))[:SAMPLE]
        good = good[1:] + good[:1]
    ends = {node for pair in pairs for node in pair}
    results = yield from evidence.measure(pairs, 1, references(evidence, ends, ends))
    tests = evidence.judge(results, paths)
    slow = slow_leaves(evidence, tests)
    across = {leaf: _across_leaf(evidence, members[leaf]) for leaf in suspects if leaf in slow}
    small = [node for leaf in across if len(members[leaf]) < SMALL for node in members[leaf]]
    yield from _alone_again(evidence, small)
    # One that is slow only with slow ones comes after them, whose tests then say nothing of it.
    for leaf in sorted(across, key=lambda leaf: statistics.fmean(not test.slow for test in across[leaf])):
        of_leaf = [test for test in across[leaf] if not set(test.nodes) & evidence.excluded]
        nodes = {node for test in of_leaf if test.slow for node in test.nodes if node in members[leaf]}
        if len(nodes) == 1 < len(members[leaf]):
            continue  # so is one of its nodes
        fell = [node for node in members[leaf] if _fell(evidence, node, of_leaf)]
        if not fell and not evidence.by_chance(members[leaf], of_leaf):
            evidence.accuse(Part.LEAF, tuple(members[leaf]), of_leaf, leaf)
    if evidence.culprits:
        return None
    reason = f"leaves {' and '.join(suspects)} are slow, but not with each of their partners"
    return evidence.cannot_tell(reason)


def _across_leaf(evidence: Evidence, members: Sequence[str]) -> list[Test]:
    """The tests of the nodes of a leaf with those of others."""
    pairs = [test for test in evidence.tests if len(test.nodes) == 2]
    return [test for test in pairs if len(set(test.nodes) & set(members)) == 1]


def slow_leaves(evidence: Evidence, tests: Sequence[Test]) -> list[str]:
    """The leaves of which most pairs in these tests are slow."""
    return often_slow((evidence.nodes.leaves[node], test.slow) for test in tests for node in test.nodes)
