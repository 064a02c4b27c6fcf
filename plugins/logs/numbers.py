"""Numbers as logs print them: where they stand, their values and their rounding. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from functools import lru_cache
from typing import TypeGuard, TypeVar

from plugins.logs.log import Span

T = TypeVar("T")

NUMBER = r"-?\d{1,15}(?:\.\d{1,24})?(?:e[+-]?\d{1,2})?|-?nan|-?inf"
"""A number as any framework prints it. It is bounded, because a broken log may hold a megabyte of digits."""


def sections(head: re.Pattern[str], line: str) -> list[tuple[re.Match[str], str]]:
    """Each match of `head` in the line, with what stands behind it up to the next one."""
    heads = list(head.finditer(line))
    ends = [match.start() for match in heads[1:]] + [len(line)]
    return [(match, line[match.end() : end]) for match, end in zip(heads, ends, strict=False)]


def single(pairs: Iterable[tuple[str, T]]) -> dict[str, T]:
    """The values by name, without a name that has two different ones: other output is in that line."""
    values: dict[str, T] = {}
    torn = set()
    for name, value in pairs:
        first = values.setdefault(name, value)
        # As texts, because nan differs from itself.
        if first is not value and str(first) != str(value):
            torn.add(name)
    return {name: value for name, value in values.items() if name not in torn}


def number(text: str | None) -> float | None:
    """The value of a `NUMBER`."""
    return None if text is None else float(text)


def integer(text: str | None) -> int | None:
    """The value of a `NUMBER` that is printed as a whole number; None for others."""
    return int(text) if text is not None and text.lstrip("-").isdigit() else None


def whole(value: float | None) -> int | None:
    """The value if it is a whole number that is not negative; None for others."""
    if value is None or not 0 <= value < 1e15 or value != int(value):
        return None
    return int(value)


@lru_cache(1 << 12)
def resolution(text: str | None, significant: int | None = None) -> float:
    """Half a unit of the last printed digit of a `NUMBER`; 0 if there is none, as in nan.

    If a format drops trailing zeros, `significant` is its number of significant digits: `12.3` with 4 digits
    is 12.30.
    """
    if not _has_digits(text):
        return 0.0
    value = Decimal(text)
    exponent = int(value.as_tuple().exponent)
    if significant is not None:
        exponent = value.adjusted() - significant + 1
    return 0.5 * 10.0**exponent


def worked(seconds: str | None, rate: str | None, unit: float) -> Span | None:
    """What a step did: printed time x printed rate, both rounded. None if one of them is not known."""
    if not _has_digits(seconds) or not _has_digits(rate):
        return None
    low, high = (
        (float(seconds) + sign * resolution(seconds)) * (float(rate) + sign * resolution(rate))
        for sign in (-1, 1)
    )
    return Span(low * unit, high * unit)


def _has_digits(text: str | None) -> TypeGuard[str]:
    """Whether a `NUMBER` is neither missing nor nan or infinite."""
    return text is not None and text[-1:].isdigit()
