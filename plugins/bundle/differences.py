"""Names the differences between two values that were JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

_SHOWN = 120
_MOST = 6


def differing(first: Any, second: Any) -> str:
    """The first values that are not the same, as `tolerance.slower (0.05, 0.5)`; "" if all are."""
    return few(list(_differences(first, second, "")))


def few(texts: list[str]) -> str:
    """The first of these texts, and how many more there are."""
    more = f" and {len(texts) - _MOST} more" if len(texts) > _MOST else ""
    return ", ".join(texts[:_MOST]) + more


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
        yield f"{place} ({_cut(first)}, {_cut(second)})"


def _cut(value: Any) -> str:
    text = str(value) if isinstance(value, str) else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
