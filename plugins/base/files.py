"""Writes files whole or not at all, even if the process or the machine stops in between. Lists folders."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path


def below(folder: Path) -> Iterator[Path]:
    """All that is below a folder, links not followed.

    Raises OSError if one of its folders cannot be listed; `rglob` leaves it out.
    """

    def fail(error: OSError) -> None:
        raise error

    for parent, folders, files in os.walk(folder, onerror=fail):
        for name in (*folders, *files):
            yield Path(parent, name)


def write_whole(path: Path, content: str | bytes, *, alone: bool = True) -> None:
    """Write a temporary file beside `path`, flush it to the disk and rename it to `path`.

    So neither a reader nor a power cut finds half a file. Raises OSError if the file cannot be written; the
    previous file is then unchanged. If it is not `alone`, another file of the folder is written next.
    """
    temporary = path.with_name(f"{path.name}.part")
    with temporary.open("wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    if not alone:
        return
    # The name must reach the disk too. Some file systems do not support this.
    with contextlib.suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def write_json(path: Path, value: object) -> None:
    """Write a value as JSON, whole or not at all. Raises OSError."""
    write_whole(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def from_here(path: Path) -> str:
    """A path as a user types it: relative to the working directory, if it is below it."""
    with contextlib.suppress(OSError, ValueError):
        # The working directory may be gone.
        return str(path.relative_to(Path.cwd()))
    return str(path)
