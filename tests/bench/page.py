"""How long the page of a large run takes to make and to open, and how large it is. It opens in Chromium, beside an empty page."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import tempfile
import time
from itertools import cycle, islice
from pathlib import Path

from plugins.record.verdict import Kind
from plugins.reports import page
from tests.bench.report import print_figure, print_target
from tests.unit.reports import example_run

CASES, STEPS = 100, 10_000
ROUNDS = 5
_BROWSERS = ("chromium-headless-shell", "chromium")
_SECONDS, _SIZE = 2.0, 20e6


def opened(browser: str, path: Path) -> float:
    """Seconds until the browser has started, loaded a page and printed what it is made of."""
    start = time.perf_counter()
    subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", path.as_uri()],
        check=True,
        capture_output=True,
    )
    return time.perf_counter() - start


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        folder.mkdir()
        summary = example_run.make(
            folder, list(islice(cycle([Kind.PASSED, Kind.TOO_SLOW, Kind.NOISY]), CASES)), STEPS
        )
        start = time.perf_counter()
        page.PageReport().write(summary, folder)
        made = time.perf_counter() - start
        size = (folder / page.HTML).stat().st_size
        print_figure(f"page of {CASES} cases of {STEPS:,} steps", f"made in {made:.2f} s")
        print_target(f"smaller than {_SIZE / 1e6:g} MB", size < _SIZE, f"{size / 1e6:.2f} MB")
        browser = next((found for program in _BROWSERS if (found := shutil.which(program))), None)
        if browser is None:
            print(f"not opened: none of {', '.join(_BROWSERS)} is installed")
            return
        empty = Path(name) / "empty.html"
        empty.write_text("<!DOCTYPE html><title>empty</title>")
        turns = [(opened(browser, empty), opened(browser, folder / page.HTML)) for _ in range(ROUNDS)]
        nothing, whole = (statistics.median(column) for column in zip(*turns, strict=True))
        print(
            f"open in {Path(browser).name}, median of {ROUNDS}: empty {nothing:.2f} s, the page {whole:.2f} s"
        )
        print_target(f"opens in < {_SECONDS:g} s", whole - nothing < _SECONDS, f"{whole - nothing:.2f} s")


if __name__ == "__main__":
    main()
