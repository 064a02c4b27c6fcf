"""Reads a YAML file into a pydantic model. Each mistake is one line: the file, the line, what was meant."""

from __future__ import annotations

import contextlib
import difflib
import re
import stat
import typing
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from plugins.errors import ConfigError
from plugins.words import names_secret

# The C loader reads the baselines ten times faster. Some builds of PyYAML do not have it.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# Far more than any file needs that a person writes. A larger file could take minutes to read, or end the
# process.
_MOST_BYTES = 4 << 20
_MOST_VALUES = 100_000
_MOST_LEVELS = 100
_MOST_DIRECTIVES = 100
_LONGEST_NUMBER = 100

_MOST_MISTAKES = 20
_SHOWN = 300
_TEXT = "tag:yaml.org,2002:str"


class Strict(BaseModel):
    """A part of a YAML file. Unknown keys and wrong types are errors. Values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


M = TypeVar("M", bound=Strict)

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


def form(pattern: str, words: str) -> AfterValidator:
    """Texts that a pattern matches as a whole. `words` tell a user what is expected: the pattern is never shown."""
    known = re.compile(pattern)

    def check(text: str) -> str:
        if known.fullmatch(text) is None:
            raise ValueError(f"expected {words}, got {_cut(repr(text[:_SHOWN]))}")
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
    """The same, of the bytes that `read_bytes` read from `path` before."""
    text = _bounded(path, data)
    with _mistakes_told(path, text):
        loader = _Loader(text)
        root = loader.get_single_node()
        # This comes before the values are made, because a merge (`<<`) then rewrites the nodes.
        mistakes = _duplicates(root) if root is not None else []
        values = loader.construct_document(root) if root is not None else None
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: expected `key: value` lines, found none")
    try:
        value = model.model_validate(values)
    except ValidationError as error:
        found = error.errors()
        # Each explanation searches the file, so only as many are made as are shown.
        mistakes += [_explain(root, model, dict(item)) for item in found[: _MOST_MISTAKES + 1]]
    if mistakes:
        raise _mistaken(path, mistakes)
    return value


def first_mistake(error: ValidationError) -> str:
    """The first mistake in what a program wrote: `cases.0.id: what is wrong`."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'its text'}: {first['msg']}"


def require_bounded(path: Path) -> None:
    """Refuse a YAML file that would take another library too long to read.

    Raises:
        ConfigError: the file cannot be read, is not YAML, or has too many bytes, levels or values; each alias
            counts as what it stands for.
    """
    _text(path)


def meant(given: str, known: Sequence[str]) -> str:
    """The known name that is nearest to the given one, or all known names: a hint for an error message."""
    near = difflib.get_close_matches(given[:_SHOWN], known, n=1)
    return f"did you mean '{near[0]}'?" if near else f"known here: {', '.join(known)}"


def line_of(path: Path, *where: str) -> int:
    """The line (from 1) of the key at `where` in a YAML file that `load` has read."""
    return _line(_Loader(_text(path)).get_single_node(), where)


def load_documents(path: Path) -> list[dict[str, Any]]:
    """Every document of a YAML file that has no model of ours, such as a manifest. Empty ones are left out.

    Raises:
        ConfigError: it cannot be read, has a key twice, or a document is not `key: value` lines.
    """
    text, mistakes, found = _text(path), list[tuple[int, str]](), []
    with _mistakes_told(path, text):
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
        raise _mistaken(path, mistakes)
    return found


def read_bytes(path: Path) -> bytes:
    """The bytes of a YAML file. Raises ConfigError if it cannot be read, or is too large."""
    try:
        # A pipe may never send anything, and a device may never end.
        if not stat.S_ISREG(path.stat().st_mode):
            raise ConfigError(f"{path}: cannot be read: it is no regular file")
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise ConfigError(f"{path}: larger than {_MOST_BYTES >> 20} MiB, which no file of this kind is")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    return data


def _text(path: Path) -> str:
    """The text of a YAML file, once it is known to be neither too large nor too deep."""
    return _bounded(path, read_bytes(path))


def _bounded(path: Path, data: bytes) -> str:
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
    with _mistakes_told(path, text):
        _require_bounded(path, _Loader(text))
    return text


@dataclass
class _Part:
    """A list or mapping that is being read: the number of its values and levels, with aliases filled in."""

    anchor: str | None
    values: int = 1
    levels: int = 1

    def add(self, values: int, levels: int) -> None:
        self.values += values
        self.levels = max(self.levels, levels + 1)


def _require_bounded(path: Path, loader: Any) -> None:
    """Check how much is in a file, from its events, before any value is made."""
    # For each anchor: the values and levels that its alias stands for; None until the end of the anchor's
    # value.
    known: dict[str, tuple[int, int] | None] = {}
    above, total = [_Part(None)], 0
    while loader.check_event():
        event = loader.get_event()
        where = f"{path}:{event.start_mark.line + 1}" if event.start_mark else f"{path}"
        if isinstance(event, yaml.DocumentStartEvent):
            known.clear()
        elif isinstance(event, yaml.CollectionStartEvent):
            if event.anchor:
                known[event.anchor] = None
            above.append(_Part(event.anchor))
            total += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            part = above.pop()
            if part.anchor:
                known[part.anchor] = part.values, part.levels
            above[-1].add(part.values, part.levels)
        elif isinstance(event, yaml.ScalarEvent):
            if event.anchor:
                known[event.anchor] = 1, 1
            above[-1].add(1, 1)
            total += 1
            _require_short(where, loader, event)
        elif isinstance(event, yaml.AliasEvent) and event.anchor in known:
            meant = known[event.anchor]
            if meant is None:
                raise ConfigError(f"{where}: *{_cut(event.anchor)} stands within what it stands for")
            above[-1].add(*meant)
            total += meant[0]
        if total > _MOST_VALUES:
            raise ConfigError(
                f"{where}: more than {_MOST_VALUES:,} values, each alias (*name) counted as what it stands for"
            )
        if len(above) + above[-1].levels > _MOST_LEVELS:
            raise ConfigError(f"{where}: more than {_MOST_LEVELS} levels, one within the other")


def _require_short(where: str, loader: Any, event: yaml.ScalarEvent) -> None:
    """Refuse a number with very many digits: the time to make it grows faster than their number."""
    if len(event.value) > _LONGEST_NUMBER:
        tag = event.tag or loader.resolve(yaml.ScalarNode, event.value, event.implicit)
        if tag not in (_TEXT, "!"):
            raise ConfigError(
                f"{where}: a number of {len(event.value):,} digits, where {_LONGEST_NUMBER} are the most"
            )


def _mistaken(path: Path, mistakes: Iterable[tuple[int, str]]) -> ConfigError:
    """The error with the first mistakes of a file, a line each."""
    ordered = sorted(set(mistakes))
    lines = [f"{path}:{line}: {_cut(said)}" for line, said in ordered[:_MOST_MISTAKES]]
    if len(ordered) > _MOST_MISTAKES:
        lines.append(f"{path}: and more mistakes behind these")
    return ConfigError("\n".join(lines))


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


@contextlib.contextmanager
def _mistakes_told(path: Path, text: str) -> Iterator[None]:
    """Turn what YAML cannot read into a ConfigError with its line."""
    try:
        yield
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        said = str(getattr(error, "problem", None) or error).splitlines()[0]
        at = "".join(text.splitlines()[mark.line : mark.line + 1])[mark.column :] if mark else ""
        if at.startswith("\t"):
            said = "a tab, where YAML allows only spaces"
        raise ConfigError(f"{path}{line}: not valid YAML: {_cut(said)}") from None
    except (ValueError, LookupError, ArithmeticError, AttributeError, TypeError) as error:
        # If a value is not what its tag says, PyYAML raises any of these.
        raise ConfigError(f"{path}: a value that YAML cannot read: {_cut(str(error))}") from None


def _duplicates(node: yaml.Node) -> list[tuple[int, str]]:
    """The keys that are given twice. YAML keeps the last one silently, which hides a mistake."""
    found: list[tuple[int, str]] = []
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                # No model has such a key, so its validation reports it.
                continue
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
    """The line (from 1) of the key or item at `where`, or of the nearest part of the file around it."""
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
    parts = [str(part) for part in where if part != _OF_A_KEY]
    name = _cut(".".join(parts)) or "file"
    if item["type"] == "extra_forbidden":
        known = _keys(model, where[:-1])
        return _line(root, where), f"{name}: unknown key; {meant(str(where[-1]), known)}"
    if item["type"] == "missing":
        return _line(root, where[:-1]), f"{name}: missing; this key is required"
    given, words = item["input"], _WORDS.get(item["type"])
    said = words.format(**item.get("ctx", {})) if words else item["msg"].removeprefix("Value error, ")
    if item["type"] == "model_type":
        said = f"expected keys with values ({', '.join(_keys(model, where))})"
    if item["type"] != "value_error" and not (parts and names_secret(parts[-1])):
        said += f", got {_cut(str(given) if isinstance(given, date) else repr(given))}"
    if item["type"] == "literal_error" and isinstance(given, str):
        said += _nearest(given, re.findall("'([^']*)'", item["ctx"]["expected"]))
    return _line(root, where), f"{name}: {said}{_of_quotes(item['type'], given)}"


def _nearest(given: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(given.lower()[:_SHOWN], known, n=1)
    return f"; did you mean '{near[0]}'?" if near else ""


def _of_quotes(kind: str, given: object) -> str:
    """What to do if quotes, or none, make a value another one; "" if they do not."""
    if kind == "string_type" and isinstance(given, bool):
        return " (YAML reads yes, no, on and off as true and false: put it in quotes)"
    if kind == "string_type" and isinstance(given, int | float | date):
        return f" (YAML reads this as a {'date' if isinstance(given, date) else 'number'}: put it in quotes)"
    if kind in ("int_type", "float_type", "bool_type") and isinstance(given, str):
        read = yaml.safe_load(given) if re.fullmatch(r"[\w.+-]{1,40}", given) else given
        return " (write it without quotes)" if isinstance(read, int | float) else ""
    if kind == "date_type" and isinstance(given, str):
        return " (write it without quotes)"
    return ""


def _keys(model: type[BaseModel], where: tuple[Any, ...]) -> list[str]:
    """The keys that are known at `where`, for the hint on a mistyped key."""
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
