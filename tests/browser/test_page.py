"""The page in a real browser: how wide it is, and what it looks like."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import sync_playwright

from plugins.record.plan import Decision
from plugins.reports import page
from tests.browser.test_report import BROWSERS
from tests.unit.reports import example_run

_LONG = "pacemark-20261122-120000-0123abcd.llama3-70b-fp8-512gpus-try2"
# What lies right of the page, and in no box that is scrolled by itself.
_BEYOND = """() => [...document.querySelectorAll("table, td, p, dd, h1, h2, h3, figure")]
    .filter(part => part.getBoundingClientRect().right > innerWidth + 1)
    .map(part => `${part.tagName} in ${(part.closest("section") || part).id}`)"""
_SMALLEST = """() => Math.min(...[...document.querySelectorAll("td, p, dd, li, small, a")]
    .filter(part => part.innerText.trim()).map(part => parseFloat(getComputedStyle(part).fontSize)))"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with a plan, nine scales, and names as long as clusters make them."""
    folder = tmp_path_factory.mktemp("results") / "run-1"
    folder.mkdir()
    failed = {
        "llama3/70b-fp8-16gpus": "too slow: by 7 %",
        "nodes gpu[001-064]": "no case ran on " + "gpu001, " * 64,
    }
    accepted = example_run.accepted_as(Decision.NOT_ACCEPTED, failed=failed)
    summary = example_run.make(folder, accepted=accepted)
    nodes = "gpu[001-064,101-164],login-" + "x" * 60
    why = "the settled steps scatter by 7 % (standard deviation, limit 5 %) " * 4
    cases = tuple(
        replace(
            record,
            job=replace(record.job, id=_LONG, state="CANCELLED by 12345", nodes=nodes),
            headline=f"{record.headline}: {why}",
        )
        for record in summary.cases
    )
    page.PageReport().write(replace(summary, cases=cases), folder)
    return folder / page.HTML


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 1100, 390])
def test_nothing_is_wider_than_the_page(
    report: Path, width: int, scheme: Literal["light", "dark"], tmp_path: Path
) -> None:
    program = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    assert program, f"none of {', '.join(BROWSERS)} is installed: apt-get install {BROWSERS[0]}"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        shown = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        shown.goto(report.as_uri())
        shown.screenshot(path=str(tmp_path / f"page-{width}.png"), full_page=True)
        assert shown.evaluate("() => document.documentElement.scrollWidth") == width
        assert shown.evaluate(_BEYOND) == []
        assert shown.evaluate(_SMALLEST) >= 11
        # Also beside its name, a row of the picture leads to its case: the link of its name lies above it.
        shown.locator(".paces .lane").last.click(force=True)
        assert shown.url.endswith("#case-0")
        browser.close()
