"""The gates before speed: one by one, a log that is no evidence for its case is told so in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plugins.baselines.baseline_file import accelerators
from plugins.judging.validity import complete
from plugins.judging.validity.steps import MAX_GARBLED
from plugins.logs import Log, Span, Step
from plugins.record.baseline import Statistic
from tests.unit import examples
from tests.unit.examples import nemo2_line, nemo2_text, parse, problems

LAST = Statistic()
WINDOW = Statistic.parse("mean:35-44")
LINES = [nemo2_line(i) for i in range(50)]


def found(lines: list[str], statistic: Statistic = LAST) -> list[str]:
    return problems(examples.case(), parse("\n".join(lines) + "\n"), statistic)


def without(*indices: int) -> list[str]:
    return [line for i, line in enumerate(LINES) if i not in indices]


def with_line(index: int, line: str) -> list[str]:
    return [*LINES[:index], line, *LINES[index + 1 :]]


def garbled(*indices: int) -> list[str]:
    return [
        line.replace("in s: 10", "in s: 1[rank3] oh 0") if i in indices else line
        for i, line in enumerate(LINES)
    ]


@pytest.mark.parametrize("statistic", [LAST, WINDOW])
def test_a_valid_log_has_no_problems(statistic: Statistic) -> None:
    assert problems(examples.case(), parse(nemo2_text()), statistic) == []


def test_an_empty_log() -> None:
    assert problems(examples.case(), Log(), LAST) == ["the log has no training step (it is empty)"]


def test_a_log_without_steps() -> None:
    assert problems(examples.case(), parse("hello\n"), LAST) == ["the log has no training step"]


def test_a_log_without_a_time_that_can_be_read() -> None:
    h100 = accelerators(examples.BASELINES)["h100"]
    said = problems(examples.case(), Log(steps=(Step(49, None),), queued=True), LAST, h100)
    assert "step 49: the log line is garbled by other output, and the statistic last needs it" in said


def test_another_global_batch_size() -> None:
    assert found([nemo2_line(i, gbs=512) for i in range(50)]) == [
        "global batch size 512 at step 0, this case runs 1024",
        "and 49 more such steps",
    ]


def test_another_global_batch_size_in_one_step() -> None:
    assert found(with_line(30, nemo2_line(30, gbs=512))) == [
        "global batch size 512 at step 30, this case runs 1024"
    ]


def test_consumed_samples_off() -> None:
    assert found(with_line(30, nemo2_line(30, consumed=31 * 1024 + 1))) == [
        "31745 consumed samples after step 30, 31 x GBS 1024 is 31744"
    ]


def test_consumed_samples_of_a_resumed_run() -> None:
    said = found([nemo2_line(i, consumed=(i + 51) * 1024) for i in range(50)])
    assert said[0] == "52224 consumed samples after step 0, 1 x GBS 1024 is 1024"


def test_tokens_of_another_sequence_length() -> None:
    log = Log(steps=tuple(Step(i, 10.0, tokens=1024 * 4096, loss=7.31 - i / 100) for i in range(50)), size=1)
    assert problems(examples.case(), log, LAST) == [
        "4194304 tokens (total_weights) at step 0, GBS 1024 x sequence length 8192 is 8388608",
        "and 49 more such steps",
    ]


def test_tokens_that_agree() -> None:
    log = Log(steps=tuple(Step(i, 10.0, tokens=1024 * 8192, loss=7.31 - i / 100) for i in range(50)), size=1)
    assert problems(examples.case(), log, LAST) == []


@pytest.mark.parametrize(("ranks", "valid"), [(512, True), (64, True), (500, False), (1024, False)])
def test_the_number_of_processes(ranks: int, valid: bool) -> None:
    log = replace(parse(nemo2_text()), ranks=ranks)
    said = f"{ranks} processes print each step, which does not divide this case's 512 GPUs"
    assert problems(examples.case(), log, LAST) == ([] if valid else [said])


@pytest.mark.parametrize(
    ("key", "factor", "said"),
    [
        ("tokens_per_gpu", 1.0, ""),
        (
            "tokens_per_gpu",
            0.5,
            "step time x tokens/s is 8188 to 8196 tokens a GPU at step 7, this case runs 16384",
        ),
        ("flops_per_gpu", 1.0, ""),
        ("flops_per_gpu", 1.0012, ""),
        ("flops_per_gpu", 0.997, "this case's model is 7887.8"),
        ("flops_per_gpu", 1.05, "this case's model is 7887.8"),
    ],
)
def test_rates_and_times_agree_with_the_case(key: str, factor: float, said: str) -> None:
    case = examples.case()
    one = {"tokens_per_gpu": 16384.0, "flops_per_gpu": 2 * examples.basis().flops}[key] * factor
    span = Span(one * 0.9995, one * 1.0005)
    log = parse(nemo2_text())
    spoilt = Step(7, 10.07, 0.005, **{key: span})  # type: ignore[arg-type]
    steps = tuple(spoilt if step.index == 7 else step for step in log.steps)
    found = problems(case, replace(log, steps=steps), LAST)
    assert len(found) == bool(said)
    assert said in "".join(found)


@pytest.mark.parametrize(
    ("profiled", "behind", "valid"), [(True, 11, True), (True, 12, False), (False, 12, True)]
)
def test_a_profile_of_other_steps_than_in_the_published_run(profiled: bool, behind: int, valid: bool) -> None:
    log = replace(parse(nemo2_text()), captured_after=behind)
    said = problems(replace(examples.case(), profiled=profiled), log, LAST)
    assert [line for line in said if "behind step 12, and not on steps 9 to 11" in line] == said
    assert (said == []) is valid


def test_no_configuration_stated() -> None:
    log = Log(steps=tuple(Step(i, 10.0, loss=7.31 - i / 100) for i in range(50)), size=1)
    assert problems(examples.case(), log, LAST) == [
        "no line states the global batch size, the consumed samples or the tokens of a step"
    ]


@pytest.mark.promise("no wrong pass: every step")
@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ((0,), "step 0 is missing between steps 1 and 49"),
        ((25,), "step 25 is missing between steps 0 and 49"),
        ((3, 25), "steps 3 and 25 are missing between steps 0 and 49"),
        ((27, 28, *range(31, 36)), "steps 27, 28 and 31 to 35 are missing between steps 0 and 49"),
        (tuple(range(1, 25, 2)), "steps 1, 3, 5, 7, 9, 11 and 6 more are missing between steps 0 and 49"),
        ((49,), "the last step seen is 48 of 0 to 49: step 49 is missing"),
        ((48, 49), "the last step seen is 47 of 0 to 49: steps 48 and 49 are missing"),
        (
            tuple(range(18, 50)),
            "the last step seen is 17 of 0 to 49: steps 18 to 49 are missing",
        ),
    ],
)
def test_a_missing_step(missing: tuple[int, ...], said: str) -> None:
    assert found(without(*missing)) == [said]
    assert not complete(examples.case(), parse("\n".join(without(*missing)) + "\n"))


def test_a_missing_step_that_the_statistic_does_not_need_is_missing_all_the_same() -> None:
    assert found(without(3), WINDOW) == ["step 3 is missing between steps 0 and 49"]


def test_extra_steps() -> None:
    assert "the log goes on to step 50, the recipe ends at 49" in found([*LINES, nemo2_line(50)])


def test_repeats() -> None:
    assert found([*LINES[:8], LINES[7], *LINES[8:]]) == [
        "step 7 printed more than once: two processes write this log, or two runs share it"
    ]


def test_two_processes_that_write_one_log() -> None:
    assert "printed more than once" in found([line for line in LINES for _ in (0, 1)])[0]


@pytest.mark.parametrize(
    ("loss", "said"),
    [(0.0, ["every loss is zero"]), (None, ["no loss is stated"]), (0.001, [])],
)
def test_a_training_without_a_loss_is_told(loss: float | None, said: list[str]) -> None:
    log = Log(
        steps=tuple(Step(i, 10.0, tokens=1024 * 8192, loss=loss and loss + i / 1000) for i in range(50)),
        size=1,
    )
    assert problems(examples.case(), log, LAST) == said


@pytest.mark.promise("no wrong pass: a finite loss")
@pytest.mark.parametrize("loss", ["nan", "inf", "-inf"])
def test_a_loss_that_is_not_finite(loss: str) -> None:
    lines = [nemo2_line(i, loss=loss) if i >= 20 else line for i, line in enumerate(LINES)]
    assert found(lines) == ["the loss is not a finite number from step 20 on (30 steps)"]


def test_a_gradient_norm_that_is_not_finite() -> None:
    log = parse(nemo2_text())
    steps = tuple(replace(step, grad_norm=float("nan") if step.index == 5 else 1.0) for step in log.steps)
    assert problems(examples.case(), replace(log, steps=steps), LAST) == [
        "the gradient norm is not a finite number from step 5 on (1 steps)"
    ]


@pytest.mark.parametrize("seconds", ["0", "-10.07", "nan", "inf"])
def test_a_step_time_that_is_no_time(seconds: str) -> None:
    assert found(with_line(30, nemo2_line(30, seconds))) == [
        "step 30: the step time is not a positive number"
    ]


def test_a_profiled_run_announces_fewer_steps() -> None:
    said = found([nemo2_line(i, last=24) for i in range(25)])
    assert said[0] == "the run announced 25 steps, the recipe runs 50"
    assert said[1].startswith("the last step seen is 24 of 0 to 49: ")


def test_a_longer_run_is_another_run() -> None:
    said = found([nemo2_line(i, last=99) for i in range(50)])
    assert said == ["the run announced 100 steps, the recipe runs 50"]


def test_two_announcements() -> None:
    assert found(with_line(30, nemo2_line(30, last=99))) == [
        "the run announced two different numbers of steps, the recipe runs 50"
    ]


def test_few_garbled_lines_are_forgiven() -> None:
    assert MAX_GARBLED == 2
    assert found(garbled(20, 41)) == []
    assert complete(examples.case(), parse("\n".join(garbled(20, 41)) + "\n"))


def test_many_garbled_lines_are_not() -> None:
    assert found(garbled(20, 21, 41)) == [
        "steps 20, 21 and 41: the log line is garbled by other output; only 2 such steps are allowed"
    ]


def test_a_garbled_line_that_the_statistic_needs() -> None:
    assert found(garbled(49)) == [
        "step 49: the log line is garbled by other output, and the statistic last needs it"
    ]
    assert found(garbled(40), WINDOW) == [
        "step 40: the log line is garbled by other output, and the statistic mean:35-44 needs it"
    ]


@pytest.mark.promise("no wrong pass: a profiler")
@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "Global Checkpoint Save : Rank: 0 : Iteration: 50",
            "a checkpoint was saved or loaded during the run: ",
        ),
        (
            "Global Checkpoint Load : Rank : 0 : Start time : 1",
            "a checkpoint was saved or loaded during the run: ",
        ),
        ("x:1:1 [0] NCCL INFO AllReduce: opCount 2 sendbuff", "NCCL tracing was on: "),
        ("Generating '/tmp/a.nsys-rep'", "a profiler was on: "),
        ("NCCL INFO Using network Socket", "NCCL fell back to TCP sockets: the fast network was not used: "),
    ],
)
def test_what_spoils_a_timed_run(line: str, said: str) -> None:
    assert found([*LINES[:30], line, *LINES[30:]]) == [said + line]


def test_every_problem_is_told() -> None:
    said = found([*without(25), "NCCL INFO Using network Socket"])
    assert len(said) == 2


def test_complete_needs_every_step() -> None:
    assert complete(examples.case(), parse(nemo2_text()))
    assert not complete(examples.case(), Log())


def test_a_recipe_that_was_published_with_a_profiler_may_profile() -> None:
    log = replace(
        parse(nemo2_text()), marks=(("profiler", "Capture range started"), ("nccl trace", "opCount"))
    )
    found = problems(replace(examples.case(), profiled=True), log, LAST)
    assert found == ["NCCL tracing was on: opCount"]
    assert len(problems(examples.case(), log, LAST)) == 2


def test_only_maxtext_was_published_with_a_profiler() -> None:
    recipes = ("llama3", "nemotron4", "maxtext_llama2")
    assert [name for name in recipes if examples.recipe_named(name).file.profiled] == ["maxtext_llama2"]


@pytest.mark.parametrize(
    ("back", "hidden", "said"), [(0, 1.0, False), (3600, 1.0, False), (0, 1.5, True), (3600, 1.5, True)]
)
def test_a_clock_that_is_put_back_hides_no_time_that_passed(back: int, hidden: float, said: bool) -> None:
    """By the stamps each step takes `hidden` times what it prints; in the middle the clock is put back."""
    log = examples.parse(nemo2_text([10.07] * 50))
    stamped = [
        replace(step, stamp=1e9 + 10.07 * hidden * step.index - (back if step.index >= 30 else 0))
        for step in log.steps
    ]
    found = problems(examples.case(), replace(log, steps=tuple(stamped)), LAST)
    assert any("is time that no step tells of" in problem for problem in found) is said
