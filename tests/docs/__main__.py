"""`python -m tests.docs`: builds the site into build/docs/site. A warning is an error, and so is a table out of date."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.docs import pages, tables

FOLDER = pages.ROOT / "build" / "docs"


def main() -> int:
    shutil.rmtree(FOLDER, ignore_errors=True)
    written = FOLDER / "pages"
    try:
        stale = tables.stale()
        made = pages.pages()
    except LookupError as error:
        print(error.args[0], file=sys.stderr)
        return 1
    for page in stale:
        print(f"{page}: its tables are out of date: make tables", file=sys.stderr)
    if stale:
        return 1
    for page, text in made.items():
        _place(written / page).write_text(text)
    for page, source in pages.files().items():
        shutil.copyfile(source, _place(written / page))
    here = Path(__file__).parent
    shutil.copy(here / "nav.yml", written / ".nav.yml")
    for name in ("extra.css", "iframe-worker.js"):
        shutil.copy(here / name, written)
    shutil.copy(here / "zensical.toml", FOLDER)
    return subprocess.run([sys.executable, "-m", "zensical", "build", "--strict"], cwd=FOLDER).returncode


def _place(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


if __name__ == "__main__":
    sys.exit(main())
