"""What somebody else writes into `jobs.log`: its lines as JSON, and made anew with a chain that is whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fixtures.runs.planned import PlannedJob
from plugins.recipes.cases import Case
from plugins.record.job import JobRef

Content = dict[str, Any]


def planned(case: Case, backend: str, name: str) -> PlannedJob:
    """A case whose job on this backend has this name."""
    return PlannedJob(case, backend, JobRef(case.recipe, case.id, name), "nemo2")


def lines_of(log: bytes) -> list[Content]:
    return [json.loads(line.partition(b" ")[2]) for line in log.splitlines()]


def line_of(text: str) -> bytes:
    """A line with its checksum."""
    return f"{hashlib.sha256(text.encode()).hexdigest()[:16]} {text}".encode()


def link(line: bytes) -> str:
    """What the next line says of this one."""
    return hashlib.sha256(line).hexdigest() if line else ""


def log_of(contents: Sequence[Content]) -> bytes:
    """A log of these lines."""
    lines, last = list[bytes](), b""
    for content in contents:
        last = line_of(json.dumps({**content, "after": link(last)}, sort_keys=True))
        lines.append(last)
    return b"\n".join([*lines, b""])


def rewrite(path: Path, change: Callable[[Content], Any]) -> None:
    """Change each line."""
    contents = lines_of(path.read_bytes())
    for content in contents:
        change(content)
    path.write_bytes(log_of(contents))
