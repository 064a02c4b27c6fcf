"""The tests' sessions are forked: they are what `python -m pytest` is."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.system.support import (
    ROOT,
    SELECT,
    command,
    environment,
    pacemark,
)


def timeless(text: str) -> str:
    # The line is filled up to the width of the terminal.
    return re.sub(r"=+ (.*) in \d+\.\d\ds(?: \([\d:]+\))? =+", r"\1", text)


def test_it_says_and_leaves_what_a_fresh_one_does(tmp_path: Path) -> None:
    arguments = (*SELECT, "--plan", "-v")
    fresh = subprocess.run(
        command(*arguments, results=tmp_path),
        cwd=ROOT, env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    forked = pacemark(*arguments, results=tmp_path)
    assert (forked.status, timeless(forked.out)) == (fresh.returncode, timeless(fresh.stdout))
