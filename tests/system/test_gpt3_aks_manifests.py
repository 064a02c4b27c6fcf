"""A real API server, with the training operator's own rules, takes what the recipe makes; dry runs, but for one case."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from plugins.logs.formats import read
from plugins.record.baseline import Statistic
from tests.lab.k8s import manifests
from tests.lab.k8s.api import ApiError, collection
from tests.lab.k8s.cluster import KubernetesLab
from tests.system.support import until
from tests.unit import aks
from tests.unit.examples import problems

# Each kind of document: one node and several, the variants, the smallest and the largest job. tests/unit makes those of all cases.
IDS = [
    *(aks.QUICK, "13b-fp16-8gpus", "13b-checkpoint-fp16-8gpus"),
    *("175b-fp16-512gpus", "175b-sharp-fp16-512gpus", "175b-checkpoint-fp16-512gpus"),
]
JOBS = "/apis/kubeflow.org/v1/namespaces/{}/pytorchjobs/{}"


@pytest.fixture(scope="module")
def namespace(kubernetes_lab: KubernetesLab) -> Iterator[str]:
    """One of this module's own, with the storage that the recipe wants made beforehand."""
    name = kubernetes_lab.namespace(f"test-{secrets.token_hex(3)}")
    for document in manifests.claim(name, manifests.CLAIM):
        kubernetes_lab.api.create(document)
    yield name
    kubernetes_lab.clear(name)


def try_out(lab: KubernetesLab, document: dict[str, Any]) -> dict[str, Any]:
    """What the API server would make of it; ApiError where it refuses it or does not know a field."""
    path = f"{collection(document)}?dryRun=All&fieldValidation=Strict"
    made: dict[str, Any] = json.loads(lab.api.request("POST", path, document))
    return made


def pod_of(found: list[aks.Document], role: str, namespace: str) -> aks.Document:
    """The pod that the operator makes of a replica, which is where Kubernetes looks into it."""
    replica = found[1]["spec"]["pytorchReplicaSpecs"][role]
    spec = {**replica["template"]["spec"], "restartPolicy": replica["restartPolicy"]}
    metadata = {"name": f"job-{role.lower()}-0", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize("case_id", IDS)
def test_a_case_is_taken_as_it_is(kubernetes_lab: KubernetesLab, namespace: str, case_id: str) -> None:
    found = aks.made(case_id, name="j" * 40, namespace=namespace)
    files, job = found
    assert try_out(kubernetes_lab, files)["data"] == files["data"]
    assert try_out(kubernetes_lab, job)["spec"] == job["spec"]
    for role in aks.pods(found):
        try_out(kubernetes_lab, pod_of(found, role, namespace))


def test_kubectl_could_apply_the_file_as_it_stands(kubernetes_lab: KubernetesLab, namespace: str) -> None:
    found = aks.untouched()
    for document in found:
        # As `kubectl -n` does.
        document["metadata"]["namespace"] = namespace
        try_out(kubernetes_lab, document)
    for role in ("Master", "Worker"):
        try_out(kubernetes_lab, pod_of(found, role, namespace))


@pytest.mark.parametrize(
    ("place", "wrong", "said"),
    [
        # The chart has it here, where the API server drops it unless it is asked to be strict.
        ("job", {"ttlSecondsAfterFinished": 3600}, r'unknown field "spec\.ttlSecondsAfterFinished"'),
        ("replica", {"restartPolcy": "Never"}, r"unknown field .*Master\.restartPolcy"),
        ("pod", {"hostNetwrok": True}, r"unknown field .*template\.spec\.hostNetwrok"),
        ("container", {"imagePulPolicy": "Always"}, r"unknown field .*containers\[0\]\.imagePulPolicy"),
        ("container", {"name": "megatron"}, r"pytorch"),
        ("replica", {"replicas": 2}, r"Master"),
    ],
)
def test_a_misspelled_field_is_refused(
    kubernetes_lab: KubernetesLab, namespace: str, place: str, wrong: dict[str, Any], said: str
) -> None:
    found = aks.made(namespace=namespace)
    master = found[1]["spec"]["pytorchReplicaSpecs"]["Master"]
    pod = master["template"]["spec"]
    where = {"job": found[1]["spec"], "replica": master, "pod": pod, "container": pod["containers"][0]}
    where[place].update(wrong)
    with pytest.raises(ApiError, match=said):
        try_out(kubernetes_lab, found[1])


def test_a_volume_that_is_not_there_is_refused(kubernetes_lab: KubernetesLab, namespace: str) -> None:
    found = aks.made()
    aks.pods(found)["Master"]["spec"]["volumes"].pop()
    with pytest.raises(ApiError, match=r'volumeMounts\[2\]\.name: Not found: "training-scripts"'):
        try_out(kubernetes_lab, pod_of(found, "Master", namespace))


@pytest.mark.parametrize(
    ("case_id", "last"), [(aks.QUICK, "gpt-worker-0"), ("13b-fp16-8gpus", "gpt-master-0")]
)
@pytest.mark.parametrize("throughput", ["0", "1"])
def test_a_case_runs_and_its_log_is_valid(
    kubernetes_lab: KubernetesLab, case_id: str, last: str, throughput: str
) -> None:
    namespace = kubernetes_lab.namespace(f"test-{secrets.token_hex(3)}", real_step=0)
    try:
        found = aks.made(case_id, name="gpt", namespace=namespace)
        for role in aks.pods(found):
            entry = next(e for e in aks.container(found, role)["env"] if e["name"] == "LOG_THROUGHPUT")
            entry["value"] = throughput
        for document in [*manifests.claim(namespace, manifests.CLAIM), *found]:
            kubernetes_lab.api.create(document)
        place = JOBS.format(namespace, "gpt")

        def ended() -> set[str]:
            conditions = kubernetes_lab.api.get(place).get("status", {}).get("conditions", [])
            return {c["type"] for c in conditions if c["status"] == "True"} & {"Succeeded", "Failed"}

        until(lambda: bool(ended()), "the PyTorchJob ended")
        assert ended() == {"Succeeded"}
        pods = kubernetes_lab.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
        case = aks.case(case_id)
        assert len(pods) == case.nodes(8)
        logs = {
            name: kubernetes_lab.read_log(namespace, name, container="pytorch")
            for name in (pod["metadata"]["name"] for pod in pods)
        }
        # Megatron prints from its last rank, which is in the pod whose name sorts last.
        assert [name for name, log in logs.items() if b"iteration " in log] == [last]
        log = read("megatron_lm", iter([logs[last]]))
        assert problems(case, log, Statistic.parse("mean:50-99")) == []
        assert [step.index for step in log.steps] == list(range(9, 100, 10))
        assert log.steps[0].skipped_iterations == 10
        assert (log.steps[-1].tflops_per_gpu is not None) is (throughput == "1")
    finally:
        kubernetes_lab.clear(namespace)
