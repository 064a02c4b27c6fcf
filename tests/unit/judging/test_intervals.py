"""Logs that have a line for every ten steps alone, with their mean: what makes them valid, and what they measure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.base.errors import ConfigError
from plugins.judging.timing import timing
from plugins.judging.validity import complete
from plugins.logs import Log, Step
from plugins.logs.means import Means
from plugins.recipes.expansion import load_recipe
from plugins.record.baseline import Statistic
from tests.printed.megatron_lm import line
from tests.unit import aks, examples
from tests.unit.examples import problems
from tests.unit.recipes.test_cases import RECIPE, write

CASE = aks.case(aks.LARGE)
HALF = Statistic.parse("mean:50-99")
LAST = Statistic()
STEP = 78.0
"""What a step of `CASE` takes at 45 % MFU or so, in s."""


def log_of(lines: Sequence[str]) -> Log:
    return examples.parse("\n".join(lines) + "\n", "megatron_lm")


def found(lines: Sequence[str], statistic: Statistic = HALF, **changed: Any) -> list[str]:
    return problems(replace(CASE, **changed), log_of(lines), statistic)


def means(**changed: float) -> list[float]:
    """A run's ten means: the first has the warm-up in it, a little noise in all; `means(i4=80.0)` changes the fifth."""
    made = [200.0] + [STEP * (1 + 0.001 * (i % 3 - 1)) for i in range(1, 10)]
    for name, seconds in changed.items():
        made[int(name.removeprefix("i"))] = seconds
    return made


# Validity

LINES = aks.log_lines(STEP, of=CASE)


def test_a_whole_log_is_valid_although_fp16_skipped_its_first_updates() -> None:
    log = log_of(LINES)
    assert (log.every, [step.index for step in log.steps]) == (10, list(range(9, 100, 10)))
    assert log.steps[0].loss is None
    assert problems(CASE, log, HALF) == problems(CASE, log, LAST) == []
    assert complete(CASE, log)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (LINES[:-1], "the last step seen is 89 of 0 to 99: steps 90 to 99 are missing"),
        (
            LINES[:1],
            "the last step seen is 9 of 0 to 99: steps 10 to 99 are missing",
        ),
        (LINES[:4] + LINES[5:], "steps 40 to 49 are missing between steps 9 and 99"),
        (LINES[1:], "steps 0 to 9 are missing between steps 19 and 99"),
        ([*LINES[:3], LINES[4], LINES[3], *LINES[5:]], "step 39: printed behind a later one"),
        ([*LINES[:5], *LINES[4:]], "step 49 printed more than once"),
        (LINES[9:], "steps 0 to 89 are missing between steps 99 and 99"),
    ],
)
def test_every_line_is_there_once_and_in_its_place(lines: list[str], said: str) -> None:
    (problem,) = found(lines)
    assert problem.startswith(said)
    assert complete(CASE, log_of(lines)) is (len({*lines}) == 10)


@given(
    st.lists(st.integers(0, 9), max_size=4),
    st.lists(st.sampled_from(LINES), max_size=2),
    st.integers(0, 10),
)
def test_whatever_came_before_a_whole_run_in_its_order_is_valid_and_nothing_else(
    lives: list[int], stray: list[str], cut: int
) -> None:
    # Attempts that died after so many lines each, then one whose beginning may be lost.
    before = [text for life in lives for text in LINES[:life]]
    assert (found([*before, *LINES[cut:]]) == []) is ([*before, *LINES[cut:]][-10:] == LINES)
    if not found(lines := [*before, *stray, *LINES[cut:]]):
        assert lines[-10:] == LINES


def test_an_attempt_that_died_after_its_first_line_is_told_and_spoils_nothing() -> None:
    log = log_of([LINES[0].replace("(ms): 195000.0", "(ms): 900000.0"), *LINES])
    assert (log.restarted_after, log.repeated) == ((9,), ())
    assert log.steps[0].seconds == 195.0
    assert found([LINES[0], LINES[0], *LINES]) == []


TEN = ", and this recipe's are means over 10 (--log-interval 10)"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (aks.log_lines(STEP, of=CASE, interval=1), f"the log states single steps{TEN}"),
        (aks.log_lines(STEP, of=CASE, interval=5), f"the log states means over 5 steps{TEN}"),
        (aks.log_lines(STEP, of=CASE, interval=20), f"the log states means over 20 steps{TEN}"),
        ([*LINES[:4], line(45, total=100, gbs=8192), *LINES[4:]], f"the log states means over 5 steps{TEN}"),
        (aks.log_lines(STEP, of=CASE, gbs=512), "global batch size 512 at step 9, this case runs 8192"),
        # Of a resumed run.
        (
            [text.replace(f"{8192 * 10 * n:12d}", f"{8192 * (10 * n + 100):12d}") for n, text in enumerate(LINES, 1)],
            "901120 consumed samples after step 9, 10 x GBS 8192 is 81920",
        ),
        (
            [text.replace("/     100", "/   10000") for text in LINES],
            "the run announced 10000 steps, the recipe runs 100",
        ),
        (aks.log_lines(STEP, of=CASE, nan=1), "steps 9, 19, 29, 39, 49, 59 and 4 more: the loss or a gradient was not a number"),
    ],
)  # fmt: skip
def test_lines_of_another_run_are_told(lines: list[str], said: str) -> None:
    assert found(lines)[0].endswith(said)


@pytest.mark.parametrize(
    ("skipped", "told"),
    [({1: 10, 2: 7}, []), ({}, []), ({5: 1}, []), ({6: 1}, [59]), ({1: 10, 7: 2, 10: 1}, [69, 99])],
)
def test_updates_may_be_skipped_before_what_is_judged(skipped: dict[int, int], told: list[int]) -> None:
    said = found(aks.log_lines(STEP, of=CASE, skipped=skipped))
    steps = f"step{'s' if len(told) > 1 else ''} {' and '.join(map(str, told))}"
    assert said == ([f"{steps}: the update was skipped, and the judgement needs it"] if told else [])


def test_a_garbled_line_counts_as_run_unless_it_is_judged() -> None:
    def garbled(index: int) -> list[str]:
        return [
            text.replace("(ms): 7", "(ms): 7[rank3] oh") if i == index else text
            for i, text in enumerate(LINES)
        ]

    assert found(garbled(3)) == []
    assert found(garbled(7)) == [
        "step 79: the log line is garbled by other output, and the statistic mean:50-99 needs it"
    ]


# With --log-throughput


def test_the_throughput_of_another_model_is_told() -> None:
    lines = aks.log_lines(STEP, of=CASE, throughput=True)
    assert log_of(lines).steps[-1].tflops_per_gpu == pytest.approx(446.1, abs=0.05)
    assert found(lines) == []
    shallow = replace(CASE, model=CASE.model.model_copy(update={"layers": 94}))
    (first, more) = found(aks.log_lines(STEP, of=shallow, throughput=True))
    assert first.startswith("step time x TFLOP/s is ")
    assert first.endswith("TFLOP a GPU at step 9, this case's model is 34797.9")
    assert more == "and 9 more such steps"


@given(
    st.sampled_from([case for case in load_recipe(aks.FOLDER).cases if not case.checkpoint]),
    st.floats(0.01, 500),
)
def test_whatever_the_pace_megatrons_own_figure_is_that_of_the_case(case: Any, seconds: float) -> None:
    log = log_of(aks.log_lines(round(seconds, 4), of=case, throughput=True))
    assert problems(case, log, HALF) == []


# What is measured


def boil(seconds: Sequence[float], statistic: Statistic = HALF) -> Any:
    steps = [Step(10 * i + 9, value, 0.00005) for i, value in enumerate(seconds)]
    return timing(steps, statistic, Means(10, 10))


def test_the_first_fifth_is_dropped_and_all_the_rest_is_judged() -> None:
    run = boil([200.0, 90.0, 79.0, 78.0, 77.0, 76.0, 75.0, 74.0, 73.0, 72.0])
    assert run.published.step_time == statistics.fmean([76.0, 75.0, 74.0, 73.0, 72.0])
    assert run.steady == run.settled.median == 75.5
    assert run.tail == 72.0
    assert [index for index, _ in run.published.window] == [59, 69, 79, 89, 99]
    assert run.published.last == (99, 72.0)
    last = boil(means(i9=80.0), LAST).published
    assert (last.step_time, last.window) == (80.0, ((99, 80.0),))
    # Behind the first fifth: eight intervals.
    assert (run.settled.steps, run.settled.mean) == (80, statistics.fmean([79.0, 78.0, 77.0, *range(72, 77)]))


@pytest.mark.parametrize(
    ("text", "indices"), [("mean:10-29", [19, 29]), ("mean:90-99", [99]), ("mean:0-9", [9])]
)
def test_a_window_is_of_whole_intervals(text: str, indices: list[int]) -> None:
    assert [index for index, _ in boil(means(), Statistic.parse(text)).published.window] == indices


@given(
    st.lists(st.floats(1, 100), min_size=100, max_size=100), st.sampled_from([(10, 99), (50, 99), (20, 49)])
)
def test_the_mean_of_a_windows_means_is_that_of_its_steps(
    steps: list[float], window: tuple[int, int]
) -> None:
    first, last = window
    printed = [statistics.fmean(steps[i : i + 10]) for i in range(0, 100, 10)]
    run = boil(printed, Statistic(first, last))
    assert run.published.step_time == pytest.approx(statistics.fmean(steps[first : last + 1]))


@given(st.integers(1, 50), st.integers(2, 40))
def test_the_lines_that_are_judged_are_lines(interval: int, count: int) -> None:
    steps, means = interval * count, Means(interval, interval)
    lines = list(means.steady(steps))
    assert lines[-1] == steps - 1
    settled = count - -(-means.warm_up(steps) // interval)
    assert len(lines) == (min(count, 10) if interval == 1 else max(1, settled))
    assert all((index + 1) % interval == 0 for index in lines)
    assert means.warm_up(steps) < steps


# A recipe that says so


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "log: nemo2",
            'log: megatron_lm\nmeans: {over: 10, every: 10}\nmeasure: {statistic: "mean:25-49", flops: causal-attention}',
            "measure.statistic mean:25-49 is no window of whole intervals of 10 in steps 0 to 49",
        ),
        (
            "log: nemo2",
            'log: nemo2\nmeasure: {statistic: "mean:40-50", flops: causal-attention}',
            "measure.statistic mean:40-50 is no window of whole intervals of 1 in steps 0 to 49",
        ),
        ("log: nemo2", "log: nemo2\nmeasure: {statistic: median, flops: full-attention}", "statistic"),
        ("mbs: 1,", "mbs: 1, variants: [fast],", "no variant fast; known in `variants`: none"),
        ("log: nemo2", "log: nemo2\nrules: megatron-lm", ""),
        ("tp: 2, pp: 2", "tp: 2, pp: 4", ""),
    ],
)
def test_a_recipe_that_contradicts_itself_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    place = write(tmp_path, RECIPE.replace(old, new))
    if not said:
        assert load_recipe(place).cases
        return
    with pytest.raises(ConfigError) as caught:
        load_recipe(place)
    assert said in str(caught.value)


def test_megatrons_rules_hold_where_a_recipe_says_so(tmp_path: Path) -> None:
    text = RECIPE.replace("log: nemo2", "log: nemo2\nrules: megatron-lm").replace("pp: 2", "pp: 4")
    with pytest.raises(
        ConfigError, match=r"size tiny: layers 2 is not a multiple of pp x vp = 4 \(2 = 0 x 4 \+ 2\)"
    ):
        load_recipe(write(tmp_path, text))
