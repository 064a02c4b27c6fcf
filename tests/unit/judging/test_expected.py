"""What a suite's test asserts agrees with the verdict, also where a run has no figure to compare."""

from __future__ import annotations

import pytest

from plugins.suite.measured import Target
from tests.unit import examples
from tests.unit.judging.test_judge import judged


def target(own: float | None, seconds: float) -> Target:
    judgement = judged(
        examples.outcome(), examples.nemo2_text([seconds + step % 2 / 1000 for step in range(50)])
    )
    return Target(39.5, "% MFU", own, 0.05, 0.05, judgement)


@pytest.mark.parametrize("own", [39.5, 80.0, None])
@pytest.mark.parametrize(("seconds", "passes"), [(10.07, True), (11.5, False)])
def test_the_runs_own_figure_agrees_with_the_verdict(own: float | None, seconds: float, passes: bool) -> None:
    """None: the last step was so fast that its MFU would be above 100 %, and the steady median decides."""
    assert (own == target(own, seconds)) is passes


def test_any_other_figure_is_compared_by_the_tolerance() -> None:
    other = target(39.5, 11.5)
    assert other == 38.0
    assert other != 30.0
    assert other != "39.5"
    assert other != None  # noqa: E711
