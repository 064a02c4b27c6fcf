"""Files that are written whole or not at all, whatever ends the process or the machine in between."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write a file beside, bring it to the disk and rename it: no reader and no power cut ever leaves half of one.

    Raises OSError where it cannot be written; what was there before is then still there.
    """
    part = path.with_name(f"{path.name}.part")
    with part.open("w", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    # The name too has to reach the disk; some file systems know no such request.
    with contextlib.suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def make_case_folder(folder: Path) -> None:
    """Make the folder of a case, `run/recipe/case`, in a run's folder that is there.

    Raises FileNotFoundError where that is gone: one made anew would be open to others, and have no ledger.
    """
    folder.parent.mkdir(exist_ok=True)
    folder.mkdir(exist_ok=True)
