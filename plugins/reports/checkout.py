"""Which Pacemark this is: its version, where it is, and the commit of its checkout."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

VERSION = "0.1.0"

CHECKOUT = Path(__file__).resolve().parents[2]
"""Where Pacemark itself is."""

_INSTALLED = CHECKOUT / "pacemark" / "published"
PUBLISHED = _INSTALLED if _INSTALLED.is_dir() else CHECKOUT
"""Where the suites and baselines are that Pacemark itself has: in a wheel not where the checkout has them."""

_SECONDS = 10.0

# The first line of its answer; those of changed files have no "#".
_COMMIT = "# branch.oid "


def commit_of(folder: Path) -> tuple[str | None, bool | None]:
    """The commit that is checked out in this folder, and whether files that git knows differ from it.

    Both are None if the folder itself is no checkout, even if one is above it, or if git cannot tell.
    """
    # Unlike `describe`, it keeps to GIT_OPTIONAL_LOCKS: a lock stays behind if the session is killed.
    status = ["status", "--porcelain=v2", "--branch", "--no-ahead-behind", "--untracked-files=no"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    alone = {"GIT_CEILING_DIRECTORIES": str(folder.parent), "GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(
            ["git", "-c", f"safe.directory={folder}", *status],
            cwd=folder, env={**env, **alone}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=_SECONDS, check=True,
        )  # fmt: skip
    except (OSError, ValueError, subprocess.SubprocessError):
        return None, None
    head, *lines = done.stdout.splitlines()
    commit = head.removeprefix(_COMMIT)
    if commit == "(initial)":
        return None, None
    return commit, any(not line.startswith("#") for line in lines)
