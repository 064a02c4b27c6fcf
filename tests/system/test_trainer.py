"""Megatron GPT-3 on a cluster with Kubeflow Trainer v2 alone, as a JobSet, and with the training operator 1.8.1."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from plugins.record.lines import JOBS_LOG
from tests.lab.k8s import manifests, processes
from tests.lab.k8s.cluster import KubernetesLab
from tests.system.kube import aks_site, items, nothing_is_left, require_failed
from tests.system.support import Run, pacemark, start, until

QUICK = ("suites/gpt3_aks", "-m", 'case(size="375m", gpus=16)')
CASE = "gpt3_aks/375m-fp16-16gpus"
CRASHED = ["exit code 1", "NCCL error after iteration 43"]

# Each of its two clusters is started once.
pytestmark = pytest.mark.xdist_group("trainer")

ALONE, OPERATOR = ("jobset", "trainer"), ("training-operator-1.8",)


@pytest.fixture(scope="module")
def kubernetes_lab(kubernetes_parts: None, request: pytest.FixtureRequest) -> Iterator[KubernetesLab]:
    """A cluster of its own with these controllers."""
    machine = "Standard_ND96isr_H100_v5"
    with KubernetesLab(nodes=2, machines=[machine], controllers=request.param) as lab:
        yield lab


trainer_alone = pytest.mark.parametrize("kubernetes_lab", [ALONE], ids=["trainer"], indirect=True)
operator_1_8 = pytest.mark.parametrize("kubernetes_lab", [OPERATOR], ids=["operator"], indirect=True)


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


@trainer_alone
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
    require_failed(kubernetes_lab, namespace, run(crash_at=42), CASE, "infrastructure", CRASHED)


@trainer_alone
def test_a_jobset_stays_one_when_the_cluster_gains_pytorchjobs(
    kubernetes_lab: KubernetesLab,
    namespace: str,
    site: Path,
    run: Callable[..., Run],
    running: Callable[[int], None],
    tmp_path: Path,
) -> None:
    kubernetes_lab.hold(namespace, 10, real_step=0.1)
    process = start(*QUICK, "--site", str(site), results=tmp_path / "results")
    running(2)
    (job,) = items(kubernetes_lab, namespace, "jobset")
    ledger = tmp_path / "results" / "latest" / JOBS_LOG
    # Else it would be submitted anew.
    until(lambda: job["metadata"]["name"] in ledger.read_text(), "the answer to the submission")
    process.kill()
    process.communicate()
    kubernetes_lab.add_kinds(*OPERATOR)
    try:
        kubernetes_lab.let_go(namespace)
        resumed = run("--resume", (tmp_path / "results" / "latest").resolve().name)
    finally:
        kubernetes_lab.remove_kinds(*OPERATOR)
    assert resumed.status == 0, resumed.out
    case = resumed.case(CASE)
    assert (case["job"]["id"], case["job"]["kind"]) == (job["metadata"]["name"], "JobSet")
    assert len((resumed.folder / CASE / "steps.csv").read_text().splitlines()) == 11
    nothing_is_left(kubernetes_lab, namespace)


@operator_1_8
def test_training_operator_1_8_runs_it_and_a_worker_that_fails_ends_it(
    kubernetes_lab: KubernetesLab, namespace: str, run: Callable[..., Run]
) -> None:
    result = run(master_first=True)
    assert result.status == 0, result.out
    case = result.case(CASE)
    assert (case["verdict"], case["job"]["kind"]) == ("no baseline", "PyTorchJob")
    assert len((result.folder / CASE / "steps.csv").read_text().splitlines()) == 11
    nothing_is_left(kubernetes_lab, namespace)
    # It deletes the pods of a job that reaches a backoffLimit, and their logs with them.
    require_failed(kubernetes_lab, namespace, run(crash_at=42), CASE, "infrastructure", CRASHED)
