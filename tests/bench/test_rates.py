"""The simulation of how often verdicts are wrong: every cell is there, its shares add up, and a judge that finds nothing is noticed."""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest

from plugins.baselines.baseline_file import load_baselines
from plugins.judging.verdicts import Verdict
from plugins.logs import Step
from plugins.record.verdict import Kind
from tests import sections
from tests.bench import clusters, rates, tallies
from tests.bench.clusters import Cluster, figures
from tests.printed.megatron_lm import line
from tests.printed.nemo1 import bar
from tests.unit import aks, examples
from tests.unit.logs.test_means import log_text

RUNS, FEW = 20, 5
AIMED = [cell for cell in rates.grid() if cell.cluster in [aim.cluster for aim in rates.AIMS]]
"""The cells that have an aim."""


@pytest.fixture(scope="module", autouse=True)
def few_runs() -> Iterator[None]:
    """Cells that have no aim get hardly any runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tallies, "LEAST", 1)
        yield


@pytest.fixture(scope="module")
def table() -> dict[tallies.Cell, tallies.Tally]:
    return rates.simulate(rates.grid(), RUNS, processes=1)


def test_every_cell_has_its_runs_and_every_run_one_verdict(table: tallies.Table) -> None:
    assert len(table) == len(figures()) * (3 * 3 * 2 * 11 + len(clusters.VARIANTS) + 2 * 41) == 2044
    for cell, tally in table.items():
        assert tally.runs == cell.runs(RUNS) >= tallies.LEAST
        assert tally.once.total() == tally.repeated.total() == tally.lengths.total() == tally.runs
        assert set(tally.once) | set(tally.repeated) <= {
            Kind.PASSED,
            Kind.TOO_SLOW,
            Kind.TOO_FAST,
            Kind.NOISY,
        }
        assert 1 <= min(tally.lengths) <= tally.mean_runs <= max(tally.lengths) <= 3


def test_most_healthy_runs_pass_and_no_slow_one_does(table: tallies.Table) -> None:
    for name in figures():
        healthy, slow = (table[tallies.Cell(name, Cluster(*tallies.AIM, 0.0, s))] for s in ("healthy", "8 %"))
        assert tallies.failing(healthy.once).value < 0.08
        assert slow.once[Kind.PASSED] == 0


@pytest.mark.parametrize(
    ("always", "said"),
    [
        (
            Kind.PASSED,
            ["not met: 8 %: at least 99.9 % found: 0 (0-", "met: healthy: at most 0.1 % fail: 0 (0-"],
        ),
        (Kind.NOISY, ["not met: healthy: at most 0.1 % fail: 100 ("]),
    ],
)
def test_a_judge_with_one_answer_is_noticed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], always: Kind, said: list[str]
) -> None:
    monkeypatch.setattr("plugins.judging.repeats.judge_pace", lambda *_: Verdict(always, ()))
    assert not rates.print_aims(rates.simulate(AIMED, FEW, processes=1))
    printed = capsys.readouterr().out
    assert [line for line in said if f"\n{line}" not in printed] == []


# The ends are the shares p that solve |count / runs - p| = 1.96 sqrt(p (1 - p) / runs); of nothing, z^2 / (n + z^2).
@pytest.mark.parametrize(("count", "runs"), [(1, 1000), (5, 10), (999, 1000)])
def test_the_ends_of_an_interval_lie_1_96_standard_deviations_away(count: int, runs: int) -> None:
    for end in tallies.Share(count, runs).interval:
        assert abs(count / runs - end) == pytest.approx(1.96 * math.sqrt(end * (1 - end) / runs))
    assert str(tallies.Share(0, 100)) == "0 (0-3.7)"


# Clusters


def steps_of(slow: str, steps: int = 50) -> list[int]:
    """The steps that are slow."""
    factors = clusters.SLOW_DOWNS[slow].factors(steps, random.Random(1))
    return [i for i, factor in enumerate(factors) if factor > 1]


def test_slow_downs_are_where_their_names_say() -> None:
    assert steps_of("healthy") == []
    assert steps_of("8 %") == list(range(50))
    assert steps_of("8 % from 31") == list(range(31, 50))
    assert steps_of("8 % from 40", 100) == list(range(80, 100))
    assert steps_of("30 % from 47") == [47, 48, 49]
    assert clusters.SLOW_DOWNS["drift to 8 %"].factors(50, random.Random(1))[::49] == [1.0, 1.08]
    for every in (7, 8, 10):
        stalls = steps_of(f"stall, every {every}th")
        assert {after - before for before, after in pairwise(stalls)} == {every}


def test_noise_hiccups_and_runs_scatter_as_they_are_told_to() -> None:
    rng = random.Random(1)
    still = Cluster(0.0, 0.0, 0.0, "8 %").draw(50, rng)
    assert still == [4 * 1.08, *[1.08] * 49]
    stalled = Counter(Cluster(0.0, 0.02, 0.0, "healthy").draw(50_001, rng)[1:])
    assert stalled[1.3] == pytest.approx(1000, abs=100)
    times = Cluster(0.01, 0.0, 0.0, "healthy", correlation=0.8).draw(20_000, rng)[1:]
    assert statistics.correlation(times[1:], times[:-1]) == pytest.approx(0.8, abs=0.02)
    paces = [Cluster(0.0, 0.0, 0.005, "healthy").draw(2, rng)[1] for _ in range(4000)]
    assert sum((pace - 1) ** 2 for pace in paces) / 4000 == pytest.approx(0.005**2, rel=0.1)


def read(name: str, seconds: Sequence[float]) -> Sequence[Step]:
    """What the parsers make of a log of these steps."""
    if "nemo1" in name:
        bars = "\r".join(bar(i, mean) for i, mean in enumerate(clusters.running_means(seconds)))
        return examples.parse(bars + "\n", "nemo1").steps
    if "dllogger" in name:
        return examples.parse(log_text(seconds), "dllogger").steps
    if name == "mean:35-49":
        bridge = "".join(f"{line(i, f'{1000 * time:.1f}')}\n" for i, time in enumerate(seconds, start=1))
        return examples.parse(bridge, "megatron_bridge").steps
    if "every: 10" in name:
        means = [sum(seconds[i : i + 10]) / 10 for i in range(0, 100, 10)]
        lines = aks.log_lines(means, of=aks.case(aks.LARGE))
        return examples.parse("\n".join(lines) + "\n", "megatron_lm").steps
    return examples.parse(examples.nemo2_text(seconds), "nemo2").steps


@pytest.mark.parametrize("name", list(figures()))
def test_steps_are_those_that_are_read_from_a_log(name: str) -> None:
    figure = figures()[name]
    seconds = [figure.target.step_time * t for t in Cluster(0.02, 0.02, 0.0, "healthy").draw(
        figure.target.case.steps, random.Random(3)
    )]  # fmt: skip
    here, there = (
        [(step.index, step.seconds, step.resolution) for step in steps]
        for steps in (figure.printed(seconds), read(name, seconds))
    )
    assert [step[0] for step in here] == [step[0] for step in there]
    for one, other in zip(here, there, strict=True):
        assert one[1:] == pytest.approx(other[1:], rel=1e-9)


def test_the_statistic_of_every_release_of_megatron_bridge_but_one_is_simulated() -> None:
    tables = load_baselines(examples.BASELINES / "megatron_bridge.yaml").tables
    statistics = {table.statistic for table in tables if table.release != "25.09"}
    assert statistics == {"mean:35-49"} <= set(figures())


# The document


def test_the_docs_have_the_table_of_every_statistic() -> None:
    _, text, _ = sections.parts(rates.DOCUMENT.read_text(), rates.SECTION)
    assert [name for name in figures() if f"**`{name}`**" not in text] == []
