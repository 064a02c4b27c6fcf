"""Logs that have a line for every ten steps alone, with their mean: what makes them valid, and what they measure."""

from __future__ import annotations

import csv
import shutil
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.fleet.job import TrackedJob
from fixtures.fleet.watchdog import fewest_steps_to_give_up, lost_pace
from fixtures.runs.planned import ExpectedStepTime
from plugins.base.errors import ConfigError
from plugins.baselines.baseline_file import BaselineFile
from plugins.baselines.expected import usual_statistic
from plugins.baselines.metrics import flops_per_sequence
from plugins.baselines.store import Baseline, find
from plugins.judging.identity import untold
from plugins.judging.judgement import Judgement
from plugins.judging.shelving import offer_of
from plugins.judging.timing import timing
from plugins.judging.validity import complete
from plugins.logs import Log, Step
from plugins.logs.means import Means
from plugins.recipes.expansion import load_recipe
from plugins.record.baseline import Statistic
from plugins.record.folder import STEPS
from plugins.record.job import JobRef
from plugins.record.stored import case_as_json
from plugins.record.verdict import Kind
from plugins.suite.judged import write_case
from tests.printed.megatron_lm import line
from tests.unit import aks, examples
from tests.unit.examples import problems
from tests.unit.own_tables import FIRST
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


# Verdicts on such logs

CELL = {
    "size": "175b", "dtype": "fp16", "gpus": 512, "tp": 8, "pp": 16, "cp": 1, "vp": 1, "mbs": 1, "gbs": 8192,
    "step_time": STEP, "tokens_per_second": CASE.tokens_per_step / STEP, "mfu": 45.1,
}  # fmt: skip


def recorded(folder: Path, statistic: str = "mean:50-99", **tolerance: float) -> Baseline:
    """A baseline as a site might have recorded it."""
    table = {
        "release": "25.03",
        "gpu": "h100",
        "framework": "Megatron-LM 878d65f",
        "source": "recorded by this test",
        "statistic": statistic,
        "peak": {"fp16": 989.0},
        "flops": {"175b": {"definition": "causal-attention"}},
        "tolerance": tolerance,
        "cells": [CELL],
    }
    file = BaselineFile.model_validate({"recipe": "gpt3_aks", "tables": [table]})
    (folder / "gpt3_aks.yaml").write_text(file.model_dump_json(exclude_none=True))
    found = find(folder, load_recipe(aks.FOLDER), CASE, "h100")
    assert found is not None
    return found


def judged(
    seconds: Sequence[float] | float, baseline: Baseline | None = None, **line_fields: Any
) -> Judgement:
    return examples.judged(
        CASE,
        examples.outcome(),
        log_of(aks.log_lines(seconds, of=CASE, **line_fields)),
        baseline,
    )


# Verdicts


SCATTERED = dict(
    zip([f"i{i}" for i in range(2, 10)], (72.0, 84.0, 78.0, 73.0, 83.0, 71.0, 84.0, 78.0), strict=True)
)


@pytest.mark.parametrize(
    ("seconds", "statistic", "kind", "words"),
    [
        (means(i0=900.0, i1=120.0), "mean:50-99", Kind.PASSED, "passed: "),
        ([1.04 * mean for mean in means()], "mean:50-99", Kind.PASSED, "passed: "),
        ([1.06 * mean for mean in means()], "mean:50-99", Kind.TOO_SLOW, "too slow: "),
        ([mean / 1.15 for mean in means()], "mean:50-99", Kind.TOO_FAST, "too fast: "),
        # Each tenth step takes twice its time: no median of means can hide it.
        ([1.1 * mean for mean in means()], "mean:50-99", Kind.TOO_SLOW, "too slow: "),
        # One step of 70 twice as slow.
        (
            means(i6=STEP * 1.1), "mean:50-99", Kind.PASSED,
            "1 of 8 settled intervals far above the median, by one slow step or more each: steps 60 to 69 (85.8 s)",
        ),
        (
            means(i2=STEP * 1.2, i4=STEP * 1.2, i6=STEP * 1.2), "mean:50-99", Kind.NOISY,
            "3 of 8 settled intervals far above the median, by one slow step or more each: steps 20 to 29 (93.6 s)",
        ),
        (means(**SCATTERED), "mean:50-99", Kind.NOISY, "scatter by 10 % (standard deviation of means over 10 steps, limit 5 %)"),
        # Each interval at -4.3 %, and one of those that are judged 39 % slower: 11 % below in all.
        (
            [factor * STEP for factor in (2.5, *[1.045] * 7, 1.045 * 1.39, 1.045)], "mean:50-99", Kind.NOISY,
            "the mean of all 80 settled steps is 85.48 s, -8.8 % throughput (limit -5 %): the steady median 81.51 s is in the "
            "band, and what it hides costs 4.9 % of the pace (1 of 8 settled intervals far above the median",
        ),
        (
            means(**{f"i{i}": STEP * 1.08 for i in range(1, 9)}, i9=STEP), "last", Kind.TOO_SLOW,
            "mean of steps 90 to 99 alone, 78 s, would be inside the band",
        ),
    ],
)  # fmt: skip
def test_the_pace_of_intervals_is_judged_against_what_was_recorded(
    tmp_path: Path, seconds: list[float], statistic: str, kind: Kind, words: str
) -> None:
    seen = judged(seconds, recorded(tmp_path, statistic))
    assert seen.verdict.kind is kind, seen.text
    assert str(seen.statistic) == statistic
    assert words in "\n".join([seen.verdict.headline, *seen.verdict.remarks])


# An 80-layer model at a slower pace takes the same time as this case's 96 layers.
@pytest.mark.parametrize("throughput", [False, True])
def test_only_a_printed_rate_tells_the_model_and_without_one_every_report_says_so(
    tmp_path: Path, throughput: bool
) -> None:
    shallow = replace(CASE, model=CASE.model.model_copy(update={"layers": 80}))
    log = log_of(aks.log_lines(means(), of=shallow, throughput=throughput))
    for baseline in (None, recorded(tmp_path)):
        seen = examples.judged(CASE, examples.outcome(), log, baseline)
        offer = offer_of(seen, FIRST)
        if throughput:
            assert seen.verdict.kind is Kind.INVALID
            assert "this case's model is 34797.9" in seen.verdict.headline
        else:
            assert seen.verdict.kind is (Kind.PASSED if baseline else Kind.NO_BASELINE)
            (remark,) = seen.verdict.remarks
            assert remark.startswith(
                "nothing in the log tells which model ran, and with which sequence length"
            )
            assert baseline is not None or offer == remark
        assert isinstance(offer, str)
    case = aks.case("175b-checkpoint-fp16-512gpus")
    assert untold(case, log_of(aks.log_lines(2.0, of=case, throughput=False))) == ""


# Its own case is refused; the others of the release must not end in a window that none of their lines fills.
@pytest.mark.parametrize("statistic", ["mean:35-44", "mean:41-44", "mean:45-99"])
def test_a_window_that_cuts_an_interval_measures_no_other_case(tmp_path: Path, statistic: str) -> None:
    said = f"statistic {statistic} cuts an interval, but the times of this recipe are means over 10"
    with pytest.raises(ConfigError, match=said):
        recorded(tmp_path, statistic)
    case = aks.case("30b-fp16-64gpus")
    shutil.copy(examples.BASELINES / "accelerators.yaml", tmp_path)
    assert usual_statistic(tmp_path, case) == HALF
    seen = examples.judged(
        case,
        examples.outcome(),
        log_of(aks.log_lines(8.0, of=case)),
        None,
        baselines=tmp_path,
    )
    assert seen.verdict.kind is Kind.NO_BASELINE
    assert seen.statistic == HALF


def test_the_record_names_both(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    seen = examples.with_outcome(judged(STEP), examples.outcome(folder=folder))
    record = case_as_json(write_case(seen))
    assert (record["statistic"], record["last_step_time"]) == ("mean:50-99", STEP)
    assert record["means"] == {"over": 10, "every": 10, "judged": 10}
    assert record["mfu"] == pytest.approx(45.11, abs=0.01)
    assert record["mfu_beside"] == pytest.approx(45.72, abs=0.01)
    assert record["mfu_definition"]["flops"] == "causal-attention"
    assert record["mfu_definition"]["beside_flops"] == "full-attention"
    assert record["mfu_definition"]["beside_flops_per_sequence"] == pytest.approx(
        flops_per_sequence(CASE.model, 2048, seen.measurement.mfu_basis.beside.definition)  # type: ignore[union-attr]
    )
    assert record["configuration"]["parameters"] == CASE.parameters
    with (folder / STEPS).open() as file:
        assert [row["step"] for row in csv.DictReader(file)] == [str(i) for i in range(9, 100, 10)]
    assert len(examples.drawn(examples.plot(seen), "steps")) == 10


# While it runs


def job(seconds: Sequence[float], **changed: Any) -> TrackedJob:
    ref = JobRef(CASE.recipe, CASE.id, "name")
    made = TrackedJob(CASE, "jobset", ref, "megatron_lm", expected=ExpectedStepTime(STEP, STEP / 0.95))
    made.reading.log = log_of(aks.log_lines(seconds, of=CASE)) if seconds else Log()
    for name, value in changed.items():
        setattr(made.reading if hasattr(made.reading, name) else made, name, value)
    return made


def test_a_pace_is_lost_when_the_last_five_intervals_are_out_of_the_band() -> None:
    assert fewest_steps_to_give_up(CASE) == 70
    slow = [200.0, *[90.0] * 9]
    assert lost_pace(job(slow[:7]), 70) == 90.0
    assert lost_pace(job(slow[:6]), 70) is None
    assert lost_pace(job([*slow[:6], STEP]), 70) is None
    # It is through: judged, not given up.
    assert lost_pace(job(slow), 70) is None
