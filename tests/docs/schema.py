"""A JSON Schema as Markdown: a heading and a table of keys for each object."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

Schema = Mapping[str, Any]

_WORDS = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "null": "null",
}
_BOUNDS = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}


def anchor(heading: str) -> str:
    """Where a link to this heading leads, on the site (`slugify` in zensical.toml) as on GitHub and GitLab."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


class Tables:
    """The tables of one schema. `each`: what stands for a name that the user chooses."""

    def __init__(self, schema: Schema, each: str = "NAME") -> None:
        self._schema = schema
        self._each = each
        self._definitions: Mapping[str, Schema] = schema.get("$defs", {})
        self._places: dict[str, list[str]] = {}
        self._find_places(schema, "")

    def markdown(self, level: int = 2) -> str:
        """The table of the whole, then of each of its parts below a heading that says where the part stands."""
        parts = [self._table(self._schema)]
        for name in self._places:
            definition = self._definitions[name]
            said = [definition["description"]] if "description" in definition else []
            parts += [
                f"{'#' * level} {self._heading(name)}",
                *said,
                self._table(definition),
            ]
        return "\n\n".join(parts)

    def _find_places(self, schema: Schema, path: str) -> None:
        for key, value in schema.get("properties", {}).items():
            for name, below in self._references(value, f"{path}.{key}".removeprefix(".")):
                if "properties" in self._definitions[name]:
                    self._places.setdefault(name, []).append(below)
                    self._find_places(self._definitions[name], below)

    def _references(self, schema: Schema, path: str) -> Iterator[tuple[str, str]]:
        """The names of the parts that a value may be or have in it, each with its place."""
        if "$ref" in schema:
            yield schema["$ref"].rpartition("/")[2], path
        for other in schema.get("anyOf", []):
            yield from self._references(other, path)
        if isinstance(items := schema.get("items"), Mapping):
            yield from self._references(items, path)
        if isinstance(values := schema.get("additionalProperties"), Mapping):
            yield from self._references(values, f"{path}.{self._each}")

    def _heading(self, name: str) -> str:
        places = [place.partition(".") for place in dict.fromkeys(self._places[name])]
        ends = {below for _, _, below in places}
        if len(places) == 1 or len(ends) > 1:
            return " and ".join(f"`{''.join(place)}`" for place in places)
        first = " and ".join(f"`{above}`" for above, _, _ in places)
        if len(places) > 2:
            first = "every section"
        return f"`{end}` of {first}" if (end := ends.pop()) else first

    def _table(self, schema: Schema) -> str:
        required = schema.get("required", [])
        # The keys that must be given come first.
        keys = sorted(schema.get("properties", {}).items(), key=lambda item: item[0] not in required)
        rows: list[tuple[str, ...]] = [("key", "value", "if not given", ""), ("---",) * 4]
        for key, value in keys:
            default = "required" if key in required else self._default(value)
            rows.append((f"`{key}`", self._kind(value), default, self._said(value)))
        if len(required) == len(keys):
            rows = [(*row[:2], row[3]) for row in rows]
        return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in rows)

    def _said(self, schema: Schema) -> str:
        """What is said of a value or, if nothing is, the first line on the part that it is."""
        parts = [self._definitions[name].get("description", "") for name, _ in self._references(schema, "")]
        return str(schema.get("description") or "".join(parts[:1]).split("\n")[0])

    def _kind(self, schema: Schema) -> str:
        """What a value may be, in words."""
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            return (
                f"[its keys](#{anchor(self._heading(name))})"
                if name in self._places
                else self._kind(self._definitions[name])
            )
        if "anyOf" in schema:
            return " or ".join(dict.fromkeys(self._kind(o) for o in schema["anyOf"] if o != {"type": "null"}))
        if "const" in schema or "enum" in schema:
            return " or ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
        kind: str | list[str] = schema.get("type", "")
        if kind == "array":
            return f"list of: {self._kind(schema.get('items', {}))}"
        if kind == "object":
            values = next(
                iter(schema.get("patternProperties", {}).values()), schema.get("additionalProperties")
            )
            return f"by name: {self._kind(values)}" if isinstance(values, Mapping) else "keys and values"
        if isinstance(kind, list):
            return " or ".join(_WORDS.get(one, one) for one in kind)
        bounds = ", ".join(f"{sign} {schema[key]:g}" for key, sign in _BOUNDS.items() if key in schema)
        return _WORDS.get(kind, "any") + (f" {bounds}" if bounds else "")

    def _default(self, schema: Schema) -> str:
        value = schema.get("default")
        if isinstance(value, dict) and "$ref" in schema:
            usual = self._definitions[schema["$ref"].rpartition("/")[2]]["properties"]
            value = {key: given for key, given in value.items() if given != usual[key].get("default", given)}
        if value in (None, [], {}, ""):
            return ""
        written = yaml.safe_dump(value, default_flow_style=True).removesuffix("...\n").strip()
        return f"`{written}`"
