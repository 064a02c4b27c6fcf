"""The job: its queue, its nodes, its pods and its log, each broken as it happens on a cluster."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

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


def test_pods_that_find_no_node(kube_trial: MakeTrial) -> None:
    """A pool at zero nodes, which an autoscaler would fill."""
    empty = {"node_selector": {"cloud.google.com/gke-nodepool": "none-yet"}, "autoscaled": True}
    headline = blamed(kube_trial(keys=empty, limits={"queue_minutes": 0.5}).start())
    assert "still queued after 0.5 minutes; the queue says: 0 of 4 pods have a node: " in headline


# Nodes and pods


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
