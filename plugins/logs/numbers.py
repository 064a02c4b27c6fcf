"""Numbers as logs print them: their values and their rounding. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import TypeVar

from plugins.logs import Span

T = TypeVar("T")

NUMBER = r"-?\d{1,15}(?:\.\d{1,24})?(?:e[+-]?\d{1,2})?|-?nan|-?inf"
"""A number as any framework prints it. It is bounded, because a broken log may hold a megabyte of digits."""


def single(pairs: Iterable[tuple[str, T]]) -> dict[str, T]:
    """The values by name, without a name that has two different ones: other output is in that line."""
    values: dict[str, T] = {}
    torn = set()
    for name, value in pairs:
        # As texts, because nan differs from itself.
        if str(values.setdefault(name, value)) != str(value):
            torn.add(name)
    return {name: value for name, value in values.items() if name not in torn}


def number(text: str | None) -> float | None:
    """The value of a `NUMBER`."""
    return None if text is None else float(text)


def integer(text: str | None) -> int | None:
    """The value of a `NUMBER` that is printed as a whole number; None for others."""
    return int(text) if text is not None and text.lstrip("-").isdigit() else None


def resolution(number: str, significant: int | None = None) -> float:
    """Half a unit of the last printed digit.

    If a format drops trailing zeros, `significant` is its number of significant digits: `12.3` with 4 digits
    is 12.30.
    """
    value = Decimal(number)
    exponent = value.as_tuple().exponent if significant is None else value.adjusted() - significant + 1
    return 0.5 * 10.0 ** int(exponent)


def worked(seconds: str, rate: str, unit: float) -> Span | None:
    """What a step did: printed time x printed rate, both rounded. None if the rate is not a number."""
    if not rate[-1].isdigit():
        return None
    low, high = (
        (float(seconds) + sign * resolution(seconds)) * (float(rate) + sign * resolution(rate))
        for sign in (-1, 1)
    )
    return Span(low * unit, high * unit)
