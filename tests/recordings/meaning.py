"""What the answers of a recording mean, whatever names and moments they have, and however often they came."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
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


# From how many sessions it is known what each session has.
_ENOUGH = 3


def of(path: Path) -> dict[str, list[set[str]]]:
    """What a recording says: the facts of each answer, by the kind of request."""
    found = defaultdict[str, list[set[str]]](list)
    for line in renamed(path, "run"):
        if line.keys() & {"mark", "sent", "error"}:
            continue
        if "script" in line:
            words = map(_COLUMNS.match, (line["out"] + line["err"]).splitlines())
            columns = {match[0] for match in words if match}
            found[_NUMBERS.sub("0", line["script"])].append({f"status: {line['status']}", *columns})
            continue
        # A watch goes on with what a list began.
        request = f"{line.get('ask', 'GET')} {line.get('key') or line.get('watch') or line.get('log')}"
        request = _MADE_UP.sub("...", _WHERE.sub("", request))
        if "status" in line:
            found[f"status of {request}"].append({f"{line['status']}"})
        for item in _objects(line):
            found[request].append(set(_facts(item, shape._SHAPES["single"])))
    return dict(found)


def lost(kept: Iterable[Path], fresh: Path) -> dict[str, set[str]]:
    """What the recordings that are kept always say, and a fresh one never does.

    A session looks at moments of its own: what it sees beside that, or not every time, is no change. Which words a field has
    (a phase, a reason) is what the session's verdict hangs on.
    """
    before, now = [of(path) for path in kept], of(fresh)
    missing = {}
    for request in now.keys() - {_EVENTS}:
        sessions = [session[request] for session in before if request in session]
        missing[request] = _constant(sessions) - set().union(*now[request])
    return {request: facts for request, facts in missing.items() if facts}


def _constant(sessions: list[list[set[str]]]) -> set[str]:
    """The facts that each session has; of few sessions, those that each of their answers has."""
    if len(sessions) >= _ENOUGH:
        return set.intersection(*(set().union(*answers) for answers in sessions))
    answers = [facts for session in sessions for facts in session]
    return set.intersection(*answers) if answers else set()


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
        yield f"{place}: {type(document).__name__}"
