"""Which nodes can take a job's pods, and why a cluster is too small. Nodes and pods as the API server has them."""

from __future__ import annotations

from typing import Any

import pytest

from fixtures.backends.kubernetes import capacity
from fixtures.backends.kubernetes.api import Refused
from fixtures.backends.kubernetes.capacity import Want
from fixtures.backends.kubernetes.section import Kubernetes
from tests.unit import examples

Object = dict[str, Any]
BOTH = {"nvidia.com/gpu": "8", "rdma/ib": "8"}
SKU = {"key": "sku", "value": "gpu", "effect": "NoSchedule"}
"""As AKS advises to taint its pools of GPUs."""


def node(name: str, *taints: Object, ready: str = "True", **resources: str) -> Object:
    there = {"cpu": "96", "pods": "110", **BOTH, **{key.replace("_", "/"): n for key, n in resources.items()}}
    return {
        "metadata": {"name": name},
        "spec": {"taints": list(taints)},
        "status": {
            "capacity": there,
            "allocatable": there,
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }


def template(*tolerations: Object, **resources: Any) -> Object:
    asked = resources or {"limits": {**BOTH, "cpu": "90"}, "requests": BOTH}
    container = {"name": "pytorch", "resources": asked}
    return {"spec": {"containers": [container], "tolerations": list(tolerations)}}


class Cluster:
    """Stands in for `Api`. Without `pods` this user may see those of no other namespace."""

    def __init__(self, *there: Object, pods: list[Object] | None = None) -> None:
        self.there = there
        self.pods = pods
        self.asked: list[tuple[str, dict[str, str]]] = []

    def get(self, path: str, **query: str) -> Any:
        self.asked.append((path, query))
        if path == "/api/v1/nodes":
            return {"items": list(self.there)}
        if self.pods is None:
            raise Refused(403, "pods is forbidden")
        return {"items": self.pods}


def said(cluster: Cluster, made: Object | None = None, **keys: Any) -> list[str]:
    """Of a case of two nodes."""
    case, section = examples.case("8b-bf16-16gpus"), Kubernetes(gpu="h100", **keys)
    return list(capacity.lacks(cluster, section, case, [made or template()] * 2))  # type: ignore[arg-type]


def test_enough_nodes_are_enough_whoever_uses_them() -> None:
    cluster = Cluster(node("a"), node("b"))
    assert said(cluster) == []
    assert cluster.asked == [("/api/v1/nodes", {})]


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
    (lack,) = said(Cluster(node("a"), other))
    assert "2 nodes of 8 allocatable nvidia.com/gpu and 8 allocatable rdma/ib are needed" in lack
    assert f"the cluster has 1 ({why})\n    mend: " in lack
    assert lack.endswith("or set `max_gpus: 8`")
    tolerations = "`tolerations: [{key: sku, operator: Exists, effect: NoSchedule}]` in the site file"
    assert (tolerations in lack) == ("taint sku" in why)


def test_a_pool_at_zero_is_for_an_autoscaler_and_no_limit_of_zero_is_advised() -> None:
    (lack,) = said(Cluster(), node_selector={})
    assert "the cluster has 0\n" in lack
    assert "set `autoscaled: true`" in lack
    assert "max_gpus" not in lack
    cluster = Cluster()
    assert said(cluster, autoscaled=True) == []
    assert cluster.asked == []


def test_of_too_few_nodes_those_are_told_that_are_free() -> None:
    taken = {"containers": template()["spec"]["containers"], "nodeName": "a"}
    waits = {"containers": template()["spec"]["containers"]}
    cluster = Cluster(node("a"), pods=[{"spec": taken}, {"spec": waits}])
    (lack,) = said(cluster)
    assert "the cluster has 1, 0 of them free\n" in lack
    assert cluster.asked[1][1] == {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}


@pytest.mark.parametrize(
    "toleration",
    [
        {"operator": "Exists"},
        {"key": "sku", "operator": "Exists"},
        {"key": "sku", "value": "gpu"},
        {"key": "sku", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"},
    ],
)
def test_a_taint_that_is_tolerated_keeps_nobody_off(toleration: Object) -> None:
    assert said(Cluster(node("a", SKU), node("b", SKU)), template(toleration)) == []


@pytest.mark.parametrize(
    "toleration",
    [
        {"key": "sku", "value": "cpu"},
        {"key": "other", "operator": "Exists"},
        {"key": "sku", "operator": "Exists", "effect": "NoExecute"},
        {"operator": "Equal", "value": "gpu"},
    ],
)
def test_a_taint_that_is_not_tolerated_is_told(toleration: Object) -> None:
    assert "with the taint sku=gpu:NoSchedule" in said(Cluster(node("a", SKU)), template(toleration))[0]


def test_a_taint_that_admission_may_tolerate_or_that_passes_is_no_lack() -> None:
    """GKE's ExtendedResourceToleration; and what a node has while it comes up."""
    gpu = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    coming = {"key": "node.cilium.io/agent-not-ready", "effect": "NoExecute"}
    soft = {**SKU, "effect": "PreferNoSchedule"}
    assert said(Cluster(node("a", gpu, coming), node("b", gpu, soft))) == []


def test_with_a_queue_a_taint_is_for_its_flavors_to_tolerate() -> None:
    """Kueue adds the tolerations of a ResourceFlavor to the pods that it admits."""
    assert said(Cluster(node("a", SKU), node("b", SKU)), queue="gpus") == []
    assert "1 not ready" in said(Cluster(node("a", SKU), node("b", SKU, ready="False")), queue="gpus")[0]


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
