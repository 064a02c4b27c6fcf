"""The way to the API server, and what a site lacks: broken at every moment; nothing is concluded about any job."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import yaml

import fixtures.backends.kubernetes.backend
from fixtures.backends.kubernetes.api import Api, Refused
from fixtures.backends.kubernetes.backend import KubernetesBackend
from fixtures.backends.kubernetes.informer import Informer
from fixtures.backends.kubernetes.jobset import JobSets
from fixtures.backends.kubernetes.section import Kubernetes
from fixtures.site import load_site
from plugins.base.errors import Infrastructure, Unreachable
from plugins.recipes.expansion import load_recipe
from plugins.record.job import JobRef
from tests.lab.k8s import manifests
from tests.lab.k8s.cluster import KubernetesLab
from tests.lab.k8s.gate import BREAK, CUT, HOLD, LOSE, Gate
from tests.system.kube import CASE, gke_site, items, nothing_is_left, user
from tests.system.kube_trial import KubeTrial, MakeTrial, until_queue_is
from tests.system.support import GUARD, ROOT, finish, until

NAME = "pacemark-20261121-094226-2019.llama3_gke-70b-fp8-32gpus"
TOO_MANY = "429 Too Many Requests\r\nRetry-After: 1"
# Not the dry runs of the check.
REVIEWS, JOBSETS, MAPS = (
    "POST .*/selfsubjectaccessreviews",
    r"POST .*/jobsets\?field",
    r"POST .*/configmaps\?field",
)
LOG = "GET .*/log"
PATIENT = ("-p", "tests.system.patient")


class Remembering(Informer):
    """Knows with what it was refused."""

    def __init__(self, api: Api, path: str, selector: str) -> None:
        super().__init__(api, path, selector)
        self.refusals: list[int] = []

    def _follow(self) -> None:
        try:
            super()._follow()
        except Refused as error:
            self.refusals.append(error.status)
            raise

    def sees_nothing(self) -> bool:
        """Whether it has looked, and there was nothing. It pauses while the server is away."""
        with contextlib.suppress(Unreachable):
            return not self.look().objects
        return False


@pytest.fixture
def gated(kubernetes_lab: KubernetesLab, namespace: str, gate: Gate, kube_trial: MakeTrial) -> MakeTrial:
    """Trials whose way to the API server is through the gate."""
    kubeconfig = str(gate.kubeconfig(user(kubernetes_lab, namespace)))

    def make(**given: Any) -> KubeTrial:
        return kube_trial(keys={"kubeconfig": kubeconfig, **given.pop("keys", {})}, **given)

    return make


@pytest.fixture
def crashing(kubernetes_lab: KubernetesLab) -> Iterator[KubernetesLab]:
    """The lab, for a test that ends or stops parts of it."""
    yield kubernetes_lab
    for name in ("kube-apiserver", "kwok"):
        kubernetes_lab.signal(name, signal.SIGCONT)
    if not kubernetes_lab.answers():
        kubernetes_lab.start_api()


def passed(trial: KubeTrial, jobsets: int = 1) -> str:
    """Its end: the case passed, with every step, by one JobSet; what the session printed."""
    result = trial.end()
    assert result.verdicts == {CASE: "passed"}, result.out
    assert len((result.folder / CASE / "steps.csv").read_text().splitlines()) == 51
    assert len(trial.made()) == jobsets
    return result.out


# While a job runs


def test_an_api_server_that_crashes_in_the_middle_of_a_run(
    crashing: KubernetesLab, kube_trial: MakeTrial
) -> None:
    trial = kube_trial().hold(10).start()
    watch = Remembering(
        Api("lab", Kubernetes(gpu="h100", kubeconfig=str(crashing.kubeconfig))), "/api/v1/pods", ""
    )
    watch.look()
    trial.until_steps(5)
    crashing.signal("kube-apiserver", signal.SIGKILL)
    trial.until_said("cannot be asked, will go on trying")
    crashing.start_api()
    trial.let_go()
    out = passed(trial)
    assert "answers again" in out
    # The version that a watch stood at was forgotten, and everything listed anew.
    until(lambda: HTTPStatus.GONE in watch.refusals, "the watch is refused")
    until(watch.sees_nothing, "the watch lists anew")
    watch.close()


def test_an_api_server_that_hangs_for_a_while(crashing: KubernetesLab, kube_trial: MakeTrial) -> None:
    trial = kube_trial(real_step=0.1).hold(10).start()
    trial.until_steps(5)
    crashing.signal("kube-apiserver", signal.SIGSTOP)
    trial.let_go()
    time.sleep(3)
    crashing.signal("kube-apiserver", signal.SIGCONT)
    passed(trial)


def test_a_kubelet_that_hangs_for_a_while(crashing: KubernetesLab, kube_trial: MakeTrial) -> None:
    trial = kube_trial().hold(10).start()
    trial.until_steps(5)
    crashing.signal("kwok", signal.SIGSTOP)
    trial.let_go()
    trial.until_said("its log cannot be read, will go on trying")
    crashing.signal("kwok", signal.SIGCONT)
    out = passed(trial)
    assert "cannot be asked" not in out


@pytest.mark.parametrize("what", ["410 Gone", TOO_MANY], ids=["410", "429"])
def test_a_watch_that_is_refused_goes_on(gate: Gate, gated: MakeTrial, what: str) -> None:
    trial = gated().hold(10).start()
    trial.until_steps(3)
    rule = gate.on("watch=true", what, times=4)
    gate.cut()
    assert rule.met.wait(GUARD)
    trial.let_go()
    passed(trial)


def test_a_log_that_may_no_longer_be_read_is_read_by_the_next_session(gate: Gate, gated: MakeTrial) -> None:
    """The right to read logs is taken away in the middle, and the job ends by itself."""
    trial = gated(limits={"unreachable_minutes": 0.05}).hold(10).start()
    trial.until_steps(5)
    rule = gate.on(LOG, "403 Forbidden")
    # The bound is as short for a cluster that cannot be asked.
    gate.cut(LOG)
    trial.until_said("its log cannot be read, will go on trying")
    trial.let_go()
    assert trial.process is not None
    result = finish(trial.process, trial.results)
    assert result.verdicts == {CASE: "lost"}, result.out
    headline = result.case(CASE)["headline"]
    assert "ended Completed, but its log could not be read for 0.05 minutes" in headline
    assert "cancelled" not in headline
    assert len(trial.items("jobset")) == 1
    rule.times = 0
    again = trial.resume()
    assert again.verdicts == {CASE: "passed"}, again.out
    assert len(trial.made()) == 1


# While submitting


@pytest.mark.parametrize(
    "faults",
    [
        [(REVIEWS, TOO_MANY, 2), (JOBSETS, CUT, 2), (MAPS, LOSE, 1)],
        [(REVIEWS, CUT, 1), (JOBSETS, LOSE, 1), (MAPS, CUT, 2)],
        [(JOBSETS, TOO_MANY, 2), (MAPS, "500 Internal Server Error", 2)],
        [(MAPS, "401 Unauthorized", 1)],
    ],
    ids=["JobSet cut off", "answer cut off", "429 and 500", "401"],
)
def test_a_submission_that_is_cut_off_makes_one_jobset(
    gate: Gate, gated: MakeTrial, faults: list[tuple[str, str, int]]
) -> None:
    rules = [gate.on(request, what, times=times) for request, what, times in faults]
    passed(gated().start(*PATIENT))
    assert all(rule.times == 0 for rule in rules)


def test_an_api_server_that_crashes_while_submitting(
    crashing: KubernetesLab, gate: Gate, gated: MakeTrial
) -> None:
    rule = gate.on(JOBSETS, HOLD)
    trial = gated().start(*PATIENT)
    assert rule.met.wait(GUARD)
    crashing.signal("kube-apiserver", signal.SIGKILL)
    rule.let_go()
    crashing.start_api()
    passed(trial)


def test_a_submission_without_an_answer_is_looked_up_and_completed(
    kubernetes_lab: KubernetesLab,
    namespace: str,
    tmp_path: Path,
    small: str,
    gate: Gate,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kubeconfig = str(gate.kubeconfig(user(kubernetes_lab, namespace)))
    site = load_site(gke_site(kubernetes_lab, namespace, tmp_path, kubeconfig=kubeconfig))
    recipe = load_recipe(Path(small))
    case = recipe.case("70b-fp8-32gpus")
    section = site.section("jobset")
    assert isinstance(section, Kubernetes)
    assert case is not None
    monkeypatch.setattr(fixtures.backends.kubernetes.backend, "SUBMIT_SECONDS", 0.5)
    backend = KubernetesBackend("lab", section, [recipe], JobSets())
    rule = gate.on(JOBSETS, LOSE)
    with pytest.raises(Unreachable):
        backend.submit(case, NAME)
    rule.let_go()
    assert items(kubernetes_lab, namespace, "configmap") == []
    job = backend.find(JobRef(case.recipe, case.id, NAME))
    assert job is not None
    assert (
        len(items(kubernetes_lab, namespace, "configmap"))
        == len(items(kubernetes_lab, namespace, "jobset"))
        == 1
    )
    backend.cancel([job])
    backend.close()
    nothing_is_left(kubernetes_lab, namespace)


# While cancelling, and at the end


@pytest.mark.parametrize("what", [LOSE, TOO_MANY], ids=["no answer", "429"])
def test_a_deletion_that_is_cut_off_is_asked_for_again(gate: Gate, gated: MakeTrial, what: str) -> None:
    trial = gated(hang_at=5).start()
    trial.until_steps(3)
    rule = gate.on("DELETE", what, times=1)
    trial.signal(signal.SIGINT)
    result = trial.end()
    assert rule.met.is_set()
    assert "was cancelled" in result.case(CASE)["headline"]


def test_an_api_server_that_is_gone_while_cancelling(gate: Gate, gated: MakeTrial) -> None:
    trial = gated(hang_at=5).start()
    trial.until_steps(3)
    gate.shut()
    trial.signal(signal.SIGINT)
    time.sleep(2)
    gate.open()
    assert "was cancelled" in trial.end().case(CASE)["headline"]


def test_a_deletion_that_nobody_confirms_is_told_and_swept(
    crashing: KubernetesLab, kube_trial: MakeTrial
) -> None:
    trial = kube_trial(hang_at=5, limits={"cancel_seconds": 2}).start()
    trial.until_steps(3)
    crashing.signal("kube-apiserver", signal.SIGSTOP)
    trial.signal(signal.SIGINT)
    assert trial.process is not None
    # Nobody lets the API server go on before that.
    out, _ = trial.process.communicate(timeout=GUARD)
    assert "NOT confirmed" in out
    crashing.signal("kube-apiserver", signal.SIGCONT)
    # Its bound is as short.
    until(lambda: trial.house("--sweep").status == 0, "a sweep that is confirmed")
    nothing_is_left(crashing, trial.namespace)


def test_a_log_that_breaks_off_at_the_end_is_read_again(gate: Gate, gated: MakeTrial) -> None:
    rule = gate.on(LOG, CUT)
    trial = gated().start()
    until(lambda: bool(trial.items("jobset")) and trial.jobset_ended(), "the JobSet's end")
    broken = gate.on(LOG, BREAK, times=1)
    rule.let_go()
    passed(trial)
    assert broken.met.is_set()


# What a site lacks


@pytest.fixture
def lack(kubernetes_lab: KubernetesLab, namespace: str, tmp_path: Path) -> Callable[..., str]:
    """What the check of a site with these keys says."""
    recipe = load_recipe(ROOT / "suites" / "llama3_gke")

    def check(case_id: str = "70b-fp8-128gpus", **keys: Any) -> str:
        site, case = load_site(gke_site(kubernetes_lab, namespace, tmp_path, **keys)), recipe.case(case_id)
        section = site.section("jobset")
        assert isinstance(section, Kubernetes)
        assert case is not None
        backend = KubernetesBackend("lab", section, [recipe], JobSets())
        with pytest.raises(Infrastructure) as error:
            backend.check(case)
        backend.close()
        return str(error.value)

    return check


def test_a_cluster_that_was_never_there(gate: Gate, gated: MakeTrial) -> None:
    trial = gated()
    gate.shut()
    result = trial.run()
    assert result.case(CASE)["verdict"] == "infrastructure", result.out
    assert "never submitted: lab: the Kubernetes API: " in result.case(CASE)["headline"]
    assert "Connection refused" in result.case(CASE)["headline"]


def test_a_session_without_permissions_is_told_each_verb_and_the_file_to_apply(
    kubernetes_lab: KubernetesLab, namespace: str, kube_trial: MakeTrial
) -> None:
    kubeconfig = str(kubernetes_lab.user(namespace, "nobody", ()))
    trial = kube_trial(keys={"kubeconfig": kubeconfig, "queue": "a3-mega"})
    result = trial.run()
    assert result.case(CASE)["verdict"] == "infrastructure", result.out
    assert trial.made() == []
    for word in (
        "create/get/list/watch/delete jobsets",
        "get jobs",
        "create/get configmaps",
        "list/watch pods",
        "get pods/log",
        "list events",
        "get localqueues",
        "list/watch workloads",
        f"kubectl apply -n {namespace} -f docs/rbac/jobset.yaml",
    ):
        assert word in result.case(CASE)["headline"]


def test_a_kubeconfig_that_is_no_use(
    kubernetes_lab: KubernetesLab, namespace: str, tmp_path: Path, lack: Callable[..., str]
) -> None:
    wrong, broken = tmp_path / "wrong", tmp_path / "broken"
    document = yaml.safe_load(user(kubernetes_lab, namespace).read_text())
    document["users"][0]["user"]["token"] = "wrong-token"
    wrong.write_text(yaml.safe_dump(document))
    broken.write_text("users: [\n")
    for keys, words in (
        ({"kubeconfig": str(tmp_path / "nowhere")}, "nowhere cannot be used"),
        ({"context": "nowhere"}, "context nowhere"),
        ({"kubeconfig": str(broken)}, "broken cannot be used"),
        ({"kubeconfig": str(wrong)}, "the credentials of the kubeconfig are refused"),
    ):
        said = lack(**keys)
        assert words in said
        assert "wrong-token" not in said


def test_a_queue_that_is_missing_or_admits_nothing(
    kubernetes_lab: KubernetesLab, namespace: str, lack: Callable[..., str]
) -> None:
    assert f"the local queue a3-mega in namespace {namespace} is missing" in lack(queue="a3-mega")
    *_, local = manifests.quota(namespace, "a3-mega", 128)
    until_queue_is(kubernetes_lab, kubernetes_lab.api.create(local), "False")
    assert "a3-mega does not admit anything: ClusterQueueDoesNotExist" in lack(queue="a3-mega")


def test_values_that_are_unset_or_of_a_wrong_form(lack: Callable[..., str]) -> None:
    def of(**values: str) -> str:
        return lack(recipes={"llama3_gke": {"values": values}})

    assert "(recipes.llama3_gke.values.bucket) is not set" in of(image="a/b:c")
    assert "'a b' is not of the form" in of(image="a b", bucket="lab-bucket")


def test_a_cluster_that_is_too_small(lack: Callable[..., str]) -> None:
    rack = {"cloud.provider.com/topology-rack": "rack-00", "cloud.google.com/gke-nodepool": "a3mega-pool"}
    said = lack("70b-fp8-256gpus", node_selector=rack)
    assert "32 nodes of 8 allocatable nvidia.com/gpu are needed, the cluster has 16 with" in said
    assert "max_gpus: 128" in said
