"""The search for what slows a job: nodes by themselves, neighbours in its ring, leaves; until a step explains the loss.

A search is a generator: it yields the probes of a round, is sent their results, and returns its answer. It depends on
nothing else, so one that was stopped goes on if it is sent what was measured before.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from plugins.base.words import first_of
from plugins.isolation.evidence import (
    EXPLAINS,
    FEWEST,
    LEAST,
    MANY,
    NOISE,
    Evidence,
    Peers,
    compared,
    two_kinds,
)
from plugins.isolation.probes import SHOWN, Answer, Ending, Nodes, Part, Result, Search, Test, percent
from plugins.isolation.rounds import (
    CONFIRMING,
    Unequal,
    confirm,
    confirm_leaves,
    good_pairs,
    measure,
    slow_leaves,
)

# The noise for which the usual length of a probe is enough, with the error of such an estimate.
NOISE_SEEN = 1.15 * NOISE
LONGEST = 8
# A leaf of fewer nodes spares none that tell its pace while the others are tested with those of other leaves.
LARGE = 12
# If more than `MOST_SLOW` of all pairs are slow, nobody can tell which nodes are good. The same holds if more than
# two links, and more than `MOST_LINKS` of all pairs, are suspect links.
MOST_SLOW, MOST_LINKS = 0.4, 0.25

Step = Search[Evidence | Answer]
"""A step of the search. It returns the answer, or the evidence with which the search goes on."""


def isolate(nodes: Nodes, loss: float) -> Search[Answer]:
    """Find what made a job on these nodes slower by `loss`, a share."""
    evidence, reasons = Evidence(nodes, loss), list[str]()
    try:
        for step in (_alone, _neighbours, _leaves):
            known = yield from step(evidence)
            if isinstance(known, Answer):
                return known
            evidence = known
            if evidence.culprits:
                break
    except Unequal as error:
        evidence, reasons = error.evidence, [str(error)]
    if evidence.culprits:
        return evidence.answer(Ending.ISOLATED)
    return _without_culprit(evidence, reasons)


def _alone(evidence: Evidence) -> Step:
    """Probe each node alone. Those that are slow are probed twice more."""
    nodes = [(node,) for node in evidence.nodes.ring]
    evidence, results = yield from measure(evidence, nodes, 1, ())
    noise = _noise(results)
    if noise > NOISE_SEEN:
        evidence = replace(evidence, length=min(math.ceil((noise / NOISE) ** 2), LONGEST), failed=())
        evidence, results = yield from measure(evidence, nodes, 1, ())
        noise = _noise(results)
    if noise > NOISE_SEEN:
        reason = f"probes of one node scatter by {percent(noise)}"
        return evidence.cannot_tell(f"{reason}, even if they are {evidence.length} times as long")
    if len(results) < FEWEST:
        return (yield from _few(evidence, results))
    kinds = two_kinds([result.seconds for result in results])
    if kinds is not None:
        return evidence.answer(Ending.TWO_KINDS, _of_kinds(*kinds))
    peers, baseline = evidence.peers(results), evidence.baseline(results)
    if baseline is not None and len(results) < MANY and baseline.limit < peers.limit:
        # How few nodes scatter is not known.
        peers = replace(baseline, center=peers.center)
    evidence = replace(evidence, alone=peers, first={**evidence.first, 1: peers.center})
    evidence, slow = yield from _slow_alone(evidence, results, peers)
    evidence = yield from confirm(evidence, slow, ())
    if not evidence.culprits and baseline is not None and baseline.slowness(peers.center) > baseline.limit:
        return evidence.whole_fleet(len(results), baseline.slowness(peers.center))
    return evidence


def _slow_alone(
    evidence: Evidence, results: Sequence[Result], peers: Peers
) -> Search[tuple[Evidence, list[str]]]:
    """Probe the nodes that are slow in these results twice more. Returns those that are slow in the mean of all three."""
    tests = compared(results, peers)
    suspects = [test.nodes[0] for test in tests if test.slow]
    evidence = evidence.with_tests(tests)
    evidence, again = yield from measure(evidence, [(node,) for node in suspects], 2, ())
    evidence = evidence.with_tests(compared(again, peers))
    return evidence, [node for node in suspects if evidence.slowness(node) > peers.limit]


def _few(evidence: Evidence, results: Sequence[Result]) -> Search[Answer]:
    """Three nodes or fewer are too few to be peers: compare each with the baseline of one node, then pairs with that of two."""
    ran = f"probes ran on {len(results)} of {evidence.nodes.count} nodes"
    alone = evidence.baseline(results)
    evidence = replace(evidence, alone=alone, beside="the baseline")
    if alone is None:
        return evidence.cannot_tell(f"{ran}: too few to tell which of them is slow{_apart(results)}")
    evidence, slow = yield from _slow_alone(evidence, results, alone)
    of_slow = [test for test in evidence.tests if test.slow and test.nodes[0] in slow]
    once = [test for test in of_slow if sum(test.nodes == other.nodes for other in of_slow) == 1]
    if once:
        return evidence.cannot_tell(_not_again(once))
    if len(slow) == len(results):
        slowness = statistics.median(map(evidence.slowness, slow))
        return evidence.whole_fleet(len(results), slowness, _apart(results))
    fastest = min(test.slowness for test in evidence.tests)
    if any(evidence.slowness(node) - fastest <= evidence.least for node in slow):
        return evidence.cannot_tell(f"{ran}, each somewhat slower than the baseline{_apart(results)}")
    for node in slow:
        tests = [test for test in evidence.tests if test.nodes == (node,)]
        evidence = evidence.accusing(Part.NODE, (node,), tests)
    if slow:
        return evidence.answer(Ending.ISOLATED)
    neighbours = evidence.nodes.neighbours(evidence.excluded)
    evidence, of_pairs = yield from measure(evidence, neighbours, CONFIRMING)
    pairs = evidence.baseline(of_pairs)
    evidence = replace(evidence, pairs=pairs)
    if pairs is None:
        apart = _apart(of_pairs if len(of_pairs) > 1 else [*results, *of_pairs])
        return evidence.cannot_tell(f"{ran}, each as fast as its baseline, and pairs have none{apart}")
    tests = compared(of_pairs, replace(pairs, center=pairs.center * (1 + max(fastest, 0.0))))
    return _of_few_pairs(evidence.with_tests(tests), tests)


def _of_few_pairs(evidence: Evidence, tests: Sequence[Test]) -> Answer:
    """The answer for the pairs of three nodes or fewer. A pair counts as slow if it is slow in each of its tests.

    If two of three pairs are slow, the network of the node in both is accused. If one of three is slow, its link is.
    If fewer than three ran, the slow one may be the link, or the network of either end.
    """
    pairs = list(dict.fromkeys(test.nodes for test in tests))
    slow = [pair for pair in pairs if all(test.slow for test in tests if test.nodes == pair)]
    ends = [node for pair in slow for node in pair]
    of_slow = [test for test in tests if test.nodes in slow]
    if not slow:
        return _without_culprit(evidence)
    if len(slow) == len(pairs) > 1:
        return evidence.cannot_tell(f"each of {len(slow)} pairs is slow")
    if len(slow) == 2:
        evidence = evidence.accusing(Part.NETWORK, (max(ends, key=ends.count),), of_slow)
    else:
        # Three nodes have three pairs.
        part = Part.LINK if len(pairs) == 3 else Part.PAIR
        evidence = evidence.accusing(part, slow[0], of_slow)
    return evidence.answer(Ending.ISOLATED)


def _neighbours(evidence: Evidence) -> Step:
    """Neighbours in the ring of the job. A node is suspect if both of its pairs are slow, else the link."""
    nodes, pairs = evidence.nodes, evidence.nodes.neighbours(evidence.excluded)
    if nodes.leaves_known and sum(nodes.same_leaf(*pair) for pair in pairs) < FEWEST:
        pairs += nodes.within_leaves(evidence.excluded)
    evidence, results = yield from measure(evidence, pairs)
    inner = [result for result in results if nodes.same_leaf(*result.probe.nodes)]
    across = [result for result in results if result not in inner]
    if len(inner) < FEWEST:
        inner, across = results, []
    if len(inner) < FEWEST:
        reason = f"probes ran on {len(inner)} pairs of nodes: too few to tell which of them is slow"
        return evidence.cannot_tell(reason)
    # Of a few pairs within leaves most may have a slow node: then all pairs tell more.
    choices = map(evidence.peers, (inner, results))
    peers = min(choices, key=lambda peers: peers.center * (1 + peers.limit))
    tests, crossing = compared(inner, peers), _crossing(nodes, peers, across)
    evidence = replace(evidence, pairs=peers).with_tests([*tests, *crossing])
    slow = _slow_pairs(tests)
    ends = [node for pair in slow | _unexplained(nodes, crossing) for node in pair]
    suspects = [node for node in nodes.ring if ends.count(node) > 1]
    links = [pair for pair in pairs if pair in slow and not set(pair) & set(suspects)]
    if len(slow) > MOST_SLOW * len(inner) or len(links) > max(2, MOST_LINKS * len(inner)):
        reason = f"{len(slow)} of {len(inner)} pairs are slow: too many to tell who is not"
        return evidence.cannot_tell(reason)
    return (yield from confirm(evidence, suspects, links))


def _slow_pairs(tests: Sequence[Test]) -> set[tuple[str, ...]]:
    return {test.nodes for test in tests if test.slow}


def _crossing(nodes: Nodes, peers: Peers, results: Sequence[Result]) -> list[Test]:
    """The tests of neighbours on two leaves."""
    return compared(results, _across(peers, results, nodes)) if results else []


def _unexplained(nodes: Nodes, tests: Sequence[Test]) -> set[tuple[str, ...]]:
    """The slow neighbours on two leaves that no slow uplink would explain. The next step tests uplinks, then the other pairs."""
    slow = _slow_pairs(tests)
    return slow - nodes.behind_uplinks(slow, {test.nodes for test in tests} - slow)


def _leaves(evidence: Evidence) -> Step:
    """Probe nodes half of the fleet apart, in an order by leaves. The uplink of a leaf with often slow pairs is suspect."""
    nodes, between = evidence.nodes, evidence.pairs
    sizes = Counter(map(nodes.leaf_of, nodes.ring))
    large = {node for node in nodes.ring if nodes.leaves_known and sizes[nodes.leaf_of(node)] >= LARGE}
    beside = good_pairs(evidence, large, set(nodes.ring) - large)
    pairs = nodes.far_apart(evidence.excluded.union(*beside))
    evidence, results = yield from measure(evidence, pairs, 1, beside)
    if between is None or not results:
        return evidence
    if not nodes.leaves_known:
        return _far_apart(evidence, compared(results, between))
    results = [result for result in results if not nodes.same_leaf(*result.probe.nodes)]
    if not results:
        return evidence
    # If leaves are small, pairs within them do not tell the pace of pairs on two leaves.
    paths = _across(replace(between, center=0.0), results, nodes)
    slower = between.slowness(paths.center)
    if slower < -evidence.least:
        return _without_culprit(evidence.with_slower("pairs within leaves", -slower))
    tests = compared(results, paths)
    evidence = evidence.with_tests(tests)
    known = yield from confirm_leaves(evidence, slow_leaves(evidence, tests), paths)
    if isinstance(known, Answer) or known.culprits:
        return known
    if slower > EXPLAINS * known.loss:
        reason = f"pairs on two leaves are {percent(slower)} slower than pairs on one, whichever leaves"
        return known.cannot_tell(reason)
    slow = _slow_pairs(known.tests)
    links = [pair for pair in nodes.neighbours(known.excluded) if not nodes.same_leaf(*pair) and pair in slow]
    return (yield from confirm(known, (), links))


def _far_apart(evidence: Evidence, tests: Sequence[Test]) -> Evidence | Answer:
    """The evidence with these tests of pairs far apart, if leaves are not known: cannot tell if several are slow."""
    slow, evidence = sum(test.slow for test in tests), evidence.with_tests(tests)
    if slow <= 1:
        return evidence
    reason = f"{slow} of {len(tests)} pairs of nodes far apart are slow"
    return evidence.cannot_tell(f"{reason}, and their leaves are not known")


def _across(inner: Peers, results: Sequence[Result], nodes: Nodes) -> Peers:
    """What pairs on two leaves are compared with: those between the two leaves that are the fastest together.

    A slow uplink makes half of all pairs slow where there are four leaves, so their median says nothing.
    """
    paths: defaultdict[frozenset[str], list[float]] = defaultdict(list)
    for result in results:
        paths[frozenset(nodes.leaves[node] for node in result.probe.nodes)].append(result.seconds)
    center = min(map(statistics.median_low, paths.values()))
    return replace(inner, center=max(inner.center, center), count=max(inner.count, len(results)))


def _noise(results: Sequence[Result]) -> float:
    """By how much a probe scatters by chance, as a share; 0 if none ran. It is a median, so that a slow node changes nothing."""
    errors = [run.error for result in results for run in result.runs]
    return statistics.median(errors) if errors else 0.0


def _of_kinds(fast: Sequence[float], slow: Sequence[float]) -> str:
    slower = statistics.fmean(slow) / statistics.fmean(fast) - 1
    return f"{len(slow)} of {len(slow) + len(fast)} nodes are {percent(slower)} slower than the others, as nodes of another kind are"


def _apart(results: Sequence[Result]) -> str:
    """By how much the slowest of these results is slower than the fastest, in words; "" if it is `LEAST` or less."""
    if len(results) < 2:
        return ""
    fast, *_, slow = sorted(results, key=lambda result: result.seconds)
    slower = slow.seconds / fast.seconds - 1
    if slower <= LEAST:
        return ""
    first, second = (" with ".join(result.probe.nodes) for result in (slow, fast))
    return f"; {first} is {percent(slower)} slower than {second}"


def _not_again(tests: Sequence[Test]) -> str:
    return f"slow, and not again or not with all: {_listed(tests)}"


def _listed(tests: Sequence[Test]) -> str:
    return f"{', '.join(map(str, tests[:SHOWN]))}{' and others' if len(tests) > SHOWN else ''}"


def _without_culprit(evidence: Evidence, reasons: Sequence[str] = ()) -> Answer:
    """The answer if no part explains the loss. `reasons` say why the search could not go on, if it could not."""
    unresolved, reasons = evidence.unresolved(), [*reasons]
    if evidence.slower:
        parts, most = first_of(sorted(evidence.slower), SHOWN), percent(max(evidence.slower.values()))
        reasons.append(f"{parts} took up to {most} longer in a part of the search")
    slow = [test for test in unresolved if test.slow]
    if slow:
        reasons.append(_not_again(slow))
    if reasons:
        return evidence.cannot_tell("; ".join(reasons))
    if unresolved:
        return evidence.cannot_tell(f"slow by less than half of the loss: {_listed(unresolved)}")
    missing = evidence.missing()
    if missing:
        return evidence.cannot_tell(f"all probes that ran are alike, and {missing}")
    answer = evidence.answer(Ending.ALIKE)
    if answer.smallest <= max(evidence.loss, LEAST):
        return answer
    seen = f"only what is {percent(answer.smallest)} slower"
    return evidence.cannot_tell(f"a part as slow as the job would not be sure to be seen: {seen}")
