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

from tests.lab.k8s.api import ApiError
from tests.lab.k8s.cluster import KubernetesLab
from tests.lab.k8s.gate import CUT, Gate
from tests.system.kube import CASE, user
from tests.system.kube_trial import JOBSETS, KubeTrial, MakeTrial
from tests.system.support import finish, until

QUEUE = {"queue": "a3-mega"}
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/namespaces/{}/workloads"
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


def test_pods_that_find_no_node(kube_trial: MakeTrial) -> None:
    """A pool at zero nodes, which an autoscaler would fill."""
    empty = {"node_selector": {"cloud.google.com/gke-nodepool": "none-yet"}, "autoscaled": True}
    headline = blamed(kube_trial(keys=empty, limits={"queue_minutes": 0.5}).start())
    assert "still queued after 0.5 minutes; the queue says: 0 of 4 pods have a node: " in headline


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
