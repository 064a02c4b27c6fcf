"""A real API server, with the rules of JobSet, Kueue and the training operator, takes what the recipes make: dry runs."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from plugins.base.yamlfile import load_documents
from tests.lab.k8s import manifests
from tests.lab.k8s.api import ApiError, collection
from tests.lab.k8s.cluster import KubernetesLab
from tests.unit import aks, gke, gpt3_setup

Document = dict[str, Any]

# Each kind of document: one node and several, the variants, the smallest and the largest job. tests/unit makes those of all cases.
AKS = [
    *(aks.QUICK, "13b-fp16-8gpus", "13b-checkpoint-fp16-8gpus"),
    *("175b-fp16-512gpus", "175b-sharp-fp16-512gpus", "175b-checkpoint-fp16-512gpus"),
]
SETUPS: list[dict[str, str]] = [
    {"storage": "amlfs", "tier": "40", "capacity": "480"},
    {"storage": "amlfs", "tier": "125", "capacity": "512", "zone": "3"},
    {"storage": "amlfs", "tier": "250", "capacity": "512"},
    {"storage": "amlfs", "tier": "500", "capacity": "512"},
    {"storage": "blob"},
    {"files": "59166", "parts": "600", "processes": "80", "dataset": "pajama/all/preprocessed"},
]


@pytest.fixture(scope="module")
def namespace(kubernetes_lab: KubernetesLab) -> Iterator[str]:
    """One of this module's own."""
    name = kubernetes_lab.namespace(f"test-{secrets.token_hex(3)}")
    yield name
    kubernetes_lab.clear(name)


def try_out(lab: KubernetesLab, document: Document) -> Document:
    """What the API server would make of it; ApiError where it refuses it or does not know a field."""
    path = f"{collection(document)}?dryRun=All&fieldValidation=Strict"
    made: Document = json.loads(lab.api.request("POST", path, document))
    return made


def pod_of(found: list[Document], role: str, namespace: str) -> Document:
    """The pod that the operator makes of a replica, which is where Kubernetes looks into it."""
    replica = found[1]["spec"]["pytorchReplicaSpecs"][role]
    spec = {**replica["template"]["spec"], "restartPolicy": replica["restartPolicy"]}
    metadata = {"name": f"job-{role.lower()}-0", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def job_of(found: list[Document], namespace: str) -> Document:
    """The Job that JobSet makes, which is where Kubernetes looks into the pods."""
    metadata = {"name": "job", "namespace": namespace}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": gke.job(found)}


@pytest.mark.parametrize("case_id", AKS)
def test_a_case_on_aks_is_taken_as_it_is(kubernetes_lab: KubernetesLab, namespace: str, case_id: str) -> None:
    found = aks.made(case_id, name="j" * 40, namespace=namespace)
    files, job = found
    assert try_out(kubernetes_lab, files)["data"] == files["data"]
    assert try_out(kubernetes_lab, job)["spec"] == job["spec"]
    for role in aks.pods(found):
        try_out(kubernetes_lab, pod_of(found, role, namespace))


@pytest.mark.parametrize(
    ("case_id", "queue"), [("70b-fp8-128gpus", ""), ("70b-bf16-256gpus", "gpus"), ("70b-fp8-512gpus", "gpus")]
)
def test_a_case_on_gke_is_taken_as_it_is(
    kubernetes_lab: KubernetesLab, namespace: str, case_id: str, queue: str
) -> None:
    found = gke.made(case_id, name="j" * 43, namespace=namespace, queue=queue)
    files, jobset = found
    assert try_out(kubernetes_lab, files)["data"] == files["data"]
    if queue:
        # The backend's part, which makes Kueue look at it.
        jobset["metadata"]["labels"] = {manifests.QUEUE: queue}
    # What is said explicitly is what the webhooks would have set, and nothing was changed.
    assert missing(jobset["spec"], try_out(kubernetes_lab, jobset)["spec"]) == []
    pods = try_out(kubernetes_lab, job_of(found, namespace))["spec"]
    assert (pods["parallelism"], pods["completionMode"]) == (gke.job(found)["completions"], "Indexed")
    assert missing(gke.job(found), pods) == []


def missing(wanted: Any, there: Any, path: str = "") -> list[str]:
    """Where `there` lacks something of `wanted` or has it otherwise; more in it is no matter."""
    if isinstance(wanted, dict) and isinstance(there, dict):
        return [m for key in wanted for m in missing(wanted[key], there.get(key), f"{path}.{key}")]
    if isinstance(wanted, list) and isinstance(there, list) and len(wanted) == len(there):
        return [m for i, item in enumerate(wanted) for m in missing(item, there[i], f"{path}.{i}")]
    return [] if str(wanted) == str(there) else [f"{path}: {wanted!r} became {there!r}"]


@pytest.mark.parametrize("values", SETUPS, ids=lambda values: "-".join(values.values()))
def test_all_that_a_set_up_makes_is_taken(
    kubernetes_lab: KubernetesLab, namespace: str, values: dict[str, str]
) -> None:
    found = gpt3_setup.documents(gpt3_setup.contract(namespace=namespace, values=values))
    assert len(found) == 8 + (2 if "storage" in values else 0)
    for document in found:
        taken = try_out(kubernetes_lab, document)
        assert taken["metadata"]["name"] == document["metadata"]["name"]


SHIPPED = {
    "gpt3_aks": aks.untouched(),
    "llama3_gke": gke.untouched(),
    **{
        name: load_documents(gpt3_setup.SOURCE / name)
        for name in ("data.yaml", "storage-amlfs.yaml", "storage-blob.yaml")
    },
}


@pytest.mark.parametrize("name", SHIPPED)
def test_kubectl_could_apply_a_file_as_it_stands(
    kubernetes_lab: KubernetesLab, namespace: str, name: str
) -> None:
    for document in SHIPPED[name]:
        if document["kind"] != "StorageClass":
            # As `kubectl -n` does.
            document["metadata"]["namespace"] = namespace
        try_out(kubernetes_lab, document)


def test_a_misspelled_field_is_refused(kubernetes_lab: KubernetesLab, namespace: str) -> None:
    """Else none of these tests could fail for one."""
    jobset = gke.made(namespace=namespace)[1]
    jobset["spec"]["failurePolicies"] = {}
    with pytest.raises(ApiError, match=r'unknown field "spec\.failurePolicies"'):
        try_out(kubernetes_lab, jobset)
