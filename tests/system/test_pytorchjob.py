"""Megatron GPT-3 as a PyTorchJob on a real control plane: judged by the pod of the last rank, whatever else happens."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.lab.k8s import manifests, processes
from tests.lab.k8s.cluster import KubernetesLab
from tests.system.kube import aks_site, items, nothing_is_left, running
from tests.system.kube_trial import make_queue
from tests.system.support import Run, finish, pacemark, signal_group, start, until

LARGE = ("suites/gpt3_aks", "-k", "175b and 512")
LARGE_CASE = "gpt3_aks/175b-fp16-512gpus"
QUICK = ("suites/gpt3_aks", "-m", 'case(size="375m", gpus=16)')
QUICK_CASE = "gpt3_aks/375m-fp16-16gpus"
SAVE = ("suites/gpt3_aks", "--variant", "checkpoint", "-m", 'case(size="30b-checkpoint", gpus=64)')
SAVE_CASE = "gpt3_aks/30b-checkpoint-fp16-64gpus"
EIGHT = ("suites/gpt3_aks", "-m", 'case(size="30b", gpus=64)')
EIGHT_CASE = "gpt3_aks/30b-fp16-64gpus"


@pytest.fixture
def volume(kubernetes_lab: KubernetesLab, namespace: str) -> None:
    """The claim that the recipe's shared storage is, with 40 files of data, 30 of them not to train on."""
    manifests.data(processes.volume(kubernetes_lab.root, namespace, manifests.CLAIM))
    for document in manifests.claim(namespace, manifests.CLAIM):
        kubernetes_lab.api.create(document)
    path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{manifests.CLAIM}"
    until(lambda: kubernetes_lab.api.get(path)["status"].get("phase") == "Bound", "the claim is bound")


def run(
    lab: KubernetesLab,
    namespace: str,
    tmp_path: Path,
    *more: str,
    select: Sequence[str] = QUICK,
    image: str = "",
    **knobs: Any,
) -> Run:
    lab.set(namespace, **{"real_step": 0.005, **knobs})
    keys: dict[str, Any] = {"recipes": {"gpt3_aks": {"values": {"image": image}}}} if image else {}
    site = aks_site(lab, namespace, tmp_path, **keys)
    return pacemark(*select, "--site", str(site), *more, results=tmp_path / "results")


@pytest.mark.usefixtures("volume")
def test_512_gpus_are_one_pytorchjob_judged_by_the_pod_of_the_last_rank(
    kubernetes_lab: KubernetesLab, namespace: str, tmp_path: Path
) -> None:
    kubernetes_lab.hold(namespace, 10)
    make_queue(kubernetes_lab, namespace, "gpus", 512)
    site = aks_site(kubernetes_lab, namespace, tmp_path, queue="gpus")
    process = start(*LARGE, "--site", str(site), results=tmp_path / "results")
    until(lambda: len(items(kubernetes_lab, namespace, "pod")) == 64, "64 pods")
    until(lambda: all(p["spec"].get("nodeName") for p in items(kubernetes_lab, namespace, "pod")), "nodes")
    nodes = {pod["spec"]["nodeName"] for pod in items(kubernetes_lab, namespace, "pod")}
    (job,) = items(kubernetes_lab, namespace, "pytorchjob")
    kubernetes_lab.let_go(namespace)
    result = finish(process, tmp_path / "results")
    assert len(nodes) == 64
    assert {replica["restartPolicy"] for replica in job["spec"]["pytorchReplicaSpecs"].values()} == {"Never"}
    assert result.status == 0, result.out
    case = result.case(LARGE_CASE)
    assert case["verdict"] == "no baseline"
    assert case["statistic"] == "mean:50-99"
    # The stand-in runs at 430 TFLOP/s a GPU by Megatron's own count.
    assert case["tflops_per_gpu"] == pytest.approx(430, rel=0.01)
    assert case["mfu_beside"] > case["mfu"]
    log = (result.folder / LARGE_CASE / "log.txt").read_text()
    assert "node pm-" in log.splitlines()[0]
    assert re.search(r"node pm-\S+-worker-9,", log)
    nothing_is_left(kubernetes_lab, namespace)


@pytest.fixture
def shared_ib(kubernetes_lab: KubernetesLab) -> Iterator[Callable[[], set[str]]]:
    """Gives two nodes of AKS an RDMA resource of this name, which goes at the end of the test; returns their names."""
    found = [node["metadata"]["name"] for node in kubernetes_lab.api.get("/api/v1/nodes")["items"]]
    nodes = sorted(name for name in found if name.startswith("aks-"))[:2]

    def offer(count: str | None) -> None:
        has = {"rdma/shared_ib": count}
        for name in nodes:
            change = {"status": {"capacity": has, "allocatable": has}}
            kubernetes_lab.api.merge(f"/api/v1/nodes/{name}/status", change)

    def give() -> set[str]:
        offer("63")
        return set(nodes)

    yield give
    offer(None)


@pytest.mark.usefixtures("volume")
def test_rdma_under_another_name(
    kubernetes_lab: KubernetesLab, namespace: str, tmp_path: Path, shared_ib: Callable[[], set[str]]
) -> None:
    """Other device plugins offer other names: the pods run on the nodes that have this one."""
    values = {"rdma": "rdma/shared_ib", "rdma_count": "1"}
    site = aks_site(kubernetes_lab, namespace, tmp_path, recipes={"gpt3_aks": {"values": values}})
    kubernetes_lab.hold(namespace, 10)
    refused = pacemark(*QUICK, "--site", str(site), results=tmp_path / "refused")
    assert "allocatable rdma/shared_ib are needed" in refused.case(QUICK_CASE)["headline"], refused.out
    nodes = shared_ib()
    process = start(*QUICK, "--site", str(site), results=tmp_path / "results")

    def placed() -> set[str]:
        return {pod["spec"].get("nodeName", "") for pod in items(kubernetes_lab, namespace, "pod")}

    until(lambda: placed() == nodes, "both pods have the nodes that have it")
    kubernetes_lab.let_go(namespace)
    result = finish(process, tmp_path / "results")
    assert result.case(QUICK_CASE)["verdict"] == "no baseline", result.out
    nothing_is_left(kubernetes_lab, namespace)


@pytest.mark.usefixtures("volume")
def test_a_slow_node_of_a_pytorchjob_is_named_by_probes(
    kubernetes_lab: KubernetesLab, namespace: str, tmp_path: Path
) -> None:
    """A probe of two nodes is a master and a worker. The nodes of the case are in the order in which torchrun ranks them."""
    own = ("--site-baselines", str(tmp_path / "own"))
    run(kubernetes_lab, namespace, tmp_path, "--record-baselines", *own, select=EIGHT)
    table = tmp_path / "table.json"
    kubernetes_lab.hold(namespace, 10, pace=1.2, real_step=0.005, probes=str(table))
    site = aks_site(kubernetes_lab, namespace, tmp_path, limits={"jobs_in_flight": 64})
    process = start(*EIGHT, "--site", str(site), "--isolate", "40", *own, results=tmp_path / "slow")
    until(lambda: running(kubernetes_lab, namespace) == 8, "8 pods run")
    pods = sorted(items(kubernetes_lab, namespace, "pod"), key=lambda pod: str(pod["metadata"]["name"]))
    nodes = [pod["spec"]["nodeName"] for pod in pods]
    table.write_text(json.dumps({"nodes": {nodes[2]: 0.19}}))
    kubernetes_lab.let_go(namespace)
    result = finish(process, tmp_path / "slow")
    case = result.case(EIGHT_CASE)
    assert case["verdict"] == "too slow", result.out
    assert case["job"]["nodes"] == ", ".join(nodes)
    assert case["isolation"]["headline"].startswith(f"{nodes[2]}: "), result.out
    nothing_is_left(kubernetes_lab, namespace)


@pytest.mark.usefixtures("volume")
def test_a_master_that_ends_first_does_not_end_the_run(
    kubernetes_lab: KubernetesLab, namespace: str, tmp_path: Path
) -> None:
    own = str(tmp_path / "own")
    result = run(
        kubernetes_lab,
        namespace,
        tmp_path,
        "--record-baselines",
        "--site-baselines",
        own,
        master_first=True,
        real_step=0.1,
    )
    assert result.status == 0, result.out
    assert "succeeded on aks-" in result.out
    assert result.case(QUICK_CASE)["verdict"] == "no baseline"
    assert len((result.folder / QUICK_CASE / "steps.csv").read_text().splitlines()) == 11
    nothing_is_left(kubernetes_lab, namespace)


@pytest.mark.usefixtures("volume")
def test_the_steps_are_searched_for_where_the_likeliest_pod_prints_none(
    kubernetes_lab: KubernetesLab, namespace: str, tmp_path: Path
) -> None:
    result = run(kubernetes_lab, namespace, tmp_path, speaker="master-0")
    assert result.status == 0, result.out
    case = result.case(QUICK_CASE)
    assert (case["verdict"], case["job"]["attempts"]) == ("no baseline", 1)
    nothing_is_left(kubernetes_lab, namespace)


def test_a_claim_that_is_not_there_is_told_before_anything_is_sent(
    kubernetes_lab: KubernetesLab, namespace: str, tmp_path: Path
) -> None:
    site = aks_site(kubernetes_lab, namespace, tmp_path)
    result = pacemark(*QUICK, "--site", str(site), results=tmp_path / "results")
    assert result.case(QUICK_CASE)["verdict"] == "infrastructure"
    assert manifests.CLAIM in result.out
    assert "--provision" in result.out
    nothing_is_left(kubernetes_lab, namespace)


@pytest.mark.usefixtures("volume")
def test_a_signal_leaves_nothing_and_a_killed_session_is_swept(
    kubernetes_lab: KubernetesLab, namespace: str, tmp_path: Path, running: Callable[[int], None]
) -> None:
    kubernetes_lab.set(namespace, hang_at=5)
    site = aks_site(kubernetes_lab, namespace, tmp_path)
    process = start(*QUICK, "--site", str(site), results=tmp_path / "results")
    running(2)
    signal_group(process, signal.SIGINT)
    assert finish(process, tmp_path / "results").status == 2
    nothing_is_left(kubernetes_lab, namespace)
    process = start(*QUICK, "--site", str(site), results=tmp_path / "results")
    running(2)
    process.kill()
    process.communicate()
    swept = pacemark("suites", "--sweep", "--site", str(site), results=tmp_path / "results")
    assert swept.status == 0, swept.out
    nothing_is_left(kubernetes_lab, namespace)


@pytest.mark.usefixtures("volume")
def test_a_checkpoint_is_written_timed_and_judged_by_what_the_storage_promises(
    kubernetes_lab: KubernetesLab, namespace: str, tmp_path: Path
) -> None:
    kubernetes_lab.set(namespace, real_step=0.005)
    promised = {"gpt3_aks": {"storage_gb_per_second": 64}}
    site = aks_site(kubernetes_lab, namespace, tmp_path, recipes=promised)
    result = pacemark(*SAVE, "--site", str(site), results=tmp_path / "results")
    case = result.case(SAVE_CASE)
    assert (result.status, case["verdict"]) == (0, "passed"), result.out
    assert "60 GB/s where 64 GB/s is promised, -6.2 % bandwidth" in result.out
    assert case["checkpoint"]["promised_bytes_per_second"] == 64e9
    nothing_is_left(kubernetes_lab, namespace)
