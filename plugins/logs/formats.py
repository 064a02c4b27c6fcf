"""Reads logs by the names of their formats."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable
from functools import cache

from plugins.logs.line_parser import LineParser
from plugins.logs.log import Log
from plugins.logs.registry import FORMATS


def parser(name: str) -> LineParser:
    """A parser of this format."""
    return _parser_class(name)()


def read(name: str, pieces: Iterable[bytes]) -> Log:
    """Parse a whole log of this format from its pieces."""
    reader = parser(name)
    for piece in pieces:
        reader.feed(piece)
    return reader.finish()


@cache
def _parser_class(name: str) -> type[LineParser]:
    kind: type[LineParser] = pkgutil.resolve_name(FORMATS[name].parser)
    return kind


# All modules are imported now, because the checkout may change while jobs run.
for _name in FORMATS:
    _parser_class(_name)
