"""Llama 3 70B on a real Kubernetes control plane: one JobSet, its pods on its nodes, every verdict."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab.k8s.cluster import KubernetesLab
from tests.system.kube import CASE, SELECT, gke_site, items, left, nothing_is_left, user
from tests.system.kube_trial import MakeTrial, make_queue
from tests.system.support import Run, finish, pacemark, start, until

PUBLISHED = ("suites/llama3_gke", "-k", "70b and fp8 and 128")
PUBLISHED_CASE = "llama3_gke/70b-fp8-128gpus"
LARGE = ("suites/llama3_gke", "-k", "70b and fp8 and 512")
LARGE_CASE = "llama3_gke/70b-fp8-512gpus"


def run(lab: KubernetesLab, namespace: str, tmp_path: Path, *select: str, **knobs: Any) -> Run:
    lab.set(namespace, **knobs)
    site = gke_site(lab, namespace, tmp_path)
    return pacemark(*select, "--site", str(site), results=tmp_path / "results")


def test_512_gpus_are_one_jobset_of_64_pods_on_64_nodes_after_kueue_admitted_it(
    kubernetes_lab: KubernetesLab, namespace: str, tmp_path: Path
) -> None:
    kubernetes_lab.hold(namespace, 10)
    make_queue(kubernetes_lab, namespace, "a3-mega", 512, topology=True)
    site = gke_site(kubernetes_lab, namespace, tmp_path, queue="a3-mega")
    process = start(*LARGE, "--site", str(site), "-s", results=tmp_path / "results")
    until(lambda: len(items(kubernetes_lab, namespace, "pod")) == 64, "64 pods")
    pods = items(kubernetes_lab, namespace, "pod")
    until(
        lambda: all(pod["spec"].get("nodeName") for pod in items(kubernetes_lab, namespace, "pod")), "nodes"
    )
    (jobset,) = items(kubernetes_lab, namespace, "jobset")
    (workload,) = items(kubernetes_lab, namespace, "workload")
    nodes = {pod["spec"]["nodeName"] for pod in items(kubernetes_lab, namespace, "pod")}
    kubernetes_lab.let_go(namespace)
    result = finish(process, tmp_path / "results")
    assert len(pods) == len(nodes) == 64
    assert jobset["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "a3-mega"
    assert {"Admitted", "QuotaReserved"} <= {c["type"] for c in workload["status"]["conditions"]}
    assert result.status == 0, result.out
    case = result.case(LARGE_CASE)
    # Nobody has published a pace for 512 GPUs.
    assert case["verdict"] == "no baseline"
    assert case["statistic"] == "mean:15-40"
    assert case["step_time"] == pytest.approx(45.8 / 4, rel=0.01)
    assert case["job"]["id"] == jobset["metadata"]["name"]
    # By the cluster's clock, which tells whole seconds.
    assert [datetime.fromisoformat(case["job"][key]).microsecond for key in ("started", "ended")] == [0, 0]
    assert re.search(r"suspended|starting|running", result.out), result.out
    folder = result.folder / LARGE_CASE
    assert {"case.json", "steps.csv", "log.txt", "sent.txt"} <= {path.name for path in folder.iterdir()}
    nothing_is_left(kubernetes_lab, namespace)


def test_the_published_pace_passes_under_the_shipped_role_alone(
    kubernetes_lab: KubernetesLab, namespace: str, tmp_path: Path
) -> None:
    result = run(kubernetes_lab, namespace, tmp_path, *PUBLISHED)
    assert result.status == 0, result.out
    case = result.case(PUBLISHED_CASE)
    assert case["verdict"] == "passed"
    assert case["step_time"] == pytest.approx(45.81, rel=0.01)
    told = case["versions"]
    assert (told["driver"], told["nccl"], told["image"][:7]) == ("550.144.03", "2.21.5+cuda12.4", "sha256:")
    assert case["mfu"] == pytest.approx(34.78, rel=0.01)
    nothing_is_left(kubernetes_lab, namespace)


def test_a_pod_that_dies_is_infrastructure_with_its_node_and_its_last_words(
    kubernetes_lab: KubernetesLab, namespace: str, tmp_path: Path, small: str
) -> None:
    result = run(kubernetes_lab, namespace, tmp_path, small, *SELECT, crash_at=12, real_step=0.1)
    assert result.status == 1, result.out
    case = result.case(CASE)
    assert case["verdict"] == "infrastructure"
    headline = case["headline"]
    assert "ended Failed on gke-a3mega-pool-" in headline
    assert "exit code 1" in headline
    assert "container workload ended with exit code 1" in headline
    assert "RuntimeError: NCCL error after step 12" in result.out
    nothing_is_left(kubernetes_lab, namespace)


def test_a_jobset_that_somebody_deletes_is_infrastructure(
    kubernetes_lab: KubernetesLab, namespace: str, kube_trial: MakeTrial
) -> None:
    trial = kube_trial(hang_at=5).start()
    trial.until_steps(5)
    kubernetes_lab.clear(namespace)
    case = trial.end().case(CASE)
    assert case["verdict"] == "infrastructure"
    assert "CANCELLED" in case["headline"]
    assert "somebody deleted the JobSet" in case["headline"]


def test_a_cluster_that_nobody_can_ask_any_more_loses_the_case(
    kubernetes_lab: KubernetesLab, namespace: str, kube_trial: MakeTrial
) -> None:
    trial = kube_trial(hang_at=5, limits={"unreachable_minutes": 0.05}).start()
    trial.until_steps(5)
    kubernetes_lab.stop_api()
    assert trial.process is not None
    try:
        result = finish(trial.process, trial.results)
    finally:
        kubernetes_lab.start_api()
    case = result.case(CASE)
    assert case["verdict"] == "lost"
    assert "could not be asked for 0.05 minutes" in case["headline"]
    assert "look for the name pacemark-" in case["headline"]
    swept = trial.house("--sweep")
    assert swept.status == 0, swept.out
    nothing_is_left(kubernetes_lab, namespace)


def test_a_case_is_sent_as_its_plan_says(
    kubernetes_lab: KubernetesLab, namespace: str, tmp_path: Path
) -> None:
    kubernetes_lab.set(namespace)
    site = gke_site(kubernetes_lab, namespace, tmp_path, environment={"NCCL_DEBUG": "INFO"})
    checked = pacemark(*PUBLISHED, "--check", "--site", str(site), results=tmp_path / "results")
    assert checked.status == 0, checked.out
    assert f"\n  ready    llama3_gke: every permission in namespace {namespace}\n" in checked.out
    assert "all is ready for 1 case(s) of 1 recipe(s); nothing was submitted" in checked.out
    assert left(kubernetes_lab, namespace) == []
    plan = pacemark(*PUBLISHED, "--plan", "-v", "--site", str(site), results=tmp_path / "results")
    assert plan.status == 0, plan.out
    for word in (
        "kind: JobSet",
        "parallelism: 16",
        "NCCL_DEBUG",
        "registry.test/nemo_workload:24.07",
        "lab-bucket",
    ):
        assert word in plan.out
    result = pacemark(*PUBLISHED, "--site", str(site), results=tmp_path / "results")
    assert result.status == 0, result.out
    assert "kind: JobSet" in (result.folder / PUBLISHED_CASE / "sent.txt").read_text()


def test_a_site_file_that_the_cluster_itself_told_is_ready_for_a_case(
    kubernetes_lab: KubernetesLab, namespace: str, tmp_path: Path
) -> None:
    file, login = tmp_path / "site.yaml", {"KUBECONFIG": str(user(kubernetes_lab, namespace))}
    asked = pacemark("--init-site", "kube://", f"--site={file}", results=tmp_path / "results", env=login)
    assert asked.status == 0, asked.out
    told = yaml.safe_load(file.read_text())["jobset"]
    # The other cloud's nodes have the same GPUs.
    assert told["node_selector"] == {"cloud.google.com/gke-nodepool": "a3mega-pool"}
    assert (told["gpu"], told["max_gpus"], told["namespace"]) == ("h100", 512, namespace)
    # The shipped Role lets nobody make PyTorchJobs, nor list queues and claims.
    assert "create/get/list/watch/delete pytorchjobs is missing" in asked.out
    assert "answer jobset.queue: " in asked.out
    # What no cluster knows is answered as the file has it, and --check finds nothing missing.
    head, mark, rest = file.read_text().partition("  # recipes:\n")
    block, _, others = rest.partition("\n\n")
    answered = re.sub("^  # ?", "  ", mark + block, flags=re.MULTILINE)
    answered = answered.replace("image: ''", "image: i").replace("bucket: ''", "bucket: abc")
    file.write_text(f"{head}{answered}\n\n{others}")
    checked = pacemark(*PUBLISHED, "--site", str(file), "--check", results=tmp_path / "results", env=login)
    assert checked.status == 0, checked.out
