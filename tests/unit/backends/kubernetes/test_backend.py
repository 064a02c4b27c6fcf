"""The backend over a cluster in memory: what it makes of what pods, kubelets and their logs say."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fixtures.backends.base import ClusterTimes, LogPlace
from fixtures.backends.kubernetes import backend as module
from fixtures.backends.kubernetes import logs, objects, watched
from fixtures.backends.kubernetes.api import Api, Refused
from fixtures.backends.kubernetes.backend import KubernetesBackend
from fixtures.backends.kubernetes.jobset import JobSets
from fixtures.backends.kubernetes.kueue import Admissions
from fixtures.backends.kubernetes.pytorchjob import PyTorchJobs, TorchJobSets
from fixtures.backends.kubernetes.section import Kubernetes
from fixtures.backends.section import Workload
from plugins.base.errors import Unreachable
from plugins.record.job import JobRef, JobState, Phase
from tests.unit import aks, examples, kubeapi
from tests.unit.kubeapi import JOBS, MAPS, PODS, Object
from tests.unit.kubelet import Kubelet

NAME = "run.llama3_gke-70b-fp8-128gpus"
JOB = JobRef("llama3_gke", "70b-fp8-128gpus", NAME, "pm-1", "runs", uid="uid-1")
TORCH_JOB = JobRef("gpt3_aks", aks.case().id, "run.x", "pm-1", "runs", "PyTorchJob", uid="uid-1")
JOBSET = f"{JobSets().path('runs')}/pm-1"
OURS = {"app.kubernetes.io/managed-by": "pacemark"}
LABELS = {
    **OURS,
    "jobset.sigs.k8s.io/jobset-name": "pm-1",
    "jobset.sigs.k8s.io/jobset-uid": "uid-1",
    "batch.kubernetes.io/job-completion-index": "0",
}
TORCH_LABELS = {**OURS, "training.kubeflow.org/job-name": "pm-1"}
EARLY, LATE, AHEAD = "2026-11-21T09:00:00Z", "2026-11-21T09:10:00Z", "2099-11-21T09:10:00Z"
DONE = {"conditions": [{"type": "Completed", "status": "True"}], "terminalState": "Completed"}
ONE_POD = {"replicatedJobs": [{"name": "w", "template": {"spec": {"parallelism": 1}}}]}
TAINT = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
HEAD = "2026-11-21T09:00:00.1Z Pod on pm-1-0 is running\n"
TERMINATED = "unable to create new content in namespace runs because it is being terminated"


def pod(name: str = "pm-1-0", node: str = "node-0", status: Object | None = None, **metadata: Any) -> Object:
    """A pod of rank 0, which runs unless its status says otherwise."""
    usual = {"name": name, "uid": name, "namespace": "runs", "labels": LABELS, "creationTimestamp": EARLY}
    owners = [{"kind": "Job", "name": "pm-1-workload-0", "uid": "job-1"}]
    return {
        "metadata": {**usual, "ownerReferences": owners, **metadata},
        "spec": {"nodeName": node},
        "status": {"phase": "Running", **(status or {})},
    }


def leaving(until: str, grace: int = 0) -> Object:
    """What the metadata of a pod says while it is being deleted."""
    return {"deletionTimestamp": until, "deletionGracePeriodSeconds": grace}


def failed(name: str, node: str, index: str = "0", created: str = EARLY, **status: Any) -> Object:
    labels = {**LABELS, "batch.kubernetes.io/job-completion-index": index}
    return pod(name, node, {"phase": "Failed", **status}, labels=labels, creationTimestamp=created)


def crashed(code: int, **terminated: Any) -> list[Object]:
    """The statuses of containers, of which the one that trains has ended."""
    ended = {"exitCode": code, "finishedAt": "2026-11-21T10:05:00Z", **terminated}
    return [{"name": "workload", "state": {"terminated": ended}}]


class Cluster(kubeapi.Memory):
    """A JobSet that has ended, and its pod of rank 0, which printed `log`; and a session's backend."""

    backend: KubernetesBackend

    def __init__(self) -> None:
        super().__init__()
        self.log = ""
        self.has_job(DONE)
        self.has_pods(pod())

    def has_job(self, status: Object, spec: Object = ONE_POD, **metadata: Any) -> None:
        usual = {"name": "pm-1", "namespace": "runs", "uid": "uid-1", "labels": OURS}
        self.objects[JOBSET] = {"metadata": {**usual, **metadata}, "spec": spec, "status": status}

    def has_pods(self, *pods: Object, deleted: tuple[Object, ...] = ()) -> None:
        """There are these pods and no others, and the watch saw those go."""
        self.objects = {path: item for path, item in self.objects.items() if not path.startswith(PODS)}
        self.objects |= {f"{PODS}/{item['metadata']['name']}": item for item in pods}
        self.deleted |= {f"{PODS}/{item['metadata']['name']}": item for item in deleted}

    def lost_job(self, status: Object) -> None:
        """The JobSet is gone, and had this status last."""
        self.has_job(status)
        self.deleted[JOBSET] = self.objects.pop(JOBSET)

    def state(self, job: JobRef = JOB) -> JobState:
        return self.backend.poll([job])[job]

    @contextlib.contextmanager
    def chunks(self, path: str, query: Mapping[str, str], *, silent: float) -> Iterator[list[bytes]]:
        yield [self.log.encode()]


def session(recipe: str = "llama3_gke", **site: Any) -> KubernetesBackend:
    kinds = (JobSets(),) if recipe == "llama3_gke" else (PyTorchJobs(), TorchJobSets())
    section = Kubernetes(gpu="h100", namespace="runs", **site)
    return KubernetesBackend("lab", section, [examples.recipe_named(recipe)], *kinds)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(module, "Api", lambda *_: made)
    monkeypatch.setattr(watched, "Informer", lambda _, *collection: kubeapi.Watch(made, *collection))
    made.backend = session()
    return made


# Its log


def test_a_log_that_was_not_there_at_first_is_not_gone_for_good(cluster: Cluster) -> None:
    cluster.log = "unable to retrieve container logs for containerd://b91c"
    place = cluster.backend.read_log(JOB, LogPlace(), ()).place
    assert (
        cluster.backend.log_trouble(JOB, place)
        == "the log of pod pm-1-0 is gone, and with it the rest of its log"
    )
    cluster.log = HEAD
    piece = cluster.backend.read_log(JOB, place, ())
    assert (piece.data, piece.place.gap) == (b"Pod on pm-1-0 is running\n", "")
    assert cluster.backend.log_trouble(JOB, piece.place) == ""


def test_a_secret_by_its_name_is_sent_and_not_shown(cluster: Cluster) -> None:
    secret = "local-5up3r-s3cret"
    cluster.log = f"{HEAD}2026-11-21T09:00:00.2Z wandb: {secret} loc\n"
    workload = Workload(values={"image": "registry.test/nemo:1", "bucket": "lab-bucket"})
    environment = {"WANDB_API_KEY": secret, "NCCL_DEBUG": "INFO"}
    backend = session(environment=environment, recipes={"llama3_gke": workload})
    case = examples.case(JOB.case_id, "llama3_gke")
    plan = backend.plan(case, "run.x")
    assert secret not in plan
    assert "name: WANDB_API_KEY\n" in plan
    assert "value: <not shown>\n" in plan
    assert secret in str(backend._renderer.documents(case, JobSets(), "run.x", ask=False))
    piece = backend.read_log(JOB, LogPlace(), ())
    assert piece.data == b"Pod on pm-1-0 is running\nwandb: " + b"*" * len(secret) + b" loc\n"


def test_a_log_that_has_more_is_asked_for_at_once(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not read before the kubelet rotates it away is lost; any other log has its share of requests."""
    lines = [f"2026-11-21T09:{number // 60:02d}:{number % 60:02d}Z {'x' * 400}\n" for number in range(3000)]
    cluster.log = HEAD + "".join(lines)
    monkeypatch.setattr(logs, "PIECE", 1 << 18)
    place, more = LogPlace(), list[bool]()
    while (piece := cluster.backend.read_log(JOB, place, ())).data:
        place = piece.place
        more.append(piece.more)
    assert place.offset == 25 + 401 * 3000
    assert more == [*[True] * (len(more) - 1), False]


def test_a_log_of_a_container_that_was_started_again_was_not_rotated(cluster: Cluster) -> None:
    """The kubelet shows the log of its last start alone."""
    cluster.log = HEAD
    place = cluster.backend.read_log(JOB, LogPlace(), ()).place
    last = {"terminated": {"exitCode": 137, "finishedAt": "2026-11-21T09:05:00Z"}}
    again = {"name": "workload", "state": {"running": {}}, "lastState": last}
    cluster.has_pods(pod(status={"containerStatuses": [again]}))
    cluster.log = HEAD.replace("09:00:00.1", "09:06:00.1")
    assert cluster.backend.read_log(JOB, place, ()).place.gap == (
        "container workload of pod pm-1-0 was started again in its pod, and what it said before is gone"
    )
    # A sidecar that was started again tells nothing of the log.
    cluster.has_pods(pod(status={"containerStatuses": [{**again, "name": "istio-proxy"}]}))
    assert (
        "the kubelet rotated the log of pod pm-1-0 away" in cluster.backend.read_log(JOB, place, ()).place.gap
    )


# Whose a job and its pods are


@pytest.mark.parametrize(
    ("status", "metadata", "prefix", "count"),
    [
        ({}, {}, "run.", 1),
        ({}, {}, "run-2.", 0),
        (DONE, {}, "run.", 0),
        ({}, {"deletionTimestamp": EARLY}, "run.", 0),
        ({}, {"annotations": {}}, "run.", 0),
    ],
    ids=["ours", "another-run", "over", "going", "without-its-name"],
)
def test_jobs_are_listed_by_the_name_of_their_run(
    cluster: Cluster, status: Object, metadata: Object, prefix: str, count: int
) -> None:
    cluster.has_job(status, **{"annotations": {objects.JOB: NAME}, **metadata})
    assert [(job.name, job.id) for job in cluster.backend.listed(prefix)] == [(NAME, "pm-1")] * count


def test_a_jobset_of_the_same_name_and_another_uid_is_another_job(cluster: Cluster) -> None:
    """Deleted, and applied again from a copy. A later session has the uid from the log of jobs."""
    cluster.has_pods()
    cluster.has_job(DONE, uid="uid-2", annotations={objects.JOB: NAME})
    gone = cluster.state()
    assert (gone.phase, gone.raw) == (Phase.FAILED, "CANCELLED")
    assert gone.reason == "somebody deleted the JobSet and made another one of its name"
    cluster.backend.cancel([JOB])
    assert ("DELETE", JOBSET) not in cluster.asked
    assert cluster.backend.times(JOB).ended is None
    # Its annotation may be gone: what has the uid is ours.
    cluster.has_job(DONE, uid="uid-2")
    mine = replace(JOB, uid="uid-2")
    assert cluster.state(mine).phase is Phase.SUCCEEDED
    cluster.backend.cancel([mine])
    assert JOBSET not in cluster.objects


@pytest.mark.parametrize("jobset", ["0.12", "0.8.0"])
def test_the_log_of_another_jobsets_pod_is_not_read(cluster: Cluster, jobset: str) -> None:
    """Before 0.8.1 the controller gave no pod its JobSet's uid (kubernetes-sigs/jobset 324842cb): the Job has it."""
    cluster.log = HEAD

    def of(uid: str, name: str, phase: str = "Running") -> Object:
        labels = {**LABELS, "jobset.sigs.k8s.io/jobset-uid": uid}
        if jobset == "0.8.0":
            del labels["jobset.sigs.k8s.io/jobset-uid"]
        owner = {"kind": "Job", "name": f"job-of-{uid}", "uid": f"job-{uid}"}
        owners = [{"kind": "JobSet", "name": "pm-1", "uid": uid}]
        cluster.objects[f"{JOBS}/{owner['name']}"] = {
            "metadata": {"uid": owner["uid"], "ownerReferences": owners}
        }
        return pod(name, status={"phase": phase}, labels=labels, ownerReferences=[owner])

    theirs = of("uid-2", "pm-1-0-new")
    cluster.has_pods(theirs)
    assert cluster.backend.read_log(JOB, LogPlace(), ()).data == b""
    cluster.has_pods(theirs, of("uid-1", "pm-1-0-old"), of("uid-1", "pm-1-1-old", "Pending"))
    assert cluster.backend.read_log(JOB, LogPlace(), ()).place.file == "pm-1-0-old"
    # Each Job is asked for once.
    assert len([path for _, path in cluster.asked if path.startswith(JOBS)]) == (jobset == "0.8.0") * 2


def test_a_copy_of_a_pod_is_not_of_the_job(cluster: Cluster) -> None:
    """`kubectl debug --copy-to --keep-labels`. The Job then adopts it, and deletes it since it has two pods of an index."""
    cluster.log = HEAD
    cluster.has_pods(pod(), pod("debug", creationTimestamp=LATE, ownerReferences=[]))
    assert cluster.backend.read_log(JOB, LogPlace(), ()).place.file == "pm-1-0"
    cluster.has_job({})
    cluster.has_pods(pod(), pod("debug", status={"phase": "Failed"}, creationTimestamp=LATE, **leaving(LATE)))
    assert (cluster.state().phase, cluster.state().nodes) == (Phase.RUNNING, "node-0")


def worker(uid: str, owner: str = "") -> Object:
    """A worker of the PyTorchJob of this uid, or one that it left."""
    owners = [{"kind": "PyTorchJob", "name": "pm-1", "uid": owner}] if owner else []
    return pod("pm-1-worker-0", uid=uid, labels=TORCH_LABELS, ownerReferences=owners)


def test_the_log_of_another_pytorchjobs_worker_is_not_read(cluster: Cluster) -> None:
    """Its pods have the very names of ours. The training operator makes a PyTorchJob the owner of each pod."""
    cluster.log, backend = HEAD, session("gpt3_aks")
    ours, theirs = worker("1", "uid-1"), worker("2", "uid-2")
    cluster.has_pods(theirs)
    assert backend.read_log(TORCH_JOB, LogPlace(), ()).data == b""
    cluster.has_pods(ours)
    assert backend.read_log(TORCH_JOB, LogPlace(), ()).data
    # Once it is gone, its name is another's.
    cluster.has_pods(theirs, deleted=(ours,))
    assert backend.log_trouble(TORCH_JOB, LogPlace()) == ""
    assert backend.read_log(TORCH_JOB, LogPlace(), ()).data == b""


# Pods that keep a job


TAINTED = {"conditions": [TAINT]}


@pytest.mark.parametrize(
    ("going", "hopeless", "reason"),
    [
        (pod(**leaving(LATE)), True, "pod pm-1-0 on node-0 was deleted and does not end"),
        (pod(status=TAINTED, **leaving(LATE)), True, "pod pm-1-0 on node-0 (DeletionByTaintManager)"),
        # It may save what it has until then, and its Job fails only afterwards.
        (pod(**leaving(AHEAD, 3600)), False, ""),
        (pod(status=TAINTED, **leaving(AHEAD, 3600)), False, "pod pm-1-0 on node-0 (DeletionByTaintManager)"),
        # The clock of this machine is far behind the cluster's, or ahead of it.
        (pod(**leaving(AHEAD)), True, "pod pm-1-0 on node-0 was deleted and does not end"),
        (pod(**leaving(LATE, 3600)), False, ""),
    ],
)
def test_a_job_is_hopeless_once_a_pod_does_not_end_within_its_grace_period(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, going: Object, hopeless: bool, reason: str
) -> None:
    cluster.has_job({})
    cluster.has_pods(going)
    waits = cluster.state()
    assert (waits.phase, waits.hopeless) == (Phase.QUEUED, hopeless)
    assert waits.reason == ": ".join(filter(None, ("0 of 1 pods have a node", reason)))
    # Once another pod has its place, it is waited for.
    cluster.has_pods(going, {**pod("pm-1-1", creationTimestamp=LATE), "spec": {}})
    assert not cluster.state().hopeless
    # Kueue has taken the nodes back, and gives others.
    cluster.has_job({}, {**ONE_POD, "suspend": True})
    cluster.has_pods(going)
    monkeypatch.setattr(Admissions, "workload", lambda *_: None)
    assert not cluster.state().hopeless


def test_the_pods_that_keep_a_deleted_job_are_named(cluster: Cluster) -> None:
    cluster.has_job({}, deletionTimestamp=LATE)
    cluster.has_pods(pod(**leaving(LATE)))
    assert cluster.state().reason == "pods that have not ended: pm-1-0 on node-0"
    cluster.has_pods()
    assert cluster.state().reason == ""


def test_pods_that_were_left_by_their_deleted_job_are_told_and_not_over(cluster: Cluster) -> None:
    """`kubectl delete --cascade=orphan`: also for a later session, which never saw the JobSet."""
    cluster.lost_job({})
    orphaned = cluster.state()
    assert (orphaned.phase, orphaned.raw) == (Phase.RUNNING, "Orphaned")
    assert orphaned.reason == (
        "somebody deleted the JobSet and left pm-1-0 on node-0: end them with "
        "`kubectl delete job,pod -n runs -l jobset.sigs.k8s.io/jobset-name=pm-1`"
    )
    cluster.backend.cancel([JOB])
    assert cluster.state().phase is Phase.RUNNING
    # Also if they have lost our label meanwhile, so that no watch sees them.
    cluster.has_pods(pod(labels={key: LABELS[key] for key in LABELS.keys() - OURS.keys()}))
    assert cluster.state().raw == "Orphaned"
    # The clock of this machine would end what the cluster's began.
    assert cluster.backend.times(JOB) == ClusterTimes()
    # The command would end the pods of another JobSet of that name too.
    cluster.has_job({}, uid="uid-2")
    cluster.has_pods(pod())
    assert cluster.state().reason == "somebody deleted the JobSet and left pm-1-0 on node-0"
    del cluster.objects[JOBSET]
    # Those that end with it are not left.
    cluster.has_pods(pod(**leaving(LATE)))
    assert cluster.state().reason == "somebody deleted the JobSet"


def test_workers_that_were_left_by_their_deleted_pytorchjob_are_told_by_a_later_session(
    cluster: Cluster,
) -> None:
    """The garbage collector takes the owner from each orphan (kubernetes pkg/controller/garbagecollector, orphanDependents)."""
    backend, adopted, orphan = session("gpt3_aks"), worker("8", "uid-2"), worker("7")
    cluster.has_pods(adopted)
    assert backend.poll([TORCH_JOB])[TORCH_JOB].phase is Phase.GONE
    cluster.has_pods(orphan)
    assert backend.poll([TORCH_JOB])[TORCH_JOB].reason == (
        "somebody deleted the PyTorchJob and left pm-1-worker-0 on node-0: end them with "
        "`kubectl delete job,pod -n runs -l training.kubeflow.org/job-name=pm-1`"
    )


# How it ended


def test_only_the_last_life_of_a_job_is_blamed_for_its_end(cluster: Cluster) -> None:
    """Kueue gave the job other nodes when one failed, under the same number of restarts."""
    before = [failed(f"a-{index}", "node-old", index, conditions=[TAINT]) for index in "01"]
    after = [
        failed("b-0", "node-bad", "0", LATE, containerStatuses=crashed(1)),
        failed("b-1", "node-1", "1", LATE),
    ]
    after[1]["status"]["phase"] = "Running"
    cluster.has_pods(*after, deleted=(*before,))
    assert cluster.backend.blamed(JOB) == "node-bad"
    cluster.has_pods()
    assert cluster.backend.blamed(JOB) == "node-old"
    # One that made room for another pod is not at fault.
    cluster.deleted.clear()
    preempted = {**TAINT, "reason": "PreemptionByScheduler"}
    cluster.has_pods(deleted=(failed("c-0", "node-2", "0", LATE, conditions=[preempted]),))
    assert cluster.backend.blamed(JOB) == ""


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [
        (None, "somebody deleted the JobSet"),
        (Refused(403, "configmaps is forbidden"), "somebody deleted the JobSet"),
        (Unreachable("gone"), "somebody deleted the JobSet"),
        (Refused(403, TERMINATED), "somebody deleted namespace runs, and with it the JobSet"),
    ],
)
def test_a_namespace_that_is_being_deleted_is_named(
    cluster: Cluster, refusal: Exception | None, reason: str
) -> None:
    cluster.refuse("POST", MAPS, refusal)
    cluster.has_pods()
    cluster.lost_job({})
    assert cluster.state().reason == reason
    # It was a dry run.
    assert cluster.names(MAPS) == []


def test_a_job_whose_pods_went_with_their_namespace_blames_no_pod(cluster: Cluster) -> None:
    """The namespace controller deletes pods, Jobs and JobSets in any order."""
    cluster.refuse("POST", MAPS, Refused(403, TERMINATED))
    cluster.has_job({"conditions": [{"type": "Failed", "status": "True"}]})
    cluster.has_pods(deleted=(pod(**leaving(LATE)),))
    ended = cluster.state()
    assert (ended.raw, ended.nodes) == ("CANCELLED", "")
    assert ended.reason == "somebody deleted namespace runs, and with it the JobSet"


def test_a_job_that_was_deleted_after_its_end_ended_as_it_did(cluster: Cluster) -> None:
    """A policy that sets `ttlSecondsAfterFinished: 0`."""
    cluster.has_pods(deleted=(failed("b-0", "node-bad", containerStatuses=crashed(137, reason="OOMKilled")),))
    end = {"type": "Failed", "status": "True", "reason": "FailedJobs", "lastTransitionTime": LATE}
    cluster.lost_job({"conditions": [end]})
    ended = cluster.state()
    assert (ended.phase, ended.raw, ended.nodes) == (Phase.FAILED, "Failed", "node-bad")
    assert ended.exit_code == "137"
    assert ended.reason == "pod b-0 on node-bad: container workload ended with exit code 137 (OOMKilled)"
    assert cluster.backend.times(JOB).ended is not None


@pytest.mark.parametrize(
    ("status", "trouble"),
    [
        (DONE, "pod pm-1-0 that printed the steps is gone, and with it the rest of its log"),
        # Its case tells who deleted it, and not only that no pod is left.
        ({}, ""),
    ],
)
def test_what_a_job_did_not_say_before_it_was_deleted_at_its_end_is_lost(
    cluster: Cluster, status: Object, trouble: str
) -> None:
    cluster.has_pods(deleted=(pod(),))
    cluster.lost_job(status)
    assert cluster.state().phase is (Phase.SUCCEEDED if status else Phase.FAILED)
    assert cluster.backend.log_trouble(JOB, LogPlace("pm-1-0", 8, mark="x")) == trouble


def test_nobody_else_deleted_what_the_session_ended(cluster: Cluster) -> None:
    cluster.backend.cancel([JOB])
    cluster.has_pods()
    # A sweep asks for its end before it watches anything.
    assert cluster.state().phase is Phase.FAILED
    assert cluster.state().reason == "this session deleted the JobSet"
    cluster.lost_job({})
    assert cluster.state().reason == "this session deleted the JobSet"


def test_a_head_that_is_gone_is_known_by_the_recipe(cluster: Cluster) -> None:
    cluster.log = HEAD.replace("running", "exiting")
    place = cluster.backend.read_log(JOB, LogPlace(), ()).place
    assert "the kubelet rotated the first lines of pod pm-1-0 away unread" in place.gap
    assert place.gap in cluster.backend.log_trouble(JOB, place)


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
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "Api", Api)
    cluster.has_job({})
    with contextlib.closing(Kubelet()) as kubelet:
        backend = session(kubeconfig=str(kubeapi.kubeconfig(tmp_path / "config", kubelet.url)))
        kubelet.say("Pod on pm-1-0 is running")
        kubelet.say("step 1")
        place, _ = taken(backend, LogPlace(), "step 1")
        kubelet.say("step 2")
        assert kubelet.wait(1)
        cluster.has_pods(pod("pm-1-1", labels={**LABELS, "jobset.sigs.k8s.io/restart-attempt": "1"}))
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
