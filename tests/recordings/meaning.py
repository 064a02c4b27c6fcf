"""What the answers of a recording mean, whatever names and moments they have, and however often they came."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fixtures.backends.kubernetes import shape
from fixtures.backends.recorded import renamed
from fixtures.backends.recorder import Line

# What a cluster makes up: the names of our objects and of its pods, and uids.
_MADE_UP = re.compile(r"pm-[0-9a-f]{10}[\w.-]*|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# The namespace of a request, and its query.
_WHERE = re.compile(r"/namespaces/[^/?]+|\?.*")
# The names of a table's columns, or the key at the beginning of a line.
_COLUMNS = re.compile(r"[A-Z_]+(\|[A-Z_]+)+|[A-Z][A-Za-z]{2,30}(?=[ =])")
# Ids, sizes, moments and digests in scripts.
_NUMBERS = re.compile(r"[0-9a-f]*[0-9][0-9a-f]*")
# Whether an object is looked at before it is gone.
_PASSING = {"deletionTimestamp", "deletionGracePeriodSeconds", "finalizers"}
# Which events there are depends on how long a pod waited for its node.
_EVENTS = "GET /api/v1/events"
# The fields whose words are read, besides whether they are there.
_WORDS = {"kind", "type", "phase", "reason", "terminalState", "allowed"}


@dataclass
class Answers:
    """What was said in answer to one kind of request: the facts that any answer had, and those that each had."""

    any: set[str] = field(default_factory=set)
    each: set[str] | None = None

    def add(self, facts: set[str]) -> None:
        self.any |= facts
        self.each = set(facts) if self.each is None else self.each & facts


def of(paths: Iterable[Path]) -> dict[str, Answers]:
    """What these recordings say, by the kind of request."""
    found: defaultdict[str, Answers] = defaultdict(Answers)
    for path in paths:
        for line in renamed(path, "run"):
            if line.keys() & {"mark", "sent", "error"}:
                continue
            if "script" in line:
                words = map(_COLUMNS.match, (line["out"] + line["err"]).splitlines())
                columns = {match[0] for match in words if match}
                found[_NUMBERS.sub("0", line["script"])].add({f"status: {line['status']}", *columns})
                continue
            # A watch goes on with what a list began.
            request = f"{line.get('ask', 'GET')} {line.get('key') or line.get('watch') or line.get('log')}"
            request = _MADE_UP.sub("...", _WHERE.sub("", request))
            if "status" in line:
                found[f"status of {request}"].add({f"{line['status']}"})
            for item in _objects(line):
                found[request].add(set(_facts(item, shape._SHAPES["single"])))
    return dict(found)


def changes(kept: Iterable[Path], fresh: Path) -> dict[str, list[str]]:
    """What a fresh recording says that none of the kept ones does, and what each of their answers says and one of its does not.

    Whether an answer came before a pod ran or after it was gone does not matter.
    """
    before, now = of(kept), of([fresh])
    differing = {}
    for request in before.keys() & now.keys() - {_EVENTS}:
        new = now[request].any - before[request].any
        lost = (before[request].each or set()) - (now[request].each or set())
        differing[request] = [*(f"new: {fact}" for fact in new), *(f"lost: {fact}" for fact in lost)]
    return {request: facts for request, facts in differing.items() if facts}


def _objects(line: Line) -> list[Any]:
    """The objects of an answer or an event."""
    event = line.get("event")
    document = event.get("object") if isinstance(event, dict) else line.get("answer")
    if not isinstance(document, dict) or document.get("kind") == "Status":
        return []
    items = document.get("items")
    return items if isinstance(items, list) else [document]


def _facts(document: Any, table: Any, place: str = "") -> Iterator[str]:
    if isinstance(table, list):
        for item in document:
            yield from _facts(item, table[0], f"{place}[]")
    elif isinstance(table, Mapping):
        for key, value in document.items():
            inner = table.get(key, table.get(f"{key}!", table.get("*")))
            # A null is a missing field, as in Go.
            if inner is not None and value is not None and key not in _PASSING:
                yield from _facts(value, inner, f"{place}.{key}")
    else:
        is_word = place.rpartition(".")[2] in _WORDS and re.fullmatch(r"\w+", str(document))
        yield f"{place}: {document if is_word else type(document).__name__}"
