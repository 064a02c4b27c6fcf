"""Megatron-Bridge's log: two ranks interleave on one line, iterations are 1-based."""

from __future__ import annotations

import pytest

from plugins.logs import Step
from plugins.timing import Statistic
from tests.unit import examples
from tests.unit.examples import parse, problems
from tests.unit.logs.test_megatron_lm import line

# Release 26.02, from a real run.
PUBLISHED = (
    "Step Time : 5.66s GPU utilization: 1190.9MODEL_TFLOP/s/GPU [2026-03-27 23:09:42] iteration        9/      50 | "
    "consumed samples:         1152 | elapsed time per iteration (ms): 5683.2 | learning rate: 2.700000E-04 | "
    "global batch size:   128 | lm loss: 8.645955E-02 | loss scale: 1.0 | grad norm: 0.475 | "
    "number of skipped iterations:   0 | number of nan iterations:   0 |"
)


def rate(seconds: float = 10.07, tflops: float = 730.9) -> str:
    return f"Step Time : {seconds:.2f}s GPU utilization: {tflops:.1f}MODEL_TFLOP/s/GPU"


def whole() -> str:
    """On one line where rank 0 was first by little, on two where by more."""
    return "".join(f"{rate()}{'' if i % 3 else chr(10)}{line(i)}\n" for i in range(1, 51))


def only(text: str) -> Step:
    (step,) = parse(text, "megatron_bridge").steps
    return step


@pytest.mark.parametrize("glued", ["", "Deleting CUDA graphs"])
def test_the_published_line(glued: str) -> None:
    assert only(f"{PUBLISHED}{glued}\n") == Step(
        index=8,
        seconds=5.6832,
        resolution=pytest.approx(0.00005),  # type: ignore[arg-type]
        gbs=128,
        consumed_samples=1152,
        tflops_per_gpu=1190.9,
        loss=0.08645955,
        grad_norm=0.475,
        skipped_iterations=0,
        nan_iterations=0,
        stamp=1774652982.0,
    )


def test_a_whole_log() -> None:
    log = parse(whole() + "[after training is done] datetime: 2026-03-27 23:13:36\n", "megatron_bridge")
    assert [step.index for step in log.steps] == list(range(50))
    assert {step.tflops_per_gpu for step in log.steps} == {730.9}
    assert (log.planned, log.every, log.repeated) == (50, 1, ())
    assert problems(examples.case(), log, Statistic()) == []


def test_both_lines_on_two_lines() -> None:
    assert only(f"{rate()}\n{line(43)}\n").tflops_per_gpu == 730.9


@pytest.mark.parametrize(
    "text",
    [
        f"{line(43)}{rate()}",
        f"{rate()}\n{rate()}\n{line(43)}",
        f"{rate(12.0)}\n{line(43)}",
        line(43),
        f"{rate()[:-3]}\n{line(43)}",
        f"{rate()}\n{line(43).replace('(ms): 10070.0', '(ms): 10[rank3] oh 070.0')}",
    ],
)
def test_a_rate_that_belongs_to_nobody_for_certain(text: str) -> None:
    assert only(f"{text}\n").tflops_per_gpu is None


def test_two_iterations_around_one_rate_on_a_line() -> None:
    log = parse(f"{line(3, '10080.0')}{rate()}{line(4)}\n", "megatron_bridge")
    assert [(s.index, s.seconds, s.tflops_per_gpu) for s in log.steps] == [
        (2, 10.08, None),
        (3, 10.07, 730.9),
    ]


def test_a_rate_alone_is_no_step() -> None:
    assert parse(rate(), "megatron_bridge").steps == ()
