"""The search names what is slow, and nobody else, on simulated fleets; `make bench` has the rates."""

from __future__ import annotations

import csv
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fixtures.session.isolating import run_of
from plugins.isolation.probes import Answer, Ending, Expected, Nodes, Part, Probe, Result, Run
from plugins.isolation.rounds import progress
from plugins.isolation.search import isolate
from plugins.logs import Step
from tests.bench.fleets import (
    BAND,
    CONGESTED,
    LEAF,
    SLOW,
    Fleet,
    answered,
    name_of,
    of_leaves,
    of_nodes,
    slow_cards,
    slow_leaf,
    slow_leaf_across,
    slow_link,
    slow_nodes,
)

NOISE = 0.006
Fault = Callable[[Fleet], None]
Measure = Callable[[list[Probe]], list[Result]]


def nothing(fleet: Fleet) -> None:
    """All are healthy."""


ONE_NODE, ONE_CARD = partial(slow_nodes, count=1), partial(slow_cards, count=1)
FAULTS = {"nothing": nothing, "node": ONE_NODE, "card": ONE_CARD, "link": slow_link, "uplink": slow_leaf}
each_fault = pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)


def fleet_of(
    size: int = 64, fault: Fault = nothing, *, noise: float = NOISE, seed: object = "", **options: Any
) -> Fleet:
    fleet = Fleet(size, noise, random.Random(f"{size} {noise} {seed}"), **options)
    fault(fleet)
    return fleet


def names(answer: Answer) -> set[tuple[str, str]]:
    """What is named as slow."""
    return {name_of(culprit) for culprit in answer.culprits}


def cannot_tell(answer: Answer) -> bool:
    return (answer.ending, answer.culprits) == (Ending.CANNOT_TELL, ())


def accuses_nobody_else(fleet: Fleet) -> bool:
    """Whether none but slow nodes are accused if the network is congested."""
    answer = fleet.isolate(CONGESTED)
    return answer.accused <= fleet.faulty and answer.ending in (Ending.ISOLATED, Ending.CANNOT_TELL)


def search(fleet: Fleet, loss: float, measure: Measure, missing: int = 0) -> Answer:
    return answered(isolate(Nodes(tuple(fleet.names), fleet.leaf, missing=missing), loss), measure)


def without(fleet: Fleet, loss: float, fails: Callable[[Probe], bool], reason: str = "no") -> Answer:
    """What is answered if these probes fail."""

    def measure(probes: list[Probe]) -> list[Result]:
        return [Result(probe, reason=reason) if fails(probe) else fleet.result(probe) for probe in probes]

    return search(fleet, loss, measure)


def is_pair_of(node: str, probe: Probe) -> bool:
    return len(probe.nodes) == 2 and node in probe.nodes


def mix_leaves(fleet: Fleet, count: int) -> None:
    """As a scheduler does that knows no leaves."""
    leaves = [f"leaf{number % count}" for number in range(fleet.size)]
    fleet.random.shuffle(leaves)
    fleet.leaf = dict(zip(fleet.names, leaves, strict=True))


# What is slow is named


@pytest.mark.parametrize("size", [16, 64])
@pytest.mark.parametrize("seed", ["a", "b", "c"])
@pytest.mark.parametrize(
    ("fault", "loss"),
    [(ONE_NODE, SLOW), (partial(slow_nodes, count=3), SLOW), (ONE_CARD, CONGESTED), (slow_link, CONGESTED)],
    ids=["node", "three nodes", "card", "link"],
)
def test_what_is_slow_is_named_exactly(size: int, seed: str, fault: Fault, loss: float) -> None:
    fleet = fleet_of(size, fault, seed=seed)
    answer = fleet.isolate(loss)
    assert answer.ending is Ending.ISOLATED
    assert names(answer) == fleet.faults
    assert fleet.rounds <= 6


def test_an_uplink_is_named_if_a_third_leaf_is_there() -> None:
    fleet = fleet_of(64, slow_leaf)
    answer = fleet.isolate(CONGESTED)
    assert names(answer) == fleet.faults
    assert "the uplink of leaf" in str(answer.culprits[0])


def test_an_uplink_is_named_if_all_neighbours_in_the_ring_are_on_two_leaves() -> None:
    fleet = fleet_of(64, slow_leaf_across)
    assert names(fleet.isolate(CONGESTED)) == fleet.faults
    assert fleet.rounds == 6


def test_a_fault_that_comes_and_goes_is_said_to_be_so() -> None:
    fleet = fleet_of(64, ONE_CARD, often=0.5)
    answers = [fleet.isolate(CONGESTED) for _ in range(10)]
    assert any(", intermittent" in str(culprit) for answer in answers for culprit in answer.culprits)
    assert all(answer.accused <= fleet.faulty for answer in answers)


def test_noise_is_answered_by_longer_probes_and_then_by_no_answer() -> None:
    noisy, hopeless = (fleet_of(64, ONE_NODE, noise=noise) for noise in (0.015, 0.03))
    assert names(noisy.isolate(SLOW)) == noisy.faults
    assert noisy.node_lengths > 6 * 64
    assert cannot_tell(hopeless.isolate(SLOW))
    assert hopeless.rounds == 2


def test_a_baseline_that_no_node_reaches_hides_no_slow_node() -> None:
    """The table may be of another image, say."""
    fleet = fleet_of(64, ONE_NODE, baselines=(0.9, 0.0))
    assert names(fleet.isolate(SLOW)) == fleet.faults


# A pace that changes during the search


@each_fault
@pytest.mark.parametrize("change", [0.05, -0.05])
@pytest.mark.parametrize("first", [1, 2, 3, 4])
def test_a_fleet_whose_pace_changes_hides_nothing_and_accuses_nobody(
    fault: Fault, change: float, first: int
) -> None:
    """Tests are compared with good ones of their own round: the fleet gets warm, or another tenant goes."""
    for seed in range(2):
        fleet = fleet_of(64, fault, seed=seed, paces=(*[1.0] * first, 1 + change))
        assert names(fleet.isolate(CONGESTED if fleet.faults else SLOW)) == fleet.faults
        assert fleet.rounds <= 6


@each_fault
@pytest.mark.parametrize("change", [0.05, 0.08])
@pytest.mark.parametrize("share", [0.0, 0.5], ids=["a leaf", "half of the leaves"])
@pytest.mark.parametrize("first", [1, 2, 3, 4])
def test_leaves_that_become_slow_are_accused_of_nothing_and_hide_nothing(
    fault: Fault, change: float, share: float, first: int
) -> None:
    """Tests are compared with good ones of their own leaf, or of the same round."""
    fleet = fleet_of(64, paces=(*[1.0] * first, 1 + change))
    fleet.drifting = frozenset(of_leaves(fleet, share))
    fault(fleet)
    assert names(fleet.isolate(CONGESTED)) == fleet.faults


@pytest.mark.parametrize("first", [1, 2])
def test_nodes_that_become_slow_are_no_slow_networks(first: int) -> None:
    """They are probed by themselves again. They may be some of many, so they are not named."""
    fleet = fleet_of(64, paces=(*[1.0] * first, 1.1))
    fleet.drifting = frozenset({"n0007", "n0038"})
    answer = fleet.isolate(CONGESTED)
    assert cannot_tell(answer)
    assert answer.reason.startswith("n0007, n0038 took up to ")
    assert answer.doubtful >= fleet.drifting


@pytest.mark.parametrize("known", [True, False], ids=["leaves of four nodes", "leaves not known"])
@pytest.mark.parametrize("first", [1, 2, 3])
def test_nodes_that_become_slow_together_are_not_accused(first: int, known: bool) -> None:
    """No good pair of their own leaf tells that they are: each does by itself."""
    for seed in range(3):
        fleet = fleet_of(64, seed=seed, paces=(*[1.0] * first, 1.08), leaves_known=known)
        if known:
            fleet.leaf = {name: f"leaf{number // 4}" for number, name in enumerate(fleet.names)}
        fleet.drifting = frozenset(fleet.names[8:12] if known else fleet.names[16:32])
        assert cannot_tell(fleet.isolate(CONGESTED))


@pytest.mark.parametrize("first", [1, 2, 3, 4])
def test_half_of_the_nodes_that_become_slow_accuse_nobody(first: int) -> None:
    """The good pairs beside the suspects are of two kinds by then, and no leaf explains it."""
    told = 0
    for seed in range(10):
        fleet = fleet_of(64, seed=seed, paces=(*[1.0] * first, 1.05))
        fleet.drifting = frozenset(of_nodes(fleet, 0.5))
        answer = fleet.isolate(CONGESTED)
        assert answer.culprits == ()
        told += answer.reason.startswith("good nodes took up to ")
    assert told > 0 or first == 4


# Nobody else is accused


@pytest.mark.parametrize("size", [8, 16, 31, 64])
def test_nobody_is_accused_in_a_healthy_fleet(size: int) -> None:
    for seed in range(8):
        fleet = fleet_of(size, seed=seed)
        answer = fleet.isolate(SLOW)
        assert answer.culprits == ()
        assert answer.ending in (Ending.ALIKE, Ending.CANNOT_TELL, Ending.TWO_KINDS)
        assert fleet.rounds <= 10


def test_a_leaf_whose_pairs_are_all_slow_is_no_fault_of_its_nodes() -> None:
    """Its switch may be slow."""
    fleet = fleet_of(64)
    leaf = {name for name in fleet.names if fleet.leaf[name] == "leaf2"}

    def measure(probes: list[Probe]) -> list[Result]:
        return [
            result.at(1 / 1.1) if len(leaf.intersection(result.probe.nodes)) == 2 else result
            for result in fleet.round(probes)
        ]

    answer = search(fleet, CONGESTED, measure)
    assert cannot_tell(answer)
    assert answer.reason.startswith("leaf leaf2, pairs within leaves took up to ")


@pytest.mark.parametrize(("size", "known"), [(32, True), (64, False)])
def test_an_uplink_is_not_guessed(size: int, known: bool) -> None:
    """Of two leaves nobody knows whose uplink it is, nor where the leaves are not known."""
    answer = fleet_of(size, slow_leaf, leaves_known=known).isolate(CONGESTED)
    assert cannot_tell(answer)
    assert "leaves" in answer.reason


@pytest.mark.parametrize("size", [24, 64])
@pytest.mark.parametrize("seed", range(5))
def test_an_uplink_is_no_fault_of_nodes_if_the_ring_is_unlike_the_leaves(size: int, seed: int) -> None:
    """Most neighbours are on two leaves, so that both pairs of a node of the slow leaf are slow."""
    fleet = fleet_of(size, seed=seed)
    fleet.leaf = {name: f"leaf{fleet.random.randrange(4)}" for name in fleet.names}
    slow_leaf(fleet)
    assert names(fleet.isolate(CONGESTED)) <= fleet.faults


@pytest.mark.parametrize("count", [12, 20])
@pytest.mark.parametrize("leaves", [4, 8, 16])
def test_many_slow_networks_hide_none_and_slow_nobody_else(leaves: int, count: int) -> None:
    """A third or a half of all pairs are slow, and most of the few pairs within leaves may be."""
    for seed in range(4):
        fleet = fleet_of(64, partial(mix_leaves, count=leaves), seed=seed)
        slow_cards(fleet, count)
        assert accuses_nobody_else(fleet)


@pytest.mark.parametrize("fault", [nothing, ONE_CARD, slow_link, slow_leaf])
def test_probes_that_are_slow_by_chance_accuse_nobody(fault: Fault) -> None:
    """A part is accused if it was slow more often than others that are mostly fast."""
    for seed in range(4):
        assert accuses_nobody_else(fleet_of(64, fault, seed=seed, stalling=0.05))


def test_a_link_through_an_uplink_that_is_slow_half_of_the_time_is_not_named() -> None:
    """Each of its ends is tested with a third node through the same uplink."""
    for seed in range(8):
        fleet = fleet_of(64, slow_leaf, seed=seed, often=0.5)
        assert names(fleet.isolate(CONGESTED)) <= fleet.faults


@pytest.mark.parametrize("seed", range(5))
def test_a_node_on_two_slow_links_is_not_named(seed: int) -> None:
    """It is slow with each of its neighbours, and with nobody else."""
    fleet = fleet_of(64, seed=seed)
    fleet.links = {frozenset(fleet.names[first : first + 2]): CONGESTED for first in (20, 21)}
    assert "network" not in str(fleet.isolate(CONGESTED))


@pytest.mark.parametrize("seed", range(10))
def test_a_link_between_the_only_two_leaves_is_seen(seed: int) -> None:
    """Two neighbours of eight are on both leaves."""
    fleet = fleet_of(8, seed=seed)
    fleet.leaf = {name: f"leaf{number // 4}" for number, name in enumerate(fleet.names)}
    fleet.links = {frozenset(fleet.names[3:5]): CONGESTED}
    assert accuses_nobody_else(fleet)


def test_two_kinds_of_nodes_are_no_fault() -> None:
    answer = fleet_of(64, partial(slow_nodes, count=24)).isolate(SLOW)
    assert (answer.ending, answer.culprits) == (Ending.TWO_KINDS, ())
    assert answer.reason.startswith("24 of 64 nodes are")


@pytest.mark.parametrize("slowness", [0.12, 0.45])
def test_a_node_that_explains_less_than_half_of_the_loss_is_not_alike(slowness: float) -> None:
    fleet = fleet_of(64)
    fleet.nodes = {"n0003": slowness}
    answer = fleet.isolate(1.0)
    assert cannot_tell(answer)
    assert answer.reason.startswith("slow by less than half of the loss: n0003 (")
    assert fleet_of(64).isolate(1.0).ending is Ending.ALIKE


def test_a_node_that_is_slow_by_less_is_doubtful_beside_one_that_explains_the_loss() -> None:
    """It does not pass, although nobody accuses it."""
    fleet = fleet_of(64)
    fleet.nodes = {"n0003": 0.5, "n0040": 0.2}
    answer = fleet.isolate(0.5)
    assert (answer.accused, answer.doubtful) == (frozenset({"n0003"}), frozenset({"n0040"}))


# Probes that fail, and nodes that were not tested


def test_probes_that_fail_accuse_nobody() -> None:
    answer = fleet_of(64, failing=0.3).isolate(SLOW)
    assert answer.culprits == ()
    assert answer.failed


@pytest.mark.parametrize(("size", "failing"), [(64, 1.0), (3, 0.0)])
def test_too_few_nodes_without_a_baseline_tell_nothing(size: int, failing: float) -> None:
    answer = fleet_of(size, failing=failing).isolate(SLOW)
    assert cannot_tell(answer)
    assert "too few" in answer.reason


@pytest.mark.parametrize("failing", [True, False])
def test_a_suspect_is_not_accused_if_no_good_pair_ran_beside_it(failing: bool) -> None:
    """How fast the fleet is by then is not known."""
    fleet = fleet_of(64, ONE_NODE)
    (slow,) = fleet.nodes

    def fails(probe: Probe) -> bool:
        return failing and len(probe.nodes) == 2 and slow not in probe.nodes

    answer = without(fleet, SLOW, fails, "drained")
    assert answer.accused == frozenset(() if failing else (slow,))
    assert answer.doubtful == frozenset((slow,) if failing else ())
    assert (answer.ending is Ending.CANNOT_TELL) == failing
    assert slow in str(answer)
    assert answer.reason.startswith("no probe ran on the good nodes that tell ") == failing
    assert ("; no probe ran on " in str(answer) and str(answer).endswith(": drained")) == failing


def test_a_node_that_runs_no_probe_is_no_culprit_and_is_left_out() -> None:
    crashed, probed = "n0007", list[tuple[str, ...]]()

    def fails(probe: Probe) -> bool:
        probed.append(probe.nodes)
        return crashed in probe.nodes

    answer = without(fleet_of(64), SLOW, fails, "NODE_FAIL")
    assert cannot_tell(answer)
    assert answer.reason == "all probes that ran are alike, and too few ran on 1 of 64 nodes"
    assert [result.probe.nodes for result in answer.failed] == [(crashed,)]
    assert probed.count((crashed,)) == 2
    assert all(crashed not in nodes for nodes in probed if len(nodes) == 2)


def is_across(probe: Probe) -> bool:
    """Whether its nodes are on two leaves."""
    return len({int(node[1:]) // LEAF for node in probe.nodes}) > 1


@pytest.mark.parametrize(
    ("fails", "untested"),
    [
        pytest.param(lambda probe: max(probe.nodes) > "n0007", "too few ran on 64 of 64 nodes", id="all but one leaf"),
        pytest.param(partial(is_pair_of, "n0003"), "too few ran on 1 of 64 nodes", id="pairs of a node"),
        pytest.param(is_across, "too few ran on 64 of 64 nodes", id="pairs on two leaves"),
        pytest.param(
            lambda probe: {*probe.nodes} == {"n0003", "n0004"}, "none ran on n0003 with n0004", id="two neighbours"
        ),
    ],
)  # fmt: skip
def test_what_was_not_tested_is_not_alike(fails: Callable[[Probe], bool], untested: str) -> None:
    """The queue may refuse jobs beyond a number, say, and two leaves may not reach each other."""
    answer = without(fleet_of(64), SLOW, fails)
    assert cannot_tell(answer)
    assert answer.reason.endswith(untested)


def test_a_slow_node_that_could_not_be_confirmed_is_doubtful_beside_one_that_was() -> None:
    """All its pairs fail: it is not named, and does not pass."""
    fleet = fleet_of(64)
    fleet.nodes = {"n0003": SLOW, "n0040": SLOW}
    answer = without(fleet, SLOW, partial(is_pair_of, "n0040"))
    assert (answer.accused, answer.doubtful) == (frozenset({"n0003"}), frozenset({"n0040"}))


def test_a_node_that_the_cluster_did_not_name_may_be_the_slow_one() -> None:
    fleet = fleet_of(64)
    answer = search(fleet, SLOW, fleet.round, missing=2)
    assert cannot_tell(answer)
    assert answer.reason == "all probes that ran are alike, and too few ran on 2 of 66 nodes"


@pytest.mark.parametrize(
    ("baseline", "ran", "ending"),
    [(1.0, 64, Ending.ALIKE), (0.9, 64, Ending.WHOLE_FLEET), (0.9, 5, Ending.CANNOT_TELL)],
)
def test_a_few_slow_nodes_are_not_the_whole_fleet(baseline: float, ran: int, ending: Ending) -> None:
    fleet = fleet_of(64, baselines=(baseline, 0.0))
    answer = without(fleet, SLOW, lambda probe: int(probe.nodes[0][1:]) >= ran)
    assert (answer.ending, answer.culprits) == (ending, ())
    assert answer.reason.startswith("probes ran on 5 of 64 nodes: ") == (ran == 5)


@pytest.mark.parametrize("seed", range(10))
def test_a_link_is_not_named_if_an_end_ran_with_no_third_node(seed: int) -> None:
    """It may as well be the network of that end."""
    fleet = fleet_of(16, seed=seed)
    fleet.cards = {"n0003": CONGESTED}

    def fails(probe: Probe) -> bool:
        return is_pair_of("n0003", probe) and "n0004" not in probe.nodes

    assert cannot_tell(without(fleet, CONGESTED, fails))


# The rounds


def test_a_search_goes_on_from_what_was_measured_before() -> None:
    fleet, rounds = fleet_of(31, partial(slow_cards, count=2)), list[tuple[list[Probe], list[Result]]]()

    def measure(probes: list[Probe]) -> list[Result]:
        nodes = [node for probe in probes for node in probe.nodes]
        assert len(nodes) == len(set(nodes)), "no node is in two probes of a round"
        rounds.append((probes, fleet.round(probes)))
        return rounds[-1][1]

    def remembered(probes: list[Probe]) -> list[Result]:
        before, results = rounds.pop(0)
        assert probes == before
        return results

    answer = search(fleet, CONGESTED, measure)
    assert names(answer) == fleet.faults
    assert search(fleet, CONGESTED, remembered) == answer


def test_a_job_without_nodes_is_not_probed() -> None:
    answer = progress(isolate(Nodes((), {}), SLOW), lambda _number, _probe: None)
    assert isinstance(answer, Answer)
    assert answer.ending is Ending.CANNOT_TELL


# Few nodes

TWO_CARDS = partial(slow_cards, count=2)
GPUS = ("GPU 0", "GPU 1")
ALONE, TOGETHER = 1.706, 1.717
"""The baseline of one H100 (`baselines/proxy.yaml`), and the healthy pace of two."""

with (Path(__file__).parent / "two_h100.csv").open(encoding="utf-8") as file:
    MEASURED = {
        (fault, nodes): run_of([Step(index, float(seconds)) for index, seconds in enumerate(steps)])
        for fault, nodes, *steps in csv.reader(line for line in file if line[0] != "#")
    }

# Of these the logs are not kept: GPU 1 by itself was 7.6 % slower than healthy, both together 2.3 and 3.6 %.
FIGURES = {
    ("busy for 25 %", "GPU 1"): Run(1.700 * 1.076, 0.002),
    ("busy for 7 %", "both"): Run(TOGETHER * 1.023, 0.002),
    ("busy for 12 %", "both"): Run(TOGETHER * 1.036, 0.002),
}


def two_gpus(fault: str, loss: float, *, baselines: bool = True) -> Answer:
    """What is answered of two GPUs with this fault. What was not measured with it is as healthy."""

    def measure(probe: Probe) -> Result:
        nodes = probe.nodes[0] if len(probe.nodes) == 1 else "both"
        runs = {**MEASURED, **FIGURES}
        run = runs.get((fault, nodes), runs["healthy", nodes])
        expected = Expected((ALONE, TOGETHER)[len(probe.nodes) - 1], BAND) if baselines else None
        return Result(probe, (run,) * probe.runs, expected=expected)

    return answered(isolate(Nodes(GPUS, {}), loss), lambda probes: list(map(measure, probes)))


THE_LINK = "the link GPU 0-GPU 1 (or the network of one of them)"


@pytest.mark.parametrize(
    ("fault", "loss", "answer"),
    [
        ("healthy", SLOW, "no node: all are alike; what is 6.4 % slower all of the time would have been seen"),
        ("busy for 25 %", 0.074, "GPU 1: 7.2 % slower than the baseline in each of 3 tests"),
        (
            "busy for 25 % from step 7 on", 0.074,
            "GPU 1: 6.8 % slower than the baseline in each of 3 tests, intermittent: one was slow from step 7 on",
        ),
        ("busy for 25 % from step 5 on", 0.074, "GPU 1: 6.1 % slower than the baseline in each of 3 tests"),
        ("NCCL_P2P_DISABLE=1", 0.174, f"{THE_LINK}: 17.3 % slower than the baseline in each of 2 tests"),
        ("NCCL_ALGO=Ring", 0.27, f"{THE_LINK}: 27.0 % slower than the baseline in each of 2 tests"),
    ],
)  # fmt: skip
def test_of_two_gpus_the_slow_one_or_their_link_is_named(fault: str, loss: float, answer: str) -> None:
    assert str(two_gpus(fault, loss)) == answer


@pytest.mark.parametrize("number", range(1, 11))
def test_of_two_healthy_gpus_none_is_accused(number: int) -> None:
    answer = two_gpus(f"healthy {number}", SLOW)
    assert (answer.ending, answer.culprits) == (Ending.ALIKE, ())
    # GPU 0 was 1.2 % slower than GPU 1 on average.
    assert "GPU" not in two_gpus(f"healthy {number}", SLOW, baselines=False).reason


@pytest.mark.parametrize(("fault", "loss"), [("busy for 7 %", 0.023), ("busy for 12 %", 0.036)])
def test_a_gpu_within_the_band_of_its_baseline_is_not_named(fault: str, loss: float) -> None:
    answer = two_gpus(fault, loss)
    assert (answer.ending, answer.culprits) == (Ending.CANNOT_TELL, ())
    assert (
        answer.reason == "a part as slow as the job would not be sure to be seen: only what is 6.4 % slower"
    )


def test_without_a_baseline_two_nodes_are_compared_in_words() -> None:
    few = "cannot tell which node: probes ran on 2 of 2 nodes: too few to tell which of them is slow"
    assert (
        str(two_gpus("busy for 25 %", 0.074, baselines=False)) == f"{few}; GPU 1 is 8.0 % slower than GPU 0"
    )
    assert str(two_gpus("healthy", 0.074, baselines=False)) == few


def few(size: int, fault: Fault = nothing, *, seed: int = 0, pair: float = 1.0) -> Fleet:
    fleet = Fleet(size, 0.006, random.Random(f"few {size} {seed}"), baselines=(1.0, pair))
    fault(fleet)
    return fleet


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(
    ("size", "pair", "fault", "loss"),
    [
        (2, 1.0, ONE_NODE, SLOW),
        (3, 1.0, ONE_NODE, SLOW),
        (3, 1.0, partial(slow_nodes, count=2), SLOW),
        (3, 1.0, ONE_CARD, CONGESTED),
        (3, 1.0, slow_link, CONGESTED),
        # Four values do not tell how healthy nodes scatter; the baseline does.
        (4, 0.0, ONE_NODE, SLOW),
    ],
)
def test_a_part_of_few_nodes_is_named(size: int, pair: float, fault: Fault, loss: float, seed: int) -> None:
    fleet = few(size, fault, seed=seed, pair=pair)
    assert names(fleet.isolate(loss)) == fleet.faults


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("size", [1, 2, 3])
def test_of_few_healthy_nodes_none_is_accused(size: int, seed: int) -> None:
    answer = few(size, seed=seed).isolate(SLOW)
    assert answer.culprits == ()
    assert answer.ending is Ending.ALIKE or size == 1


@pytest.mark.parametrize("size", [1, 2, 3])
def test_few_nodes_that_are_all_slow_are_slow_as_a_whole(size: int) -> None:
    """Their software may be another one than that of the baseline."""
    answer = few(size, partial(slow_nodes, count=size)).isolate(SLOW)
    assert (answer.ending, answer.culprits) == (Ending.WHOLE_FLEET, ())


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("size", [2, 3])
def test_a_baseline_that_few_nodes_almost_reach_accuses_none_of_them(size: int, seed: int) -> None:
    """All are 4 % slower than it, and one of them is by chance outside its band."""
    fleet = Fleet(size, 0.006, random.Random(f"off {size} {seed}"), baselines=(0.96, 0.0))
    assert cannot_tell(fleet.isolate(SLOW))


def test_of_two_nodes_nobody_knows_which_end_of_their_link_is_slow() -> None:
    fleet = few(2, ONE_CARD)
    (culprit,) = fleet.isolate(CONGESTED).culprits
    assert (culprit.part, culprit.nodes) == (Part.PAIR, tuple(fleet.names))


@pytest.mark.parametrize("size", [2, 3])
def test_pairs_without_a_baseline_tell_nothing_but_how_far_apart_they_are(size: int) -> None:
    answer = few(size, slow_link, pair=0.0).isolate(CONGESTED)
    assert cannot_tell(answer)
    reason = f"probes ran on {size} of {size} nodes, each as fast as its baseline, and pairs have none; n000"
    assert answer.reason.startswith(reason)


def test_three_pairs_that_are_all_slow_accuse_nobody() -> None:
    assert cannot_tell(few(3, TWO_CARDS).isolate(CONGESTED))


def test_two_slow_pairs_name_no_common_node_if_the_third_pair_did_not_run() -> None:
    """The networks of both of its partners may be slow as well."""
    fleet = few(3, TWO_CARDS)
    (good,) = set(fleet.names) - fleet.faulty
    assert cannot_tell(
        without(fleet, CONGESTED, lambda probe: len(probe.nodes) == 2 and good not in probe.nodes)
    )


def test_a_node_that_was_slow_in_its_one_test_is_not_named() -> None:
    """Both further tests failed, so that it may have been slow by chance."""

    def measure(probe: Probe) -> Result:
        if probe.runs > 1:
            return Result(probe, reason="no")
        return Result(probe, (Run(1.2 if "a" in probe.nodes else 1.0, 0.001),), expected=Expected(1.0, BAND))

    answer = answered(isolate(Nodes(("a", "b"), {}), SLOW), lambda probes: list(map(measure, probes)))
    assert cannot_tell(answer)
    assert answer.reason == "slow, and not again or not with all: a (20.0 %)"
