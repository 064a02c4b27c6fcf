"""`python -m tests.docs.tables`: writes into the pages what is made from models and YAML."""

from __future__ import annotations

from pathlib import Path

from fixtures.site import site_model
from plugins.record.plan import Plan
from tests import sections
from tests.docs import suites
from tests.docs.schema import Tables

ROOT = Path(__file__).resolve().parents[2]
SECTION = "tables"


def pages() -> dict[str, str]:
    """The whole text of each page that has tables, by its path. Raises LookupError for a page without a place for them."""
    return {page: _page(page, text) for page, text in _texts().items()}


def stale() -> list[str]:
    """The pages whose tables are not those of the models and the YAML."""
    return [page for page, text in pages().items() if _read(page) != text]


def _texts() -> dict[str, str]:
    return {
        "docs/acceptance.md": Tables(Plan.model_json_schema(), "RECIPE").markdown(3),
        "docs/site-file.md": Tables(site_model().model_json_schema(), "RECIPE").markdown(),
        "docs/suites.md": suites.overview(ROOT),
        **{f"docs/suites/{recipe.name}.md": suites.page(ROOT, recipe) for recipe in suites.recipes(ROOT)},
    }


def _page(page: str, text: str) -> str:
    # A recipe that is new has no page yet.
    written = _read(page) or f"# {Path(page).stem}\n\n{sections.empty(SECTION)}"
    try:
        return sections.replaced(written, SECTION, text)
    except LookupError as error:
        raise LookupError(f"{page} {error.args[0]}") from None


def _read(page: str) -> str:
    path = ROOT / page
    return path.read_text() if path.exists() else ""


def main() -> None:
    for page in stale():
        (ROOT / page).write_text(pages()[page])
        print(f"{page}: written")


if __name__ == "__main__":
    main()
