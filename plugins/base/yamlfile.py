"""Reads a YAML file into a pydantic model. Each mistake is one line: the file, the line, what was meant."""

from __future__ import annotations

import ast
import contextlib
import difflib
import inspect
import re
import textwrap
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError

from plugins.base.errors import ConfigError
from plugins.base.words import SHOWN, cut, names_secret
from plugins.base.yaml_text import Loader, compose, decode, errors_of_yaml, read_bytes

Mistake = tuple[int, str]
"""The line (from 1), and what is wrong there."""

_MOST_MISTAKES = 20

# How pydantic's errors are told, by their types. What a text stands for is in the braces: the limits of a number.
_WORDS = {
    "int_type": "expected a whole number",
    "int_from_float": "expected a whole number",
    "float_type": "expected a number",
    "finite_number": "expected a number",
    "bool_type": "expected true or false",
    "string_type": "expected text",
    "greater_than": "must be greater than {gt:g}",
    "greater_than_equal": "must be {ge:g} or more",
    "less_than": "must be less than {lt:g}",
    "less_than_equal": "must be {le:g} or less",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "too_short": "must have {min_length} or more values",
    "too_long": "must have {max_length} values at most",
    "string_too_short": "must not be empty",
    "list_type": "expected a list, such as [a, b]",
    "tuple_type": "expected a list, such as [a, b]",
    "dict_type": "expected keys with values",
    "date_type": "expected a day, such as 2027-01-31",
    "string_pattern_mismatch": "is not of the form that this key has",
}

# pydantic's name for a key of keys with values.
_OF_A_KEY = "[key]"


def error_of(path: Path, mistakes: Iterable[Mistake]) -> ConfigError:
    """The error with the first mistakes of a file, a line each."""
    ordered = sorted(set(mistakes))
    lines = [f"{path}:{line}: {cut(text)}" for line, text in ordered[:_MOST_MISTAKES]]
    if len(ordered) > _MOST_MISTAKES:
        lines.append(f"{path}: and more mistakes behind these")
    return ConfigError("\n".join(lines))


def mistakes_of(root: yaml.Node, model: type[BaseModel], error: ValidationError) -> list[Mistake]:
    """The mistakes that pydantic found. Each search takes time, so only as many are made as are shown."""
    return [_explain(root, model, dict(item)) for item in error.errors()[: _MOST_MISTAKES + 1]]


def first_mistake(error: ValidationError) -> str:
    """The first mistake in what a program wrote: `cases.0.id: what is wrong`."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'its text'}: {first['msg']}"


def meant(text: str, known: Sequence[str]) -> str:
    """The known name that is nearest to the given one, or all known names: a hint for an error message."""
    near = difflib.get_close_matches(text[:SHOWN], known, n=1)
    return f"did you mean '{near[0]}'?" if near else f"known here: {', '.join(known)}"


def duplicates(node: yaml.Node | None) -> Iterator[Mistake]:
    """The keys that are given twice. YAML keeps the last one silently, which hides a mistake."""
    if isinstance(node, yaml.MappingNode):
        names: set[str] = set()
        for key, value in node.value:
            # No model has a key that is a list or a mapping, so its validation reports it.
            if isinstance(key, yaml.ScalarNode):
                name = str(key.value)
                if name in names:
                    yield key.start_mark.line + 1, f"{name}: given twice; keep one"
                names.add(name)
                yield from duplicates(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from duplicates(value)


def line_at(node: yaml.Node, keys: Sequence[Any]) -> int:
    """The line (from 1) of the key or item at `keys`, or of the nearest part of the file around it."""
    line = node.start_mark.line + 1
    for key in keys:
        if isinstance(node, yaml.MappingNode):
            pairs = [pair for pair in node.value if str(pair[0].value) == str(key)]
            # pydantic names union branches, too; they are not in the file.
            if pairs:
                line = pairs[0][0].start_mark.line + 1
                node = pairs[0][1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
            node = node.value[key]
            line = node.start_mark.line + 1
    return int(line)


def _explain(root: yaml.Node, model: type[BaseModel], item: dict[str, Any]) -> Mistake:
    keys, kind, value = item["loc"], item["type"], item["input"]
    text = item["msg"].removeprefix("Value error, ")
    # A rule of several keys begins with the one that it is about.
    about, _, rule = text.partition(": ")
    if kind == "value_error" and about in _known(model, keys):
        keys, text = (*keys, about), rule
    parts = [str(key) for key in keys if key != _OF_A_KEY]
    name = cut(".".join(parts)) or "file"
    if kind == "extra_forbidden":
        return line_at(root, keys), f"{name}: unknown key; {meant(str(keys[-1]), _known(model, keys[:-1]))}"
    if kind == "missing":
        return line_at(root, keys[:-1]), f"{name}: missing; this key is required"
    if kind == "model_type":
        text = f"expected keys with values ({', '.join(_known(model, keys))})"
    elif kind in _WORDS:
        text = _WORDS[kind].format(**item.get("ctx", {}))
    if kind != "value_error" and not (parts and names_secret(parts[-1])):
        text += f", got {cut(str(value) if isinstance(value, date) else repr(value))}"
    if kind == "literal_error" and isinstance(value, str):
        text += _nearest(value, re.findall("'([^']*)'", item["ctx"]["expected"]))
    return line_at(root, keys), f"{name}: {text}{_quotes(kind, value)}"


def _nearest(text: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(text.lower()[:SHOWN], known, n=1)
    return f"; did you mean '{near[0]}'?" if near else ""


def _quotes(kind: str, value: object) -> str:
    """What to do if quotes, or none, make a value another one; "" if they do not."""
    if kind == "string_type" and isinstance(value, bool):
        return " (YAML reads yes, no, on and off as true and false: put it in quotes)"
    if kind == "string_type" and isinstance(value, int | float):
        return " (YAML reads this as a number: put it in quotes)"
    if kind == "string_type" and isinstance(value, date):
        return " (YAML reads this as a date: put it in quotes)"
    if kind in ("int_type", "float_type", "bool_type") and isinstance(value, str):
        is_short = re.fullmatch(r"[\w.+-]{1,40}", value)
        is_number = is_short and isinstance(yaml.safe_load(value), int | float)
        return " (write it without quotes)" if is_number else ""
    return ""


def _known(model: type[BaseModel], keys: Sequence[Any]) -> list[str]:
    """The keys that are known at `keys`, for the hint on a mistyped key."""
    current: Any = model
    for key in keys:
        if isinstance(current, type) and issubclass(current, BaseModel) and key in current.model_fields:
            current = current.model_fields[key].annotation
        models = _models_in(current)
        if models:
            current = models[0]
    if isinstance(current, type) and issubclass(current, BaseModel):
        return [field.alias or name for name, field in current.model_fields.items()]
    return []


def _models_in(annotation: Any) -> list[Any]:
    if isinstance(annotation, type) and not typing.get_args(annotation):
        return [annotation] if issubclass(annotation, BaseModel) else []
    return [model for argument in typing.get_args(annotation) for model in _models_in(argument)]


_NO_KEYS = "expected `key: value` lines, found none"


def _describe(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Put what a model says of its keys into its JSON schema."""
    for key, text in meanings(model).items():
        schema["properties"][key]["description"] = text


class Strict(BaseModel):
    """A part of a YAML file. Unknown keys and wrong types are errors. Values never change.

    The docstring below a key tells a user what the key means.
    """

    # Many sessions read no file of most models, so each model is built when its first file is read.
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        defer_build=True,
        json_schema_extra=_describe,
    )


@cache
def meanings(model: type[BaseModel]) -> Mapping[str, str]:
    """What the docstrings below a model's keys say of them, by key.

    pydantic can read them when it makes a model, but that takes 4 ms for each, and few sessions show them.
    """
    texts = dict[str, str]()
    for part in reversed(model.__mro__[: model.__mro__.index(BaseModel)]):
        definition = ast.parse(textwrap.dedent(inspect.getsource(part))).body[0]
        assert isinstance(definition, ast.ClassDef)
        for key, text in pairwise(definition.body):
            match key, text:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(words))):
                    texts[name] = " ".join(words.split())
    return {key: texts[key] for key in model.model_fields if key in texts}


M = TypeVar("M", bound=BaseModel)

# What was read, by its model and its bytes: a verifier reads the same tables again for each bundle.
_VALUES: dict[tuple[type[BaseModel], bytes], Any] = {}
_MOST_VALUES = 32


def form(pattern: str, words: str) -> AfterValidator:
    """Texts that a pattern matches as a whole. `words` tell a user what is expected: the pattern is never shown."""

    def check(text: str) -> str:
        if re.fullmatch(pattern, text) is None:
            raise ValueError(f"expected {words}, got {cut(repr(text[:SHOWN]))}")
        return text

    return AfterValidator(check)


def _stated(text: str) -> str:
    if text.strip(" .?-").lower() in ("", "tbd", "todo", "n/a", "none", "unknown", "placeholder", "xxx"):
        raise ValueError("a placeholder; say what it is")
    return text


Stated = Annotated[str, AfterValidator(_stated)]
"""A text that is not a placeholder."""

GpuType = Annotated[Stated, AfterValidator(str.lower)]
"""A type of GPU, such as `gb200`, in whatever letters it is written."""


def _as_date(value: object) -> object:
    with contextlib.suppress(ValueError):
        return date.fromisoformat(value) if isinstance(value, str) else value
    return value


Date = Annotated[date, BeforeValidator(_as_date)]
"""`2027-01-31`, with or without quotes."""

Day = Annotated[str, form(r"\d{4}-\d\d-\d\d", "a day such as 2026-11-23")]
"""`2026-11-21`, in quotes, because YAML has its own type for dates."""


def load(path: Path, model: type[M]) -> M:
    """Read `path` as `model`.

    Raises:
        ConfigError: one line for each mistake, `file:line: key: what is wrong, what was meant`.
    """
    return parse(path, read_bytes(path), model)


def parse(path: Path, data: bytes, model: type[M]) -> M:
    """The same, of the bytes that `read_bytes` read from `path` before. Equal bytes are read once."""
    if (model, data) not in _VALUES:
        value = _parsed(path, data, model)
        if len(_VALUES) >= _MOST_VALUES:
            _VALUES.clear()
        _VALUES[model, data] = value
    known: M = _VALUES[model, data]
    return known


def _parsed(path: Path, data: bytes, model: type[M]) -> M:
    text = decode(path, data)
    with errors_of_yaml(path, text):
        loader = Loader(text)
        root = next(iter(compose(path, loader)), None)
        # This comes before the values are made, because a merge (`<<`) then rewrites the nodes.
        mistakes = list(duplicates(root))
        values = None if root is None else loader.construct_document(root)
    if root is None or not isinstance(values, dict):
        raise ConfigError(f"{path}: {_NO_KEYS}")
    try:
        value = model.model_validate(values)
    except ValidationError as error:
        raise error_of(path, [*mistakes, *mistakes_of(root, model, error)]) from None
    if mistakes:
        raise error_of(path, mistakes)
    return value


def load_documents(path: Path) -> list[dict[str, Any]]:
    """Every document of a YAML file that has no model of ours, such as a manifest. Empty ones are left out.

    Raises:
        ConfigError: it cannot be read, has a key twice, or a document is not `key: value` lines.
    """
    text = decode(path, read_bytes(path))
    mistakes: list[Mistake] = []
    documents = []
    with errors_of_yaml(path, text):
        loader = Loader(text)
        for root in compose(path, loader, single=False):
            mistakes += duplicates(root)
            document = loader.construct_document(root)
            if isinstance(document, dict):
                documents.append(document)
            elif document is not None:
                mistakes.append((root.start_mark.line + 1, _NO_KEYS))
    if mistakes:
        raise error_of(path, mistakes)
    return documents


def line_of(path: Path, *keys: str) -> int:
    """The line (from 1) of the key at `keys` in a YAML file that `load` has read."""
    text = decode(path, read_bytes(path))
    with errors_of_yaml(path, text):
        root, *_ = compose(path, Loader(text))
    return line_at(root, keys)
