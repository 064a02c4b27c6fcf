"""`python -m tests.schema`: writes the JSON Schema of `summary.json` anew, from its types."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import TypeAdapter

from plugins.base.files import write_whole
from plugins.record.lines import Part
from plugins.record.summary import Summary

PATH = Path(__file__).resolve().parents[1] / "docs" / "summary.schema.json"


def schema() -> str:
    # A session does without the docstrings of fields, which are read from the source in a tenth of a second.
    Part.__pydantic_config__ = {**Part.__pydantic_config__, "use_attribute_docstrings": True}
    made = TypeAdapter(Summary).json_schema(mode="serialization")
    for base in Summary.__bases__:
        # pydantic takes the descriptions of fields from the class itself alone.
        made["properties"] |= TypeAdapter(base).json_schema(mode="serialization")["properties"]
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "summary.json of Pacemark"}
    return json.dumps({**head, **{k: v for k, v in made.items() if k != "title"}}, indent=2) + "\n"


if __name__ == "__main__":
    write_whole(PATH, schema())
