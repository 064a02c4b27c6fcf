"""Jobs on given nodes: one pod on each of them, whatever else is required of nodes, and which leaf each node is on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from fixtures.backends.kubernetes.backend import KubernetesBackend
from fixtures.backends.kubernetes.jobset import JobSets
from fixtures.backends.kubernetes.objects import LONGEST_NAME, object_name
from fixtures.backends.kubernetes.pytorchjob import PyTorchJobs
from fixtures.backends.kubernetes.section import Kubernetes
from plugins.base.yaml_text import Loader
from plugins.recipes.cases import Case
from plugins.recipes.expansion import load_recipe
from plugins.record.job import JobRef
from tests.unit.examples import ROOT

RECIPE = load_recipe(ROOT / "suites" / "proxy")
NAME = "pacemark-20261121-094226-2019c4a7.gpt3_aks-13b-fp16-16gpus-isolate2x1.1-a+b"


def case(case_id: str = "8b-8l-bf16-8gpus") -> Case:
    found = RECIPE.case(case_id)
    assert found is not None
    return found


def pair() -> Case:
    """As an isolation makes it."""
    return replace(case(), gpus=16, gbs=2 * case().gbs, one_node=False)


def backend(**keys: Any) -> KubernetesBackend:
    section = Kubernetes.model_validate({"gpu": "h100", "namespace": "benchmarks", **keys})
    return KubernetesBackend("lab", section, [RECIPE], PyTorchJobs(), JobSets())


def planned(made: KubernetesBackend, case: Case) -> dict[str, Any]:
    """The job that is made of a case."""
    documents = list(yaml.load_all(made.plan(case, NAME), Loader))
    job: dict[str, Any] = documents[1]
    return job


def replicas(job: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The pod's spec of each kind of replica."""
    return {role: each["template"]["spec"] for role, each in job["spec"]["pytorchReplicaSpecs"].items()}


def test_a_pair_has_a_pod_with_all_gpus_on_each_of_its_nodes_and_never_two_on_one() -> None:
    job = planned(backend(node_affinity={"zone": ["z"]}).on_nodes("a,b"), pair())
    pods = replicas(job)
    assert pods.keys() == {"Master", "Worker"}
    for spec in pods.values():
        (container,) = spec["containers"]
        assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}
        assert container["args"][-2:] == ["--nodes", "2"]
        assert container["args"][container["args"].index("--gpus") + 1] == "16"
        (apart,) = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert apart == {
            "labelSelector": {"matchLabels": {"training.kubeflow.org/job-name": job["metadata"]["name"]}},
            "topologyKey": "kubernetes.io/hostname",
        }
        required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        zone = [{"key": "zone", "operator": "In", "values": ["z"]}]
        assert required["nodeSelectorTerms"] == [
            {
                "matchExpressions": zone,
                "matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}],
            }
            for node in "ab"
        ]


def test_a_probe_of_one_node_has_one_pod_there() -> None:
    pods = replicas(planned(backend().on_nodes("a"), case()))
    assert pods.keys() == {"Master"}
    assert "--nodes" not in pods["Master"]["containers"][0]["args"]
    assert pods["Master"]["affinity"].keys() == {"nodeAffinity"}


def test_a_case_of_the_proxy_has_one_pod_with_its_own_gpus_anywhere() -> None:
    pods = replicas(planned(backend(), case("8b-8l-bf16-2gpus")))
    assert pods.keys() == {"Master"}
    assert pods["Master"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": 2}
    assert "affinity" not in pods["Master"]
    tiny = replicas(planned(backend(), case("tiny-fp32-1gpus")))
    assert tiny["Master"]["containers"][0]["resources"]["limits"] == {}


def test_a_job_that_probes_is_looked_for_by_the_name_that_it_was_made_with() -> None:
    """What is submitted is a case of the proxy; what the log of jobs knows is a mode of the slow case."""
    ref = JobRef.of_probe("proxy", "gpt3_aks/13b-fp16-16gpus", "isolate2x1.1-a+b", NAME)
    name = object_name(NAME, ref.case_id)
    assert name == planned(backend().on_nodes("a,b"), pair())["metadata"]["name"]
    assert name != object_name(NAME.replace("2x1.1", "3x1.1"), ref.case_id)
    assert len(name) <= LONGEST_NAME


def test_a_case_that_runs_once_more_is_looked_for_by_the_name_of_the_case() -> None:
    name = "pacemark-20261121-094226-2019c4a7.gpt3_aks-13b-fp16-16gpus-proof"
    assert object_name(name, "13b-fp16-16gpus/proof") == object_name(name, "13b-fp16-16gpus")


RACK = {"cloud.google.com/gce-topology-subblock": "rack-1"}
SWITCH = {"network.topology.nvidia.com/leaf": "switch-1"}


@pytest.mark.parametrize(
    ("labels", "leaves"),
    [
        ({"a": RACK, "b": RACK}, {"a": "rack-1", "b": "rack-1"}),
        ({"a": {**RACK, **SWITCH}, "b": SWITCH}, {"a": "switch-1", "b": "switch-1"}),
        ({"a": RACK, "b": {}}, {"a": "rack-1"}),
        ({"a": {}, "b": {}}, {}),
        (None, {}),
    ],
)
def test_the_leaf_of_a_node_is_told_by_one_label(
    monkeypatch: pytest.MonkeyPatch, labels: dict[str, dict[str, str]] | None, leaves: dict[str, str]
) -> None:
    """That of most nodes, since two labels name a switch in two ways; none if the user may not list nodes."""
    nodes = labels and [{"metadata": {"name": name, "labels": each}} for name, each in labels.items()]
    asked: list[dict[str, str]] = []

    def allowed(api: object, path: str, **query: str) -> object:
        asked.append({"path": path, **query})
        return nodes

    monkeypatch.setattr("fixtures.backends.kubernetes.capacity.allowed", allowed)
    assert backend(node_selector={"pool": "gpu"}).leaves() == leaves
    assert asked == [{"path": "/api/v1/nodes", "labelSelector": "pool=gpu"}]
