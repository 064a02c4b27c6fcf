"""Names the differences between two values that were JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

_SHOWN = 120
_MOST = 6


def differences(one: Any, other: Any, where: str = "") -> Iterator[str]:
    """`tolerance.slower (0.05, 0.5)` for each value that is not the same."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in [*one, *(key for key in other if key not in one)]:
            yield from differences(one.get(key), other.get(key), f"{where}.{key}" if where else str(key))
    elif isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        for number, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from differences(left, right, f"{where}[{number}]")
    elif isinstance(one, float) and isinstance(other, float):
        # Another machine may round the last digit otherwise.
        if not math.isclose(one, other, rel_tol=1e-9):
            yield f"{where} ({one!r}, {other!r})"
    elif one != other:
        yield f"{where} ({_cut(one)}, {_cut(other)})"


def _cut(value: Any) -> str:
    text = str(value) if isinstance(value, str) else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def few(different: list[str]) -> str:
    more = f" and {len(different) - _MOST} more" if len(different) > _MOST else ""
    return ", ".join(different[:_MOST]) + more
