"""A suspended job: who would let it go, and what is told and done if nobody will.

The workloads are as Kueue 0.19 writes them (pkg/controller/core/workload_controller.go, pkg/controller/jobframework).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fixtures.backends.kubernetes import kueue
from fixtures.backends.kubernetes.api import Refused
from fixtures.backends.kubernetes.jobset import JobSets
from fixtures.backends.kubernetes.kinds import JobKind
from fixtures.backends.kubernetes.kueue import Admissions
from fixtures.backends.kubernetes.pytorchjob import PyTorchJobs
from fixtures.backends.kubernetes.section import Kubernetes
from fixtures.backends.kubernetes.states import Seen, state_of
from plugins.base.errors import Denied, Unreachable
from plugins.record.job import JobState, Phase
from tests.unit import kubeapi

Object = dict[str, Any]
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads"


def suspended(kind: JobKind, queue: str) -> Object:
    spec: Object = {"suspend": True} if kind.name == "JobSet" else {"runPolicy": {"suspend": True}}
    labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    return {"metadata": {"name": "pm-1", "uid": "1", "labels": labels}, "spec": spec, "status": {}}


def workload(message: str, reason: str = "Inadmissible", owner: str = "1") -> Object:
    condition = {"type": "QuotaReserved", "status": "False", "reason": reason, "message": message}
    return {
        "metadata": {"name": "jobset-pm-1-abc", "uid": "w", "ownerReferences": [{"uid": owner}]},
        "spec": {"active": True},
        "status": {"conditions": [condition]},
    }


class Cluster(kubeapi.Memory):
    """A cluster with Kueue, and its one workload, if there is any."""

    def __init__(self) -> None:
        super().__init__()
        self.objects["/apis/kueue.x-k8s.io"] = {"versions": [{"version": "v1beta2"}]}
        self.clock = 0.0
        self._admissions: dict[Any, Admissions] = {}

    def has(self, *workloads: Object) -> None:
        names = [path for path in self.objects if path.startswith(WORKLOADS)]
        for path in names:
            del self.objects[path]
        self.objects |= {f"{WORKLOADS}/{item['metadata']['name']}": item for item in workloads}

    def look(self, at: float, *, queue: str = "", label: str = "", kind: JobKind | None = None) -> JobState:
        """The state of a suspended job so many seconds after it was first seen."""
        self.clock, kind, section = at, kind or JobSets(), Kubernetes(gpu="h100", queue=queue or None)
        made = self._admissions.setdefault((kind.name, queue, label), Admissions(self, section))  # type: ignore[arg-type]
        job = suspended(kind, label or queue)
        there = made.workload(job)
        state = state_of(kind, Seen(job, workload=there))
        assert (state.phase, state.raw) == (Phase.QUEUED, "Suspended")
        return made.explained(kind, job, state, there)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(kueue, "Informer", kubeapi.Watch)
    made = Cluster()
    monkeypatch.setattr(kueue, "time", SimpleNamespace(monotonic=lambda: 1000 + made.clock))
    return made


@pytest.mark.parametrize("kind", [JobSets(), PyTorchJobs()])
def test_kueue_that_manages_jobs_without_a_queue_name_never_admits_one(
    cluster: Cluster, kind: JobKind
) -> None:
    cluster.has(workload("LocalQueue  doesn't exist"))
    state = cluster.look(0, kind=kind)
    assert state.hopeless
    assert state.reason == (
        "Inadmissible: LocalQueue  doesn't exist; Kueue manages jobs without a queue name here: set `queue` in the site file "
        "(`kubectl get localqueues -n default`)"
    )
    # A later version of Kueue has other words.
    cluster.has(workload("no queue", reason="Misconfigured"))
    assert cluster.look(0, kind=kind).hopeless


def test_a_job_that_is_suspended_on_a_cluster_without_kueue_was_so_by_somebody(cluster: Cluster) -> None:
    del cluster.objects["/apis/kueue.x-k8s.io"]
    for seconds in (0, 1, 60):
        state = cluster.look(seconds)
        assert state.hopeless
        assert "the cluster has no Kueue" in state.reason
        assert "Kueue has not" not in state.reason
    assert cluster.asked == [("GET", "/apis/kueue.x-k8s.io")]


def test_a_job_without_a_workload_is_given_up_only_after_kueue_had_its_time(cluster: Cluster) -> None:
    cluster.has(workload("", owner="2"))
    assert cluster.look(0) == JobState(Phase.QUEUED, "Suspended", "Kueue has not made its Workload yet")
    state = cluster.look(15)
    assert state.hopeless
    assert "suspended JobSet pm-1 by hand" in state.reason
    assert "set `queue` in the site file" in state.reason


@pytest.mark.parametrize(
    ("kind", "framework"),
    [(JobSets(), "jobset.x-k8s.io/jobset"), (PyTorchJobs(), "kubeflow.org/pytorchjob")],
)
def test_kueue_without_its_integration_of_the_kind_is_told(
    cluster: Cluster, kind: JobKind, framework: str
) -> None:
    assert not cluster.look(0, queue="a3", kind=kind).hopeless
    state = cluster.look(15, queue="a3", kind=kind)
    assert state.hopeless
    assert state.reason.endswith(f"`integrations.frameworks` of its configuration has {framework}")


def test_a_job_that_kueue_looks_at_waits_however_long(cluster: Cluster) -> None:
    cluster.look(0, queue="a3")
    cluster.has(workload("couldn't assign flavors: insufficient unused quota", reason="Pending"))
    for seconds in (1, 3600, 80_000):
        assert not cluster.look(seconds, queue="a3").hopeless
    # Its workload is made anew.
    cluster.has()
    assert not cluster.look(80_001, queue="a3").hopeless


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


ASSIGN = "couldn't assign flavors to pod set main: insufficient"
SMALL = (
    f"{ASSIGN} quota for nvidia.com/gpu in flavor h100, previously considered podsets requests (0) + current podset request "
    "(128) > maximum capacity (64)"
)
TAKEN = f"{ASSIGN} unused quota for nvidia.com/gpu in flavor h100"


@pytest.mark.parametrize(
    ("workload", "reason", "hopeless"),
    [
        (evicted("Preempted", PREEMPTED, PREEMPTED), f"Preempted: {PREEMPTED}", False),
        (
            evicted("Preempted", PREEMPTED, SMALL),
            f"Pending: {SMALL}; it was evicted before: Preempted: {PREEMPTED}",
            True,
        ),
        # Others use it now.
        (evicted("Preempted", PREEMPTED, TAKEN), f"Pending: {TAKEN}; it was", False),
        # So it was before, whatever an admission check did not find then.
        (evicted("AdmissionCheck", "the node pool is not found", TAKEN), f"Pending: {TAKEN}; it was", False),
    ],
    ids=["preempted", "too-small", "in-use", "checked"],
)
def test_an_eviction_hides_no_quota_that_became_too_small(
    cluster: Cluster, workload: Object, reason: str, hopeless: bool
) -> None:
    """fitsResourceQuota in pkg/scheduler/flavorassigner/flavorassigner.go of Kueue 0.19 has the words of the quota."""
    cluster.has(workload)
    state = cluster.look(0, queue="a3")
    assert state.reason.startswith(reason)
    assert state.hopeless is hopeless


@pytest.mark.parametrize("drains", [False, True])
@pytest.mark.parametrize("words", ["LocalQueue a3 is inactive", "ClusterQueue a3 is stopped"])
def test_a_queue_that_is_held_is_waited_for(cluster: Cluster, words: str, *, drains: bool) -> None:
    """With `stopPolicy`, Hold or HoldAndDrain: getQueueBlocker and reconcileOnClusterQueueActiveState in
    pkg/controller/core/workload_controller.go of Kueue 0.19.
    """
    cluster.has(workload(words))
    if drains:
        cluster.has(evicted("ClusterQueueStopped", "The ClusterQueue is stopped", words))
    for seconds in (0, 3600, 80_000):
        state = cluster.look(seconds, queue="a3")
        assert not state.hopeless
        assert (
            f"{words} (its `stopPolicy` holds it, or it lacks a flavor: ask the administrator" in state.reason
        )


def test_a_default_queue_of_the_namespace_is_waited_for(cluster: Cluster) -> None:
    """Kueue sets the label `default` on a job without one, if there is such a local queue."""
    cluster.has(workload("insufficient unused quota", reason="Pending"))
    state = cluster.look(3600, label="default")
    assert (state.reason, state.hopeless) == ("Pending: insufficient unused quota", False)


@pytest.mark.parametrize("error", [Denied("workloads is forbidden"), Refused(403, "workloads is forbidden")])
def test_a_user_who_may_not_see_workloads_is_told_so(cluster: Cluster, error: Exception) -> None:
    cluster.refuse("LIST", WORKLOADS, error)
    state = cluster.look(0)
    assert state.hopeless
    assert "this user may not list Kueue's workloads (workloads is forbidden); set `queue`" in state.reason
    # With a label somebody may admit it, and it is waited for.
    assert not cluster.look(0, label="default").hopeless
    with pytest.raises(Denied):
        cluster.look(0, queue="a3")


def test_a_cluster_that_cannot_be_asked_says_nothing(cluster: Cluster) -> None:
    cluster.refuse("LIST", WORKLOADS, Unreachable("gone"))
    with pytest.raises(Unreachable):
        cluster.look(0)
