"""What came from outside is shown as text, whatever a terminal or a browser would make of it."""

from __future__ import annotations

import unicodedata
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.signals import complain
from plugins.base.errors import Unreachable
from plugins.base.words import as_html, shown

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
    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            tags.append(tag)

        def handle_data(self, data: str) -> None:
            said.append(data)

    tags: list[str] = []
    said: list[str] = []
    reader = Reader()
    reader.feed(as_html(text))
    reader.close()
    assert tags == ["pre"]
    assert "".join(said) == shown(text)


def test_an_error_is_shown_as_text() -> None:
    assert str(Unreachable("sbatch: \x1b[2Jno")) == r"sbatch: \x1b[2Jno"


def test_a_complaint_is_shown_as_text(capfd: pytest.CaptureFixture[str]) -> None:
    complain("cannot write \x1b]0;x\x07")
    assert capfd.readouterr().err == "\npacemark: cannot write \\x1b]0;x\\x07\n"
