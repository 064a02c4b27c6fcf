"""What JobSets, pods and workloads say, as phases: every state of the table, and those that no table has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from fixtures.backends.base import ClusterTimes
from fixtures.backends.kubernetes import blame, facts, states
from fixtures.backends.kubernetes.blame import Broken, first_deleted
from fixtures.backends.kubernetes.facts import UNSEEN, Pod
from fixtures.backends.kubernetes.jobset import JobSets
from fixtures.backends.kubernetes.objects import LONGEST_NAME, object_name
from fixtures.backends.kubernetes.pytorchjob import PyTorchJobs
from fixtures.backends.kubernetes.states import Seen
from plugins.base.words import nodes_in_words
from plugins.record.job import JobState, Phase

WHEN = "2026-11-21T09:00:00Z"

Items = Iterable[dict[str, Any]]


def state_of_jobset(
    jobset: dict[str, Any],
    pods: Items,
    workload: dict[str, Any] | None,
    expected: int,
    child: dict[str, Any] | None = None,
) -> JobState:
    jobset["spec"]["replicatedJobs"] = [{"name": "w", "template": {"spec": {"parallelism": expected}}}]
    return states.state_of(JobSets(), Seen(jobset, list(map(Pod, pods)), workload, child))


def state_behind_sidecars(pods: Items, container: str, expected: int) -> JobState | None:
    return states.state_behind_sidecars(JobSets(), list(map(Pod, pods)), container, expected)


def broken(pods: Items) -> list[Broken]:
    return blame.broken(map(Pod, pods))


def broken_behind_sidecars(pods: Items, container: str) -> list[Broken]:
    return blame.broken_behind_sidecars(map(Pod, pods), container)


def images_of(pods: Items, container: str) -> tuple[str, ...]:
    return facts.images_of(list(map(Pod, pods)), container)


def times_of(jobset: dict[str, Any], pods: Items) -> ClusterTimes:
    return states.times_of(JobSets(), jobset, list(map(Pod, pods)))


def jobset(*conditions: tuple[str, str, str], suspend: bool = False, **status: Any) -> dict[str, Any]:
    said = [
        {"type": kind, "status": "True", "reason": reason, "message": message}
        for kind, reason, message in conditions
    ]
    return {
        "metadata": {"name": "pm-x"},
        "spec": {"suspend": suspend},
        "status": {"conditions": said, **status},
    }


def pod(number: int, phase: str = "Running", node: str = "node-{}", **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": f"pod-{number}"},
        "spec": {"nodeName": node.format(number)} if node else {},
        "status": {"phase": phase, **status},
    }


def ended(code: int, reason: str, at: str, name: str = "workload") -> dict[str, Any]:
    return {"name": name, "state": {"terminated": {"exitCode": code, "reason": reason, "finishedAt": at}}}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"name": "workload", "state": {"waiting": {"reason": reason, "message": message}}}


def workload(kind: str, status: str, reason: str, message: str) -> dict[str, Any]:
    return {
        "status": {"conditions": [{"type": kind, "status": status, "reason": reason, "message": message}]}
    }


def test_completed_is_the_clusters_opinion_only() -> None:
    state = state_of_jobset(jobset(("Completed", "AllJobsCompleted", "")), [pod(0, "Succeeded")], None, 1)
    assert (state.phase, state.raw, state.nodes) == (Phase.SUCCEEDED, "Completed", "node-0")


def test_a_failure_blames_the_pod_that_failed_first() -> None:
    pods = [
        pod(0),
        pod(2, "Failed", containerStatuses=[ended(1, "Error", "2026-11-21T09:00:09Z")]),
        pod(1, "Failed", containerStatuses=[ended(137, "OOMKilled", "2026-11-21T09:00:05Z")]),
    ]
    state = state_of_jobset(jobset(("Failed", "ReachedMaxRestarts", "too often")), pods, None, 3)
    assert (state.phase, state.nodes, state.exit_code) == (Phase.FAILED, "node-1", "137")
    assert state.reason == "pod pod-1 on node-1: container workload ended with exit code 137 (OOMKilled)"


PROXY = {"name": "istio-proxy", "state": {"running": {"startedAt": WHEN}}}


def beside(
    number: int, *statuses: dict[str, Any], restarts: str = "Never", gone: bool = False
) -> dict[str, Any]:
    """A pod with a sidecar that never ends."""
    shown = pod(number, containerStatuses=[*statuses, PROXY])
    shown["spec"]["restartPolicy"] = restarts
    if gone:
        shown["metadata"]["deletionTimestamp"] = WHEN
    return shown


def failed_without_sidecar(number: int) -> dict[str, Any]:
    shown = pod(number, "Failed", containerStatuses=[ended(1, "Error", WHEN)])
    shown["spec"]["restartPolicy"] = "Never"
    return shown


@pytest.mark.parametrize("restarts", ["Never", "OnFailure"])
def test_the_end_of_what_trains_is_the_end_beside_a_sidecar(restarts: str) -> None:
    pods = [beside(number, ended(0, "Completed", WHEN), restarts=restarts) for number in range(2)]
    state = state_behind_sidecars(pods, "workload", 2)
    assert state is not None
    assert (state.phase, state.raw, state.exit_code, state.nodes) == (
        Phase.SUCCEEDED,
        "Completed",
        "0",
        "node-0, node-1",
    )
    assert state.reason == "container workload of every pod has ended; the sidecar istio-proxy still runs"


def test_what_failed_first_beside_a_sidecar_is_named() -> None:
    pods = [
        beside(0, {"name": "workload", "state": {"running": {"startedAt": WHEN}}}),
        beside(1, ended(134, "Error", "2026-11-21T09:00:09Z")),
        beside(2, ended(1, "Error", "2026-11-21T09:00:05Z")),
    ]
    state = state_behind_sidecars(pods, "workload", 3)
    assert state is not None
    assert (state.phase, state.nodes, state.exit_code) == (Phase.FAILED, "node-2", "1")
    assert state.reason == (
        "pod pod-2 on node-2: container workload ended with exit code 1 (the sidecar istio-proxy still runs)"
    )
    assert [one.pod for one in broken_behind_sidecars(pods, "workload")] == ["pod-2", "pod-1"]


@pytest.mark.parametrize(
    "pods",
    [
        [],
        [beside(0, ended(0, "Completed", WHEN))],  # of two
        [beside(0, ended(0, "Completed", WHEN)), beside(1, waiting("ContainerCreating"))],
        [beside(0, ended(0, "Completed", WHEN)), beside(1, ended(0, "Completed", WHEN), gone=True)],
        [beside(0, ended(1, "Error", WHEN), restarts="OnFailure")],
        [beside(number, ended(0, "Completed", WHEN), restarts="Always") for number in range(2)],
        [beside(number, ended(1, "Error", WHEN, name="log-shipper")) for number in range(2)],
        [pod(0, "Failed", containerStatuses=[ended(1, "Error", WHEN)])],  # its object will say so
        [beside(0, ended(0, "Completed", WHEN)), failed_without_sidecar(1)],
    ],
)
def test_what_still_trains_beside_a_sidecar_or_trains_again_has_not_ended(pods: list[dict[str, Any]]) -> None:
    assert state_behind_sidecars(pods, "workload", 2) is None


def test_a_failure_without_a_failed_pod_says_what_the_jobset_says() -> None:
    state = state_of_jobset(jobset(("Failed", "FailedJobs", "DeadlineExceeded")), [], None, 2)
    assert (state.phase, state.reason) == (Phase.FAILED, "FailedJobs: DeadlineExceeded")


def test_a_pod_that_the_cluster_took_away_is_named_with_its_reason() -> None:
    taint = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "DeletionByTaintManager",
        "message": "unreachable",
    }
    (one,) = broken([pod(0), pod(1, "Failed", conditions=[taint])])
    assert str(one) == "pod pod-1 on node-1 (DeletionByTaintManager: unreachable)"


def deleted(pod: dict[str, Any], until: str, grace: int = 30) -> dict[str, Any]:
    """As it is when its end was asked for: the stamp is of the end of its grace period."""
    metadata = {**pod["metadata"], "deletionTimestamp": until, "deletionGracePeriodSeconds": grace}
    return {**pod, "metadata": metadata}


def test_pods_that_were_deleted_for_one_that_failed_are_not_to_blame() -> None:
    culprit = pod(0, "Failed", containerStatuses=[ended(1, "Error", "2026-11-21T09:00:00Z")])
    # A kubelet makes those Failed as well, by the signal that ended them; their clocks need not agree to the second.
    others = [
        deleted(
            pod(number, "Failed", containerStatuses=[ended(code, "Error", f"2026-11-21T09:00:0{number}Z")]),
            "2026-11-21T09:00:31Z",
        )
        for number, code in ((1, 137), (2, 143))
    ]
    silent = deleted(pod(3, "Failed"), "2026-11-21T09:00:31Z")
    assert [one.pod for one in broken([*others, silent, culprit])] == ["pod-0"]
    assert state_of_jobset(FAILED, [*others, culprit], None, 3).nodes == "node-0"
    assert broken(others) == []


def test_a_pod_that_was_deleted_for_another_one_is_not_to_blame_if_its_nodes_clock_is_behind() -> None:
    culprit = pod(0, "Failed", containerStatuses=[ended(1, "Error", "2026-11-21T09:00:00Z")])
    killed = ended(143, "Error", "2026-11-21T08:00:02Z")
    behind = deleted(pod(1, "Failed", containerStatuses=[killed]), "2026-11-21T09:00:31Z")
    assert broken([behind, culprit])[0].pod == "pod-0"
    assert state_of_jobset(FAILED, [behind, culprit], None, 2).nodes == "node-0"


def test_a_pod_that_failed_before_it_was_deleted_is_to_blame() -> None:
    failed = pod(0, "Failed", containerStatuses=[ended(1, "Error", "2026-11-21T09:00:00Z")])
    evicted = pod(1, "Failed", reason="Evicted", message="The node was low on resource: memory.")
    gone = [
        deleted(failed, "2026-11-21T09:00:31Z"),
        deleted(evicted, "2026-11-21T09:00:31Z"),
        deleted(failed, UNSEEN),
        deleted(failed, "2026-11-21T09:00:01Z", grace=0),
    ]
    assert [len(broken([one])) for one in gone] == [1, 1, 1, 1]


def test_a_container_that_crashed_and_was_started_again_is_to_blame() -> None:
    """With the restart policy OnFailure a Job counts restarts: beyond its `backoffLimit` it deletes all of its pods, as they run
    (kubernetes pkg/controller/job/job_controller.go, pastBackoffLimitOnFailure).
    """
    crash = ended(137, "OOMKilled", "2026-11-21T09:00:00Z")["state"]
    again = {
        "name": "workload",
        "state": {"running": {"startedAt": "2026-11-21T09:00:01Z"}},
        "lastState": crash,
    }
    runs = {"name": "workload", "state": {"running": {"startedAt": "2026-11-21T08:00:00Z"}}, "lastState": {}}
    pods = [
        deleted(pod(number, containerStatuses=[status]), "2026-11-21T09:00:31Z")
        for number, status in enumerate((runs, again, runs))
    ]
    (one,) = broken(pods)
    assert str(one) == "pod pod-1 on node-1: container workload ended with exit code 137 (OOMKilled)"
    # By the signal that ended the pod it did not fail, but before.
    signal = ended(143, "Error", "2026-11-21T09:00:02Z")["state"]
    final = deleted(pod(1, "Failed", containerStatuses=[{**again, "state": signal}]), "2026-11-21T09:00:31Z")
    assert broken([final]) == [one]
    # While its pod goes on, nothing has failed.
    assert broken([pod(1, containerStatuses=[again])]) == []


FAILED = jobset(("Failed", "ReachedMaxRestarts", "too often"))


def test_a_kubelet_that_ended_a_pod_tells_why_whatever_its_containers_ended_with() -> None:
    """As its `activeDeadlineSeconds` ends it."""
    late = ended(143, "Error", "2026-11-21T09:00:01Z")
    words = "Pod was active on the node longer than the specified deadline"
    limit = pod(0, "Failed", reason="DeadlineExceeded", message=words, containerStatuses=[late])
    state = state_of_jobset(FAILED, [limit, deleted(pod(1), "2026-11-21T09:00:31Z")], None, 2)
    assert state.reason == f"pod pod-0 on node-0 (DeadlineExceeded, {words})"
    # One that failed before it is to blame.
    crashed = pod(1, "Failed", containerStatuses=[ended(1, "Error", WHEN)])
    assert [one.pod for one in broken([limit, crashed])] == ["pod-1", "pod-0"]


@pytest.mark.parametrize(
    ("reason", "message", "raw"),
    [
        (
            "PreemptionByScheduler",
            "default-scheduler: preempting to accommodate a higher priority pod",
            "PREEMPTED",
        ),
        (
            "TerminationByKubelet",
            "Pod was preempted by Kubelet to accommodate a critical pod.",
            "PREEMPTED",
        ),
        ("TerminationByKubelet", "Pod was terminated in response to imminent node shutdown.", "Failed"),
        ("TerminationByKubelet", "The node was low on resource: memory.", "Failed"),
        ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint", "Failed"),
        (
            "DeletionByDeviceTaintManager",
            "Device Taint manager: deleting due to NoExecute taint",
            "Failed",
        ),
        ("DeletionByPodGC", "PodGC: node no longer exists", "Failed"),
        ("EvictionByEvictionAPI", "Eviction API: evicting", "Failed"),
    ],
)
def test_a_pod_that_made_room_for_another_one_preempts_its_job(reason: str, message: str, raw: str) -> None:
    """The words are those of Kubernetes 1.36. Whatever the cluster did, the pod's node is named."""
    target = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    codes = [ended(137, "Error", "2026-11-21T09:00:31Z")]
    taken = pod(1, "Failed", conditions=[target], containerStatuses=codes)
    state = state_of_jobset(FAILED, [pod(0), deleted(taken, "2026-11-21T09:00:31Z")], None, 2)
    assert (state.raw, state.nodes) == (raw, "node-1")
    assert state.reason == f"pod pod-1 on node-1 ({reason}: {message})"


def test_a_job_that_hit_its_own_limit_is_no_pods_fault() -> None:
    child = jobset(("Failed", "DeadlineExceeded", "Job was active longer than specified deadline"))
    pods = [pod(0, "Failed", containerStatuses=[ended(143, "Error", WHEN)])]
    state = state_of_jobset(FAILED, pods, None, 1, child)
    assert state.reason == "its Job DeadlineExceeded: Job was active longer than specified deadline"
    assert state.exit_code == ""


def test_of_pods_that_only_went_the_first_is_blamed() -> None:
    child = jobset(("Failed", "BackoffLimitExceeded", "too many"))
    pods = [pod(1), pod(0), pod(2)]
    for one, when in zip(pods, (WHEN, "2026-11-21T09:00:01Z"), strict=False):
        one["metadata"]["deletionTimestamp"] = when
    state = state_of_jobset(FAILED, pods, None, 4, child)
    assert state.reason == "pod pod-1 on node-1 (it was deleted)"
    assert state.nodes == "node-1"
    # As a Job deletes its pods.
    pods[1]["metadata"]["deletionTimestamp"] = WHEN
    assert state_of_jobset(FAILED, pods, None, 4, child).reason == "its Job BackoffLimitExceeded: too many"
    pods[0]["metadata"]["deletionTimestamp"] = UNSEEN
    assert state_of_jobset(FAILED, pods, None, 4, child).reason == "its Job BackoffLimitExceeded: too many"
    # One that went unseen may have been the first.
    pods[1]["metadata"]["deletionTimestamp"] = "2026-11-21T08:59:59Z"
    assert state_of_jobset(FAILED, pods, None, 4, child).reason == "its Job BackoffLimitExceeded: too many"


def test_of_pods_that_went_in_one_second_the_watch_tells_the_first() -> None:
    seen = [Pod(deleted(pod(number), WHEN), place) for place, number in enumerate((2, 0, 1), 1)]
    assert [str(first) for first in first_deleted([*seen, Pod(pod(3))])] == [
        "pod pod-2 on node-2 (it was deleted)"
    ]
    assert first_deleted([*seen, Pod(deleted(pod(3), WHEN))]) == []


def test_a_job_that_lost_a_pod_for_good_is_hopeless_before_it_fails() -> None:
    """A Job fails only once all of its pods have ended. On a node that is dead, none does."""
    taint = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
    dead = deleted(pod(0, conditions=[taint]), WHEN)
    crashed = pod(1, "Failed", containerStatuses=[ended(1, "Error", WHEN)])
    state = state_of_jobset(jobset(), [dead, deleted(pod(1), WHEN)], None, 2)
    # Whatever is left of the job once it is cancelled, the record has the node.
    assert (state.phase, state.hopeless, state.nodes) == (Phase.QUEUED, True, "node-0")
    assert state.reason == "0 of 2 pods have a node: pod pod-0 on node-0 (DeletionByTaintManager)"
    # The others may fail before a taint comes.
    state = state_of_jobset(jobset(), [crashed, deleted(pod(0), WHEN)], None, 2)
    assert state.hopeless
    assert "pod pod-1 on node-1: container workload ended with exit code 1" in state.reason
    # While all are there, the cluster may not have looked yet.
    assert not state_of_jobset(jobset(), [crashed, pod(0)], None, 2).hopeless
    # It was to be preempted, and then was not.
    assert not state_of_jobset(jobset(), [pod(0, conditions=[taint])], None, 2).hopeless
    # Somebody deleted them all, and their Job may make others.
    assert not state_of_jobset(jobset(), [deleted(pod(n), WHEN) for n in range(2)], None, 2).hopeless


@pytest.mark.parametrize(
    ("resumed", "hopeless"), [("2026-11-21T09:00:00Z", True), ("2026-11-21T09:00:01Z", False)]
)
def test_a_pod_that_was_lost_before_kueue_gave_other_nodes_says_nothing(resumed: str, hopeless: bool) -> None:
    taint = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
    dead = deleted(pod(0, conditions=[taint]), WHEN)
    dead["metadata"]["creationTimestamp"] = "2026-11-21T09:00:00Z"
    again = jobset()
    again["status"]["conditions"] = [{"type": "Suspended", "status": "False", "lastTransitionTime": resumed}]
    assert state_of_jobset(again, [dead], None, 2).hopeless is hopeless


def test_what_keeps_a_deleted_jobset_is_told() -> None:
    there = jobset()
    there["metadata"] |= {"deletionTimestamp": WHEN, "finalizers": ["foregroundDeletion", "site/audit"]}
    state = state_of_jobset(there, [pod(0)], None, 1)
    assert (state.phase, state.raw) == (Phase.RUNNING, "Terminating")
    assert state.reason == "it stays until its finalizers are removed: site/audit"


def test_an_end_that_no_table_has_is_unknown() -> None:
    state = state_of_jobset(jobset(terminalState="Exploded"), [], None, 1)
    assert (state.phase, state.raw) == (Phase.UNKNOWN, "Exploded")


def test_a_jobset_that_is_being_deleted_is_still_there() -> None:
    item = jobset()
    item["metadata"]["deletionTimestamp"] = WHEN
    assert state_of_jobset(item, [pod(0)], None, 1).phase is Phase.RUNNING


# As Kueue says of two flavors, one of which is too small and the other in use.
SMALL = "insufficient quota for nvidia.com/gpu in flavor reserved, request > maximum capacity (512 > 128)"
TAKEN = "insufficient unused quota for nvidia.com/gpu in flavor spot, 256 more needed"


@pytest.mark.parametrize(
    ("found", "reason", "hopeless"),
    [
        (
            {
                "spec": {"active": False},
                **workload("Evicted", "True", "Deactivated", "The workload is deactivated"),
            },
            "its Workload is deactivated (`active: false`): Deactivated: The",
            True,
        ),
        # Somebody has activated it again, and the condition is still there.
        (
            {
                "spec": {"active": True},
                **workload("Evicted", "True", "Deactivated", "The workload is deactivated"),
            },
            "Deactivated",
            False,
        ),
        (
            workload("Admitted", "True", "Admitted", "The workload is admitted"),
            "Kueue has admitted it",
            False,
        ),
        (
            workload("QuotaReserved", "False", "Pending", "insufficient unused quota"),
            "insufficient unused",
            False,
        ),
        (workload("QuotaReserved", "False", "Pending", "request > maximum capacity (128)"), "maximum", True),
        (
            workload(
                "QuotaReserved",
                "False",
                "Pending",
                f"couldn't assign flavors to pod set main: {SMALL}, {TAKEN}",
            ),
            "maximum",
            False,
        ),
        (
            workload(
                "QuotaReserved",
                "False",
                "Pending",
                f"couldn't assign flavors to pod set a: {TAKEN}; to pod set b: {SMALL}",
            ),
            "maximum",
            True,
        ),
        (
            workload("Evicted", "True", "Preempted", "by a workload of higher priority"),
            "Preempted: by",
            False,
        ),
        (workload("QuotaReserved", "True", "QuotaReserved", ""), "waiting for its admission", False),
    ],
)
def test_a_suspended_jobset_waits_for_kueues_reason(
    found: dict[str, Any] | None, reason: str, hopeless: bool
) -> None:
    state = state_of_jobset(jobset(suspend=True), [], found, 1)
    assert (state.phase, state.raw, state.hopeless) == (Phase.QUEUED, "Suspended", hopeless)
    assert reason in state.reason


def test_it_is_queued_until_every_pod_has_a_node() -> None:
    unplaced = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/64 nodes"}
    state = state_of_jobset(jobset(), [pod(0), pod(1, "Pending", node="", conditions=[unplaced])], None, 2)
    assert (state.phase, state.raw) == (Phase.QUEUED, "Pending")
    assert state.reason == "1 of 2 pods have a node: Unschedulable: 0/64 nodes"
    assert state_of_jobset(jobset(), [], None, 2).phase is Phase.QUEUED


def test_it_starts_until_the_containers_of_every_pod_run() -> None:
    creating = pod(1, "Pending", containerStatuses=[waiting("ContainerCreating")])
    state = state_of_jobset(jobset(), [pod(0), creating], None, 2)
    assert (state.phase, state.raw, state.hopeless) == (Phase.STARTING, "Starting", False)
    assert (state.reason, state.nodes) == ("1 of 2 pods run", "node-0, node-1")
    state = state_of_jobset(jobset(), [pod(0), pod(1)], None, 2)
    assert (state.phase, state.raw) == (Phase.RUNNING, "Running")


@pytest.mark.parametrize(
    "word", ["ImagePullBackOff", "ErrImagePull", "InvalidImageName", "CreateContainerConfigError"]
)
def test_a_container_that_can_never_start_is_told(word: str) -> None:
    state = state_of_jobset(
        jobset(), [pod(0, "Pending", containerStatuses=[waiting(word, "not there")])], None, 1
    )
    assert state.hopeless
    assert state.reason == f"pod pod-0, container workload: {word}: not there"


@pytest.mark.parametrize(
    ("word", "said", "hopeless"),
    [
        ("ErrImagePull", "dial tcp 10.0.0.1:443: i/o timeout", False),
        (
            "ImagePullBackOff",
            'Back-off pulling image "x": ErrImagePull: httpReadSeeker: 429 Too Many Requests',
            False,
        ),
        ("ErrImagePull", "unexpected status code 503 Service Unavailable", False),
        ("ErrImagePull", "pull QPS exceeded", False),
        ("ErrImagePull", "failed to copy: unexpected status code 429", False),
        ("ErrImagePull", "dial tcp 10.0.0.1:443: connect: no route to host", False),
        ("ErrImagePull", "dial tcp 10.0.0.1:443: connect: network is unreachable", False),
        ("ErrImagePull", "http2: server sent GOAWAY and closed the connection; LastStreamID=1", False),
        ("ErrImagePull", "failed to copy: write tcp 10.0.0.2:1->10.0.0.1:443: write: broken pipe", False),
        ("ErrImagePull", "stream error: stream ID 7; INTERNAL_ERROR; received from peer", False),
        ("ErrImagePull", "dial tcp: lookup nvcr.io on 10.0.0.10:53: server misbehaving", False),
        ("ErrImagePull", "dial tcp 10.0.0.1:443: connect: host is down", False),
        ("ErrImagePull", "rpc error: code = Canceled desc = failed to pull image: context canceled", False),
        (
            "ErrImagePull",
            "rpc error: code = Unavailable desc = connection error: dial unix /run/containerd/containerd.sock: no such file",
            False,
        ),
        ("ErrImagePull", "nvcr.io/nvidia/nemo:429.2: not found", True),
        ("CreateContainerError", "context deadline exceeded", False),
        ("CreateContainerError", 'failed to reserve container name "a": name "a" is reserved for "b"', False),
        ("ErrImagePull", 'failed to resolve reference "x": 403 Forbidden', True),
        ("ErrImagePull", "dial tcp: lookup registry.example: no such host", True),
        ("CreateContainerError", 'exec: "bash": executable file not found in $PATH', True),
        ("InvalidImageName", "timeout", True),
    ],
)
def test_a_registry_or_a_disk_that_is_busy_is_waited_for(word: str, said: str, hopeless: bool) -> None:
    found = pod(0, "Pending", containerStatuses=[waiting(word, said)])
    state = state_of_jobset(jobset(), [found], None, 1)
    assert (state.phase, state.hopeless) == (Phase.STARTING, hopeless)
    assert said in state.reason


def test_the_nodes_of_a_job_are_in_the_order_of_its_ranks() -> None:
    """A sentence names three of many, as they are sorted."""
    pods = [pod(number) for number in reversed(range(64))]
    for item in pods:
        index = item["metadata"]["name"].removeprefix("pod-")
        item["metadata"]["labels"] = {"batch.kubernetes.io/job-completion-index": index}
    ranked = JobSets().nodes(map(Pod, pods))
    assert ranked == ", ".join(f"node-{number}" for number in range(64))
    assert nodes_in_words(ranked) == "node-0, node-1, node-10 and 61 more"
    assert nodes_in_words("gpu[001-004],gpu007") == "gpu[001-004],gpu007"


def test_workers_of_a_pytorchjob_are_ranked_by_name() -> None:
    """As torchrun does, to which worker-10 comes before worker-2."""
    hosts = ["job-worker-2", "job-worker-10", "job-master-0"]
    pods = [Pod({"metadata": {"name": host}, "spec": {"nodeName": f"of-{host}"}}) for host in hosts]
    assert PyTorchJobs().nodes(pods) == "of-job-master-0, of-job-worker-10, of-job-worker-2"


def test_an_objects_name_is_short_telling_and_its_jobs_own() -> None:
    job = "pacemark-20261121-094226-2019.llama3_gke-70b-fp8-512gpus"
    name = object_name(job, "70b-fp8-512gpus")
    assert name.endswith("-70b-fp8-512gpus")
    assert name == object_name(job, "70b-fp8-512gpus") != object_name(job + "-try2", "70b-fp8-512gpus")
    assert len(object_name(job, "a-very-long-size-of-a-model-fp8-16384gpus")) <= LONGEST_NAME
    assert len(f"{name}-workload-0-63-abcde") <= 63


ONE, TWO = (f"sha256:{digit * 64}" for digit in "12")


def pulled(number: int, *images: tuple[str, str], gone: bool = False) -> dict[str, Any]:
    """A pod whose containers run these images, as a kubelet says it: name and imageID."""
    found = pod(number, containerStatuses=[{"name": name, "imageID": image} for name, image in images])
    if gone:
        found["metadata"]["deletionTimestamp"] = WHEN
    return found


@pytest.mark.parametrize(
    ("said", "digest"),
    [
        (f"ghcr.io/azure/megatron-lm@{ONE}", ONE),
        (f"docker-pullable://nvcr.io:443/nvidia/nemo@{ONE}", ONE),
        (ONE, ONE),
        ("", ""),
        ("ghcr.io/azure/megatron-lm:latest", ""),
        ("ghcr.io/azure/megatron-lm@sha256:1234", ""),
    ],
)
def test_the_image_that_ran_is_told_by_its_digest(said: str, digest: str) -> None:
    sidecar = ("gke-gcsfuse-sidecar", f"gcr.io/gcsfuse@{TWO}")
    assert images_of([pulled(0, sidecar, ("workload", said))], "workload") == ((digest,) if digest else ())


def test_pods_that_ran_different_images_are_seen() -> None:
    pods = [pulled(n, ("workload", f"x@{TWO if n == 1 else ONE}")) for n in range(3)]
    assert images_of([*pods, pod(3)], "workload") == (ONE, TWO)


def test_the_images_are_those_of_the_present_life_or_of_the_last() -> None:
    old, new = (
        pulled(n, ("workload", f"x@{image}"), gone=gone)
        for n, image, gone in ((0, ONE, True), (1, TWO, False))
    )
    assert images_of([old, new], "workload") == (TWO,)
    assert images_of([old], "workload") == (ONE,)
    assert images_of([], "workload") == ()


def test_a_job_began_with_its_last_container_and_ended_with_its_last_condition() -> None:
    def began(at: str, state: str) -> dict[str, Any]:
        return {"containerStatuses": [{"name": "workload", "state": {state: {"startedAt": at}}}]}

    pods = [
        pod(0, **began("2026-11-21T09:00:00Z", "running")),
        pod(1, **began("2026-11-21T09:00:07Z", "terminated")),
        pod(2, containerStatuses=[waiting("PodInitializing")]),
    ]
    done = jobset(("Completed", "AllJobsCompleted", ""))
    assert times_of(done, pods) == ClusterTimes(started=1795251607.0)
    done["status"]["conditions"][0]["lastTransitionTime"] = "2026-11-21T09:10:00Z"
    assert times_of(done, pods) == ClusterTimes(started=1795251607.0, ended=1795252200.0)
    done["status"]["conditions"][0]["lastTransitionTime"] = "yesterday"
    assert times_of(done, []) == ClusterTimes()
