"""Where a job is: it is never looked for anywhere else, and never taken for gone because it is not there."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fixtures.backends.base import Backend
from fixtures.backends.kubernetes import objects
from fixtures.backends.kubernetes.api import Api
from fixtures.backends.kubernetes.backend import KubernetesBackend
from fixtures.backends.kubernetes.jobset import JobSets
from fixtures.backends.kubernetes.section import Kubernetes
from fixtures.runs.ledger import Ledger, open_ledger
from fixtures.runs.leftovers import cancel_left
from fixtures.runs.resume import resumed
from fixtures.site import site_model
from plugins.base.errors import ConfigError, Denied, SubmitError
from plugins.record.job import SETUP_CASE, Job, JobRef
from plugins.record.lines import JOBS_LOG
from tests.unit import examples, kubeapi
from tests.unit.cluster import Cluster
from tests.unit.jobs_log import planned

CASE = examples.case()
HERE, THERE = "https://one:6443, namespace runs", "https://other:6443, namespace runs"
JOB = "pacemark-20261121-094226-2019.gpt3_aks-setup"
SUBMITTED = JobRef("gpt3_aks", SETUP_CASE, JOB)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "results" / "run-1"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def ledger(folder: Path) -> Ledger:
    made = Ledger.create(folder / JOBS_LOG, "run-1", "lab")
    made.plan([planned(CASE, "jobset", "the-job")])
    made.plan_setup(JobRef("llama3", "setup", "the-setup"), "jobset")
    made.intend(CASE.key, THERE)
    made.intend("llama3/setup", HERE)
    made.submitted(JobRef("llama3", "setup", "the-setup", "17", "runs"))
    return made


def swept(ledger: Ledger, cluster: Backend, **site: Any) -> tuple[bool, str]:
    """Whether all is over, and what was said."""
    said = io.StringIO()
    section = Kubernetes(gpu="h100")
    found = site_model()(site="lab", **{"jobset": section, **site})
    return cancel_left(ledger.path.parent, found, {"jobset": cluster}, said), said.getvalue()


def test_a_sweep_says_what_is_elsewhere_and_cancels_what_is_here(ledger: Ledger) -> None:
    cluster = Cluster()
    cluster.where = HERE
    good, said = swept(ledger, cluster)
    assert not good
    assert f"NOT cancelled: job the-job is in {THERE}, and the site file leads to {HERE} now" in said
    assert "llama3/setup: job 17 is over" in said
    assert cluster.cancelled == {"the-setup"}
    left = Ledger(ledger.path).entries()
    assert [entry.ref.name for entry in left if entry.may_run] == ["the-job"]


def test_a_run_is_not_resumed_where_its_jobs_are_not(ledger: Ledger) -> None:
    cluster = Cluster()
    cluster.where = HERE
    plan = planned(CASE, "jobset", "the-job")
    words = r"llama3/\S+: job the-job is in https://other:6443, namespace runs"
    with pytest.raises(ConfigError, match=words):
        resumed(ledger, "lab", [plan], {"jobset": cluster})
    assert [entry.status for entry in ledger.entries()] == ["intent", "submitted"]


# On Kubernetes


def api(path: Path) -> Api:
    return Api("lab", Kubernetes(gpu="h100", kubeconfig=str(path)))


def test_clusters_are_told_apart_by_address_and_authority_and_no_plugin_is_run(tmp_path: Path) -> None:
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": f"{tmp_path}/never"}}
    known: list[tuple[str, dict[str, Any]]] = [
        ("https://127.0.0.1:6443/", {}),
        ("https://127.0.0.1:6444", {}),
        ("https://127.0.0.1:6443", {"certificate-authority-data": "b25l"}),
        ("https://127.0.0.1:6443", {"certificate-authority-data": "b3RoZXI="}),
    ]
    seen = [
        api(kubeapi.kubeconfig(tmp_path / str(number), server, user, **cluster)).server()
        for number, (server, cluster) in enumerate(known)
    ]
    assert len(set(seen)) == 4
    assert seen[0] == "https://127.0.0.1:6443"
    # However it is written down.
    (tmp_path / "ca.crt").write_text("one\n")
    cluster: dict[str, Any] = {"certificate-authority": "ca.crt"}
    same = kubeapi.kubeconfig(tmp_path / "same", "https://127.0.0.1:6443", **cluster)
    assert api(same).server() == seen[2]


def test_a_cluster_whose_ca_was_rotated_is_the_same_once_the_site_file_says_so(tmp_path: Path) -> None:
    """Its address and its jobs are the same, and two clusters may have one address: only who knows it can say so."""

    def backend(name: str, authority: str, **keys: Any) -> KubernetesBackend:
        cluster: dict[str, Any] = {"certificate-authority-data": authority}
        path = kubeapi.kubeconfig(tmp_path / name, "https://one:6443", **cluster)
        return KubernetesBackend("lab", Kubernetes(gpu="h100", kubeconfig=str(path), **keys), [], JobSets())

    before, after = backend("before", "b25l"), backend("after", "b3RoZXI=")
    job = Job(ref=JobRef("llama3", "c", "the-job", "pm-1"), location=before.location())
    words = job.away(after.location())
    digest = re.search(
        r"\(if this is one cluster, whose CA was rotated, set `former_ca: (\w+)` in the site file\)", words
    )
    assert digest is not None, words
    said = backend("said", "b3RoZXI=", former_ca=digest[1])
    assert job.away(said.location()) == ""
    # Of another cluster, or where no CA is given, there is nothing to say.
    assert "former_ca" not in job.away("https://other:6443 (CA 5d2b), namespace default")
    assert "former_ca" not in Job(ref=job.ref, location=HERE).away(THERE)


def test_a_session_stays_in_its_cluster_when_the_context_is_switched(tmp_path: Path) -> None:
    one, other = kubeapi.Server(), kubeapi.Server()
    try:
        path = kubeapi.kubeconfig(tmp_path / "config", one.url)
        asked = api(path)
        assert asked.server() == one.url
        # As `kubectl config use-context` does, before the first request.
        kubeapi.kubeconfig(path, other.url)
        words = f"led to {one.url}, and leads to {other.url} now\n    mend: set `context`"
        with pytest.raises(Denied, match=words):
            asked.get("/api")
        assert (one.asked, other.asked) == ([], [])
    finally:
        one.close()
        other.close()


def test_a_set_up_is_found_by_the_submission_that_made_it_whatever_the_site_file_means_now() -> None:
    memory = kubeapi.Memory()
    memory.claim()
    first = kubeapi.setup(memory)
    job = first.provision(JOB)
    other = kubeapi.setup(memory, dataset="another/folder")
    assert other.find(SUBMITTED) is None
    assert other.find(SUBMITTED, to_end=True) == job
    # Of another session's there is nothing to end.
    assert first.find(replace(SUBMITTED, name="somebody-elses"), to_end=True) is None
    other.end(job)
    assert memory.names(kubeapi.JOBS) == []


def test_a_job_is_found_to_be_ended_though_its_values_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A submission that was cut off, and a site file that has lost its image since."""
    case = examples.case("70b-fp8-128gpus", "llama3_gke")
    section = Kubernetes(gpu="h100", namespace="runs")
    memory = kubeapi.Memory()
    monkeypatch.setattr("fixtures.backends.kubernetes.backend.Api", lambda *_: memory)
    backend = KubernetesBackend("lab", section, [examples.recipe_named("llama3_gke")], JobSets())
    ref, name = JobRef(case.recipe, case.id, "the-job"), objects.object_name("the-job", case.id)
    jobset = {"metadata": {"name": name, "namespace": "runs", "annotations": {objects.JOB: "the-job"}}}
    memory.post("/apis/jobset.x-k8s.io/v1alpha2/namespaces/runs/jobsets", jobset)
    assert backend.find(ref, to_end=True) == replace(ref, id=name, folder="runs", kind="JobSet", uid="uid-1")
    # To go on with it, something would have to be made.
    words = f"JobSet {name} is there, but what it mounts cannot be made"
    with pytest.raises(SubmitError, match=words) as caught:
        backend.find(ref)
    assert caught.value.may_run


def test_a_job_that_was_only_planned_by_a_damaged_ledger_is_looked_for(folder: Path) -> None:
    made, plan = (
        Ledger.create(folder / JOBS_LOG, "run-1", "lab"),
        planned(CASE, "jobset", "pacemark-run-1.the-job"),
    )
    made.plan([plan])
    log = (folder / JOBS_LOG).read_bytes()
    (folder / JOBS_LOG).write_bytes(log.replace(b"lab", b"lob", 1))
    mended, told = open_ledger(folder)
    assert told
    cluster = Cluster()
    cluster.where = HERE
    (found,) = resumed(mended, "lab", [plan], {"jobset": cluster})
    assert found.ref == JobRef(CASE.recipe, CASE.id, plan.ref.name, "", "")


def test_a_sweep_says_what_no_section_of_the_site_file_leads_to(ledger: Ledger) -> None:
    good, said = swept(ledger, Cluster(), jobset=None)
    assert not good
    assert "is left as it is: the site file has no `jobset:` section" in said
    assert len([entry for entry in ledger.entries() if entry.may_run]) == 2
