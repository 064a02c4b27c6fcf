"""Runs that are slow, that became slow, that stall, and times that no machine takes."""

from __future__ import annotations

import random
from dataclasses import replace

from plugins.logs.means import SINGLE
from tests.fuzz import cells
from tests.fuzz.cells import Cell
from tests.fuzz.job import Truth
from tests.fuzz.kinds import Made, kind, made


def slow(cell: Cell, rng: random.Random, low: float = 0.03) -> float:
    """A factor that is beyond the band, by `low` at least, and at most 30 %."""
    return 1 + rng.uniform(cell.edge + low, max(0.3, cell.edge + low + 0.05))


def changed(
    cell: Cell, rng: random.Random, factors: dict[int, float], truth: Truth, note: str, pace: float = 1.0
) -> Made:
    """A run at `pace` with these steps longer or shorter by their factors."""
    times = cells.series(rng, cell, pace=pace, noise=rng.choice((0.002, 0.005, 0.01)))
    usual = cell.target * pace
    for index, factor in factors.items():
        times[index] = usual * factor * (1 + rng.gauss(0, 0.002))
    return made(cell, cells.job(rng, cell, times), truth, note)


@kind("slow-throughout")
def throughout(cell: Cell, rng: random.Random) -> Made:
    factor = slow(cell, rng)
    return changed(cell, rng, {}, Truth.NOT_PASS, f"x{factor:.3f}", pace=factor)


@kind("slow-from-a-step")
def from_a_step(cell: Cell, rng: random.Random) -> Made:
    count, factor = cell.case.steps, slow(cell, rng)
    first = rng.randrange(count // 5, count * 4 // 5 + 1)
    if cell.span > 1:
        first -= first % cell.span
    return changed(
        cell, rng, dict.fromkeys(range(first, count), factor), Truth.NOT_PASS, f"from {first} x{factor:.3f}"
    )


def _end(cell: Cell, rng: random.Random, last: int, factor: float) -> Made:
    count = cell.case.steps
    truth = Truth.NOT_PASS if last >= 2 * cell.span else Truth.OPEN
    return changed(
        cell, rng, dict.fromkeys(range(count - last, count), factor), truth, f"last {last} x{factor:.3f}"
    )


@kind("slow-drift")
def drift(cell: Cell, rng: random.Random) -> Made:
    """Ever slower behind the first fifth, so that the last ten are beyond the band."""
    count = cell.case.steps
    first, end = count // 5, cell.edge + rng.uniform(0.08, 0.25)
    factors = {i: 1 + end * (i - first) / (count - 1 - first) for i in range(first, count)}
    truth = Truth.OPEN if cell.span > 1 and end < cell.edge + 0.12 else Truth.NOT_PASS
    return changed(cell, rng, factors, truth, f"up to x{1 + end:.3f}")


@kind("slow-then-healthy")
def recovered(cell: Cell, rng: random.Random) -> Made:
    """Slow from the first fifth to the last one. What is published as the last step is as fast as ever."""
    count, factor = cell.case.steps, slow(cell, rng, 0.09)
    return changed(
        cell, rng, dict.fromkeys(range(count // 5, count * 4 // 5), factor), Truth.NOT_PASS, f"x{factor:.3f}"
    )


@kind("alternating")
def alternating(cell: Cell, rng: random.Random) -> Made:
    """Every second step is slow, and the mean of both is beyond the band."""
    factor = 1 + 2 * rng.uniform(cell.edge + 0.03, cell.edge + 0.15)
    return changed(
        cell, rng, dict.fromkeys(range(1, cell.case.steps, 2), factor), Truth.NOT_PASS, f"x{factor:.3f}"
    )


@kind("fast-half")
def fast_half(cell: Cell, rng: random.Random) -> Made:
    """Nearly half of the steps are too fast for this configuration: the first ones, or ones anywhere. The others are at the baseline's pace."""
    count, factor = cell.case.steps, rng.uniform(0.4, 0.7)
    some = rng.randrange(count * 2 // 5, count * 49 // 100)
    first = rng.choice((0, rng.randrange(count // 5, count - some)))
    if cell.span > 1:
        first -= first % cell.span
    factors = dict.fromkeys(range(first, first + some), factor)
    return changed(cell, rng, factors, Truth.NOT_PASS, f"{some} from {first} x{factor:.3f}")


@kind("fast-anywhere")
def fast_anywhere(cell: Cell, rng: random.Random) -> Made:
    """Four of ten steps in half the time, at random. A mean over several steps hides which they are, not that they are fast."""
    count, factor = cell.case.steps, rng.uniform(0.4, 0.6)
    steps = rng.sample(range(count), count * 2 // 5)
    return changed(cell, rng, dict.fromkeys(steps, factor), Truth.NOT_PASS, f"40 % x{factor:.3f}")


@kind("one-long-stall")
def long_stall(cell: Cell, rng: random.Random) -> Made:
    """One settled step that took as long as twenty and more: it costs more than the band allows, all alone."""
    count, factor = cell.case.steps, rng.uniform(20, 60)
    return changed(
        cell, rng, {rng.randrange(count // 5 + 1, count): factor}, Truth.NOT_PASS, f"x{factor:.1f}"
    )


@kind("slow-last-3")
def last_3(cell: Cell, rng: random.Random) -> Made:
    return _end(cell, rng, 3, rng.uniform(1.25, 1.4))


@kind("slow-last-5")
def last_5(cell: Cell, rng: random.Random) -> Made:
    return _end(cell, rng, 5, slow(cell, rng, 0.06))


@kind("slow-last-fifth")
def last_fifth(cell: Cell, rng: random.Random) -> Made:
    return _end(cell, rng, cell.case.steps // 5, slow(cell, rng))


@kind("periodic-stalls")
def stalls(cell: Cell, rng: random.Random) -> Made:
    """Every fifth to tenth step is slow: one cause, and it stays. Means over several steps tell it by what it costs."""
    every, factor = rng.randint(5, 10), rng.uniform(1.3, 2.0)
    cost = (factor - 1) / every
    truth = Truth.NOT_PASS if cell.span == 1 or cost > cell.edge + 0.03 else Truth.OPEN
    steps = range(rng.randrange(every), cell.case.steps, every)
    return changed(cell, rng, {i: factor for i in steps if i}, truth, f"every {every} x{factor:.2f}")


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


@kind("impossible-ten")
def ten_impossible(cell: Cell, rng: random.Random) -> Made:
    """Ten steps in a row at 1 %: whole intervals where there are some, and the last ones or earlier ones."""
    count = cell.case.steps
    first = rng.choice((count - 10, count * 3 // 5, count * 2 // 5))
    return changed(cell, rng, dict.fromkeys(range(first, first + 10), 0.01), Truth.NOT_PASS, f"from {first}")


@kind("impossible-one")
def one_impossible(cell: Cell, rng: random.Random) -> Made:
    """One settled step at 1 %. A mean hides it, and MaxText's times are those between dispatches."""
    count = cell.case.steps
    index = rng.randrange(count // 5, count)
    truth = Truth.OPEN if cell.span > 1 or cell.dialect == "maxtext" else Truth.NOT_PASS
    return changed(cell, rng, {index: 0.01}, truth, f"step {index}")


@kind("zero-time")
def zero_time(cell: Cell, rng: random.Random) -> Made:
    """Settled steps that took no time at all: a whole interval, or some steps anywhere."""
    count = cell.case.steps
    if cell.span > 1:
        first = rng.randrange(count // 5, count) // 10 * 10
        return changed(
            cell, rng, dict.fromkeys(range(first, first + 10), 0.0), Truth.NOT_PASS, f"from {first}"
        )
    chosen = rng.sample(range(count // 5, count), rng.randint(2, 8))
    return changed(cell, rng, dict.fromkeys(chosen, 0.0), Truth.NOT_PASS, f"{len(chosen)} steps")


@kind("too-fast")
def too_fast(cell: Cell, rng: random.Random) -> Made:
    faster = 1 / (1 + cell.baseline.tolerance.faster) - rng.uniform(0.03, 0.3)
    return changed(cell, rng, {}, Truth.NOT_PASS, f"x{faster:.3f}", pace=faster)


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
