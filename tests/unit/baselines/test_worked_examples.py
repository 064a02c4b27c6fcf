"""The worked examples of the recipes' READMEs contradict the READMEs' own tables; each is judged by the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugins.judging.judgement import Judgement
from plugins.record.job import Job, JobRef, JobState, Phase
from plugins.record.outcome import Outcome
from plugins.record.verdict import Kind
from tests.unit import examples


def judged(recipe: str, case_id: str, log: str) -> Judgement:
    case = examples.case(case_id, recipe)
    ref, state = JobRef(case.recipe, case.id, "", "1"), JobState(Phase.SUCCEEDED, "COMPLETED")
    job = Outcome("h100", Path(), None, Job(ref=ref, state=state))
    parsed = examples.parse(log, examples.recipe_named(recipe).file.log)
    found = examples.baseline(case_id, recipe)
    return examples.judged(case, job, parsed, found)


def nemo2(gbs: int, seconds: float) -> str:
    return "".join(
        f"Training epoch 0, iteration {i}/49 | lr: 7.496e-06 | global_batch_size: {gbs} | global_step: {i} | "
        f"peak_memory_usage: 70833405952 | memory_allocated: 44271689728 | reduced_train_loss: {11.96 - i / 100:.4g} | "
        f"train_step_timing in s: {seconds:.4g} | consumed_samples: {(i + 1) * gbs}\n"
        for i in range(50)
    )


def nemo1(gbs: int, seconds: float, steps: int = 50) -> str:
    return "\r".join(
        f"Epoch 0: : 100%|##########| {i + 1}/{steps} [07:57<00:00, reduced_train_loss={7.31 - i / 1000:.3f}, global_step={i}.0, "
        f"consumed_samples={(i + 1) * gbs}.0, train_step_timing in s={seconds:.3f}]"
        for i in range(steps)
    )


def maxtext(seconds: float, tflops: float, tokens: float) -> str:
    return "".join(
        f"completed step: {i}, seconds: {seconds:.3f}, TFLOP/s/device: {tflops:.3f}, "
        f"Tokens/s/device: {tokens:.3f}, total_weights: 524288, loss: {0 if i > 2 else 10.4:.3f}\n"
        for i in range(50)
    )


@pytest.mark.parametrize(
    ("case_id", "verdict"), [("8b-fp8-8gpus", Kind.TOO_SLOW), ("8b-bf16-8gpus", Kind.PASSED)]
)
def test_12_39_seconds_are_those_of_bf16_and_not_of_fp8(case_id: str, verdict: Kind) -> None:
    found = judged("llama3", case_id, nemo2(128, 12.39))
    assert found.verdict.kind is verdict
    assert found.measurement is not None
    assert found.measurement.tokens_per_second == pytest.approx(84631, abs=1)
    assert found.measurement.days_per_1t_tokens == pytest.approx(136.76, abs=0.01)


def test_7_908_seconds_fail_against_the_tables_6_999() -> None:
    found = judged("maxtext_llama2", "70b-bf16-64gpus", maxtext(7.908, 460.480, 1035.970))
    assert found.verdict.kind is Kind.TOO_SLOW
    assert "7.908 s a step where 6.999 s is expected, -11.5 % throughput" in found.verdict.headline
    assert found.measurement is not None
    assert found.measurement.mfu == pytest.approx(46.54, abs=0.01)


def test_4_77_seconds_pass_against_the_tables_4_61() -> None:
    found = judged("nemotron4", "340b-bf16-128gpus", nemo1(32, 4.77))
    assert found.verdict.kind is Kind.PASSED
    assert "-3.4 % throughput" in found.verdict.headline
    assert found.measurement is not None
    assert found.measurement.mfu == pytest.approx(53.52, abs=0.01)


def test_nemotrons_sample_of_100_steps_is_no_run_of_50() -> None:
    found = judged("nemotron4", "340b-fp8-1024gpus", nemo1(256, 3.590, steps=100))
    assert found.verdict.kind is Kind.INVALID
    assert "the run announced 100 steps, the recipe runs 50" in found.verdict.headline
