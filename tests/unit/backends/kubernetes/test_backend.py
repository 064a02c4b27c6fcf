"""The backend over a cluster in memory: what it makes of what pods, kubelets and their logs say."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from fixtures.backends.base import ClusterTimes, LogPlace
from fixtures.backends.kubernetes import backend as module
from fixtures.backends.kubernetes import logs, objects, watched
from fixtures.backends.kubernetes.api import Refused
from fixtures.backends.kubernetes.backend import KubernetesBackend
from fixtures.backends.kubernetes.informer import Copy
from fixtures.backends.kubernetes.jobset import JobSets
from fixtures.backends.kubernetes.kueue import Admissions
from fixtures.backends.kubernetes.pytorchjob import PyTorchJobs, TorchJobSets
from fixtures.backends.kubernetes.section import Kubernetes
from fixtures.backends.section import Workload
from plugins.base.errors import Unreachable
from plugins.record.job import JobRef, Phase
from tests.unit import aks, examples, kubeapi
from tests.unit.kubelet import Kubelet

NAME = "run.llama3_gke-70b-fp8-128gpus"
JOB = JobRef("llama3_gke", "70b-fp8-128gpus", NAME, "pm-1", "default", uid="uid-1")
LABELS = {
    "jobset.sigs.k8s.io/jobset-name": "pm-1",
    "jobset.sigs.k8s.io/jobset-uid": "uid-1",
    "batch.kubernetes.io/job-completion-index": "0",
}
POD: dict[str, Any] = {
    "metadata": {
        "name": "pm-1-0",
        "uid": "1",
        "labels": LABELS,
        "ownerReferences": [{"kind": "Job", "name": "pm-1-workload-0", "uid": "job-1"}],
        "creationTimestamp": "2026-11-21T09:00:00Z",
    },
    "spec": {"nodeName": "node-0"},
    "status": {"phase": "Running"},
}
DONE = {"conditions": [{"type": "Completed", "status": "True"}], "terminalState": "Completed"}
ONE_POD = {"replicatedJobs": [{"name": "w", "template": {"spec": {"parallelism": 1}}}]}
HEAD = "2026-11-21T09:00:00.1Z Pod on pm-1-0 is running\n"


class Cluster:
    """One JobSet and its pod of rank 0, whose log is `said`."""

    said = ""

    def __init__(self, site: str, section: Kubernetes) -> None:
        """As the API is made."""

    def get(self, path: str, **query: str) -> Any:
        """The pods that there are, whatever their labels."""
        return {"items": Watching.pods}

    @contextlib.contextmanager
    def chunks(self, path: str, query: Mapping[str, str], *, silent: float) -> Iterator[list[bytes]]:
        yield [self.said.encode()]

    def awaited(self, request: object, call: Callable[[], Any]) -> Any:
        return call()


class Watching:
    """Knows what there is, and which pods are `gone`, in this order. `metadata` and `status` are the JobSet's."""

    status: ClassVar[dict[str, Any]] = DONE
    metadata: ClassVar[dict[str, Any]] = {"name": "pm-1", "namespace": "default", "uid": "uid-1"}
    spec: ClassVar[dict[str, Any]] = {}
    pods: ClassVar[list[dict[str, Any]]] = [POD]
    gone: ClassVar[list[dict[str, Any]]] = []

    def __init__(self, api: Cluster, path: str, selector: str) -> None:
        self._of_pods = path.endswith("/pods")

    def look(self) -> Copy:
        if not self._of_pods:
            return Copy(
                {"pm-1": {"metadata": self.metadata, "spec": self.spec, "status": self.status}}, {}, {}
            )
        there, gone = ({pod["metadata"]["name"]: pod for pod in pods} for pods in (self.pods, self.gone))
        return Copy(there, gone, {pod["metadata"]["uid"]: number for number, pod in enumerate(self.gone, 1)})

    def close(self) -> None:
        """As a watch is closed."""


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> KubernetesBackend:
    monkeypatch.setattr(module, "Api", Cluster)
    monkeypatch.setattr(watched, "Informer", Watching)
    return KubernetesBackend("lab", Kubernetes(gpu="h100"), [examples.recipe_named("llama3_gke")], JobSets())


def test_a_log_that_was_not_there_at_first_is_not_gone_for_good(
    backend: KubernetesBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cluster, "said", "unable to retrieve container logs for containerd://b91c")
    place = backend.read_log(JOB, LogPlace(), ()).place
    assert backend.log_trouble(JOB, place) == "the log of pod pm-1-0 is gone, and with it the rest of its log"
    monkeypatch.setattr(Cluster, "said", HEAD)
    piece = backend.read_log(JOB, place, ())
    assert (piece.data, piece.place.gap) == (b"Pod on pm-1-0 is running\n", "")
    assert backend.log_trouble(JOB, piece.place) == ""


def test_a_secret_by_its_name_is_sent_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "local-5up3r-s3cret"
    monkeypatch.setattr(module, "Api", Cluster)
    monkeypatch.setattr(watched, "Informer", Watching)
    monkeypatch.setattr(Cluster, "release", "v1.33.3", raising=False)
    monkeypatch.setattr(Cluster, "said", f"{HEAD}2026-11-21T09:00:00.2Z wandb: {secret} loc\n")
    section = Kubernetes(
        gpu="h100",
        environment={"WANDB_API_KEY": secret, "NCCL_DEBUG": "INFO"},
        recipes={"llama3_gke": Workload(values={"image": "registry.test/nemo:1", "bucket": "lab-bucket"})},
    )
    backend = KubernetesBackend("lab", section, [examples.recipe_named("llama3_gke")], JobSets())
    case = examples.recipe_named("llama3_gke").case(JOB.case_id)
    assert case is not None
    plan = backend.plan(case, "run.x")
    assert secret not in plan
    assert "name: WANDB_API_KEY\n" in plan
    assert "value: <not shown>\n" in plan
    assert secret in str(backend._renderer.documents(case, JobSets(), "run.x", ask=False))
    piece = backend.read_log(JOB, LogPlace(), ())
    assert piece.data == b"Pod on pm-1-0 is running\nwandb: " + b"*" * len(secret) + b" loc\n"


@pytest.mark.parametrize(
    ("status", "metadata", "prefix", "found"),
    [
        ({}, {}, "run.", [("run.llama3_gke-70b-fp8-128gpus", "pm-1")]),
        ({}, {}, "run-2.", []),
        (DONE, {}, "run.", []),
        ({}, {"deletionTimestamp": "2026-11-21T09:00:00Z"}, "run.", []),
        ({}, {"annotations": {}}, "run.", []),
    ],
    ids=["ours", "another-run", "over", "going", "without-its-name"],
)
def test_jobs_are_listed_by_the_name_of_their_run(
    backend: KubernetesBackend,
    monkeypatch: pytest.MonkeyPatch,
    status: dict[str, Any],
    metadata: dict[str, Any],
    prefix: str,
    found: list[tuple[str, str]],
) -> None:
    monkeypatch.setattr(Watching, "status", status)
    annotations = {objects.JOB: JOB.name}
    monkeypatch.setattr(Watching, "metadata", {**Watching.metadata, "annotations": annotations, **metadata})
    assert [(job.name, job.id) for job in backend.listed(prefix)] == found


def test_a_head_that_is_gone_is_known_by_the_recipe(
    backend: KubernetesBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cluster, "said", HEAD.replace("running", "exiting"))
    place = backend.read_log(JOB, LogPlace(), ()).place
    assert "the kubelet rotated the first lines of pod pm-1-0 away unread" in place.gap
    assert place.gap in backend.log_trouble(JOB, place)


def failed(name: str, node: str, index: str, created: str, **status: Any) -> dict[str, Any]:
    labels = {**LABELS, "batch.kubernetes.io/job-completion-index": index}
    metadata = {**POD["metadata"], "name": name, "uid": name, "labels": labels, "creationTimestamp": created}
    return {"metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": "Failed", **status}}


def test_only_the_last_life_of_a_job_is_blamed_for_its_end(
    backend: KubernetesBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kueue gave the job other nodes when one failed, under the same number of restarts."""
    taint = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
    early, late = "2026-11-21T09:00:00Z", "2026-11-21T10:00:00Z"
    crashed = {"exitCode": 1, "finishedAt": "2026-11-21T10:05:00Z"}
    before = [
        failed("a-0", "node-old", "0", early, conditions=[taint]),
        failed("a-1", "node-old", "1", early, conditions=[taint]),
    ]
    now = [
        failed(
            "b-0",
            "node-bad",
            "0",
            late,
            containerStatuses=[{"name": "workload", "state": {"terminated": crashed}}],
        ),
        {**failed("b-1", "node-1", "1", late), "status": {"phase": "Running"}},
    ]
    monkeypatch.setattr(Watching, "gone", before)
    monkeypatch.setattr(Watching, "pods", now)
    assert backend.blamed(JOB) == "node-bad"
    monkeypatch.setattr(Watching, "pods", [])
    assert backend.blamed(JOB) == "node-old"
    # One that made room for another pod is not at fault.
    preempted = {**taint, "reason": "PreemptionByScheduler"}
    monkeypatch.setattr(Watching, "gone", [failed("c-0", "node-2", "0", late, conditions=[preempted])])
    assert backend.blamed(JOB) == ""


def test_a_log_that_has_more_is_asked_for_at_once(
    backend: KubernetesBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not read before the kubelet rotates it away is lost; any other log has its share of requests."""
    lines = [f"2026-11-21T09:{number // 60:02d}:{number % 60:02d}Z {'x' * 400}\n" for number in range(3000)]
    monkeypatch.setattr(Cluster, "said", HEAD + "".join(lines))
    monkeypatch.setattr(logs, "PIECE", 1 << 18)
    place, more = LogPlace(), list[bool]()
    while (piece := backend.read_log(JOB, place, ())).data:
        place = piece.place
        more.append(piece.more)
    assert place.offset == 25 + 401 * 3000
    assert more == [*[True] * (len(more) - 1), False]


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[tuple[KubernetesBackend, Kubelet]]:
    """A job that runs, whose log is followed."""
    monkeypatch.setattr(watched, "Informer", Watching)
    monkeypatch.setattr(Watching, "status", {})
    kubelet = Kubelet()
    config = kubeapi.kubeconfig(tmp_path / "config", kubelet.url)
    section = Kubernetes(gpu="h100", kubeconfig=str(config))
    made = KubernetesBackend("lab", section, [examples.recipe_named("llama3_gke")], JobSets())
    yield made, kubelet
    made.close()
    kubelet.close()


def taken(backend: KubernetesBackend, place: LogPlace, last: str) -> tuple[LogPlace, str]:
    """What comes until this line, and how far that is."""
    text, deadline = "", time.monotonic() + 60
    while not text.endswith(f"{last}\n"):
        assert time.monotonic() < deadline, text
        piece = backend.read_log(JOB, place, ())
        place, text = piece.place, text + piece.data.decode()
        time.sleep(0.005)
    return place, text


def test_a_pod_that_takes_another_ones_place_is_followed_from_its_beginning(
    followed: tuple[KubernetesBackend, Kubelet], monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, kubelet = followed
    kubelet.say("Pod on pm-1-0 is running")
    kubelet.say("step 1")
    place, _ = taken(backend, LogPlace(), "step 1")
    kubelet.say("step 2")
    assert kubelet.wait(1)
    labels = {**LABELS, "jobset.sigs.k8s.io/restart-attempt": "1"}
    metadata = {**POD["metadata"], "name": "pm-1-1", "uid": "2", "labels": labels}
    monkeypatch.setattr(Watching, "pods", [{**POD, "metadata": metadata}])
    # What the first one said is its own, and nothing of the next one's is taken for it.
    place, _ = taken(backend, place, "step 2")
    piece = backend.read_log(JOB, place, ())
    assert (piece.data, piece.place.attempt) == (b"", 2)
    kubelet.rotate()
    kubelet.say("Pod on pm-1-1 is running")
    place, text = taken(backend, piece.place, "Pod on pm-1-1 is running")
    assert (place.file, place.gap, text) == ("pm-1-1", "", "Pod on pm-1-1 is running\n")
    backend.close()
    assert kubelet.wait(0)


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [
        (None, "somebody deleted the JobSet"),
        (Refused(403, "configmaps is forbidden"), "somebody deleted the JobSet"),
        (Unreachable("gone"), "somebody deleted the JobSet"),
        (
            Refused(403, "unable to create new content in namespace default because it is being terminated"),
            "somebody deleted namespace default, and with it the JobSet",
        ),
    ],
)
def test_a_namespace_that_is_being_deleted_is_named(
    backend: KubernetesBackend, monkeypatch: pytest.MonkeyPatch, refusal: Exception | None, reason: str
) -> None:
    gone = {"pm-1": {"metadata": Watching.metadata, "spec": {}, "status": {}}}

    def post(cluster: Cluster, path: str, document: Any, **query: str) -> Any:
        assert query["dryRun"] == "All"
        if refusal is not None:
            raise refusal
        return document

    monkeypatch.setattr(Watching, "pods", [])
    monkeypatch.setattr(Watching, "look", lambda watch: Copy({}, gone, {}))
    monkeypatch.setattr(Cluster, "find", lambda cluster, path: None, raising=False)
    monkeypatch.setattr(Cluster, "post", post, raising=False)
    assert backend.poll([JOB])[JOB].reason == reason


def leaving(pod: dict[str, Any], until: str, grace: int = 0) -> dict[str, Any]:
    deletion = {"deletionTimestamp": until, "deletionGracePeriodSeconds": grace}
    return {**pod, "metadata": {**pod["metadata"], **deletion}}


TAINT = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
AGO, AHEAD = "2026-11-21T09:10:00Z", "2099-11-21T09:10:00Z"


@pytest.mark.parametrize(
    ("until", "grace", "conditions", "hopeless", "reason"),
    [
        (AGO, 0, [], True, "pod pm-1-0 on node-0 was deleted and does not end"),
        (AGO, 0, [TAINT], True, "pod pm-1-0 on node-0 (DeletionByTaintManager)"),
        # It may save what it has until then, and its Job fails only afterwards.
        (AHEAD, 3600, [], False, ""),
        (AHEAD, 3600, [TAINT], False, "pod pm-1-0 on node-0 (DeletionByTaintManager)"),
        # The clock of this machine is far behind the cluster's, or ahead of it.
        (AHEAD, 0, [], True, "pod pm-1-0 on node-0 was deleted and does not end"),
        (AGO, 3600, [], False, ""),
    ],
)
def test_a_job_is_hopeless_once_a_pod_does_not_end_within_its_grace_period(
    backend: KubernetesBackend,
    monkeypatch: pytest.MonkeyPatch,
    until: str,
    grace: int,
    conditions: list[dict[str, str]],
    hopeless: bool,
    reason: str,
) -> None:
    monkeypatch.setattr(Watching, "status", {})
    monkeypatch.setattr(Watching, "spec", ONE_POD)
    pod = leaving({**POD, "status": {"phase": "Running", "conditions": conditions}}, until, grace)
    monkeypatch.setattr(Watching, "pods", [pod])
    state = backend.poll([JOB])[JOB]
    assert (state.phase, state.hopeless) == (Phase.QUEUED, hopeless)
    assert state.reason == ": ".join(filter(None, ("0 of 1 pods have a node", reason)))
    # Once another pod has its place, it is waited for.
    newer = {**POD, "metadata": {**POD["metadata"], "uid": "2", "name": "pm-1-1", "creationTimestamp": AGO}}
    monkeypatch.setattr(Watching, "pods", [pod, {**newer, "spec": {}}])
    assert not backend.poll([JOB])[JOB].hopeless
    # Kueue has taken the nodes back, and gives others.
    monkeypatch.setattr(Watching, "spec", {**ONE_POD, "suspend": True})
    monkeypatch.setattr(Watching, "pods", [pod])
    monkeypatch.setattr(Admissions, "workload", lambda *_: None)
    assert not backend.poll([JOB])[JOB].hopeless


def test_the_pods_that_keep_a_deleted_job_are_named(
    backend: KubernetesBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Watching, "metadata", {**Watching.metadata, "deletionTimestamp": AGO})
    monkeypatch.setattr(Watching, "status", {})
    monkeypatch.setattr(Watching, "spec", ONE_POD)
    monkeypatch.setattr(Watching, "pods", [leaving(POD, AGO)])
    assert backend.poll([JOB])[JOB].reason == "pods that have not ended: pm-1-0 on node-0"
    monkeypatch.setattr(Watching, "pods", [])
    assert backend.poll([JOB])[JOB].reason == ""


# Whose a job and its pods are


def test_a_jobset_of_the_same_name_and_another_uid_is_another_job(
    backend: KubernetesBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deleted, and applied again from a copy. A later session has the uid from the log of jobs."""
    copied = {**Watching.metadata, "uid": "uid-2", "annotations": {objects.JOB: JOB.name}}
    theirs = {"metadata": copied, "spec": {}, "status": DONE}
    asked = list[str]()
    monkeypatch.setattr(Watching, "metadata", copied)
    monkeypatch.setattr(Watching, "last_known", lambda watch, name: theirs, raising=False)
    monkeypatch.setattr(Cluster, "find", lambda cluster, path: theirs, raising=False)
    monkeypatch.setattr(Cluster, "post", lambda cluster, path, document, **query: document, raising=False)
    monkeypatch.setattr(Cluster, "delete", lambda cluster, path, uid: asked.append(uid), raising=False)
    monkeypatch.setattr(Watching, "pods", [])
    state = backend.poll([JOB])[JOB]
    assert (state.phase, state.raw, state.reason) == (
        Phase.FAILED,
        "CANCELLED",
        "somebody deleted the JobSet and made another one of its name",
    )
    backend.cancel([JOB])
    assert asked == []
    assert backend.times(JOB).ended is None
    # Its annotation may be gone: what has the uid is ours.
    mine = replace(JOB, uid="uid-2")
    copied.pop("annotations")
    assert backend.poll([mine])[mine].phase is Phase.SUCCEEDED
    backend.cancel([mine])
    assert asked == ["uid-2"]


@pytest.mark.parametrize("jobset", ["0.12", "0.8.0"])
def test_the_log_of_another_jobsets_pod_is_not_read(
    backend: KubernetesBackend, monkeypatch: pytest.MonkeyPatch, jobset: str
) -> None:
    """Before 0.8.1 the controller gave no pod its JobSet's uid (kubernetes-sigs/jobset 324842cb): the Job has it."""
    monkeypatch.setattr(Cluster, "said", HEAD)
    asked = list[str]()

    def pod(name: str, uid: str) -> dict[str, Any]:
        labels = {**LABELS, "jobset.sigs.k8s.io/jobset-uid": uid}
        owner = {"kind": "Job", "name": f"job-of-{uid}", "uid": f"job-{uid}"}
        if jobset == "0.8.0":
            del labels["jobset.sigs.k8s.io/jobset-uid"]
        metadata = {**POD["metadata"], "name": name, "uid": name, "labels": labels, "namespace": "default"}
        return {**POD, "metadata": {**metadata, "ownerReferences": [owner]}}

    def find(cluster: Cluster, path: str) -> Any:
        asked.append(path)
        uid = path.rpartition("job-of-")[2]
        owners = [{"kind": "JobSet", "name": "pm-1", "uid": uid}]
        return {"metadata": {"uid": f"job-{uid}", "ownerReferences": owners}}

    monkeypatch.setattr(Cluster, "find", find, raising=False)
    monkeypatch.setattr(Watching, "pods", [pod("pm-1-0-new", "uid-2")])
    assert backend.read_log(JOB, LogPlace(), ()).data == b""
    ours = [pod("pm-1-0-old", "uid-1"), {**pod("pm-1-1-old", "uid-1"), "status": {"phase": "Pending"}}]
    monkeypatch.setattr(Watching, "pods", [pod("pm-1-0-new", "uid-2"), *ours])
    assert backend.read_log(JOB, LogPlace(), ()).place.file == "pm-1-0-old"
    # Each Job is asked for once.
    assert len(asked) == (2 if jobset == "0.8.0" else 0)


def test_a_copy_of_a_pod_is_not_of_the_job(
    backend: KubernetesBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`kubectl debug --copy-to --keep-labels`. The Job then adopts it, and deletes it since it has two pods of an index."""
    monkeypatch.setattr(Watching, "spec", ONE_POD)
    monkeypatch.setattr(Cluster, "said", HEAD)
    metadata = {**POD["metadata"], "name": "debug", "uid": "2", "creationTimestamp": "2026-11-21T10:00:00Z"}
    copied = {**POD, "metadata": {key: metadata[key] for key in metadata if key != "ownerReferences"}}
    monkeypatch.setattr(Watching, "pods", [POD, copied])
    assert backend.read_log(JOB, LogPlace(), ()).place.file == "pm-1-0"
    monkeypatch.setattr(Watching, "status", {})
    adopted = {**POD, "metadata": metadata, "status": {"phase": "Failed"}}
    monkeypatch.setattr(Watching, "pods", [POD, leaving(adopted, AGO)])
    state = backend.poll([JOB])[JOB]
    assert (state.phase, state.nodes) == (Phase.RUNNING, "node-0")


def test_the_log_of_another_pytorchjobs_worker_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pods have the very names of ours. The training operator makes a PyTorchJob the owner of each pod."""
    monkeypatch.setattr(module, "Api", Cluster)
    monkeypatch.setattr(watched, "Informer", Watching)
    monkeypatch.setattr(Cluster, "said", HEAD)
    backend = KubernetesBackend(
        "lab", Kubernetes(gpu="h100"), [examples.recipe_named("gpt3_aks")], PyTorchJobs(), TorchJobSets()
    )
    job = JobRef("gpt3_aks", aks.case().id, "run.x", "pm-1", "default", "PyTorchJob", uid="uid-1")

    def worker(uid: str) -> dict[str, Any]:
        labels = {"training.kubeflow.org/job-name": "pm-1"}
        owners = [{"kind": "PyTorchJob", "name": "pm-1", "uid": uid}]
        metadata = {**POD["metadata"], "name": "pm-1-worker-0", "uid": f"pod-{uid}", "labels": labels}
        return {**POD, "metadata": {**metadata, "ownerReferences": owners}}

    monkeypatch.setattr(Watching, "pods", [worker("uid-2")])
    assert backend.read_log(job, LogPlace(), ()).data == b""
    monkeypatch.setattr(Watching, "pods", [worker("uid-1")])
    assert backend.read_log(job, LogPlace(), ()).data
    # Once it is gone, its name is another's.
    monkeypatch.setattr(Watching, "pods", [worker("uid-2")])
    monkeypatch.setattr(Watching, "gone", [worker("uid-1")])
    assert backend.log_trouble(job, LogPlace()) == ""
    assert backend.read_log(job, LogPlace(), ()).data == b""


# How it ended


def deleted_backend(monkeypatch: pytest.MonkeyPatch, status: dict[str, Any]) -> None:
    """The JobSet is gone, and had this status last."""
    last = {"pm-1": {"metadata": Watching.metadata, "spec": ONE_POD, "status": status}}
    pods = Watching.look

    def look(watch: Watching) -> Copy:
        return pods(watch) if watch._of_pods else Copy({}, last, {})

    monkeypatch.setattr(Watching, "look", look)
    monkeypatch.setattr(Watching, "last_known", lambda watch, name: None, raising=False)
    monkeypatch.setattr(Cluster, "find", lambda cluster, path: None, raising=False)
    monkeypatch.setattr(Cluster, "post", lambda cluster, path, document, **query: document, raising=False)


def test_pods_that_were_left_by_their_deleted_job_are_told_and_not_over(
    backend: KubernetesBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`kubectl delete --cascade=orphan`: also for a later session, which never saw the JobSet."""
    deleted_backend(monkeypatch, {})
    state = backend.poll([JOB])[JOB]
    assert (state.phase, state.raw) == (Phase.RUNNING, "Orphaned")
    assert state.reason == (
        "somebody deleted the JobSet and left pm-1-0 on node-0: end them with "
        "`kubectl delete job,pod -n default -l jobset.sigs.k8s.io/jobset-name=pm-1`"
    )
    backend.cancel([JOB])
    assert backend.poll([JOB])[JOB].phase is Phase.RUNNING
    # Also if they have lost our label meanwhile, so that no watch sees them.
    unseen = [POD]
    monkeypatch.setattr(Cluster, "get", lambda cluster, path, **query: {"items": unseen})
    monkeypatch.setattr(Watching, "pods", [])
    assert backend.poll([JOB])[JOB].raw == "Orphaned"
    # The command would end the pods of another JobSet of that name too.
    theirs = {"metadata": {**Watching.metadata, "uid": "uid-2"}, "spec": {}, "status": {}}
    monkeypatch.setattr(Cluster, "find", lambda cluster, path: theirs)
    assert backend.poll([JOB])[JOB].reason == "somebody deleted the JobSet and left pm-1-0 on node-0"
    monkeypatch.setattr(Cluster, "find", lambda cluster, path: None)
    # The clock of this machine would end what the cluster's began.
    assert backend.times(JOB) == ClusterTimes()
    # Those that end with it are not left.
    monkeypatch.setattr(Cluster, "get", lambda cluster, path, **query: {"items": Watching.pods})
    monkeypatch.setattr(Watching, "pods", [leaving(POD, AGO)])
    assert backend.poll([JOB])[JOB].reason == "somebody deleted the JobSet"


def test_workers_that_were_left_by_their_deleted_pytorchjob_are_told_by_a_later_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The garbage collector takes the owner from each orphan (kubernetes pkg/controller/garbagecollector, orphanDependents)."""
    monkeypatch.setattr(module, "Api", Cluster)
    monkeypatch.setattr(watched, "Informer", Watching)
    deleted_backend(monkeypatch, {})
    monkeypatch.setattr(Watching, "look", lambda watch: Copy({}, {}, {}))
    backend = KubernetesBackend(
        "lab", Kubernetes(gpu="h100"), [examples.recipe_named("gpt3_aks")], PyTorchJobs(), TorchJobSets()
    )
    labels = {"training.kubeflow.org/job-name": "pm-1"}
    metadata = {
        **POD["metadata"],
        "name": "pm-1-worker-0",
        "uid": "7",
        "labels": labels,
        "ownerReferences": [],
    }
    orphan = {**POD, "metadata": metadata}
    theirs = {"kind": "PyTorchJob", "name": "pm-1", "uid": "uid-2"}
    adopted = {**orphan, "metadata": {**orphan["metadata"], "uid": "8", "ownerReferences": [theirs]}}
    monkeypatch.setattr(Watching, "pods", [adopted])
    job = JobRef("gpt3_aks", aks.case().id, "run.x", "pm-1", "default", "PyTorchJob", uid="uid-1")
    assert backend.poll([job])[job].phase is Phase.GONE
    monkeypatch.setattr(Watching, "pods", [adopted, orphan])
    assert backend.poll([job])[job].reason == (
        "somebody deleted the PyTorchJob and left pm-1-worker-0 on node-0: end them with "
        "`kubectl delete job,pod -n default -l training.kubeflow.org/job-name=pm-1`"
    )


def test_a_job_that_was_deleted_after_its_end_ended_as_it_did(
    backend: KubernetesBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A policy that sets `ttlSecondsAfterFinished: 0`."""
    crashed = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-11-21T10:05:00Z"}
    containers = [{"name": "workload", "state": {"terminated": crashed}}]
    monkeypatch.setattr(Watching, "pods", [])
    monkeypatch.setattr(Watching, "gone", [failed("b-0", "node-bad", "0", AGO, containerStatuses=containers)])
    end = {"type": "Failed", "status": "True", "reason": "FailedJobs", "lastTransitionTime": AGO}
    deleted_backend(monkeypatch, {"conditions": [end]})
    state = backend.poll([JOB])[JOB]
    assert (state.phase, state.raw, state.nodes, state.exit_code) == (
        Phase.FAILED,
        "Failed",
        "node-bad",
        "137",
    )
    assert state.reason == "pod b-0 on node-bad: container workload ended with exit code 137 (OOMKilled)"
    assert backend.times(JOB).ended is not None


def test_what_a_job_did_not_say_before_it_was_deleted_at_its_end_is_lost(
    backend: KubernetesBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Watching, "pods", [])
    monkeypatch.setattr(Watching, "gone", [POD])
    deleted_backend(monkeypatch, DONE)
    assert backend.poll([JOB])[JOB].phase is Phase.SUCCEEDED
    assert backend.log_trouble(JOB, LogPlace("pm-1-0", 8, mark="x")) == (
        "pod pm-1-0 that printed the steps is gone, and with it the rest of its log"
    )


def test_a_job_that_was_deleted_before_its_end_has_no_other_trouble(
    backend: KubernetesBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its case tells who deleted it, and not only that no pod is left."""
    monkeypatch.setattr(Watching, "pods", [])
    monkeypatch.setattr(Watching, "gone", [POD])
    deleted_backend(monkeypatch, {})
    assert backend.poll([JOB])[JOB].reason == "somebody deleted the JobSet"
    assert backend.log_trouble(JOB, LogPlace("pm-1-0", 8, mark="x")) == ""


def test_nobody_else_deleted_what_the_session_ended(
    backend: KubernetesBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = {"metadata": Watching.metadata, "spec": ONE_POD, "status": {}}
    monkeypatch.setattr(Watching, "last_known", lambda watch, name: there, raising=False)
    monkeypatch.setattr(Cluster, "delete", lambda cluster, path, uid: None, raising=False)
    backend.cancel([JOB])
    monkeypatch.setattr(Watching, "pods", [])
    deleted_backend(monkeypatch, {})
    assert backend.poll([JOB])[JOB].reason == "this session deleted the JobSet"
    # A sweep asks for its end before it watches anything.
    monkeypatch.setattr(Watching, "look", lambda watch: Copy({}, {}, {}))
    state = backend.poll([JOB])[JOB]
    assert (state.phase, state.reason) == (Phase.FAILED, "this session deleted the JobSet")


def test_a_job_whose_pods_went_with_their_namespace_blames_no_pod(
    backend: KubernetesBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The namespace controller deletes pods, Jobs and JobSets in any order."""

    def post(cluster: Cluster, path: str, document: Any, **query: str) -> Any:
        raise Refused(403, "unable to create new content in namespace default because it is being terminated")

    monkeypatch.setattr(Cluster, "post", post, raising=False)
    monkeypatch.setattr(Watching, "status", {"conditions": [{"type": "Failed", "status": "True"}]})
    monkeypatch.setattr(Watching, "spec", ONE_POD)
    monkeypatch.setattr(Watching, "pods", [])
    monkeypatch.setattr(Watching, "gone", [leaving(POD, AGO)])
    state = backend.poll([JOB])[JOB]
    assert (state.raw, state.nodes) == ("CANCELLED", "")
    assert state.reason == "somebody deleted namespace default, and with it the JobSet"


def test_a_log_of_a_container_that_was_started_again_was_not_rotated(
    backend: KubernetesBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet shows the log of its last start alone."""
    monkeypatch.setattr(Cluster, "said", HEAD)
    place = backend.read_log(JOB, LogPlace(), ()).place
    crashed = {"terminated": {"exitCode": 137, "finishedAt": "2026-11-21T09:05:00Z"}}
    containers = [{"name": "workload", "state": {"running": {}}, "lastState": crashed}]
    monkeypatch.setattr(
        Watching, "pods", [{**POD, "status": {**POD["status"], "containerStatuses": containers}}]
    )
    monkeypatch.setattr(Cluster, "said", HEAD.replace("09:00:00.1", "09:06:00.1"))
    assert backend.read_log(JOB, place, ()).place.gap == (
        "container workload of pod pm-1-0 was started again in its pod, and what it said before is gone"
    )
    # A sidecar that was started again tells nothing of the log.
    containers[0] = {**containers[0], "name": "istio-proxy"}
    assert "the kubelet rotated the log of pod pm-1-0 away" in backend.read_log(JOB, place, ()).place.gap
