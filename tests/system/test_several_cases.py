"""Sessions of several cases, recipes and clusters: accepted by a plan, compared with an earlier one, reported as one."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest
import yaml

from fixtures.runs.ledger import read_ledger
from pacemark.__main__ import main
from plugins.record.plan import PLAN
from plugins.reports.comparison import COMPARISON
from plugins.reports.page import HTML
from tests.lab.k8s import manifests, processes
from tests.lab.k8s.cluster import KubernetesLab
from tests.lab.slurm import SlurmLab
from tests.system.kube import aks_site, gke_site, nothing_is_left
from tests.system.support import Run, pacemark, site_file
from tests.unit import worked_example
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


ALWAYS_SLOW, SLOWER = "8b-bf16-16", "8b-fp8-32"


@pytest.mark.promise("no confusing failure: two runs")
def test_only_the_case_that_became_slower_is_told(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    """Of eight cases, one is too slow in both runs, and another one is 4 % slower in the second run."""
    stage = slurm_lab.stage(tmp_path.name, nodes=1, paces={ALWAYS_SLOW: 1.07})
    site = site_file(slurm_lab, stage, tmp_path)
    select = ("suites/llama3", "-m", "case(size='8b')", "-k", "not 128", "--site", str(site))
    first = pacemark(*select, results=tmp_path / "results")
    stage.set(paces={ALWAYS_SLOW: 1.07, SLOWER: 1.04})
    second = pacemark(*select, "--compare", "latest", results=tmp_path / "results")
    for run in (first, second):
        assert len(run.verdicts) == 8
        failed = {key for key, verdict in run.verdicts.items() if verdict != "passed"}
        assert failed == {f"llama3/{ALWAYS_SLOW}gpus"}, run.out
    found = json.loads((second.folder / COMPARISON).read_text())
    assert (found["first"], found["second"]) == (first.folder.name, second.folder.name)
    (effect,) = found["effects"]
    assert effect["cases"] == [f"llama3/{SLOWER}gpus"]
    assert effect["ratio"]["value"] == pytest.approx(1 / 1.04, abs=0.005)
    told = {key for key, case in found["cases"].items() if case["finding"] in ("slower", "faster")}
    assert told == {f"llama3/{SLOWER}gpus"}
    assert f"{second.folder.name} against {first.folder.name}\nllama3/{SLOWER}gpus: -3." in second.out


CASES = {
    "llama3/70b-fp8-128gpus": "passed",
    "llama3_gke/70b-fp8-128gpus": "passed",
    "gpt3_aks/375m-fp16-16gpus": "no baseline",
}


def test_slurm_gke_and_aks_run_together_and_report_as_one(
    kubernetes_lab: KubernetesLab, slurm_lab: SlurmLab, namespace: str, tmp_path: Path
) -> None:
    kubernetes_lab.set(namespace, real_step=0.02)
    manifests.data(processes.volume(kubernetes_lab.root, namespace, manifests.CLAIM))
    for document in manifests.claim(namespace, manifests.CLAIM):
        kubernetes_lab.api.create(document)
    stage = slurm_lab.stage(tmp_path.name)
    sections: dict[str, object] = {}
    admin = str(kubernetes_lab.kubeconfig)
    # Each is written to the same place.
    for section in (
        site_file(slurm_lab, stage, tmp_path).read_text(),
        gke_site(kubernetes_lab, namespace, tmp_path, kubeconfig=admin).read_text(),
        aks_site(kubernetes_lab, namespace, tmp_path).read_text(),
    ):
        sections |= yaml.safe_load(section)
    site = tmp_path / "all.yaml"
    site.write_text(yaml.safe_dump(sections))
    chosen = 'case(size="70b", dtype="fp8", gpus=128) or case(size="375m", gpus=16)'
    suites = ("suites/llama3", "suites/llama3_gke", "suites/gpt3_aks")
    result = pacemark(*suites, "-m", chosen, "--site", str(site), results=tmp_path / "results")
    assert result.status == 0, result.out
    found = result.verdicts
    assert found == CASES
    assert len({case["job"]["id"] for case in result.summary["cases"]}) == 3
    for case in CASES:
        assert case in result.out
    assert slurm_lab.squeue() == []
    nothing_is_left(kubernetes_lab, namespace)


def test_the_recipe_of_the_example_runs_on_slurm(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    stage = slurm_lab.stage(tmp_path.name)
    worked_example.make(tmp_path)
    block = worked_example.BLOCKS[-1]
    worked_example.carry_out(
        block, tmp_path, STAGE=str(stage.root), SITE=str(site_file(slurm_lab, stage, tmp_path))
    )
