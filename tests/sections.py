"""Sections of a page that a program writes: each stands between two comments that name it."""

from __future__ import annotations


def parts(page: str, name: str) -> tuple[str, str, str]:
    """What stands before the section, with its first comment; the section; and what follows, with the last comment.

    Raises LookupError if the page has no such section.
    """
    begin, end = f"<!-- {name}: begin -->\n", f"\n<!-- {name}: end -->"
    before, opened, rest = page.partition(begin)
    section, closed, after = rest.partition(end)
    if not opened or not closed:
        raise LookupError(f"has no lines {begin.strip()} and {end.strip()}")
    return before + begin, section, end + after


def replaced(page: str, name: str, text: str) -> str:
    """The page with this text as its section. Raises LookupError if it has no such section."""
    before, _, after = parts(page, name)
    return before + text + after


def empty(name: str) -> str:
    """A section without a text."""
    return f"<!-- {name}: begin -->\n\n<!-- {name}: end -->\n"
