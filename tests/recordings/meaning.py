"""What the answers of a recording mean, whatever names and moments they have, and however often they came."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fixtures.backends.kubernetes import shape
from fixtures.backends.recorded import renamed

# What a cluster makes up: the names of our objects and of its pods, and uids.
_MADE_UP = re.compile(r"pm-[0-9a-f]{10}[\w.-]*|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# The names of a table's columns, or the key at the beginning of a line.
_COLUMNS = re.compile(r"[A-Z_]+(\|[A-Z_]+)+|[A-Z][A-Za-z]{2,30}(?=[ =])")
# Ids, sizes, moments and digests in scripts.
_NUMBERS = re.compile(r"[0-9a-f]*[0-9][0-9a-f]*")
# Whether an object is looked at before it is gone.
_PASSING = {"deletionTimestamp", "deletionGracePeriodSeconds"}
# The fields whose words are read, besides whether they are there.
_WORDS = {"kind", "type", "phase", "reason", "terminalState", "allowed"}


def of(path: Path) -> dict[str, set[str]]:
    """For each request its statuses, and what is read of the answers: the fields with their types, and words."""
    found: dict[str, set[str]] = {}
    for line in renamed(path, "run"):
        if line.keys() & {"mark", "sent", "error"}:
            continue
        if "script" in line:
            facts = found.setdefault(_NUMBERS.sub("0", line["script"]), {f"status: {line['status']}"})
            facts.update(
                match[0] for match in map(_COLUMNS.match, (line["out"] + line["err"]).splitlines()) if match
            )
            continue
        # A watch goes on with what a list began.
        request = f"{line.get('ask', 'GET')} {line.get('key') or line.get('watch') or line.get('log')}"
        facts = found.setdefault(_MADE_UP.sub("...", request), set())
        document = line.get("event", {}).get("object", line.get("answer"))
        if "status" in line:
            facts.add(f"status: {line['status']}")
        if isinstance(document, dict) and document.get("kind") == "Status":
            facts.add(f"reason: {document.get('reason')}")
        elif isinstance(document, dict):
            for item in document.get("items", [document]):
                facts |= set(_facts(item, shape._SHAPES["single"]))
    return found


def changes(kept: Path, fresh: Path) -> dict[str, set[str]]:
    """What differs between two recordings of the same session in the answers to the requests that both have."""
    before, now = of(kept), of(fresh)
    differing = {request: before[request] ^ now[request] for request in before.keys() & now.keys()}
    return {request: facts for request, facts in differing.items() if facts}


def _facts(document: Any, table: Any, place: str = "") -> Iterator[str]:
    if isinstance(table, list):
        for item in document:
            yield from _facts(item, table[0], f"{place}[]")
    elif isinstance(table, Mapping):
        for key, value in document.items():
            field = table.get(key, table.get(f"{key}!", table.get("*")))
            # A null is a missing field, as in Go.
            if field is not None and value is not None and key not in _PASSING:
                yield from _facts(value, field, f"{place}.{key}")
    else:
        is_word = place.rpartition(".")[2] in _WORDS and re.fullmatch(r"\w+", str(document))
        yield f"{place}: {document if is_word else type(document).__name__}"
