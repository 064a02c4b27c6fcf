"""NeMo 1's progress bar: 3 significant digits, drawn twice a step, updates behind carriage returns."""

from __future__ import annotations

import math
import re

import pytest

from plugins.logs import Step
from tests.printed.nemo1 import bar, shown
from tests.unit import examples
from tests.unit.examples import parse, problems

PUBLISHED = (
    "Epoch 0: : 100%|██████████| 100/100 [07:57<00:00, reduced_train_loss=7.310, global_step=99.00, "
    "consumed_samples=25600.0, train_step_timing in s=3.590]"
)


def whole(times: list[float]) -> str:
    """A log as Lightning draws it: after each step the new count beside the old figures, then the new ones."""
    bars = ["Epoch 0: :   0%|          | 0/50 [00:00<?]", "Epoch 0: :   2%|▏         | 1/50 [00:40<32:40]"]
    for i, seconds in enumerate(times):
        bars += [bar(i - 1, times[i - 1], count=i + 1)] if i else []
        bars.append(bar(i, seconds))
    return "[NeMo I 2024-11-09 10:00:00 x:1] start\n" + "\r".join(bars) + "\n`Trainer.fit` stopped\n"


def only(text: str) -> Step:
    (step,) = parse(text, "nemo1").steps
    return step


def test_the_published_line() -> None:
    assert only(PUBLISHED) == Step(
        index=99, seconds=3.59, resolution=0.005, consumed_samples=25600, loss=7.31, stamp=477.0
    )
    assert parse(PUBLISHED, "nemo1").planned == 100


def test_a_version_number_may_stand_first() -> None:
    assert only(PUBLISHED.replace("reduced", "v_num=0f3a, reduced")) == only(PUBLISHED)


# Values and what the two libraries make of them, as published with the recipe.
@pytest.mark.parametrize(
    ("value", "printed", "half_a_unit"),
    [(3.5904, "3.590", 0.005), (12.84, "12.80", 0.05), (11.196, "11.20", 0.05), (123.456, "123.0", 0.5),
     (10.07, "10.10", 0.05), (0.98765, "0.988", 0.0005), (1234.5, "1234.5", 0.05), (12345.6, "12345.6", 0.05),
     (1234567.0, "1.23e+6", 5000)],
)  # fmt: skip
def test_the_rounding_of_a_step_time(value: float, printed: str, half_a_unit: float) -> None:
    assert shown(value) == printed
    step = only(bar(7, value))
    assert step.seconds == float(printed)
    assert step.resolution == pytest.approx(half_a_unit)
    assert abs(step.seconds - value) <= step.resolution * 1.0001


@pytest.mark.parametrize(
    ("printed", "samples", "half_a_unit"),
    [("2.56e+5", 256000, 500), ("1.28e+6", 1280000, 5000), ("2e+5", 200000, 500), ("25600.0", 25600, 0),
     ("512.0", 512, 0)],
)  # fmt: skip
def test_consumed_samples(printed: str, samples: int, half_a_unit: float) -> None:
    step = only(PUBLISHED.replace("25600.0", printed))
    assert (step.consumed_samples, step.consumed_resolution) == (samples, half_a_unit)


def test_a_whole_log_drawn_twice_a_step() -> None:
    log = parse(whole([10.07 + i / 10 for i in range(50)]), "nemo1")
    assert [step.index for step in log.steps] == list(range(50))
    assert [step.seconds for step in log.steps[:3]] == [10.1, 10.2, 10.3]
    assert (log.planned, log.repeated, log.restarted_after) == (50, (), ())


def test_samples_beyond_their_rounding_are_another_run() -> None:
    log = parse(whole([10.07] * 50).replace("consumed_samples=50176.0", "consumed_samples=5.12e+4"), "nemo1")
    assert (
        "51200 consumed samples (rounded to 100) after step 48"
        in problems(examples.case(), log, examples.baseline().statistic)[0]
    )


@pytest.mark.parametrize(
    "text", ["Validation DataLoader 0: 100%|██| 1/1 [00:01<00:00, 1.2it/s]", "global_step=5.000", bar(2001)]
)
def test_other_bars_and_a_rounded_step_number_are_no_steps(text: str) -> None:
    assert parse(text, "nemo1").steps == ()


def test_two_different_times_of_a_step_are_a_repeat_and_the_same_loss_of_nan_is_none() -> None:
    assert parse("\r".join([bar(3, loss=math.nan)] * 2), "nemo1").repeated == ()
    assert parse(f"{bar(2)}\r{bar(3, 10.1)}\r{bar(3, 12.1)}", "nemo1").repeated == (3,)


@pytest.mark.parametrize("printed", ["nan", "nan.0", "inf.0", "-inf.", "-inf"])
def test_a_loss_that_is_no_number(printed: str) -> None:
    found = only(PUBLISHED.replace("7.310", printed)).loss
    assert found is not None
    assert not math.isfinite(found)
    text = re.sub(r"(?<=reduced_train_loss=)[\d.]+", printed, whole([10.07] * 50))
    said = problems(examples.case(), parse(text, "nemo1"), examples.baseline().statistic)
    assert said == ["the loss is not a finite number from step 0 on (50 steps)"]


def test_the_second_drawing_mends_the_first() -> None:
    text = f"{bar(3, 10.1).replace('10.10', '10.[rank3] oh 10')}\r{bar(3, 10.1, count=5)}"
    assert only(text).seconds == 10.1


def test_a_bar_cut_short_never_states_another_time() -> None:
    for cut in range(len(PUBLISHED)):
        for text in (PUBLISHED[:cut], f"{PUBLISHED[:cut]}\n[rank3] careful\n{PUBLISHED[cut:]}"):
            for step in parse(text, "nemo1").steps:
                assert (step.index, step.seconds in (3.59, None)) == (99, True), text
                assert step.consumed_samples in (25600, None), text
