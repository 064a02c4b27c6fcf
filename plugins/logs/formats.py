"""Reads logs by the names of their formats."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable

from plugins.logs.line_parser import LineParser
from plugins.logs.log import Log
from plugins.logs.registry import FORMATS

# All modules are imported now, because the checkout may change while jobs run.
_PARSERS: dict[str, type[LineParser]] = {
    name: pkgutil.resolve_name(known.parser) for name, known in FORMATS.items()
}


def parser(name: str) -> LineParser:
    """A parser of this format."""
    return _PARSERS[name]()


def read(name: str, pieces: Iterable[bytes]) -> Log:
    """Parse a whole log of this format from its pieces."""
    reader = parser(name)
    for piece in pieces:
        reader.feed(piece)
    return reader.finish()
