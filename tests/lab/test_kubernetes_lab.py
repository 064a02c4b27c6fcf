"""The Kubernetes lab itself: is it a cluster, do its controllers run the recipes' jobs, and can their logs be read?"""

from __future__ import annotations

import contextlib
import datetime
import re
import secrets
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kubernetes
import pytest
from kubernetes.client.exceptions import ApiException

from plugins.logs.formats import read
from tests.lab import daemons, fixtures
from tests.lab.k8s import manifests, programs
from tests.lab.k8s.api import ApiError
from tests.lab.k8s.cluster import KubernetesLab

READ_LOGS = (
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
)


@pytest.fixture
def namespace(kubernetes_lab: KubernetesLab) -> Iterator[str]:
    """One of the test's own, whose jobs do not outlive it."""
    name = kubernetes_lab.namespace(f"test-{secrets.token_hex(3)}")
    yield name
    kubernetes_lab.clear(name)


@pytest.fixture
def claim(kubernetes_lab: KubernetesLab, namespace: str) -> None:
    """What a PyTorchJob's pods need before they are given a node."""
    for document in manifests.claim(namespace, manifests.CLAIM):
        kubernetes_lab.api.create(document)


def until(what: str, ready: Callable[[], object], seconds: float = 600) -> None:
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, f"after {seconds} s still not: {what}"
        time.sleep(0.1)


def begun(lab: KubernetesLab, namespace: str) -> int:
    """How many pods have their knobs."""
    return sum(map(lab.has_begun, pods(lab, namespace).values()))


def status(lab: KubernetesLab, namespace: str, name: str) -> Any:
    """Of a job of either kind; both have conditions."""
    for group, kind in (("jobset.x-k8s.io/v1alpha2", "jobsets"), ("kubeflow.org/v1", "pytorchjobs")):
        for job in lab.api.get(f"/apis/{group}/namespaces/{namespace}/{kind}")["items"]:
            if job["metadata"]["name"] == name:
                return job.get("status", {})
    raise LookupError(f"{namespace} has no job {name}")


def is_true(lab: KubernetesLab, namespace: str, name: str, condition: str) -> bool:
    conditions = status(lab, namespace, name).get("conditions", [])
    return any(c["type"] == condition and c["status"] == "True" for c in conditions)


def finish(lab: KubernetesLab, namespace: str, name: str, seconds: float = 600) -> str:
    """Wait for the end of a job; the condition that says so."""
    ends = ("Completed", "Succeeded", "Failed")

    def reached() -> list[str]:
        return [end for end in ends if is_true(lab, namespace, name, end)]

    until(f"job {name} ended", reached, seconds)
    (end,) = reached()
    return end


def pods(lab: KubernetesLab, namespace: str) -> dict[str, Any]:
    items = lab.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    return {pod["metadata"]["name"]: pod for pod in items}


def log(lab: KubernetesLab, namespace: str, pod: str, **query: str) -> str:
    return lab.read_log(namespace, pod, **query).decode()


def rank0(lab: KubernetesLab, namespace: str) -> str:
    """The pod with completion index 0; "" before there is one that runs."""
    for name, pod in pods(lab, namespace).items():
        index = pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]
        if index == "0" and pod["status"]["phase"] != "Pending":
            return name
    return ""


def test_it_is_the_pinned_kubernetes_with_the_nodes_of_both_clouds(kubernetes_lab: KubernetesLab) -> None:
    if not programs.assets():
        assert kubernetes_lab.api.get("/version")["gitVersion"] == programs.version("k8s.io/kubernetes")
    nodes = kubernetes_lab.api.get("/api/v1/nodes")["items"]
    assert len(nodes) == 128 == kubernetes_lab.ready_nodes()
    assert {node["status"]["allocatable"]["nvidia.com/gpu"] for node in nodes} == {"8"}
    azure = [node for node in nodes if node["metadata"]["labels"].get("agentpool") == "gpu"]
    assert {node["status"]["allocatable"].get("rdma/ib") for node in azure} == {"8"}
    assert len(azure) == 64


def test_it_listens_on_loopback_alone(kubernetes_lab: KubernetesLab) -> None:
    sockets = set()
    for pid in kubernetes_lab.pids:
        # A process may end, and a file be closed, while they are looked at.
        with contextlib.suppress(OSError):
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    sockets.add(str(entry.readlink()).removeprefix("socket:[").removesuffix("]"))
    listening = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in sockets:
                listening[int(fields[1].split(":")[1], 16)] = fields[1].split(":")[0]
    assert len(listening) == 10
    assert set(listening.values()) == {"0100007F"}


def test_a_jobset_completes_with_the_recipes_log(kubernetes_lab: KubernetesLab, namespace: str) -> None:
    kubernetes_lab.api.create(manifests.jobset(namespace, "llama", 8))
    assert finish(kubernetes_lab, namespace, "llama") == "Completed"
    ran = pods(kubernetes_lab, namespace)
    assert len({pod["spec"]["nodeName"] for pod in ran.values()}) == 8
    assert {pod["status"]["phase"] for pod in ran.values()} == {"Succeeded"}
    text = log(kubernetes_lab, namespace, rank0(kubernetes_lab, namespace))
    steps = read("dllogger", iter([text.encode()])).steps
    assert [step.index for step in steps] == list(range(50))
    assert steps[-1].consumed_samples == 50 * 1024
    assert steps[-1].seconds == pytest.approx(45.8 * 128 / 64, rel=0.01)
    others = [name for name in ran if name != rank0(kubernetes_lab, namespace)]
    assert "DLL " not in log(kubernetes_lab, namespace, others[0])


@pytest.mark.usefixtures("claim")
def test_a_pytorchjob_prints_from_the_last_rank_by_name(
    kubernetes_lab: KubernetesLab, namespace: str
) -> None:
    kubernetes_lab.api.create(manifests.pytorchjob(namespace, "gpt", 12))
    assert finish(kubernetes_lab, namespace, "gpt") == "Succeeded"
    ran = pods(kubernetes_lab, namespace)
    assert len(ran) == 12
    assert {pod["spec"]["nodeName"].split("-")[0] for pod in ran.values()} == {"aks"}
    speaking = [name for name in ran if "iteration " in log(kubernetes_lab, namespace, name)]
    assert speaking == ["gpt-worker-9"]
    steps = read("megatron_lm", iter([log(kubernetes_lab, namespace, speaking[0]).encode()])).steps
    assert [step.index for step in steps] == [9, 19, 29, 39, 49]


@pytest.mark.usefixtures("claim")
def test_kueue_suspends_what_exceeds_the_quota_and_admits_it_later(
    kubernetes_lab: KubernetesLab, namespace: str
) -> None:
    kubernetes_lab.set(namespace, real_step=0, hang_at=3)
    for document in manifests.quota(namespace, "gpus", 64):
        kubernetes_lab.api.create(document)
    kubernetes_lab.api.create(manifests.jobset(namespace, "first", 8, queue="gpus"))
    until("the first runs", lambda: begun(kubernetes_lab, namespace) == 8)
    kubernetes_lab.set(namespace, real_step=0)
    # Not suspended by its author: Kueue's webhook does it.
    kubernetes_lab.api.create(manifests.pytorchjob(namespace, "second", 2, queue="gpus"))
    until("the second waits", lambda: is_true(kubernetes_lab, namespace, "second", "Suspended"))
    workloads = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{namespace}/workloads"

    def refusals() -> list[str]:
        waiting = [w for w in kubernetes_lab.api.get(workloads)["items"] if w["metadata"]["name"][0] == "p"]
        conditions = [c for w in waiting for c in w.get("status", {}).get("conditions", [])]
        return [c["message"] for c in conditions if (c["type"], c["status"]) == ("QuotaReserved", "False")]

    until("Kueue says why", refusals)
    assert "insufficient unused quota" in refusals()[0]
    assert phases(kubernetes_lab, namespace) == {"Running": 8}
    kubernetes_lab.api.delete(f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets/first")
    assert finish(kubernetes_lab, namespace, "second") == "Succeeded"


def test_pods_wait_for_a_claim_that_is_not_there(kubernetes_lab: KubernetesLab, namespace: str) -> None:
    kubernetes_lab.set(namespace, real_step=0)
    kubernetes_lab.api.create(manifests.pytorchjob(namespace, "gpt", 2))

    def why() -> set[str]:
        found = [
            c for p in pods(kubernetes_lab, namespace).values() for c in p["status"].get("conditions", [])
        ]
        return {c["message"] for c in found if c["type"] == "PodScheduled"}

    until("they are told why", why)
    assert f'persistentvolumeclaim "{manifests.CLAIM}" not found' in " ".join(why())
    for document in manifests.claim(namespace, manifests.CLAIM):
        kubernetes_lab.api.create(document)
    assert finish(kubernetes_lab, namespace, "gpt") == "Succeeded"


def test_a_log_is_read_piece_by_piece_by_one_who_may_do_only_that(
    kubernetes_lab: KubernetesLab, namespace: str
) -> None:
    kubernetes_lab.hold(namespace, 25, real_step=0.06)
    kubeconfig = kubernetes_lab.user(namespace, "reader", READ_LOGS)
    with kubernetes.config.new_client_from_config(str(kubeconfig)) as client:  # type: ignore[no-untyped-call]
        core = kubernetes.client.CoreV1Api(client)
        kubernetes_lab.api.create(manifests.jobset(namespace, "llama", 2))
        until("the first pod runs", lambda: rank0(kubernetes_lab, namespace))
        pod, seen, sizes = rank0(kubernetes_lab, namespace), list[str](), list[int]()

        def read_on() -> str:
            """The last line."""
            seen.extend(newer(core, pod, namespace, seen, sizes))
            return seen[-1] if seen else ""

        until("it waits", lambda: " - 25 " in read_on())
        # About a second's worth, unless the server began to count late.
        until("a piece is read", lambda: read_on() and sizes[-1] < len(seen) - 5)
        kubernetes_lab.let_go(namespace)
        while not is_true(kubernetes_lab, namespace, "llama", "Completed"):
            read_on()
            time.sleep(0.2)
        read_on()
        assert [line.partition(" ")[2] for line in seen] == log(kubernetes_lab, namespace, pod).splitlines()
        with pytest.raises(ApiException, match="cannot delete resource"):
            core.delete_namespaced_pod(pod, namespace)
        with pytest.raises(ApiException, match="cannot list resource"):
            core.list_namespaced_pod("default")


def newer(core: Any, pod: str, namespace: str, seen: list[str], sizes: list[int]) -> list[str]:
    """Lines behind the last one seen. The server counts in whole seconds, and in those that passed since."""
    passed: dict[str, int] = {}
    if seen:
        passed["since_seconds"] = int(time.time() - stamp(seen[-1])) + 1
    try:
        lines = core.read_namespaced_pod_log(pod, namespace, timestamps=True, **passed).splitlines()
        if seen and seen[-1] not in lines:
            # The server began to count late.
            lines = core.read_namespaced_pod_log(pod, namespace, timestamps=True).splitlines()
    except ApiException as error:
        assert error.status == 400  # noqa: PT017 - it runs, and there is no log of it yet
        return []
    sizes.append(len(lines))
    return [line for line in lines if not seen or line > seen[-1]]


def stamp(line: str) -> float:
    # Nanoseconds are more than Python reads.
    return datetime.datetime.fromisoformat(line[:26] + "+00:00").timestamp()


def test_the_log_of_a_pod_without_a_node_is_empty_and_the_others_wait_for_it(
    kubernetes_lab: KubernetesLab, namespace: str
) -> None:
    kubernetes_lab.set(namespace, real_step=0)
    kubernetes_lab.api.create(manifests.jobset(namespace, "llama", 129))
    until("all but one run", lambda: phases(kubernetes_lab, namespace) == {"Running": 128, "Pending": 1})
    waiting = next(n for n, p in pods(kubernetes_lab, namespace).items() if p["status"]["phase"] == "Pending")
    assert log(kubernetes_lab, namespace, waiting) == ""
    # One that runs says nothing of steps before all are there.
    assert "DLL " not in log(kubernetes_lab, namespace, rank0(kubernetes_lab, namespace))
    kubernetes_lab.clear(namespace)
    logs = f"/apis/kwok.x-k8s.io/v1alpha1/namespaces/{namespace}/logs"
    until("nothing of their logs is left", lambda: not kubernetes_lab.api.get(logs)["items"])


def phases(lab: KubernetesLab, namespace: str) -> Counter[str]:
    return Counter(pod["status"]["phase"] for pod in pods(lab, namespace).values())


def test_a_failed_pod_fails_the_jobset_and_the_others_are_deleted(
    kubernetes_lab: KubernetesLab, namespace: str
) -> None:
    kubernetes_lab.set(namespace, real_step=0, exit_code_after=7)
    kubernetes_lab.api.create(manifests.jobset(namespace, "llama", 4))
    assert finish(kubernetes_lab, namespace, "llama") == "Failed"
    (left,) = pods(kubernetes_lab, namespace).values()
    (container,) = left["status"]["containerStatuses"]
    assert container["state"]["terminated"]["exitCode"] == 7


def test_a_jobset_that_may_restart_begins_anew_with_pods_of_its_own(
    kubernetes_lab: KubernetesLab, namespace: str
) -> None:
    kubernetes_lab.set(namespace, real_step=0, exit_code_after=7)
    kubernetes_lab.api.create(manifests.jobset(namespace, "llama", 2, failurePolicy={"maxRestarts": 1000}))
    until("it restarted", lambda: status(kubernetes_lab, namespace, "llama").get("restarts"))
    kubernetes_lab.set(namespace, real_step=0)
    assert finish(kubernetes_lab, namespace, "llama") == "Completed"
    restarts = status(kubernetes_lab, namespace, "llama")["restarts"]
    attempts = [
        p["metadata"]["labels"]["jobset.sigs.k8s.io/restart-attempt"]
        for p in pods(kubernetes_lab, namespace).values()
    ]
    assert attempts == [str(restarts)] * 2


def test_a_crash_is_not_seen_in_the_state_of_a_jobset(kubernetes_lab: KubernetesLab, namespace: str) -> None:
    # Upstream's launcher ends with 0 whatever its trainer did.
    kubernetes_lab.set(namespace, real_step=0, crash_at=12, hidden_exit=True)
    kubernetes_lab.api.create(manifests.jobset(namespace, "llama", 2))
    assert finish(kubernetes_lab, namespace, "llama") == "Completed"
    assert "NCCL error after step 12" in log(kubernetes_lab, namespace, rank0(kubernetes_lab, namespace))


@pytest.mark.usefixtures("claim")
def test_a_crash_restarts_the_container_of_a_pytorchjob_in_place(
    kubernetes_lab: KubernetesLab, namespace: str
) -> None:
    kubernetes_lab.set(namespace, real_step=0, crash_at=12)
    kubernetes_lab.api.create(manifests.pytorchjob(namespace, "gpt", 2))
    restarted = "gpt-worker-0"

    def restarts() -> int:
        statuses = (
            pods(kubernetes_lab, namespace).get(restarted, {}).get("status", {}).get("containerStatuses")
        )
        return int(statuses[0]["restartCount"]) if statuses else 0

    until("it restarted twice", lambda: restarts() >= 2)
    assert not is_true(kubernetes_lab, namespace, "gpt", "Failed")
    assert "NCCL error" in log(kubernetes_lab, namespace, restarted, previous="true")
    kubernetes_lab.set(namespace, real_step=0)
    assert finish(kubernetes_lab, namespace, "gpt") == "Succeeded"


def test_a_jobset_that_its_validation_refuses_is_told_at_once(
    kubernetes_lab: KubernetesLab, namespace: str
) -> None:
    with pytest.raises(ApiError, match=r"vjobset\.kb\.io.*JobSet name is too long") as refused:
        kubernetes_lab.api.create(manifests.jobset(namespace, "l" * 50, 2))
    assert refused.value.status == 422
    without = manifests.pytorchjob(namespace, "gpt", 2)
    without["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]["name"] = "megatron"
    with pytest.raises(ApiError, match="pytorch"):
        kubernetes_lab.api.create(without)


@pytest.mark.usefixtures("kubernetes_parts")
def test_jobs_go_on_while_the_api_server_is_away() -> None:
    with KubernetesLab(nodes=2, controllers=("jobset",)) as lab:
        namespace = lab.namespace("away", real_step=0.05)
        lab.api.create(manifests.jobset(namespace, "llama", 2))
        until("it runs", lambda: rank0(lab, namespace))
        lab.stop_api()
        with pytest.raises(ApiError) as refused:
            lab.api.get("/version")
        assert refused.value.status == 0
        lab.start_api()
        assert finish(lab, namespace, "llama") == "Completed"
        before = daemons.born(lab.pids)
        assert len(before) == 7
    assert daemons.survivors(before) == []
    assert not lab.root.exists()


@pytest.mark.usefixtures("kubernetes_parts")
def test_a_killed_owner_leaves_nothing_behind() -> None:
    owner = subprocess.Popen(
        [sys.executable, "-m", "tests.lab.k8s", "--nodes", "2"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(fixtures.__file__).parents[2],
    )
    with owner:
        assert owner.stdout is not None
        root = next(Path(m[1]) for line in owner.stdout if (m := re.search(r'"root": "([^"]+)"', line)))
        before = daemons.marked(root)
        owner.send_signal(signal.SIGKILL)
    assert len(before) == 9
    until("the lab is gone", lambda: not daemons.marked(root) and not root.exists())
