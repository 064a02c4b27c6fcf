"""What is found of a bundle, how it is told, and how long a stranger's bundle may keep this process busy."""

from __future__ import annotations

import argparse
import math
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from plugins.base.words import cut, first_of, shown
from plugins.record.plan import Decision
from plugins.record.verdict import Kind

_SHOWN = 120
_MOST = 6


@dataclass
class Examination:
    """What was found, a line each: what is `wrong`, what `cannot` be told, and what a reader should know.

    `cases` has the pace of each case, `verdicts` counts those that were made anew. `supplied` names the files of
    --recipes that cases were judged by. `doing` is what is examined now;
    `cut_off`: there was no time for the rest.
    """

    wrong: list[str] = field(default_factory=list)
    cannot: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    cases: list[str] = field(default_factory=list)
    supplied: list[str] = field(default_factory=list)
    verdicts: Counter[Kind] = field(default_factory=Counter)
    decision: Decision | None = None
    doing: str = "opening the bundle"
    cut_off: bool = False


def print_findings(findings: Examination) -> None:
    for line in findings.cases:
        print_line("case", line)
    if findings.verdicts:
        counts = ", ".join(f"{count} {kind}" for kind, count in findings.verdicts.items())
        print_line("verdicts", f"{counts}: made anew of the logs")
    if findings.decision is not None:
        print_line("decision", f"{findings.decision}, by its acceptance plan: made anew")
    for word in ("supplied", "notes", "cannot", "wrong"):
        for line in getattr(findings, word):
            print_line(word.removesuffix("s"), line)


def print_line(word: str, text: str) -> None:
    """Print the text in one line, so that nothing in a bundle prints a line of its own."""
    print(f"{word:<10}{shown(text).replace(chr(10), chr(92) + 'n').replace(chr(9), ' ')}")


def differing(first: Any, second: Any) -> str:
    """The first values that are not the same, as `tolerance.slower (0.05, 0.5)`; "" if all are."""
    return few(list(_differences(first, second, "")))


def few(texts: Sequence[str]) -> str:
    """The first of these texts, and how many more there are."""
    return first_of(texts, _MOST)


def _differences(first: Any, second: Any, place: str) -> Iterator[str]:
    if isinstance(first, dict) and isinstance(second, dict):
        for key in {**first, **second}:
            yield from _differences(first.get(key), second.get(key), f"{place}.{key}" if place else str(key))
    elif isinstance(first, list | tuple) and isinstance(second, list | tuple) and len(first) == len(second):
        for number, pair in enumerate(zip(first, second, strict=True)):
            yield from _differences(*pair, f"{place}[{number}]")
    elif isinstance(first, float) and isinstance(second, float):
        # Another machine may round the last digit otherwise.
        if not math.isclose(first, second, rel_tol=1e-9):
            yield f"{place} ({first!r}, {second!r})"
    elif first != second:
        texts = (value if isinstance(value, str) else repr(value) for value in (first, second))
        yield f"{place} ({', '.join(cut(text, _SHOWN) for text in texts)})"


SECONDS = 60.0
"""How long a bundle may take, unless the user gives it more."""

_TICK, _SHOWN_EVERY = 0.5, 5.0
# If what was raised was lost, as in a destructor, it is raised again. Until then the temporary folder is removed.
_AGAIN = 30.0


class TooLong(BaseException):
    """The time is over. It is no Exception, because what is wrong with a file of a stranger is caught as one."""


def add_seconds(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seconds",
        type=_seconds,
        default=SECONDS,
        metavar="N",
        help=f"how long to examine the bundle at most (default: {SECONDS:g}); what is not examined by then is not verified",
    )


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e7:
        raise argparse.ArgumentTypeError("is no time in seconds")
    return value


@contextmanager
def within(seconds: float, findings: Examination) -> Iterator[None]:
    """Let what is done here take so many seconds. If it takes longer, `findings` says so, and the rest is left out.

    Every 5 s a line on standard error says what is done. A signal tells the time, because it interrupts the search
    for a regular expression too; so this is for the main thread.
    """
    start = time.monotonic()
    shown_at = start

    def look(_number: int, _frame: FrameType | None) -> None:
        nonlocal shown_at
        now = time.monotonic()
        if now - start >= seconds:
            # It may strike between the opening of a file and what closes it: the interpreter closes that.
            warnings.simplefilter("ignore", ResourceWarning)
            signal.setitimer(signal.ITIMER_REAL, _AGAIN, _AGAIN)
            raise TooLong
        if now - shown_at >= _SHOWN_EVERY:
            shown_at = now
            print(shown(f"{findings.doing}: {now - start:.0f} s of at most {seconds:g} s"), file=sys.stderr)

    before = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, _TICK, _TICK)
    try:
        yield
    except TooLong:
        findings.cut_off = True
        findings.cannot.append(
            f"after {seconds:g} s it was at {findings.doing}, and nothing after that was examined: --seconds N gives it more time"
        )
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
