"""Reads a YAML file into a pydantic model. Each mistake is one line: the file, the line, what was meant."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from plugins.errors import ConfigError
from plugins.words import SHOWN, cut
from plugins.yaml_mistakes import Mistake, duplicates, error_of, line_at, mistakes_of
from plugins.yaml_text import Loader, compose, decode, errors_of_yaml, read_bytes

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


M = TypeVar("M", bound=Strict)

# What was read, by its model and its bytes: a verifier reads the same tables again for each bundle.
_VALUES: dict[tuple[type[Strict], bytes], Any] = {}
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
        root = next(iter(compose(path, text, loader)), None)
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
        for root in compose(path, text, loader, single=False):
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
        root, *_ = compose(path, text, Loader(text))
    return line_at(root, keys)
