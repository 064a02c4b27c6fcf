"""Which Pacemark this is: its version, where it is, and the commit of its checkout."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

VERSION = "0.1.0"

CHECKOUT = Path(__file__).resolve().parents[2]
"""Where Pacemark itself is."""

_SECONDS = 10.0
_DIRTY = "-dirty"


def commit_of(folder: Path) -> tuple[str | None, bool | None]:
    """The commit that is checked out in this folder, and whether files that git knows differ from it.

    Both are None if the folder itself is no checkout, even if one is above it, or if git cannot tell.
    """
    command = ["git", "-c", f"safe.directory={folder}", "describe", "--always", "--dirty", "--abbrev=40"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    alone = {"GIT_CEILING_DIRECTORIES": str(folder.parent), "GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(
            [*command, "--exclude=*"],
            cwd=folder, env={**env, **alone}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=_SECONDS, check=True,
        )  # fmt: skip
    except (OSError, ValueError, subprocess.SubprocessError):
        return None, None
    commit = done.stdout.strip()
    return commit.removesuffix(_DIRTY), commit.endswith(_DIRTY)
