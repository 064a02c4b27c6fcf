"""Megatron GPT-3 on a cluster with Kubeflow Trainer v2 alone, as a JobSet, and with the training operator 1.8.1."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.k8s import manifests
from tests.lab.k8s import processes
from tests.lab.k8s.cluster import KubernetesLab
from tests.system.kube import aks_site
from tests.system.kube import items
from tests.system.kube import nothing_is_left
from tests.system.kube import require_failed
from tests.system.support import Run
from tests.system.support import pacemark
from tests.system.support import start
from tests.system.support import until

QUICK = ("suites/gpt3_aks", "-m", 'case(size="375m", gpus=16)')
CASE = "gpt3_aks/375m-fp16-16gpus"
OPERATOR = "training-operator-1.8"


@pytest.fixture(scope="module")
def kubernetes_lab(kubernetes_parts: None) -> Iterator[KubernetesLab]:
    """A cluster of its own, with Trainer v2 and what that needs."""
    with KubernetesLab(
        nodes=2, machines=["Standard_ND96isr_H100_v5"], controllers=("jobset", "trainer")
    ) as lab:
        yield lab


@pytest.fixture
def operator(kubernetes_lab: KubernetesLab) -> Iterator[Callable[[], None]]:
    """Call it to bring in the training operator 1.8.1; it goes with the test."""
    added: list[str] = []

    def add() -> None:
        added.append(OPERATOR)
        kubernetes_lab.add(OPERATOR)

    yield add
    for name in added:
        kubernetes_lab.remove(name)


@pytest.fixture
def site(kubernetes_lab: KubernetesLab, namespace: str, tmp_path: Path) -> Path:
    """The site file of a namespace that has the claim with the recipe's data."""
    manifests.data(processes.volume(kubernetes_lab.root, namespace, manifests.CLAIM))
    for document in manifests.claim(namespace, manifests.CLAIM):
        kubernetes_lab.api.create(document)
    path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{manifests.CLAIM}"
    until(lambda: kubernetes_lab.api.get(path)["status"].get("phase") == "Bound", "the claim is bound")
    return aks_site(kubernetes_lab, namespace, tmp_path)


@pytest.fixture
def run(kubernetes_lab: KubernetesLab, namespace: str, site: Path, tmp_path: Path) -> Callable[..., Run]:
    def go(*more: str, **knobs: Any) -> Run:
        kubernetes_lab.set(namespace, **{"real_step": 0.005, **knobs})
        return pacemark(*QUICK, "--site", str(site), *more, results=tmp_path / "results")

    return go


def test_with_trainer_alone_it_runs_as_a_jobset_and_fails_as_one(
    kubernetes_lab: KubernetesLab, namespace: str, run: Callable[..., Run]
) -> None:
    result = run()
    assert result.status == 0, result.out
    case = result.case(CASE)
    assert (case["verdict"], case["job"]["kind"], case["job"]["attempts"]) == ("no baseline", "JobSet", 1)
    assert case["tflops_per_gpu"] == pytest.approx(430, rel=0.01)
    assert (result.folder / CASE / "log.txt").read_text().startswith(f"node {case['job']['id']}-node-0-1, ")
    nothing_is_left(kubernetes_lab, namespace)
    words = ["exit code 1", "NCCL error after iteration 43"]
    require_failed(kubernetes_lab, namespace, run(crash_at=42), CASE, "infrastructure", words)


def test_a_jobset_stays_one_when_the_cluster_gains_the_training_operator(
    kubernetes_lab: KubernetesLab,
    namespace: str,
    site: Path,
    run: Callable[..., Run],
    operator: Callable[[], None],
    running: Callable[[int], None],
    tmp_path: Path,
) -> None:
    kubernetes_lab.set(namespace, real_step=0.1)
    process = start(*QUICK, "--site", str(site), results=tmp_path / "results")
    running(2)
    process.kill()
    process.communicate()
    operator()
    (job,) = items(kubernetes_lab, namespace, "jobset")
    folder = (tmp_path / "results" / "latest").resolve().name
    resumed = run("--resume", folder)
    assert resumed.status == 0, resumed.out
    case = resumed.case(CASE)
    assert (case["job"]["id"], case["job"]["kind"]) == (job["metadata"]["name"], "JobSet")
    assert len((resumed.folder / CASE / "steps.csv").read_text().splitlines()) == 11
    nothing_is_left(kubernetes_lab, namespace)
    # What is new there is a PyTorchJob.
    kubernetes_lab.set(namespace, hang_at=5)
    process = start(*QUICK, "--site", str(site), results=tmp_path / "results")
    running(2)
    assert len(items(kubernetes_lab, namespace, "pytorchjob")) == 1
    process.kill()
    process.communicate()
    swept = pacemark("suites", "--sweep", "--site", str(site), results=tmp_path / "results")
    assert swept.status == 0, swept.out
    nothing_is_left(kubernetes_lab, namespace)


def test_training_operator_1_8_runs_it_and_a_worker_that_fails_ends_it(
    kubernetes_lab: KubernetesLab, namespace: str, run: Callable[..., Run], operator: Callable[[], None]
) -> None:
    operator()
    result = run(master_first=True)
    assert result.status == 0, result.out
    case = result.case(CASE)
    assert (case["verdict"], case["job"]["kind"]) == ("no baseline", "PyTorchJob")
    assert len((result.folder / CASE / "steps.csv").read_text().splitlines()) == 11
    nothing_is_left(kubernetes_lab, namespace)
    words = ["exit code 1", "NCCL error after iteration 43"]
    require_failed(kubernetes_lab, namespace, run(crash_at=42), CASE, "infrastructure", words)
