"""Makes text from outside harmless before it is shown, and names numbers in ranges. Pure.

A log, a scheduler's error, or the name of a node or file may contain any characters. A terminal obeys some of
them: it moves the cursor, clears the screen, sets its title, fills the clipboard, or writes from right to
left. A CI runner obeys some lines of a job's output.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from itertools import groupby

# If there are more numbers or ranges than this, only the number of the others is given.
_MOST_LISTED = 6

# C0 except tab and line feed, DEL and C1; marks and overrides of the writing direction; separators of lines
# and paragraphs, which a terminal does not show; halves of surrogate pairs, which no stream accepts.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

# The first character of a command for GitHub Actions (`::add-mask::x` at the beginning of a line, `##[...]`),
# Azure Pipelines (`##vso[task.setvariable ...]`) or TeamCity.
_COMMAND = re.compile(r"#(?=#\w*\[)|(?<![^\n])[^\S\n]*:(?=:[\w-]+[^\n]*::)")


# HF_TOKEN, WANDB_API_KEY, MLFLOW_TRACKING_PASSWORD; not TOKENIZERS_PARALLELISM and MAX_TOKENS.
_SECRET = re.compile(r"(TOKEN|(KEY|SECRET|PASSWORD|CREDENTIAL)S?)(?![A-Z])", re.IGNORECASE)


def names_secret(name: str) -> bool:
    """Whether the value of a variable of this name is a secret."""
    return _SECRET.search(name) is not None


def shown(text: str) -> str:
    """Write each character that a terminal would obey, or that begins a CI command, as an escape (`\\x1b`).

    Tabs and line feeds stay. If a text was escaped already, it does not change.
    """
    return _COMMAND.sub(_escape_last, _OBEYED.sub(_escape, text))


def as_html(text: str) -> str:
    """A text as preformatted HTML in which nothing is markup. Lines too long for the page are wrapped."""
    return f'<pre style="white-space: pre-wrap; overflow-wrap: anywhere">{html.escape(shown(text))}</pre>'


def listed(noun: str, numbers: Iterable[int]) -> str:
    """`step 7`, `steps 7 and 8`, or `steps 7, 8, 11 to 15 and 12 more`."""
    known = list(numbers)
    runs = groupby(enumerate(known), lambda pair: pair[1] - pair[0])
    found = [[number for _, number in run] for _, run in runs]
    parts = [part for run in found for part in ([run] if len(run) > 2 else [[number] for number in run])]
    words = [f"{part[0]} to {part[-1]}" if len(part) > 1 else f"{part[0]}" for part in parts[:_MOST_LISTED]]
    if rest := sum(map(len, parts[_MOST_LISTED:])):
        words.append(f"{rest} more")
    told = " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
    return f"{noun}{'s' if len(known) > 1 else ''} {told}"


def _escape_last(found: re.Match[str]) -> str:
    return f"{found[0][:-1]}\\x{ord(found[0][-1]):02x}"


def _escape(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
