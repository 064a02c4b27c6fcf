"""The model of noise: its errors and its power, beside runs that are simulated and judged as real ones are."""

from __future__ import annotations

import random
import statistics
from dataclasses import replace
from functools import lru_cache

import pytest

from plugins.judging.measurement import Measurement
from plugins.judging.repeats import judge_runs
from plugins.judging.steadiness import PUBLISHED, Noise, PaceGate
from plugins.record.verdict import Kind
from tests.bench.clusters import Cluster, figures

MANY, JUDGED = 2500, 200
INTERVALS = "mean:50-99, over: 10, every: 10"


@pytest.mark.parametrize("correlation", [0.0, 0.35, 0.8])
@pytest.mark.parametrize("steps", [10, 40])
def test_errors_are_those_of_simulated_steps(correlation: float, steps: int) -> None:
    noise, rng = Noise(0.02, correlation), random.Random(1)
    runs = [noise.steps(steps, rng) for _ in range(MANY)]
    assert statistics.stdev(map(statistics.fmean, runs)) == pytest.approx(noise.mean_error(steps), rel=0.04)
    assert statistics.stdev(map(statistics.median, runs)) == pytest.approx(noise.median_error(steps), rel=0.1)


def test_a_healthy_cluster_is_hardly_ever_found_and_a_slow_one_always() -> None:
    gate = PaceGate(10, 40, 0.05)
    shares = [gate.found(PUBLISHED, slow) for slow in (0.0, 0.03, 0.05, 0.06, 0.08, 0.5)]
    assert shares == sorted(shares)
    assert shares[0] < 1e-5
    assert shares[-2] > 0.999
    assert shares[-1] == 1.0
    assert PaceGate(10, 40, 0.05, runs=3).found(PUBLISHED, 0.03) < shares[1] / 10


@lru_cache(1)
def simulated(slow: float, noise: Noise, name: str) -> list[list[Measurement]]:
    """Three runs of each of many jobs on a cluster that is slower by the share `slow`."""
    figure, rng = figures()[name], random.Random(7)
    cluster = Cluster(noise.step, 0.0, noise.between, f"{100 * slow:.0f} %", noise.correlation)
    return [[figure.measured(cluster, rng) for _ in range(3)] for _ in range(JUDGED)]


@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize("name", ["last", INTERVALS])
@pytest.mark.parametrize("noise", [PUBLISHED, Noise(0.02, 0.35, 0.005)])
@pytest.mark.parametrize("slow", [0.03, 0.08])
def test_the_power_is_that_of_simulated_runs(slow: float, noise: Noise, name: str, runs: int) -> None:
    """The judge has more gates than the model, which counts on none of them: 5 of 100 runs may differ."""
    target = figures()[name].target
    gate = replace(PaceGate.of(target.case, 0.05), runs=runs)
    verdicts = [judge_runs(measured[:runs], target)[1].kind for measured in simulated(slow, noise, name)]
    failed = sum(kind is not Kind.PASSED for kind in verdicts)
    assert failed / JUDGED == pytest.approx(gate.found(noise, slow), abs=0.05)


def test_what_is_judged_of_a_log() -> None:
    assert PaceGate.of(figures()["last"].target.case, 0.05) == PaceGate(10, 40, 0.05)
    assert PaceGate.of(figures()[INTERVALS].target.case, 0.05) == PaceGate(80, 80, 0.05)


@pytest.mark.parametrize("slow", [0.0, 0.03, 0.08])
def test_the_power_by_an_expected_range_is_that_of_simulated_clusters(slow: float) -> None:
    """The range of one doubling. A cluster is healthy at the pace that the range does not know exactly."""
    gate, faster, rng = PaceGate(10, 40, 0.019), 0.01, random.Random(5)
    found = 0
    for _ in range(MANY):
        off = rng.gauss(0, 1) / statistics.NormalDist().inv_cdf(0.95)
        pace = (1 - gate.slower) ** -off if off < 0 else (1 + faster) ** off
        usual = (1 + slow) / pace * (1 + rng.gauss(0, PUBLISHED.between))
        steps = [usual * (1 + step) for step in PUBLISHED.steps(gate.settled, rng)]
        found += max(statistics.median(steps[-gate.steady :]), statistics.fmean(steps)) > 1 / (
            1 - gate.slower
        )
    assert found / MANY == pytest.approx(gate.found_by_range(PUBLISHED, slow, faster), abs=0.02)
