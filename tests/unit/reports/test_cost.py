"""What the page of a run costs, and when: the plot of a case is drawn once, as soon as the case has ended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from jinja2 import Environment

from fixtures.session.life import Life
from fixtures.session.run import OwnRun
from plugins.record import stored
from plugins.record.case import CaseRecord
from plugins.record.folder import STEPS
from plugins.record.stored import read_summary, write_case
from plugins.record.summary import Summary
from plugins.record.verdict import Kind
from plugins.reports import case_view, page, plot
from plugins.reports.markup import template
from tests.unit.reports import example_run

KINDS = (Kind.PASSED, Kind.TOO_SLOW, Kind.NOISY, Kind.LOST)
# A case without steps has no plot.
PLOTS = 3


@pytest.fixture(autouse=True)
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The graphs that were drawn so far."""
    graphs: list[Any] = []
    make = plot._Graph.__init__

    def counted(graph: Any, *args: Any) -> None:
        graphs.append(graph)
        make(graph, *args)

    monkeypatch.setattr(plot._Graph, "__init__", counted)
    plot._steps_svg.cache_clear()
    return graphs


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that were opened so far, without those of the page itself."""
    names: list[str] = []
    open_file = Path.open

    def counted(path: Path, *args: Any, **options: Any) -> Any:
        names.append(path.name)
        return open_file(path, *args, **options)

    monkeypatch.setattr(Path, "open", counted)
    return names


def ended(folder: Path) -> tuple[page.PageReport, Summary]:
    """A run whose cases have all ended, and its page so far."""
    example_run.make(folder, KINDS)
    summary, report = read_summary(folder), page.PageReport()
    report.load()
    for record in summary.cases:
        if record.verdict is not Kind.LOST:
            write_case(folder / record.id, record)
        report.add(folder, record.id)
    return report, summary


def test_at_the_end_no_plot_is_drawn_and_no_file_of_a_case_is_read(
    tmp_path: Path, drawn: list[Any], opened: list[str]
) -> None:
    report, summary = ended(tmp_path)
    assert len(drawn) == PLOTS
    opened.clear()
    html, _ = report.render(tmp_path, summary)
    assert len(drawn) == PLOTS
    assert [name for name in opened if name != "report.css"] == []
    assert html.count("<figure>") == PLOTS
    assert html == page.PageReport().render(tmp_path, summary)[0]


def test_allure_and_the_page_show_the_plot_that_was_drawn_once(tmp_path: Path, drawn: list[Any]) -> None:
    _, summary = ended(tmp_path)
    record = summary.cases[0]
    times = case_view.steps_of(tmp_path / record.id / STEPS)
    assert plot.steps_svg(replace(record, recording={"refused": "by Allure's record"}), times)
    assert len(drawn) == PLOTS


def test_a_resumed_run_draws_what_it_lacks(tmp_path: Path, drawn: list[Any]) -> None:
    _, summary = ended(tmp_path)
    plot._steps_svg.cache_clear()
    drawn.clear()
    report = page.PageReport()
    report.add(tmp_path, summary.cases[1].id)
    assert len(drawn) == 1
    report.render(tmp_path, summary)
    assert len(drawn) == PLOTS


def test_a_case_that_was_judged_again_is_drawn_again(tmp_path: Path, drawn: list[Any]) -> None:
    report, summary = ended(tmp_path)
    again: CaseRecord = replace(summary.cases[0], steady_median=9.0)
    changed = replace(summary, cases=(again, *summary.cases[1:]))
    html, _ = report.render(tmp_path, changed)
    assert len(drawn) == PLOTS + 1
    assert "steady median 9 s" in html


def test_steps_that_were_written_again_are_drawn_again(tmp_path: Path, drawn: list[Any]) -> None:
    report, summary = ended(tmp_path)
    path = tmp_path / summary.cases[0].id / STEPS
    path.write_text(f"{example_run.COLUMNS}\n0,1,1,1,1,1\n")
    html, _ = report.render(tmp_path, summary)
    assert len(drawn) == PLOTS + 1
    assert ": 1 steps" in html
    path.unlink()
    assert report.render(tmp_path, summary)[0].count("<figure>") == PLOTS - 1


@pytest.mark.parametrize(("done", "loaded"), [(0, 0), (1, 2)])
def test_what_makes_the_page_is_loaded_once_a_job_prints_steps(done: int, loaded: int) -> None:
    life = Life(cast(pytest.Config, None))
    board = {"llama3/70b": SimpleNamespace(done=done)}
    life._run = cast(OwnRun, SimpleNamespace(fleet=SimpleNamespace(board=board)))
    template.cache_clear()
    stored._adapter.cache_clear()  # type: ignore[attr-defined]
    for _ in range(3):
        life.pytest_pacemark_waiting()
    assert template.cache_info().misses == loaded
    assert stored._adapter.cache_info().misses == bool(loaded)  # type: ignore[attr-defined]


@pytest.mark.parametrize("damage", [b"", b"j2\x05", b"\xff" * 99])
def test_a_template_is_compiled_once_and_again_if_what_was_kept_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: bytes
) -> None:
    compiled: list[Any] = []
    compile_it = Environment.compile

    def counted(*args: Any) -> Any:
        compiled.append(args)
        return compile_it(*args)

    monkeypatch.setattr(Environment, "compile", counted)
    monkeypatch.setattr("plugins.reports.markup._COMPILED", tmp_path / "__pycache__")
    monkeypatch.setattr("sys.dont_write_bytecode", False)

    def load(times: int) -> None:
        template.cache_clear()
        template(page.MARKDOWN)
        assert len(compiled) == times

    load(1)
    load(1)
    [kept] = (tmp_path / "__pycache__").iterdir()
    kept.write_bytes(damage)
    load(2)
    load(2)
    template.cache_clear()
