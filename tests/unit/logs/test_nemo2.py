"""NeMo 2's log: what a line states is read as it stands, and nothing else is."""

from __future__ import annotations

import math

import pytest

from plugins.logs import Log, Step
from plugins.logs.numbers import resolution
from tests.printed.nemo2 import nemo2_line
from tests.unit.examples import parse

PUBLISHED = (
    "Training epoch 0, iteration 49/49 | lr: 7.496e-06 | global_batch_size: 128 | global_step: 49 | "
    "peak_memory_usage: 70833405952 | memory_allocated: 44271689728 | reduced_train_loss: 11.96 | "
    "train_step_timing in s: 12.39 | consumed_samples: 6400"
)
# Release 25.05 and later.
LATER = (
    "Training epoch 0, iteration 45/99 | lr: 6.897e-06 | global_batch_size: 128 | global_step: 45 | "
    "max_memory_reserved: 127785762816 | max_memory_allocated: 115792977920 | reduced_train_loss: 11.96 | "
    "train_step_timing in s: 6.08 | TFLOPS_per_GPU: 1.249e+03 | consumed_samples: 5888"
)


def only(text: str | bytes) -> Step:
    (step,) = parse(text).steps
    return step


def seconds(log: Log) -> list[tuple[int, float | None]]:
    return [(step.index, step.seconds) for step in log.steps]


def test_the_published_line() -> None:
    assert only(PUBLISHED + "\n") == Step(
        index=49, seconds=12.39, resolution=0.005, gbs=128, consumed_samples=6400, loss=11.96
    )


def test_the_line_of_a_later_release() -> None:
    assert only(LATER + "\n") == Step(
        index=45,
        seconds=6.08,
        resolution=0.0005,
        gbs=128,
        consumed_samples=5888,
        loss=11.96,
        tflops_per_gpu=1249.0,
    )


# Trailing zeros are dropped by the format: 9.33 is 9.330.
@pytest.mark.parametrize(
    ("printed", "half_a_unit"),
    [("12.39", 0.005), ("9.33", 0.0005), ("10", 0.005), ("9", 0.0005), ("123.4", 0.05), ("0.1234", 0.00005),
     ("1.234e+03", 0.5), ("1234", 0.5), ("5.4", 0.0005)],
)  # fmt: skip
def test_four_significant_digits(printed: str, half_a_unit: float) -> None:
    assert only(nemo2_line(49, printed) + "\n").resolution == pytest.approx(half_a_unit)
    assert resolution(printed, 4) == pytest.approx(half_a_unit)


# Another rank's output often begins with a line feed; what stands before it is not the whole number. Or a writer was killed in the middle of
# a line, and the next attempt appends to the same file.
@pytest.mark.parametrize("between", ["[rank3] careful", "\n[rank3] careful\n", f"{nemo2_line(0, 10.1)}\n"])
def test_a_line_that_is_cut_never_states_another_time(between: str) -> None:
    number = PUBLISHED.index("12.39")
    for at in range(PUBLISHED.index(" | global_batch_size"), PUBLISHED.index(" | consumed")):
        steps = parse(f"{PUBLISHED[:at]}{between}{PUBLISHED[at:]}\n").steps
        found = [step.seconds for step in steps if step.index == 49]
        assert found or at < number, at
        assert set(found) <= ({None} if number < at < number + len("12.39") else {12.39, None}), at


def test_a_truncated_last_line_never_has_a_shortened_number() -> None:
    whole = only(PUBLISHED + "\n")
    for cut in range(PUBLISHED.index(" | lr"), len(PUBLISHED)):
        for step in parse(PUBLISHED[:cut]).steps:
            assert step.index == 49
            assert step.seconds in (whole.seconds, None), PUBLISHED[:cut]
            assert step.gbs in (whole.gbs, None), PUBLISHED[:cut]
            assert step.loss in (whole.loss, None), PUBLISHED[:cut]
            assert step.consumed_samples is None, PUBLISHED[:cut]


def test_a_step_that_contradicts_its_head_is_none() -> None:
    assert parse(nemo2_line(49, step=48) + "\n").steps == ()


def test_every_restart_is_told_and_the_last_attempt_counts() -> None:
    log = parse("\n".join(nemo2_line(i, 10.0 + last) for last in (3, 7, 2) for i in range(last + 1)) + "\n")
    assert (log.restarted_after, log.repeated) == ((3, 7), ())
    assert seconds(log) == [(0, 12.0), (1, 12.0), (2, 12.0)]


def test_a_line_printed_twice_is_a_repeat_and_its_first_time_stays() -> None:
    log = parse("\n".join(nemo2_line(i, t) for i, t in ((2, 10.0), (3, 10.1), (3, 20.0), (4, 10.2))) + "\n")
    assert log.repeated == (3,)
    assert seconds(log) == [(2, 10.0), (3, 10.1), (4, 10.2)]


def test_two_announcements_contradict_each_other() -> None:
    assert parse(f"{nemo2_line(0, last=24)}\n{nemo2_line(1, last=49)}\n").planned == 0


@pytest.mark.parametrize("loss", ["nan", "inf", "-inf", "-nan"])
def test_a_loss_that_is_no_number_is_read_as_it_is(loss: str) -> None:
    step = only(nemo2_line(7, loss=loss) + "\n")
    assert step.loss is not None
    assert not math.isfinite(step.loss)
    assert step.seconds == 10.07


@pytest.mark.parametrize(
    ("printed", "value"),
    [
        *(("1.239e+01", 12.39), ("1.2e-05", 0.000012), ("1e+01", 10.0), ("12", 12.0), ("-1.5", -1.5), ("0", 0.0)),
        *((text, None) for text in ("", "12.39.1", "12,39", "1e", "--1", "0x12", "12.39 s", "1_000", "٣,٩", "12.39foo", "12\0.39")),
    ],
)  # fmt: skip
def test_a_time_is_read_as_a_number_or_not_at_all(printed: str, value: float | None) -> None:
    assert only(nemo2_line(49, printed) + "\n").seconds == value
