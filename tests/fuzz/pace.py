"""Runs that are slow, that became slow, that stall, and times that no machine takes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from plugins.logs.means import SINGLE
from tests.fuzz import cells
from tests.fuzz.cells import Cell
from tests.fuzz.kinds import Made, Truth, kind, made


@dataclass(frozen=True)
class Pattern:
    """A run at `pace` with these steps longer or shorter by their factors."""

    factors: dict[int, float]
    note: str
    truth: Truth = Truth.NOT_PASS
    pace: float = 1.0


def pattern(name: str) -> Callable[[Callable[[Cell, random.Random], Pattern]], object]:
    """Registers a class of cases by what is wrong with the steps."""

    def registered(drawn: Callable[[Cell, random.Random], Pattern]) -> object:
        def maker(cell: Cell, rng: random.Random) -> Made:
            of = drawn(cell, rng)
            times = cells.series(rng, cell, pace=of.pace, noise=rng.choice((0.002, 0.005, 0.01)))
            for index, factor in of.factors.items():
                times[index] = cell.target * of.pace * factor * (1 + rng.gauss(0, 0.002))
            return made(cell, cells.job(rng, cell, times), of.truth, of.note)

        return kind(name)(maker)

    return registered


def alike(steps: Iterable[int], factor: float, note: str = "", truth: Truth = Truth.NOT_PASS) -> Pattern:
    return Pattern(dict.fromkeys(steps, factor), f"{note}x{factor:.3f}", truth)


def slow(cell: Cell, rng: random.Random, low: float = 0.03) -> float:
    """A factor that is beyond the band, by `low` at least, and at most 30 %."""
    return 1 + rng.uniform(cell.edge + low, max(0.3, cell.edge + low + 0.05))


@pattern("slow-throughout")
def throughout(cell: Cell, rng: random.Random) -> Pattern:
    factor = slow(cell, rng)
    return Pattern({}, f"x{factor:.3f}", pace=factor)


@pattern("slow-from-a-step")
def from_a_step(cell: Cell, rng: random.Random) -> Pattern:
    count, factor = cell.case.steps, slow(cell, rng)
    first = rng.randrange(count // 5, count * 4 // 5 + 1)
    if cell.span > 1:
        first -= first % cell.span
    return alike(range(first, count), factor, f"from {first} ")


def end(cell: Cell, last: int, factor: float) -> Pattern:
    count = cell.case.steps
    truth = Truth.NOT_PASS if last >= 2 * cell.span else Truth.OPEN
    return alike(range(count - last, count), factor, f"last {last} ", truth)


@pattern("slow-last-3")
def last_3(cell: Cell, rng: random.Random) -> Pattern:
    return end(cell, 3, rng.uniform(1.25, 1.4))


@pattern("slow-last-5")
def last_5(cell: Cell, rng: random.Random) -> Pattern:
    return end(cell, 5, slow(cell, rng, 0.06))


@pattern("slow-last-fifth")
def last_fifth(cell: Cell, rng: random.Random) -> Pattern:
    return end(cell, cell.case.steps // 5, slow(cell, rng))


@pattern("slow-drift")
def drift(cell: Cell, rng: random.Random) -> Pattern:
    """Ever slower behind the first fifth, so that the last ten are beyond the band."""
    count = cell.case.steps
    first, most = count // 5, cell.edge + rng.uniform(0.08, 0.25)
    factors = {i: 1 + most * (i - first) / (count - 1 - first) for i in range(first, count)}
    truth = Truth.OPEN if cell.span > 1 and most < cell.edge + 0.12 else Truth.NOT_PASS
    return Pattern(factors, f"up to x{1 + most:.3f}", truth)


@pattern("slow-then-healthy")
def recovered(cell: Cell, rng: random.Random) -> Pattern:
    """Slow from the first fifth to the last one. What is published as the last step is as fast as ever."""
    count = cell.case.steps
    return alike(range(count // 5, count * 4 // 5), slow(cell, rng, 0.09))


@pattern("alternating")
def alternating(cell: Cell, rng: random.Random) -> Pattern:
    """Every second step is slow, and the mean of both is beyond the band."""
    return alike(range(1, cell.case.steps, 2), 1 + 2 * rng.uniform(cell.edge + 0.03, cell.edge + 0.15))


@pattern("fast-half")
def fast_half(cell: Cell, rng: random.Random) -> Pattern:
    """Nearly half of the steps are too fast for this configuration: the first ones, or ones anywhere. The others are at the baseline's pace."""
    count, factor = cell.case.steps, rng.uniform(0.4, 0.7)
    some = rng.randrange(count * 2 // 5, count * 49 // 100)
    first = rng.choice((0, rng.randrange(count // 5, count - some)))
    if cell.span > 1:
        first -= first % cell.span
    return alike(range(first, first + some), factor, f"{some} from {first} ")


@pattern("fast-anywhere")
def fast_anywhere(cell: Cell, rng: random.Random) -> Pattern:
    """Four of ten steps in half the time, at random. A mean over several steps hides which they are, not that they are fast."""
    count, factor = cell.case.steps, rng.uniform(0.4, 0.6)
    return alike(rng.sample(range(count), count * 2 // 5), factor, "40 % ")


@pattern("one-long-stall")
def long_stall(cell: Cell, rng: random.Random) -> Pattern:
    """One settled step that took as long as twenty and more: it costs more than the band allows, all alone."""
    count, factor = cell.case.steps, rng.uniform(20, 60)
    return alike([rng.randrange(count // 5 + 1, count)], factor)


@pattern("periodic-stalls")
def stalls(cell: Cell, rng: random.Random) -> Pattern:
    """Every fifth to tenth step is slow: one cause, and it stays. Means over several steps tell it by what it costs."""
    every, factor = rng.randint(5, 10), rng.uniform(1.3, 2.0)
    cost = (factor - 1) / every
    truth = Truth.NOT_PASS if cell.span == 1 or cost > cell.edge + 0.03 else Truth.OPEN
    steps = range(rng.randrange(every), cell.case.steps, every)
    return alike(filter(None, steps), factor, f"every {every} ", truth)


@pattern("impossible-ten")
def ten_impossible(cell: Cell, rng: random.Random) -> Pattern:
    """Ten steps in a row at 1 %: whole intervals where there are some, and the last ones or earlier ones."""
    count = cell.case.steps
    first = rng.choice((count - 10, count * 3 // 5, count * 2 // 5))
    return alike(range(first, first + 10), 0.01, f"from {first} ")


@pattern("impossible-one")
def one_impossible(cell: Cell, rng: random.Random) -> Pattern:
    """One settled step at 1 %. A mean hides it, and MaxText's times are those between dispatches."""
    index = rng.randrange(cell.case.steps // 5, cell.case.steps)
    hidden = cell.span > 1 or cell.dialect == "maxtext"
    return alike([index], 0.01, f"step {index} ", Truth.OPEN if hidden else Truth.NOT_PASS)


@pattern("zero-time")
def zero_time(cell: Cell, rng: random.Random) -> Pattern:
    """Settled steps that took no time at all: a whole interval, or some steps anywhere."""
    settled = range(cell.case.steps // 5, cell.case.steps)
    if cell.span > 1:
        first = rng.choice(settled) // 10 * 10
        return alike(range(first, first + 10), 0.0, f"from {first} ")
    chosen = rng.sample(settled, rng.randint(2, 8))
    return alike(chosen, 0.0, f"{len(chosen)} steps ")


@pattern("too-fast")
def too_fast(cell: Cell, rng: random.Random) -> Pattern:
    faster = 1 / (1 + cell.baseline.tolerance.faster) - rng.uniform(0.03, 0.3)
    return Pattern({}, f"x{faster:.3f}", pace=faster)


@kind("slow-with-a-tiny-step")
def tiny(cell: Cell, rng: random.Random) -> Made:
    """30 % slow, and one of the last ten steps is printed as some milliseconds."""
    factor, count = rng.uniform(cell.edge + 0.2, cell.edge + 0.3) + 1, cell.case.steps
    times = cells.series(rng, cell, pace=factor)
    for _ in range(rng.choice((1, 1, 2))):
        times[rng.randrange(count - 10, count)] = rng.choice((0.001, 0.002, 0.004, 0.008))
    return made(cell, cells.job(rng, cell, times), Truth.NOT_PASS, f"x{factor:.3f}")


@kind("impossible-all")
def impossible(cell: Cell, rng: random.Random) -> Made:
    times = cells.series(rng, cell, pace=1.0)
    short = rng.choice((1e-9, 1e-6, 1e-3, 0.01 * cell.target))
    times = [short * (1 + 0.001 * rng.random()) for _ in times]
    return made(cell, cells.job(rng, cell, times), Truth.NOT_PASS, f"{short:g} s")


@kind("single-steps-for-means")
def single_steps(cell: Cell, rng: random.Random) -> Made | None:
    """The recipe prints means over five steps and this log single ones, of which four of five are slow."""
    width = cells.buffer_size(cell.case)
    if width == 1:
        return None
    factor, fast = slow(cell, rng, 0.1), rng.choice((width - 1, 0, 2))
    slowed = {i: factor for i in range(1, cell.case.steps) if i % width != fast}
    times = cells.series(rng, cell, pace=1.0)
    times = [seconds * slowed.get(i, 1.0) for i, seconds in enumerate(times)]
    run = replace(cells.job(rng, cell, times), averaged=1)
    return made(cell, run, Truth.NOT_PASS, f"all but {fast} of {width} x{factor:.3f}")


@kind("each-step-for-means")
def each_step(cell: Cell, rng: random.Random) -> Made | None:
    """The recipe prints a mean for each interval and this log has a line for each step."""
    if cell.case.means.every == 1:
        return None
    run = cells.job(rng, cell)
    return made(cell, replace(run, case=replace(cell.case, means=SINGLE)), Truth.NOT_PASS)


@kind("wall-clock")
def wall_clock(cell: Cell, rng: random.Random) -> Made | None:
    """The stamps in the log say that the steps took 1.35 times and more of what they print."""
    run = replace(cells.job(rng, cell), clock=rng.uniform(1.35, 2.0))
    # Most stamps are of whole seconds: what they tell of a few seconds is within them.
    hidden = (run.clock - 1.3) * sum(run.times[len(run.times) // 5 + 10 :])
    stamped = cell.dialect in ("nemo1", "megatron_lm", "megatron_bridge", "dllogger") and hidden > 2
    seconds = 300 + run.clock * sum(run.times)
    text = cell.render(run).text()
    pattern = r"(?i)wall|clock|stamp|elapsed|between|longer|times the sum"
    return Made(text, Truth.REMARK if stamped else Truth.OPEN, f"clock x{run.clock:.2f}", pattern, seconds)
