"""What came from outside is shown as text, whatever a terminal, rich or a browser would make of it."""

from __future__ import annotations

import io
import re
import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table

from fixtures.runs.folders import print_runs, say
from fixtures.runs.ledger import Ledger
from fixtures.signals import complain
from plugins.base.console import PlainConsole
from plugins.base.errors import Unreachable
from plugins.base.words import as_html, shown
from plugins.record.case import CaseRecord
from plugins.record.job import Job, JobRef
from plugins.record.lines import JOBS_LOG
from plugins.reports.terminal import print_table
from tests.unit import examples
from tests.unit.jobs_log import planned, rewrite
from tests.unit.reports.test_page import Reader

BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
HOSTILE = {
    "the clipboard (OSC 52)": ("\x1b]52;c;aGk=\x07", r"\x1b]52;c;aGk=\x07"),
    "the title": ("\x1b]0;pwned\x1b\\", "\\x1b]0;pwned\\x1b\\"),
    "clear": ("\x1b[2J\x1b[3J\x1bc", r"\x1b[2J\x1b[3J\x1bc"),
    "the cursor": ("\x1b[1A\x1b[2K", r"\x1b[1A\x1b[2K"),
    "C1": ("\x9b2J\x9d0;x\x9c", r"\x9b2J\x9d0;x\x9c"),
    "carriage return": ("FAILED\rpassed", r"FAILED\x0dpassed"),
    "backspace and DEL": ("a\b\x7f", r"a\x08\x7f"),
    "from right to left": ("\u202eabc\u2066", r"\u202eabc\u2066"),
    "GitHub's commands": (
        " \t::add-mask::x\n::error file=a::b",
        " \t\\x3a:add-mask::x\n\\x3a:error file=a::b",
    ),
    "GitHub's old commands": ("x ##[add-path]/tmp", r"x \x23#[add-path]/tmp"),
    "Azure's commands": (
        "x ###vso[task.setvariable variable=a]b",
        r"x #\x23#vso[task.setvariable variable=a]b",
    ),
    "no command": ("a::b::c ## [x] #[x] ::x", "a::b::c ## [x] #[x] ::x"),
    "half a pair": ("\udc80", r"\udc80"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_a_terminal_obeys_is_shown_as_an_escape(what: str) -> None:
    text, expected = HOSTILE[what]
    assert shown(text) == expected


@given(st.text(st.characters(exclude_categories=[]) | st.sampled_from(f"\x1b\r\n\t\x9b:#[a{BIDI}")))
def test_nothing_that_is_obeyed_is_left_and_nothing_else_changed(text: str) -> None:
    told = shown(text)
    left = [
        letter for letter in told if letter not in "\n\t" and unicodedata.category(letter) in ("Cc", "Cs")
    ]
    assert left == []
    assert not set(BIDI) & set(told)
    assert shown(told) == told
    told.encode()
    # Without commands to CI, which are told by several characters.
    kept = [letter for letter in text if shown(letter) == letter and letter not in "#:"]
    assert len(shown("".join(kept))) == len(kept)


@given(st.text(st.characters(exclude_categories=[]) | st.sampled_from("<>&\"'`\n")))
def test_html_has_no_markup_but_its_own(text: str) -> None:
    read = Reader(as_html(text))
    assert dict(read.tags) == {"pre": 1}
    assert "".join(read.said) == shown(text)


def test_an_error_is_shown_as_text() -> None:
    assert str(Unreachable("sbatch: \x1b[2Jno")) == r"sbatch: \x1b[2Jno"


def test_a_complaint_is_shown_as_text(capfd: pytest.CaptureFixture[str]) -> None:
    complain("cannot write \x1b]0;x\x07")
    assert capfd.readouterr().err == "\npacemark: cannot write \\x1b]0;x\\x07\n"


MARKUP = [
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


@pytest.mark.parametrize("text", MARKUP)
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


@pytest.mark.parametrize("text", MARKUP)
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


@pytest.mark.parametrize("text", MARKUP)
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
