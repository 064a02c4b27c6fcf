"""`python -m tests.schema`: writes the JSON Schema of `summary.json` anew, from its types."""

from __future__ import annotations

import json
from pathlib import Path

from plugins.files import write_whole
from plugins.reports.summary import Summary

PATH = Path(__file__).resolve().parents[1] / "docs" / "summary.schema.json"


def schema() -> str:
    found = Summary.model_json_schema(mode="serialization")
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "summary.json of Pacemark"}
    return json.dumps({**head, **{k: v for k, v in found.items() if k != "title"}}, indent=2) + "\n"


if __name__ == "__main__":
    write_whole(PATH, schema())
