"""The locks: beside each file of requirements all packages that pip installs for it, with their hashes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted(
    path
    for pattern in ("requirements*.txt", "suites/*/requirements*.txt", "tests/**/requirements*.txt")
    for path in ROOT.glob(pattern)
)
# What a session may install, in the order of `make demo`: a release's bill of materials lists it.
RUN = [ROOT / "requirements.lock", *sorted(ROOT.glob("suites/*/requirements*.lock"))]


@dataclass(frozen=True, order=True)
class Locked:
    """A package of a lock. `direct`: a file of requirements names it."""

    name: str
    version: str
    hashes: frozenset[str]
    direct: bool = field(compare=False)


def named(path: Path) -> Iterator[Requirement]:
    """What a file of requirements names, also by the files that it includes."""
    for line in path.read_text().splitlines():
        stated = line.partition("#")[0].strip()
        if stated.startswith("-r "):
            yield from named(path.parent / stated.removeprefix("-r ").strip())
        elif stated:
            yield Requirement(stated)


def locked(lock: Path) -> Iterator[Locked]:
    """The packages of a lock, as `make lock` writes it: each with its hashes, then why it is there."""
    for entry in re.split(r"^(?=\w)", lock.read_text(), flags=re.MULTILINE)[1:]:
        stated, *why = entry.replace("\\\n", "").splitlines()
        requirement, *hashes = stated.split("--hash=")
        package = Requirement(requirement)
        name = canonicalize_name(package.name)
        direct = any(re.search(r"(?:via|#)\s+-r ", line) for line in why)
        version = str(package.specifier).removeprefix("==")
        yield Locked(name, version, frozenset(value.strip() for value in hashes), direct)
