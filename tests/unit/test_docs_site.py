"""The tables and the site of the documentation: every key is described, every number is there, and every link is followed."""

from __future__ import annotations

import re

import pytest
import yaml

from fixtures.site import site_model
from plugins.base.yaml_text import Loader
from plugins.recipes.cases import Recipe
from tests.docs import __main__ as docs
from tests.docs import pages, suites, tables
from tests.docs.schema import Tables
from tests.unit import examples

RECIPES = suites.recipes(pages.ROOT)
SCHEMA = site_model().model_json_schema()


@pytest.mark.parametrize("part", SCHEMA["$defs"])
def test_every_key_of_the_site_file_is_described(part: str) -> None:
    keys = SCHEMA["$defs"][part]["properties"]
    assert keys
    assert [key for key, value in keys.items() if "description" not in value] == []


def test_the_site_file_page_lists_every_key_once_for_each_part() -> None:
    page = (pages.ROOT / "docs" / "site-file.md").read_text()
    keys = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    wanted = [key for part in (SCHEMA, *SCHEMA["$defs"].values()) for key in part["properties"]]
    assert sorted(keys) == sorted(wanted)


def test_a_schema_is_shown_with_its_bounds_defaults_and_parts() -> None:
    part = {
        "type": "object",
        "description": "A part. It is small.",
        "properties": {"kind": {"enum": ["a", "b"]}},
    }
    schema = {
        "properties": {
            "name": {"type": "string", "description": "Its name."},
            "count": {"type": "integer", "exclusiveMinimum": 0, "default": 8, "description": "How many."},
            "unit": {"$ref": "#/$defs/Unit", "description": "Of all."},
            "parts": {"type": "object", "additionalProperties": {"$ref": "#/$defs/Part"}},
        },
        "required": ["name"],
        "$defs": {"Part": part, "Unit": {"enum": ["s", "min"]}},
    }
    assert Tables(schema, "PART").markdown().splitlines() == [
        "| key | value | if not given |  |",
        "| --- | --- | --- | --- |",
        "| `name` | text | required | Its name. |",
        "| `count` | whole number > 0 | `8` | How many. |",
        "| `unit` | `s` or `min` |  | Of all. |",
        "| `parts` | by name: [its keys](#partspart) |  | A part. It is small. |",
        "",
        "## `parts.PART`",
        "",
        "A part. It is small.",
        "",
        "| key | value | if not given |  |",
        "| --- | --- | --- | --- |",
        "| `kind` | `a` or `b` |  |  |",
    ]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_the_page_of_a_recipe_has_every_case_and_every_number(recipe: Recipe) -> None:
    page = (pages.ROOT / "docs" / "suites" / f"{recipe.name}.md").read_text()
    assert [case.id for case in recipe.cases if not case.variant and f"`{case.id}`" not in page] == []
    backends = (
        ", ".join(f"`{backend}`" for backend in recipe.file.backend) if recipe.launches else "logs alone"
    )
    assert f"- {'runs on' if recipe.launches else 'judged from'}: {backends}\n" in page
    assert f"| {backends} |" in (pages.ROOT / "docs" / "suites.md").read_text()
    path = examples.BASELINES / f"{recipe.name}.yaml"
    baselines = yaml.load(path.read_text(), Loader) if path.exists() else {}
    assert [lack for lack in baselines.get("lacking", []) if lack["reason"] not in page] == []
    for table in baselines.get("tables", []):
        for cell in table["cells"]:
            begin = rf"\| {re.escape(cell['size'])} \| {cell['dtype']} \| {cell['gpus']} \|"
            forms = {"step_time": "g", "mfu": ".2f", "tflops_per_gpu": "g"}
            figures = [format(cell[name], form) for name, form in forms.items() if name in cell]
            row = f"^{begin}.*{'.*'.join(rf'[|] {re.escape(figure)} (?=[|])' for figure in figures)}[|]$"
            assert re.search(row, page, re.MULTILINE), cell
        assert all(note in page for note in table.get("notes", []))


def test_no_table_is_out_of_date() -> None:
    assert tables.stale() == [], "make tables"
    assert {path.stem for path in pages.ROOT.glob("docs/suites/*.md")} == {recipe.name for recipe in RECIPES}


def test_the_site_is_not_made_of_tables_that_are_out_of_date(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tables, "_texts", lambda: {"docs/suites.md": "| another |\n| --- |"})
    assert docs.main() == 1
    assert capsys.readouterr().err == "docs/suites.md: its tables are out of date: make tables\n"


def test_a_page_without_a_place_for_its_tables_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "SECTION", "another")
    monkeypatch.setattr(tables, "_texts", lambda: {"docs/acceptance.md": ""})
    with pytest.raises(LookupError, match=r"^docs/acceptance\.md has no lines <!-- another: begin --> and <"):
        tables.pages()


def test_a_link_of_the_repository_is_one_of_the_site() -> None:
    known = {"README.md": "index.md", "docs/a.md": "a.md", "docs/sites/b.yaml": "sites/b.md"}
    assert pages.linked("[a](docs/a.md#x)", "README.md", known) == "[a](a.md#x)"
    assert (
        pages.linked("[r](../../README.md) [x](#x)", "docs/sites/b.yaml", known) == "[r](../index.md) [x](#x)"
    )
    assert pages.linked("[s](sites)", "docs/a.md", known) == "[s](sites/b.md)"
    assert (
        pages.linked("[w](https://example.com/a.md)", "docs/a.md", known) == "[w](https://example.com/a.md)"
    )
    with pytest.raises(LookupError, match=r"docs/a\.md: the link to c\.md leads to no page"):
        pages.linked("[c](c.md)", "docs/a.md", known)


def test_every_place_in_the_navigation_has_a_page() -> None:
    named = re.findall(
        r"^ +- .*?([\w/-]+)(\.md|/\*)$", (pages.ROOT / "tests/docs/nav.yml").read_text(), re.MULTILINE
    )
    found = set(pages.pages())
    assert len(named) > 20
    assert {f"{name}.md" for name, end in named if end == ".md"} <= found
    assert {name for name, end in named if end == "/*"} <= {page.partition("/")[0] for page in found}
