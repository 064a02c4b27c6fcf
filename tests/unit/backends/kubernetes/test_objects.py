"""What a site file says of nodes and pods ends in every pod of a job, beside what the manifest has."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from fixtures.backends.kubernetes.objects import bound_pods, keep_off
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
    keep_off(template, ["node-1"])
    spec = template["spec"]
    assert spec["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists"},
        {"operator": "Equal", **SKU},
        {"operator": "Exists"},
    ]
    assert spec["serviceAccountName"] == "trainer"
    (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert [(one["key"], one["operator"], one["values"]) for one in term["matchExpressions"]] == [
        ("zone", "In", ["a", "b"]),
        ("kubernetes.io/hostname", "NotIn", ["node-1"]),
    ]


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
