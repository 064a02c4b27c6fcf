"""Megatron-Bridge's log: two ranks interleave on one line, iterations are 1-based."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

import pytest

from plugins.logs import Step
from plugins.record.baseline import Statistic
from tests.printed.megatron_bridge import rate
from tests.printed.megatron_lm import line
from tests.unit import examples
from tests.unit.examples import parse, problems

# Release 26.02, from a real run.
PUBLISHED = (
    "Step Time : 5.66s GPU utilization: 1190.9MODEL_TFLOP/s/GPU [2026-03-27 23:09:42] iteration        9/      50 | "
    "consumed samples:         1152 | elapsed time per iteration (ms): 5683.2 | learning rate: 2.700000E-04 | "
    "global batch size:   128 | lm loss: 8.645955E-02 | loss scale: 1.0 | grad norm: 0.475 | "
    "number of skipped iterations:   0 | number of nan iterations:   0 |"
)


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
        rated_seconds=5.66,
        loss=0.08645955,
        grad_norm=0.475,
        skipped_iterations=0,
        nan_iterations=0,
        stamp=1774652982.0,
    )


@pytest.mark.parametrize(
    "text",
    [
        f"{line(43)}{rate()}",
        f"{rate()}\n{rate()}\n{line(43)}",
        line(43),
        f"{rate()[:-3]}\n{line(43)}",
    ],
)
def test_a_rate_that_belongs_to_nobody_for_certain(text: str) -> None:
    assert only(f"{text}\n").tflops_per_gpu is None


def test_a_rate_belongs_to_the_iteration_behind_it() -> None:
    assert parse(rate(), "megatron_bridge").steps == ()
    assert only(f"{rate()}\n{line(43)}\n").tflops_per_gpu == 730.9
    steps = parse(f"{line(3, '10080.0')}{rate()}{line(4)}\n", "megatron_bridge").steps
    assert [(s.index, s.seconds, s.tflops_per_gpu) for s in steps] == [(2, 10.08, None), (3, 10.07, 730.9)]


def clocked(
    rated: Sequence[float], printed: Sequence[float], *, late: bool = False, work: float = 7360.163
) -> str:
    """A run with these times by rank 0, whose rate is of its own time, and by the last rank. `late`: rank 0's line comes behind."""
    pairs = [
        (rate(own, work / own), line(i, f"{1000 * seconds:.1f}"))
        for i, (own, seconds) in enumerate(zip(rated, printed, strict=True), start=1)
    ]
    return "".join(f"{pair[late]}\n{pair[not late]}\n" for pair in pairs)


TIMES = [random.Random(43).gauss(10.07, 0.3) for _ in range(50)]


# In the case of these tests a step has 7360 TFLOP a GPU.
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    ("changed", "factor"), [(range(50), 1.3), (range(50), 0.9), (range(40, 50), 1.08), (range(50), 1.04)]
)  # fmt: skip
def test_two_times_of_a_step_are_refused(changed: range, factor: float, *, late: bool) -> None:
    printed = [seconds / factor if i in changed else seconds for i, seconds in enumerate(TIMES)]
    reasons = problems(
        examples.case(), parse(clocked(TIMES, printed, late=late), "megatron_bridge"), Statistic()
    )
    (reason,) = [reason for reason in reasons if "two times of a step" in reason]
    found = re.match(
        r"the log states two times of a step, such as \d+\.\d\d s by rank 0 \(Step Time\) and [\d.]+ s by the iteration's own line at "
        r"step \d+: rank 0's is ([\d.]+) times the other, in the median of \d+ lines",
        reason,
    )
    assert found
    assert float(found[1]) == pytest.approx(factor, abs=0.02)
    other = parse(clocked(TIMES, printed, late=late, work=5000.0), "megatron_bridge")
    assert any(
        "step time x TFLOP/s is 5000" in reason for reason in problems(examples.case(), other, Statistic())
    )


# Stalls, and steps that scatter or alternate: rank 0's line may be that of the step before.
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    "times",
    [TIMES, [*TIMES[:49], 30.0], [seconds * (1 + (i % 7 == 0)) for i, seconds in enumerate(TIMES)], [10.0 + i % 2 for i in range(50)]],
)  # fmt: skip
def test_two_clocks_of_a_healthy_run_are_none(times: list[float], *, late: bool) -> None:
    skewed = [seconds * random.Random(i).gauss(1, 0.004) for i, seconds in enumerate(times)]
    log = parse(clocked(times, skewed, late=late), "megatron_bridge")
    assert problems(examples.case(), log, Statistic()) == []
