"""The tables of verdicts by the noise of the steps: simulated noise beside real steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from plugins.judging.steadiness import PUBLISHED, PaceGate
from plugins.record.verdict import Kind
from tests.bench import clusters
from tests.bench.clusters import Cluster, figures
from tests.bench.mlperf import System, systems
from tests.bench.tallies import AIM, LEAST, OTHERS, SAMPLED, Cell, Share, Table, Tally, failing, percent


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def head(*cells: str) -> list[str]:
    return [row(*cells), row(*["---"] * len(cells))]


def counted(table: Table, name: str, alike: Sequence[Cluster]) -> Tally:
    """What became of the runs of these clusters together."""
    tally = Tally()
    for cluster in alike:
        tally.add(table[Cell(name, cluster)])
    return tally


def real(slow: str, chosen: Callable[[System], bool]) -> list[Cluster]:
    """The real systems that are chosen, with this slow-down."""
    return [cluster for cluster in clusters.REAL[slow] if chosen(systems()[cluster.real])]


def noises(slow: str) -> dict[str, list[Cluster]]:
    """The clusters with this slow-down, by how their steps scatter."""
    each = sum(system.every == 1 for system in systems().values())
    return {
        "2 %, independent": [Cluster(*AIM, 0.0, slow)],
        **{
            f"2 %, correlated by {correlation:g}": [Cluster(*AIM, 0.0, slow, correlation)]
            for correlation in clusters.CORRELATIONS
        },
        f"{percent(PUBLISHED.step)} %, correlated by {PUBLISHED.correlation:g}, as `--plan` counts on": [
            cluster for cluster in clusters.PUBLISHED_NOISE.values() if cluster.slow == slow
        ],
        f"real: {each} systems that print each step": real(slow, lambda system: system.every == 1),
        f"real: {len(systems()) - each} systems that print every 32nd step": real(
            slow, lambda system: system.every > 1
        ),
    }


def noise_table(table: Table) -> Iterator[str]:
    """How many healthy clusters fail and how many slow ones pass, by how the steps scatter."""
    yield from head("noise", "cluster", *(f"`{name}`" for name in figures()))
    for slow, passes in ((clusters.HEALTHY, False), (clusters.THROUGHOUT, True)):
        for noise, alike in noises(slow).items():
            cells = []
            for name in figures():
                tally = counted(table, name, alike)
                once, repeated = (
                    kinds[Kind.PASSED] if passes else kinds.total() - kinds[Kind.PASSED]
                    for kinds in (tally.once, tally.repeated)
                )
                cells.append(f"{Share(once, tally.runs)}; {percent(repeated / tally.runs)}")
            yield row(noise, f"{slow}: {'passes' if passes else 'fails'}", *cells)


def systems_table(table: Table) -> Iterator[str]:
    """The real systems of which a healthy run fails, or a slow one passes, with the figures of their noise."""
    yield from head("system", "step", "correlation", "runs", "cluster", *(f"`{name}`" for name in figures()))
    for slow in clusters.REAL:
        for cluster in clusters.REAL[slow]:
            tallies = [table[Cell(name, cluster)] for name in figures()]
            shares = [tally.once[Kind.PASSED] / tally.runs for tally in tallies]
            if slow == clusters.HEALTHY:
                shares = [1 - share for share in shares]
            if any(shares):
                system = systems()[cluster.real]
                noise = system.noise
                yield row(
                    system.name,
                    f"{percent(noise.step)} %",
                    f"{noise.correlation:.2f}" if system.every == 1 else "",
                    f"{percent(noise.between)} %",
                    "healthy: fails" if slow == clusters.HEALTHY else f"{slow}: passes",
                    *map(percent, shares),
                )


def power_table(table: Table) -> Iterator[str]:
    """How many runs fail by the model of noise, beside those that did in the simulation."""
    yield from head("cluster", *(f"`{name}`" for name in figures()))
    for cluster in clusters.PUBLISHED_NOISE.values():
        cells = []
        for name, figure in figures().items():
            gate = PaceGate.of(figure.target.case, figure.target.baseline.tolerance.slower)
            power = gate.found(PUBLISHED, clusters.SLOW_DOWNS[cluster.slow].factor - 1)
            cells.append(f"{percent(power)}; {failing(table[Cell(name, cluster)].once)}")
        yield row(cluster.slow, *cells)


def noise_cells() -> list[Cell]:
    """The cells of these tables."""
    alike = [cluster for slow in clusters.REAL for noise in noises(slow).values() for cluster in noise]
    return [
        Cell(name, cluster) for name in figures() for cluster in {*alike, *clusters.PUBLISHED_NOISE.values()}
    ]


def noise_document(table: Table, runs: int, seed: int) -> str:
    """The tables, with what they show."""
    lines = [
        f"Made by `python -m tests.bench.rates --noise --runs {runs} --seed {seed} --write`: {runs:,} runs of each simulated cluster,",
        f"{max(LEAST, runs // OTHERS):,} of each real one that prints each step, {max(LEAST, runs // SAMPLED):,} of the other real ones.",
        "",
        "The share that is judged wrongly, in percent; behind the semicolon, with `--repeat-undecided`:",
        "",
        *noise_table(table),
        "",
        "The real systems with a run that is judged so, with the robust standard deviation of their steps and of their runs:",
        "",
        *systems_table(table),
        "",
        "What `--plan` says of one run at 5 %, and the share of simulated runs that failed with this noise and 0.3 % hiccups:",
        "",
        *power_table(table),
    ]
    return "\n".join(lines)
