"""NeMo 1's times as means over five steps, in three digits: judged by every fifth line, which is of steps of its own."""

from __future__ import annotations

import random
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from plugins.judging.judgement import Judgement
from plugins.logs import Log
from plugins.logs.means import SINGLE, Means
from plugins.record.folder import STEPS
from plugins.record.stored import case_as_json
from plugins.record.verdict import Kind
from plugins.suite.judged import write_case
from tests.bench import clusters
from tests.printed.nemo1 import bar
from tests.unit import examples
from tests.unit.logs.test_means import smoothed

CASE = examples.case("405b-fp8-576gpus", release="24.11")
BASELINE = examples.baseline(CASE.id, release="24.11")
STEP = BASELINE.cell.step_time or 0.0


def read(raw: Sequence[float]) -> Log:
    """The log of a run whose single steps took so many times the published time."""
    bars = [bar(i, STEP * mean, gbs=CASE.gbs) for i, mean in enumerate(smoothed(raw))]
    log = examples.parse("\r".join(bars) + "\n", "nemo1")
    assert len(log.steps) == 50
    return log


def judged(raw: Sequence[float], log_of: Callable[[Sequence[float]], Log] = read) -> Judgement:
    return examples.judged(CASE, examples.outcome(), log_of(raw), BASELINE)


def paced(pace: float = 1.0, **changed: float) -> list[float]:
    """`paced(1.08, s20=1.3)`: 50 steps at a pace, with a little noise, one of which took 1.3 times as long."""
    found = [pace * (1 + 0.002 * (i % 5 - 2)) for i in range(50)]
    found[0] *= 4
    for name, factor in changed.items():
        found[int(name.removeprefix("s"))] *= factor
    return found


@pytest.mark.parametrize(
    ("recipe", "release", "averaged"),
    [
        ("llama3", "24.11", {"405b-proxy", "405b"}),
        ("llama3", "25.03", {"405b-proxy", "405b"}),
        ("llama3", "25.04", set()),
        ("nemotron4", "24.11", set()),
        ("nemotron4", "25.01", set()),
        ("nemotron4", "25.03", {"15b"}),
        ("nemotron4", "25.04", set()),
    ],
)
def test_these_sizes_were_published_with_such_means(recipe: str, release: str, averaged: set[str]) -> None:
    found = examples.recipe_named(recipe, release).cases
    assert {case.size for case in found if case.means == Means(over=5)} == averaged
    assert {case.means for case in found} <= {SINGLE, Means(over=5)}


@pytest.mark.parametrize("index", range(10, 50))
@pytest.mark.parametrize("factor", [1.3, 1.6, 2.0])
def test_one_stalled_step_is_one_hiccup_and_condemns_nobody(index: int, factor: float) -> None:
    found = judged(paced(**{f"s{index}": factor}))
    assert found.verdict.kind is Kind.PASSED, found.text
    assert found.measurement is not None
    assert [i for i, _ in found.measurement.timing.settled.hiccups] == [index // 5 * 5 + 4]
    first = index // 5 * 5
    assert any(
        f"1 of 8 settled intervals far above the median, by one slow step or more each: steps {first} to {first + 4} ("
        in remark
        for remark in found.verdict.remarks
    )


@pytest.mark.parametrize("stalled", [(), (20,), (44,), (12, 33)])
@pytest.mark.parametrize("pace", [1.08, 1.15])
def test_a_slower_pace_is_too_slow(pace: float, stalled: tuple[int, ...]) -> None:
    assert judged(paced(pace, **{f"s{i}": 1.3 for i in stalled})).verdict.kind is Kind.TOO_SLOW
    assert judged(paced(1 / 1.15)).verdict.kind is Kind.TOO_FAST


# Of the eight settled intervals only two are slow, so that the median does not tell.
@pytest.mark.parametrize("first", range(30, 43))
@pytest.mark.parametrize("pace", [1.08, 1.15])
def test_a_run_that_slows_down_at_its_end_never_passes(first: int, pace: float) -> None:
    found = judged([seconds * (pace if i >= first else 1) for i, seconds in enumerate(paced())])
    assert found.verdict.kind in (Kind.TOO_SLOW, Kind.NOISY), found.text
    if first == 40:
        assert "it became slow at its end: the last 2 intervals are at least " in found.verdict.remarks[0]


# Each of the last two intervals has a stalled step in it, as one healthy run of a hundred has: a line that rises at once tells. Only where
# one of them leaves the mean as the other enters it no line rises.
@pytest.mark.parametrize(("one", "other"), [(40, 46), (41, 49), (44, 46)])
@pytest.mark.parametrize("stall", [1.3, 1.6])
def test_a_stall_in_each_of_the_last_intervals_is_no_fall_of_the_pace(
    one: int, other: int, stall: float
) -> None:
    assert judged(paced(**{f"s{one}": stall, f"s{other}": stall})).verdict.kind is Kind.PASSED


def test_the_mean_is_that_of_the_single_steps_and_the_words_say_what_they_are_of(tmp_path: Path) -> None:
    raw = paced(s9=3.0, s20=1.3, s48=1.2)
    found = judged(raw)
    assert found.measurement is not None
    assert found.measurement.timing.settled.mean == pytest.approx(
        STEP * statistics.fmean(raw[10:]), rel=0.004
    )
    assert found.details[0].endswith("mean of steps 45 to 49")
    assert "median of the 8 settled intervals of 5 steps" in found.details[1]
    record = case_as_json(write_case(examples.with_outcome(found, replace(found.outcome, folder=tmp_path))))
    assert (record["means"], record["hiccups"]) == ({"over": 5, "every": 1, "judged": 5}, [24, 49])
    assert len((tmp_path / STEPS).read_text().splitlines()) == 51


# Simulation: seeded, so that it says the same on every machine.


def made(raw: Sequence[float]) -> Log:
    """What is read of such a log, without one: with the printed times of these steps in the place of others."""
    printed = clusters.nemo1([STEP * seconds for seconds in raw])
    steps = (
        replace(step, seconds=other.seconds, resolution=other.resolution)
        for step, other in zip(whole().steps, printed, strict=True)
    )
    return replace(whole(), steps=tuple(steps))


@cache
def whole() -> Log:
    return read(paced())


def simulated(runs: int, draw: Callable[[random.Random], list[float]]) -> Counter[Kind]:
    rng = random.Random(20241109)
    first = draw(random.Random(20241109))
    assert made(first) == read(first)
    return Counter(judged(draw(rng), made).verdict.kind for _ in range(runs))


def test_hardly_any_healthy_cluster_fails_and_no_slow_one_passes() -> None:
    def steps(rng: random.Random, pace: float) -> list[float]:
        noisy = [pace * (1 + rng.gauss(0, 0.01)) * (1.3 if rng.random() < 0.02 else 1) for _ in range(50)]
        return [4 * noisy[0], *noisy[1:]]

    # What is left has stalls in three of the last five intervals, or in several of them besides the last one.
    healthy = simulated(400, lambda rng: steps(rng, 1.0))
    assert healthy[Kind.PASSED] > 0.965 * 400, healthy
    assert simulated(100, lambda rng: steps(rng, 1.08)) == {Kind.TOO_SLOW: 100}
