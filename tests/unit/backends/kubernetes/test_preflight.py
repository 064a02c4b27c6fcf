"""What the check asks before the first job: all at once, and by a dry run what would refuse or suspend a job."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from fixtures.backends.kubernetes import backend as module
from fixtures.backends.kubernetes import preflight
from fixtures.backends.kubernetes.api import Refused
from fixtures.backends.kubernetes.backend import KubernetesBackend
from fixtures.backends.kubernetes.gcs import Storage
from fixtures.backends.kubernetes.jobset import JobSets
from fixtures.backends.kubernetes.kinds import JobKind
from fixtures.backends.kubernetes.objects import QUEUE
from fixtures.backends.kubernetes.pytorchjob import TorchJobSets
from fixtures.backends.kubernetes.section import Kubernetes
from fixtures.backends.section import Workload
from tests.unit import examples, kubeapi
from tests.unit.backends.kubernetes.test_capacity import node

Object = dict[str, Any]
CASE = examples.case("70b-fp8-128gpus", "llama3_gke")
VALUES = {"image": "registry.test/nemo:1", "bucket": "lab-bucket"}
LOCAL = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/localqueues"


class Cluster(kubeapi.Memory):
    """Serves JobSets and Kueue, and has all nodes of the case."""

    def __init__(self) -> None:
        super().__init__()
        self.served = {
            "/apis/jobset.x-k8s.io/v1alpha2": "jobsets",
            "/apis/kueue.x-k8s.io/v1beta2": "localqueues",
        }
        self.objects[f"{LOCAL}/a3"] = {"metadata": {"name": "a3"}, "status": {}}
        for number in range(16):
            self.objects[f"/api/v1/nodes/node-{number}"] = node(f"node-{number}")

    def find(self, path: str) -> Object | None:
        if path in self.served:
            return {"resources": [{"name": self.served[path]}]}
        return super().find(path)

    def version(self, group: str, known: Any) -> str:
        return "v1beta2"

    def server(self) -> str:
        return "https://lab"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(module, "Api", lambda site, section: made)
    monkeypatch.setattr(preflight, "STARTING_SECONDS", 0.0)
    monkeypatch.setattr(Storage, "lacks", lambda storage, bucket: False)
    return made


def missing(values: dict[str, str] = VALUES, kind: JobKind | None = None, **keys: Any) -> list[str]:
    """What the check of this site lacks."""
    section = Kubernetes(gpu="h100", recipes={"llama3_gke": Workload(values=values)}, **keys)
    backend = KubernetesBackend("lab", section, [examples.recipe_named("llama3_gke")], kind or JobSets())
    return list(backend.findings(CASE).missing)


def suspending(*, unnamed: bool, default: str = "") -> Callable[[Object], Object]:
    """Kueue's webhook: suspends jobs with a queue's name and, if `unnamed`, all others."""

    def admitted(document: Object) -> Object:
        labels = document["metadata"]["labels"]
        if document["kind"] == "JobSet" and default:
            labels.setdefault(QUEUE, default)
        if document["kind"] == "JobSet" and (unnamed or labels.get(QUEUE)):
            document["spec"]["suspend"] = True
        return {"status": {}, **document}

    return admitted


def test_a_site_that_lacks_nothing_is_ready_and_nothing_is_made(cluster: Cluster) -> None:
    before = dict(cluster.objects)
    assert missing() == []
    cluster.dry_run = suspending(unnamed=False)
    assert missing() == []
    assert missing(queue="a3") == []
    assert cluster.objects == before


def test_kueue_that_suspends_jobs_without_a_queue_name_is_told_before(cluster: Cluster) -> None:
    cluster.dry_run = suspending(unnamed=True)
    (lack,) = missing()
    assert "Kueue manages jobs without a queue name in namespace default\n    mend: set `queue`" in lack
    assert missing(queue="a3") == []
    # It puts the job into the namespace's own queue.
    cluster.dry_run = suspending(unnamed=True, default="default")
    assert missing() == []


def test_what_a_policy_would_change_is_told_before(cluster: Cluster) -> None:
    """A webhook that mutates: it takes our annotation away, and moves a bound. What it adds changes nothing."""

    def strip(document: Object) -> Object:
        if document["kind"] == "JobSet":
            document = copy.deepcopy(document)
            document["metadata"]["annotations"] = {"policy": "seen"}
            (job,) = document["spec"]["replicatedJobs"]
            job["template"]["spec"].update(activeDeadlineSeconds=60, ttlSecondsAfterFinished=0)
            job["template"]["spec"]["template"]["spec"]["volumes"].insert(0, {"name": "injected"})
            del job["template"]["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/managed-by"]
            # JSON leaves it out.
            del document["spec"]["failurePolicy"]["maxRestarts"]
        return {"status": {}, **document}

    cluster.dry_run = strip
    (lack,) = missing()
    words, mend = lack.split("\n")
    assert words.startswith("the cluster would change JobSet pm-")
    assert "metadata.annotations.pacemark/job is missing instead of 'llama3_gke/" in words
    job = "spec.replicatedJobs.0.template.spec"
    assert f"{job}.activeDeadlineSeconds is 60 instead of " in words
    assert (
        f"{job}.template.metadata.labels.app.kubernetes.io/managed-by is missing instead of 'pacemark'"
        in words
    )
    assert mend == "    mend: ask the administrator which webhook or policy does that, and to except it"


@pytest.mark.parametrize("kind", [JobSets(), TorchJobSets()])
def test_kueue_without_its_integration_is_told_before(cluster: Cluster, kind: JobKind) -> None:
    (lack,) = missing(queue="a3", kind=kind)
    assert lack.startswith("Kueue does not manage JobSets in namespace default")
    assert "jobset.x-k8s.io/jobset to `integrations.frameworks`" in lack


@pytest.mark.parametrize(
    ("status", "words", "told"),
    [
        (500, 'Internal error occurred: failed calling webhook "mjobset.kb.io": EOF', True),
        (403, "unable to create new content in namespace default because it is being terminated", True),
        (404, 'namespaces "default" not found', True),
        (422, 'JobSet.jobset.x-k8s.io "pm" is invalid: spec: Invalid value', True),
        # A webhook that must not be asked, what others may give back, and what an earlier session left.
        (400, 'admission webhook "gate" does not support dry run', False),
        (403, 'jobsets "pm" is forbidden: exceeded quota: jobs, requested: a=1, used: a=2, limited: a=2', False),
        (409, 'jobsets.jobset.x-k8s.io "pm" already exists', False),
    ],
)  # fmt: skip
def test_what_would_refuse_a_job_is_told_before(
    cluster: Cluster, status: int, words: str, told: bool
) -> None:
    def refuse(document: Object) -> Object:
        if document["kind"] == "JobSet":
            raise Refused(status, words)
        return document

    cluster.dry_run = refuse
    assert [words in lack for lack in missing()] == ([True] if told else [])


def test_all_that_is_missing_is_told_at_once(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    del cluster.objects[f"{LOCAL}/a3"]
    cluster.objects = {path: there for path, there in cluster.objects.items() if "/nodes/" not in path}
    cluster.denied = {"list events"}
    monkeypatch.setattr(Storage, "lacks", lambda storage, bucket: True)
    words = (
        "to list events is missing",
        "the local queue a3 in namespace default is missing",
        "16 nodes of",
        "Cloud Storage has no bucket lab-bucket",
    )
    for lack, expected in zip(missing(queue="a3"), words, strict=True):
        assert expected in lack
    del cluster.served["/apis/jobset.x-k8s.io/v1alpha2"]
    assert len(missing(queue="a3")) == len(words) + 1
    del cluster.served["/apis/kueue.x-k8s.io/v1beta2"]
    # A queue of a Kueue that is not there is not asked for.
    lacks = missing(queue="a3")
    assert len(lacks) == len(words) + 1
    assert sum("is missing on the cluster" in lack for lack in lacks) == 2


def test_a_value_that_is_missing_hides_nothing_else(cluster: Cluster) -> None:
    cluster.denied = {"create jobsets"}
    lacks = missing({"bucket": "lab-bucket"})
    assert len(lacks) == 2
    assert "recipes.llama3_gke.values.image) is not set" in lacks[0]
    assert "create jobsets" in lacks[1]


def test_a_queue_that_may_not_be_asked_for_is_no_other_lack(cluster: Cluster) -> None:
    def before(method: str, path: str) -> None:
        if path.startswith(LOCAL):
            raise Refused(403, "localqueues is forbidden")

    cluster.before, cluster.denied = before, {"get localqueues"}
    (lack,) = missing(queue="a3")
    assert "get localqueues" in lack
