"""Reads a YAML file into a pydantic model; every mistake is one line: file, line, what was meant."""

from __future__ import annotations

import contextlib
import difflib
import typing
from collections.abc import Iterator
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from typing import TypeVar

import yaml
from pydantic import BaseModel
from pydantic import ConfigDict
from pydantic import ValidationError

from plugins.errors import ConfigError

# The C loader reads the baselines ten times faster; not every PyYAML build has it.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Strict(BaseModel):
    """A part of a YAML file: unknown keys and wrong types are errors, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


M = TypeVar("M", bound=Strict)


def load(path: Path, model: type[M]) -> M:
    """Read `path` as `model`.

    Raises:
        ConfigError: one line for each mistake, `file:line: key: what is wrong, what was meant`.
    """
    text = _text(path)
    with _mistakes_told(path):
        loader = _Loader(text)
        root = loader.get_single_node()
        # Before the values are made, because a merge (`<<`) then rewrites the nodes.
        mistakes = _duplicates(root) if root is not None else []
        data = loader.construct_document(root) if root is not None else None
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: expected `key: value` lines, found none")
    try:
        value = model.model_validate(data)
    except ValidationError as error:
        mistakes += [_explain(root, model, dict(item)) for item in error.errors()]
    if mistakes:
        raise ConfigError("\n".join(f"{path}:{line}: {text}" for line, text in sorted(set(mistakes))))
    return value


def meant(given: str, known: Sequence[str]) -> str:
    """What somebody may have meant who wrote this."""
    near = difflib.get_close_matches(given, known, n=1)
    return f"did you mean '{near[0]}'?" if near else f"known here: {', '.join(known)}"


def line_of(path: Path, *where: str) -> int:
    """The line (from 1) of the key at `where` in a YAML file that `load` has read."""
    return _line(_Loader(_text(path)).get_single_node(), where)


def load_documents(path: Path) -> list[dict[str, Any]]:
    """Every document of a YAML file that is no model of ours, such as a manifest; empty documents are left out.

    Raises:
        ConfigError: it cannot be read, has a key twice, or a document is not `key: value` lines.
    """
    text, mistakes, found = _text(path), list[tuple[int, str]](), []
    with _mistakes_told(path):
        loader = _Loader(text)
        while loader.check_node():
            root = loader.get_node()
            mistakes += _duplicates(root)
            document = loader.construct_document(root)
            if isinstance(document, dict):
                found.append(document)
            elif document is not None:
                mistakes.append((root.start_mark.line + 1, "expected `key: value` lines, found none"))
    if mistakes:
        raise ConfigError("\n".join(f"{path}:{line}: {said}" for line, said in sorted(set(mistakes))))
    return found


def _text(path: Path) -> str:
    try:
        # utf-8-sig: an editor on Windows may have put a byte order mark in front.
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None


@contextlib.contextmanager
def _mistakes_told(path: Path) -> Iterator[None]:
    """What YAML cannot read is a ConfigError with its line."""
    try:
        yield
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        said = str(getattr(error, "problem", None) or error).splitlines()[0]
        raise ConfigError(f"{path}{line}: not valid YAML: {said}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: a value that YAML cannot read: {error}") from None


def _duplicates(node: yaml.Node) -> list[tuple[int, str]]:
    """Keys given twice: YAML keeps the last one silently, which hides a mistake."""
    found: list[tuple[int, str]] = []
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            if name in seen:
                found.append((key.start_mark.line + 1, f"{name}: given twice; keep one"))
            seen.add(name)
            found += _duplicates(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            found += _duplicates(value)
    return found


def _line(node: yaml.Node, where: tuple[Any, ...]) -> int:
    """The line (from 1) of the key or item at `where`, or of the nearest thing that holds it."""
    line = node.start_mark.line + 1
    for part in where:
        if isinstance(node, yaml.MappingNode):
            match = [(k, v) for k, v in node.value if str(k.value) == str(part)]
            if not match:
                continue  # pydantic names union branches in `where`; they are not in the file
            key, node = match[0]
            line = key.start_mark.line + 1
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
    return int(line)


def _explain(root: yaml.Node, model: type[BaseModel], item: dict[str, Any]) -> tuple[int, str]:
    where = item["loc"]
    name = ".".join(str(part) for part in where) or "file"
    if item["type"] == "extra_forbidden":
        known = _keys(model, where[:-1])
        return _line(root, where), f"{name}: unknown key; {meant(str(where[-1]), known)}"
    if item["type"] == "missing":
        return _line(root, where[:-1]), f"{name}: missing; this key is required"
    said = item["msg"].removeprefix("Value error, ")
    if item["type"] != "value_error":
        said += f", got {item['input']!r}"
    if item["type"] == "string_type" and isinstance(item["input"], int | float):
        said += " (YAML reads this as a number: put it in quotes)"
    return _line(root, where), f"{name}: {said}"


def _keys(model: type[BaseModel], where: tuple[Any, ...]) -> list[str]:
    """The keys that are known at `where`, for the hint after a typing mistake."""
    current: Any = model
    for part in where:
        if isinstance(current, type) and issubclass(current, BaseModel) and part in current.model_fields:
            current = current.model_fields[part].annotation
        models = _models_in(current)
        if models:
            current = models[0]
    if isinstance(current, type) and issubclass(current, BaseModel):
        return [field.alias or key for key, field in current.model_fields.items()]
    return []


def _models_in(annotation: Any) -> list[Any]:
    if isinstance(annotation, type) and not typing.get_args(annotation):
        return [annotation] if issubclass(annotation, BaseModel) else []
    return [m for arg in typing.get_args(annotation) for m in _models_in(arg)]
