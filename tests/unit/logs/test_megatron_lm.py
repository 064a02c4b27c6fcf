"""Megatron-LM's iteration line: 1-based, milliseconds, means over the log interval."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from plugins.judging.validity import complete
from plugins.logs import Step
from plugins.logs.means import Means
from plugins.record.baseline import Statistic
from tests.printed.megatron_lm import line
from tests.unit import examples
from tests.unit.examples import parse, problems


def whole(interval: int = 1, total: int = 50) -> str:
    text = [line(i, total=total) for i in range(interval, total + 1, interval)]
    return "[before the start of training step] datetime: x \n" + "".join(f"{one}\n" for one in text)


def only(text: str) -> Step:
    (step,) = parse(text, "megatron_lm").steps
    return step


def test_a_line_is_the_0_based_step_before_its_number() -> None:
    assert only(line(50, "5683.2") + "\n") == Step(
        index=49,
        seconds=5.6832,
        resolution=pytest.approx(0.00005),  # type: ignore[arg-type]
        gbs=1024,
        consumed_samples=51200,
        loss=0.08645955,
        grad_norm=0.475,
        skipped_iterations=0,
        nan_iterations=0,
        stamp=1735732800.0,
    )


def test_throughput_and_loss_are_optional() -> None:
    assert (only(line(50, throughput="412.3")).tflops_per_gpu, only(line(50)).tflops_per_gpu) == (412.3, None)
    assert only(line(50, loss=None)).loss is None
    assert not any(math.isfinite(only(line(50, loss=loss)).loss or 0.0) for loss in ("NAN", "nan", "INF"))


@pytest.mark.parametrize(
    "text",
    [line(0), " validation loss at iteration 10 | lm loss value: 1.234567E+00 | lm loss PPL: 3.4E+00 | \n"],
)
def test_iteration_0_and_a_validation_are_no_steps(text: str) -> None:
    assert parse(text, "megatron_lm").steps == ()


@pytest.mark.parametrize("interval", [1, 2, 5, 10])
def test_the_interval_divides_every_iteration(interval: int) -> None:
    log = parse(whole(interval), "megatron_lm")
    assert log.every == interval
    assert [step.index for step in log.steps] == list(range(interval - 1, 50, interval))
    assert (log.planned, log.repeated, log.restarted_after) == (50, (), ())
    assert complete(examples.case(), log)


# From core 0.16 on: the first iteration has a line of its own, nothing is reset by it, and dates have fractions.


def newer(text: str) -> str:
    return text.replace("12:00:00]", "12:00:00.123456]")


@pytest.mark.parametrize("interval", [2, 5, 10])
def test_the_first_iteration_has_a_line_whatever_the_interval(interval: int) -> None:
    log = parse(newer(line(1, "90000.0") + "\n" + whole(interval)), "megatron_lm")
    assert log.every == interval
    assert [step.index for step in log.steps] == list(range(interval - 1, 50, interval))
    assert {step.seconds for step in log.steps} == {10.07}
    assert complete(replace(examples.case(), means=Means(interval, interval)), log)


@pytest.mark.parametrize(
    ("iterations", "interval", "indices"),
    [
        ((1,), 1, [0]),
        ((1, 10), 0, [9]),
        ((1, 10, 20), 10, [9, 19]),
        ((1, 10, 30, 40), 10, [9, 29, 39]),
        ((1, 2), 1, [0, 1]),
        ((1, 2, 4), 2, [1, 3]),
        ((1, 2, 3), 1, [0, 1, 2]),
    ],
)
def test_the_interval_of_the_lines_so_far(
    iterations: tuple[int, ...], interval: int, indices: list[int]
) -> None:
    log = parse("\n".join(newer(line(i)) for i in iterations) + "\n", "megatron_lm")
    assert (log.every, [step.index for step in log.steps]) == (interval, indices)


def second(first: str, both: str, *, fractions: bool = True) -> Step:
    text = "\n".join([line(1, first, skipped=1), line(2, both, skipped=2), line(3)]) + "\n"
    return parse(newer(text) if fractions else text, "megatron_lm").steps[1]


def test_the_second_of_single_iterations_is_told_from_the_first() -> None:
    step = second("5132.9", "2918.4")
    assert step.seconds == pytest.approx(0.7039)
    assert step.resolution == pytest.approx(0.00015)
    assert step.skipped_iterations == 1


# A release before 0.16, and one that starts its timer again: a mean of both is more than half of the first.
@pytest.mark.parametrize(("both", "fractions"), [("2918.4", False), ("711.0", True), ("2566.4", True)])
def test_a_line_of_the_second_iteration_alone_is_read_as_it_stands(both: str, fractions: bool) -> None:
    step = second("5132.9", both, fractions=fractions)
    assert step.seconds == pytest.approx(float(both) / 1000)
    assert step.skipped_iterations == 2


def test_without_the_first_time_nobody_knows_the_second() -> None:
    assert second("51#2.9", "2918.4").seconds is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (whole(), []),
        (whole(10), ["the log states means over 10 steps, and the statistic last needs single ones"]),
        (line(50), ["the log states means over an unknown number of steps, and the statistic last needs single ones"]),
        (whole().replace(line(7), line(7, nan=1)), ["step 6: the loss or a gradient was not a number"]),
    ],
)  # fmt: skip
def test_only_single_steps_of_numbers_are_a_valid_run(text: str, said: list[str]) -> None:
    assert problems(examples.case(), parse(text, "megatron_lm"), Statistic()) == said


@pytest.mark.parametrize(
    ("iteration", "statistic", "told"),
    [
        (1, "last", False),
        (40, "last", False),
        (41, "last", True),
        (50, "last", True),
        (35, "mean:35-44", False),
        (36, "mean:35-44", True),
        (50, "mean:35-44", True),
    ],
)
def test_iterations_that_fp16_skips_spoil_the_steps_that_are_judged(
    iteration: int, statistic: str, told: bool
) -> None:
    text = whole().replace(line(iteration), line(iteration, skipped=1))
    case = replace(examples.case(), dtype="fp16")
    found = problems(case, parse(text, "megatron_lm"), Statistic.parse(statistic))
    reason = f"step {iteration - 1}: the update was skipped, and the judgement needs it"
    assert [one for one in found if "skipped" in one] == ([reason] if told else [])


@pytest.mark.parametrize("iteration", [5, 50])
def test_an_iteration_that_anything_but_fp16_skips_is_refused(iteration: int) -> None:
    text = whole().replace(line(iteration), line(iteration, skipped=1))
    (reason,) = problems(examples.case(), parse(text, "megatron_lm"), Statistic())
    assert reason == (
        f"step {iteration - 1}: the update was skipped, for which fp8 has no reason: only FP16 scales its loss"
    )


@pytest.mark.parametrize("dialect", ["megatron_lm", "megatron_bridge"])
@pytest.mark.parametrize(("first", "last", "precision"), [(131072.0, 1.0, "bf16"), (1.0, 131072.0, "fp16")])
def test_the_loss_scale_is_that_of_the_last_attempt(
    dialect: str, first: float, last: float, precision: str
) -> None:
    died = [line(i, scale=first) for i in range(1, 21)]
    whole = [line(i, scale=last) for i in range(1, 51)]
    for between in ([], ["Worker group FAILED. 1/3 attempts left; will restart worker group"]):
        log = parse("\n".join([*died, *between, *whole]) + "\n", dialect)
        assert [(fact.name, fact.value) for fact in log.facts] == [("precision", precision)]


def test_a_line_cut_short_never_states_another_number() -> None:
    text = line(50, "5683.2", throughput="412.3")
    for cut in range(len(text)):
        for mutated in (
            text[:cut],
            f"{text[:cut]}\n[rank3] careful\n{text[cut:]}",
            f"{text[:cut]}[rank3] oh{text[cut:]}",
        ):
            for step in parse(mutated, "megatron_lm").steps:
                assert (step.index, step.gbs in (1024, None)) == (49, True), mutated
                assert step.seconds in (5.6832, None), mutated
                assert step.consumed_samples in (51200, None), mutated
                assert step.tflops_per_gpu in (412.3, None), mutated
