"""Two runs compared: simulated runs whose differences are known."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from plugins.judging.repeats import ALL, Comparison, Finding, Pair, compare

Slower = Callable[[int, str], float]


def pairs(
    rng: random.Random, cases: int, spread: float, slower: Slower = lambda i, dtype: 0.0, runs: int = 1
) -> list[Pair]:
    """Cases of three recipes and two dtypes. `slower` is by what share a case is slower in the second run."""
    found = []
    for i in range(cases):
        dtype, recipe = ("bf16", "fp8")[i % 2], ("llama3", "nemotron4", "maxtext")[i % 3]

        def draw(factor: float) -> tuple[float, ...]:
            return tuple(10 * factor * math.exp(rng.gauss(0, spread)) for _ in range(runs))

        properties = {"dtype": dtype, "recipe": recipe}
        found.append(Pair(f"case{i}", draw(1.0), draw(1 + slower(i, dtype)), properties))
    return found


def many(count: int, make: Callable[[random.Random], list[Pair]]) -> list[Comparison]:
    rng = random.Random(20261122)
    return [compare(make(rng)) for _ in range(count)]


@pytest.mark.parametrize("cases", [1, 4, 9])
@pytest.mark.parametrize("spread", [0.003, 0.007, 0.01])
def test_of_equal_runs_hardly_any_are_told_to_differ(cases: int, spread: float) -> None:
    found = many(100, lambda rng: pairs(rng, cases, spread))
    assert sum(bool(one.effects) for one in found) <= 5


def test_one_case_that_is_four_percent_slower_is_found_and_nothing_else() -> None:
    found = many(100, lambda rng: pairs(rng, 9, 0.003, lambda i, dtype: 0.04 * (i == 4)))
    right = [one for one in found if [effect.cases for effect in one.effects] == [("case4",)]]
    assert len(right) >= 95
    assert {one.findings["case4"] for one in right} == {Finding.SLOWER}
    assert not {Finding.SLOWER, Finding.FASTER} & {
        finding for one in right for key, finding in one.findings.items() if key != "case4"
    }


def test_what_a_dtype_has_in_common_is_one_effect() -> None:
    found = many(50, lambda rng: pairs(rng, 9, 0.003, lambda i, dtype: 0.03 * (dtype == "fp8")))
    assert sum([effect.name for effect in one.effects] == ["all fp8 cases"] for one in found) >= 48
    effect = found[0].effects[0].ratio
    assert effect.low < 1 / 1.03 < effect.high < 1
    assert effect.high - effect.low < found[0].ratios["case1"].high - found[0].ratios["case1"].low


def test_a_run_that_is_faster_as_a_whole_is_one_effect() -> None:
    found = many(50, lambda rng: pairs(rng, 9, 0.003, lambda i, dtype: -0.03))
    assert sum([effect.name for effect in one.effects] == [ALL] for one in found) >= 48
    assert set(found[0].findings.values()) == {Finding.FASTER}


@pytest.mark.parametrize(("cases", "effects"), [(7, 1), (8, 2)])
def test_each_effect_needs_four_cases(cases: int, effects: int) -> None:
    """Of two cases that differ much, each is an effect of its own."""
    (found,) = many(1, lambda rng: pairs(rng, cases, 0.0005, lambda i, dtype: (0.2, -0.3, 0.0)[min(i, 2)]))
    assert len(found.effects) == effects


def test_repeats_narrow_the_interval_where_one_run_cannot_tell() -> None:
    (once,), (often,) = (many(1, lambda rng, n=n: pairs(rng, 9, 0.003, runs=n)) for n in (1, 4))  # type: ignore[misc]
    (narrow, wide) = (one.ratios["case0"] for one in (often, once))
    assert narrow.high - narrow.low < 0.7 * (wide.high - wide.low)
    assert set(often.findings.values()) == {Finding.SAME}
    (noisy,) = many(1, lambda rng: pairs(rng, 9, 0.015))
    assert Finding.CANNOT_TELL in noisy.findings.values()
    assert compare([]).findings == {}


def test_the_order_of_the_cases_changes_nothing() -> None:
    found = pairs(random.Random(1), 9, 0.003, lambda i, dtype: 0.04 * (i == 4))
    one, other = compare(found), compare(found[::-1])
    assert one.findings == other.findings
    assert one.ratios["case4"].value == pytest.approx(other.ratios["case4"].value)
