"""The proxy on one node of a Slurm and of a Kubernetes cluster: its program is sent, trains for real, and is judged."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

from tests.lab.k8s import processes
from tests.lab.k8s.cluster import KubernetesLab
from tests.lab.slurm import SlurmLab
from tests.system.kube import gke_site, nothing_is_left
from tests.system.support import ROOT, Run, pacemark, site_file

TINY = "proxy/tiny-fp32-1gpus"
ON_GPU = "proxy/8b-8l-bf16-1gpus"
IMAGE = "nvcr.io#nvidia/jax:26.06-py3"
HEALTHY = ROOT / "tests" / "unit" / "gpu_logs" / "healthy.log"


def interpreter(folder: Path, line: str) -> str:
    """The path of a program that does this."""
    path = folder / "python"
    path.write_text(f"#!/bin/bash\n{line}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def on_slurm(lab: SlurmLab, folder: Path, suite: Path, case: str, gpu: str = "h100", **values: str) -> Run:
    stage = lab.stage(folder.name)
    given = ", ".join(f"{name}: '{value}'" for name, value in values.items())
    # Of the lab's own: where its Pyxis looks for what it is to do.
    keys = {"recipes": f"{{proxy: {{values: {{{given}}}}}}}", "environment": f"{{STAGE_PATH: {stage.root}}}"}
    site = site_file(lab, stage, folder, **{"gpu": gpu, **keys})
    chosen = ("-k", f"[{case.partition('/')[2]}]", "--site", str(site))
    return pacemark(str(suite), *chosen, results=folder / "results")


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
    result = on_slurm(slurm_lab, tmp_path, few_steps, TINY, image=IMAGE, python=sys.executable)
    require_trained(result)
    job = result.case(TINY)["job"]
    folder = slurm_lab.root / "stages" / tmp_path.name / "proxy" / job["name"]
    assert {path.name for path in folder.iterdir()} == {
        "train.py",
        "gpus.py",
        "cpus.py",
        "moe.py",
        "batch.sh",
        f"log-{job['id']}.out",
    }
    assert (folder / "train.py").read_bytes() == (few_steps / "train.py").read_bytes()
    assert slurm_lab.squeue() == []


def test_the_gpu_that_the_log_names_chooses_the_number(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    """A node's Python prints what the program printed on an H100; the site file takes it for an H200."""
    python = interpreter(tmp_path, f"cat {HEALTHY}")
    result = on_slurm(slurm_lab, tmp_path, ROOT / "suites" / "proxy", ON_GPU, gpu="h200", python=python)
    assert result.status == 0, result.out
    case = result.case(ON_GPU)
    expected = case["expected"]
    assert (case["verdict"], expected["gpu"], expected["step_time"]) == ("passed", "h100", 1.706)
    assert case["versions"] == {"jax": "0.11.2", "driver": "580.159.04"}
    table = (result.folder / ON_GPU / "gpus.csv").read_text().splitlines()
    assert len(table) - 1 == HEALTHY.read_text().count("gpu sample: ")
    last = slurm_lab.jobs_ever()[-1]
    assert (last.name, last.nodes) == (case["job"]["name"], 1)


def test_an_image_without_jax_is_told_by_the_jobs_own_words(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    python = interpreter(tmp_path, f'exec {sys.executable} -S "$@"')
    result = on_slurm(slurm_lab, tmp_path, ROOT / "suites" / "proxy", TINY, image=IMAGE, python=python)
    assert result.case(TINY)["verdict"] == "infrastructure"
    assert "has no jax or optax (No module named 'jax')" in result.out
    assert "name a container image that has them" in result.out


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
