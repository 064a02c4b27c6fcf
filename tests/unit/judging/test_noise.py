"""The model of noise: its errors and its power, beside runs that are simulated and judged as real ones are."""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import pytest

from plugins.judging.measurement import Measurement
from plugins.judging.repeats import judge_runs
from plugins.judging.steadiness import PUBLISHED, Noise, PaceGate
from plugins.record.verdict import Kind
from tests.bench.clusters import Cluster, figures
from tests.bench.mlperf import MOST, step_times, systems

MANY, JUDGED = 2500, 200
INTERVALS = "mean:50-99, over: 10, every: 10"
OTHER = Noise(0.02, 0.35, 0.005)


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


@pytest.mark.parametrize(
    ("slow", "noise", "name", "runs"),
    [(0.03, PUBLISHED, "last", 1), (0.03, OTHER, INTERVALS, 3), (0.03, OTHER, "last", 1), (0.08, PUBLISHED, INTERVALS, 1), (0.08, OTHER, "last", 3)],
)  # fmt: skip
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


# The corpus of real step times

HEAD = ":::MLLOG "


def log(every: int, count: int = 64, before: str = "") -> Iterator[str]:
    """A log that prints the time of every `every`-th step, with an evaluation in the middle."""
    stamp = 0
    for line in range(count):
        seconds = 2.0 + line / 1000
        stamp += round(1000 * every * seconds)
        yield before + HEAD + record(stamp, "tracked_stats", {"train_step_time": seconds}, step=line * every)
        if line == count // 2:
            yield HEAD + record(stamp, "tracked_stats", {"train_step_time": 9.0})
            yield HEAD + record(stamp, "tracked_stats", {"train_step_time": 9.0}, step=0)
            yield HEAD + record(stamp + 500, "eval_stop", None)
        yield "no record"
        yield HEAD + record(stamp, "tracked_stats", {"throughput": 3.0})


def record(stamp: int, key: str, value: object, **metadata: int) -> str:
    return json.dumps({"time_ms": stamp, "key": key, "value": value, "metadata": metadata})


@pytest.mark.parametrize(("every", "before"), [(1, ""), (32, " 0: ")])
def test_the_steps_of_a_log_are_read_without_those_of_an_evaluation(every: int, before: str) -> None:
    times, apart = step_times(log(every, before=before))
    assert apart == every
    assert times == [2.0 + line / 1000 for line in range(64) if line != 33]
    assert step_times(log(1, count=60)) == ([], 1), "too short"


def test_the_corpus_has_the_runs_of_every_system() -> None:
    assert len(systems()) == 41
    assert sum(len(system.runs) for system in systems().values()) == 354
    assert {system.every for system in systems().values()} == {1, 32}
    lengths = [len(run.steps) for system in systems().values() for run in system.runs]
    assert 60 < min(lengths) <= max(lengths) == MOST


def test_nine_of_ten_systems_scatter_no_more_than_the_model_counts_on() -> None:
    noises = [system.noise for system in systems().values()]
    alike = [noise.correlation for noise in noises if noise.correlation]
    assert len(alike) == 10
    for values, limit in (
        ([noise.step for noise in noises], PUBLISHED.step),
        ([noise.between for noise in noises], PUBLISHED.between),
        (alike, PUBLISHED.correlation),
    ):
        assert 0.9 <= sum(value <= limit for value in values) / len(values) < 0.98
