"""The API server's version: asked once, and what a recipe has merged in from a version on; on GKE, who writes into the bucket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fixtures.backends.kubernetes import backend as module
from fixtures.backends.kubernetes import readiness
from fixtures.backends.kubernetes.api import Api
from fixtures.backends.kubernetes.backend import KubernetesBackend
from fixtures.backends.kubernetes.jobset import JobSets
from fixtures.backends.kubernetes.manifest import documents
from fixtures.backends.kubernetes.pytorchjob import PyTorchJobs
from fixtures.backends.kubernetes.readiness import Readiness
from fixtures.backends.kubernetes.rendering import Renderer
from fixtures.backends.kubernetes.section import Kubernetes
from fixtures.backends.section import Workload
from plugins.base.errors import ConfigError, Unreachable
from plugins.recipes.contracts import reaches
from plugins.recipes.expansion import load_recipe
from tests.unit import examples, gke
from tests.unit.kubeapi import Server, kubeconfig

GKE = "v1.33.3-gke.1226000"
CASE = examples.case("70b-fp8-512gpus", "llama3_gke")


@pytest.mark.parametrize(
    ("server", "wanted", "reached"),
    [
        (GKE, GKE, True),
        ("v1.33.3-gke.1225999", GKE, False),
        ("v1.33.3-gke.999999", GKE, False),
        ("v1.33.3-gke.10000000", GKE, True),
        ("v1.33.4-gke.100", GKE, True),
        ("v1.33.10-gke.1", GKE, True),
        ("v1.34.0-gke.1", GKE, True),
        ("v2.0.0-gke.1", GKE, True),
        ("v1.32.9-gke.9999999", GKE, False),
        ("1.33.5-gke.1162000", GKE, True),
        ("v1.33.5-gke.1162000+build", GKE, True),
        # Not GKE, however new.
        ("v1.34.1", GKE, False),
        ("v1.34.1-eks-7f9249a", GKE, False),
        ("v1.34.1+k3s1", GKE, False),
        ("v1.34.1-aks.2000000", GKE, False),
        # No versions.
        ("", GKE, False),
        ("v1.33-gke.1226000", GKE, False),
        ("v1.33.3-gke.1226000.5", GKE, False),
        ("latest", GKE, False),
        (f"{GKE}\n", GKE, False),
        ("v\u0661.\u0663\u0664.\u0660-gke.1", GKE, False),
        (f"v{'9' * 5000}.0.0-gke.1", GKE, False),
        # Of any distribution.
        ("v1.31.0-gke.5", "v1.31.0", True),
        ("v1.31.3-eks-7f9249a", "v1.31.3", True),
        ("v1.30.9", "v1.31.0", False),
    ],
)
def test_versions_are_compared_within_their_distribution(server: str, wanted: str, reached: bool) -> None:
    assert reaches(server, wanted) is reached


@pytest.mark.parametrize(
    "wanted", ["1.33.3-gke.1226000", "v1.33", "v1.33.3-gke", "v1.33.3-gke.1226000 or newer"]
)
def test_a_condition_that_is_no_version_is_refused(tmp_path: Path, wanted: str) -> None:
    text = (gke.MANIFEST.parent / "recipe.yaml").read_text()
    (tmp_path / "recipe.yaml").write_text(text.replace(f"server: {GKE}", f"server: {wanted}"))
    with pytest.raises(ConfigError, match=r":137: manifest\.overlay\.\d+\.when\.server: "):
        load_recipe(tmp_path)


def test_only_a_recipe_that_depends_on_the_version_has_it_asked() -> None:
    for name, asked in (("llama3_gke", 1), ("gpt3_aks", 0)):
        api, recipe = Cluster("lab", Kubernetes(gpu="h100")), examples.recipe_named(name)
        values = {"image": "nemo:24.07", "bucket": "my-logs"}
        section = Kubernetes(gpu="h100", recipes={name: Workload(values=values)})
        kind = JobSets() if asked else PyTorchJobs()
        Renderer(api, section, {name: recipe}).documents(recipe.cases[0], kind, "x")  # type: ignore[arg-type]
        assert api.asked == asked


# Who writes into the bucket


def attributes(server: str, **given: str) -> dict[str, Any]:
    """Whether the volumes of buckets, by name, say that they are mounted as the pods' account."""
    recipe = examples.recipe_named("llama3_gke")
    found = documents(recipe, CASE, gke.words(CASE.id, **given), server=server)
    volumes = gke.job(found)["template"]["spec"]["volumes"]
    return {
        volume["name"]: volume["csi"]["volumeAttributes"].get("hostNetworkPodKSA")
        for volume in volumes
        if "csi" in volume
    }


@pytest.mark.parametrize(
    ("server", "given", "said"),
    [
        (GKE, {}, "true"),
        ("v1.33.3-gke.1225999", {}, None),
        ("v1.34.1", {}, None),
        ("", {}, None),
        (GKE, {"bucket_as_pods": ""}, None),
    ],
)
def test_buckets_are_mounted_as_the_pods_account_where_gke_can(
    server: str, given: dict[str, str], said: str | None
) -> None:
    assert attributes(server, **given) == {"job-logs": said, "artifacts": said}


def test_nothing_else_depends_on_the_version() -> None:
    recipe, words = examples.recipe_named("llama3_gke"), gke.words(CASE.id)
    old, new = (
        dict(gke.leaves(documents(recipe, CASE, words, server=server))) for server in ("v1.32.0-gke.1", GKE)
    )
    added = {path.rpartition(".")[2] for path in new.keys() - old.keys()}
    assert (added, {path: new[path] for path in old}) == ({"hostNetworkPodKSA"}, old)


# The server


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture
def api(server: Server, tmp_path: Path) -> Iterator[Api]:
    made = Api("lab", Kubernetes(gpu="h100", kubeconfig=str(kubeconfig(tmp_path / "config", server.url))))
    yield made
    made.close()


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


@pytest.mark.parametrize(
    "body",
    [
        b"<html>log in</html>",
        b"[]",
        b'{"gitVersion": 1}',
        b'{"major": "1"}',
        b'{"gitVersion": null}',
        b'{"gitVersion": "%s"}' % (b"1" * 1000),
    ],
)
def test_what_is_no_answer_of_a_server_is_no_version(server: Server, api: Api, body: bytes) -> None:
    server.answer = lambda _: (200, body)
    with pytest.raises(
        Unreachable, match=r"^lab: the Kubernetes API: GET /version: the answer is not an API server's"
    ):
        api.ask_release()


# The backend


class Cluster:
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
    monkeypatch.setattr(module, "Api", type("Named", (Cluster,), {"said": said}))
    monkeypatch.setattr(readiness, "lacks", lambda *_: [])
    monkeypatch.setattr(Readiness, "_bucket_lacks", lambda *_: [])
    workload = Workload(values={"image": "nemo:24.07", "bucket": "my-logs", **values})
    section = Kubernetes(
        gpu="h100", namespace="runs", service_account="trainer", recipes={"llama3_gke": workload}
    )
    return KubernetesBackend("lab", section, [examples.recipe_named("llama3_gke")], JobSets())


_AS_PODS = (
    "gs://my-logs is written as the pods' Kubernetes service account trainer in namespace runs, which needs "
)
_AS_NODES = (
    "gs://my-logs is written as the nodes' service account, which needs roles/storage.objectAdmin there; "
)


@pytest.mark.parametrize(
    ("version", "given", "said"),
    [
        (GKE, {}, f"API server {GKE}: {_AS_PODS}"),
        ("v1.32.4-gke.1767000", {}, f"API server v1.32.4-gke.1767000: {_AS_NODES}"),
        (GKE, {"bucket_as_pods": ""}, f"API server {GKE}: {_AS_NODES}"),
        (
            "nightly",
            {},
            f"the API server calls itself 'nightly', which is no version and counts as older than {GKE}: {_AS_NODES}",
        ),
        ("", {}, f"the API server does not tell its version, which counts as older than {GKE}: {_AS_NODES}"),
    ],
)
def test_the_check_says_who_writes_into_the_bucket(
    monkeypatch: pytest.MonkeyPatch, version: str, given: dict[str, str], said: str
) -> None:
    (remark,) = backend(monkeypatch, version, **given).check(CASE)
    assert remark.startswith(said)


def test_a_plan_says_what_depends_on_the_version_and_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    made = backend(monkeypatch)
    planned = made.plan(CASE, "run.x")
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
    assert list(yaml.safe_load_all(planned)) == made._renderer.documents(CASE, JobSets(), "run.x", ask=False)
    assert made._api.asked == 0  # type: ignore[attr-defined]


def test_what_is_kept_of_a_submission_is_what_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check has asked by then."""
    made = backend(monkeypatch)
    made.check(CASE)
    planned = made.plan(CASE, "run.x")
    assert not planned.startswith("#")
    assert planned.count("hostNetworkPodKSA: 'true'") == 2
    assert list(yaml.safe_load_all(planned)) == made._renderer.documents(CASE, JobSets(), "run.x")


def test_a_plan_for_a_site_that_wants_the_nodes_account_leaves_nothing_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not backend(monkeypatch, bucket_as_pods="").plan(CASE, "run.x").startswith("#")
