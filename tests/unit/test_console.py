"""No string that is printed on a terminal through rich is markup, an emoji or an escape sequence."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.table import Table

from fixtures.runs.folders import print_runs, say
from fixtures.runs.ledger import Ledger
from plugins.base.console import PlainConsole
from plugins.base.words import shown
from plugins.record.case import CaseRecord
from plugins.record.job import Job, JobRef
from plugins.record.lines import JOBS_LOG
from plugins.reports.terminal import print_table
from tests.unit import examples
from tests.unit.jobs_log import planned, rewrite

HOSTILE = [
    "[link=http://evil.example]x[/link]",
    "[red]x[/red]",
    "[/]",
    "[bold",
    "x[@click=app.quit]y[/]",
    ":skull:",
    "\x1b]52;c;aGk=\x07\x1b[2J",
    "\x9b2J\r\u202e",
]


def without_colours(said: str) -> str:
    """What was said, without the styles that Pacemark itself has set."""
    return re.sub(r"\x1b\[[0-9;]*m", "", said)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_string_is_shown_as_it_is_written(text: str) -> None:
    file = io.StringIO()
    console = PlainConsole(file=file, width=200, force_terminal=True)
    table = Table(text, title=text, caption=text)
    table.add_row(text)
    table.add_row(text)
    console.print(table)
    console.print(text, style="bold", markup=True, emoji=True)
    console.rule(text)
    said = without_colours(file.getvalue())
    assert said.count(shown(text)) == 7
    assert shown(said) == said


@pytest.mark.parametrize("text", HOSTILE)
def test_a_run_is_listed_as_its_ledger_has_it(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "run-1"
    folder.mkdir()
    ledger = Ledger.create(folder / JOBS_LOG, f"run {text}", f"site {text}")
    ledger.plan([planned(case, "slurm", f"job {text}") for case in (examples.case("70b-fp8-512gpus"),)])
    ledger.intend("llama3/70b-fp8-512gpus")
    rewrite(folder / JOBS_LOG, lambda line: line["run"].update(host=f"host {text}"))
    broken = tmp_path / f"run-2{text}".replace("/", "")
    broken.mkdir()
    (broken / JOBS_LOG).touch()
    file = io.StringIO()
    print_runs(tmp_path, file, 500)
    said = file.getvalue()
    assert all(shown(f"{what} {text}") in said for what in ("run", "site", "job"))
    assert shown(broken.name) in said
    assert shown(said) == said


@pytest.mark.parametrize("text", HOSTILE)
def test_a_verdict_is_printed_as_its_record_has_it(text: str) -> None:
    empty = CaseRecord.unjudged(Job(ref=JobRef("llama3", text, "a")), text)
    record = replace(empty, remarks=(f"node {text}",))
    file = io.StringIO()
    print_table([record], file, 200, colour=True)
    said = without_colours(file.getvalue())
    assert all(shown(part) in said for part in (f"llama3/{text}", f"infrastructure: {text}", f"node {text}"))
    assert shown(said) == said


def test_what_is_done_to_a_run_is_said_as_text() -> None:
    file = io.StringIO()
    say(file, "run \x1b[2J: [red]")
    assert file.getvalue() == "run \\x1b[2J: [red]\n"
