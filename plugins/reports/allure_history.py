"""What Allure 3 knows of earlier runs: for each a line in the history that its configuration names.

Allure itself adds a run whenever its report is opened, so that a run may be there twice, or not at all. So each
run keeps its own point, and its history is made of the points of earlier runs on the same site. The format is that
of https://allurereport.org/docs/how-it-works-history-files/.
"""

from __future__ import annotations

import hashlib
import json
from itertools import islice
from pathlib import Path
from typing import Any

from plugins.files import write_whole
from plugins.record.folder import ALLURE
from plugins.record.summary import Summary

POINT, HISTORY = "allure-point.json", "allure-history.jsonl"
MOST_RUNS = 20
_KEPT = ("name", "fullName", "status", "start", "stop", "labels")


class HistoryReport:
    """`allure-history.jsonl`, and the run's own point, of Allure's results in the run's folder `allure`."""

    name = HISTORY

    def write(self, summary: Summary, folder: Path) -> None:
        """Write both files, or nothing if Allure left no results in the run's folder. Raises OSError."""
        cases = _cases(folder / ALLURE)
        if not cases:
            return
        point = {
            "uuid": folder.name,
            "name": _name(summary.site, folder),
            "timestamp": round(1000 * summary.ended),
            "knownTestCaseIds": sorted({identity.partition(".")[0] for identity in cases}),
            "testResults": cases,
            "metrics": {},
            "url": "",
        }
        write_whole(folder / POINT, json.dumps(point) + "\n")
        earlier = sorted(each for each in folder.parent.glob(f"*/{POINT}") if each.parent.name < folder.name)
        lines = filter(None, (_line(each, summary.site) for each in reversed(earlier)))
        write_whole(folder / self.name, "".join(reversed(list(islice(lines, MOST_RUNS)))))


def _name(site: str, folder: Path) -> str:
    return f"{site}, {folder.name}"


def _line(path: Path, site: str) -> str:
    """The point of an earlier run; "" if it cannot be read, or if the run was on another site."""
    point = _read(path)
    if point.get("name") != _name(site, path.parent):
        return ""
    return json.dumps(point) + "\n"


def _cases(results: Path) -> dict[str, dict[str, Any]]:
    """The results by the identities that Allure 3 gives them. Of several with the same, the last that began."""
    known = filter(None, map(_read, sorted(results.glob("*-result.json"))))
    cases = {}
    for result in sorted(known, key=lambda result: result.get("start") or 0):
        test = hashlib.md5(result.get("testCaseId", "").encode(), usedforsecurity=False).hexdigest()
        case = {name: result[name] for name in _KEPT if name in result}
        case["duration"] = result.get("stop", 0) - result.get("start", 0)
        identity = f"{test}.{_parameters(result)}"
        cases[identity] = {**case, "id": result["uuid"], "historyId": identity, "url": ""}
    return cases


def _read(path: Path) -> dict[str, Any]:
    """A file's object in JSON that has a `uuid`; empty if there is none."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(value, dict) or "uuid" not in value:
        return {}
    return value


def _parameters(result: dict[str, Any]) -> str:
    """As `stringifyParams` in `@allurereport/core/dist/store/convert.js`."""
    pairs = sorted((p["name"], p["value"]) for p in result.get("parameters", []) if not p.get("excluded"))
    text = ",".join(f"{name}:{value}" for name, value in pairs)
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
