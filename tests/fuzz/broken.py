"""Logs that are not whole, not one run, or have a mark in them that spoils their times."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from itertools import zip_longest

from tests.fuzz import cells
from tests.fuzz.cells import Cell
from tests.fuzz.health import cut
from tests.fuzz.kinds import Made, Truth, kind, made
from tests.fuzz.pace import slow
from tests.printed import marks, nccl
from tests.printed.run import Page


def once(cell: Cell, rng: random.Random) -> Page:
    """Of a bar that is drawn twice the next one says a step again."""
    job = cells.job(rng, cell)
    return cell.render(replace(job, style=replace(job.style, twice=False)))


def of_length(cell: Cell, rng: random.Random, steps: int) -> Made:
    """A run of so many steps that is whole."""
    times = cells.series(rng, cell, steps=steps)
    return made(cell, cells.job(rng, cell, times), Truth.NOT_PASS, f"{steps} steps")


@kind("fewer-steps")
def fewer(cell: Cell, rng: random.Random) -> Made:
    """As a profiling run of 25 steps is."""
    shorter = (1, 5, 10, 25) if cell.case.means.every == 1 else (10, 20, 50)
    return of_length(cell, rng, cell.case.steps - rng.choice(shorter))


@kind("more-steps")
def more(cell: Cell, rng: random.Random) -> Made:
    return of_length(cell, rng, cell.case.steps + rng.choice((10, 50, 100)))


@kind("missing-steps")
def missing(cell: Cell, rng: random.Random) -> Made:
    """Three lines and more are not there at all."""
    page = once(cell, rng)
    places = range(1, len(page.steps))
    count = min(rng.randint(3, 10), len(places))
    for index in sorted(rng.sample(places, count), reverse=True):
        del page.steps[index]
    return Made(page.text(), Truth.NOT_PASS, f"{count} lines")


@kind("garbled-lines")
def garbled(cell: Cell, rng: random.Random) -> Made:
    """Three step lines and more with their figures destroyed."""
    page = once(cell, rng)
    for index in rng.sample(range(1, len(page.steps)), min(rng.randint(3, 10), len(page.steps) - 1)):
        page.steps[index] = [
            re.sub(r"\d", lambda _: rng.choice("#?~"), cut(rng, piece)) for piece in page.steps[index]
        ]
    return Made(page.text(), Truth.NOT_PASS)


@kind("truncated")
def truncated(cell: Cell, rng: random.Random) -> Made:
    """The end is not there: the last step's line is missing or cut before its time.

    One line that is cut may be the last one where the statistic is of others.
    """
    job = cells.job(rng, cell)
    page = cell.render(replace(job, style=replace(job.style, twice=False, ranks=1)))
    keep = rng.randint(1, len(page.steps) - 1)
    last = max(page.steps[keep], key=len)
    text = "".join(
        [*page.head, *(piece for pieces in page.steps[:keep] for piece in pieces), last[: len(last) // 5]]
    )
    spared = keep == len(page.steps) - 1 and str(cell.baseline.statistic) != "last"
    return Made(text, Truth.OPEN if spared else Truth.NOT_PASS, f"{keep} of {len(page.steps)} lines")


@kind("two-runs-in-turn")
def two_runs(cell: Cell, rng: random.Random) -> Made:
    """A healthy attempt, then the last one, which is slow."""
    factor = slow(cell, rng)
    first, last = cells.page(cell, rng), cells.page(cell, rng, factor)
    return Made(first.text() + last.text(), Truth.NOT_PASS, f"the last x{factor:.3f}")


@kind("cut-short-then-slow")
def restart(cell: Cell, rng: random.Random) -> Made:
    """An attempt that died half way, then a slow one."""
    first, factor = cells.page(cell, rng), slow(cell, rng)
    text = "".join(
        [
            *first.head,
            *(piece for pieces in first.steps[: rng.randint(1, len(first.steps) - 1)] for piece in pieces),
        ]
    )
    last = cells.page(cell, rng, factor)
    return Made(text + "\n" + last.text(), Truth.NOT_PASS, f"the last x{factor:.3f}")


@kind("slow-run-then-fast-run")
def two_whole_runs(cell: Cell, rng: random.Random) -> Made:
    """A slow run that reached its last step, and behind it a fast one of the same case, which may be labelled as another file's."""
    factor = slow(cell, rng)
    first, last = cells.page(cell, rng, factor), cells.page(cell, rng)
    label = rng.choice(("", "", "results/old/log.out:", "> ", "log-4699.out:"))
    header = rng.choice(("", "==> results/old/log.out <==\n"))
    behind = "".join(f"{label}{line}\n" for line in last.text().splitlines())
    return Made(
        first.text() + "\n" + header + behind, Truth.NOT_PASS, f"{label}{header.strip()} x{factor:.3f}"
    )


@kind("two-runs-interleaved")
def interleaved(cell: Cell, rng: random.Random) -> Made:
    """Two runs write into one file, one of them slow. MaxText prints from every process, so that it may seem to be one run."""
    factor = rng.uniform(1.25, 1.5)
    one, two = cells.page(cell, rng), cells.page(cell, rng, factor)
    if rng.random() < 0.5:
        one, two = two, one
    nothing: list[str] = []
    mixed: list[str] = [
        piece
        for both in zip_longest(one.steps, two.steps, fillvalue=nothing)
        for pieces in both
        for piece in pieces
    ]
    text = "".join([*one.head, *two.head, *mixed, *one.tail, *two.tail])
    truth = Truth.REMARK if cell.dialect == "maxtext" else Truth.NOT_PASS
    return Made(text, truth, f"one x{factor:.3f}", r"(?i)process|rank|differ|twice|interleav|apart")


@kind("nan-loss")
def nan_loss(cell: Cell, rng: random.Random) -> Made:
    job = cells.job(rng, cell)
    first = rng.randrange(cell.case.steps // 5, cell.case.steps)
    if cell.case.means.every > 1:
        first += cell.case.means.every - 1 - first % cell.case.means.every
    value = rng.choice((float("nan"), float("inf"))) if cell.dialect != "megatron_lm" else float("nan")
    stays = rng.random() < 0.7
    losses = [value if (i >= first if stays else i == first) else loss for i, loss in enumerate(job.losses)]
    return made(cell, replace(job, losses=tuple(losses)), Truth.NOT_PASS, f"{value} from {first}")


@kind("zero-losses")
def zero(cell: Cell, rng: random.Random) -> Made:
    """Every loss is 0. Megatron-LM prints none then."""
    job = cells.job(rng, cell)
    return made(cell, replace(job, losses=(0.0,) * len(job.losses)), Truth.NOT_PASS)


def _marked(cell: Cell, rng: random.Random, lines: list[str], note: str = "") -> Made:
    """One of the lines between two settled steps."""
    page = cells.page(cell, rng)
    place = rng.randrange(max(1, len(page.steps) // 5), len(page.steps))
    line = rng.choice(lines)
    n = place if cell.dialect != "megatron_lm" else place * 10
    page.before(
        place,
        line.replace("{n:7d}", f"{n:7d}").replace("{n}", str(n)).replace("{world}", str(cell.case.gpus)),
    )
    return Made(page.text(), Truth.NOT_PASS, note or line)


@kind("checkpoint")
def checkpoint(cell: Cell, rng: random.Random) -> Made:
    return _marked(cell, rng, marks.CHECKPOINTS[cell.dialect])


@kind("profiler")
def profiler(cell: Cell, rng: random.Random) -> Made | None:
    """MaxText's recipe is profiled as published."""
    if cell.dialect == "maxtext":
        return None
    return _marked(cell, rng, marks.PROFILERS[cell.dialect])


@kind("profiler-elsewhere")
def elsewhere(cell: Cell, rng: random.Random) -> Made | None:
    """MaxText's recipe is profiled on steps 9 to 11; this run is so among those that are judged."""
    if cell.dialect != "maxtext":
        return None
    page, place = cells.page(cell, rng), rng.randrange(20, 46)
    begins, ends = rng.choice(
        [
            ("Capture range started in the application.", "Capture range ended in the application."),
            ("profiler_session.cc:186] Profiler session started.", "profiler_session.cc:134] Profiler session collecting data."),
        ]
    )  # fmt: skip
    page.before(place, begins)
    page.before(place + 3, ends)
    return Made(page.text(), Truth.NOT_PASS, f"steps {place} to {place + 2}")


@kind("profiler-configured")
def configured(cell: Cell, rng: random.Random) -> Made | None:
    """The configuration in the log switches the profiler on; Megatron-LM prints it with rank 0, on one node."""
    if cell.dialect not in ("nemo1", "dllogger", "megatron_bridge", "megatron_lm"):
        return None
    if cell.dialect == "megatron_lm" and cell.case.gpus > cell.per_node:
        return None
    return made(cell, replace(cells.job(rng, cell), nsys=True), Truth.NOT_PASS)


@kind("nccl-trace")
def trace(cell: Cell, rng: random.Random) -> Made:
    return _marked(cell, rng, nccl.TRACES)


@kind("socket-fallback")
def socket(cell: Cell, rng: random.Random) -> Made | None:
    """NCCL went over TCP, in a run of several nodes."""
    if cell.case.gpus <= cell.per_node:
        return None
    return _marked(cell, rng, nccl.SOCKETS)
