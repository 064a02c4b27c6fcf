"""Makes text from outside harmless before it is shown, and names numbers in ranges. Pure.

A log, a scheduler's error, or the name of a node or file may contain any characters. A terminal obeys some of
them: it moves the cursor, clears the screen, sets its title, fills the clipboard, or writes from right to
left. A CI runner obeys some lines of a job's output.

Each way out has one escaper, which every writer uses:

* a terminal and the output of a CI job: `shown`
* HTML and SVG: `html_text`, or `as_html` for a text of several lines. Jinja's templates escape by themselves.
* Markdown: `markdown_code` for a text as code, `markdown_text` for one in a sentence
* YAML: `plugins.base.yaml_text.as_yaml`
* bash: `shlex.quote` and `shlex.join`

What only people read is bounded and cleaned where it enters: `brief`. What is parsed, hashed, looked up or sent back
stays as it was.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from itertools import groupby

# If there are more numbers or ranges than this, only the number of the others is given.
_MOST_LISTED = 6

# C0 except tab and line feed, DEL and C1; marks and overrides of the writing direction; separators of lines
# and paragraphs, which a terminal does not show; halves of surrogate pairs, which no stream accepts; what XML refuses.
_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)

# The first character of a command for GitHub Actions (`::add-mask::x` at the beginning of a line, `##[...]`),
# Azure Pipelines (`##vso[task.setvariable ...]`) or TeamCity.
_COMMAND = re.compile(r"#(?=#\w*\[)|(?<![^\n])[^\S\n]*:(?=:[\w-]+[^\n]*::)")


# What Markdown obeys, but for what is escaped as HTML.
_MARKDOWN = re.compile(r"([\\`*_\[\]|~#!$])")

# The most characters of a text that only people read.
_LONGEST = 2000

SHOWN = 300
"""An error message shows so many characters of what is in a file."""

# HF_TOKEN, WANDB_API_KEY, MLFLOW_TRACKING_PASSWORD; not TOKENIZERS_PARALLELISM and MAX_TOKENS.
_SECRET = re.compile(r"(TOKEN|(KEY|SECRET|PASSWORD|CREDENTIAL)S?)(?![A-Z])", re.IGNORECASE)


def names_secret(name: str) -> bool:
    """Whether the value of a variable of this name is a secret."""
    return _SECRET.search(name) is not None


# Arguments of NVIDIA's launcher that are secrets and do not say so (NVIDIA-NeMo/Megatron-Bridge b50da4c74, argument_parser.py:
# -hf is --hf_token, -wdk is --wandb_key), and a password in an address.
_HIDING = re.compile(r"(?<![\w-])-(hf|wdk)(?![\w-])|://[^/\s@]*@")


def tells_secret(text: str) -> bool:
    """Whether an argument of a launcher, its name or its value, has a secret: `-hf`, `FOO=1,HF_TOKEN=x`, `http://me:x@proxy`."""
    # `model.moe_token_dispatcher_type` is none.
    return names_secret(text.replace("moe_token", "")) or _HIDING.search(text) is not None


def shown(text: str) -> str:
    """Write each character that a terminal would obey, or that begins a CI command, as an escape (`\\x1b`).

    Tabs and line feeds stay. If a text was escaped already, it does not change.
    """
    # Nearly all texts need no more than this look. What `_OBEYED` finds is not printable.
    if text.isprintable() and "##" not in text and "::" not in text:
        return text
    return _COMMAND.sub(_escape_last, _OBEYED.sub(_escape, text))


def brief(text: str, longest: int = _LONGEST) -> str:
    """A text that only people read, as `shown` gives it. What is longer is cut, and `...` says so."""
    plain = shown(text[:longest])
    return f"{plain}..." if len(text) > longest else plain


def cut(text: str, longest: int = SHOWN) -> str:
    """The beginning of a long text, with `...` behind it."""
    return text if len(text) <= longest else f"{text[:longest]}..."


def at_a_word(text: str, longest: int) -> str:
    """The beginning of a long line up to the end of a word, with ` ...` behind it."""
    if len(text) <= longest:
        return text
    return f"{text[: longest - 3].rpartition(' ')[0].rstrip() or text[: longest - 4]} ..."


def html_text(text: str) -> str:
    """A text in HTML or SVG, in which nothing is markup."""
    return html.escape(shown(text))


def as_html(text: str) -> str:
    """A text as preformatted HTML in which nothing is markup. Lines too long for the page are wrapped."""
    return f'<pre style="white-space: pre-wrap; overflow-wrap: anywhere">{html_text(text)}</pre>'


def markdown_text(text: str) -> str:
    """A text on one line of Markdown, in which nothing is markup."""
    # A quotation mark means nothing between tags, and is read as it is.
    plain = html.escape(re.sub(r"\s+", " ", shown(text)), quote=False)
    return _MARKDOWN.sub(r"\\\1", plain)


def markdown_code(text: str) -> str:
    """A text as code on one line of Markdown, also in a table: in it, nothing is markup and nothing a link."""
    plain = " ".join(shown(text).split()).replace("`", "'").replace("|", "\\|")
    return f"`{plain or ' '}`"


def listed(noun: str, numbers: Iterable[int]) -> str:
    """`step 7`, `steps 7 and 8`, or `steps 7, 8, 11 to 15 and 12 more`."""
    known = list(numbers)
    parts: list[tuple[str, int]] = []
    for _, run in groupby(enumerate(known), lambda pair: pair[1] - pair[0]):
        numbers = [number for _, number in run]
        if len(numbers) > 2:
            parts.append((f"{numbers[0]} to {numbers[-1]}", len(numbers)))
        else:
            parts += [(str(number), 1) for number in numbers]
    words = [text for text, _ in parts[:_MOST_LISTED]]
    more = sum(count for _, count in parts[_MOST_LISTED:])
    if more:
        words.append(f"{more} more")
    text = " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
    if len(known) > 1:
        noun += "s"
    return f"{noun} {text}"


def counted(number: int, noun: str) -> str:
    """`1 job`, `2 jobs`."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun}s"


def first_of(texts: Sequence[str], most: int, more: str = "more") -> str:
    """`a, b` or, of more texts than `most`, `a, b and 3 more`."""
    text = ", ".join(texts[:most])
    if len(texts) <= most:
        return text
    return f"{text} and {len(texts) - most} {more}"


def nodes_in_words(nodes: str) -> str:
    """The nodes of a job in a sentence: of many that Kubernetes lists, three and the number of the others."""
    return first_of(sorted(nodes.split(", ")), 3)


def _escape_last(match: re.Match[str]) -> str:
    return f"{match[0][:-1]}\\x{ord(match[0][-1]):02x}"


def _escape(match: re.Match[str]) -> str:
    number = ord(match[0])
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}"


def seconds(value: float) -> str:
    """`10.07 s`."""
    return f"{value:.4g} s" if value < 1000 else f"{value:.0f} s"


def percent(share: float) -> str:
    """`5 %`."""
    return f"{100 * share:.2g} %"


def signed(share: float, digits: int = 1) -> str:
    """`-5.3 %`."""
    return f"{100 * share:+.{digits}f} %"


def billions(parameters: int) -> str:
    """`174.6 B`, `0.065 B`: digits enough, because the names of some models are off by a factor of six."""
    value = parameters / 1e9
    if value >= 100:
        return f"{value:.1f} B"
    if value >= 0.1:
        return f"{value:.3g} B"
    return f"{value:.2g} B"
