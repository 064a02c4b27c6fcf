"""docs/recipes.md: its files, its commands, and what these print."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_PAGE = (ROOT / "docs" / "recipes.md").read_text()
FILES = dict(re.findall(r'^``` \w+ title="(\S+)"\n(.*?)^```$', _PAGE, re.MULTILINE | re.DOTALL))
BLOCKS: list[str] = re.findall(r"^``` console\n(.*?)^```$", _PAGE, re.MULTILINE | re.DOTALL)


def make(folder: Path) -> None:
    """A checkout of Pacemark, with the files of the example in it."""
    for name in ("conftest.py", "pytest.ini", "plugins", "fixtures"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "baselines").mkdir()
    shutil.copy(ROOT / "baselines" / "accelerators.yaml", folder / "baselines")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def carry_out(block: str, folder: Path, **words: str) -> None:
    """Run the commands of a block, with these words in the place of the page's; what it shows must be printed."""
    lines = block.splitlines()
    pytest_here = f"{sys.executable} -m pytest -p no:cacheprovider -p no:hypothesispytest"
    script = "\n".join(
        re.sub(r"^\$ (pytest\b)?", lambda begin: pytest_here if begin[1] else "", line)
        for line in lines
        if line.startswith("$ ")
    )
    for word, value in words.items():
        script = script.replace(word, value)
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        ["bash", "-ec", script],
        cwd=folder,
        env=own,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    printed = " ".join(done.stdout.split())
    for line in lines:
        assert line.startswith("$ ") or " ".join(line.split()) in printed, f"{line}\n{done.stdout}"
