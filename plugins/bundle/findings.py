"""What is found of a bundle, and how it is told."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from plugins.record.plan import Decision
from plugins.record.verdict import Kind
from plugins.words import shown


@dataclass
class Examination:
    """What was found, a line each: what is `wrong`, what `cannot` be told, and what a reader should know.

    `cases` has the pace of each case, `verdicts` counts those that were made anew. `doing` is what is examined now;
    `cut_off`: there was no time for the rest.
    """

    wrong: list[str] = field(default_factory=list)
    cannot: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    cases: list[str] = field(default_factory=list)
    verdicts: Counter[Kind] = field(default_factory=Counter)
    decision: Decision | None = None
    doing: str = "opening the bundle"
    cut_off: bool = False


def print_findings(found: Examination) -> None:
    for line in found.cases:
        print_line("case", line)
    if found.verdicts:
        counts = ", ".join(f"{count} {kind}" for kind, count in found.verdicts.items())
        print_line("verdicts", f"{counts}: made anew of the logs")
    if found.decision is not None:
        print_line("decision", f"{found.decision}, by its acceptance plan: made anew")
    for word, lines in (("note", found.notes), ("cannot", found.cannot), ("wrong", found.wrong)):
        for line in lines:
            print_line(word, line)


def print_line(word: str, text: str) -> None:
    """Print the text in one line, so that nothing in a bundle prints a line of its own."""
    print(f"{word:<10}{shown(text).replace(chr(10), chr(92) + 'n').replace(chr(9), ' ')}")
