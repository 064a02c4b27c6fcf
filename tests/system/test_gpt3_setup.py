"""The AKS recipe's set-up on a real control plane: its Jobs by the real Job controller, their scripts really run."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fixtures.backend import JobRef
from fixtures.backend import JobState
from fixtures.backend import Phase
from fixtures.kube.api import Api
from fixtures.kube.setup import Provisioner
from plugins.errors import SubmitError
from tests.lab.k8s import manifests
from tests.lab.k8s import processes
from tests.lab.k8s.api import ApiError
from tests.lab.k8s.cluster import KubernetesLab
from tests.system.kube import aks_site
from tests.system.kube import nothing_is_left
from tests.system.support import ROOT
from tests.system.support import pacemark
from tests.system.support import until
from tests.unit import gpt3_setup
from tests.unit import hub as hubs
from tests.unit.hub import Hub
from tests.unit.test_gpt3_scripts import compressed

STAGES = ["download", "extract", "concatenate", "preprocess"]
JOB = "pacemark-20261121-120000-0001.gpt3_aks-setup"
CASE = "gpt3_aks/setup"


@pytest.fixture
def hub() -> Iterator[Hub]:
    served = Hub({f"train/chunk1/example_train_{n}.jsonl.zst": compressed(n + 1) for n in range(9)})
    yield served
    served.close()


class Site:
    """A namespace of the lab with its claim, and the set-up as a session sees it, under the shipped roles alone."""

    def __init__(self, lab: KubernetesLab, namespace: str, hub: Hub, folder: Path) -> None:
        self.lab = lab
        self.namespace = namespace
        self.megatron = hubs.megatron(folder / "megatron")
        self.environment = {"HF_ENDPOINT": hub.url, "MEGATRON": str(self.megatron), "RETRY_SECONDS": "0.1"}
        documents = yaml.safe_load_all((ROOT / "docs" / "rbac" / "pytorchjob.yaml").read_text())
        rules = {(one["kind"], one["metadata"]["name"]): one["rules"] for one in documents}
        self.users = {
            "check": lab.user(
                namespace, "check", rules["Role", "pacemark-data"], rules["ClusterRole", "pacemark-storage"]
            ),
            "provision": lab.user(
                namespace,
                "provision",
                [*rules["Role", "pacemark-data"], *rules["Role", "pacemark-provision"]],
                [*rules["ClusterRole", "pacemark-storage"], *rules["ClusterRole", "pacemark-provision"]],
            ),
        }

    def session(self, user: str = "provision", *, pool: str = "gpu", **values: str) -> Provisioner:
        """The set-up, as a session of its own has it: nine files in five parts, of which two are kept twice."""
        section = gpt3_setup.section(
            namespace=self.namespace,
            kubeconfig=str(self.users[user]),
            environment=self.environment,
            node_selector={"agentpool": pool},
            values={"files": "9", "parts": "5", "chunks": "2", "processes": "2", **values},
        )
        return Provisioner("lab", Api("lab", section), section, gpt3_setup.recipe(), read_seconds=0)

    def claim(self) -> None:
        for document in manifests.claim(self.namespace, manifests.CLAIM):
            self.lab.api.create(document)
        claims = "persistentvolumeclaims"
        until(
            lambda: self.items(claims)[manifests.CLAIM]["status"].get("phase") == "Bound",
            "the claim is bound",
        )

    def items(self, kind: str) -> dict[str, Any]:
        group = "/apis/batch/v1" if kind == "jobs" else "/api/v1"
        found = self.lab.api.get(f"{group}/namespaces/{self.namespace}/{kind}")["items"]
        return {item["metadata"]["name"]: item for item in found}

    def volume(self) -> Path:
        return processes.volume(self.lab.root, self.namespace, manifests.CLAIM) / "slimpajama"

    def evict(self, pod: str) -> None:
        """As a node that is drained does it."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}"
        why = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
        self.lab.api.merge(f"{path}/status", {"status": {"phase": "Failed", "conditions": [why]}})
        self.lab.api.delete(path)

    def pods_of(self, stage: str) -> list[str]:
        return [name for name in self.items("pods") if f"-{stage}-" in name]


@pytest.fixture
def site(kubernetes_lab: KubernetesLab, namespace: str, hub: Hub, tmp_path: Path) -> Iterator[Site]:
    made = Site(kubernetes_lab, namespace, hub, tmp_path)
    yield made
    classes = "/apis/storage.k8s.io/v1/storageclasses"
    left = [f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}" for name in made.items("jobs")]
    left += [f"{classes}/{item['metadata']['name']}" for item in kubernetes_lab.api.get(classes)["items"]]
    for path in left:
        # What was deleted before may go at this moment.
        with contextlib.suppress(ApiError):
            kubernetes_lab.api.delete(path)


def follow(
    session: Provisioner,
    job: JobRef,
    enough: Callable[[JobState], bool] = lambda _: False,
    seconds: float = 120,
) -> list[JobState]:
    """Ask as the fleet does, until it is over or `enough`; every state that was seen."""
    seen: list[JobState] = []
    deadline = time.monotonic() + seconds
    while True:
        state = session.state(job)
        if not seen or state != seen[-1]:
            seen.append(state)
        if state.phase.over or enough(state):
            return seen
        assert time.monotonic() < deadline, seen
        time.sleep(0.1)


def test_data_are_missed_then_made_then_found_and_then_known_without_a_pod(site: Site, hub: Hub) -> None:
    site.claim()
    hub.delay = 1.0
    session = site.session()
    (lack,) = session.lacks(2)
    assert "there is no data set in slimpajama/preprocessed on claim shared-storage-pvc" in lack
    assert "--provision" in lack
    job = session.provision(CASE, JOB)
    seen = follow(session, job)
    assert seen[-1].phase is Phase.SUCCEEDED, seen
    words = [state.raw for state in seen]
    for stage in STAGES:
        assert any(word.startswith(f"{stage}: ") for word in words), words
    assert any(" of 9 files" in word or " of about " in word for word in words), words
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
    # Nobody is done with three files before a session looks again.
    hub.delay = 1.5
    first = site.session()
    job = first.provision(CASE, JOB)
    follow(first, job, lambda state: "of" in state.raw and not state.raw.startswith("download: 0 "))
    # As after kill -9: the Job goes on, and nobody begins the next stage.
    uid = site.items("jobs")[f"{first.id}-download"]["metadata"]["uid"]
    second = site.session()
    job = second.provision(CASE, "pacemark-20261121-130000-0002.gpt3_aks-setup")
    assert site.items("jobs")[f"{first.id}-download"]["metadata"]["uid"] == uid
    follow(second, job, lambda state: state.raw.startswith("extract"))
    hub.delay = 0.0
    # Cancelled: its Jobs go, what they made stays, and the markers say how far it was.
    second.end(job)
    until(lambda: not site.items("jobs"), "the Jobs are gone")
    assert second.state(job).phase is Phase.GONE
    downloaded = {p.name: p.stat().st_mtime_ns for p in (site.volume() / "downloaded").iterdir()}
    third = site.session()
    job = third.provision(CASE, "pacemark-20261121-140000-0003.gpt3_aks-setup")
    assert follow(third, job)[-1].phase is Phase.SUCCEEDED
    assert {p.name: p.stat().st_mtime_ns for p in (site.volume() / "downloaded").iterdir()} == downloaded
    assert third.lacks(2) == []


def test_a_pod_that_is_killed_is_replaced_and_goes_on(site: Site, hub: Hub) -> None:
    site.claim()
    hub.delay = 0.4
    session = site.session()
    job = session.provision(CASE, JOB)
    until(lambda: len(list((site.volume() / "downloaded").glob("*.zst"))) >= 2, "two files are there")
    victim = site.pods_of("download")[0]
    site.evict(victim)
    assert follow(session, job)[-1].phase is Phase.SUCCEEDED
    assert len(site.pods_of("download")) == 4
    assert victim not in site.pods_of("download")


def test_a_stage_that_fails_is_told_with_its_pod_and_its_last_lines(site: Site, hub: Hub) -> None:
    site.claim()
    session = site.session(files="10", parts="5")
    job = session.provision(CASE, JOB)
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
    job = other.provision(CASE, JOB)
    assert follow(other, job)[-1].phase is Phase.SUCCEEDED
    assert site.session("check", dataset="again/preprocessed").lacks(2) == []


def test_a_failed_stage_is_begun_anew_by_the_next_session_and_no_other(site: Site, hub: Hub) -> None:
    site.claim()
    first = site.session()
    job = first.provision(CASE, JOB)
    until(lambda: (site.volume() / "bpe" / "vocab.json").exists(), "the tokenizer")
    (site.volume() / "bpe" / "vocab.json").rename(site.volume() / "away.json")
    assert follow(first, job)[-1].raw == "Failed in preprocess"
    (site.volume() / "away.json").rename(site.volume() / "bpe" / "vocab.json")
    before = {name: item["metadata"]["uid"] for name, item in site.items("jobs").items()}
    # As after kill -9 nobody took them away.
    second = site.session()
    assert follow(second, second.provision(CASE, JOB))[-1].phase is Phase.SUCCEEDED
    after = {name: item["metadata"]["uid"] for name, item in site.items("jobs").items()}
    assert [name.rpartition("-")[2] for name in before if before[name] != after[name]] == ["preprocess"]


def test_two_selections_for_one_folder_do_not_meet(site: Site, hub: Hub) -> None:
    site.claim()
    hub.delay = 0.5
    first = site.session()
    first.provision(CASE, JOB)
    with pytest.raises(
        SubmitError, match=r"prepares another data set in that folder now .*files 9.* and .*files 8"
    ):
        site.session(files="8").provision(CASE, JOB)


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
        site.session().provision(CASE, JOB)
    with pytest.raises(SubmitError, match=r"CSI driver azurelustre.csi.azure.com is not on the cluster"):
        session.provision(CASE, JOB)
    driver = Driver(site.lab, site.namespace, "azurelustre.csi.azure.com")
    try:
        with pytest.raises(SubmitError, match="bind pacemark-provision to this user"):
            site.session("check", **lustre).provision(CASE, JOB)
        job = session.provision(CASE, JOB)
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
    again.end(again.provision(CASE, JOB))
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
        until(lambda: "ExternalProvisioning" in session.lacks(2)[0], "the cluster's own words", 30)
        assert "has no volume yet: blob.csi.azure.com makes it" in session.lacks(2)[0]
    finally:
        api.delete("/apis/storage.k8s.io/v1/csidrivers/blob.csi.azure.com")


def test_a_claim_for_one_node_is_refused_for_two(site: Site) -> None:
    volume, claim = manifests.claim(site.namespace, manifests.CLAIM)
    for document in (volume, claim):
        document["spec"]["accessModes"] = ["ReadWriteOnce"]
        site.lab.api.create(document)
    assert "2 nodes cannot share it" in site.session("check").lacks(2)[0]


def test_a_count_that_cannot_be_made_says_why_and_ends_with_the_session(site: Site) -> None:
    site.claim()
    session = site.session("check", pool="none")
    threading.Timer(4, session.close).start()
    (lack,) = session.lacks(2)
    assert "could not be counted: Unschedulable: 0/128 nodes are available" in lack
    assert "can mount that claim on {'agentpool': 'none'}" in lack
    until(lambda: not site.items("jobs"), "the count is gone")


def test_a_user_without_the_roles_is_told_which(site: Site) -> None:
    site.claim()
    site.users["nobody"] = site.lab.user(site.namespace, "nobody", [])
    (lack,) = site.session("nobody").lacks(2)
    assert "permission is missing" in lack
    assert "kubectl apply -f docs/rbac/pytorchjob.yaml" in lack


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
