"""A suspended job: who would let it go, and what is told and done if nobody will.

The workloads are as Kueue 0.19 writes them (pkg/controller/core/workload_controller.go, pkg/controller/jobframework).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fixtures.backends.kubernetes import kueue
from fixtures.backends.kubernetes.api import Refused
from fixtures.backends.kubernetes.informer import Copy
from fixtures.backends.kubernetes.jobset import JobSets
from fixtures.backends.kubernetes.kinds import JobKind
from fixtures.backends.kubernetes.kueue import Admissions
from fixtures.backends.kubernetes.pytorchjob import PyTorchJobs
from fixtures.backends.kubernetes.section import Kubernetes
from fixtures.backends.kubernetes.states import Seen, state_of
from plugins.base.errors import Denied, Unreachable
from plugins.record.job import JobState, Phase

Object = dict[str, Any]


class Cluster:
    """Stands in for the API and its watches: a cluster with or without Kueue, and its workloads."""

    def __init__(self) -> None:
        self.kueue = True
        self.workloads: dict[str, Object] = {}
        self.error: Exception | None = None
        self.asked: list[str] = []

    def find(self, path: str) -> Object | None:
        self.asked.append(path)
        return {"versions": [{"version": "v1beta2"}]} if self.kueue else None

    def version(self, group: str, known: Any) -> str:
        return "v1beta2"

    def look(self) -> Copy:
        if self.error is not None:
            raise self.error
        return Copy(self.workloads, {}, {})

    def close(self) -> None:
        """As a watch is closed."""


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(kueue, "Informer", lambda api, path, selector: made)
    return made


def suspended(kind: JobKind, queue: str) -> Object:
    spec: Object = {"suspend": True} if kind.name == "JobSet" else {"runPolicy": {"suspend": True}}
    labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    return {"metadata": {"name": "pm-1", "uid": "1", "labels": labels}, "spec": spec, "status": {}}


def workload(message: str, reason: str = "Inadmissible", owner: str = "1") -> Object:
    condition = {"type": "QuotaReserved", "status": "False", "reason": reason, "message": message}
    return {
        "metadata": {"name": "jobset-pm-1-abc", "ownerReferences": [{"uid": owner}]},
        "spec": {"active": True},
        "status": {"conditions": [condition]},
    }


Look = Callable[..., JobState]


@pytest.fixture
def look(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Look:
    """The state of a suspended job so many seconds after it was first seen."""
    made: dict[Any, Admissions] = {}

    def at(seconds: float, *, queue: str = "", label: str = "", kind: JobKind | None = None) -> JobState:
        kind, section = kind or JobSets(), Kubernetes(gpu="h100", queue=queue or None)
        admissions = made.setdefault((kind.name, queue, label), Admissions(cluster, section))  # type: ignore[arg-type]
        monkeypatch.setattr("fixtures.backends.kubernetes.kueue.time.monotonic", lambda: 1000 + seconds)
        job = suspended(kind, label or queue)
        there = admissions.workload(job)
        state = state_of(kind, Seen(job, workload=there))
        assert (state.phase, state.raw) == (Phase.QUEUED, "Suspended")
        return admissions.explained(kind, job, state, there)

    return at


@pytest.mark.parametrize("kind", [JobSets(), PyTorchJobs()])
def test_kueue_that_manages_jobs_without_a_queue_name_never_admits_one(
    cluster: Cluster, look: Look, kind: JobKind
) -> None:
    cluster.workloads = {"w": workload("LocalQueue  doesn't exist")}
    state = look(0, kind=kind)
    assert state.hopeless
    assert state.reason == (
        "Inadmissible: LocalQueue  doesn't exist; Kueue manages jobs without a queue name here: set `queue` in the site file "
        "(`kubectl get localqueues -n default`)"
    )
    # A later version of Kueue has other words.
    cluster.workloads = {"w": workload("no queue", reason="Misconfigured")}
    assert look(0, kind=kind).hopeless


def test_a_job_that_is_suspended_on_a_cluster_without_kueue_was_so_by_somebody(
    cluster: Cluster, look: Look
) -> None:
    cluster.kueue = False
    for seconds in (0, 1, 60):
        state = look(seconds)
        assert state.hopeless
        assert "the cluster has no Kueue" in state.reason
        assert "Kueue has not" not in state.reason
    assert cluster.asked == ["/apis/kueue.x-k8s.io"]


def test_a_job_without_a_workload_is_given_up_only_after_kueue_had_its_time(
    cluster: Cluster, look: Look
) -> None:
    cluster.workloads = {"w": workload("", owner="2")}
    assert look(0) == JobState(Phase.QUEUED, "Suspended", "Kueue has not made its Workload yet")
    state = look(15)
    assert state.hopeless
    assert "suspended JobSet pm-1 by hand" in state.reason
    assert "set `queue` in the site file" in state.reason


@pytest.mark.parametrize(
    ("kind", "framework"),
    [(JobSets(), "jobset.x-k8s.io/jobset"), (PyTorchJobs(), "kubeflow.org/pytorchjob")],
)
def test_kueue_without_its_integration_of_the_kind_is_told(look: Look, kind: JobKind, framework: str) -> None:
    assert not look(0, queue="a3", kind=kind).hopeless
    state = look(15, queue="a3", kind=kind)
    assert state.hopeless
    assert state.reason.endswith(f"`integrations.frameworks` of its configuration has {framework}")


def test_a_job_that_kueue_looks_at_waits_however_long(cluster: Cluster, look: Look) -> None:
    look(0, queue="a3")
    cluster.workloads = {
        "w": workload("couldn't assign flavors: insufficient unused quota", reason="Pending")
    }
    for seconds in (1, 3600, 80_000):
        assert not look(seconds, queue="a3").hopeless
    # Its workload is made anew.
    cluster.workloads = {}
    assert not look(80_001, queue="a3").hopeless


def evicted(reason: str, message: str, later: str) -> Object:
    """A workload that Kueue has evicted; `later` is why it did not reserve its quota again.

    `Evict` of pkg/workload/evict/evict.go of Kueue 0.19 sets the condition, which stays until the next reservation.
    """
    made = workload(later, reason="Pending")
    condition = {"type": "Evicted", "status": "True", "reason": reason, "message": message}
    made["status"]["conditions"].insert(0, condition)
    return made


PREEMPTED = (
    "Preempted to accommodate a workload (UID: 5, JobUID: 6) due to prioritization in the ClusterQueue"
)


def test_an_eviction_hides_no_quota_that_became_too_small(cluster: Cluster, look: Look) -> None:
    """fitsResourceQuota in pkg/scheduler/flavorassigner/flavorassigner.go of Kueue 0.19 has the words of the quota."""
    cluster.workloads = {"w": evicted("Preempted", PREEMPTED, PREEMPTED)}
    state = look(0, queue="a3")
    assert (state.reason, state.hopeless) == (f"Preempted: {PREEMPTED}", False)
    small = (
        "couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in flavor h100, previously considered "
        "podsets requests (0) + current podset request (128) > maximum capacity (64)"
    )
    cluster.workloads = {"w": evicted("Preempted", PREEMPTED, small)}
    state = look(0, queue="a3")
    assert state.hopeless
    assert state.reason == f"Pending: {small}; it was evicted before: Preempted: {PREEMPTED}"
    # Others use it now.
    taken = (
        "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor h100"
    )
    cluster.workloads = {"w": evicted("Preempted", PREEMPTED, taken)}
    state = look(0, queue="a3")
    assert not state.hopeless
    assert state.reason.startswith(f"Pending: {taken}; it was")
    # So it was before, whatever an admission check did not find then.
    cluster.workloads = {"w": evicted("AdmissionCheck", "the node pool is not found", taken)}
    assert not look(0, queue="a3").hopeless


@pytest.mark.parametrize("drains", [False, True])
@pytest.mark.parametrize("words", ["LocalQueue a3 is inactive", "ClusterQueue a3 is stopped"])
def test_a_queue_that_is_held_is_waited_for(
    cluster: Cluster, look: Look, words: str, *, drains: bool
) -> None:
    """With `stopPolicy`, Hold or HoldAndDrain: getQueueBlocker and reconcileOnClusterQueueActiveState in
    pkg/controller/core/workload_controller.go of Kueue 0.19.
    """
    cluster.workloads = {"w": workload(words)}
    if drains:
        cluster.workloads = {"w": evicted("ClusterQueueStopped", "The ClusterQueue is stopped", words)}
    for seconds in (0, 3600, 80_000):
        state = look(seconds, queue="a3")
        assert not state.hopeless
        assert (
            f"{words} (its `stopPolicy` holds it, or it lacks a flavor: ask the administrator" in state.reason
        )


def test_a_default_queue_of_the_namespace_is_waited_for(cluster: Cluster, look: Look) -> None:
    """Kueue sets the label `default` on a job without one, if there is such a local queue."""
    cluster.workloads = {"w": workload("insufficient unused quota", reason="Pending")}
    state = look(3600, label="default")
    assert (state.reason, state.hopeless) == ("Pending: insufficient unused quota", False)


@pytest.mark.parametrize("error", [Denied("workloads is forbidden"), Refused(403, "workloads is forbidden")])
def test_a_user_who_may_not_see_workloads_is_told_so(cluster: Cluster, look: Look, error: Exception) -> None:
    cluster.error = error
    state = look(0)
    assert state.hopeless
    assert "this user may not list Kueue's workloads (workloads is forbidden); set `queue`" in state.reason
    # With a label somebody may admit it, and it is waited for.
    assert not look(0, label="default").hopeless
    with pytest.raises(Denied):
        look(0, queue="a3")


def test_a_cluster_that_cannot_be_asked_says_nothing(cluster: Cluster, look: Look) -> None:
    cluster.error = Unreachable("gone")
    with pytest.raises(Unreachable):
        look(0)
