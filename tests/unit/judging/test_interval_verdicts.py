"""The verdict on a run whose log has means over ten steps alone, and what is said while it runs."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fixtures.fleet.job import TrackedJob
from fixtures.fleet.state import Progress
from fixtures.fleet.watchdog import fewest_steps_to_give_up, lost_pace, silent
from fixtures.runs.planned import ExpectedStepTime
from plugins.base.errors import ConfigError
from plugins.baselines.baseline_file import BaselineFile
from plugins.baselines.expected import usual_statistic
from plugins.baselines.metrics import flops_per_sequence
from plugins.baselines.store import Baseline, find
from plugins.judging.identity import untold
from plugins.judging.judgement import Judgement
from plugins.judging.shelving import offer_of
from plugins.logs import Log
from plugins.recipes.expansion import load_recipe
from plugins.record.folder import STEPS
from plugins.record.job import JobRef
from plugins.record.stored import case_as_json
from plugins.record.verdict import Kind
from plugins.suite.judged import write_case
from tests.unit import aks, examples
from tests.unit.fleet.test_watchdog import NOW, RUNNING, machine
from tests.unit.judging.test_intervals import CASE, HALF, STEP, log_of, means
from tests.unit.own_tables import FIRST

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


def test_without_a_baseline_it_is_measured_as_the_recipe_says() -> None:
    assert usual_statistic(examples.BASELINES, CASE) == HALF
    seen = judged(STEP)
    assert seen.verdict.kind is Kind.NO_BASELINE
    assert seen.details[:6] == (
        "measured         78 s         215,093 tokens/s  MFU 45.11 %  mean of steps 50 to 99",
        "last             78 s         215,093 tokens/s  MFU 45.11 %  steps 90 to 99",
        "steady           78 s         215,093 tokens/s  MFU 45.11 %  median of the 8 settled intervals of 10 steps, "
        "spread 0 % of these means over 10; single steps scatter more",
        "model     174.6 B parameters, 96 layers of hidden size 12288, sequence length 2048",
        "MFU by    causal-attention FLOPs, peak 989 TFLOP/s per GPU, statistic mean:50-99: 446.1 TFLOP/s per GPU",
        "beside    MFU 45.72 % by full-attention FLOPs, +1.4 %; for comparison, not judged",
    )


def test_tflops_are_those_that_megatron_would_print(tmp_path: Path) -> None:
    measured = judged(STEP, recorded(tmp_path)).measurement
    assert measured is not None
    assert measured.tflops_per_gpu == pytest.approx(aks.megatrons_rate(CASE, STEP))
    assert measured.mfu_basis is not None
    assert measured.mfu_basis.beside is not None
    # reference: 2.1749e15 and 2.2046e15.
    assert measured.mfu_basis.flops == pytest.approx(2.174868e15, rel=1e-6)
    assert measured.mfu_basis.beside.flops == pytest.approx(2.20456e15, rel=1e-5)
    assert measured.mfu_beside == pytest.approx((measured.mfu or 0) * 2.20456 / 2.174868, rel=1e-5)


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


# A clock that stands still makes the run invalid; the plot is drawn all the same.
def test_times_that_are_all_zero_have_a_plot() -> None:
    seen = judged([100.0, *[0.0] * 9], throughput=False)
    assert seen.verdict.kind is Kind.INVALID
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


def test_two_intervals_of_silence_are_too_long_whatever_the_factor() -> None:
    running: dict[str, Any] = {"running": NOW - 9000, "state": RUNNING}
    site = machine(stall_factor=3, stall_seconds=300)
    quiet = 2 * 10 * STEP
    assert silent(job([200.0, STEP, STEP], stepped=NOW - quiet, **running), site, NOW) is None
    assert silent(job([200.0, STEP, STEP], stepped=NOW - quiet - 1, **running), site, NOW) == quiet + 1
    assert silent(job([200.0], stepped=0.0, **running), site, NOW) is None


def test_a_running_case_shows_how_far_it_is() -> None:
    status = Progress.of(job(means()[:6], running=100.0, state=RUNNING))
    assert (status.done, status.steps) == (60, 100)
    assert status.step_time == pytest.approx(STEP, rel=0.002)
    assert status.left == pytest.approx(40 * STEP, rel=0.002)
    assert status.off == pytest.approx(0, abs=0.002)
    assert Progress.of(job(means()[:2], running=100.0, state=RUNNING)).off is None
