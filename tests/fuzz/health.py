"""Healthy runs, at several noise levels and with all that other programs do to a log: each must pass."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.fuzz import cells
from tests.fuzz.cells import Cell
from tests.fuzz.kinds import Made, Truth, kind, made
from tests.printed import marks, nccl
from tests.printed.around import AROUND, around


def healthy(cell: Cell, rng: random.Random, noise: float, hiccups: int = 0) -> Made:
    times = cells.series(rng, cell, noise=noise, hiccups=hiccups)
    return made(cell, cells.job(rng, cell, times), Truth.PASS, f"{100 * noise:g} % noise, {hiccups} hiccups")


@kind("healthy-quiet")
def quiet(cell: Cell, rng: random.Random) -> Made:
    return healthy(cell, rng, 0.002)


@kind("healthy-hiccups")
def with_hiccups(cell: Cell, rng: random.Random) -> Made:
    return healthy(cell, rng, 0.005, rng.randint(1, 2))


@kind("healthy-noise-2")
def noise_2(cell: Cell, rng: random.Random) -> Made:
    """2 % noise and 2 % hiccups: at most one case of a thousand may be red."""
    return healthy(cell, rng, 0.02, sum(rng.random() < 0.02 for _ in range(cell.case.steps * 4 // 5)))


@kind("healthy-chatter")
def chatter(cell: Cell, rng: random.Random) -> Made:
    """Whole lines of other ranks and libraries between the steps."""
    page = cells.page(cell, rng)
    for _ in range(rng.randint(1, 12)):
        page.before(rng.randrange(1, len(page.steps)), rng.choice(marks.INNOCENT))
    return Made(page.text(), Truth.PASS)


@kind("healthy-single-node-socket")
def single_node(cell: Cell, rng: random.Random) -> Made | None:
    """On one node NCCL has no network to use, and says that it is Socket: nothing goes over it."""
    if cell.case.gpus > cell.per_node:
        return None
    page = cells.page(cell, rng)
    page.add(nccl.info("NET/IB : No device found."), nccl.info("NET/Socket : Using [0]eth0:10.0.0.1<0>"))
    page.add(nccl.info(rng.choice((nccl.OVER_SOCKETS, "Assigned NET plugin Socket to comm"))))
    return Made(page.text(), Truth.PASS)


@kind("healthy-cut-lines")
def cut_lines(cell: Cell, rng: random.Random) -> Made | None:
    """At most two step lines cut in two by another line, outside of what the statistic is of and of the last ten."""
    if cell.case.means.over > 1:
        return None
    # A bar that is drawn twice says everything twice, and MaxText's processes say it again: one of them is cut.
    run = cells.job(rng, cell)
    ranks = 4 if cell.dialect == "maxtext" else 1
    page = cell.render(replace(run, style=replace(run.style, twice=False, ranks=ranks)))
    for index in rng.sample(range(2, 9), rng.randint(1, 2)):
        whole, last = page.steps[index][:-1], page.steps[index][-1]
        if cell.dialect != "maxtext":
            whole = [cut(rng, piece) for piece in whole]
        page.steps[index] = [*whole, cut(rng, last)]
    return Made(page.text(), Truth.PASS)


def cut(rng: random.Random, piece: str) -> str:
    """The line with another one in it, behind what says which step it is of."""
    if not piece.strip():
        return piece
    place = rng.randrange(len(piece) * 2 // 3, len(piece) - 2)
    return f"{piece[:place]}[rank3]:[W1120 09:06:35.875208864 ProcessGroupNCCL.cpp:5188] Guessing device ID\n{piece[place:]}"


@kind("healthy-label")
def labels(cell: Cell, rng: random.Random) -> Made:
    """With what launchers, container runtimes and log drivers print around each line."""
    name = rng.choice(AROUND)
    return Made(around(name, cells.page(cell, rng).text()), Truth.PASS, name)


@kind("healthy-groups")
def groups(cell: Cell, rng: random.Random) -> Made:
    """NCCL_DEBUG=INFO of each rank: five communicators of 8 and one of all."""
    page, world = cells.page(cell, rng), cell.case.gpus
    for rank in range(16):
        for size in (min(8, world),) * 5 + (world,):
            comm = f"0x5624aab{rng.randrange(16**5):05x}"
            page.add(
                nccl.made(
                    "ncclCommInitRank", comm, rank, size, end="commId 0x2609201f6848b74c - Init COMPLETE"
                )
            )
    return Made(page.text(), Truth.PASS)


@kind("healthy-torn-output")
def torn_output(cell: Cell, rng: random.Random) -> Made | None:
    """32 processes write their configuration through one pipe, in blocks that end anywhere in a line."""
    if cell.dialect != "maxtext":
        return None
    run = cells.job(rng, cell)
    one, page = (cell.render(replace(run, style=replace(run.style, ranks=ranks))) for ranks in (1, 32))
    own = [line for line in one.head if "completed step" not in line]
    ranks = []
    for rank in range(32):
        text, size = f"{rank}" + "." * rng.randrange(300) + "\n" + "".join(own), rng.choice((512, 1000, 4096))
        ranks.append([text[at : at + size] for at in range(0, len(text), size)])
    blocks = []
    while any(ranks):
        blocks.append(rng.choice([rank for rank in ranks if rank]).pop(0))
    page.head = [*blocks, *(line for line in page.head if "completed step" in line)]
    return Made(page.text(), Truth.PASS)


@kind("healthy-crlf")
def crlf(cell: Cell, rng: random.Random) -> Made:
    return Made(cells.page(cell, rng).text().replace("\n", "\r\n"), Truth.PASS)


@kind("healthy-colours")
def colours(cell: Cell, rng: random.Random) -> Made:
    """A terminal's colours around each line, as a launcher writes them that believes in one."""
    text, colour = cells.page(cell, rng).text(), rng.choice(("\x1b[32m", "\x1b[1;34m", "\x1b[0m"))
    if "\r" not in text:
        text = "".join(f"{colour}{line}\x1b[0m\n" for line in text.splitlines())
    return Made(text, Truth.PASS)


@kind("healthy-bare")
def bare(cell: Cell, rng: random.Random) -> Made | None:
    """Without start-up lines: nothing tells what ran. It may pass, and a record should say so."""
    run = cells.job(rng, cell)
    return made(cell, replace(run, style=replace(run.style, bare=True)), Truth.OPEN)
