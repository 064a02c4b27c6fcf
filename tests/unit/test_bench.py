"""The benches: each is listed once, and docs/dev/performance.md shows the figures of the history."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import sections
from tests.bench import performance
from tests.bench.benches import BENCHES
from tests.bench.performance import Entry, history, keep, text
from tests.bench.report import Figure

TESTS = Path(__file__).parents[1]


def entry(date: str, seconds: str, met: bool | None = True) -> Entry:
    return Entry(date, "2 x a processor", 0.1, "parsing", (Figure("in < 2 s", seconds, met),))


def test_each_bench_has_tests_that_hold_its_exact_counts() -> None:
    for bench in BENCHES:
        assert bench.guards, bench.name
        assert [path for path in bench.guards if not (TESTS / path).is_file()] == [], bench.name
        assert all(hasattr(module, name) for module, name, _ in bench.small), bench.name


def test_the_page_shows_the_last_runs() -> None:
    page = performance.DOCUMENT.read_text(encoding="utf-8")
    assert sections.parts(page, performance.SECTION)[1] == text(history())


def test_a_run_is_kept_and_stands_beside_those_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(performance, "HISTORY", tmp_path / "history.jsonl")
    monkeypatch.setattr(performance, "DOCUMENT", tmp_path / "page.md")
    performance.DOCUMENT.write_text("# Costs\n\n" + sections.empty(performance.SECTION))
    runs = [
        entry("2026-11-2" + str(day), f"{day} s", met)
        for day, met in enumerate((True, None, True, True, False))
    ]
    for run in runs:
        keep(run)
    assert history() == runs
    page = performance.DOCUMENT.read_text()
    assert "Last run: 2026-11-24, 2 x a processor, load 0.1." in page
    assert "| in < 2 s | no | 4 s | 1 s; 2 s; 3 s |" in page


def test_of_many_figures_those_that_miss_their_goals_are_shown() -> None:
    figures = tuple(Figure(f"aim {n}", f"{n} %", n != 3) for n in range(20))
    shown = text([Entry("2026-11-20", "1 x a processor", 0, "rates", figures)])
    assert "| goals | 19 of 20 | | |\n| aim 3 | no | 3 % |  |" in shown
    assert "aim 4" not in shown
