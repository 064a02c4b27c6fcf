"""What a record says of a job: the facts that are marked in `plugins.record.job`, as one flat object.

A fact is marked where it is declared, by the metadata of its field: `{LAST: Key("nodes")}`. So a new fact is one field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from datetime import UTC, datetime
from functools import cache, cached_property
from operator import attrgetter
from typing import Annotated, Any, get_type_hints

import pydantic
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    PlainSerializer,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, core_schema

LAST, EARLIER = "last job", "earlier job"
"""The views of a job: of a case's last job, and of one that another followed."""

_FLAT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Part:
    """A part of a record. Unknown keys and wrong types are errors where one is read."""

    __pydantic_config__ = _FLAT


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


@dataclass(frozen=True)
class Key:
    """How a fact stands in a view: under this name, with this description in the schema.

    `kind` is its type there, its own by default. An older record may lack it if it is not `required`. It stands behind
    those that are declared before it, or `before` another key.
    """

    name: str
    description: str | None = None
    kind: Any = None
    required: bool = True
    before: str = ""


@dataclass(frozen=True)
class _Fact:
    path: tuple[str, ...]
    key: Key
    field: Field[Any]
    kind: Any

    @property
    def as_field(self) -> Any:
        """Its type and its description, for pydantic."""
        default = ... if self.key.required else self.field.default
        return (self.key.kind or self.kind, pydantic.Field(default, description=self.key.description))


class View:
    """A view of jobs, for `Annotated[Job, View(...)]`: a job is written as one flat object, and read from one.

    What a record does not say of a job has its default, and is "" if it has none. `title` and `description` are those
    of the schema.
    """

    def __init__(self, job: type, name: str, title: str, description: str) -> None:
        self._job = job
        self._name = name
        self._title = title
        self._description = description

    @cached_property
    def _facts(self) -> dict[str, _Fact]:
        """The facts of this view in their order, by their keys."""
        facts: dict[str, _Fact] = {}
        for fact in _facts(self._job, self._name):
            names = list(facts)
            place = names.index(fact.key.before) if fact.key.before else len(names)
            known = [*facts.values()]
            facts = {each.key.name: each for each in (*known[:place], fact, *known[place:])}
        return facts

    @cached_property
    def _model(self) -> type[BaseModel]:
        fields = {name: fact.as_field for name, fact in self._facts.items()}
        return pydantic.create_model(self._title, __config__=_FLAT, __doc__=self._description, **fields)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        flat = handler.generate_schema(self._model)
        return core_schema.no_info_after_validator_function(
            self._read,
            flat,
            serialization=core_schema.plain_serializer_function_ser_schema(self._flat, return_schema=flat),
        )

    def _flat(self, job: Any) -> BaseModel:
        values = {name: attrgetter(".".join(fact.path))(job) for name, fact in self._facts.items()}
        return self._model.model_construct(**values)

    def _read(self, flat: BaseModel) -> Any:
        return _built(self._job, {fact.path: getattr(flat, name) for name, fact in self._facts.items()})


def _facts(of: type, view: str, above: tuple[str, ...] = ()) -> Iterator[_Fact]:
    """The facts of this view, in their order, with those of the parts."""
    kinds = _kinds(of)
    for field in fields(of):
        path, kind = (*above, field.name), kinds[field.name]
        if view in field.metadata:
            yield _Fact(path, field.metadata[view], field, kind)
        elif isinstance(kind, type) and is_dataclass(kind):
            yield from _facts(kind, view, path)


def _built(of: type, values: Mapping[tuple[str, ...], Any], above: tuple[str, ...] = ()) -> Any:
    """A dataclass of these values, which are by their paths."""
    kinds = _kinds(of)
    known: dict[str, Any] = {}
    for field in fields(of):
        path, kind = (*above, field.name), kinds[field.name]
        if path in values:
            known[field.name] = values[path]
        elif isinstance(kind, type) and is_dataclass(kind):
            known[field.name] = _built(kind, values, path)
        elif field.default is MISSING:
            known[field.name] = ""
    return of(**known)


@cache
def _kinds(of: type) -> dict[str, Any]:
    """The types of the fields."""
    return get_type_hints(of, include_extras=True)
