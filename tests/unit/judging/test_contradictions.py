"""What a log says against itself: losses, stamps, rates, times and processes that no one run has."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable
from itertools import accumulate

import pytest

from plugins.judging.model import flops_of_a_step
from plugins.judging.validity.times import even_remark
from plugins.record.verdict import Kind
from tests.printed import maxtext, megatron_bridge, megatron_lm
from tests.printed.nemo2 import nemo2_line
from tests.unit import examples
from tests.unit.judging import test_judge
from tests.unit.stated import CASES, judged, steps_of, text_of

DIALECTS = pytest.mark.parametrize("dialect", sorted(CASES))
LOSS = re.compile(
    r"(?<=reduced_train_loss: )[\d.]+|(?<=reduced_train_loss=)[\d.]+|(?<=reduced_train_loss : )[\d.]+|(?<=lm loss: )[\d.E+-]+|(?<=, loss: )[\d.]+"
)
FORMS = {"nemo1": "{:.3f}", "megatron_lm": "{:.6E}", "megatron_bridge": "{:.6E}", "maxtext": "{:.3f}"}


def with_losses(dialect: str, loss: Callable[[int], float]) -> str:
    """A run with these losses, as its format prints them. The first intervals of Megatron-LM in FP16 have none."""
    index = iter(range(1000))
    form = FORMS.get(dialect, "{:.4g}")
    return LOSS.sub(lambda _: form.format(loss(next(index))), text_of(dialect))


# Losses


@DIALECTS
@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (lambda i: 11.0 * 2.5**i, "a model that guesses every token alike has"),
        (lambda i: 11.0 if i < 2 else 1e4, "a model that guesses every token alike has"),
        (lambda i: 2.0 - i, "a cross-entropy is not negative"),
        (lambda i: -11.0 - i / 100, "a cross-entropy is not negative"),
    ],
)
def test_a_loss_of_no_training_is_refused(dialect: str, loss: Callable[[int], float], words: str) -> None:
    assert any(words in reason for reason in judged(dialect, with_losses(dialect, loss)))


@DIALECTS
@pytest.mark.parametrize("loss", [7.31, 11.96, 0.125])
def test_a_loss_that_never_changes_is_refused(dialect: str, loss: float) -> None:
    """A run of 100 iterations of Megatron-LM has ten lines, and those in which FP16 skipped all updates have no loss."""
    count = 9 if dialect == "megatron_lm" else 50
    (reason,) = judged(dialect, with_losses(dialect, lambda _: loss))
    assert reason == f"the loss is {loss} in all of {count} lines: nothing was learnt"


@DIALECTS
@pytest.mark.parametrize(
    "loss",
    [
        lambda i: 11.0 - i / 100,
        lambda i: 11.0 + 8 * (i == 5),
        lambda i: 0.001 if i > 20 else 11.0 - i / 2,
        lambda i: 11.0 + (i % 7 == 0) / 100,
    ],
    ids=["falls", "one spike", "synthetic data is learnt by heart", "few digits"],
)
def test_a_loss_of_training_is_healthy(dialect: str, loss: Callable[[int], float]) -> None:
    assert judged(dialect, with_losses(dialect, loss)) == []


# Megatron-LM leaves out a loss that is not above zero, so also one that is not a number: `if avg > 0.0` in `training_log`
# (Megatron-Bridge v0.2.0, src/megatron/bridge/training/utils/train_utils.py 620). In BF16 and FP8 no iteration counts as a NaN then.
LACKS = {
    "megatron_lm": ((r" lm loss: \S+ \|", ""),),
    "megatron_bridge": ((r" lm loss: \S+ \|", ""),),
    "nemo2": ((r" \| reduced_train_loss: \S+", ""), (r"reduced_train_loss: \S+", "reduced_train_loss: ")),
    "nemo1": ((r"reduced_train_loss=[^,]+, ", ""), (r"reduced_train_loss=[^,]+", "reduced_train_loss=")),
    "dllogger": (
        (r"reduced_train_loss : \S+  ", ""),
        (r"reduced_train_loss : \S+", "reduced_train_loss : None"),
    ),
}
EACH_LACK = pytest.mark.parametrize(
    ("dialect", "pattern", "instead"), [(name, *lack) for name, lacks in LACKS.items() for lack in lacks]
)
LOST = "no loss above zero is stated, so it was not a number, or nothing was trained"


def lacking(dialect: str, pattern: str, instead: str, places: Iterable[int]) -> str:
    """A run of which these lines have no loss."""
    lines = list(steps_of(dialect))
    for place in places:
        lines[place], count = re.subn(pattern, instead, lines[place])
        assert count == 1
    return text_of(dialect, count=0).lstrip() + "\n".join(lines) + "\n"


@EACH_LACK
@pytest.mark.parametrize("left", [1, 2, 5, 0.4, 0.97])
def test_a_loss_that_is_gone_from_some_step_on_is_refused(
    dialect: str, pattern: str, instead: str, left: float
) -> None:
    """`left`: so many lines, or so large a share of them, have a loss; in FP16 the first intervals of Megatron-LM have none."""
    count = len(steps_of(dialect))
    first = int(left * count) if left < 1 else int(left) + 2 * (dialect == "megatron_lm")
    (reason,) = judged(dialect, lacking(dialect, pattern, instead, range(min(first, count - 1), count)))
    assert reason.startswith("step")
    assert reason.endswith(f": {LOST}")


@EACH_LACK
def test_a_loss_that_many_lines_lack_is_refused_and_one_that_two_lack_is_not(
    dialect: str, pattern: str, instead: str
) -> None:
    assert judged(dialect, lacking(dialect, pattern, instead, (3, 5))) == []
    (reason,) = judged(dialect, lacking(dialect, pattern, instead, (3, 5, 7)))
    assert reason.endswith(LOST)


@pytest.mark.parametrize("dialect", sorted(set(CASES) - {"maxtext"}))
def test_a_loss_that_falls_to_zero_at_once_is_refused(dialect: str) -> None:
    (reason,) = judged(dialect, with_losses(dialect, lambda i: 11.0 - i / 100 if i < 6 else 0.0))
    assert reason.endswith(LOST)
    # MaxText has learnt its synthetic data by heart.
    assert judged("maxtext", with_losses("maxtext", lambda i: 11.0 - 5 * i if i < 2 else 0.0)) == []


GRADIENTS = {
    "megatron_lm": r"(?<=grad norm: )[\d.]+",
    "megatron_bridge": r"(?<=grad norm: )[\d.]+",
    "dllogger": r"(?<=grad_norm : )[\d.]+",
}


@pytest.mark.parametrize("dialect", GRADIENTS)
def test_gradients_of_zero_throughout_are_refused(dialect: str) -> None:
    """Without clipping Megatron computes no norm and prints 0.000 (megatron/core/optimizer/optimizer.py `step`)."""
    text = text_of(dialect)
    (reason,) = judged(dialect, re.sub(GRADIENTS[dialect], "0.000", text))
    assert reason.startswith("the gradient norm is 0 in all of ")
    assert judged(dialect, re.sub(GRADIENTS[dialect], "0.000", text, count=5)) == []


# Stamps

BEGAN = datetime.datetime(2025, 4, 11, 14, 46, tzinfo=datetime.UTC)
STAMPED = {
    "kubectl": "{:%Y-%m-%dT%H:%M:%S.%fZ} ",
    "kubectl with pods": "[pod/train-0-0/main] {:%Y-%m-%dT%H:%M:%S.%f}123Z ",
    "containerd": "{:%Y-%m-%dT%H:%M:%S.%fZ} stdout F ",
}


def stamped(form: str, dialect: str, gaps: list[float]) -> str:
    """A run with a stamp in front of each line, of which the steps are so many seconds apart."""
    lines = text_of(dialect).splitlines()
    head = len(lines) - len(steps_of(dialect))
    times = [0.0] * head + list(accumulate(gaps))
    return "".join(
        STAMPED[form].format(BEGAN + datetime.timedelta(seconds=seconds)) + line + "\n"
        for seconds, line in zip(times, lines, strict=True)
    )


STEP = {"nemo2": 10.07, "maxtext": 7.908}
OUTSIDE = pytest.mark.parametrize("dialect", sorted(STEP))
EACH_FORM = pytest.mark.parametrize("form", STAMPED)


@OUTSIDE
@EACH_FORM
@pytest.mark.parametrize("factor", [1.4, 3.0, 20.0])
def test_stamps_in_front_that_give_more_time_than_the_steps_are_refused(
    dialect: str, form: str, factor: float
) -> None:
    (reason,) = judged(dialect, stamped(form, dialect, [factor * STEP[dialect]] * 50))
    assert reason.startswith("by the log's own clock ")
    assert reason.endswith("the rest is time that no step tells of")


@OUTSIDE
@EACH_FORM
def test_stamps_that_fall_are_refused(dialect: str, form: str) -> None:
    (reason,) = judged(dialect, stamped(form, dialect, [-3.0] * 50))
    assert (
        reason
        == "the log's own clock goes back at 39 of 40 settled lines: they are not of one run in its order"
    )


def test_stamps_that_give_a_quarter_more_time_are_a_remark() -> None:
    judgement = test_judge.judged(examples.outcome(), stamped("kubectl", "nemo2", [1.2 * 10.07] * 50))
    assert judgement.verdict.kind is Kind.PASSED
    assert any(
        remark.startswith(
            "by the log's own clock 471 s passed between steps 10 and 49, which add up to 393 s"
        )
        for remark in judgement.verdict.remarks
    )


# Rates, times and processes


@pytest.mark.parametrize(("first", "said"), [(10.07, True), (10.08, False), (40.0, False)])
def test_a_time_that_is_the_same_in_every_line_is_a_remark(first: float, said: bool) -> None:
    log = examples.parse(examples.nemo2_text([first] + [10.07] * 49), "nemo2")
    remark = (
        "all of 50 lines, the first included, state the same time, 10.07 s: is this the log of a real run?"
    )
    assert even_remark(log) == (remark if said else "")


@pytest.mark.parametrize(("rate", "words"), [("0.0", "no positive number"), ("2500.0", "beyond the peak")])
def test_a_rate_that_no_gpu_has_is_refused_in_each_line(rate: str, words: str) -> None:
    lines = [megatron_bridge.rate() + megatron_lm.line(i + 1) for i in range(50)]
    lines[30] = re.sub(r"(?<=utilization: )[\d.]+", rate, lines[30])
    assert rate in lines[30]
    assert any(
        words in reason and "step 30" in reason
        for reason in judged("megatron_bridge", "\n".join(lines) + "\n")
    )


def test_rates_of_another_model_are_refused_in_each_line() -> None:
    case = CASES["nemo2"]
    tflops = flops_of_a_step(case, "full-attention") / 1e12 / 10.07
    lines = [
        nemo2_line(i, 10.07).replace(
            " | consumed", f" | TFLOPS_per_GPU: {tflops * (0.6 if i % 3 == 0 else 1):.5g} | consumed"
        )
        for i in range(50)
    ]
    (reason,) = judged("nemo2", "\n".join(lines) + "\n")
    assert reason.startswith("steps 12, 15, 18, ")
    assert "step time x TFLOP/s is " in reason
    # Some may stall, and have the rate of another step.
    stalled = [
        line.replace("timing in s: 10.07", "timing in s: 13.1") if i % 9 == 0 else line
        for i, line in enumerate(lines)
    ]
    healthy = [line.replace(f"{tflops * 0.6:.5g}", f"{tflops:.5g}") for line in stalled]
    assert judged("nemo2", "\n".join(healthy) + "\n") == []


TWICE = {
    "nemo2": (" | consumed_samples", " | train_step_timing in s: 12.9 | consumed_samples"),
    "nemo1": (", train_step_timing in s", ", train_step_timing in s=12.90, train_step_timing in s"),
    "dllogger": ("train_step_timing in s : ", "train_step_timing in s : 12.9 train_step_timing in s : "),
    "megatron_lm": (" learning rate", " elapsed time per iteration (ms): 12900.0 | learning rate"),
    "megatron_bridge": (" learning rate", " elapsed time per iteration (ms): 12900.0 | learning rate"),
}


@pytest.mark.parametrize("dialect", sorted(TWICE))
def test_a_line_with_two_times_has_none(dialect: str) -> None:
    text = text_of(dialect)
    twice = text.replace(*TWICE[dialect])
    assert twice != text
    assert any("garbled by other output" in reason for reason in judged(dialect, twice))


@pytest.mark.parametrize(("factor", "valid"), [(1.05, True), (1.4, False), (3.0, False)])
def test_processes_of_one_run_take_the_same_time(factor: float, valid: bool) -> None:
    lines = [
        f"{rank}: {maxtext.line(i, f'{7.908 * (factor if rank == 3 else 1):.3f}', loss=f'{7.31 - i / 1000:.3f}')}"
        for i in range(50)
        for rank in range(4)
    ]
    reasons = judged("maxtext", "\n".join(lines) + "\n")
    apart = [reason for reason in reasons if "times as long as the others" in reason]
    assert (apart == []) is valid
