"""A Kueue that suspends every JobSet and does not know PyTorchJobs; and a JobSet controller that is dead."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures.backends.kubernetes.backend import KubernetesBackend
from fixtures.backends.kubernetes.jobset import JobSets
from fixtures.backends.kubernetes.kinds import JobKind
from fixtures.backends.kubernetes.pytorchjob import PyTorchJobs
from fixtures.backends.kubernetes.section import Kubernetes
from fixtures.site import load_site
from plugins.base.errors import SubmitError
from plugins.recipes.cases import Case
from plugins.recipes.expansion import load_recipe
from plugins.record.job import JobRef
from tests.lab.k8s import manifests
from tests.lab.k8s.cluster import KubernetesLab
from tests.system.kube import aks_site, gke_site, nothing_is_left
from tests.system.support import ROOT, until

# Its cluster is started once.
pytestmark = pytest.mark.xdist_group("kueue")

KUEUE = {
    "manageJobsWithoutQueueName": True,
    "integrations": {"frameworks": ["jobset.x-k8s.io/jobset"]},
}


@pytest.fixture(scope="module")
def kubernetes_lab(kubernetes_parts: None) -> Iterator[KubernetesLab]:
    with KubernetesLab(nodes=16, kueue=KUEUE) as lab:
        yield lab


Make = Callable[..., tuple[KubernetesBackend, Case]]


@pytest.fixture
def make(kubernetes_lab: KubernetesLab, namespace: str, tmp_path: Path) -> Iterator[Make]:
    """A backend of this kind for the namespace, and a case."""
    made: list[KubernetesBackend] = []

    def backend(kind: JobKind, **keys: Any) -> tuple[KubernetesBackend, Case]:
        gke = kind.name == "JobSet"
        site = load_site((gke_site if gke else aks_site)(kubernetes_lab, namespace, tmp_path, **keys))
        section = site.section("jobset" if gke else "pytorchjob")
        assert isinstance(section, Kubernetes)
        recipe = load_recipe(ROOT / "suites" / ("llama3_gke" if gke else "gpt3_aks"))
        case = recipe.case("70b-fp8-128gpus" if gke else "375m-fp16-16gpus")
        assert case is not None
        made.append(KubernetesBackend("lab", section, [recipe], kind))
        return made[-1], case

    yield backend
    for one in made:
        one.close()


def until_given_up(backend: KubernetesBackend, job: JobRef, reason: str) -> None:
    """Until the job can never start, for this reason."""

    def told() -> bool:
        state = backend.poll([job])[job]
        return state.hopeless and reason in state.reason

    until(told, reason)


def test_kueue_that_manages_jobs_without_a_queue_name(
    kubernetes_lab: KubernetesLab, namespace: str, make: Make
) -> None:
    backend, case = make(JobSets())
    (lack,) = backend.findings(case).missing
    assert f"Kueue manages jobs without a queue name in namespace {namespace}\n    mend: set `queue`" in lack
    job = backend.submit(case, "run.llama3_gke-70b-fp8-128gpus")
    # This user may list workloads, though the site file has no queue.
    reason = "doesn't exist; Kueue manages jobs without a queue name here: set `queue` in the site file"
    until_given_up(backend, job, reason)
    backend.cancel([job])
    nothing_is_left(kubernetes_lab, namespace)


def test_kueue_without_an_integration_of_the_kind_of_job(
    kubernetes_lab: KubernetesLab, namespace: str, make: Make
) -> None:
    for document in manifests.quota(namespace, "gpus", 128):
        kubernetes_lab.api.create(document)
    backend, case = make(PyTorchJobs(), queue="gpus")
    lacks = [lack for lack in backend.findings(case).missing if "Kueue" in lack]
    assert len(lacks) == 1
    assert lacks[0].startswith(f"Kueue does not manage PyTorchJobs in namespace {namespace}")
    job = backend.submit(case, "run.gpt3_aks-375m-fp16-16gpus")
    until_given_up(backend, job, "has kubeflow.org/pytorchjob")
    backend.cancel([job])
    nothing_is_left(kubernetes_lab, namespace)


# The last one, since it ends a part of the cluster.
def test_a_webhook_that_is_dead_is_an_answer(
    kubernetes_lab: KubernetesLab, namespace: str, make: Make
) -> None:
    backend, case = make(JobSets())
    kubernetes_lab.signal("jobset", signal.SIGKILL)
    words = 'failed calling webhook "'
    (lack,) = backend.findings(case).missing
    assert lack.startswith("the cluster would refuse JobSet ")
    with pytest.raises(SubmitError) as caught:
        backend.submit(case, "run.llama3_gke-70b-fp8-128gpus")
    # The pod of a webhook may be replaced at that moment; it is not asked for as long as a server without an answer.
    sent = [entry["requestURI"] for entry in kubernetes_lab.requests(namespace) if entry["verb"] == "create"]
    assert 1 <= sum("/jobsets?" in uri and "dryRun=All" not in uri for uri in sent) <= 3
    for told in (lack, str(caught.value)):
        assert words in told
        assert "connection refused" in told
        assert "\n    mend: ask the administrator" in told
    nothing_is_left(kubernetes_lab, namespace)
