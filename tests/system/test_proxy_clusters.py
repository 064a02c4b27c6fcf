"""The proxy on one node of a Slurm and of a Kubernetes cluster: its program is sent, trains for real, and is judged."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.lab.k8s import processes
from tests.lab.k8s.cluster import KubernetesLab
from tests.lab.slurm import SlurmLab
from tests.system.kube import gke_site, nothing_is_left
from tests.system.support import Run, pacemark, site_file

TINY = "proxy/tiny-fp32-1gpus"
IMAGE = "nvcr.io#nvidia/jax:26.06-py3"


def require_trained(result: Run) -> None:
    """All steps ran, and only a number is missing."""
    assert result.status == 0, result.out
    case = result.case(TINY)
    assert case["verdict"] == "no baseline", case["headline"]
    log = (result.folder / TINY / "log.txt").read_text()
    assert "proxy: trains on " in log
    assert log.count("completed step: ") == 5
    assert "proxy done: 5 steps" in log
    assert case["versions"]["jax"].startswith("0.")


def test_the_program_trains_in_a_container_on_a_node_of_a_slurm_cluster(
    slurm_lab: SlurmLab, tmp_path: Path, few_steps: Path
) -> None:
    stage = slurm_lab.stage(tmp_path.name)
    site = site_file(
        slurm_lab,
        stage,
        tmp_path,
        recipes=f"{{proxy: {{values: {{image: '{IMAGE}', python: '{sys.executable}'}}}}}}",
        # Of the lab's own: where its Pyxis looks for what it is to do.
        environment=f"{{STAGE_PATH: {stage.root}}}",
    )
    result = pacemark(str(few_steps), "-k", "tiny", "--site", str(site), results=tmp_path / "results")
    require_trained(result)
    job = result.case(TINY)["job"]
    folder = stage.root / "proxy" / job["name"]
    sent = {"train.py", "gpus.py", "cpus.py", "moe.py", "batch.sh", f"log-{job['id']}.out"}
    assert {path.name for path in folder.iterdir()} == sent
    assert (folder / "train.py").read_bytes() == (few_steps / "train.py").read_bytes()
    assert slurm_lab.squeue() == []


def test_the_program_trains_in_a_pod_of_a_jobset(
    kubernetes_lab: KubernetesLab, namespace: str, tmp_path: Path, few_steps: Path
) -> None:
    values = {"image": processes.REAL, "python": sys.executable}
    site = gke_site(kubernetes_lab, namespace, tmp_path, recipes={"proxy": {"values": values}})
    chosen = ("-k", "tiny", "--site", str(site))
    result = pacemark(str(few_steps), *chosen, results=tmp_path / "results")
    require_trained(result)
    assert result.case(TINY)["job"]["kind"] == "JobSet"
    nothing_is_left(kubernetes_lab, namespace)
