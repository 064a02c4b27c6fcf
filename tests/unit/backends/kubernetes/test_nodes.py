"""Which nodes can take a job's pods, why a cluster or a quota is too small, and what a site says of nodes and pods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from fixtures.backends.base import Findings
from fixtures.backends.kubernetes import capacity, readiness
from fixtures.backends.kubernetes.api import Refused
from fixtures.backends.kubernetes.backend import KubernetesBackend
from fixtures.backends.kubernetes.capacity import Want
from fixtures.backends.kubernetes.jobset import JobSets
from fixtures.backends.kubernetes.objects import LONGEST_NAME, bound_pods, choose_nodes, object_name
from fixtures.backends.kubernetes.pytorchjob import PyTorchJobs
from fixtures.backends.kubernetes.section import Kubernetes
from plugins.base.yaml_text import Loader
from plugins.recipes.cases import Case
from plugins.recipes.expansion import load_recipe
from plugins.record.job import JobRef
from tests.unit import examples
from tests.unit.examples import ROOT
from tests.unit.kubeapi import BOTH, SKU, Memory, Object, node


def template(*tolerations: Object, **resources: Any) -> Object:
    asked = resources or {"limits": {**BOTH, "cpu": "90"}, "requests": BOTH}
    container = {"name": "pytorch", "resources": asked}
    return {"spec": {"containers": [container], "tolerations": list(tolerations)}}


NODES, PODS = "/api/v1/nodes", "/api/v1/pods"


def cluster(*nodes: Object, pods: Sequence[Object] | None = None) -> Memory:
    """Without `pods` this user may see those of no other namespace."""
    made = Memory()
    made.objects = {f"{NODES}/{item['metadata']['name']}": item for item in nodes}
    made.objects |= {f"{PODS}/{number}": {"metadata": {}, **pod} for number, pod in enumerate(pods or ())}
    if pods is None:
        made.refuse("LIST", PODS, Refused(403, "pods is forbidden"))
    return made


def lacks(memory: Memory, pod: Object | None = None, **site: Any) -> list[str]:
    """What a case of two nodes lacks."""
    case, section = examples.case("8b-bf16-16gpus"), Kubernetes(gpu="h100", **site)
    return list(capacity.lacks(memory, section, case, [pod or template()] * 2))  # type: ignore[arg-type]


def test_enough_nodes_are_enough_whoever_uses_them() -> None:
    memory = cluster(node("a"), node("b"))
    assert lacks(memory) == []
    assert memory.asked == [("LIST", NODES)]


def test_a_pool_at_zero_is_for_an_autoscaler_and_no_limit_of_zero_is_advised() -> None:
    (lack,) = lacks(cluster(), node_selector={})
    assert "the cluster has 0\n" in lack
    assert "set `autoscaled: true`" in lack
    assert "max_gpus" not in lack
    memory = cluster()
    assert lacks(memory, autoscaled=True) == []
    assert memory.asked == []


def test_of_too_few_nodes_those_are_told_that_are_free() -> None:
    containers = template()["spec"]["containers"]
    pods = [{"spec": {"containers": containers, "nodeName": "a"}}, {"spec": {"containers": containers}}]
    memory = cluster(node("a"), pods=pods)
    (lack,) = lacks(memory)
    assert "the cluster has 1, 0 of them free\n" in lack
    assert memory.queries[1] == {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (node("b", rdma_ib="0"), "1 with too little rdma/ib"),
        (node("b", **{"nvidia.com_gpu": "7"}), "1 with too little nvidia.com/gpu"),
        (node("b", SKU), "1 with the taint sku=gpu:NoSchedule, which the job does not tolerate"),
        (node("b", ready="Unknown"), "1 not ready"),
        ({**node("b"), "spec": {"unschedulable": True}}, "1 cordoned"),
    ],
)
def test_a_node_that_can_never_take_the_pod_is_not_counted_and_says_why(other: Object, why: str) -> None:
    (lack,) = lacks(cluster(node("a"), other))
    assert "2 nodes of 8 allocatable nvidia.com/gpu and 8 allocatable rdma/ib are needed" in lack
    assert f"the cluster has 1 ({why})\n    mend: " in lack
    assert lack.endswith("or set `max_gpus: 8`")
    tolerations = "`tolerations: [{key: sku, operator: Exists, effect: NoSchedule}]` in the site file"
    assert (tolerations in lack) == ("taint sku" in why)


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"key": "sku", "operator": "Exists"}, True),
        ({"key": "sku", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}, True),
        ({"key": "sku", "value": "cpu"}, False),
        ({"key": "sku", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"operator": "Equal", "value": "gpu"}, False),
    ],
)
def test_a_taint_that_is_not_tolerated_is_told(toleration: Object, tolerated: bool) -> None:
    found = lacks(cluster(node("a", SKU), node("b", SKU)), template(toleration))
    assert ["with the taint sku=gpu:NoSchedule" in lack for lack in found] == ([] if tolerated else [True])


def test_a_taint_that_admission_may_tolerate_or_that_passes_is_no_lack() -> None:
    """GKE's ExtendedResourceToleration; and what a node has while it comes up."""
    gpu = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    coming = {"key": "node.cilium.io/agent-not-ready", "effect": "NoExecute"}
    soft = {**SKU, "effect": "PreferNoSchedule"}
    assert lacks(cluster(node("a", gpu, coming), node("b", gpu, soft))) == []


def test_with_a_queue_a_taint_is_for_its_flavors_to_tolerate() -> None:
    """Kueue adds the tolerations of a ResourceFlavor to the pods that it admits."""
    assert lacks(cluster(node("a", SKU), node("b", SKU)), queue="gpus") == []
    assert "1 not ready" in lacks(cluster(node("a", SKU), node("b", SKU, ready="False")), queue="gpus")[0]


def test_sidecars_count_beside_the_containers_and_other_init_containers_before_them() -> None:
    spec = {
        "containers": [{"resources": {"limits": {"nvidia.com/gpu": 8}}}, {}],
        "initContainers": [
            {"restartPolicy": "Always", "resources": {"limits": {"rdma/ib": "1"}}},
            {"resources": {"limits": {"nvidia.com/gpu": "2", "rdma/ib": "4", "cpu": "1"}}},
        ],
    }
    assert Want.of(spec).resources == {"nvidia.com/gpu": 8, "rdma/ib": 4}


def test_a_taint_is_why_pods_find_no_node_only_where_they_would_fit_without_it() -> None:
    want = Want.of(template()["spec"])
    coming = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    assert capacity.kept_off([node("a"), node("b", SKU)], want, 2) == "sku=gpu:NoSchedule"
    # Enough without it, though they are taken or not ready now; too few with it; and one that passes.
    assert capacity.kept_off([node("a"), node("b", ready="False"), node("c", SKU)], want, 2) == ""
    assert capacity.kept_off([node("b", SKU)], want, 2) == ""
    assert capacity.kept_off([node("a", coming), node("b", coming)], want, 2) == ""
    # AKS drains a node for an event of its host, or repairs it.
    repaired = {"key": "remediator.kubernetes.azure.com/unschedulable", "effect": "NoSchedule"}
    assert capacity.kept_off([node("a"), node("b", repaired)], want, 2) == ""


# Quotas of a namespace, as the API server has them (core/v1, ResourceQuotaSpec)


POD = {"spec": {"containers": [{"name": "t", "resources": {"limits": {"nvidia.com/gpu": 8, "cpu": 90}}}]}}
NEEDS = {f"of-{pods}": readiness.needs_of([POD, POD], pods) for pods in (16, 8, 2)}
QUOTAS = "/api/v1/namespaces/default/resourcequotas"
TOO_LITTLE = "of the quota team in namespace default: too little for of-16"


def quota(hard: dict[str, str], **spec: Any) -> Object:
    spec, status = {"hard": hard, **spec}, {"hard": hard, "used": {}}
    return {"metadata": {"name": "team"}, "spec": spec, "status": status}


def refusals(*quotas: Object, refused: bool = False) -> Findings:
    memory = Memory()
    memory.objects = {f"{QUOTAS}/{number}": item for number, item in enumerate(quotas)}
    memory.refuse("LIST", QUOTAS, Refused(403, "resourcequotas is forbidden") if refused else None)
    return readiness.refusals(memory, Kubernetes(gpu="h100"), NEEDS)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("hard", "words"),
    [


        ({"count/pods": "10"}, f"count/pods: 10 {TOO_LITTLE} (16)\n"),

        ({"pods": "1k"}, ""),
        ({"requests.cpu": "1", "limits.memory": "1Gi"}, ""),
    ],
)  # fmt: skip
def test_a_quota_that_is_too_small_is_told_with_the_cases(hard: dict[str, str], words: str) -> None:
    for quotas in ([quota(hard)], [quota({"pods": "100"}), quota(hard)]):
        found = refusals(*quotas)
        assert "".join(found.missing).startswith(words)
        assert (bool(found.missing), bool(found.ready)) == (bool(words), not words)


def test_what_is_not_compared_is_said() -> None:
    (remark,) = refusals(quota({"pods": "1"}, scopeSelector={"matchExpressions": []})).remarks
    assert remark == "the quota team is for some pods only (scopes), and is not compared with the cases"
    (remark,) = refusals(refused=True).remarks
    assert remark == "not compared with the quotas of namespace default, which this user may not list"


# What a site says of nodes and pods


def test_a_sites_nodes_and_account_are_in_every_pod() -> None:
    gpus = {"key": "nvidia.com/gpu", "operator": "Exists"}
    site = {"tolerations": [SKU, {"operator": "Exists"}], "node_affinity": {"zone": ["a", "b"]}}
    section = Kubernetes.model_validate({"gpu": "h100", "service_account": "trainer", **site})
    template: dict[str, Any] = {"spec": {"tolerations": [gpus]}}
    bound_pods(template, section)
    spec = template["spec"]
    assert spec["tolerations"] == [gpus, {"operator": "Equal", **SKU}, {"operator": "Exists"}]
    assert spec["serviceAccountName"] == "trainer"
    assert terms(template) == [{"matchExpressions": ["zone In a b"]}]


def terms(template: dict[str, Any]) -> list[dict[str, list[str]]]:
    """What is required of a node: any of these terms, all requirements of it."""

    def words(requirements: list[Object]) -> list[str]:
        return [" ".join((each["key"], each["operator"], *each["values"])) for each in requirements]

    required = template["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return [{kind: words(term[kind]) for kind in term} for term in required["nodeSelectorTerms"]]


def pods_of_zones(*zones: str) -> dict[str, Any]:
    """A template whose pods run in any of these zones."""
    named = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} for zone in zones]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": named}}
    return {"spec": {"affinity": {"nodeAffinity": required, "podAffinity": {}}}}


def test_nodes_are_chosen_and_excluded_by_their_names() -> None:
    """A requirement of a name takes one name, and the terms are alternatives."""
    template: dict[str, Any] = {"spec": {}}
    choose_nodes(template, (), ())
    assert template == {"spec": {}}
    choose_nodes(template, ("a", "b"), ("c", "d"))
    away = ["metadata.name NotIn c", "metadata.name NotIn d"]
    assert terms(template) == [{"matchFields": [f"metadata.name In {node}", *away]} for node in "ab"]


def test_what_a_manifest_requires_of_nodes_stays_required() -> None:
    template = pods_of_zones("x", "y")
    choose_nodes(template, ("a", "b"), ())
    assert terms(template) == [
        {"matchExpressions": [f"zone In {zone}"], "matchFields": [f"metadata.name In {node}"]}
        for zone in "xy"
        for node in "ab"
    ]
    assert template["spec"]["affinity"]["podAffinity"] == {}
    template = pods_of_zones("x")
    choose_nodes(template, (), ("c",))
    assert terms(template) == [{"matchExpressions": ["zone In x"], "matchFields": ["metadata.name NotIn c"]}]


@pytest.mark.parametrize(
    "wrong",
    [
        {"tolerations": [{"key": "sku", "effect": "noschedule"}]},
        {"tolerations": [{"kee": "sku"}]},
        {"node_affinity": {"zone": []}},
        {"service_account": "not a name"},
    ],
)
def test_a_mistake_there_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Kubernetes.model_validate({"gpu": "h100", **wrong})


# Jobs on given nodes


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
        labels = {"training.kubeflow.org/job-name": job["metadata"]["name"]}
        assert apart == {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
        assert terms({"spec": spec}) == [
            {"matchExpressions": ["zone In z"], "matchFields": [f"metadata.name In {name}"]} for name in "ab"
        ]


def test_a_probe_of_one_node_has_one_pod_there() -> None:
    pods = replicas(planned(backend().on_nodes("a"), case()))
    assert pods.keys() == {"Master"}
    assert "--nodes" not in pods["Master"]["containers"][0]["args"]
    assert pods["Master"]["affinity"].keys() == {"nodeAffinity"}


def test_a_job_that_probes_is_looked_for_by_the_name_that_it_was_made_with() -> None:
    """What is submitted is a case of the proxy; what the log of jobs knows is a mode of the slow case."""
    ref = JobRef.of_probe("proxy", "gpt3_aks/13b-fp16-16gpus", "isolate2x1.1-a+b", NAME)
    name = object_name(NAME, ref.case_id)
    assert name == planned(backend().on_nodes("a,b"), pair())["metadata"]["name"]
    assert name != object_name(NAME.replace("2x1.1", "3x1.1"), ref.case_id)
    assert len(name) <= LONGEST_NAME


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
    memory = Memory()
    memory.objects[f"{NODES}/other"] = {"metadata": {"name": "other", "labels": SWITCH}}
    for name, each in (labels or {}).items():
        memory.objects[f"{NODES}/{name}"] = {"metadata": {"name": name, "labels": {**each, "pool": "gpu"}}}
    memory.refuse("LIST", NODES, Refused(403, "nodes is forbidden") if labels is None else None)
    monkeypatch.setattr("fixtures.backends.kubernetes.backend.Api", lambda *_: memory)
    assert backend(node_selector={"pool": "gpu"}).leaves() == leaves
