"""The AKS recipe's set-up and storage on a real control plane: its Jobs by the real Job controller, their scripts really run."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from plugins.base.errors import SubmitError
from plugins.record.job import Phase
from tests.lab.k8s import manifests
from tests.lab.k8s.api import ApiError
from tests.lab.k8s.cluster import KubernetesLab
from tests.system.gpt3_site import JOB, STAGES, Site, follow
from tests.system.kube import aks_site, nothing_is_left
from tests.system.support import pacemark, until
from tests.unit.hub import Hub


def test_data_are_missed_then_made_then_found_and_then_known_without_a_pod(site: Site, hub: Hub) -> None:
    site.claim()
    hub.tickets = threading.Semaphore(0)
    session = site.session()
    (lack,) = session.lacks(2)
    assert "there is no data set in slimpajama/preprocessed on claim shared-storage-pvc" in lack
    assert "--provision" in lack
    job = session.provision(JOB)
    seen = follow(session, job, lambda state: state.raw.startswith("download: 0 of "))
    hub.tickets.release(100)
    seen += follow(session, job)
    assert seen[-1].phase is Phase.SUCCEEDED, seen
    words = [state.raw for state in seen]
    for stage in STAGES:
        assert any(word.startswith(f"{stage}: ") for word in words), words
    assert set(site.items("jobs")) == {f"{session.id}-{stage}" for stage in STAGES}
    session.end(job)
    until(lambda: not site.items("jobs") and not site.items("pods"), "the Jobs are gone")
    assert session.lacks(2) == []
    # What is left: the claim, its data, and a word on how many files they are.
    assert set(site.items("persistentvolumeclaims")) == {manifests.CLAIM}
    until(
        lambda: set(site.items("configmaps")) == {"kube-root-ca.crt", f"{session.id}-counted"},
        "no scripts are left",
    )
    assert len(list((site.volume() / "preprocessed").glob("*.idx"))) == 5
    # Another session, which may not make anything.
    until(lambda: not site.items("jobs"), "the count is gone")
    record = site.items("configmaps")[f"{session.id}-counted"]
    assert site.session("check").lacks(2) == []
    assert (site.items("jobs"), site.items("configmaps")[f"{session.id}-counted"]) == ({}, record)
    short = site.session("check", chunks="3").lacks(2)
    assert "5 pairs - 3 for validation - 3 for test = -1" in short[0]
    assert "set `chunks` to at most 2" in short[0]


def test_a_session_that_died_is_followed_by_one_that_goes_on(site: Site, hub: Hub) -> None:
    site.claim()
    hub.tickets = threading.Semaphore(2)
    first = site.session()
    job = first.provision(JOB)
    site.until_downloaded(2)
    # As after kill -9: the Job goes on, and nobody begins the next stage.
    uid = site.items("jobs")[f"{first.id}-download"]["metadata"]["uid"]
    second = site.session()
    job = second.provision("pacemark-20261121-130000-0002.gpt3_aks-setup")
    assert site.items("jobs")[f"{first.id}-download"]["metadata"]["uid"] == uid
    hub.tickets.release(100)
    follow(second, job, lambda state: state.raw.startswith("extract"))
    # Cancelled: its Jobs go, what they made stays, and the markers say how far it was.
    second.end(job)
    until(lambda: not site.items("jobs"), "the Jobs are gone")
    assert second.state(job).phase is Phase.GONE
    downloaded = {p.name: p.stat().st_mtime_ns for p in (site.volume() / "downloaded").iterdir()}
    third = site.session()
    job = third.provision("pacemark-20261121-140000-0003.gpt3_aks-setup")
    assert follow(third, job)[-1].phase is Phase.SUCCEEDED
    assert {p.name: p.stat().st_mtime_ns for p in (site.volume() / "downloaded").iterdir()} == downloaded
    assert third.lacks(2) == []


def test_a_pod_that_is_killed_is_replaced_and_goes_on(site: Site, hub: Hub) -> None:
    site.claim()
    hub.tickets = threading.Semaphore(2)
    session = site.session()
    job = session.provision(JOB)
    site.until_downloaded(2)
    # That of index 0 has three files to download.
    victim = site.pods_of("download")[0]
    site.evict(victim)
    hub.tickets.release(100)
    assert follow(session, job)[-1].phase is Phase.SUCCEEDED
    assert len(site.pods_of("download")) == 4
    assert victim not in site.pods_of("download")


def test_a_stage_that_fails_is_told_with_its_pod_and_its_last_lines(site: Site, hub: Hub) -> None:
    site.claim()
    session = site.session(files="10", parts="5")
    job = session.provision(JOB)
    end = follow(session, job)[-1]
    assert (end.phase, end.raw, end.exit_code) == (Phase.FAILED, "Failed in download", "2")
    assert end.nodes.startswith("aks-")
    # The submitter makes the check again.
    told = session.lacks(2)
    assert "the set-up failed in stage download: PodFailurePolicy" in told[-1]
    assert f"pod {session.id}-download-" in told[-1]
    assert "has 9 files, 10 are asked for" in told[-1]
    # Mended: what failed is begun anew, in another folder, since this one was meant for ten.
    other = site.session(dataset="again/preprocessed")
    job = other.provision(JOB)
    assert follow(other, job)[-1].phase is Phase.SUCCEEDED
    assert site.session("check", dataset="again/preprocessed").lacks(2) == []


def test_a_session_makes_the_data_and_then_trains_on_them(
    site: Site, kubernetes_lab: KubernetesLab, namespace: str, tmp_path: Path
) -> None:
    site.claim()
    kubernetes_lab.set(namespace, real_step=0.005)
    file = aks_site(
        kubernetes_lab,
        namespace,
        tmp_path,
        roles=("pacemark-provision",),
        environment=site.environment,
        recipes={"gpt3_aks": {"values": {"files": "9", "parts": "5", "chunks": "2", "processes": "2"}}},
    )
    quick = ("suites/gpt3_aks", "-m", 'case(size="375m", gpus=16)', "--site", str(file))
    without = pacemark(*quick, results=tmp_path / "results")
    assert without.case("gpt3_aks/375m-fp16-16gpus")["verdict"] == "infrastructure"
    assert "run with --provision" in without.out
    result = pacemark(*quick, "--provision", results=tmp_path / "results")
    assert result.status == 0, result.out
    assert result.case("gpt3_aks/375m-fp16-16gpus")["verdict"] == "no baseline"
    assert "running the recipe's own set-up" in result.out
    assert len(list((site.volume() / "preprocessed").glob("*.bin"))) == 5
    nothing_is_left(kubernetes_lab, namespace)


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
