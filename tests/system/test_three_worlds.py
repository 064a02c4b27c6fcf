"""One session, one site file, three backends: Slurm over SSH, a JobSet and a PyTorchJob together, and one record."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.lab.k8s import manifests, processes
from tests.lab.k8s.cluster import KubernetesLab
from tests.lab.slurm import SlurmLab
from tests.system.kube import aks_site, gke_site, nothing_is_left
from tests.system.support import pacemark, site_file

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
