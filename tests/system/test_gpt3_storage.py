"""The claim of the AKS recipe: checked on a real control plane, and made where it is missing."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from plugins.base.errors import SubmitError
from plugins.record.job import Phase
from tests.lab.k8s import manifests
from tests.lab.k8s.api import ApiError
from tests.lab.k8s.cluster import KubernetesLab
from tests.system.gpt3_site import JOB, Site, follow
from tests.system.support import until
from tests.unit.hub import Hub


class Driver:
    """Stands in for a CSI driver: gives every claim of its class a volume, after a while."""

    def __init__(self, lab: KubernetesLab, namespace: str, name: str) -> None:
        self._lab, self._namespace, self._over = lab, namespace, threading.Event()
        document = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSIDriver",
            "metadata": {"name": name},
            "spec": {},
        }
        lab.api.apply(document)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        path = f"/api/v1/namespaces/{self._namespace}/persistentvolumeclaims"
        while not self._over.wait(1.0):
            for claim in self._lab.api.get(path)["items"]:
                if claim["status"].get("phase") == "Pending" and claim["spec"].get("storageClassName"):
                    self._give(claim)

    def _give(self, claim: dict[str, Any]) -> None:
        metadata, spec = claim["metadata"], claim["spec"]
        volume = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"pvc-{metadata['uid']}"},
            "spec": {
                "accessModes": spec["accessModes"],
                "storageClassName": spec["storageClassName"],
                "capacity": spec["resources"]["requests"],
                "hostPath": {"path": "/data"},
                "claimRef": {key: metadata[key] for key in ("name", "namespace", "uid")},
            },
        }
        try:
            self._lab.api.create(volume)
        except ApiError as error:
            assert error.status == 409  # noqa: PT017 - made a moment ago


def test_storage_is_made_where_it_is_missing_and_left_alone_where_it_is(site: Site, hub: Hub) -> None:
    lustre = {"storage": "amlfs", "tier": "250", "capacity": "8"}
    session = site.session(**lustre)
    (lack,) = session.lacks(2)
    assert f"the claim shared-storage-pvc in namespace {site.namespace} is missing" in lack
    with pytest.raises(SubmitError, match="`storage` does not say what to make"):
        site.session().provision(JOB)
    with pytest.raises(SubmitError, match=r"CSI driver azurelustre.csi.azure.com is not on the cluster"):
        session.provision(JOB)
    driver = Driver(site.lab, site.namespace, "azurelustre.csi.azure.com")
    try:
        with pytest.raises(SubmitError, match="bind pacemark-provision to this user"):
            site.session("check", **lustre).provision(JOB)
        job = session.provision(JOB)
        seen = follow(session, job)
    finally:
        driver.stop()
        site.lab.api.delete("/apis/storage.k8s.io/v1/csidrivers/azurelustre.csi.azure.com")
    assert seen[-1].phase is Phase.SUCCEEDED, seen
    kind = site.lab.api.get("/apis/storage.k8s.io/v1/storageclasses/pacemark-amlfs-250-zone-1")
    assert kind["parameters"]["sku-name"] == "AMLFS-Durable-Premium-250"
    claim = site.items("persistentvolumeclaims")[manifests.CLAIM]
    assert claim["spec"]["resources"]["requests"]["storage"] == "8Ti"
    # Asked for another size, the claim stays what it is.
    again = site.session(**{**lustre, "capacity": "16"})
    again.end(again.provision(JOB))
    assert site.items("persistentvolumeclaims")[manifests.CLAIM] == claim


def test_a_claim_that_waits_says_for_what(site: Site) -> None:
    api, name = site.lab.api, f"{site.namespace}-waits"
    kind = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "blob.csi.azure.com",
        "volumeBindingMode": "Immediate",
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": manifests.CLAIM, "namespace": site.namespace},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": name,
            "resources": {"requests": {"storage": "1Ti"}},
        },
    }
    api.create(claim)
    session = site.session("check")
    assert f"the StorageClass {name} of claim {manifests.CLAIM} is missing" in session.lacks(2)[0]
    api.create(kind)
    assert "az aks update --enable-blob-driver" in session.lacks(2)[0]
    api.create(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSIDriver",
            "metadata": {"name": "blob.csi.azure.com"},
            "spec": {},
        }
    )
    try:
        until(lambda: "ExternalProvisioning" in session.lacks(2)[0], "the cluster's own words")
        assert "has no volume yet: blob.csi.azure.com makes it" in session.lacks(2)[0]
    finally:
        api.delete("/apis/storage.k8s.io/v1/csidrivers/blob.csi.azure.com")


def test_a_claim_for_one_node_is_refused_for_two(site: Site) -> None:
    volume, claim = manifests.claim(site.namespace, manifests.CLAIM)
    for document in (volume, claim):
        document["spec"]["accessModes"] = ["ReadWriteOnce"]
        site.lab.api.create(document)
    assert "2 nodes cannot share it" in site.session("check").lacks(2)[0]
