"""Every page of the site, by its path there. Pages are the repository's own Markdown and YAML."""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path

from tests.docs import tables
from tests.docs.schema import Tables
from tests.schema import schema

ROOT = tables.ROOT
_LINK = re.compile(r"(?<=\]\()([^()\s]+)(?=\))")


def pages() -> dict[str, str]:
    """The text of each page, with links as they are on the site. Raises LookupError for a link that leads out of it."""
    known = _sources()
    made = {
        page: linked(_text(source), source, known) for source, page in known.items() if page.endswith(".md")
    }
    return {**made, "summary.md": _summary()}


def files() -> dict[str, Path]:
    """What is on the site as it stands, by its path there."""
    return {page: ROOT / source for source, page in _sources().items() if not page.endswith(".md")}


def _sources() -> dict[str, str]:
    """The page or file of the site that each file of the repository becomes, by paths."""
    found = {
        "README.md": "index.md",
        **{name: name.lower() for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")},
    }
    for path in sorted(ROOT.glob("docs/**/*.*")):
        page = path.relative_to(ROOT / "docs").as_posix()
        found[f"docs/{page}"] = re.sub(r"\.ya?ml$", ".md", page)
    return found


def _summary() -> str:
    """The page of the schema of `summary.json`."""
    return f"# summary.json, key by key\n\n{Tables(json.loads(schema())).markdown()}\n"


def _text(source: str) -> str:
    path = ROOT / source
    text = path.read_text()
    if source.endswith((".yaml", ".yml")):
        return f"# {path.name}\n\n``` yaml\n{text}```\n"
    return text


def linked(text: str, source: str, known: dict[str, str]) -> str:
    """The text with the links of the repository's file `source` as they are on the site."""
    here = posixpath.dirname(source)

    def on_site(link: re.Match[str]) -> str:
        path, mark, anchor = link[1].partition("#")
        if not path or "://" in path:
            return link[1]
        there = posixpath.normpath(posixpath.join(here, path))
        # A link to a folder leads to its first page.
        page = known.get(there) or next((known[name] for name in known if name.startswith(f"{there}/")), None)
        if page is None:
            raise LookupError(f"{source}: the link to {link[1]} leads to no page of the site")
        return posixpath.relpath(page, posixpath.dirname(known[source]) or ".") + mark + anchor

    return _LINK.sub(on_site, text)
