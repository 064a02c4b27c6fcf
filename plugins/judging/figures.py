"""How reports write figures: times, shares, sizes of models, and the names of steps. Pure."""

from __future__ import annotations

from plugins.judging.measurement import Measurement


def seconds(value: float) -> str:
    """`10.07 s`."""
    return f"{value:.4g} s" if value < 1000 else f"{value:.0f} s"


def percent(share: float) -> str:
    """`5 %`."""
    return f"{100 * share:.2g} %"


def signed(share: float, digits: int = 1) -> str:
    """`-5.3 %`."""
    return f"{100 * share:+.{digits}f} %"


def billions(parameters: int) -> str:
    """`174.6 B`, `0.065 B`: digits enough, because the names of some models are off by a factor of six."""
    value = parameters / 1e9
    if value >= 100:
        return f"{value:.1f} B"
    if value >= 0.1:
        return f"{value:.3g} B"
    return f"{value:.2g} B"


def statistic_name(measurement: Measurement) -> str:
    """`last step (49)`, `mean of steps 35 to 44`, `mean of steps 35 to 44 of 3 runs`."""
    timing = measurement.timing
    first, last = timing.published.window[0][0], timing.published.window[-1][0]
    name = f"mean of {timing.judged.named(first, last)}"
    if timing.alone:
        name = f"last step ({last})"
    if timing.runs > 1:
        name += f" of {timing.runs} runs"
    return name


def steps_listed(measurement: Measurement, steps: tuple[tuple[int, float], ...]) -> str:
    """The first of these steps with their times, and how many more there are."""
    listed = measurement.timing.judged.listed([(index, seconds(time)) for index, time in steps[:5]])
    if len(steps) > 5:
        listed += f" and {len(steps) - 5} more"
    return listed
