"""The rounds of an isolation: which probes run together, and how their times compare with those of the first round.

`progress` tells from the results of the probes' jobs how far the isolation is.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from plugins.isolation.answer import Answer, percent
from plugins.isolation.evidence import FEWEST, Evidence
from plugins.isolation.probes import Groups, Nodes, Pair, Probe, Result, Search, disjoint

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
