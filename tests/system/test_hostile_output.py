"""A log, a launcher and a scheduler that write to the terminal and the browser of whoever looks: all of it is shown as text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from plugins.base.words import shown
from tests.lab.scripted import Fault, Script, ScriptedLab, ending
from tests.system.scripted import Session, play

# The clipboard, the title, clear the screen, the cursor; and what would be markup in a browser or in Markdown.
OBEYED = "\x1b]52;c;aGk=\x07 \x1b]0;pwned\x07 \x1b[2J\x1b[3J \x1b[1A\x1b[2K \x9b2J \u202e"
MARKUP = "```<script>alert(1)</script><img src=x onerror=alert(1)>"


@pytest.fixture
def hostile_log(scripted_lab: ScriptedLab) -> Iterator[None]:
    """Every job's log ends in the midst of the training with lines that mean harm."""
    path = scripted_lab.root / "scheduler" / "log.txt"
    before = path.read_bytes()
    lines = [f"RuntimeError: {OBEYED}", "```", MARKUP, f"error {OBEYED}{MARKUP}"]
    path.write_bytes(
        before[: before.rindex(b"\n", 0, len(before) // 3) + 1] + "\n".join([*lines, ""]).encode()
    )
    yield
    path.write_bytes(before)


def require_text(session: Session) -> None:
    """Nothing on the terminal, and nothing that Allure would take for markup."""
    assert re.findall("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", session.run.out) == []
    results = [json.loads(path.read_text()) for path in (session.run.folder / "allure").glob("*-result.json")]
    assert results
    for result in results:
        # What is Markdown is not used, and the one field of markup has nothing but the text, in its own words.
        assert "description" not in result
        assert tags(result.pop("descriptionHtml")) == ["pre"]
        assert [text for text in texts(result) if text != shown(text)] == []
    for path in (session.run.folder / "allure").glob("*-attachment.txt"):
        text = path.read_text()
        assert text == shown(text)


def tags(markup: str) -> list[str]:
    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            found.append(tag)

    found: list[str] = []
    Reader().feed(markup)
    return found


def texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for one in value.values() for text in texts(one)]
    if isinstance(value, list):
        return [text for one in value for text in texts(one)]
    return [value] if isinstance(value, str) else []


@pytest.mark.usefixtures("hostile_log")
def test_the_last_lines_of_a_log_are_text(scripted_lab: ScriptedLab, tmp_path: Path) -> None:
    session = play(scripted_lab, tmp_path, Script(timeline=ending("FAILED", 1), exit_code="1:0"))
    assert session.verdict == "infrastructure", session.run.out
    require_text(session)
    assert f"RuntimeError: {shown(OBEYED)}" in session.run.out
    assert MARKUP in session.run.out


def test_a_node_and_a_reason_are_text(scripted_lab: ScriptedLab, tmp_path: Path) -> None:
    name = f"gpu001{OBEYED}{MARKUP}"
    script = Script(timeline=ending("NODE_FAIL"), nodes=name, reason=f"{OBEYED}{MARKUP}", exit_code="0:1")
    session = play(scripted_lab, tmp_path, script)
    assert session.verdict == "infrastructure", session.run.out
    require_text(session)
    assert shown("\x1b]52;c;aGk=\x07") in session.run.out


def test_the_errors_of_sbatch_are_text(scripted_lab: ScriptedLab, tmp_path: Path) -> None:
    script = Script(faults={"sbatch": Fault(f"sbatch: error: {OBEYED}{MARKUP}")}, reply="", appears_after=99)
    session = play(scripted_lab, tmp_path, script)
    assert session.verdict == "infrastructure", session.run.out
    require_text(session)
    assert shown(f"sbatch: error: {OBEYED.split()[0]}") in session.run.out


def test_a_judged_case_describes_itself_in_text(scripted_lab: ScriptedLab, tmp_path: Path) -> None:
    session = play(scripted_lab, tmp_path, Script(nodes=f"gpu001{OBEYED}{MARKUP}"))
    assert session.verdict == "passed", session.run.out
    require_text(session)
    described = [path.read_text() for path in (session.run.folder / "allure").glob("*-result.json")]
    assert ["descriptionHtml" in result for result in described] == [True]
