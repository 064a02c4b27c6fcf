"""The simulation of how often verdicts are wrong: every cell is there, its shares add up, and a judge that finds nothing is noticed."""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from plugins.baselines.baseline_file import load_baselines
from plugins.judging.verdicts import Verdict
from plugins.logs import Step
from plugins.record.verdict import Kind
from tests import sections
from tests.bench import clusters, noise_tables, rates, tallies
from tests.bench.clusters import Cluster, figures
from tests.unit import aks, examples
from tests.unit.logs.test_means import log_text
from tests.unit.logs.test_megatron_lm import line
from tests.unit.logs.test_nemo1 import bar

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


def test_the_table_has_every_cell(table: tallies.Table) -> None:
    assert len(table) == len(figures()) * (3 * 3 * 2 * 11 + len(clusters.VARIANTS) + 2 * 41) == 2044
    assert all(tally.runs == cell.runs(RUNS) >= tallies.LEAST for cell, tally in table.items())


def test_every_run_has_one_verdict_with_and_without_repeats(table: tallies.Table) -> None:
    kinds = {Kind.PASSED, Kind.TOO_SLOW, Kind.TOO_FAST, Kind.NOISY}
    for tally in table.values():
        assert tally.once.total() == tally.repeated.total() == tally.lengths.total() == tally.runs
        assert set(tally.once) | set(tally.repeated) <= kinds
        assert 1 <= min(tally.lengths) <= tally.mean_runs <= max(tally.lengths) <= 3


def test_most_healthy_runs_pass_and_no_slow_one_does(table: tallies.Table) -> None:
    for name in figures():
        healthy, slow = (table[tallies.Cell(name, Cluster(*tallies.AIM, 0.0, s))] for s in ("healthy", "8 %"))
        assert tallies.failing(healthy.once).value < 0.08
        assert slow.once[Kind.PASSED] == 0


def test_the_document_has_a_row_for_each_noise_hiccup_and_slow_down(table: tallies.Table) -> None:
    text = rates.document(table, RUNS, 1)
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == 2 + len(rates.AIMS) + 2 + len(clusters.PATTERNS) + len(figures()) * (2 + 9 + 2 + 11)
    for first, count in (("| 2 % | 2 % |", len(figures())), (f"| {clusters.DRIFT} |", len(figures()))):
        assert sum(line.startswith(first) for line in rows) == count


def test_the_tables_by_noise_have_simulated_and_real_steps(table: tallies.Table) -> None:
    text = noise_tables.noise_document({cell: table[cell] for cell in noise_tables.noise_cells()}, RUNS, 1)
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert sum("| healthy: fails |" in line for line in rows[:14]) == 6
    assert sum("| 8 %: passes |" in line for line in rows[:14]) == 6
    assert [line.split(" | ")[0] for line in rows[-3:]] == ["| healthy", "| 3 %", "| 8 %"]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_seed_gives_the_same_figures_again(table: tallies.Table, processes: int) -> None:
    some = AIMED[:3]
    assert rates.simulate(some, RUNS, processes=processes) == {cell: table[cell] for cell in some}
    assert rates.simulate(some[1:2], RUNS, seed=1, processes=1) != {some[1]: table[some[1]]}


def test_a_judge_that_passes_everything_is_noticed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("plugins.judging.repeats.judge_pace", lambda *_: Verdict(Kind.PASSED, ()))
    assert not rates.print_aims(rates.simulate(AIMED, FEW, processes=1))
    said = capsys.readouterr().out
    assert said.count("\nnot met: 8 %: at least 99.9 % found: 0 (0-") == len(figures())
    assert "\nmet: healthy: at most 0.1 % fail: 0 (0-" in said


def test_a_judge_that_fails_everything_is_noticed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("plugins.judging.repeats.judge_pace", lambda *_: Verdict(Kind.NOISY, ()))
    assert not rates.print_aims(rates.simulate(AIMED, FEW, processes=1))
    assert "\nnot met: healthy: at most 0.1 % fail: 100 (" in capsys.readouterr().out


# Its ends are the shares p that solve |count / runs - p| = 1.96 sqrt(p (1 - p) / runs); of nothing, z^2 / (n + z^2).
@pytest.mark.parametrize(("count", "runs"), [(1, 1000), (5, 10), (17, 35_000), (999, 1000)])
def test_the_ends_of_an_interval_lie_1_96_standard_deviations_away(count: int, runs: int) -> None:
    for end in tallies.Share(count, runs).interval:
        assert abs(count / runs - end) == pytest.approx(1.96 * math.sqrt(end * (1 - end) / runs))


def test_the_interval_of_nothing_and_of_all() -> None:
    assert tallies.Share(0, 100).interval == pytest.approx((0.0, 0.03699), abs=1e-5)
    assert tallies.Share(100, 100).interval == pytest.approx((0.96301, 1.0), abs=1e-5)
    assert str(tallies.Share(0, 100)) == "0 (0-3.7)"


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "0"), (1.0, "100"), (0.0004, "0.040"), (0.0052, "0.52"), (0.5, "50.0"), (0.9993, "99.93")],
)
def test_a_share_has_more_digits_the_rarer_it_is(share: float, text: str) -> None:
    assert tallies.percent(share) == text


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
    paces = [Cluster(0.0, 0.0, 0.005, "healthy").draw(2, rng)[1] for _ in range(4000)]
    assert sum((pace - 1) ** 2 for pace in paces) / 4000 == pytest.approx(0.005**2, rel=0.1)


def test_noise_is_correlated_and_some_steps_are_longer_as_they_are_told_to() -> None:
    rng = random.Random(1)
    times = Cluster(0.01, 0.0, 0.0, "healthy", correlation=0.8).draw(20_000, rng)[1:]
    assert statistics.correlation(times[1:], times[:-1]) == pytest.approx(0.8, abs=0.02)
    assert statistics.stdev(times) == pytest.approx(0.01, rel=0.05)
    longer = [time for time in Cluster(0.0, 0.0, 0.0, "healthy", long=0.03).draw(20_001, rng)[1:] if time > 1]
    assert len(longer) == pytest.approx(600, abs=80)
    assert 1.05 <= min(longer) <= max(longer) <= 1.3


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


def test_the_tables_are_put_into_their_section_and_nowhere_else(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.md"
    page = "before\n<!-- rates: begin -->\n{}\n<!-- rates: end -->\nafter\n"
    path.write_text(page.format("old"))
    for _ in range(2):
        rates.write(path, {"rates": "new"})
        assert path.read_text() == page.format("new")
    path.write_text("no markers")
    with pytest.raises(SystemExit, match="nothing is written"):
        rates.write(path, {"rates": "new"})


def test_the_docs_have_the_table_of_every_statistic() -> None:
    _, text, _ = sections.parts(rates.DOCUMENT.read_text(), rates.SECTION)
    assert [name for name in figures() if f"**`{name}`**" not in text] == []


def test_every_cell_can_be_saved(table: tallies.Table, tmp_path: Path) -> None:
    rates.save(tmp_path / "rates.csv", table)
    lines = (tmp_path / "rates.csv").read_text().splitlines()
    assert len(lines) == 1 + len(table)
    assert lines[0].startswith(
        "statistic,noise,hiccups,between,slow-down,correlation,long,real,passed,too slow,too fast,noisy,repeated: passed,"
    )
    assert lines[1].startswith(f"last,0.01,0.0,0.0,healthy,0.0,0.0,,{RUNS // tallies.OTHERS},0,0,0,")
