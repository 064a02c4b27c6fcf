"""The job: its queue, its nodes, its pods and its log, each broken as it happens on a cluster."""

from __future__ import annotations

import fcntl
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.lab.k8s import manifests
from tests.lab.k8s.api import ApiError
from tests.lab.k8s.cluster import KubernetesLab
from tests.lab.k8s.gate import CUT, HOLD, Gate
from tests.lab.k8s.objects import NO_IMAGE, NO_MOUNT
from tests.lab.recipe.knobs import BEFORE_STEPS
from tests.system.kube import CASE, user
from tests.system.kube_trial import JOBSETS, KubeTrial, MakeTrial
from tests.system.support import GUARD, finish, until

QUEUE = {"queue": "a3-mega"}
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/namespaces/{}/workloads"
STALL = {"stall_factor": 0.01, "stall_seconds": 20.0}
HOPELESS = {"hopeless_seconds": 3}


def blamed(trial: KubeTrial) -> str:
    """It ends as infrastructure, with one JobSet; the headline."""
    result = trial.end()
    assert result.case(CASE)["verdict"] == "infrastructure", result.out
    assert len(trial.made()) == 1
    headline: str = result.case(CASE)["headline"]
    return headline


# The queue


def test_a_quota_that_is_too_small_for_ever(kube_trial: MakeTrial) -> None:
    trial = kube_trial(keys=QUEUE, limits=HOPELESS)
    trial.queue(16)
    headline = blamed(trial.start())
    assert "it can never start; the queue says: " in headline
    assert "maximum capacity" in headline
    assert headline.endswith("; cancelled")


def test_time_in_the_queue_is_not_run_time(kube_trial: MakeTrial) -> None:
    trial = kube_trial(keys=QUEUE, real_step=0.05, limits={"queue_minutes": 10})
    trial.queue(32)
    go_on = trial.occupy()
    trial.start()
    trial.until_there("workload", 2)
    waited, later = datetime.now(UTC), timedelta(seconds=5)
    time.sleep(later.total_seconds())
    go_on()
    result = trial.end()
    case = result.case(CASE)
    assert case["verdict"] == "passed", result.out
    job = {key: datetime.fromisoformat(case["job"][key]) for key in ("submitted", "started")}
    # The cluster tells whole seconds.
    assert job["submitted"] <= waited
    assert job["started"] >= (waited + later).replace(microsecond=0)


def test_a_workload_that_is_evicted_begins_again_and_its_last_life_is_judged(
    kubernetes_lab: KubernetesLab, kube_trial: MakeTrial
) -> None:
    # Its workload is deactivated for a while, and a workload that stays so is given up.
    trial = kube_trial(keys=QUEUE, pace=1.3, limits={"hopeless_seconds": 300}).hold(10)
    trial.queue(32)
    trial.start()
    trial.until_steps(5)
    kubernetes_lab.set(trial.namespace, real_step=0.02)
    (workload,) = trial.items("workload")
    path = f"{WORKLOADS.format(trial.namespace)}/{workload['metadata']['name']}"
    kubernetes_lab.api.merge(path, {"spec": {"active": False}})
    until(lambda: not trial.items("pod"), "the pods' end")
    kubernetes_lab.api.merge(path, {"spec": {"active": True}})
    result = trial.end()
    case = result.case(CASE)
    # The first life was too slow.
    assert case["verdict"] == "passed", result.out
    assert "the job was started 2 times; judged by its last attempt" in case["remarks"]
    assert len(trial.made()) == 1
    assert (result.folder / CASE / "log.attempt-1.txt").exists()


def test_a_jobset_that_somebody_suspends_is_not_waited_for(
    kubernetes_lab: KubernetesLab, kube_trial: MakeTrial
) -> None:
    trial = kube_trial(limits={"hopeless_seconds": 20}).hold(5).start()
    trial.until_steps(5)
    (jobset,) = trial.items("jobset")
    path = f"{JOBSETS.format(trial.namespace)}/{jobset['metadata']['name']}"
    kubernetes_lab.api.merge(path, {"spec": {"suspend": True}})
    # A line says so, ten minutes before the next one is due.
    trial.until_said(
        "  it is suspended, and Kueue has made no Workload for it: somebody has suspended JobSet"
    )
    headline = blamed(trial)
    assert "it can never start; the queue says: it is suspended, and Kueue has made no Workload" in headline
    assert headline.endswith("; cancelled")


def test_pods_that_find_no_node(kubernetes_lab: KubernetesLab, kube_trial: MakeTrial) -> None:
    few = {"lab/few": "yes"}
    for node in rack_of(kubernetes_lab)[:4]:
        kubernetes_lab.api.merge(f"/api/v1/nodes/{node['metadata']['name']}", {"metadata": {"labels": few}})
    trial = kube_trial(keys={"node_selector": few}, limits={"queue_minutes": 1}, hang_at=1)
    other = manifests.jobset(trial.namespace, "somebody-elses", 1)
    other["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["nodeSelector"] = few
    kubernetes_lab.api.create(other)
    trial.until_running(1)
    trial.start()
    assert trial.process is not None
    trial.process.wait(GUARD)
    kubernetes_lab.api.delete(f"{JOBSETS.format(trial.namespace)}/somebody-elses")
    headline = blamed(trial)
    # On a busy machine not all of the others have theirs yet.
    assert re.search(r"still queued after 1 minutes; the queue says: \d+ of 4 pods have a node: ", headline)
    assert "Unschedulable: 0/128 nodes are available" in headline


# Nodes and pods


def test_pods_that_the_cluster_does_not_make(kubernetes_lab: KubernetesLab, kube_trial: MakeTrial) -> None:
    trial = kube_trial(limits=HOPELESS)
    kubernetes_lab.api.create(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "gpus", "namespace": trial.namespace},
            "spec": {"hard": {"requests.nvidia.com/gpu": "16"}},
        }
    )
    headline = blamed(trial.start())
    # The API server puts "(combined from similar events): " before what was said often. On a busy machine not all have a node yet.
    said = r"[0-2] of 4 pods have a node: FailedCreate: .*Error creating: pods .* is forbidden: exceeded quota: gpus, requested: "
    assert re.search(f"it can never start; the queue says: {said}", headline)
    # At 5, 10, 20 and 40 s, however often the job is looked at.
    assert trial.asked("list", "events") <= 4


def test_pods_that_pod_security_forbids(kubernetes_lab: KubernetesLab, kube_trial: MakeTrial) -> None:
    trial = kube_trial(limits=HOPELESS)
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    kubernetes_lab.api.merge(f"/api/v1/namespaces/{trial.namespace}", {"metadata": {"labels": labels}})
    headline = blamed(trial.start())
    assert "it can never start; the queue says: 0 of 4 pods have a node: FailedCreate: " in headline
    assert 'violates PodSecurity "restricted:latest": ' in headline


@pytest.fixture
def rack(kubernetes_lab: KubernetesLab) -> Iterator[Callable[[dict[str, str]], None]]:
    """Gives the nodes of a rack a taint besides their own, which goes at the end of the test."""
    paths = {
        f"/api/v1/nodes/{node['metadata']['name']}": node["spec"]["taints"]
        for node in rack_of(kubernetes_lab)
    }

    def give(taint: dict[str, str]) -> None:
        for path, own in paths.items():
            kubernetes_lab.api.merge(path, {"spec": {"taints": [*own, taint]}})

    yield give
    for path, own in paths.items():
        kubernetes_lab.api.merge(path, {"spec": {"taints": own}})


RACK = {"cloud.provider.com/topology-rack": "rack-00", "cloud.google.com/gke-nodepool": "a3mega-pool"}


def rack_of(lab: KubernetesLab) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = lab.api.get("/api/v1/nodes")["items"]
    return [node for node in found if RACK.items() <= node["metadata"]["labels"].items()]


def test_nodes_that_are_tainted_after_the_check(
    kubernetes_lab: KubernetesLab,
    namespace: str,
    kube_trial: MakeTrial,
    gate: Gate,
    rack: Callable[[dict[str, str]], None],
) -> None:
    rule = gate.on(f"POST {JOBSETS.format(namespace)}", HOLD)
    kubeconfig = str(gate.kubeconfig(user(kubernetes_lab, namespace)))
    keys = {"kubeconfig": kubeconfig, "node_selector": RACK}
    trial = kube_trial(keys=keys, limits=HOPELESS).start()
    assert rule.met.wait(GUARD)
    rack({"key": "repair", "value": "yes", "effect": "NoSchedule"})
    rule.let_go()
    headline = blamed(trial)
    assert "it can never start; the queue says: " in headline
    assert "repair" in headline


def test_a_pool_at_zero_is_refused_or_waited_for(kube_trial: MakeTrial) -> None:
    empty = {"node_selector": {"cloud.google.com/gke-nodepool": "none-yet"}}
    refused = kube_trial(keys=empty).start()
    result = refused.end()
    assert "4 nodes of 8 allocatable nvidia.com/gpu are needed" in result.case(CASE)["headline"], result.out
    assert refused.made() == []
    waits = kube_trial(keys={**empty, "autoscaled": True}, limits={"queue_minutes": 1}).start()
    headline = blamed(waits)
    assert "still queued after 1 minutes; the queue says: 0 of 4 pods have a node: " in headline


def test_a_mount_that_the_storage_denies(kubernetes_lab: KubernetesLab, kube_trial: MakeTrial) -> None:
    values = {"image": NO_MOUNT, "bucket": "lab-bucket"}
    trial = kube_trial(keys={"recipes": {"llama3_gke": {"values": values}}}, limits=HOPELESS).start()
    until(lambda: sum("nodeName" in pod["spec"] for pod in trial.items("pod")) == 4, "4 pods with nodes")
    pod = trial.items("pod")[3]["metadata"]
    why = 'MountVolume.SetUp failed for volume "job-logs" : rpc error: code = PermissionDenied desc = failed to get GCS bucket'
    now = datetime.now(UTC)
    kubernetes_lab.api.create(
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{pod['name']}.18", "namespace": trial.namespace},
            "involvedObject": {"kind": "Pod", **{key: pod[key] for key in ("name", "namespace", "uid")}},
            "type": "Warning",
            "reason": "FailedMount",
            "message": why,
            "count": 7,
            "firstTimestamp": f"{now - timedelta(seconds=40):%Y-%m-%dT%H:%M:%SZ}",
            "lastTimestamp": f"{now:%Y-%m-%dT%H:%M:%SZ}",
        }
    )
    headline = blamed(trial)
    said = f"the cluster says: 0 of 4 pods run: pod {pod['name']}: FailedMount: {why}"
    assert f"it can never start; {said}" in headline


def test_an_image_that_cannot_be_pulled(kube_trial: MakeTrial) -> None:
    values = {"image": NO_IMAGE, "bucket": "lab-bucket"}
    trial = kube_trial(keys={"recipes": {"llama3_gke": {"values": values}}}, limits=HOPELESS)
    headline = blamed(trial.start())
    # On a busy machine some pods have no node yet.
    assert re.search(
        r"it can never start; the (cluster|queue) says: (\d+ of 4 pods have a node: )?pod pm-", headline
    )
    assert f'ErrImagePull: failed to pull and unpack image "{NO_IMAGE}": not found' in headline


@pytest.fixture
def taint(kubernetes_lab: KubernetesLab) -> Iterator[Callable[..., None]]:
    """Taints a node so that its pods must go; mended afterwards."""
    tainted: list[tuple[str, Any]] = []

    def make(name: str, key: str = "node.kubernetes.io/out-of-service") -> None:
        path = f"/api/v1/nodes/{name}"
        before = kubernetes_lab.api.get(path)["spec"].get("taints", [])
        tainted.append((path, before))
        broken = {"key": key, "value": "nodeshutdown", "effect": "NoExecute"}
        kubernetes_lab.api.merge(path, {"spec": {"taints": [*before, broken]}})

    yield make
    for path, before in tainted:
        kubernetes_lab.api.merge(path, {"spec": {"taints": before}})


def test_a_node_that_fails_is_named(taint: Callable[..., None], kube_trial: MakeTrial) -> None:
    trial = kube_trial(hang_at=5).start()
    trial.until_steps(3)
    pod = trial.pod(rank=3)
    taint(pod["spec"]["nodeName"])
    headline = blamed(trial)
    assert f"pod {pod['metadata']['name']} on {pod['spec']['nodeName']}" in headline
    assert "DeletionByTaintManager" in headline


def test_a_node_that_dies_is_named(
    kubernetes_lab: KubernetesLab, taint: Callable[..., None], kube_trial: MakeTrial
) -> None:
    """Its kubelet ends no pod any more. Meanwhile the Job does not fail."""
    trial = kube_trial(hang_at=5, limits=HOPELESS).start()
    trial.until_steps(3)
    pod = trial.pod(rank=3)
    metadata, node = pod["metadata"], pod["spec"]["nodeName"]
    path = f"/api/v1/namespaces/{trial.namespace}/pods/{metadata['name']}"
    held = [*metadata["finalizers"], "lab/dead"]
    kubernetes_lab.api.merge(path, {"metadata": {"finalizers": held}})
    taint(node, "lab/unreachable")
    trial.until_said(
        f"it can never start; the queue says: 0 of 4 pods have a node: pod {metadata['name']} on {node} (DeletionByTaintManager"
    )
    kubernetes_lab.api.merge(path, {"metadata": {"finalizers": None}})
    assert "it can never start; the queue says: " in blamed(trial)


@pytest.mark.parametrize("how", ["evicted", "deleted"])
def test_a_pod_that_somebody_ends_is_named(
    kubernetes_lab: KubernetesLab, kube_trial: MakeTrial, how: str
) -> None:
    trial = kube_trial(hang_at=5).start()
    trial.until_steps(3)
    pod = trial.pod(rank=3)
    metadata = {key: pod["metadata"][key] for key in ("name", "namespace")}
    path = f"/api/v1/namespaces/{trial.namespace}/pods/{metadata['name']}"
    if how == "evicted":
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
        kubernetes_lab.api.post(f"{path}/eviction", eviction)
    else:
        kubernetes_lab.api.delete(path)
    headline = blamed(trial)
    assert f"pod {metadata['name']} on {pod['spec']['nodeName']}" in headline
    assert ("EvictionByEvictionAPI" if how == "evicted" else "it was deleted") in headline


def test_nobody_restarts_a_jobset(kubernetes_lab: KubernetesLab, kube_trial: MakeTrial) -> None:
    """The bound cannot be changed. Whoever deletes its Job gets another one, whose steps begin again."""
    trial = kube_trial(pace=1.3).hold(10).start()
    trial.until_steps(3)
    kubernetes_lab.set(trial.namespace)
    jobset = trial.jobset()
    path = f"{JOBSETS.format(trial.namespace)}/{jobset['metadata']['name']}"
    assert jobset["spec"]["failurePolicy"]["maxRestarts"] == 0
    with pytest.raises(ApiError):
        kubernetes_lab.api.merge(path, {"spec": {"failurePolicy": {"maxRestarts": 3}}})
    (job,) = trial.items("job")
    kubernetes_lab.api.delete(f"/apis/batch/v1/namespaces/{trial.namespace}/jobs/{job['metadata']['name']}")
    result = trial.end()
    case = result.case(CASE)
    # JobSet makes it anew: the first life, which was too slow, is not judged.
    assert case["verdict"] == "passed", result.out
    assert "the job was started 2 times; judged by its last attempt" in case["remarks"]
    assert (result.folder / CASE / "log.attempt-1.txt").exists()
    assert len(trial.made()) == 1


@pytest.fixture
def sidecars(kubernetes_lab: KubernetesLab, namespace: str) -> Iterator[None]:
    """Admission puts a sidecar into every pod of the namespace, as Istio does."""
    kind, meta = "admissionregistration.k8s.io/v1", {"name": f"sidecars-{namespace}"}
    label = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
    proxy = 'Object.spec.containers{name: "istio-proxy", image: "istio/proxyv2:1.30"}'
    mutation = f"Object{{spec: Object.spec{{containers: [{proxy}]}}}}"
    policy = {
        "apiVersion": kind,
        "kind": "MutatingAdmissionPolicy",
        "metadata": meta,
        "spec": {
            "matchConstraints": {"namespaceSelector": label, "resourceRules": [rule]},
            "reinvocationPolicy": "Never",
            "failurePolicy": "Fail",
            "mutations": [
                {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": mutation}}
            ],
        },
    }
    binding = {
        "apiVersion": kind,
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": meta,
        "spec": {"policyName": meta["name"], "matchResources": {"namespaceSelector": label}},
    }
    for document in (policy, binding):
        kubernetes_lab.api.create(document)
    trial = {
        "metadata": {"name": "trial", "namespace": namespace},
        "spec": {"containers": [{"name": "one", "image": "one"}]},
    }
    path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"

    def is_taken_up() -> bool:
        made = kubernetes_lab.api.post(path, trial)
        return len(made["spec"]["containers"]) == 2

    until(is_taken_up, "the policy is taken up")
    yield
    for kinds in ("mutatingadmissionpolicybindings", "mutatingadmissionpolicies"):
        kubernetes_lab.api.delete(f"/apis/{kind}/{kinds}/{meta['name']}")


@pytest.mark.usefixtures("sidecars")
@pytest.mark.parametrize(
    "knobs", [{}, {"crash_at": 7}, {"crash_at": 0}], ids=["whole", "crash", "crash at once"]
)
def test_a_sidecar_that_never_ends_holds_up_no_end(kube_trial: MakeTrial, knobs: dict[str, int]) -> None:
    trial = kube_trial(**knobs).hold(BEFORE_STEPS).start()
    pods = trial.until_there("pod", 4)
    assert [c["name"] for c in pods[0]["spec"]["containers"]][-1] == "istio-proxy"
    trial.let_go()
    result = trial.end()
    case = result.case(CASE)
    if not knobs:
        assert case["verdict"] == "passed", result.out
        assert any("the sidecar istio-proxy still runs" in remark for remark in case["remarks"])
        return
    assert case["verdict"] == "infrastructure", result.out
    assert re.search(r"pod pm-\S+ on gke-\S+: container workload ended with exit code 1 ", case["headline"])
    assert "the sidecar istio-proxy still runs" in case["headline"]


def test_a_jobset_that_a_finalizer_keeps_is_told(
    kubernetes_lab: KubernetesLab, kube_trial: MakeTrial
) -> None:
    trial = (
        kube_trial(pace=1.3, hang_at=30, limits={"cancel_seconds": 10})
        .hold(10)
        .start("--give-up-after", "20")
    )
    path = f"{JOBSETS.format(trial.namespace)}/{trial.jobset()['metadata']['name']}"
    kubernetes_lab.api.merge(path, {"metadata": {"finalizers": ["site/audit"]}})
    trial.let_go()
    try:
        trial.until_said("stays until its finalizers are removed: site/audit")
        trial.until_said("NOT confirmed (it stays until its finalizers are removed: site/audit)")
    finally:
        kubernetes_lab.api.merge(path, {"metadata": {"finalizers": None}})
    result = trial.end()
    assert result.case(CASE)["verdict"] == "too slow", result.out


def test_a_jobset_that_somebody_makes_anew_is_not_the_one_that_was_submitted(
    kubernetes_lab: KubernetesLab, kube_trial: MakeTrial
) -> None:
    """Deleted, and applied again from a copy, as by a tool that keeps a cluster as a repository says."""
    trial = kube_trial().hold(10).start()
    trial.until_steps(5)
    jobset, path = trial.jobset(), JOBSETS.format(trial.namespace)
    name = jobset["metadata"]["name"]
    metadata = {key: jobset["metadata"][key] for key in ("name", "namespace", "labels", "annotations")}
    kubernetes_lab.api.delete(f"{path}/{name}")
    until(lambda: trial.items("jobset") == [], "it is gone")
    kubernetes_lab.api.create({**jobset, "metadata": metadata})
    assert trial.process is not None
    result = finish(trial.process, trial.results)
    assert "ended CANCELLED" in result.case(CASE)["headline"]
    # It is somebody else's.
    assert [item["metadata"]["name"] for item in trial.items("jobset")] == [name]
    kubernetes_lab.api.delete(f"{path}/{name}")


def test_a_job_that_hangs_is_cancelled(kube_trial: MakeTrial) -> None:
    headline = blamed(kube_trial(hang_at=7, limits=STALL).start())
    assert "no new step for" in headline
    assert "the last was 7: it hangs; cancelled" in headline


def test_a_case_that_cannot_reach_its_band_is_given_up(kube_trial: MakeTrial) -> None:
    result = kube_trial(pace=1.3, hang_at=30).run("--give-up-after", "20")
    assert result.case(CASE)["verdict"] == "too slow", result.out
    assert "given up after step" in result.case(CASE)["headline"]


def test_the_cluster_itself_ends_a_job_at_its_limit(kube_trial: MakeTrial) -> None:
    # The cluster counts both from the beginning; on a busy machine the session's own bound for the queue must not come first.
    trial = kube_trial(hang_at=5, keys={"time_limit_minutes": 0.05}, limits={"queue_minutes": 1})
    headline = blamed(trial.start())
    assert "DeadlineExceeded" in headline
    # On a busy machine the limit may come before the containers run.
    assert "after step 5 of 0 to 49" in headline or "before its first step" in headline


# The log


Through = Callable[..., KubeTrial]


@pytest.fixture
def through(kubernetes_lab: KubernetesLab, namespace: str, kube_trial: MakeTrial, gate: Gate) -> Through:
    """A trial that asks the API server through the gate, and whose job is held after a step."""

    def make(hold: int, **knobs: Any) -> KubeTrial:
        kubeconfig = str(gate.kubeconfig(user(kubernetes_lab, namespace)))
        return kube_trial(keys={"kubeconfig": kubeconfig}, **knobs).hold(hold).start()

    return make


@contextmanager
def unwritten(log: Path) -> Iterator[None]:
    """The lab's runtime writes nothing into this file meanwhile."""
    with log.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def rotate(log: Path, kept: Callable[[list[bytes]], list[bytes]]) -> None:
    """What a kubelet that rotates leaves of a log: another file with these of its lines."""
    fresh = log.with_name("fresh")
    with unwritten(log):
        fresh.write_bytes(b"".join(kept(log.read_bytes().splitlines(keepends=True))))
        fresh.replace(log)


def steps_alone(lines: list[bytes]) -> list[bytes]:
    return [line for line in lines if b"global_step" in line]


def test_a_log_that_is_rotated_all_the_time_is_whole(
    kubernetes_lab: KubernetesLab, namespace: str, kube_trial: MakeTrial
) -> None:
    """Another file for every few steps; of each there is no more than the last steps a second after it was made."""
    trial = kube_trial(real_step=0.2).hold(40).start()
    trial.until_steps(3)

    def follows() -> int:
        return sum("follow=true" in entry["requestURI"] for entry in kubernetes_lab.requests(namespace))

    log, files, before = kubernetes_lab.log_of(trial.pod()), 0, follows()
    while not trial.jobset_ended():
        # As a kubelet does it, which has read the one before; the lab's runtime opens the new one with its next line.
        until(lambda: trial.jobset_ended() or kubernetes_lab.reads(log), "the kubelet follows it")
        with unwritten(log):
            log.rename(log.with_name(f"rotated.{files}"))
            log.touch()
        files += 1
        if files == 4:
            trial.let_go()
        time.sleep(0.5)
    result = trial.end()
    case = result.case(CASE)
    assert (result.status, case["verdict"], case["remarks"]) == (0, "passed", []), result.out
    assert follows() == before


def test_a_log_that_was_rotated_away_between_two_reads(
    kubernetes_lab: KubernetesLab, through: Through, gate: Gate
) -> None:
    trial = through(10)
    trial.until_steps(3)
    rule = gate.on("GET .*/log", CUT)
    gate.cut()
    log = kubernetes_lab.log_of(trial.pod())
    # The session has none of the steps behind the eleventh.
    trial.let_go()
    until(lambda: log.read_bytes().count(b"global_step") >= 50, "the last step")
    rotate(log, lambda lines: lines[-5:])
    rule.let_go()
    headline = blamed(trial)
    assert "rotated the log of pod" in headline
    assert "containerLogMaxSize" in headline


def test_no_step_is_judged_whose_run_told_what_it_is_in_lines_that_are_gone(
    kubernetes_lab: KubernetesLab, through: Through, gate: Gate
) -> None:
    trial = through(BEFORE_STEPS, socket_fallback=True)
    until(lambda: b"Logging to" in trial.collected(), "the first lines in the session")
    rule = gate.on("GET .*/log", CUT)
    gate.cut()
    log = kubernetes_lab.log_of(trial.pod())
    trial.let_go()
    until(lambda: log.read_bytes().count(b"global_step") >= 50, "the last step")
    rotate(log, steps_alone)
    rule.let_go()
    headline = blamed(trial)
    assert "every step was seen, but the kubelet rotated the log of pod" in headline
    assert "NCCL" not in trial.collected().decode()


def test_a_log_whose_first_lines_were_gone_before_anybody_read_them(
    kubernetes_lab: KubernetesLab, namespace: str, kube_trial: MakeTrial
) -> None:
    trial = kube_trial().hold(10).start()
    trial.until_steps(3)
    trial.kill()
    earlier = trial.collected()
    rotate(kubernetes_lab.log_of(trial.pod()), steps_alone)
    trial.let_go()
    result = trial.resume()
    assert result.case(CASE)["verdict"] == "infrastructure", result.out
    assert "rotated the first lines of pod" in result.case(CASE)["headline"]
    assert (result.folder / CASE / "log.earlier.txt").read_bytes() == earlier


def test_a_pod_that_is_gone_before_its_last_lines_were_read(
    kubernetes_lab: KubernetesLab, namespace: str, through: Through, gate: Gate
) -> None:
    trial = through(10)
    trial.until_steps(3)
    rule = gate.on("GET .*/log", CUT)
    gate.cut()
    trial.let_go()
    until(trial.jobset_ended, "the JobSet's end")
    name = trial.pod()["metadata"]["name"]
    kubernetes_lab.api.delete(f"/api/v1/namespaces/{namespace}/pods/{name}")
    until(lambda: name not in [pod["metadata"]["name"] for pod in trial.items("pod")], "the pod is gone")
    rule.let_go()
    headline = blamed(trial)
    # The pod or, while its end has not been heard of, its log.
    assert re.search(
        rf"pod {name}( that printed the steps)? is gone, and with it the rest of its log", headline
    )
