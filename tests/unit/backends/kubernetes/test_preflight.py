"""What the check asks before the first job; the API server's version, and what a recipe merges in from a version on."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from fixtures.backends.kubernetes import backend as module
from fixtures.backends.kubernetes import preflight, readiness
from fixtures.backends.kubernetes.api import Api, Refused
from fixtures.backends.kubernetes.backend import KubernetesBackend
from fixtures.backends.kubernetes.gcs import Storage
from fixtures.backends.kubernetes.jobset import JobSets
from fixtures.backends.kubernetes.kinds import JobKind
from fixtures.backends.kubernetes.manifest import documents
from fixtures.backends.kubernetes.objects import QUEUE
from fixtures.backends.kubernetes.pytorchjob import TorchJobSets
from fixtures.backends.kubernetes.readiness import Readiness
from fixtures.backends.kubernetes.section import Kubernetes
from fixtures.backends.section import Workload
from plugins.base.errors import ConfigError
from plugins.recipes.contracts import reaches
from plugins.recipes.expansion import load_recipe
from tests.unit import examples, gke, kubeapi
from tests.unit.kubeapi import Server, node

Object = dict[str, Any]
CASE = examples.case("70b-fp8-128gpus", "llama3_gke")
VALUES = {"image": "registry.test/nemo:1", "bucket": "lab-bucket"}
JOBSET, KUEUE = "/apis/jobset.x-k8s.io/v1alpha2", "/apis/kueue.x-k8s.io/v1beta2"
LOCAL = f"{KUEUE}/namespaces/default/localqueues"


class Cluster(kubeapi.Memory):
    """Serves JobSets and Kueue, and has all nodes of the case."""

    def __init__(self) -> None:
        super().__init__()
        for path, name in ((JOBSET, "jobsets"), (KUEUE, "localqueues")):
            self.objects[path] = {"metadata": {}, "resources": [{"name": name}]}
        self.objects[f"{LOCAL}/a3"] = {"metadata": {"name": "a3"}, "status": {}}
        for number in range(16):
            self.objects[f"/api/v1/nodes/node-{number}"] = node(f"node-{number}")

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
    assert f"{job}.template.metadata.labels.app.kubernetes.io/managed-by is missing instead of" in words
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
    del cluster.objects[JOBSET]
    assert len(missing(queue="a3")) == len(words) + 1
    del cluster.objects[KUEUE]
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


# The API server's version


GKE = "v1.33.3-gke.1226000"
LARGE = examples.case("70b-fp8-512gpus", "llama3_gke")


@pytest.mark.parametrize(
    ("server", "wanted", "reached"),
    [
        (GKE, GKE, True),
        ("v1.33.3-gke.1225999", GKE, False),
        ("v1.33.3-gke.10000000", GKE, True),
        ("v1.33.4-gke.100", GKE, True),
        ("v1.33.10-gke.1", GKE, True),
        ("1.33.5-gke.1162000", GKE, True),
        # Not GKE, however new.
        ("v1.34.1", GKE, False),
        ("v1.34.1-aks.2000000", GKE, False),
        # No versions.
        ("v1.33-gke.1226000", GKE, False),
        (f"{GKE}\n", GKE, False),
        ("v\u0661.\u0663\u0664.\u0660-gke.1", GKE, False),
        (f"v{'9' * 5000}.0.0-gke.1", GKE, False),
        # Of any distribution.
        ("v1.31.0-gke.5", "v1.31.0", True),
        ("v1.30.9", "v1.31.0", False),
    ],
)
def test_versions_are_compared_within_their_distribution(server: str, wanted: str, reached: bool) -> None:
    assert reaches(server, wanted) is reached


@pytest.mark.parametrize("wanted", ["1.33.3-gke.1226000", "v1.33.3-gke.1226000 or newer"])
def test_a_condition_that_is_no_version_is_refused(tmp_path: Path, wanted: str) -> None:
    text = (gke.MANIFEST.parent / "recipe.yaml").read_text()
    (tmp_path / "recipe.yaml").write_text(text.replace(f"server: {GKE}", f"server: {wanted}"))
    with pytest.raises(ConfigError, match=r":137: manifest\.overlay\.\d+\.when\.server: "):
        load_recipe(tmp_path)


# Who writes into the bucket


def attributes(server: str, **given: str) -> dict[str, Any]:
    """Whether the volumes of buckets, by name, say that they are mounted as the pods' account."""
    recipe = examples.recipe_named("llama3_gke")
    found = documents(recipe, LARGE, gke.words(LARGE.id, **given), server=server)
    buckets = [each for each in gke.job(found)["template"]["spec"]["volumes"] if "csi" in each]
    return {each["name"]: each["csi"]["volumeAttributes"].get("hostNetworkPodKSA") for each in buckets}


@pytest.mark.parametrize(
    ("server", "given", "said"),
    [
        (GKE, {}, "true"),
        ("v1.34.1", {}, None),
        (GKE, {"bucket_as_pods": ""}, None),
    ],
)
def test_buckets_are_mounted_as_the_pods_account_where_gke_can(
    server: str, given: dict[str, str], said: str | None
) -> None:
    assert attributes(server, **given) == {"job-logs": said, "artifacts": said}


# The server


def test_the_server_is_asked_once(server: Server, api: Api) -> None:
    server.answer = lambda _: (200, json.dumps({"major": "1", "minor": "33+", "gitVersion": GKE}).encode())
    assert api.release == ""
    assert [api.ask_release(), api.ask_release(), api.release] == [GKE] * 3
    assert server.paths == ["/version"]


@pytest.mark.parametrize("status", [403, 404])
def test_a_server_that_does_not_tell_is_asked_again_later(server: Server, api: Api, status: int) -> None:
    server.answer = lambda _: (status, b'{"kind": "Status", "message": "no"}')
    assert api.ask_release() == ""
    server.answer = lambda _: (200, json.dumps({"gitVersion": GKE}).encode())
    assert api.ask_release() == GKE


# The backend


class Versioned:
    """Stands in for the API: tells a version when it is asked, which is counted."""

    said = GKE

    def __init__(self, site: str, section: Kubernetes) -> None:
        self.asked, self.release = 0, ""

    def ask_release(self) -> str:
        self.asked += 1
        self.release = self.said
        return self.said


def backend(monkeypatch: pytest.MonkeyPatch, said: str = GKE, **values: str) -> KubernetesBackend:
    """One whose cluster lacks nothing and calls itself this."""
    monkeypatch.setattr(module, "Api", type("Named", (Versioned,), {"said": said}))
    monkeypatch.setattr(readiness, "lacks", lambda *_: [])
    monkeypatch.setattr(Readiness, "_bucket_lacks", lambda *_: [])
    workload = Workload(values={"image": "nemo:24.07", "bucket": "my-logs", **values})
    site = {"namespace": "runs", "service_account": "trainer", "recipes": {"llama3_gke": workload}}
    section = Kubernetes.model_validate({"gpu": "h100", **site})
    return KubernetesBackend("lab", section, [examples.recipe_named("llama3_gke")], JobSets())


AS_PODS = (
    "gs://my-logs is written as the pods' Kubernetes service account trainer in namespace runs, which needs "
)
AS_NODES = (
    "gs://my-logs is written as the nodes' service account, which needs roles/storage.objectAdmin there; "
)
OLD, OLDER = "v1.32.4-gke.1767000", f"which counts as older than {GKE}"


@pytest.mark.parametrize(
    ("version", "given", "said"),
    [
        (GKE, {}, f"API server {GKE}: {AS_PODS}"),
        (OLD, {}, f"API server {OLD}: {AS_NODES}"),
        (GKE, {"bucket_as_pods": ""}, f"API server {GKE}: {AS_NODES}"),
        ("nightly", {}, f"the API server calls itself 'nightly', which is no version and counts as older than {GKE}: {AS_NODES}"),
        ("", {}, f"the API server does not tell its version, {OLDER}: {AS_NODES}"),
    ],
)  # fmt: skip
def test_the_check_says_who_writes_into_the_bucket(
    monkeypatch: pytest.MonkeyPatch, version: str, given: dict[str, str], said: str
) -> None:
    (remark,) = backend(monkeypatch, version, **given).check(LARGE)
    assert remark.startswith(said)


def test_a_plan_says_what_depends_on_the_version_and_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    made = backend(monkeypatch)
    planned = made.plan(LARGE, "run.x")
    comments = [line for line in planned.splitlines() if line.startswith("#")]
    assert comments[0] == (
        f"# The API server's version is not known here. From {GKE} on this is merged into JobSet as well:"
    )
    merged = yaml.safe_load("\n".join(line[1:] for line in comments[1:]))
    assert [path for path, value in gke.leaves(merged) if value == "true"] == [
        f".spec.replicatedJobs.workload.template.spec.template.spec.volumes.{name}.csi.volumeAttributes.hostNetworkPodKSA"
        for name in ("job-logs", "artifacts")
    ]
    assert "hostNetworkPodKSA" not in "".join(planned.splitlines()[len(comments) :])
    assert list(yaml.safe_load_all(planned)) == made._renderer.documents(LARGE, JobSets(), "run.x", ask=False)
    assert made._api.asked == 0  # type: ignore[attr-defined]
    # A site that wants the nodes' account leaves nothing open.
    assert not backend(monkeypatch, bucket_as_pods="").plan(LARGE, "run.x").startswith("#")


def test_what_is_kept_of_a_submission_is_what_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check has asked by then."""
    made = backend(monkeypatch)
    made.check(LARGE)
    planned = made.plan(LARGE, "run.x")
    assert not planned.startswith("#")
    assert planned.count("hostNetworkPodKSA: 'true'") == 2
    assert list(yaml.safe_load_all(planned)) == made._renderer.documents(LARGE, JobSets(), "run.x")


def test_a_queue_that_may_not_be_asked_for_is_no_other_lack(cluster: Cluster) -> None:
    cluster.refuse("", LOCAL, Refused(403, "localqueues is forbidden"))
    cluster.denied = {"get localqueues"}
    (lack,) = missing(queue="a3")
    assert "get localqueues" in lack
