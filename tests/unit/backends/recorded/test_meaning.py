"""Whether a recording made anew says what those that are kept say: a field that is gone is told, another moment is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.recordings import meaning

RUN = "20261121-094226-2019c4a7"
PODS = "/api/v1/namespaces/runs/pods"
PENDING: dict[str, Any] = {"metadata": {"name": "one"}, "status": {"phase": "Pending"}}
PLACED = {**PENDING, "spec": {"nodeName": "n1"}}
RENAMED = {"metadata": {"name": "one"}, "status": {"step": "Pending"}}
WHOLE = [[PENDING], [PLACED]]


def recording(path: Path, lists: list[list[dict[str, Any]]]) -> Path:
    answers = [{"ask": "GET", "key": PODS, "status": 200, "answer": {"items": items}} for items in lists]
    path.write_text("\n".join(json.dumps(line) for line in ({"run": RUN}, *answers)))
    return path


@pytest.mark.parametrize(
    ("kept", "fresh", "lost"),
    [
        ([WHOLE] * 3, WHOLE, {}),
        ([WHOLE] * 3, [[PLACED]], {}),
        ([WHOLE] * 3, [[PENDING]], {"GET /api/v1/pods": {".spec.nodeName: str"}}),
        ([WHOLE] * 3, [[RENAMED], [PLACED], [RENAMED]], {}),
        (
            [WHOLE] * 3,
            [[RENAMED], [{**RENAMED, **PLACED, "status": {}}]],
            {"GET /api/v1/pods": {".status.phase: str"}},
        ),
        # Two sessions saw it at some moment: a third may not.
        ([WHOLE] * 2, [[PENDING]], {}),
        ([WHOLE], [[RENAMED]], {"GET /api/v1/pods": {".status.phase: str"}}),
        ([WHOLE], [], {}),
    ],
)
def test_what_is_lost_of_the_answers(
    tmp_path: Path, kept: list[Any], fresh: list[Any], lost: dict[str, set[str]]
) -> None:
    before = [recording(tmp_path / f"{number}.jsonl", lists) for number, lists in enumerate(kept)]
    assert meaning.lost(before, recording(tmp_path / "fresh.jsonl", fresh)) == lost
