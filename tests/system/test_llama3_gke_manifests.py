"""A real API server, with JobSet's and Kueue's own rules, takes what the recipe makes; dry runs, but for one case."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from plugins.logs.formats import read
from tests.lab.k8s import manifests
from tests.lab.k8s.api import ApiError, collection
from tests.lab.k8s.cluster import KubernetesLab
from tests.system.support import until
from tests.unit import examples, gke

IDS = [case.id for case in examples.recipe_named("llama3_gke").cases]


@pytest.fixture(scope="module")
def namespace(kubernetes_lab: KubernetesLab) -> Iterator[str]:
    """One of this module's own."""
    name = kubernetes_lab.namespace(f"test-{secrets.token_hex(3)}")
    yield name
    kubernetes_lab.clear(name)


def try_out(lab: KubernetesLab, document: dict[str, Any]) -> dict[str, Any]:
    """What the API server would make of it; ApiError where it refuses it or does not know a field."""
    path = f"{collection(document)}?dryRun=All&fieldValidation=Strict"
    made: dict[str, Any] = json.loads(lab.api.request("POST", path, document))
    return made


def job_of(found: list[gke.Document], namespace: str) -> gke.Document:
    """The Job that JobSet makes, which is where Kubernetes looks into the pods."""
    metadata = {"name": "job", "namespace": namespace}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": gke.job(found)}


@pytest.mark.parametrize("queue", ["", "gpus"])
@pytest.mark.parametrize("case_id", IDS)
def test_every_case_is_taken_as_it_is(
    kubernetes_lab: KubernetesLab, namespace: str, case_id: str, queue: str
) -> None:
    found = gke.made(case_id, name="j" * 43, namespace=namespace, queue=queue)
    files, jobset = found
    assert try_out(kubernetes_lab, files)["data"] == files["data"]
    if queue:
        # The backend's part, which makes Kueue look at it.
        jobset["metadata"]["labels"] = {manifests.QUEUE: queue}
    taken = try_out(kubernetes_lab, jobset)
    # What is said explicitly is what the webhooks would have set, and nothing was changed.
    assert missing(jobset["spec"], taken["spec"]) == []
    pods = try_out(kubernetes_lab, job_of(found, namespace))["spec"]
    assert (pods["parallelism"], pods["completionMode"]) == (gke.job(found)["completions"], "Indexed")
    assert missing(gke.job(found), pods) == []


def test_kubectl_could_apply_the_file_as_it_stands(kubernetes_lab: KubernetesLab, namespace: str) -> None:
    found = gke.untouched()
    for document in found:
        # As `kubectl -n` does.
        document["metadata"]["namespace"] = namespace
        try_out(kubernetes_lab, document)
    try_out(kubernetes_lab, job_of(found, namespace))


@pytest.mark.parametrize(
    ("place", "wrong", "said"),
    [
        ("pod", {"hostNetwrok": True}, r"unknown field .*template\.spec\.hostNetwrok"),
        ("container", {"imagePulPolicy": "Always"}, r"unknown field .*containers\[0\]\.imagePulPolicy"),
        ("jobset", {"failurePolicies": {}}, r'unknown field "spec\.failurePolicies"'),
        ("jobset", {"successPolicy": {"operator": "Most"}}, r"successPolicy\.operator: Unsupported value"),
    ],
)
def test_a_misspelled_field_is_refused(
    kubernetes_lab: KubernetesLab, namespace: str, place: str, wrong: dict[str, Any], said: str
) -> None:
    found = gke.made(namespace=namespace)
    pod = gke.job(found)["template"]["spec"]
    {"pod": pod, "container": pod["containers"][0], "jobset": found[1]["spec"]}[place].update(wrong)
    with pytest.raises(ApiError, match=said):
        try_out(kubernetes_lab, found[1])


def test_a_name_that_is_too_long_is_refused(kubernetes_lab: KubernetesLab, namespace: str) -> None:
    with pytest.raises(ApiError, match="JobSet name is too long"):
        try_out(kubernetes_lab, gke.made(name="j" * 44, namespace=namespace)[1])


def test_a_volume_that_is_not_there_is_refused(kubernetes_lab: KubernetesLab, namespace: str) -> None:
    found = gke.made()
    gke.job(found)["template"]["spec"]["volumes"].pop()
    with pytest.raises(ApiError, match=r'volumeMounts\[0\]\.name: Not found: "local-ssd"'):
        try_out(kubernetes_lab, job_of(found, namespace))


def test_a_case_runs_with_a_pod_for_each_node_and_its_own_arguments(
    kubernetes_lab: KubernetesLab, namespace: str
) -> None:
    kubernetes_lab.set(namespace, real_step=0)
    for document in gke.made("70b-bf16-128gpus", name="llama", namespace=namespace):
        kubernetes_lab.api.create(document)
    place = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets/llama"
    until(lambda: kubernetes_lab.api.get(place).get("status", {}).get("terminalState"), "the JobSet ended")
    assert kubernetes_lab.api.get(place)["status"]["terminalState"] == "Completed"
    pods = kubernetes_lab.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    indices = {pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]: pod for pod in pods}
    assert len(pods) == len(indices) == 16
    log = kubernetes_lab.read_log(namespace, indices["0"]["metadata"]["name"], container="workload")
    steps = read("dllogger", iter([log])).steps
    assert [step.index for step in steps] == list(range(50))
    # The stand-in reads the arguments: BF16 is slower.
    assert steps[-1].seconds == pytest.approx(78.0, rel=0.01)


def missing(wanted: Any, there: Any, path: str = "") -> list[str]:
    """Where `there` lacks something of `wanted` or has it otherwise; more in it is no matter."""
    if isinstance(wanted, dict) and isinstance(there, dict):
        return [m for key in wanted for m in missing(wanted[key], there.get(key), f"{path}.{key}")]
    if isinstance(wanted, list) and isinstance(there, list) and len(wanted) == len(there):
        return [m for i, item in enumerate(wanted) for m in missing(item, there[i], f"{path}.{i}")]
    return [] if str(wanted) == str(there) else [f"{path}: {wanted!r} became {there!r}"]
