"""A real API server takes the documents of the AKS recipe's set-up, for every kind and tier; dry runs."""

from __future__ import annotations

import json
import secrets
from typing import Any

import pytest

from plugins.base.yamlfile import load_documents
from tests.lab.k8s.api import ApiError, collection
from tests.lab.k8s.cluster import KubernetesLab
from tests.unit import gpt3_setup

SITES: list[dict[str, str]] = [
    {"storage": "amlfs", "tier": "40", "capacity": "480"},
    {"storage": "amlfs", "tier": "125", "capacity": "512", "zone": "3"},
    {"storage": "amlfs", "tier": "250", "capacity": "512"},
    {"storage": "amlfs", "tier": "500", "capacity": "512"},
    {"storage": "blob"},
    {"files": "59166", "parts": "600", "processes": "80", "dataset": "pajama/all/preprocessed"},
]


@pytest.fixture(scope="module")
def namespace(kubernetes_lab: KubernetesLab) -> str:
    """One of this module's own."""
    return kubernetes_lab.namespace(f"test-{secrets.token_hex(3)}")


def try_out(lab: KubernetesLab, document: dict[str, Any]) -> dict[str, Any]:
    """What the API server would make of it; ApiError where it refuses it or does not know a field."""
    path = f"{collection(document)}?dryRun=All&fieldValidation=Strict"
    made: dict[str, Any] = json.loads(lab.api.request("POST", path, document))
    return made


@pytest.mark.parametrize("values", SITES, ids=lambda values: "-".join(values.values()))
def test_all_that_a_set_up_makes_is_taken(
    kubernetes_lab: KubernetesLab, namespace: str, values: dict[str, str]
) -> None:
    found = gpt3_setup.documents(gpt3_setup.contract(namespace=namespace, values=values))
    assert len(found) == 8 + (2 if "storage" in values else 0)
    for document in found:
        taken = try_out(kubernetes_lab, document)
        assert taken["metadata"]["name"] == document["metadata"]["name"]


@pytest.mark.parametrize("name", ["data.yaml", "storage-amlfs.yaml", "storage-blob.yaml"])
def test_kubectl_could_apply_the_files_as_they_stand(
    kubernetes_lab: KubernetesLab, namespace: str, name: str
) -> None:
    for document in load_documents(gpt3_setup.SOURCE / name):
        if document["kind"] != "StorageClass":
            # As `kubectl -n` does.
            document["metadata"]["namespace"] = namespace
        try_out(kubernetes_lab, document)


def test_a_misspelled_field_is_refused(kubernetes_lab: KubernetesLab, namespace: str) -> None:
    job = load_documents(gpt3_setup.SOURCE / "data.yaml")[1]
    job["metadata"] = {"name": "download", "namespace": namespace}
    job["spec"] |= {"podFailurePolicies": {}}
    with pytest.raises(ApiError, match=r'unknown field "spec\.podFailurePolicies"'):
        try_out(kubernetes_lab, job)
