"""Reads the text of a YAML file, once it is known to be neither too large nor too deep."""

from __future__ import annotations

import contextlib
import math
import stat
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from plugins.base.errors import ConfigError
from plugins.base.words import cut

# Far more than any file needs that a person writes. A larger file could take minutes to read, or end the
# process.
_MOST_BYTES = 4 << 20
_MOST_VALUES = 100_000
_MOST_LEVELS = 100
_MOST_DIRECTIVES = 100
_LONGEST_NUMBER = 100

_TEXT = "tag:yaml.org,2002:str"


class _TooMuch(Exception):
    """A text has too many values or levels."""


class Bounded:
    """The part of a loader that ends it before it has made too many nodes, or one too deep within others; and makes texts."""

    nodes = levels = 0

    def descend_resolver(self, *_: object) -> None:
        """The loader calls it before it makes a node."""
        self.nodes += 1
        self.levels += 1
        # Two levels are the whole and the values of the innermost collection.
        if self.nodes > _MOST_VALUES or self.levels > _MOST_LEVELS - 2:
            raise _TooMuch

    def ascend_resolver(self) -> None:
        """The loader calls it when a node is whole."""
        self.levels -= 1

    def construct_object(self, node: yaml.Node, deep: bool = False) -> object:
        """The value of a node. Most are texts, which need no search for their constructor."""
        if node.tag == _TEXT and isinstance(node, yaml.ScalarNode):
            return node.value
        return super().construct_object(node, deep)  # type: ignore[misc]


# The C loader reads the baselines ten times faster. Some builds of PyYAML do not have it.
Loader: Any = type("Loader", (Bounded, getattr(yaml, "CSafeLoader", yaml.SafeLoader)), {})


def as_yaml(*documents: object, flow: bool | None = False, width: float = math.inf) -> str:
    """Values as YAML, each a document, with keys in their order. Any text is quoted as far as it must be.

    `flow`: with lists and mappings on one line; None for the innermost ones alone. `width` is that of a line.
    """
    return yaml.safe_dump_all(documents, default_flow_style=flow, width=width, sort_keys=False)


def read_bytes(path: Path) -> bytes:
    """The bytes of a YAML file. Raises ConfigError if it cannot be read, or is too large."""
    try:
        # A pipe may never send anything, and a device may never end.
        if not stat.S_ISREG(path.stat().st_mode):
            raise ConfigError(f"{path}: cannot be read: it is no regular file")
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    if len(data) > _MOST_BYTES:
        raise ConfigError(f"{path}: larger than {_MOST_BYTES >> 20} MiB, which no file of this kind is")
    return data


def decode(path: Path, data: bytes) -> str:
    """The text of these bytes of `path`. Raises ConfigError if they are no text, or have too many directives."""
    try:
        # utf-8-sig: an editor on Windows may have written a byte order mark at the beginning.
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: is no text in UTF-8: save the file as UTF-8") from None
    # The parser compares each directive with all before it, so many of them take long.
    directives = [number for number, line in enumerate(text.splitlines(), start=1) if line.startswith("%")]
    if len(directives) > _MOST_DIRECTIVES:
        raise ConfigError(f"{path}:{directives[-1]}: more than {_MOST_DIRECTIVES} directives (%TAG, %YAML)")
    return text


def compose(path: Path, loader: Any, single: bool = True) -> list[yaml.Node]:
    """The root of each document that the loader makes of its text. A text may have a `single` one, or any number.

    Raises:
        YAMLError: it is not YAML, or has another number of documents.
        ConfigError: it has too many levels or values; each alias counts as what it stands for.
    """
    roots: list[yaml.Node] = []
    try:
        if single:
            roots = [node for node in (loader.get_single_node(),) if node is not None]
        else:
            while loader.check_node():
                roots.append(loader.get_node())
    except _TooMuch:
        raise _too_much(path) from None
    _require_bounded(path, roots)
    return roots


def _require_bounded(path: Path, roots: list[yaml.Node]) -> None:
    """Count values and levels, each alias as what it stands for. Refuse a number with very many digits, which takes long to make."""
    level, values = roots, len(roots)
    for _ in range(_MOST_LEVELS - 2):
        deeper: list[yaml.Node] = []
        for node in level:
            if isinstance(node, yaml.ScalarNode):
                if len(node.value) > _LONGEST_NUMBER and node.tag != _TEXT:
                    raise ConfigError(
                        f"{path}:{node.start_mark.line + 1}: a number of {len(node.value):,} digits, where "
                        f"{_LONGEST_NUMBER} are the most"
                    )
                continue
            deeper += node.value if isinstance(node, yaml.SequenceNode) else chain.from_iterable(node.value)
            if values + len(deeper) > _MOST_VALUES:
                raise _too_much(path)
        if not deeper:
            return
        level, values = deeper, values + len(deeper)
    raise _too_much(path)


def _too_much(path: Path) -> ConfigError:
    return ConfigError(
        f"{path}: more than {_MOST_VALUES:,} values or {_MOST_LEVELS} levels, each alias (*name) counted as what it stands for"
    )


def require_bounded(path: Path) -> None:
    """Refuse a YAML file that would take another library too long to read.

    Raises:
        ConfigError: the file cannot be read, is not YAML, or has too many bytes, levels or values; each alias
            counts as what it stands for.
    """
    text = decode(path, read_bytes(path))
    with errors_of_yaml(path, text):
        compose(path, Loader(text), single=False)


@contextlib.contextmanager
def errors_of_yaml(path: Path, text: str) -> Iterator[None]:
    """Turn what YAML cannot read into a ConfigError with its line."""
    try:
        yield
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = str(getattr(error, "problem", None) or error).splitlines()[0]
        if mark is None:
            raise ConfigError(f"{path}: not valid YAML: {cut(problem)}") from None
        line = "".join(text.splitlines()[mark.line : mark.line + 1])
        if line.startswith("\t", mark.column):
            problem = "a tab, where YAML allows only spaces"
        raise ConfigError(f"{path}:{mark.line + 1}: not valid YAML: {cut(problem)}") from None
    except (ValueError, LookupError, ArithmeticError, AttributeError, TypeError) as error:
        # If a value is not what its tag says, PyYAML raises any of these.
        raise ConfigError(f"{path}: a value that YAML cannot read: {cut(str(error))}") from None
