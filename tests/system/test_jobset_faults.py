"""The way to the API server, and what a site lacks: broken at every moment; nothing is concluded about any job."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab.k8s.cluster import KubernetesLab
from tests.lab.k8s.gate import BREAK, CUT, HOLD, LOSE, Gate
from tests.system.kube import CASE, nothing_is_left, user
from tests.system.kube_trial import KubeTrial, MakeTrial
from tests.system.support import GUARD, until

TOO_MANY = "429 Too Many Requests\r\nRetry-After: 1"
# Not the dry runs of the check.
REVIEWS, JOBSETS, MAPS = (
    "POST .*/selfsubjectaccessreviews",
    r"POST .*/jobsets\?field",
    r"POST .*/configmaps\?field",
)
LOG = "GET .*/log"
PATIENT = ("-p", "tests.system.bounds")


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
    trial.until_steps(5)
    crashing.signal("kube-apiserver", signal.SIGKILL)
    trial.until_said("cannot be asked, will go on trying")
    crashing.start_api()
    trial.let_go()
    assert "answers again" in passed(trial)


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
