"""A session that is compared with an earlier one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plugins.reports.comparison import COMPARISON
from tests.lab.slurm import SlurmLab
from tests.system.support import pacemark, site_file

SLOW, SLOWER = "8b-bf16-16", "8b-fp8-32"


@pytest.mark.promise("no confusing failure: two runs")
def test_only_the_case_that_became_slower_is_told(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    """Of eight cases, one is too slow in both runs, and another one is 4 % slower in the second run."""
    stage = slurm_lab.stage(tmp_path.name, nodes=1, paces={SLOW: 1.07})
    site = site_file(slurm_lab, stage, tmp_path)
    select = ("suites/llama3", "-m", "case(size='8b')", "-k", "not 128", "--site", str(site))
    first = pacemark(*select, results=tmp_path / "results")
    stage.set(paces={SLOW: 1.07, SLOWER: 1.04})
    second = pacemark(*select, "--compare", "latest", results=tmp_path / "results")
    for run in (first, second):
        assert len(run.verdicts) == 8
        failed = {key for key, verdict in run.verdicts.items() if verdict != "passed"}
        assert failed == {f"llama3/{SLOW}gpus"}, run.out
    found = json.loads((second.folder / COMPARISON).read_text())
    assert (found["first"], found["second"]) == (first.folder.name, second.folder.name)
    (effect,) = found["effects"]
    assert effect["cases"] == [f"llama3/{SLOWER}gpus"]
    assert effect["ratio"]["value"] == pytest.approx(1 / 1.04, abs=0.005)
    told = {key for key, case in found["cases"].items() if case["finding"] in ("slower", "faster")}
    assert told == {f"llama3/{SLOWER}gpus"}
    assert f"{second.folder.name} against {first.folder.name}\nllama3/{SLOWER}gpus: -3." in second.out
