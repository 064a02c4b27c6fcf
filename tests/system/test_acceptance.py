"""An acceptance plan over the three recipes for Slurm: not accepted, then mended and accepted."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from fixtures.runs.ledger import read_ledger
from pacemark.__main__ import main
from plugins.record.plan import PLAN
from plugins.reports.page import HTML
from tests.lab.slurm import SlurmLab
from tests.system.support import Run, pacemark, site_file
from tests.unit.bundles import runs

SLOW, CRASHED = "nemotron4/340b-bf16-128gpus", "maxtext_llama2/70b-bf16-64gpus"
TEXT = f"""\
site: lab
gpu: h100
releases: {{llama3: "25.04", nemotron4: "24.11", maxtext_llama2: "25.01"}}
cases: [llama3/70b-fp8-128gpus, llama3/70b-fp8-512gpus, {SLOW}, {CRASHED}]
scaling: 0.03
"""


def test_a_cluster_is_accepted_once_it_is_mended(
    slurm_lab: SlurmLab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = slurm_lab.stage(tmp_path.name)
    nemotron = slurm_lab.stage(tmp_path.name, recipe="nemotron4", pace=1.07)
    maxtext = slurm_lab.stage(tmp_path.name, recipe="maxtext_llama2", crash_at=20)
    site = site_file(slurm_lab, stage, tmp_path)
    plan = tmp_path / "plan.yaml"
    plan.write_text(TEXT)

    def accept() -> Run:
        options = ("--acceptance", str(plan), "--site", str(site))
        return pacemark("suites", *options, results=tmp_path / "results")

    first = accept()
    found = first.summary["acceptance"]
    assert (first.status, found["decision"]) == (1, "not accepted"), first.out
    assert list(found["failed"]) == [SLOW]
    assert found["failed"][SLOW].startswith("too slow: ")
    assert list(found["missing"]) == [CRASHED]
    assert found["missing"][CRASHED].startswith("infrastructure: ")
    assert "= 1 failed, 3 passed, " in first.out  # test_scaling passed

    nemotron.set(pace=1.0)
    maxtext.set(crash_at=-1)
    second = accept()
    found = second.summary["acceptance"]
    assert (second.status, second.summary["exit_code"], found["decision"]) == (0, 0, "accepted"), second.out
    assert (found["failed"], found["missing"], found["waived"]) == ({}, {}, [])
    assert set(second.verdicts.values()) == {"passed"}
    assert list(second.verdicts) == found["cases"]
    assert f"ACCEPTED: 4 case(s) of the plan with SHA-256 {found['digest']}" in second.out
    [scaling] = second.summary["scaling"]
    assert [scale["gpus"] for scale in scaling["scales"]] == [128, 512]
    assert scaling["scales"][1]["limit"] < scaling["scales"][1]["efficiency"]
    assert (second.folder / PLAN).read_text() == TEXT
    assert read_ledger(second.folder).run().plan == hashlib.sha256(TEXT.encode()).hexdigest()
    assert 'Acceptance of lab: <span class="good">accepted</span>' in (second.folder / HTML).read_text()
    again = pacemark("suites", "--resume", "latest", "--site", str(site), results=tmp_path / "results")
    assert (again.status, again.summary["acceptance"]) == (0, found), again.out
    assert (again.folder, slurm_lab.squeue()) == (second.folder, [])
    runs.make_keys(tmp_path, "vendor", "buyer")
    assert verified(first, tmp_path, capsys) == "not accepted"
    assert verified(second, tmp_path, capsys) == "accepted"


def verified(run: Run, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The decision that `verify` makes anew, of a bundle that both parties have signed."""
    path, vendor, buyer = (folder / name for name in (f"{run.folder.name}.zip", "vendor", "buyer"))
    assert main(["bundle", str(run.folder), "--key", f"{vendor}.pem", "-o", str(path)]) == 0
    assert main(["sign", str(path), "--key", f"{buyer}.pem"]) == 0
    capsys.readouterr()
    assert main(["verify", str(path), "--key", f"{vendor}.pub", "--key", f"{buyer}.pub"]) == 0
    said = re.search(r"^decision  (.+), by its acceptance plan", capsys.readouterr().out, re.MULTILINE)
    assert said is not None
    return said[1]
