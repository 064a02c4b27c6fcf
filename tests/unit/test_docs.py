"""What the documents show is true: sites load, options exist, links lead somewhere, tables are of today, commands print what they say."""

from __future__ import annotations

import ast
import pkgutil
import re
import shlex
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from check_jsonschema import main as check

from fixtures.site import load_site, site_model
from plugins.acceptance.decision import asked
from plugins.base.yaml_text import Loader
from plugins.logs.formats import read
from plugins.logs.registry import FORMATS
from plugins.recipes.cases import Recipe
from plugins.recipes.expansion import load_recipe
from plugins.record.plan import read_plan
from plugins.reports.checkout import VERSION
from tests.docs import __main__ as docs
from tests.docs import pages, suites, tables
from tests.docs.schema import Tables, anchor
from tests.promises import PROMISES
from tests.system.support import pacemark
from tests.unit import examples, worked_example

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]


@pytest.mark.parametrize("path", sorted(ROOT.glob("docs/sites/*.yaml")), ids=lambda path: path.stem)
def test_every_example_site_loads(path: Path) -> None:
    assert load_site(path).section(path.stem) is not None


def test_the_example_of_an_acceptance_plan_loads() -> None:
    plan = read_plan(ROOT / "docs" / "plans" / "acceptance.yaml").plan
    known = [case for recipe in plan.releases for case in load_recipe(ROOT / "suites" / recipe).cases]
    assert len(asked(plan, [case for case in known if not case.variant], "")) == plan.number


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_leads_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", path.read_text())
    assert [t for t in targets if not t.startswith("http") and not (path.parent / t).exists()] == []


def test_every_anchor_leads_to_a_heading() -> None:
    """By GitHub's rule for anchors, which is the site's too."""
    headings = {path.resolve(): set(map(anchor, _headings(path.read_text()))) for path in DOCUMENTS}
    links = [
        (path, name, mark)
        for path in DOCUMENTS
        for name, mark in re.findall(r"\]\(([^)#:\s]*)#([^)\s]+)\)", path.read_text())
    ]
    assert len(links) > 100
    assert [
        (path.name, f"{name}#{mark}")
        for path, name, mark in links
        if mark not in headings[(path.parent / name if name else path).resolve()]
    ] == []


def _headings(text: str) -> list[str]:
    without_code = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^#+ (.+)$", without_code, re.MULTILINE)


@pytest.mark.parametrize(
    "path", [path for path in DOCUMENTS if path.name != "CHANGELOG.md"], ids=lambda path: path.name
)
def test_every_module_and_function_that_is_named_exists(path: Path) -> None:
    for name in re.findall(r"`((?:fixtures|plugins)\.[\w.]+)`", path.read_text()):
        pkgutil.resolve_name(name)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_lists_are_indented_by_four_after_a_blank_line(path: Path) -> None:
    """The site's Markdown reads a list that is written otherwise as one paragraph."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    marker = r"(?:[-*]|\d+\.) "
    shallow = rf"^ {{1,3}}{marker}.*|(?<=\n\n) {{1,3}}\S.*"
    after_text = rf"^(?!{marker}|[ #|>]).+\n{marker}.*"
    after_paragraph = rf"(?<=\n\n) {{4,}}(?!{marker})\S.*(?:\n {{4,}}\S.*)*\n{marker}.*"
    wrong = re.findall(f"{shallow}|{after_text}|{after_paragraph}", text, re.MULTILINE)
    assert wrong == []


def test_every_package_is_in_the_picture() -> None:
    picture = (ROOT / "docs" / "dev" / "architecture.md").read_text()
    packages = [
        path.parent.name for part in ("fixtures", "plugins") for path in ROOT.glob(f"{part}/*/**/__init__.py")
    ]
    assert packages
    assert [name for name in packages if f" {name}/ " not in picture] == []


def test_the_table_has_every_option_and_no_other(pytestconfig: pytest.Config) -> None:
    cells = re.findall(r"^\| (`--[^|]*) \|", (ROOT / "docs" / "options.md").read_text(), re.MULTILINE)
    options = pytestconfig._parser.getgroup("pacemark").options
    assert options
    assert set(re.findall("--[a-z-]+", " ".join(cells))) == {option.names()[0] for option in options}


def test_every_format_has_a_step_on_the_page_of_logs() -> None:
    page = (ROOT / "docs" / "judge.md").read_text()
    samples = dict(re.findall(r"^`(\w+)`: .*\n\n((?:    .+\n)+)", page, re.MULTILINE))
    assert set(samples) == set(FORMATS)
    for name, lines in samples.items():
        [step] = read(name, [textwrap.dedent(lines).encode()]).steps
        assert None not in (step.seconds, step.loss), name


def test_the_changelog_speaks_of_this_version() -> None:
    assert f"## {VERSION}" in (ROOT / "CHANGELOG.md").read_text()


def test_every_test_that_the_reliability_table_names_exists() -> None:
    sources = "".join(path.read_text() for path in ROOT.glob("tests/**/test_*.py"))
    named = re.findall(r"`(test_\w+)\.\.\.`", (ROOT / "docs" / "dev" / "promises.md").read_text())
    assert named
    assert [name for name in named if f"def {name}" not in sources] == []


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


WORKFLOWS = {"github.yml": "vendor.github-workflows", "gitlab-ci.yml": "vendor.gitlab-ci"}


def test_there_is_a_schema_for_every_example() -> None:
    assert sorted(path.name for path in (ROOT / "docs" / "ci").iterdir()) == sorted(WORKFLOWS)


@pytest.mark.parametrize("name", WORKFLOWS)
def test_the_published_schema_accepts_it(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        check(["--builtin-schema", WORKFLOWS[name], str(ROOT / "docs" / "ci" / name)])
    assert ended.value.code == 0, capsys.readouterr()


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("github.yml", "runs-on:", "run-on:"),
        ("github.yml", "permissions:\n  contents: read", "permissions:\n  contents: reads"),
        ("github.yml", "cancel-in-progress", "cancel-in-process"),
        ("gitlab-ci.yml", "artifacts:", "artefacts:"),
        ("gitlab-ci.yml", "exit_codes: [12]", "exit_codes: [twelve]"),
        ("gitlab-ci.yml", "when: always", "when: ever"),
    ],
)
def test_the_published_schema_finds_a_mistake(tmp_path: Path, name: str, old: str, new: str) -> None:
    text = (ROOT / "docs" / "ci" / name).read_text()
    assert old in text
    (tmp_path / name).write_text(text.replace(old, new, 1))
    with pytest.raises(SystemExit) as ended:
        check(["--builtin-schema", WORKFLOWS[name], str(tmp_path / name)])
    assert ended.value.code == 1


def test_their_scripts_are_bash() -> None:
    """No schema looks into a script."""
    github, gitlab = (yaml.safe_load((ROOT / "docs" / "ci" / name).read_text()) for name in WORKFLOWS)
    scripts = [step["run"] for job in github["jobs"].values() for step in job["steps"] if "run" in step]
    job = gitlab["pace"]
    scripts += ["\n".join(job[part]) for part in ("before_script", "script", "after_script")]
    assert len(scripts) >= 7
    for script in scripts:
        # GitHub fills in what is in these braces before a shell sees it.
        assert "${{" not in script
        result = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr


def test_their_commands_are_of_this_version(tmp_path: Path) -> None:
    """Each call of pytest is understood, up to the site file that only its readers have."""
    found = {
        line.strip()
        for name in WORKFLOWS
        for line in re.findall(r"\.venv/bin/pytest (.*)", (ROOT / "docs" / "ci" / name).read_text())
    }
    assert len(found) >= 3
    for line in found:
        options = shlex.split(line.replace("$SELECT", "70b and fp8"))
        run = pacemark(*options, f"--junitxml={tmp_path / 'junit.xml'}", results=tmp_path / "results")
        assert run.status == 4, run.out
        assert "my-cluster.yaml: no such file" in run.out


TEST_FILES = sorted((examples.ROOT / "tests").glob("*/**/test_*.py"))


def promises_of(file: Path) -> Iterator[str]:
    """The promises that tests of this file say they prove: the arguments of `pytest.mark.promise`."""
    text = file.read_text()
    if "mark.promise(" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.promise":
            yield from (ast.literal_eval(argument) for argument in node.args)


@pytest.fixture(scope="module")
def proved() -> set[str]:
    return {name for file in TEST_FILES for name in promises_of(file)}


@pytest.mark.parametrize("name", PROMISES)
def test_a_test_proves_what_readme_promises(name: str, proved: set[str]) -> None:
    readme = " ".join(re.sub(r"\]\([^)]*\)|\[", "", (examples.ROOT / "README.md").read_text()).split())
    assert PROMISES[name] in readme
    assert name in proved


def test_no_test_proves_what_nobody_promised(proved: set[str]) -> None:
    assert proved - PROMISES.keys() == set()


WITHOUT_A_CLUSTER = [block for block in worked_example.BLOCKS if "SITE" not in block]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("example")
    worked_example.make(folder)
    return folder


def test_the_page_has_files_and_commands() -> None:
    assert len(worked_example.FILES) == 4
    assert (len(WITHOUT_A_CLUSTER), len(worked_example.BLOCKS)) == (4, 5)


@pytest.mark.parametrize("block", WITHOUT_A_CLUSTER)
def test_the_commands_print_what_the_page_says(block: str, checkout: Path) -> None:
    worked_example.carry_out(block, checkout)
