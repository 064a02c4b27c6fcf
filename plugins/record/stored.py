"""The records of cases and runs as files: each is checked where it is read."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from plugins.base.errors import ConfigError
from plugins.base.files import write_json
from plugins.base.yamlfile import first_mistake
from plugins.record.case import CaseRecord
from plugins.record.folder import CASE, SUMMARY
from plugins.record.summary import SCHEMA, Summary

R = TypeVar("R")

# Each is made once, when it is needed first.
_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)

# A name from a cluster may have bytes that are not UTF-8, each of which Python has as a half of a surrogate pair. pydantic
# reads no such text, so that characters for private use stand for them meanwhile.
_HALVES, _HELD, _PRIVATE = re.compile("[\ud800-\udfff]"), re.compile("[\U0010d800-\U0010dfff]"), 0x100000

# The first keys of a case that was not judged.
_UNJUDGED = ("id", "verdict", "headline", "remarks")


class NewerSchemaError(ConfigError):
    """The record is of a schema that this version does not know."""


def prepare() -> None:
    """Make what reads and writes a summary, which takes longer than to write one."""
    _adapter(Summary)


def as_json(value: object) -> Any:
    """A record, or a part of one, as `json.dumps` takes it."""
    adapter: TypeAdapter[Any] = _adapter(type(value))
    return adapter.dump_python(value, mode="json")


def case_as_json(record: CaseRecord) -> dict[str, Any]:
    """The record of a case as `json.dumps` takes it."""
    values: dict[str, Any] = as_json(record)
    if record.release is None:
        return {key: values[key] for key in _UNJUDGED} | values
    return values


def summary_as_json(summary: Summary) -> dict[str, Any]:
    """The record of a run as `json.dumps` takes it."""
    return {**as_json(summary), "cases": [case_as_json(record) for record in summary.cases]}


def write_case(folder: Path, record: CaseRecord) -> None:
    """Write the record into a case's folder. Raises OSError."""
    write_json(folder / CASE, case_as_json(record))


def write_summary(folder: Path, summary: Summary) -> None:
    """Write the record into a run's folder. Raises OSError."""
    write_json(folder / SUMMARY, summary_as_json(summary))


def read_case(folder: Path) -> CaseRecord | None:
    """The record in a case's folder; None if there is none. Raises ConfigError if it is damaged."""
    path = folder / CASE
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ConfigError(f"{path}: is no regular file")
        return parse_case(path.read_bytes(), path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None


def parse_case(text: bytes, path: Path | str) -> CaseRecord:
    """The record that this file has. Raises ConfigError if it is damaged."""
    try:
        return _parsed(CaseRecord, json.loads(text))
    except ValidationError as error:
        raise ConfigError(f"{path}: is no record of a case: {first_mistake(error)}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None


def read_summary(folder: Path) -> Summary:
    """The record in a run's folder. Raises NewerSchemaError, and ConfigError if it is damaged or there is none."""
    path = folder / SUMMARY
    try:
        value = json.loads(path.read_bytes())
        _require_known(path, value)
        return _parsed(Summary, value)
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: there is none; a session writes it at its end: pytest --resume {folder.name} goes on with a run"
        ) from None
    except ValidationError as error:
        raise ConfigError(f"{path}: is no record of a run: {first_mistake(error)}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None


def _require_known(path: Path, value: object) -> None:
    schema = value.get("schema") if isinstance(value, dict) else None
    if type(schema) is int and schema > SCHEMA:
        raise NewerSchemaError(
            f"{path} is of schema {schema}, and this Pacemark knows {SCHEMA}: use a newer one"
        )


def _parsed(kind: type[R], value: object) -> R:
    """The record that this was as JSON. Raises ValueError, or ValidationError for one."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    held, count = _HALVES.subn(lambda match: chr(_PRIVATE + ord(match[0])), text)
    record: R = _adapter(kind).validate_json(held)
    return _released(record) if count else record


def _released(value: Any) -> Any:
    """The same value, in whose texts what stands for a half of a surrogate pair is that again."""
    if type(value) is str:
        return _HELD.sub(lambda match: chr(ord(match[0]) - _PRIVATE), value)
    if isinstance(value, tuple):
        return tuple(map(_released, value))
    if isinstance(value, dict):
        return {key: _released(item) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value, **{field.name: _released(getattr(value, field.name)) for field in fields(value)}
        )
    return value
