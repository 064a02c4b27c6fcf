"""Which kind a recipe's job is on clusters that have one, another, both or none, and that it stays what it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fixtures.backends.kubernetes import objects, readiness
from fixtures.backends.kubernetes.api import Refused
from fixtures.backends.kubernetes.backend import KubernetesBackend
from fixtures.backends.kubernetes.kinds import JobKind
from fixtures.backends.kubernetes.pytorchjob import PyTorchJobs, TorchJobSets
from fixtures.backends.kubernetes.section import Kubernetes
from fixtures.runs.ledger import Ledger
from plugins.base.errors import SiteError, SubmitError, Unreachable
from plugins.record.job import JobRef, Phase
from plugins.record.outcome import outcome_of
from tests.unit import aks, examples, kubeapi
from tests.unit.jobs_log import planned

OPERATOR, JOBSET = PyTorchJobs(), TorchJobSets()
KINDS: tuple[JobKind, ...] = (OPERATOR, JOBSET)
CASE = aks.case()
FORBIDDEN = Refused(403, "pytorchjobs is forbidden")
NAME = "pacemark-run-1.gpt3_aks-375m"
ID = objects.object_name(NAME, CASE.id)


class Cluster(kubeapi.Memory):
    """Serves these kinds of job; of the others it says what an API server does."""

    def __init__(self, *served: JobKind) -> None:
        super().__init__()
        self.before = self._refuse
        self.serve(*served)

    def serve(self, *served: JobKind) -> None:
        self._served = {kind.path("runs") for kind in served}
        for kind in KINDS:
            self.objects.pop(f"/apis/{kind.group}/{kind.version}", None)
        for kind in served:
            resources = [{"name": kind.plural}]
            self.objects[f"/apis/{kind.group}/{kind.version}"] = {"metadata": {}, "resources": resources}

    def _refuse(self, method: str, path: str) -> None:
        for kind in KINDS:
            if path.startswith(kind.path("runs")) and kind.path("runs") not in self._served:
                raise Unreachable(f"{method} {path}: 404: 404 page not found")

    def made(self) -> list[str]:
        return [item["kind"] for item in self.objects.values() if "kind" in item]


Open = Callable[[Cluster], KubernetesBackend]


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Open:
    """Begins a session on a cluster that has all else."""
    base = "fixtures.backends.kubernetes"
    monkeypatch.setattr(readiness, "STARTING_SECONDS", 0.0)
    monkeypatch.setattr(readiness, "lacks", lambda *_: [])
    monkeypatch.setattr(f"{base}.provision.apply.Provisioner.lacks", lambda *_, **__: [])
    monkeypatch.setattr(f"{base}.watched.Informer", kubeapi.Watch)
    recipe, section = examples.recipe_named("gpt3_aks"), Kubernetes(gpu="h100", namespace="runs")

    def begin(cluster: Cluster) -> KubernetesBackend:
        monkeypatch.setattr(f"{base}.backend.Api", lambda *_: cluster)
        return KubernetesBackend("lab", section, [recipe], OPERATOR, JOBSET)

    return begin


def submitted(backend: KubernetesBackend, name: str = NAME) -> JobRef:
    backend.check(CASE)
    return backend.submit(CASE, name)


@pytest.mark.parametrize(
    ("served", "kind"),
    [((OPERATOR,), "PyTorchJob"), ((JOBSET,), "JobSet"), ((OPERATOR, JOBSET), "PyTorchJob")],
)
def test_the_first_kind_that_the_cluster_has_is_made_recorded_and_shown(
    session: Open, served: tuple[JobKind, ...], kind: str
) -> None:
    cluster = Cluster(*served)
    backend = session(cluster)
    backend.check(CASE)
    assert backend.submit(CASE, NAME) == JobRef(CASE.recipe, CASE.id, NAME, ID, "runs", kind, uid="uid-1")
    assert cluster.made() == [kind, "ConfigMap"]
    assert f"\nkind: {kind}\n" in backend.plan(CASE, NAME)
    assert "the cluster decides" not in backend.plan(CASE, NAME)


def test_a_cluster_that_has_none_of_them_is_told_what_to_install(session: Open) -> None:
    with pytest.raises(SiteError) as caught:
        session(Cluster()).check(CASE)
    assert str(caught.value) == (
        "site lab is not ready for gpt3_aks:\n"
        "  PyTorchJob (kubeflow.org/v1) and JobSet (jobset.x-k8s.io/v1alpha2) are missing on the cluster\n"
        "    mend: install one of them: https://www.kubeflow.org/docs/components/trainer/legacy-v1/installation or "
        "https://jobset.sigs.k8s.io/docs/installation"
    )


def test_a_kind_that_comes_while_the_server_starts_is_waited_for(
    session: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(JOBSET)
    monkeypatch.setattr("time.sleep", lambda _: cluster.serve(OPERATOR, JOBSET))
    assert submitted(session(cluster)).kind == "PyTorchJob"


def test_a_kind_that_comes_in_the_middle_of_a_session_changes_nothing(session: Open) -> None:
    cluster = Cluster(JOBSET)
    backend = session(cluster)
    backend.check(CASE)
    cluster.serve(OPERATOR, JOBSET)
    backend.check(CASE)
    assert backend.submit(CASE, NAME).kind == "JobSet"


@pytest.mark.parametrize("denied", [False, True])
def test_a_later_session_finds_and_ends_the_job_as_what_it_is(session: Open, denied: bool) -> None:
    """After the cluster gained the training operator; also where this user may do nothing with its jobs."""
    cluster = Cluster(JOBSET)
    job = submitted(session(cluster))
    cluster.serve(OPERATOR, JOBSET)
    if denied:
        cluster.refuse("", OPERATOR.path("runs"), FORBIDDEN)
    later = session(cluster)
    assert later.find(JobRef(CASE.recipe, CASE.id, NAME), to_end=True) == job
    later.cancel([job])
    assert cluster.made() == []


def test_a_job_of_a_kind_that_may_not_be_looked_at_does_not_count_as_gone(session: Open) -> None:
    cluster = Cluster(OPERATOR, JOBSET)
    cluster.refuse("", OPERATOR.path("runs"), FORBIDDEN)
    with pytest.raises(Unreachable, match="pytorchjobs is forbidden"):
        session(cluster).find(JobRef(CASE.recipe, CASE.id, NAME))


def test_jobs_of_both_kinds_are_listed_asked_about_and_ended_together(session: Open) -> None:
    cluster, jobs = Cluster(JOBSET), list[JobRef]()
    for served in ((JOBSET,), (OPERATOR, JOBSET)):
        cluster.serve(*served)
        backend = session(cluster)
        jobs.append(submitted(backend, f"{NAME}-{len(jobs)}"))
    assert [job.kind for job in jobs] == ["JobSet", "PyTorchJob"]
    assert {(job.id, job.kind) for job in backend.listed("pacemark-run-1.")} == {
        (job.id, job.kind) for job in jobs
    }
    # Nobody knows of which case a listed job is.
    for asked in (jobs, backend.listed("pacemark-run-1.")):
        states = backend.poll(asked)
        assert {job: states[job].phase for job in asked} == dict.fromkeys(asked, Phase.QUEUED)
    backend.cancel(jobs)
    ended = {(state.phase, state.raw) for state in backend.poll(jobs).values()}
    assert ended == {(Phase.FAILED, "CANCELLED")}
    # Kinds that are not there are not asked for.
    cluster.serve(JOBSET)
    assert session(cluster).listed("pacemark-run-1.") == []


@pytest.mark.parametrize("hidden", KINDS)
def test_a_kind_that_cannot_be_asked_hides_no_job_of_another_kind(session: Open, hidden: JobKind) -> None:
    cluster, jobs = Cluster(OPERATOR, JOBSET), list[JobRef]()
    for kind in KINDS:
        cluster.serve(kind)
        backend = session(cluster)
        jobs.append(submitted(backend, f"{NAME}-{kind.name}"))
    cluster.refuse("", hidden.path("runs"), Unreachable("the kind is forbidden"))
    seen, unseen = sorted(jobs, key=lambda job: job.kind == hidden.name)
    states = backend.poll(jobs)
    assert states[seen].phase is Phase.QUEUED
    assert states[unseen].phase is Phase.UNKNOWN
    assert states[unseen].raw == "cannot be asked: the kind is forbidden"
    # If no kind can be asked, nothing is known at all, and the session's own bound counts.
    with pytest.raises(Unreachable, match="the kind is forbidden"):
        backend.poll([unseen])


def test_the_ledger_knows_what_a_job_is(tmp_path: Any) -> None:
    ledger = Ledger.create(tmp_path / "jobs.log", "run-1", "lab")
    ledger.plan([planned(CASE, "pytorchjob", NAME)])
    job = JobRef(CASE.recipe, CASE.id, NAME, ID, "runs", "JobSet", uid="uid-1")
    ledger.submitted(job)
    entry = ledger.entry(CASE.key)
    assert entry is not None
    assert entry.ref == job
    assert outcome_of(entry, tmp_path, "h100").job.ref.kind == "JobSet"
    ledger.try_again(CASE.key)
    entry = ledger.entry(CASE.key)
    assert entry is not None
    assert (entry.ref.kind, entry.ref.uid) == ("", "")


@pytest.mark.parametrize("kind", KINDS)
def test_what_keeps_a_deleted_job_of_any_kind_reaches_the_user(session: Open, kind: JobKind) -> None:
    cluster = Cluster(kind)
    backend, lines = session(cluster), list[str]()
    backend.notify = lines.append
    job = submitted(backend)
    cluster.objects[f"{kind.path('runs')}/{job.id}"]["metadata"]["finalizers"] = ["site/audit"]
    backend.cancel([job])
    assert lines == [f"{kind.name} {ID} is deleted, and stays until its finalizers are removed: site/audit"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_of_any_kind_that_a_policy_changed_is_ended_at_once(
    session: Open, monkeypatch: pytest.MonkeyPatch, kind: JobKind
) -> None:
    """Nobody would know whose it is: the check could not tell, since its webhook does not answer dry runs."""
    cluster = Cluster(kind)
    backend, post = session(cluster), cluster.post

    def strip(path: str, document: Any, **query: str) -> Any:
        made = post(path, document, **query)
        if document["kind"] == kind.name:
            for there in (made, cluster.objects[f"{path}/{made['metadata']['name']}"]):
                del there["metadata"]["annotations"]
        return made

    backend.check(CASE)
    monkeypatch.setattr(cluster, "post", strip)
    with pytest.raises(SubmitError) as caught:
        backend.submit(CASE, NAME)
    change = f"metadata.annotations.pacemark/job is missing instead of '{NAME}'"
    end = f"{kind.name} {ID} was deleted again\n    mend: ask the administrator"
    assert str(caught.value).startswith(f"the cluster changed {kind.name} {ID}: {change}; {end}")
    assert not caught.value.may_run
    assert cluster.made() == []
