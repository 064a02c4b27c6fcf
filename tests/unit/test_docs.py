"""What the documents show is true: example sites load, options exist, links lead somewhere."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path

import pytest

from fixtures.site import load_site
from plugins.acceptance.decision import asked
from plugins.recipes.expansion import load_recipe
from plugins.record.plan import read_plan
from plugins.reports.checkout import VERSION
from tests.docs.schema import anchor

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


def test_the_changelog_speaks_of_this_version() -> None:
    assert f"## {VERSION}" in (ROOT / "CHANGELOG.md").read_text()


def test_every_test_that_the_reliability_table_names_exists() -> None:
    sources = "".join(path.read_text() for path in ROOT.glob("tests/**/test_*.py"))
    named = re.findall(r"`(test_\w+)\.\.\.`", (ROOT / "docs" / "dev" / "promises.md").read_text())
    assert named
    assert [name for name in named if f"def {name}" not in sources] == []
