"""Numbers as logs print them: their values and their rounding. Pure."""

from __future__ import annotations

from datetime import UTC
from datetime import datetime
from decimal import Decimal

from plugins.logs import Span

NUMBER = r"-?\d{1,15}(?:\.\d{1,24})?(?:e[+-]?\d{1,2})?|-?nan|-?inf"
"""A number as any framework prints it. It is bounded, because a broken log may hold a megabyte of digits."""


def number(text: str | None) -> float | None:
    """The value of a `NUMBER`."""
    return None if text is None else float(text)


def integer(text: str | None) -> int | None:
    """The value of a `NUMBER` that is printed as a whole number; None for others."""
    return int(text) if text is not None and text.lstrip("-").isdigit() else None


def seconds_of(clock: str) -> float | None:
    """`2025-01-01 12:00:00`, taken as UTC, in seconds since the epoch; None for other texts."""
    try:
        return datetime.fromisoformat(clock).replace(tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        return None


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
