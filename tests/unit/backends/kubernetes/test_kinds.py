"""JobSets and PyTorchJobs: which pod tells, when a new life begins, and what bounds hold without us."""

from __future__ import annotations

from typing import Any

import pytest

from fixtures.backends.base import LogPlace
from fixtures.backends.kubernetes.facts import Pod
from fixtures.backends.kubernetes.jobset import JobSets
from fixtures.backends.kubernetes.pytorchjob import PyTorchJobs
from fixtures.backends.kubernetes.section import Kubernetes
from fixtures.backends.kubernetes.states import Seen, state_of
from fixtures.backends.section import Limits
from plugins.record.job import Phase

SECTION = Kubernetes(
    gpu="h100", queue="gpus", time_limit_minutes=30, keep_minutes=5, limits=Limits(queue_minutes=60)
)


def pod(name: str, created: str = "2026-01-01T00:00:00Z", uid: str = "", **labels: str) -> Pod:
    metadata = {"name": name, "uid": uid or name, "labels": labels, "creationTimestamp": created}
    return Pod(
        {"metadata": metadata, "spec": {"nodeName": f"node-of-{name}"}, "status": {"phase": "Running"}}
    )


def rank(name: str, index: str, created: str, restarts: str = "0") -> Pod:
    labels = {
        "batch.kubernetes.io/job-completion-index": index,
        "jobset.sigs.k8s.io/restart-attempt": restarts,
    }
    return pod(name, created, **labels)


def job(*conditions: tuple[str, str], **spec: Any) -> dict[str, Any]:
    said = [{"type": kind, "status": status, "reason": kind, "message": "m"} for kind, status in conditions]
    replicas = {"Master": {"replicas": 1, "template": {}}, "Worker": {"replicas": 2, "template": {}}}
    spec = {"pytorchReplicaSpecs": replicas, **spec}
    return {"metadata": {"name": "pm-x", "labels": {}}, "spec": spec, "status": {"conditions": said}}


def test_a_jobset_speaks_by_the_newest_pod_of_rank_0() -> None:
    kind = JobSets()
    pods = [
        rank("a-0", "0", "2026-01-01T00:00:00Z"),
        rank("b-0", "0", "2026-01-01T00:01:00Z"),
        rank("b-1", "1", "2026-01-01T00:02:00Z"),
    ]
    assert kind.log_pods(pods) == [pods[1]]
    assert kind.log_pods(pods[2:]) == []
    going = rank("c-0", "0", "2026-01-01T00:01:00Z")
    going.item["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:00Z"
    for both in ([going, pods[1]], [pods[1], going]):
        assert kind.log_pods(both) == [pods[1]]


def test_a_jobsets_other_pod_is_another_life() -> None:
    kind = JobSets()
    first = kind.place(rank("a-0", "0", ""), LogPlace())
    assert first == LogPlace("a-0", attempt=1)
    assert kind.place(rank("a-0", "0", ""), LogPlace("a-0", 7, 1)) == LogPlace("a-0", 7, 1)
    assert kind.place(rank("b-0", "0", ""), LogPlace("a-0", 7, 1)) == LogPlace("b-0", attempt=2)
    assert kind.place(rank("d-0", "0", "", restarts="3"), LogPlace()) == LogPlace("d-0", attempt=4)
    # A later session has the number of the attempt, and not the pod.
    assert kind.place(rank("b-0", "0", ""), LogPlace(attempt=2)) == LogPlace("b-0", attempt=2)


def test_a_pytorchjob_speaks_by_the_last_name_as_text() -> None:
    kind = PyTorchJobs()
    pods = [pod("gpt-master-0"), *(pod(f"gpt-worker-{number}") for number in range(63))]
    names = [one.name for one in kind.log_pods(pods)]
    assert names[0] == "gpt-worker-9"
    assert names[-1] == "gpt-master-0"
    assert len(names) == 64


def test_a_pytorchjobs_pod_of_the_same_name_is_another_life() -> None:
    kind = PyTorchJobs()
    old, new = pod("w-9", uid="1"), pod("w-9", "2026-01-01T00:05:00Z", uid="2")
    assert kind.log_pods([new, old]) == [new]
    first = kind.place(old, LogPlace())
    assert first == LogPlace("w-9 1", attempt=1)
    assert kind.place(old, first) == first
    read = LogPlace("w-9 1", 70, 1, "stamp")
    assert kind.place(new, read) == LogPlace("w-9 2", 0, 2)
    # The search found the steps elsewhere: the same life says more.
    assert kind.place(pod("m-0", uid="3"), read) == LogPlace("m-0 3", 70, 1)
    assert kind.place(new, LogPlace(attempt=2)) == LogPlace("w-9 2", 0, 2)


def test_a_pytorchjob_runs_on_while_its_workers_do() -> None:
    kind, succeeded = PyTorchJobs(), job(("Running", "False"), ("Succeeded", "True"))
    busy = [pod("m-0"), pod("w-0"), pod("w-1")]
    busy[0].item["status"]["phase"] = "Succeeded"
    state = state_of(kind, Seen(succeeded, busy))
    assert (state.phase, state.raw) == (Phase.RUNNING, "Succeeded")
    assert state.reason == "the master has ended, 2 of 3 pods still run"
    for one in busy:
        one.item["status"]["phase"] = "Succeeded"
    assert state_of(kind, Seen(succeeded, busy)).phase is Phase.SUCCEEDED


@pytest.mark.parametrize(
    ("item", "phase", "raw"),
    [
        (job(("Created", "True")), Phase.QUEUED, "Pending"),
        (job(("Created", "True"), ("Suspended", "True")), Phase.QUEUED, "Suspended"),
        (job(runPolicy={"suspend": True}), Phase.QUEUED, "Suspended"),
        (job(("Running", "False"), ("Failed", "True")), Phase.FAILED, "Failed"),
    ],
)
def test_the_states_of_a_pytorchjob(item: dict[str, Any], phase: Phase, raw: str) -> None:
    state = state_of(PyTorchJobs(), Seen(item))
    assert (state.phase, state.raw) == (phase, raw)


def test_a_pytorchjob_is_bounded_on_the_cluster() -> None:
    # With a limit the training operator before 1.9.4 deletes the pods of a job that fails, logs and all.
    item = job(runPolicy={"backoffLimit": 3})
    for replica in item["spec"]["pytorchReplicaSpecs"].values():
        replica["restartPolicy"] = "OnFailure"
    PyTorchJobs().bound(item, SECTION)
    assert item["spec"]["runPolicy"] == {
        "activeDeadlineSeconds": 90 * 60,
        "ttlSecondsAfterFinished": 300,
        "cleanPodPolicy": "None",
        "suspend": True,
    }
    assert {r["restartPolicy"] for r in item["spec"]["pytorchReplicaSpecs"].values()} == {"Never"}


def test_a_jobset_is_bounded_on_the_cluster() -> None:
    child: dict[str, Any] = {"template": {"spec": {}}, "ttlSecondsAfterFinished": 43200, "backoffLimit": 6}
    item: dict[str, Any] = {
        "spec": {"replicatedJobs": [{"name": "workload", "template": {"spec": child}}]},
        "metadata": {},
    }
    JobSets().bound(item, SECTION)
    assert item["spec"]["failurePolicy"] == {"maxRestarts": 0}
    assert child["activeDeadlineSeconds"] == 90 * 60
    assert child["backoffLimit"] == 0
    assert "ttlSecondsAfterFinished" not in child
