"""Three nodes or fewer are compared with the baseline of their probe; two GPUs of a host are two of them, as measured."""

from __future__ import annotations

import csv
import random
from functools import partial
from pathlib import Path

import pytest

from fixtures.session.isolating import run_of
from plugins.isolation.probes import Answer, Ending, Expected, Nodes, Part, Probe, Result, Run
from plugins.isolation.search import isolate
from plugins.logs import Step
from tests.bench.fleets import BAND, CONGESTED, SLOW, Fleet, answered, slow_cards, slow_link, slow_nodes
from tests.unit.isolation.test_search import ONE_CARD, ONE_NODE, Fault, cannot_tell, names, nothing, without

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
