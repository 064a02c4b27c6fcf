"""What a site file says of nodes and pods ends in every pod of a job, beside what the manifest has."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from fixtures.backends.kubernetes.objects import bound_pods, choose_nodes
from fixtures.backends.kubernetes.section import Kubernetes
from tests.unit import aks, gke

SKU = {"key": "sku", "value": "gpu", "effect": "NoSchedule"}


def test_a_sites_nodes_and_account_are_in_every_pod() -> None:
    section = Kubernetes.model_validate(
        {
            "gpu": "h100",
            "tolerations": [SKU, {"operator": "Exists"}],
            "node_affinity": {"zone": ["a", "b"]},
            "service_account": "trainer",
        }
    )
    template: dict[str, Any] = {"spec": {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}}
    bound_pods(template, section)
    spec = template["spec"]
    assert spec["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists"},
        {"operator": "Equal", **SKU},
        {"operator": "Exists"},
    ]
    assert spec["serviceAccountName"] == "trainer"
    assert terms(template) == [{"matchExpressions": ["zone In a b"]}]


def terms(template: dict[str, Any]) -> list[dict[str, list[str]]]:
    """What is required of a node: any of these terms, all requirements of it."""
    required = template["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return [
        {
            kind: [" ".join((each["key"], each["operator"], *each["values"])) for each in requirements]
            for kind, requirements in term.items()
        }
        for term in required["nodeSelectorTerms"]
    ]


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


def test_an_rdma_resource_of_another_name_takes_the_place_of_the_published_one() -> None:
    resources = aks.container(aks.made(rdma="rdma/shared_ib", rdma_count="1"))["resources"]
    assert resources["limits"] == resources["requests"] == {"nvidia.com/gpu": 8, "rdma/shared_ib": "1"}
    assert aks.container(aks.made())["resources"]["limits"] == {"nvidia.com/gpu": 8, "rdma/ib": 8}


def test_images_of_tcpxo_and_the_time_of_dws_are_the_sites() -> None:
    values = {"tcpxo_plugin": "mine/plugin:1", "tcpxo_daemon": "mine/daemon:1", "dws_seconds": "3600"}
    found = gke.made(queue="dws", **values)
    pod = gke.job(found)["template"]["spec"]
    images = {one["name"]: one["image"] for one in pod["initContainers"]}
    assert (images["nccl-plugin-installer"], images["tcpxo-daemon"]) == ("mine/plugin:1", "mine/daemon:1")
    annotations = next(one for one in found if one["kind"] == "JobSet")["metadata"]["annotations"]
    assert annotations["provreq.kueue.x-k8s.io/maxRunDurationSeconds"] == "3600"
