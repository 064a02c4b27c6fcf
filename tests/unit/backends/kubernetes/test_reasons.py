"""Why a job waits: pods that are missing, by events as a real cluster writes them, and Kueue; and what can pass by itself.

Those of makers are what the lab's API server (Kubernetes 1.36) had after quotas and PodSecurity refused pods of JobSet 0.12 and
of the training operator 1.9. Those of mounts: docs/troubleshooting.md of Google's gcs-fuse-csi-driver, issues of Azure's drivers,
and the node authorizer of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from fixtures.backends.kubernetes import kueue, reasons
from fixtures.backends.kubernetes.api import Refused
from fixtures.backends.kubernetes.facts import Pod
from fixtures.backends.kubernetes.jobset import JobSets
from fixtures.backends.kubernetes.kinds import JobKind
from fixtures.backends.kubernetes.kueue import Admissions
from fixtures.backends.kubernetes.pytorchjob import PyTorchJobs
from fixtures.backends.kubernetes.reasons import Awaited, Reasons
from fixtures.backends.kubernetes.section import Kubernetes
from fixtures.backends.kubernetes.states import Seen, state_of
from plugins.base.errors import Denied, Unreachable
from plugins.record.job import JobState, Phase
from tests.unit import kubeapi
from tests.unit.kubeapi import BOTH, EVENTS, JOBS, SKU, Memory, node

Object = dict[str, Any]
JOBSET = {("JobSet", "pm-1"), ("Job", "pm-1-workload-0")}
PYTORCH = {("PyTorchJob", "pm-1")}

QUOTA = (
    'Error creating: pods "pm-1-workload-0-1-94hqm" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=8, '
    "used: requests.nvidia.com/gpu=16, limited: requests.nvidia.com/gpu={}"
)
SECURITY = (
    'Error creating: pods "pm-1-workload-0-0-ms69k" is forbidden: violates PodSecurity "restricted:latest": host namespaces '
    '(hostNetwork=true), privileged (container "workload" must not set securityContext.privileged=true)'
)
MOUNT = 'MountVolume.SetUp failed for volume "job-logs" : rpc error: code = '
DENIED = (
    f'{MOUNT}PermissionDenied desc = failed to get GCS bucket "lab": googleapi: Error 403: a@b.iam.gserviceaccount.com '
    "does not have storage.objects.list access to the Google Cloud Storage bucket., forbidden"
)


def event(kind: str, name: str, reason: str, message: str, *, first: str = "00", last: str = "00") -> Object:
    """As client-go's older recorder writes it; `first` and `last` are seconds."""
    return {
        "metadata": {"name": f"{name}.18"},
        "involvedObject": {"kind": kind, "name": name, "uid": f"uid-{name}"},
        "reason": reason,
        "message": message,
        "type": "Warning",
        "count": 3,
        "firstTimestamp": f"2026-11-22T07:09:{first}Z",
        "lastTimestamp": f"2026-11-22T07:09:{last}Z",
        "eventTime": None,
    }


def series(reason: str, message: str) -> Object:
    """Of the JobSet, as the newer API writes it, which has neither count nor stamps."""
    unset = {"count": None, "firstTimestamp": None, "lastTimestamp": None}
    seen = {"count": 2, "lastObservedTime": "2026-11-22T07:09:40.152331Z"}
    made = {**unset, "eventTime": "2026-11-22T07:09:40.103945Z", "series": seen}
    return {**event("JobSet", "pm-1", reason, message), **made}


def pod(number: int, node: str = "node-0", **status: Any) -> Object:
    name = f"pm-1-{number}"
    return {
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {"containers": [{"resources": {"limits": BOTH}}], **({"nodeName": node} if node else {})},
        "status": {"phase": "Pending", **status},
    }


def why_missing(
    events: list[Object], pods: Iterable[Object], expected: int, makers: set[tuple[str, str]]
) -> tuple[str, bool]:
    return reasons.why_missing(events, Awaited(list(map(Pod, pods)), expected, makers))


def of_job(message: str) -> Object:
    return event("Job", "pm-1-workload-0", "FailedCreate", message)


# Pods that are not made


FEW = "is forbidden: exceeded quota: gpus, requested: count/"


@pytest.mark.parametrize(
    ("warning", "makers", "hopeless"),
    [
        (of_job(QUOTA.format(16)), JOBSET, True),
        (of_job(QUOTA.format("many")), JOBSET, False),
        # There would be room for all, if others gave back what they use.
        (of_job(QUOTA.format(32)), JOBSET, False),
        (of_job(SECURITY), JOBSET, True),
        (event("PyTorchJob", "pm-1", "FailedCreatePod", SECURITY), PYTORCH, True),
        (of_job('Error creating: Pod "x" is invalid: spec.containers[0].image: Required value'), JOBSET, True),
        (of_job('Error creating: admission webhook "gate" denied the request: no'), JOBSET, True),
        # A webhook that is not up, and a quota whose use nobody has counted yet.
        (of_job('Error creating: pods "x" is forbidden: status unknown for quota: gpus'), JOBSET, False),
        # An API server that has just started; and JobSet's exclusive placement, while its first pod waits for a node.
        (of_job('Error creating: admission webhook "vpod.kb.io" denied the request: leader pod not yet scheduled, not creating '
                "follower pod. this is an expected, transient error"), JOBSET, False),
        (series("JobCreationFailed", f'creation failed with error: jobs.batch "pm-1-workload-0" {FEW}jobs.batch=1, '
                "used: count/jobs.batch=0, limited: count/jobs.batch=0"), JOBSET, True),
        (series("HeadlessServiceCreationFailed", f'services "pm-1" {FEW}services=1, used: count/services=2, '
                "limited: count/services=2"), JOBSET, False),
    ],
)  # fmt: skip
def test_what_refuses_a_pod_is_told_and_may_stay_so(warning: Object, makers: Any, hopeless: bool) -> None:
    words, stays = why_missing([warning], [pod(0)], 4, makers)
    assert words == f"{warning['reason']}: {warning['message']}"
    assert stays is hopeless


def test_the_newest_reason_counts_while_pods_are_missing() -> None:
    old = event("Job", "pm-1-workload-0", "FailedCreate", SECURITY, last="01")
    new = event("Job", "pm-1-workload-0", "FailedCreate", QUOTA.format(32), first="09", last="09")
    assert why_missing([new, old], [pod(0)], 4, JOBSET) == (f"FailedCreate: {new['message']}", False)
    # All were made in the end.
    assert why_missing([new, old], [pod(n) for n in range(4)], 4, JOBSET) == ("", False)
    # One that goes is none, and events of other jobs are not ours.
    gone = pod(3)
    gone["metadata"]["deletionTimestamp"] = "2026-11-22T07:10:00Z"
    assert why_missing([old], [*(pod(n) for n in range(3)), gone], 4, JOBSET)[1]
    assert why_missing([old], [], 4, {("Job", "pm-2-workload-0")}) == ("", False)


# Pods that do not start


def mount(message: str, last: str = "45", number: int = 0) -> Object:
    return event("Pod", f"pm-1-{number}", "FailedMount", message, first="05", last=last)


@pytest.mark.parametrize(
    ("message", "hopeless"),
    [
        (DENIED, True),
        ('MountVolume.SetUp failed for volume "azure" : mount failed: exit status 32\nmount error(13): Permission denied', True),
        ("mount.nfs: access denied by server while mounting 10.0.0.4:/lustre", True),
        # Credentials that take minutes, a driver that comes with its node, what is made behind the pod, and what is slow.
        (f"{MOUNT}Unauthenticated desc = failed to prepare storage service: timed out waiting", False),
        ('MountVolume.SetUp failed for volume "x" : driver name gcsfuse.csi.storage.gke.io not found', False),
        ('configmaps "pm-1" is forbidden: User "system:node:a" cannot get resource: no relationship found between node', False),
    ],
)  # fmt: skip
def test_a_mount_that_is_denied_stays_so_and_any_other_may_come(message: str, hopeless: bool) -> None:
    found = why_missing([mount(message)], [pod(0), pod(1)], 2, JOBSET)
    assert found == (f"pod pm-1-0: FailedMount: {message}", hopeless)


def test_of_several_pods_the_one_that_can_never_start_is_told() -> None:
    events = [mount("timed out waiting for the condition"), mount(DENIED, number=1)]
    assert why_missing(events, [pod(0), pod(1)], 2, JOBSET) == (f"pod pm-1-1: FailedMount: {DENIED}", True)


def test_a_mount_is_denied_for_good_only_where_it_is_so_for_a_while_and_nothing_else_is_said() -> None:
    assert not why_missing([mount(DENIED, last="34")], [pod(0)], 1, JOBSET)[1]
    assert why_missing([mount(DENIED, last="35")], [pod(0)], 1, JOBSET)[1]
    other = event("Pod", "pm-1-0", "FailedMount", "timed out waiting for the condition", last="50")
    assert not why_missing([mount(DENIED), other], [pod(0)], 1, JOBSET)[1]


@pytest.mark.parametrize(
    "status",
    [
        {"conditions": [{"type": "PodReadyToStartContainers", "status": "True"}]},
        {"initContainerStatuses": [{"name": "nccl", "state": {"running": {}}}]},
        {"containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "ErrImagePull"}}}]},
    ],
)
def test_a_pod_that_is_past_its_mounts_is_not_blamed_for_them(status: Object) -> None:
    """Events stay for an hour, and a large image takes long to pull."""
    assert why_missing([mount(DENIED)], [pod(0, **status)], 1, JOBSET) == ("", False)


# When the cluster is asked


TAINTED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/40 nodes are available: 20 node(s) didn't match Pod's node affinity/selector, 20 node(s) had untolerated "
    "taint(s). no new claims to deallocate, preemption: 0/40 nodes are available: 40 Preemption is not helpful for scheduling.",
}
WAITS = JobState(Phase.QUEUED, "Pending", "0 of 1 pods have a node")


NODES = "/api/v1/nodes"


class Cluster(Memory):
    """One whose events and nodes explain why a job waits, at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = 0.0
        self._reasons: dict[bool, Reasons] = {}

    def warns(self, *events: Object) -> None:
        """These are all the events that there are."""
        others = {path: item for path, item in self.objects.items() if not path.startswith(EVENTS)}
        self.objects = {**others, **{f"{EVENTS}/{number}": item for number, item in enumerate(events)}}

    def look(
        self, at: float, state: JobState = WAITS, pods: Any = (), job: str = "one", **more: Any
    ) -> JobState:
        """Look at a job so many seconds after the start."""
        autoscaled, makers = more.get("autoscaled", False), more.get("makers", JOBSET)
        section, self.clock = Kubernetes(gpu="h100", namespace="runs", autoscaled=autoscaled), at
        made = self._reasons.setdefault(autoscaled, Reasons(self, section))  # type: ignore[arg-type]
        return made.add(job, state, Awaited(list(map(Pod, pods)), 1, makers))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(reasons, "time", SimpleNamespace(monotonic=lambda: 1000 + made.clock))
    return made


def test_a_job_that_starts_at_once_costs_no_request(cluster: Cluster) -> None:
    for at in (0, 1, 4.9):
        assert cluster.look(at) == WAITS
    cluster.look(5, JobState(Phase.RUNNING, "Running"))
    for at in range(6, 1000, 100):
        # Kueue has not admitted it: its pods are not missed.
        cluster.look(at, JobState(Phase.QUEUED, "Suspended", "insufficient unused quota"))
    assert cluster.asked == []


def test_all_jobs_that_wait_cost_a_list_a_minute(cluster: Cluster) -> None:
    for at in range(4 * 60):
        for job in ("one", "two", "three"):
            cluster.look(60 * at, pods=[pod(0, node="")], job=job)
    assert len(cluster.asked) <= 4 * 60
    assert set(cluster.asked) == {("LIST", EVENTS)}


ERRORS = (Refused(403, "events is forbidden"), Unreachable("gone"))


@pytest.mark.parametrize("error", ERRORS)
def test_events_that_cannot_be_had_conclude_nothing(cluster: Cluster, error: Exception) -> None:
    cluster.refuse("", "", error)
    cluster.look(0)
    assert cluster.look(6, pods=[pod(0, node="", conditions=[TAINTED])]) == WAITS


BACK_OFF = (
    'pod pm-1-0, container workload: ImagePullBackOff: Back-off pulling image "nvcr.io/nvidia/nemo:25.09"'
)
PULLS = JobState(Phase.STARTING, "Starting", BACK_OFF, hopeless=True)


@pytest.mark.parametrize(
    ("error", "hopeless"),
    [
        ("failed to copy: httpReadSeeker: failed open: unexpected status code: 429 Too Many Requests", False),
        ("nvcr.io/nvidia/nemo:25.09: not found", True),
    ],
)
def test_a_pull_that_an_old_kubelet_puts_off_is_judged_by_the_error_of_the_last_one(
    cluster: Cluster, error: str, hopeless: bool
) -> None:
    """Kubelets until 1.31: EnsureImageExists in pkg/kubelet/images/image_manager.go. Newer ones repeat the error."""
    words = f'Failed to pull image "nvcr.io/nvidia/nemo:25.09": rpc error: code = Unknown desc = {error}'
    messages = {"10": f"{words} at first", "40": words, "50": "Error: ImagePullBackOff"}
    ours = [event("Pod", "pm-1-0", "Failed", message, last=at) for at, message in messages.items()]
    other = event("Pod", "pm-2-0", "Failed", "Failed to pull image: of another job", last="55")
    cluster.warns(*ours, other)
    assert cluster.look(0, PULLS, [pod(0)]) == PULLS
    for seconds in (5, 60, 300):
        state = cluster.look(seconds, PULLS, [pod(0)])
        assert state.hopeless is hopeless
        assert state.reason == f"{BACK_OFF}: Failed: {words}"
    # Without its events, nobody knows better.
    cluster.warns()
    assert cluster.look(600, PULLS, [pod(0)]) == PULLS


def test_only_a_pull_that_is_put_off_costs_a_list_of_events(cluster: Cluster) -> None:
    newer = JobState(Phase.STARTING, "Starting", f"{BACK_OFF}: ErrImagePull: not found", hopeless=True)
    for seconds in (0, 5, 60):
        assert cluster.look(seconds, newer, [pod(0)]) == newer
    assert cluster.asked == []


def test_a_taint_is_told_by_the_nodes_where_the_scheduler_does_not_name_it(cluster: Cluster) -> None:
    waiting = pod(0, node="", conditions=[TAINTED])
    cluster.objects[f"{NODES}/a"] = node("a", SKU)
    cluster.look(0, pods=[waiting])
    found = cluster.look(5, pods=[waiting])
    assert found.hopeless
    assert found.reason.endswith(
        "the nodes have the taint sku=gpu:NoSchedule, which the job does not tolerate: set "
        "`tolerations: [{key: sku, operator: Exists, effect: NoSchedule}]` in the site file"
    )
    for at in range(6, 60):
        cluster.look(at, pods=[waiting])
    assert cluster.asked.count(("LIST", NODES)) == 1
    # Nobody can know what an autoscaler will make.
    cluster.look(0, pods=[waiting], autoscaled=True)
    assert cluster.look(60, pods=[waiting], autoscaled=True) == WAITS


@pytest.mark.parametrize(
    ("makers", "job", "words"),
    [
        (JOBSET, None, "the JobSet controller has not made Job pm-1-workload-0; does it run?"),
        (JOBSET, {"spec": {}}, "the Job controller has made none of Job pm-1-workload-0"),
        (
            JOBSET,
            {"spec": {}, "status": {"active": 1}},
            "the pods of Job pm-1-workload-0 have lost the label app.kubernetes.io/",
        ),
        (JOBSET, {"spec": {"suspend": True}}, "somebody has suspended Job pm-1-workload-0"),
        (PYTORCH, None, "the training operator has made none of them; does it run?"),
    ],
)
def test_a_controller_that_makes_no_pods_is_named_and_not_waited_for(
    cluster: Cluster, makers: set[tuple[str, str]], job: Object | None, words: str
) -> None:
    if job is not None:
        cluster.objects[f"{JOBS}/pm-1-workload-0"] = job
    assert cluster.look(0, makers=makers) == cluster.look(29, makers=makers) == WAITS
    state = cluster.look(30, makers=makers)
    assert state.reason.startswith(f"0 of 1 pods have a node: {words}")
    # It may have been replaced.
    assert not cluster.look(299, makers=makers).hopeless
    assert cluster.look(300, makers=makers).hopeless
    assert cluster.look(310, makers=makers) == cluster.look(300, makers=makers)
    # One pod shows that it runs.
    assert cluster.look(320, makers=makers, pods=[pod(0, node="")]) == WAITS


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("makers", [JOBSET, PYTORCH])
def test_without_events_no_controller_is_blamed(
    cluster: Cluster, error: Exception, makers: set[tuple[str, str]]
) -> None:
    """A quota that others use may keep it from making pods."""
    cluster.refuse("", "", error)
    for at in (0, 30, 300, 3000):
        assert cluster.look(at, makers=makers) == WAITS


def test_what_refuses_the_pods_is_told_and_not_their_controller(cluster: Cluster) -> None:
    cluster.warns(of_job(QUOTA.format(32)))
    cluster.look(0)
    state = cluster.look(300)
    assert "exceeded quota" in state.reason
    assert not state.hopeless
    assert "GET" not in dict(cluster.asked)


# A suspended job: who would let it go. The workloads are as Kueue 0.19 writes them (pkg/controller/core/workload_controller.go)


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


class Queues(kubeapi.Memory):
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
def queues(monkeypatch: pytest.MonkeyPatch) -> Queues:
    monkeypatch.setattr(kueue, "Informer", kubeapi.Watch)
    made = Queues()
    monkeypatch.setattr(kueue, "time", SimpleNamespace(monotonic=lambda: 1000 + made.clock))
    return made


@pytest.mark.parametrize("kind", [JobSets(), PyTorchJobs()])
def test_kueue_that_manages_jobs_without_a_queue_name_never_admits_one(queues: Queues, kind: JobKind) -> None:
    queues.has(workload("LocalQueue  doesn't exist"))
    state = queues.look(0, kind=kind)
    assert state.hopeless
    assert state.reason == (
        "Inadmissible: LocalQueue  doesn't exist; Kueue manages jobs without a queue name here: set `queue` in the site file "
        "(`kubectl get localqueues -n default`)"
    )
    # A later version of Kueue has other words.
    queues.has(workload("no queue", reason="Misconfigured"))
    assert queues.look(0, kind=kind).hopeless


def test_a_job_that_is_suspended_on_a_cluster_without_kueue_was_so_by_somebody(queues: Queues) -> None:
    del queues.objects["/apis/kueue.x-k8s.io"]
    for seconds in (0, 1, 60):
        state = queues.look(seconds)
        assert state.hopeless
        assert "the cluster has no Kueue" in state.reason
        assert "Kueue has not" not in state.reason
    assert queues.asked == [("GET", "/apis/kueue.x-k8s.io")]


def test_a_job_without_a_workload_is_given_up_only_after_kueue_had_its_time(queues: Queues) -> None:
    queues.has(workload("", owner="2"))
    assert queues.look(0) == JobState(Phase.QUEUED, "Suspended", "Kueue has not made its Workload yet")
    state = queues.look(15)
    assert state.hopeless
    assert "suspended JobSet pm-1 by hand" in state.reason
    assert "set `queue` in the site file" in state.reason


@pytest.mark.parametrize(
    ("kind", "framework"),
    [(JobSets(), "jobset.x-k8s.io/jobset"), (PyTorchJobs(), "kubeflow.org/pytorchjob")],
)
def test_kueue_without_its_integration_of_the_kind_is_told(
    queues: Queues, kind: JobKind, framework: str
) -> None:
    assert not queues.look(0, queue="a3", kind=kind).hopeless
    state = queues.look(15, queue="a3", kind=kind)
    assert state.hopeless
    assert state.reason.endswith(f"`integrations.frameworks` of its configuration has {framework}")


def test_a_job_that_kueue_looks_at_waits_however_long(queues: Queues) -> None:
    queues.look(0, queue="a3")
    queues.has(workload("couldn't assign flavors: insufficient unused quota", reason="Pending"))
    for seconds in (1, 3600, 80_000):
        assert not queues.look(seconds, queue="a3").hopeless
    # Its workload is made anew.
    queues.has()
    assert not queues.look(80_001, queue="a3").hopeless


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
    queues: Queues, workload: Object, reason: str, hopeless: bool
) -> None:
    """fitsResourceQuota in pkg/scheduler/flavorassigner/flavorassigner.go of Kueue 0.19 has the words of the quota."""
    queues.has(workload)
    state = queues.look(0, queue="a3")
    assert state.reason.startswith(reason)
    assert state.hopeless is hopeless


@pytest.mark.parametrize("drains", [False, True])
@pytest.mark.parametrize("words", ["LocalQueue a3 is inactive", "ClusterQueue a3 is stopped"])
def test_a_queue_that_is_held_is_waited_for(queues: Queues, words: str, *, drains: bool) -> None:
    """With `stopPolicy`, Hold or HoldAndDrain: getQueueBlocker and reconcileOnClusterQueueActiveState in
    pkg/controller/core/workload_controller.go of Kueue 0.19.
    """
    queues.has(workload(words))
    if drains:
        queues.has(evicted("ClusterQueueStopped", "The ClusterQueue is stopped", words))
    for seconds in (0, 3600, 80_000):
        state = queues.look(seconds, queue="a3")
        assert not state.hopeless
        assert (
            f"{words} (its `stopPolicy` holds it, or it lacks a flavor: ask the administrator" in state.reason
        )


@pytest.mark.parametrize("error", [Denied("workloads is forbidden"), Refused(403, "workloads is forbidden")])
def test_a_user_who_may_not_see_workloads_is_told_so(queues: Queues, error: Exception) -> None:
    queues.refuse("LIST", WORKLOADS, error)
    state = queues.look(0)
    assert state.hopeless
    assert "this user may not list Kueue's workloads (workloads is forbidden); set `queue`" in state.reason
    # With a label somebody may admit it, and it is waited for.
    assert not queues.look(0, label="default").hopeless
    with pytest.raises(Denied):
        queues.look(0, queue="a3")
