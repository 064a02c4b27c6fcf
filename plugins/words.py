"""Text from outside, made harmless where it is shown. Pure.

A log, a scheduler's error, the name of a node or of a file may have anything in it. A terminal obeys some of that: it moves
the cursor, clears the screen, sets its title, fills the clipboard, writes from right to left. What runs a job of CI obeys lines
of its output.
"""

from __future__ import annotations

import html
import re

# C0 but for tab and line feed, DEL and C1; marks and overrides of the direction of writing; separators of lines and
# paragraphs, which a terminal does not show; halves of surrogate pairs, which no stream can be given.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

# The first sign of a command of GitHub Actions (`::add-mask::x` at the beginning of a line, `##[...]`), Azure Pipelines
# (`##vso[task.setvariable ...]`) and TeamCity.
_COMMAND = re.compile(r"#(?=#\w*\[)|(?<![^\n])[^\S\n]*:(?=:[\w-]+[^\n]*::)")


def shown(text: str) -> str:
    """A text with each character that a terminal would obey, or that begins a command to CI, as an escape such as `\\x1b`.

    Tabs and line feeds stay. What has gone through it once is not changed by a second time.
    """
    return _COMMAND.sub(_escape_last, _OBEYED.sub(_escape, text))


def as_html(text: str) -> str:
    """A text as preformatted HTML in which nothing is markup; a line that is too long for the page is wrapped."""
    return f'<pre style="white-space: pre-wrap; overflow-wrap: anywhere">{html.escape(shown(text))}</pre>'


def _escape_last(found: re.Match[str]) -> str:
    return f"{found[0][:-1]}\\x{ord(found[0][-1]):02x}"


def _escape(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
