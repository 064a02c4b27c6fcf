"""A session that is compared with an earlier one."""

from __future__ import annotations

import json
from pathlib import Path

from plugins.reports.comparison import COMPARISON
from tests.system.support import Run
from tests.system.support import pacemark
from tests.unit import examples


def replayed(folder: Path, pace: float, *options: str) -> Run:
    log = folder / f"{pace}.log"
    log.write_text(examples.nemo2_text([pace * seconds for seconds in examples.times()]))
    select = ("suites/llama3", "-k", examples.CASE, "--backend", "replay", "--from", str(log))
    return pacemark(*select, *options, results=folder / "results")


def test_a_session_says_what_differs_from_an_earlier_one(tmp_path: Path) -> None:
    first = replayed(tmp_path, 1.0)
    second = replayed(tmp_path, 1.04, "--compare", "latest")
    assert second.status == 0, second.out
    assert f"{second.folder.name} against {first.folder.name}" in second.out
    assert "-3.8 % (" in second.out
    found = json.loads((second.folder / COMPARISON).read_text())
    assert (found["first"], found["second"]) == (first.folder.name, second.folder.name)
    assert list(found["cases"]) == [f"llama3/{examples.CASE}"]
