"""The site of the documentation, opened as files in a real browser: nothing is fetched, and the search finds."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, sync_playwright

from tests.browser.test_report import BROWSERS
from tests.docs import __main__ as docs

SITE = docs.FOLDER / "site"


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    assert docs.main() == 0
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program)
        yield browser.new_page()
        browser.close()


def test_every_page_is_read_without_a_network(page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    read = sorted(SITE.rglob("*.html"))
    for path in read:
        page.goto(path.as_uri())
    assert len(asked) > len(read) > 30
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


def test_the_search_finds_a_key_of_the_site_file(page: Page) -> None:
    page.goto((SITE / "index.html").as_uri())
    page.keyboard.press("/")
    page.keyboard.type("hopeless_seconds")
    page.get_by_text("When a job is cancelled").first.wait_for()
