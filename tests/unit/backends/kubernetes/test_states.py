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

Object = dict[str, Any]


def at(seconds: int, minute: int = 0) -> str:
    return f"2026-11-21T09:{minute:02d}:{seconds:02d}Z"


WHEN, LATER = at(0), at(31)
TAINT = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}


def state_of_jobset(
    jobset: Object,
    pods: Iterable[Object] = (),
    workload: Object | None = None,
    expected: int = 1,
    child: Object | None = None,
) -> JobState:
    jobset["spec"]["replicatedJobs"] = [{"name": "w", "template": {"spec": {"parallelism": expected}}}]
    return states.state_of(JobSets(), Seen(jobset, list(map(Pod, pods)), workload, child))


def broken(*pods: Object) -> list[str]:
    return list(map(str, blame.broken(map(Pod, pods))))


def blamed(*pods: Object) -> list[str]:
    """The names of the pods that are to blame."""
    return [each.pod for each in blame.broken(map(Pod, pods))]


def images_of(*pods: Object) -> tuple[str, ...]:
    return facts.images_of(list(map(Pod, pods)), "workload")


def jobset(*conditions: tuple[str, str, str], suspend: bool = False, **status: Any) -> Object:
    listed = [
        {"type": kind, "status": "True", "reason": reason, "message": message}
        for kind, reason, message in conditions
    ]
    status = {"conditions": listed, **status}
    return {"metadata": {"name": "pm-x"}, "spec": {"suspend": suspend}, "status": status}


def going(**metadata: Any) -> Object:
    """A JobSet that is being deleted."""
    item = jobset()
    item["metadata"] |= {"deletionTimestamp": WHEN, **metadata}
    return item


def pod(number: int, phase: str = "Running", node: str = "node-{}", **status: Any) -> Object:
    spec = {"nodeName": node.format(number)} if node else {}
    return {"metadata": {"name": f"pod-{number}"}, "spec": spec, "status": {"phase": phase, **status}}


def ended(code: int, reason: str = "Error", when: str = WHEN, name: str = "workload") -> Object:
    return {"name": name, "state": {"terminated": {"exitCode": code, "reason": reason, "finishedAt": when}}}


def failed(number: int, code: int = 1, reason: str = "Error", when: str = WHEN) -> Object:
    return pod(number, "Failed", containerStatuses=[ended(code, reason, when)])


def waiting(reason: str, message: str = "") -> Object:
    return {"name": "workload", "state": {"waiting": {"reason": reason, "message": message}}}


def workload(kind: str, status: str, reason: str, message: str, **spec: Any) -> Object:
    condition = {"type": kind, "status": status, "reason": reason, "message": message}
    return {"spec": spec, "status": {"conditions": [condition]}}


def deleted(pod: Object, until: str = LATER, grace: int = 30) -> Object:
    """As it is when its end was asked for: the stamp is of the end of its grace period."""
    metadata = {**pod["metadata"], "deletionTimestamp": until, "deletionGracePeriodSeconds": grace}
    return {**pod, "metadata": metadata}


UNPLACED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/64 nodes"}


@pytest.mark.parametrize(
    ("item", "pods", "phase", "raw", "reason"),
    [
        (jobset(("Completed", "Done", "")), [pod(0, "Succeeded")], Phase.SUCCEEDED, "Completed", ""),
        (jobset(("Failed", "FailedJobs", "too late")), [], Phase.FAILED, "Failed", "FailedJobs: too late"),
        (jobset(terminalState="Exploded"), [], Phase.UNKNOWN, "Exploded", None),
        (jobset(), [], Phase.QUEUED, "Pending", "0 of 2 pods have a node"),
        (jobset(), [pod(0), pod(1, "Pending", node="", conditions=[UNPLACED])],
         Phase.QUEUED, "Pending", "1 of 2 pods have a node: Unschedulable: 0/64 nodes"),
        (jobset(), [pod(0), pod(1, "Pending", containerStatuses=[waiting("ContainerCreating")])],
         Phase.STARTING, "Starting", "1 of 2 pods run"),
        (jobset(), [pod(0), pod(1)], Phase.RUNNING, "Running", ""),
        # Its pods may still end well.
        (going(), [pod(0)], Phase.RUNNING, "Terminating", None),
        (going(finalizers=["foregroundDeletion", "site/audit"]), [pod(0)],
         Phase.RUNNING, "Terminating", "it stays until its finalizers are removed: site/audit"),
    ],
    ids=["completed", "failed", "exploded", "no-pods", "unplaced", "starting", "running", "going", "finalizers"],
)  # fmt: skip
def test_conditions_and_pods_are_a_phase(
    item: Object, pods: list[Object], phase: Phase, raw: str, reason: str | None
) -> None:
    state = state_of_jobset(item, pods, expected=2)
    assert (state.phase, state.raw, state.hopeless) == (phase, raw, False)
    assert reason is None or state.reason == reason
    assert phase is Phase.QUEUED or state.nodes == ", ".join(f"node-{number}" for number in range(len(pods)))


# Who is to blame


FAILED = jobset(("Failed", "ReachedMaxRestarts", "too often"))


def test_a_failure_blames_the_pod_that_failed_first() -> None:
    pods = [pod(0), failed(2, when=at(9)), failed(1, 137, "OOMKilled", at(5))]
    state = state_of_jobset(FAILED, pods, expected=3)
    assert (state.phase, state.nodes, state.exit_code) == (Phase.FAILED, "node-1", "137")
    assert state.reason == "pod pod-1 on node-1: container workload ended with exit code 137 (OOMKilled)"


def test_pods_that_were_deleted_for_one_that_failed_are_not_to_blame() -> None:
    culprit = failed(0)
    # A kubelet makes those Failed as well, by the signal that ended them; their clocks need not agree to the second.
    others = [deleted(failed(1, 137, when=at(1))), deleted(failed(2, 143, when=at(2)))]
    assert blamed(*others, deleted(pod(3, "Failed")), culprit) == ["pod-0"]
    assert state_of_jobset(FAILED, [*others, culprit], expected=3).nodes == "node-0"
    assert blamed(*others) == []
    # The clock of its node is an hour behind.
    behind = deleted(failed(1, 143, when="2026-11-21T08:00:02Z"))
    assert blamed(behind, culprit)[0] == "pod-0"
    assert state_of_jobset(FAILED, [behind, culprit], expected=2).nodes == "node-0"


def test_a_pod_that_failed_before_it_was_deleted_is_to_blame() -> None:
    evicted = pod(1, "Failed", reason="Evicted", message="The node was low on resource: memory.")
    gone = [deleted(failed(0)), deleted(evicted), deleted(failed(0), UNSEEN), deleted(failed(0), at(1), 0)]
    assert [len(broken(each)) for each in gone] == [1, 1, 1, 1]


def test_a_container_that_crashed_and_was_started_again_is_to_blame() -> None:
    """With the restart policy OnFailure a Job counts restarts: beyond its `backoffLimit` it deletes all of its pods, as they run
    (kubernetes pkg/controller/job/job_controller.go, pastBackoffLimitOnFailure).
    """
    runs = {"name": "workload", "state": {"running": {"startedAt": "2026-11-21T08:00:00Z"}}, "lastState": {}}
    again = {
        **runs,
        "state": {"running": {"startedAt": at(1)}},
        "lastState": ended(137, "OOMKilled")["state"],
    }
    pods = [deleted(pod(n, containerStatuses=[status])) for n, status in enumerate((runs, again, runs))]
    crash = ["pod pod-1 on node-1: container workload ended with exit code 137 (OOMKilled)"]
    assert broken(*pods) == crash
    # By the signal that ended the pod it did not fail, but before.
    signal = {**again, "state": ended(143, when=at(2))["state"]}
    assert broken(deleted(pod(1, "Failed", containerStatuses=[signal]))) == crash
    # While its pod goes on, nothing has failed.
    assert broken(pod(1, containerStatuses=[again])) == []


def test_a_kubelet_that_ended_a_pod_tells_why_whatever_its_containers_ended_with() -> None:
    """As its `activeDeadlineSeconds` ends it."""
    words = "Pod was active on the node longer than the specified deadline"
    limit = failed(0, 143, when=at(1))
    limit["status"] |= {"reason": "DeadlineExceeded", "message": words}
    state = state_of_jobset(FAILED, [limit, deleted(pod(1))], expected=2)
    assert state.reason == f"pod pod-0 on node-0 (DeadlineExceeded, {words})"
    # One that failed before it is to blame.
    assert blamed(limit, failed(1)) == ["pod-1", "pod-0"]


@pytest.mark.parametrize(
    ("reason", "message", "raw"),
    [
        ("PreemptionByScheduler", "default-scheduler: preempting to accommodate a higher priority pod", "PREEMPTED"),
        ("TerminationByKubelet", "Pod was preempted by Kubelet to accommodate a critical pod.", "PREEMPTED"),
        ("TerminationByKubelet", "Pod was terminated in response to imminent node shutdown.", "Failed"),
        ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint", "Failed"),

    ],
)  # fmt: skip
def test_a_pod_that_made_room_for_another_one_preempts_its_job(reason: str, message: str, raw: str) -> None:
    """The words are those of Kubernetes 1.36. Whatever the cluster did, the pod's node is named."""
    target = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    taken = failed(1, 137, when=LATER)
    taken["status"]["conditions"] = [target]
    state = state_of_jobset(FAILED, [pod(0), deleted(taken)], expected=2)
    assert (state.raw, state.nodes) == (raw, "node-1")
    assert state.reason == f"pod pod-1 on node-1 ({reason}: {message})"


def test_a_job_that_hit_its_own_limit_is_no_pods_fault() -> None:
    child = jobset(("Failed", "DeadlineExceeded", "Job was active longer than specified deadline"))
    state = state_of_jobset(FAILED, [failed(0, 143)], child=child)
    assert state.reason == "its Job DeadlineExceeded: Job was active longer than specified deadline"
    assert state.exit_code == ""


@pytest.mark.parametrize(
    ("times", "reason"),
    [
        ((at(1), WHEN), "pod pod-1 on node-1 (it was deleted)"),
        # As a Job deletes its pods.
        ((WHEN, WHEN), "its Job BackoffLimitExceeded: too many"),
        # One that went unseen may have been the first.
        ((WHEN, UNSEEN), "its Job BackoffLimitExceeded: too many"),
        (("2026-11-21T08:59:59Z", UNSEEN), "its Job BackoffLimitExceeded: too many"),
    ],
)
def test_of_pods_that_only_went_the_first_is_blamed(times: tuple[str, ...], reason: str) -> None:
    child = jobset(("Failed", "BackoffLimitExceeded", "too many"))
    gone = [deleted(pod(number), when) for number, when in enumerate(times)]
    state = state_of_jobset(FAILED, [*gone, pod(2)], expected=4, child=child)
    assert state.reason == reason
    assert state.nodes == ("node-1" if "pod-1" in reason else "node-0, node-1, node-2")


def test_of_pods_that_went_in_one_second_the_watch_tells_the_first() -> None:
    seen = [Pod(deleted(pod(number), WHEN), place) for place, number in enumerate((2, 0, 1), 1)]
    assert first_deleted([*seen, Pod(pod(3))]) == [Broken("pod-2", "node-2", reason="it was deleted")]
    assert first_deleted([*seen, Pod(deleted(pod(3), WHEN))]) == []


def test_a_job_that_lost_a_pod_for_good_is_hopeless_before_it_fails() -> None:
    """A Job fails only once all of its pods have ended. On a node that is dead, none does."""
    dead = deleted(pod(0, conditions=[TAINT]), WHEN)
    state = state_of_jobset(jobset(), [dead, deleted(pod(1), WHEN)], expected=2)
    # Whatever is left of the job once it is cancelled, the record has the node.
    assert (state.phase, state.hopeless, state.nodes) == (Phase.QUEUED, True, "node-0")
    assert state.reason == "0 of 2 pods have a node: pod pod-0 on node-0 (DeletionByTaintManager)"
    # The others may fail before a taint comes.
    state = state_of_jobset(jobset(), [failed(1), deleted(pod(0), WHEN)], expected=2)
    assert state.hopeless
    assert "pod pod-1 on node-1: container workload ended with exit code 1" in state.reason


@pytest.mark.parametrize(
    "pods",
    [
        # While all are there, the cluster may not have looked yet.
        [failed(1), pod(0)],
        # It was to be preempted, and then was not.
        [pod(0, conditions=[TAINT])],
        # Somebody deleted them all, and their Job may make others.
        [deleted(pod(0), WHEN), deleted(pod(1), WHEN)],
    ],
    ids=["all-there", "not-preempted", "all-deleted"],
)
def test_a_job_that_may_have_its_pods_again_is_waited_for(pods: list[Object]) -> None:
    assert not state_of_jobset(jobset(), pods, expected=2).hopeless


@pytest.mark.parametrize(("resumed", "hopeless"), [(WHEN, True), (at(1), False)])
def test_a_pod_that_was_lost_before_kueue_gave_other_nodes_says_nothing(resumed: str, hopeless: bool) -> None:
    dead, again = deleted(pod(0, conditions=[TAINT]), WHEN), jobset()
    dead["metadata"]["creationTimestamp"] = WHEN
    again["status"]["conditions"] = [{"type": "Suspended", "status": "False", "lastTransitionTime": resumed}]
    assert state_of_jobset(again, [dead], expected=2).hopeless is hopeless


# Beside a sidecar that never ends


PROXY = {"name": "istio-proxy", "state": {"running": {"startedAt": WHEN}}}
OVER = ended(0, "Completed")


def beside(number: int, *statuses: Object, restarts: str = "Never") -> Object:
    shown = pod(number, containerStatuses=[*statuses, PROXY])
    shown["spec"]["restartPolicy"] = restarts
    return shown


def state_behind_sidecars(*pods: Object, expected: int = 2) -> JobState | None:
    return states.state_behind_sidecars(JobSets(), list(map(Pod, pods)), "workload", expected)


@pytest.mark.parametrize("restarts", ["Never", "OnFailure"])
def test_the_end_of_what_trains_is_the_end_beside_a_sidecar(restarts: str) -> None:
    state = state_behind_sidecars(*(beside(number, OVER, restarts=restarts) for number in range(2)))
    assert state is not None
    assert (state.phase, state.raw, state.exit_code) == (Phase.SUCCEEDED, "Completed", "0")
    assert state.nodes == "node-0, node-1"
    assert state.reason == "container workload of every pod has ended; the sidecar istio-proxy still runs"


def test_what_failed_first_beside_a_sidecar_is_named() -> None:
    runs = {"name": "workload", "state": {"running": {"startedAt": WHEN}}}
    pods = [beside(0, runs), beside(1, ended(134, when=at(9))), beside(2, ended(1, when=at(5)))]
    state = state_behind_sidecars(*pods, expected=3)
    assert state is not None
    assert (state.phase, state.nodes, state.exit_code) == (Phase.FAILED, "node-2", "1")
    assert state.reason == (
        "pod pod-2 on node-2: container workload ended with exit code 1 (the sidecar istio-proxy still runs)"
    )
    named = blame.broken_behind_sidecars(map(Pod, pods), "workload")
    assert [each.pod for each in named] == ["pod-2", "pod-1"]


@pytest.mark.parametrize(
    "pods",
    [
        [],
        [beside(0, OVER)],  # of two
        [beside(0, OVER), beside(1, waiting("ContainerCreating"))],
        [beside(0, OVER), deleted(beside(1, OVER))],
        [beside(0, ended(1), restarts="OnFailure")],
        [beside(number, OVER, restarts="Always") for number in range(2)],
        [beside(number, ended(1, name="log-shipper")) for number in range(2)],
        [failed(0)],  # its object will say so
        [beside(0, OVER), failed(1)],
    ],
)
def test_what_still_trains_beside_a_sidecar_or_trains_again_has_not_ended(pods: list[Object]) -> None:
    assert state_behind_sidecars(*pods) is None


# Jobs that wait


# As Kueue says of two flavors, one of which is too small and the other in use.
SMALL = "insufficient quota for nvidia.com/gpu in flavor reserved, request > maximum capacity (512 > 128)"
TAKEN = "insufficient unused quota for nvidia.com/gpu in flavor spot, 256 more needed"
ASSIGN = "couldn't assign flavors to pod set"
INACTIVE = ("Evicted", "True", "Deactivated", "The workload is deactivated")


def pending(message: str) -> Object:
    return workload("QuotaReserved", "False", "Pending", message)


@pytest.mark.parametrize(
    ("found", "reason", "hopeless"),
    [
        (workload(*INACTIVE, active=False), "its Workload is deactivated (`active: false`): Deactivated: The", True),
        # Somebody has activated it again, and the condition is still there.
        (workload(*INACTIVE, active=True), "Deactivated", False),
        (pending("insufficient unused quota"), "insufficient unused", False),
        (pending("request > maximum capacity (128)"), "maximum", True),
        (pending(f"{ASSIGN} main: {SMALL}, {TAKEN}"), "maximum", False),
        (pending(f"{ASSIGN} a: {TAKEN}; to pod set b: {SMALL}"), "maximum", True),
    ],
)  # fmt: skip
def test_a_suspended_jobset_waits_for_kueues_reason(found: Object, reason: str, hopeless: bool) -> None:
    state = state_of_jobset(jobset(suspend=True), workload=found)
    assert (state.phase, state.raw, state.hopeless) == (Phase.QUEUED, "Suspended", hopeless)
    assert reason in state.reason


PULL = "ErrImagePull"


@pytest.mark.parametrize(
    ("word", "message", "hopeless"),
    [
        (PULL, "dial tcp 10.0.0.1:443: i/o timeout", False),
        ("ImagePullBackOff", 'Back-off pulling image "x": ErrImagePull: httpReadSeeker: 429 Too Many Requests', False),
        (PULL, "dial tcp 10.0.0.1:443: connect: no route to host", False),
        (PULL, "http2: server sent GOAWAY and closed the connection; LastStreamID=1", False),
        (PULL, "dial tcp: lookup nvcr.io on 10.0.0.10:53: server misbehaving", False),
        ("CreateContainerError", "context deadline exceeded", False),
        ("CreateContainerError", 'failed to reserve container name "a": name "a" is reserved for "b"', False),
        (PULL, "nvcr.io/nvidia/nemo:429.2: not found", True),
        (PULL, "dial tcp: lookup registry.example: no such host", True),
        ("ImagePullBackOff", "not there", True),
        ("CreateContainerError", 'exec: "bash": executable file not found in $PATH', True),
        ("InvalidImageName", "timeout", True),
    ],
)  # fmt: skip
def test_a_registry_or_a_disk_that_is_busy_is_waited_for(word: str, message: str, hopeless: bool) -> None:
    state = state_of_jobset(jobset(), [pod(0, "Pending", containerStatuses=[waiting(word, message)])])
    assert (state.phase, state.hopeless) == (Phase.STARTING, hopeless)
    assert state.reason == f"pod pod-0, container workload: {word}: {message}"


# Names, images and times


def test_the_nodes_of_a_job_are_in_the_order_of_its_ranks() -> None:
    pods = [pod(number) for number in (10, 2, 1)]
    for item in pods:
        rank = item["metadata"]["name"].removeprefix("pod-")
        item["metadata"]["labels"] = {"batch.kubernetes.io/job-completion-index": rank}
    assert JobSets().nodes(map(Pod, pods)) == "node-1, node-2, node-10"
    # A sentence names three of many.
    assert nodes_in_words("a, b, c, d, e") == "a, b, c and 2 more"
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


FIRST, SECOND = (f"sha256:{digit * 64}" for digit in "12")


def pulled(number: int, *images: str) -> Object:
    """A pod with a sidecar, whose container that trains runs these images, as a kubelet says it."""
    statuses = [{"name": "workload", "imageID": image} for image in images]
    return pod(number, containerStatuses=[{"name": "gcsfuse", "imageID": f"gcsfuse@{SECOND}"}, *statuses])


@pytest.mark.parametrize(
    ("image", "digest"),
    [
        (f"ghcr.io/azure/megatron-lm@{FIRST}", FIRST),
        (f"docker-pullable://nvcr.io:443/nvidia/nemo@{FIRST}", FIRST),
        (FIRST, FIRST),
        ("ghcr.io/azure/megatron-lm:latest", ""),
    ],
)
def test_the_image_that_ran_is_told_by_its_digest(image: str, digest: str) -> None:
    assert images_of(pulled(0, image)) == ((digest,) if digest else ())


def test_the_images_are_those_of_the_present_life_or_of_the_last() -> None:
    old, new = deleted(pulled(0, f"x@{FIRST}")), pulled(1, f"x@{SECOND}")
    assert images_of(old, new) == (SECOND,)
    assert images_of(old) == (FIRST,)
    assert images_of() == ()
    # Pods that ran different images are seen.
    assert images_of(pulled(0, f"x@{FIRST}"), new, pulled(2, f"x@{FIRST}"), pod(3)) == (FIRST, SECOND)


def test_a_job_began_with_its_last_container_and_ended_with_its_last_condition() -> None:
    def began(when: str, state: str) -> Object:
        return {"name": "workload", "state": {state: {"startedAt": when}}}

    statuses = (began(WHEN, "running"), began(at(7), "terminated"), waiting("PodInitializing"))
    pods = [Pod(pod(number, containerStatuses=[status])) for number, status in enumerate(statuses)]
    done = jobset(("Completed", "AllJobsCompleted", ""))
    assert states.times_of(JobSets(), done, pods) == ClusterTimes(started=1795251607.0)
    done["status"]["conditions"][0]["lastTransitionTime"] = at(0, 10)
    assert states.times_of(JobSets(), done, pods) == ClusterTimes(started=1795251607.0, ended=1795252200.0)
    done["status"]["conditions"][0]["lastTransitionTime"] = "yesterday"
    assert states.times_of(JobSets(), done, []) == ClusterTimes()
