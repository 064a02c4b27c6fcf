"""The page and Allure's report of texts that mean harm, in a real browser: nothing of them runs, opens or is fetched, and all are shown.

`make browser` runs it, nothing else: it needs Chromium, and Allure from npm. What is missing fails it.
"""

from __future__ import annotations

import functools
import os
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Dialog, Page, Route, sync_playwright

from plugins.base.words import shown
from tests import hostile

# Allure counts the readers of its reports; without a network the report is the same.
ALLURES_OWN = "https://www.googletagmanager.com/"
PAGE = "report.html"
# Also without a screen, and as root.
BROWSERS = ("chromium-headless-shell", "chromium")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@dataclass
class Visit:
    """What a browser did besides showing pages of `base`, and what it showed: the text of every frame, by page."""

    base: str
    dialogs: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    opened: list[str] = field(default_factory=list)
    ran: list[object] = field(default_factory=list)
    linked: set[str] = field(default_factory=set)
    said: dict[str, str] = field(default_factory=dict)

    def watch(self, context: BrowserContext) -> Page:
        context.route("**/*", self._route)
        page = context.new_page()
        page.on("dialog", self._dismiss)
        page.on("popup", lambda popup: self.opened.append(popup.url))
        page.on("download", lambda download: self.opened.append(download.url))
        return page

    def read(self, page: Page, name: str) -> None:
        self.said[name] = self.said.get(name, "") + "\n".join(
            frame.locator("body").inner_text() for frame in page.frames
        )
        for frame in page.frames:
            self.linked |= set(frame.locator("a[href]").evaluate_all("links => links.map(a => a.protocol)"))
        self.ran += [found for frame in page.frames if (found := frame.evaluate("window.ran")) is not None]

    def _route(self, route: Route) -> None:
        url = route.request.url
        if url.startswith((self.base, "data:", "blob:")):
            route.continue_()
        else:
            self.asked.append(url)
            route.abort()

    def _dismiss(self, dialog: Dialog) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Allure's report of a hostile session, made by the command that the session's last lines name, and its page."""
    folder = tmp_path_factory.mktemp("report")
    session = hostile.run(folder)
    line = next(line for line in session.out.splitlines() if line.startswith("allure: "))
    command = shlex.split(line.removeprefix("allure: ").replace(" open ", " generate "))
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    made = subprocess.run(
        [*command, "-o", str(folder / "report")],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert made.returncode == 0, f"{shlex.join(command)}: {made.stdout}{made.stderr}"
    shutil.copy(session.folder / PAGE, folder / "report" / PAGE)
    # But for what would lead away from it.
    raw = " ".join(hostile.MARKUP).replace("http-equiv=refresh", "")
    (folder / "report" / "control.html").write_text(f"<!DOCTYPE html><pre>{raw}</pre>")
    return folder / "report"


@pytest.fixture(scope="module")
def base(report: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(report)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def context() -> Iterator[BrowserContext]:
    program = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    assert program, f"none of {', '.join(BROWSERS)} is installed: apt-get install {BROWSERS[0]}"
    with sync_playwright() as playwright:
        # No name leads anywhere, so nothing leaves this machine even where a route were passed by.
        browser = playwright.chromium.launch(
            executable_path=program, args=["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
        )
        yield browser.new_context(viewport={"width": 1400, "height": 1600})
        browser.close()


@pytest.fixture(scope="module")
def visit(base: str, context: BrowserContext) -> Visit:
    """Every page of the report, with all in it unfolded."""
    found = Visit(base)
    page = found.watch(context)
    page.goto(base)
    leaves = page.get_by_test_id("tree-leaf")
    leaves.first.wait_for()
    for number in range(leaves.count()):
        leaf = leaves.nth(number)
        name = leaf.inner_text().split("\n")[1]
        leaf.click()
        page.get_by_test_id("test-result-description-frame").wait_for()
        _unfold(page, "test-result-step-header")
        found.read(page, name)
        page.get_by_test_id("test-result-tab-attachments").click()
        page.get_by_test_id("test-result-attachment-header").first.wait_for()
        _unfold(page, "test-result-attachment-header")
        found.read(page, name)
        page.goto(base)
        leaves.first.wait_for()
    found.read(page, "all cases")
    return found


def _unfold(page: Page, what: str) -> None:
    """Click on each of these once, those that appear meanwhile as well."""
    done = 0
    headers = page.get_by_test_id(what)
    while done < headers.count():
        # At its edge: Allure makes a link of every address in its middle, which is one that the reader sees.
        headers.nth(done).click(position={"x": 8, "y": 8})
        done += 1
    page.wait_for_load_state("networkidle")


def test_what_is_not_escaped_would_be_noticed(base: str, context: BrowserContext) -> None:
    control = Visit(base)
    page = control.watch(context)
    page.goto(f"{base}control.html")
    assert "end" in control.dialogs
    assert "http://evil.example/i" in control.asked
    control.read(page, "control")
    assert control.ran != []
    page.close()


def test_nothing_runs_and_nothing_is_fetched(visit: Visit) -> None:
    assert visit.ran == []
    assert visit.dialogs == []
    assert visit.opened == []
    assert visit.linked <= {"http:", "https:"}
    assert [url for url in visit.asked if not url.startswith(ALLURES_OWN)] == []


def test_every_case_is_shown_with_what_was_said_of_it(visit: Visit) -> None:
    assert len(visit.said) - 1 == len(hostile.FATES)
    for name, said in visit.said.items():
        if name != "all cases":
            assert f"nodes {shown(hostile.OBEYED)}" in said, name
            assert [
                line for markup in hostile.MARKUP for line in markup.splitlines() if line not in said
            ] == []


def test_the_page_has_its_style_and_runs_and_fetches_nothing(base: str, context: BrowserContext) -> None:
    visit = Visit(base)
    page = visit.watch(context)
    page.goto(f"{base}{PAGE}")
    visit.read(page, "page")
    assert page.locator(".counts").evaluate("list => getComputedStyle(list).display") == "flex"
    assert (visit.ran, visit.dialogs, visit.opened, visit.asked) == ([], [], [], [])
    assert visit.linked == {"http:"}
    lines = [line for markup in hostile.MARKUP for line in markup.splitlines()]
    assert [line for line in lines if line not in visit.said["page"]] == []
    page.close()
