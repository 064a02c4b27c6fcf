"""How often an isolation names what is slow, on simulated fleets: the search is that of a session.

    python -m tests.bench isolation

Writes the table of docs/dev/isolation.md.
"""

from __future__ import annotations

import random
import statistics
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

from plugins.isolation.probes import Ending
from tests import sections
from tests.bench.fleets import (
    CONGESTED,
    SLOW,
    Fleet,
    any_fault,
    drift,
    name_of,
    of_leaves,
    of_nodes,
    slow_cards,
    slow_leaf,
    slow_leaf_across,
    slow_link,
    slow_nodes,
)
from tests.bench.report import print_target

FLEETS, HEALTHY, PROCESSES, SEED = 200, 1000, 2, 20261126
LARGE, WRITES = 1024, True
DOCUMENT = Path(__file__).parents[2] / "docs" / "dev" / "isolation.md"
SECTION = "rates"
PROBE_MINUTES, CASE_MINUTES = 2, 15
NOISE = 0.006
COLUMNS = (
    "fleet",
    "nodes",
    "noise",
    "fleets",
    "named exactly",
    "innocent accused",
    "nobody named",
    "rounds",
    "GPU-hours",
)


@dataclass(frozen=True)
class Row:
    """Fleets with a fault. `fault` makes it; the loss of the job is what the fault costs."""

    what: str
    size: int
    noise: float
    fault: Callable[[Fleet], None] | None = None
    loss: float = SLOW
    often: float = 1.0
    failing: float = 0.0
    stalling: float = 0.0
    leaves_known: bool = True
    baselines: tuple[float, float] = (0.0, 0.0)
    drift: Callable[[Fleet], None] | None = None


@dataclass(frozen=True)
class Tally:
    """What became of the fleets of a row. `cost` is in shares of one run of the failed case."""

    fleets: int
    exact: int
    innocent: int
    nobody: int
    rounds: Counter[int]
    cost: float

    def share(self, count: int) -> float:
        return count / self.fleets


FAULTS: tuple[tuple[str, Callable[[Fleet], None] | None, float], ...] = (
    ("healthy", None, SLOW),
    ("a slow node", partial(slow_nodes, count=1), SLOW),
    ("five slow nodes", partial(slow_nodes, count=5), SLOW),
    ("a slow network card", partial(slow_cards, count=1), CONGESTED),
    ("a slow pair of neighbours", slow_link, CONGESTED),
    ("a slow leaf", slow_leaf, CONGESTED),
)

DRIFTING = {
    "all nodes": partial(of_leaves, share=1.0),
    "half of the leaves": partial(of_leaves, share=0.5),
    "a leaf": partial(of_leaves, share=0.0),
    "half of the nodes": partial(of_nodes, share=0.5),
    "a node": partial(of_nodes, share=0.0),
}


def rows() -> Iterator[Row]:
    for size in (64, 256):
        for what, fault, loss in FAULTS:
            yield Row(what, size, NOISE, fault, loss)
    for size in (8, 16, 32, LARGE):
        yield Row("healthy", size, NOISE)
        yield Row("a slow node", size, NOISE, partial(slow_nodes, count=1))
        yield Row("a slow network card", size, NOISE, partial(slow_cards, count=1), CONGESTED)
    for size in (2, 3, 4):
        for what, fault, loss in FAULTS[:2]:
            yield Row(f"{what}, with a baseline", size, NOISE, fault, loss, baselines=(1.0, 0.0))
    yield Row("a slow leaf, neighbours on other leaves", 64, NOISE, slow_leaf_across, CONGESTED)
    yield Row("ten slow nodes", 256, NOISE, partial(slow_nodes, count=10))
    for noise in (0.003, 0.015, 0.03):
        for what, fault, loss in FAULTS:
            yield Row(what, 64, noise, fault, loss)
    for what, fault, loss in FAULTS[1:]:
        yield Row(f"{what}, half of the time", 64, NOISE, fault, loss, often=0.5)
    for what, fault, loss in FAULTS:
        yield Row(f"{what}, 5 % of the probes fail", 64, NOISE, fault, loss, failing=0.05)
    for what, fault, loss in FAULTS:
        yield Row(f"{what}, 5 % of the probes are 8 % slow by chance", 64, NOISE, fault, loss, stalling=0.05)
    yield Row("twelve slow network cards", 64, NOISE, partial(slow_cards, count=12), CONGESTED)
    for what, fault, loss in FAULTS:
        yield Row(f"{what}, leaves not known", 64, NOISE, fault, loss, leaves_known=False)
    for size, (part, nodes), linear in product((64, 256), DRIFTING.items(), (False, True)):
        how = f"{part} slower {'little by little' if linear else 'at once'}"
        change = partial(drift, part=nodes, linear=linear)
        yield Row(f"healthy, {how}", size, NOISE, None, CONGESTED, drift=change)
        yield Row(f"a fault, {how}", size, NOISE, any_fault, CONGESTED, drift=change)


def tally(row: Row, fleets: int) -> Tally:
    """Search so many fleets of a row."""
    exact = innocent = nobody = 0
    rounds: Counter[int] = Counter()
    costs = []
    for number in range(fleets):
        fleet = Fleet(
            row.size,
            row.noise,
            random.Random(f"{SEED} {row.what} {row.size} {row.noise} {number}"),
            row.often,
            row.failing,
            row.stalling,
            row.leaves_known,
            row.baselines,
        )
        if row.fault is not None:
            row.fault(fleet)
        if row.drift is not None:
            row.drift(fleet)
        answer = fleet.isolate(row.loss)
        exact += {name_of(culprit) for culprit in answer.culprits} == fleet.faults
        innocent += bool(answer.accused - fleet.faulty)
        nobody += answer.ending is not Ending.ISOLATED
        rounds[fleet.rounds] += 1
        costs.append(fleet.node_lengths * PROBE_MINUTES / (row.size * CASE_MINUTES))
    return Tally(fleets, exact, innocent, nobody, rounds, statistics.fmean(costs))


def count(row: Row) -> int:
    if row.fault is None and row.size < LARGE:
        return HEALTHY if row.drift is None else HEALTHY * 64 // row.size
    return max(FLEETS * 64 // max(row.size, 64), 10)


def line(row: Row, of: Tally) -> str:
    rounds = ", ".join(f"{number} in {of.share(times):.0%}" for number, times in of.rounds.most_common(2))
    cells = (
        row.what,
        str(row.size),
        f"{row.noise:.1%}",
        str(of.fleets),
        "" if row.fault is None else f"{of.share(of.exact):.1%}",
        f"{of.share(of.innocent):.1%}",
        f"{of.share(of.nobody):.1%}",
        f"{rounds}; at most {max(of.rounds)}",
        f"{of.cost:.2f}",
    )
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Search all fleets, say which aims are met, and write the table."""
    every = list(rows())
    with ProcessPoolExecutor(PROCESSES) as pool:
        tallies = list(pool.map(tally, every, map(count, every)))
    table = dict(zip(every, tallies, strict=True))
    for size in (64, 256):
        print_aims(
            {row: of for row, of in table.items() if row.size == size and row.noise == NOISE and plain(row)},
            size,
        )
    noisy = [of for row, of in table.items() if row.noise > NOISE]
    most = max(of.share(of.innocent) for of in noisy)
    print_target(
        "at 1.5 and 3 % noise no healthy node is accused in 99 % of the fleets",
        most <= 0.01,
        f"{1 - most:.1%}",
    )
    text = "\n".join(
        [f"| {' | '.join(COLUMNS)} |", f"|{' --- |' * len(COLUMNS)}", *map(line, table, table.values())]
    )
    print(text)
    if WRITES:
        DOCUMENT.write_text(sections.replaced(DOCUMENT.read_text(), SECTION, text))


def plain(row: Row) -> bool:
    return (
        row.often == 1.0
        and not row.failing
        and not row.stalling
        and row.leaves_known
        and row.what in {what for what, _, _ in FAULTS}
    )


def print_aims(table: dict[Row, Tally], size: int) -> None:
    for row, of in table.items():
        where = f"{size} nodes, {row.what}"
        if row.fault is None:
            print_target(
                f"{where}: nobody is accused in {of.fleets} fleets",
                of.nobody == of.fleets,
                f"{of.fleets - of.nobody}",
            )
        else:
            print_target(
                f"{where}: named exactly in 95 %", of.share(of.exact) >= 0.95, f"{of.share(of.exact):.1%}"
            )
        most = 4 if row.fault is None else 6
        within = sum(times for number, times in of.rounds.items() if number <= most)
        print_target(f"{where}: at most {most} rounds", within == of.fleets, f"{of.share(within):.1%}")
        print_target(f"{where}: at most 0.6 of a run of the failed case", of.cost <= 0.6, f"{of.cost:.2f}")
