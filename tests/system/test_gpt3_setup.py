"""The AKS recipe's set-up on a real control plane: its Jobs by the real Job controller, their scripts really run."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from plugins.base.errors import SubmitError
from plugins.record.job import Phase
from tests.lab.k8s import manifests
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


def test_a_session_that_died_between_a_job_and_its_scripts_is_followed_by_one_that_makes_them(
    site: Site, hub: Hub
) -> None:
    site.claim()
    first = site.session()
    bare, _ = first._contract.stage_documents("download", JOB)
    made = site.lab.api.create(bare)
    until(lambda: len(site.pods_of("download")) == 4, "the pods that wait")
    second = site.session()
    job = second.provision("pacemark-20261121-130000-0002.gpt3_aks-setup")
    assert follow(second, job)[-1].phase is Phase.SUCCEEDED
    assert site.items("jobs")[f"{first.id}-download"]["metadata"]["uid"] == made["metadata"]["uid"]
    second.end(job)
    until(lambda: set(site.items("configmaps")) == {"kube-root-ca.crt"}, "no scripts are left")


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


def test_a_failed_stage_is_begun_anew_by_the_next_session_and_no_other(site: Site, hub: Hub) -> None:
    site.claim()
    first = site.session()
    job = first.provision(JOB)
    until(lambda: (site.volume() / "bpe" / "vocab.json").exists(), "the tokenizer")
    (site.volume() / "bpe" / "vocab.json").rename(site.volume() / "away.json")
    assert follow(first, job)[-1].raw == "Failed in preprocess"
    (site.volume() / "away.json").rename(site.volume() / "bpe" / "vocab.json")
    before = {name: item["metadata"]["uid"] for name, item in site.items("jobs").items()}
    # As after kill -9 nobody took them away.
    second = site.session()
    assert follow(second, second.provision(JOB))[-1].phase is Phase.SUCCEEDED
    after = {name: item["metadata"]["uid"] for name, item in site.items("jobs").items()}
    assert [name.rpartition("-")[2] for name in before if before[name] != after[name]] == ["preprocess"]


def test_two_selections_for_one_folder_do_not_meet(site: Site, hub: Hub) -> None:
    site.claim()
    hub.tickets = threading.Semaphore(0)
    first = site.session()
    first.provision(JOB)
    with pytest.raises(
        SubmitError, match=r"prepares another data set in that folder now .*files 9.* and .*files 8"
    ):
        site.session(files="8").provision(JOB)
    hub.tickets.release(100)


def test_a_count_that_cannot_be_made_says_why_and_ends_with_the_session(site: Site) -> None:
    site.claim()
    session = site.session("check", pool="none")

    def looks() -> int:
        """How often the session has listed the pods."""
        requests = site.lab.requests(site.namespace)
        return sum(
            (entry["verb"], entry.get("objectRef", {}).get("resource")) == ("list", "pods")
            for entry in requests
        )

    over = threading.Event()

    def close() -> None:
        until(lambda: over.is_set() or "Unschedulable" in str(site.items("pods")), "the scheduler said why")
        before = looks()
        until(lambda: over.is_set() or looks() > before + 1, "the session has looked again")
        session.close()

    closing = threading.Thread(target=close)
    closing.start()
    try:
        (lack,) = session.lacks(2)
    finally:
        over.set()
        closing.join()
    assert "could not be counted: Unschedulable: 0/128 nodes are available" in lack
    assert "can mount that claim on {'agentpool': 'none'}" in lack
    until(lambda: not site.items("jobs"), "the count is gone")


def test_a_count_that_the_cluster_refuses_is_told_within_seconds_and_leaves_nothing(site: Site) -> None:
    site.claim()
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    site.lab.api.merge(f"/api/v1/namespaces/{site.namespace}", {"metadata": {"labels": labels}})
    (lack,) = site.session("check").lacks(2)
    assert "could not be counted: FailedCreate: " in lack
    assert "Error creating: pods " in lack
    assert 'violates PodSecurity "restricted:latest": ' in lack
    until(lambda: not site.items("jobs") and not site.items("pods"), "the count is gone")
    until(lambda: set(site.items("configmaps")) == {"kube-root-ca.crt"}, "its script is gone")


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
