"""No JobSet is left behind, whatever ends the session; none is made twice; none of somebody else is touched."""

from __future__ import annotations

import copy
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fixtures.backends.kubernetes import objects
from fixtures.backends.kubernetes.backend import KubernetesBackend
from fixtures.backends.kubernetes.jobset import JobSets
from fixtures.backends.kubernetes.section import Kubernetes
from fixtures.site import load_site
from plugins.base.errors import SubmitError
from plugins.recipes.cases import Recipe
from plugins.recipes.expansion import load_recipe
from plugins.record.job import JobRef, Phase
from tests.lab.k8s.cluster import KubernetesLab
from tests.system.kube import CASE, gke_site, items, left, nothing_is_left
from tests.system.kube_trial import JOBSETS, TWO, MakeTrial
from tests.system.support import until

NAME = "pacemark-20261121-094226-2019.llama3_gke-70b-fp8-32gpus"
JOB = JobRef("llama3_gke", "70b-fp8-32gpus", NAME)


@pytest.mark.parametrize(
    ("number", "workers"), [(signal.SIGTERM, ()), (signal.SIGINT, ("-n", "2"))], ids=["alone", "under xdist"]
)
def test_a_signal_deletes_every_jobset(
    kube_trial: MakeTrial, number: signal.Signals, workers: tuple[str, ...]
) -> None:
    trial = kube_trial(select=TWO, hang_at=5).start(*workers)
    trial.until_running(8)
    trial.signal(number)
    result = trial.end()
    assert result.status == 2, result.out
    assert set(result.verdicts.values()) == {"infrastructure"}
    assert "was cancelled" in result.case(CASE)["headline"]
    assert "NOT confirmed" not in result.out


def test_a_signal_while_submitting_leaves_no_jobset(kube_trial: MakeTrial) -> None:
    trial = kube_trial(select=TWO, hang_at=5).start()
    until(trial.owned, "the run has begun")
    time.sleep(0.6)
    trial.signal(signal.SIGTERM)
    trial.end()


# kill -9


@pytest.mark.parametrize(
    ("moment", "command"),
    [("checking", "--resume"), ("queued", "--sweep"), ("running", "--sweep"), ("ended", "--resume")],
)
def test_what_a_killed_session_left_is_swept_or_taken_up(
    kubernetes_lab: KubernetesLab, kube_trial: MakeTrial, moment: str, command: str
) -> None:
    queued = {"keys": {"queue": "a3-mega"}} if moment == "queued" else {}
    trial = kube_trial(**queued).hold(10)
    go_on = None
    if moment == "queued":
        trial.queue(32)
        go_on = trial.occupy()
    trial.start()
    if moment == "checking":
        until(trial.owned, "the run has begun")
        time.sleep(0.3)
    elif moment == "queued":
        trial.jobset()
        time.sleep(1)
    elif moment == "running":
        trial.until_steps(5)
    else:
        trial.until_running()
        assert trial.process is not None
        trial.signal(signal.SIGSTOP)
        trial.let_go()
        until(trial.jobset_ended, "the JobSet's end")
    trial.kill()
    if moment != "ended":
        trial.let_go()
    if command == "--resume":
        result = trial.resume()
        assert result.verdicts == {CASE: "passed"}, result.out
        assert len((result.folder / CASE / "steps.csv").read_text().splitlines()) == 51
        assert len(trial.made()) == 1
        return
    swept = trial.house("--sweep")
    assert swept.status == 0, swept.out
    if go_on is not None:
        go_on()
    nothing_is_left(kubernetes_lab, trial.namespace)
    assert trial.house("--sweep").status == 0


def test_what_a_dead_session_left_goes_by_itself(
    kubernetes_lab: KubernetesLab, kube_trial: MakeTrial
) -> None:
    trial = kube_trial(keys={"keep_minutes": 0.05}).hold(10).start()
    trial.until_running()
    trial.until_recorded()
    trial.kill()
    trial.let_go()
    nothing_is_left(kubernetes_lab, trial.namespace)
    lost = trial.resume()
    # Nobody read the log, and it went with the pods.
    assert lost.verdicts == {CASE: "lost"}, lost.out
    assert "the cluster no longer knows job pm-" in lost.case(CASE)["headline"]


# Whose a JobSet is


@pytest.fixture
def recipe(small: str) -> Recipe:
    return load_recipe(Path(small))


@pytest.fixture
def backend(
    kubernetes_lab: KubernetesLab, namespace: str, tmp_path: Path, recipe: Recipe
) -> Iterator[KubernetesBackend]:
    kubernetes_lab.set(namespace, hang_at=5)
    site = load_site(gke_site(kubernetes_lab, namespace, tmp_path))
    section = site.section("jobset")
    assert isinstance(section, Kubernetes)
    made = KubernetesBackend("lab", section, [recipe], JobSets())
    yield made
    made.close()


def names(lab: KubernetesLab, namespace: str, kind: str) -> list[str]:
    return [item["metadata"]["name"] for item in items(lab, namespace, kind)]


def test_the_same_submission_twice_makes_one_jobset(
    kubernetes_lab: KubernetesLab, namespace: str, backend: KubernetesBackend, recipe: Recipe
) -> None:
    case = recipe.case("70b-fp8-32gpus")
    assert case is not None
    first, again = backend.submit(case, NAME), backend.submit(case, NAME)
    assert first == again == backend.find(JOB)
    assert names(kubernetes_lab, namespace, "jobset") == [first.id]
    backend.cancel([first])
    nothing_is_left(kubernetes_lab, namespace)
    assert backend.poll([first])[first].phase.over
    assert backend.find(JOB) is None


def test_a_session_that_died_between_a_jobset_and_its_configuration_is_completed(
    kubernetes_lab: KubernetesLab, namespace: str, backend: KubernetesBackend, recipe: Recipe
) -> None:
    case = recipe.case("70b-fp8-32gpus")
    assert case is not None
    job = backend.submit(case, NAME)
    (name,) = names(kubernetes_lab, namespace, "configmap")
    kubernetes_lab.api.delete(f"/api/v1/namespaces/{namespace}/configmaps/{name}")
    until(lambda: not items(kubernetes_lab, namespace, "configmap"), "its end")
    assert backend.find(JOB) == job
    (again,) = items(kubernetes_lab, namespace, "configmap")
    assert again["metadata"]["ownerReferences"][0]["name"] == job.id
    backend.cancel([job])
    nothing_is_left(kubernetes_lab, namespace)


def foreign(backend: KubernetesBackend, recipe: Recipe) -> dict[str, Any]:
    """The very JobSet, but somebody else's, or another run's."""
    case = recipe.case("70b-fp8-32gpus")
    assert case is not None
    jobset = copy.deepcopy(objects.of_kind(backend._renderer.documents(case, JobSets(), NAME), "JobSet"))
    jobset["metadata"]["annotations"][objects.JOB] = "pacemark-20260101-000000-0000.another"
    return jobset


def test_a_jobset_of_this_name_that_is_not_ours_is_left_alone(
    kubernetes_lab: KubernetesLab, namespace: str, backend: KubernetesBackend, recipe: Recipe
) -> None:
    case = recipe.case("70b-fp8-32gpus")
    assert case is not None
    theirs = kubernetes_lab.api.create(foreign(backend, recipe))
    with pytest.raises(SubmitError, match=r"refuses JobSet .* already exists"):
        backend.submit(case, NAME)
    assert backend.find(JOB) is None
    # As a session has it that knows no uid of its own.
    job = replace(backend._ref(JOB, JobSets(), theirs), uid="")
    backend.cancel([job])
    backend.release([job])
    assert backend.poll([job])[job].phase is Phase.GONE
    (found,) = items(kubernetes_lab, namespace, "jobset")
    assert found["metadata"]["uid"] == theirs["metadata"]["uid"]
    assert "deletionTimestamp" not in found["metadata"]
    assert names(kubernetes_lab, namespace, "configmap") == []


def test_a_configuration_of_this_name_that_is_not_ours_ends_our_jobset(
    kubernetes_lab: KubernetesLab, namespace: str, backend: KubernetesBackend, recipe: Recipe
) -> None:
    case = recipe.case("70b-fp8-32gpus")
    assert case is not None
    theirs = copy.deepcopy(objects.of_kind(backend._renderer.documents(case, JobSets(), NAME), "ConfigMap"))
    del theirs["metadata"]["annotations"]
    kubernetes_lab.api.create(theirs)
    with pytest.raises(SubmitError, match=r"refuses ConfigMap .* already exists; JobSet pm-\S+ was deleted"):
        backend.submit(case, NAME)
    until(lambda: left(kubernetes_lab, namespace) == [f"configmap {theirs['metadata']['name']}"], "its end")


def test_a_jobset_that_was_replaced_is_not_swept(
    kubernetes_lab: KubernetesLab, kube_trial: MakeTrial
) -> None:
    """The ledger's name is now another's: the run was swept by hand, and somebody made it anew."""
    trial = kube_trial(hang_at=5).start()
    trial.until_running()
    trial.until_recorded()
    trial.kill()
    ours = trial.jobset()
    path = JOBSETS.format(trial.namespace)
    kubernetes_lab.clear(trial.namespace)
    theirs = {key: ours[key] for key in ("apiVersion", "kind", "spec")}
    theirs["metadata"] = {"name": ours["metadata"]["name"], "namespace": trial.namespace}
    made = kubernetes_lab.api.create(theirs)
    swept = trial.house("--sweep")
    assert swept.status == 0, swept.out
    assert (
        kubernetes_lab.api.get(f"{path}/{made['metadata']['name']}")["metadata"]["uid"]
        == made["metadata"]["uid"]
    )


# Secrets


def test_the_token_of_the_kubeconfig_is_shown_nowhere(kube_trial: MakeTrial) -> None:
    """Every trial must not show it; this one is told to say all, dies, and its process list is looked at."""
    trial = kube_trial(crash_at=3)
    (token,) = trial.secrets()
    # A session that is forked would not have its own command line.
    own = {"PYTHONUNBUFFERED": "1"}
    trial.start("-vv", "--showlocals", "--tb=long", "--log-cli-level=DEBUG", "--full-trace", env=own)
    seen, sessions = [], 0
    process = trial.process
    assert process is not None

    def is_made() -> bool:
        nonlocal sessions
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = path.read_bytes() + (path.parent / "environ").read_bytes()
            except OSError:
                continue
            sessions += str(trial.results).encode() in line
            if token.encode() in line:
                seen.append(line)
        return process.poll() is not None or bool(trial.made())

    until(is_made, "its JobSet")
    result = trial.end()
    assert result.verdicts == {CASE: "infrastructure"}, result.out
    assert sessions, "the session was never seen, so this test saw nothing"
    assert seen == []
