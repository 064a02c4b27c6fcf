"""The parts that records are made of, and how a moment stands in one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, PlainSerializer, WithJsonSchema


class Part:
    """A part of a record. Unknown keys and wrong types are errors where one is read."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


def stamp(seconds: float) -> str:
    """A moment as ISO 8601, UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _seconds(value: object) -> object:
    if not isinstance(value, str):
        return value
    moment = datetime.fromisoformat(value)
    if moment.tzinfo is None:
        raise ValueError("has no time zone")
    return moment.timestamp()


Moment = Annotated[
    float,
    BeforeValidator(_seconds),
    PlainSerializer(stamp),
    WithJsonSchema({"format": "date-time", "type": "string"}),
]
"""Seconds since the epoch; in a record ISO 8601, UTC."""
