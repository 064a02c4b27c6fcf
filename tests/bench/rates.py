"""How often a verdict is wrong: simulated runs of clusters whose pace is known, judged by the code that judges real ones.

    python -m tests.bench.rates [--runs N] [--seed N] [--processes N] [--noise] [--write]

Each run is judged once alone, and once as `--repeat-undecided` would: with further runs of the same cluster where it does not tell.
Prints the tables of docs/dev/verdicts.md and which aims are met; `--write` puts the tables there. The same seed gives the same figures,
with however many processes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import chain, product
from pathlib import Path

from plugins.judging.choice import MAX_RUNS
from plugins.judging.repeats import judge_runs, unsure
from plugins.record.verdict import Kind
from tests import sections
from tests.bench import clusters
from tests.bench.clusters import Cluster, Figure, figures
from tests.bench.noise_tables import head, noise_cells, noise_document, row
from tests.bench.report import print_target
from tests.bench.tallies import AIM, LEAST, OTHERS, REST, WHERE, Cell, Share, Table, Tally, failing

RUNS, SEED, PROCESSES = 10_000, 20261122, 2

BATCH = 500
"""So many runs are drawn from one seed, whichever process does."""

DOCUMENT = Path(__file__).parents[2] / "docs" / "dev" / "verdicts.md"
SECTION, BY_NOISE = "rates", "noise"


# Simulation


def grid() -> list[Cell]:
    """Every cell of the table."""
    rows = product(figures(), clusters.NOISES, clusters.HICCUPS, clusters.BETWEEN, clusters.SLOW_DOWNS)
    return [
        *(Cell(name, Cluster(noise, hiccups, between, slow)) for name, noise, hiccups, between, slow in rows),
        *(Cell(name, cluster) for name, cluster in product(figures(), clusters.VARIANTS.values())),
        *(Cell(name, cluster) for name, cluster in product(figures(), chain(*clusters.REAL.values()))),
    ]


def judged(batch: tuple[Cell, int, str]) -> tuple[Cell, Tally]:
    """Judge so many runs of a cell, drawn from this seed."""
    cell, count, seed = batch
    figure, rng, tally = figures()[cell.figure], random.Random(seed), Tally()
    for _ in range(count):
        runs = [figure.measured(cell.cluster, rng)]
        kind = judge_runs(runs, figure.target)[1].kind
        tally.once[kind] += 1
        while unsure(runs, figure.target):
            runs.append(figure.measured(cell.cluster, rng))
        tally.repeated[judge_runs(runs, figure.target)[1].kind if len(runs) > 1 else kind] += 1
        tally.lengths[len(runs)] += 1
    return cell, tally


def batches(cells: Sequence[Cell], runs: int, seed: int) -> Iterator[tuple[Cell, int, str]]:
    for cell in cells:
        wanted = cell.runs(runs)
        for first in range(0, wanted, BATCH):
            yield cell, min(BATCH, wanted - first), f"{seed} {first} {cell}{cell.cluster.real}"


def simulate(
    cells: Sequence[Cell], runs: int = RUNS, seed: int = SEED, processes: int = PROCESSES
) -> dict[Cell, Tally]:
    """Judge runs of all these cells, `runs` of those that need the most. With one process nothing is started."""
    table = {cell: Tally() for cell in cells}
    work = list(batches(cells, runs, seed))
    if processes == 1:
        for cell, tally in map(judged, work):
            table[cell].add(tally)
        return table
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        for cell, tally in pool.map(judged, work, chunksize=8):
            table[cell].add(tally)
    return table


# Aims


@dataclass(frozen=True)
class Aim:
    """What the judge should reach: how often a cluster fails, with one run or as many as it takes, or how many these are."""

    target: str
    cluster: Cluster
    reached: Callable[[Tally], bool]
    shown: Callable[[Tally], str]


def usual(slow: str) -> Cluster:
    """The cluster that the aims are stated for, with this slow-down."""
    return Cluster(*AIM, 0.0, slow)


def fails(target: str, cluster: Cluster, limit: float, *, found: bool = False, repeated: bool = False) -> Aim:
    """At most `limit` of the runs fail, or at least so many where the cluster must be `found`."""

    def share(tally: Tally) -> Share:
        return failing(tally.repeated if repeated else tally.once)

    def reached(tally: Tally) -> bool:
        return share(tally).value >= limit if found else share(tally).value <= limit

    return Aim(target, cluster, reached, lambda tally: f"{share(tally)} %")


def blames(target: str, cluster: Cluster, limit: float) -> Aim:
    """At most `limit` of the runs are too slow or too fast: the others that fail are noisy, which asks for another run."""

    def share(tally: Tally) -> Share:
        return Share(tally.once[Kind.TOO_SLOW] + tally.once[Kind.TOO_FAST], tally.runs)

    return Aim(target, cluster, lambda tally: share(tally).value <= limit, lambda tally: f"{share(tally)} %")


def takes(slow: str, limit: float) -> Aim:
    """At most so many runs in the mean, and never more than `MAX_RUNS`."""
    return Aim(
        f"repeated, {slow}: at most {limit:g} runs in the mean, never more than {MAX_RUNS}",
        usual(slow),
        lambda tally: tally.mean_runs <= limit and max(tally.lengths) <= MAX_RUNS,
        lambda tally: f"{tally.mean_runs:.2f}, {max(tally.lengths)} at most",
    )


FALSE_RED, BLAMED, REPEATED_RED, FOUND, MOST, FEW_RUNS = 0.001, 0.0005, 0.0005, 0.999, 0.99, 1.1
AIMS = (
    fails("healthy: at most 0.1 % fail", usual(clusters.HEALTHY), FALSE_RED),
    *(
        fails(f"{slow}: at least 99.9 % found", usual(slow), FOUND, found=True)
        for slow in (clusters.THROUGHOUT, *clusters.ENDS[:2], *clusters.STALLS)
    ),
    fails(f"{clusters.DRIFT}: at least 99 % found", usual(clusters.DRIFT), MOST, found=True),
    *(
        fails(f"{name}: at least 99.9 % found", cluster, FOUND, found=True)
        if cluster.slow == clusters.THROUGHOUT
        else fails(f"{name}: at most 0.1 % fail", cluster, FALSE_RED)
        for name, cluster in (clusters.CORRELATED | clusters.PUBLISHED_NOISE | clusters.UNEVEN).items()
        if cluster.slow != clusters.LITTLE
    ),
    *(
        blames(f"{name}: at most 0.05 % too slow or too fast", cluster, BLAMED)
        for name, cluster in clusters.CORRELATED.items()
        if cluster.slow == clusters.HEALTHY and cluster.correlation == max(clusters.CORRELATIONS)
    ),
    fails("repeated, healthy: at most 0.05 % fail", usual(clusters.HEALTHY), REPEATED_RED, repeated=True),
    fails("repeated, 3 %: at most 0.1 % fail", usual(clusters.LITTLE), FALSE_RED, repeated=True),
    fails(
        "repeated, 8 %: at least 99.9 % found", usual(clusters.THROUGHOUT), FOUND, found=True, repeated=True
    ),
    takes(clusters.HEALTHY, FEW_RUNS),
    takes(clusters.THROUGHOUT, FEW_RUNS),
)


def applies(aim: Aim, figure: Figure) -> bool:
    """Whether the aim is one for this statistic: means over several steps hide which of them stalled, and tell only what it costs."""
    return aim.cluster.slow not in clusters.STALLS or figure.target.case.means.span == 1


def aimed(table: Table, name: str, aim: Aim) -> Tally:
    return table[Cell(name, aim.cluster)]


def print_aims(table: Table) -> bool:
    """Print each aim for each statistic; whether all are met."""
    good = True
    for name, figure in figures().items():
        print(f"\n{name}, at {WHERE} unless it says otherwise")
        for aim in AIMS:
            if applies(aim, figure):
                tally = aimed(table, name, aim)
                good &= aim.reached(tally)
                print_target(aim.target, aim.reached(tally), aim.shown(tally))
    return good


# The document


def aims_table(table: Table) -> Iterator[str]:
    """Each aim, with what every statistic reaches."""
    yield from head("aim", *(f"`{name}`" for name in figures()))
    for aim in AIMS:
        cells = []
        for name, figure in figures().items():
            tally = aimed(table, name, aim)
            missed = "" if aim.reached(tally) else "**not met**: "
            cells.append(f"{missed}{aim.shown(tally)}" if applies(aim, figure) else "")
        yield row(aim.target, *cells)


COLUMNS: dict[str, tuple[str, float, bool]] = {
    **{slow: (slow, 0.0, False) for slow in clusters.SLOW_DOWNS},
    f"{clusters.HEALTHY}, runs vary": (clusters.HEALTHY, clusters.BETWEEN[-1], False),
    f"{clusters.HEALTHY}, repeated": (clusters.HEALTHY, 0.0, True),
    f"{clusters.LITTLE}, repeated": (clusters.LITTLE, 0.0, True),
}
"""Of the table of noise and hiccups: the slow-down, how runs vary, and whether they are repeated."""


def grid_table(table: Table, name: str) -> Iterator[str]:
    """Noise x hiccups, with a column for each slow-down: the share that fails."""
    yield from head("noise", "hiccups", *COLUMNS)
    for noise, hiccups in product(clusters.NOISES, clusters.HICCUPS):
        cells = []
        for slow, between, repeated in COLUMNS.values():
            tally = table[Cell(name, Cluster(noise, hiccups, between, slow))]
            cells.append(str(failing(tally.repeated if repeated else tally.once)))
        yield row(f"{100 * noise:.0f} %", f"{100 * hiccups:.0f} %", *cells)


def verdict_table(table: Table, name: str) -> Iterator[str]:
    """Which verdicts these are where the aims are stated, with one run and with `--repeat-undecided`."""
    words = ["passed", "too slow", "noisy", "repeated: passed", "too slow", "noisy", "runs"]
    yield from head("", *words, "runs vary: fail", "repeated: fail", "runs")
    for slow in clusters.SLOW_DOWNS:
        even, uneven = (table[Cell(name, Cluster(*AIM, between, slow))] for between in clusters.BETWEEN)
        once, repeated = (
            [str(Share(kinds[kind], even.runs)) for kind in (Kind.PASSED, Kind.TOO_SLOW, Kind.NOISY)]
            for kinds in (even.once, even.repeated)
        )
        varied = [str(failing(uneven.once)), str(failing(uneven.repeated)), f"{uneven.mean_runs:.2f}"]
        yield row(slow, *once, *repeated, f"{even.mean_runs:.2f}", *varied)


def patterns_table(table: Table) -> Iterator[str]:
    """The share that fails of the runs whose steps follow a pattern at a healthy pace."""
    yield from head("steps", *(f"`{name}`" for name in figures()))
    for name, cluster in clusters.PATTERNS.items():
        yield row(name, *(str(failing(table[Cell(figure, cluster)].once)) for figure in figures()))


def document(table: Table, runs: int, seed: int) -> str:
    """What stands between the markers of docs/dev/verdicts.md."""
    others, rest = (max(LEAST, runs // part) for part in (OTHERS, REST))
    lines = [
        f"Made by `python -m tests.bench.rates --runs {runs} --seed {seed} --write`: {runs:,} runs of a cluster that is healthy or 8 % slow, at",
        f"{WHERE}, and of those with another noise; {others:,} of each other slow-down there, and of healthy clusters elsewhere; {rest:,} of the rest. All shares are in",
        "percent, with the interval that holds the true one in 95 of 100 simulations (Wilson 1927).",
        "",
        *aims_table(table),
        "",
        "The share that fails of runs whose steps follow a pattern, and that are otherwise at the baseline's pace:",
        "",
        *patterns_table(table),
    ]
    for name, figure in figures().items():
        lines += ["", f"**`{name}`** ({figure.words}): the share that fails.", ""]
        lines += [
            *grid_table(table, name),
            "",
            f"The verdicts at {WHERE}, and with the mean number of runs:",
            "",
        ]
        lines += verdict_table(table, name)
    return "\n".join(lines)


def write(path: Path, texts: Mapping[str, str]) -> None:
    """Put these into the sections of the document, by their names."""
    page = path.read_text()
    try:
        for name, text in texts.items():
            page = sections.replaced(page, name, text)
    except LookupError as error:
        raise SystemExit(f"{path} {error.args[0]}; nothing is written") from None
    path.write_text(page)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.rates", description=__doc__)
    parser.add_argument(
        "--runs", type=int, default=RUNS, help=f"runs of the cells that need the most ({RUNS})"
    )
    parser.add_argument("--seed", type=int, default=SEED, help=f"another seed, other runs ({SEED})")
    parser.add_argument("--processes", type=int, default=PROCESSES, help=f"how many work ({PROCESSES})")
    parser.add_argument("--noise", action="store_true", help="only the tables by the noise of the steps")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/dev/verdicts.md")
    given = parser.parse_args(arguments)
    cells = noise_cells() if given.noise else grid()
    table = simulate(cells, given.runs, given.seed, given.processes)
    texts = {BY_NOISE: noise_document(table, given.runs, given.seed)}
    if not given.noise:
        texts[SECTION] = document(table, given.runs, given.seed)
    print("\n\n".join(texts.values()))
    if not given.noise:
        print_aims(table)
    if given.write:
        write(DOCUMENT, texts)


if __name__ == "__main__":
    main()
