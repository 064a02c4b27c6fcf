"""A site file of what an API server tells: nodes as clouds label them, and what a user may not see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from fixtures.backends.draft import Draft
from fixtures.backends.kubernetes.credentials import contexts
from fixtures.backends.kubernetes.section import Kubernetes
from fixtures.backends.kubernetes.site_draft import Cluster, drafted, survey
from fixtures.site import load_site
from plugins.base.errors import ConfigError, Denied
from plugins.recipes.expansion import load_recipe
from tests.unit.kubeapi import kubeconfig

SUITES = Path(__file__).resolve().parents[4] / "suites"
RECIPES = [load_recipe(SUITES / name) for name in ("gpt3_aks", "llama3_gke", "llama3")]
KNOWN = {"h100", "h200", "b200", "gb200"}

Node = dict[str, Any]


def node(labels: dict[str, str], taints: tuple[dict[str, str], ...] = (), **resources: str) -> Node:
    others = {key.replace("__", "/"): n for key, n in resources.items()}
    offered = {"cpu": "96", "nvidia.com/gpu": "8", **others}
    return {
        "metadata": {"name": "n", "uid": "u", "labels": labels},
        "spec": {"taints": list(taints)},
        "status": {"allocatable": {key: n for key, n in offered.items() if n != "0"}},
    }


GPUS = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
SKU = {"key": "sku", "value": "gpu", "effect": "NoSchedule"}
POOL, PRODUCT = "cloud.google.com/gke-nodepool", "nvidia.com/gpu.product"


def gke(pool: str = "a3-mega", kind: str = "nvidia-h100-mega-80gb", **resources: str) -> Node:
    return node({POOL: pool, "cloud.google.com/gke-accelerator": kind}, (GPUS,), **resources)


def aks(pool: str = "gpu", kind: str = "Standard_ND96isr_H100_v5", **resources: str) -> Node:
    labels = {"agentpool": pool, "node.kubernetes.io/instance-type": kind}
    return node(labels, (SKU,), **{"rdma__ib": "8", **resources})


def system(cloud: str) -> Node:
    label = {"gke": POOL, "aks": "agentpool"}[cloud]
    return node({label: "system"}, (), **{"nvidia.com__gpu": "0"})


def named(*names: str, **spec: Any) -> list[dict[str, Any]]:
    return [{"metadata": {"name": name}, "spec": spec} for name in names]


def sections(**told: Any) -> tuple[dict[str, Any], dict[str, Draft]]:
    """The sections by what the server told, as the file has them, and their drafts."""
    usual: dict[str, Any] = {
        "site": Kubernetes(gpu="", context="ctx", namespace="runs"),
        "release": "v1.33.3-gke.1226000",
        "kinds": ("JobSet",),
        "trainer": False,
        "kueue": False,
        "nodes": [gke(), gke(), system("gke")],
        "namespaces": named("default", "runs"),
        "queues": [],
        "claims": named("data", accessModes=["ReadWriteMany"]),
        "classes": named("standard"),
    }
    drafts = drafted(Cluster(**{**usual, **told}), KNOWN, RECIPES)
    file = Draft()
    for name, draft in drafts.items():
        file.add(name, draft)
    return yaml.safe_load(file.text()) or {}, drafts


def asked(draft: Draft) -> list[str]:
    return [question.key.partition(".")[2] for question in draft.questions]


VALUES = [f"recipes.llama3_gke.values.{name}" for name in ("image", "bucket")]


USUAL = {"gpu": "h100", "gpus_per_node": 8, "context": "ctx", "namespace": "runs"}


def test_gke_with_jobset() -> None:
    found, drafts = sections()
    assert found == {"jobset": {**USUAL, "max_gpus": 16, "tolerations": [GPUS]}}
    # What no cluster knows is left to the user.
    assert asked(drafts["jobset"]) == VALUES


def test_aks_with_the_training_operator(tmp_path: Path) -> None:
    found, drafts = sections(
        kinds=("PyTorchJob",),
        nodes=[aks(), aks(), aks(), system("aks")],
        site=Kubernetes(gpu="", kubeconfig="~/.kube/aks", context="ctx", namespace="runs"),
    )
    claim = {"kubeconfig": "~/.kube/aks", "recipes": {"gpt3_aks": {"values": {"claim": "data"}}}}
    assert found == {"pytorchjob": {**USUAL, "max_gpus": 24, "tolerations": [SKU], **claim}}
    assert asked(drafts["pytorchjob"]) == []
    path = tmp_path / "site.yaml"
    path.write_text(yaml.safe_dump({"site": "x", **found}))
    assert load_site(path).section("pytorchjob") is not None


@pytest.mark.parametrize(
    ("kinds", "nodes", "expected"),
    [
        (("JobSet",), [aks()], ["pytorchjob"]),
        (("JobSet", "PyTorchJob"), [gke()], ["jobset"]),
        (("JobSet", "PyTorchJob"), [gke(), aks()], ["jobset", "pytorchjob"]),
        # GPU pools that an autoscaler has emptied: the other nodes tell the cloud.
        (("JobSet",), [system("gke")], ["jobset"]),
        (("JobSet",), [system("aks")], ["pytorchjob"]),
        # A user who may not see nodes.
        (("JobSet",), None, ["jobset", "pytorchjob"]),
        (("PyTorchJob",), None, ["pytorchjob"]),
        (("PyTorchJob",), [gke()], []),
        ((), [gke()], []),
    ],
)
def test_the_sections_follow_from_the_kinds_of_job_and_the_cloud(
    kinds: tuple[str, ...], nodes: list[Node] | None, expected: list[str]
) -> None:
    assert list(sections(kinds=kinds, nodes=nodes)[1]) == expected


def test_pools_of_the_same_gpus_are_all_used_and_others_left_out() -> None:
    small = gke("l4", "nvidia-l4", **{"nvidia.com__gpu": "1"})
    found, _ = sections(nodes=[gke("a"), gke("b"), small, system("gke")])
    assert found["jobset"]["node_affinity"] == {POOL: ["a", "b"]}
    assert found["jobset"]["max_gpus"] == 16
    found, _ = sections(nodes=[gke("a"), gke("l4", "nvidia-l4"), gke("l4", "nvidia-l4")])
    assert found["jobset"]["node_selector"] == {POOL: "a"}


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        ({"cloud.google.com/gke-accelerator": "nvidia-h200-141gb"}, "h200"),
        ({"cloud.google.com/gke-accelerator": "nvidia-gb200"}, "gb200"),
        ({PRODUCT: "NVIDIA-H100-80GB-HBM3"}, "h100"),
        # Other parts, and none that is known.
        ({"cloud.google.com/gke-accelerator": "nvidia-tesla-a100"}, None),
        ({"node.kubernetes.io/instance-type": "Standard_NC80adis_H100_v5"}, None),
        ({PRODUCT: "NVIDIA-H100-PCIe"}, None),
        ({PRODUCT: "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"}, None),
        ({}, None),
    ],
)
def test_the_type_of_gpu_is_told_by_labels_or_asked(labels: dict[str, str], kind: str | None) -> None:
    found, drafts = sections(nodes=[node({POOL: "x", **labels})])
    assert found["jobset"].get("gpu") == kind
    assert ("gpu" in asked(drafts["jobset"])) is (kind is None)


@pytest.mark.parametrize(
    ("resources", "expected", "questions"),
    [
        ({}, {}, []),
        ({"rdma__ib": "0", "rdma__shared_ib": "1k"}, {"rdma": "rdma/shared_ib", "rdma_count": "1"}, []),
        ({"rdma__ib": "0", "nvidia.com__rdma_hca": "8"}, {"rdma": "nvidia.com/rdma_hca", "rdma_count": "8"}, []),
        ({"rdma__ib": "0"}, {}, ["recipes.gpt3_aks.values.rdma"]),
    ],
)  # fmt: skip
def test_infiniband_goes_by_the_name_that_the_nodes_offer(
    resources: dict[str, str], expected: dict[str, str], questions: list[str]
) -> None:
    found, drafts = sections(nodes=[aks(**resources)])
    assert found["pytorchjob"]["recipes"]["gpt3_aks"]["values"] == {"claim": "data", **expected}
    assert asked(drafts["pytorchjob"]) == questions


@pytest.mark.parametrize(
    ("claims", "claim"),
    [
        (named("a", "shared-storage-pvc", accessModes=["ReadWriteMany"]), "shared-storage-pvc"),
        (named("b", "a", accessModes=["ReadWriteMany"]), "b"),
        (named("a", accessModes=["ReadWriteOnce"]), None),
        (named('"]} #', accessModes=["ReadWriteMany"]), None),
        ([], None),
        (None, None),
    ],
)
def test_the_claim_is_one_that_all_nodes_may_write_to(
    claims: list[dict[str, Any]] | None, claim: str | None
) -> None:
    found, drafts = sections(nodes=[aks()], claims=claims)
    values = found["pytorchjob"].get("recipes", {}).get("gpt3_aks", {}).get("values", {})
    assert values.get("claim") == claim
    assert asked(drafts["pytorchjob"]) == ([] if claim else ["recipes.gpt3_aks.values.claim"])


@pytest.mark.parametrize(
    ("kueue", "queues", "queue", "question"),
    [
        (False, [], None, False),
        (True, named("first", "second"), "first", False),
        (True, [], None, False),
        (True, None, None, True),
        (True, named("\x1b[2J", "good"), "good", False),
    ],
)
def test_a_queue_of_kueue(
    kueue: bool, queues: list[dict[str, Any]] | None, queue: str | None, question: bool
) -> None:
    found, drafts = sections(kueue=kueue, queues=queues)
    assert found["jobset"].get("queue") == queue
    assert ("queue" in asked(drafts["jobset"])) is question


def test_a_user_who_may_see_nothing_gets_a_file_of_questions() -> None:
    found, drafts = sections(kueue=True, nodes=None, namespaces=None, queues=None, claims=None, classes=None)
    assert found == {key: {"context": "ctx", "namespace": "runs"} for key in ("jobset", "pytorchjob")}
    assert asked(drafts["jobset"]) == ["gpu", "queue", *VALUES]
    assert asked(drafts["pytorchjob"]) == ["gpu", "queue", "recipes.gpt3_aks.values.claim"]


def test_taints_that_pass_by_themselves_and_values_that_no_key_takes_are_left_out() -> None:
    passing = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
    bare = {"key": "gpu", "effect": "NoSchedule"}
    labels, long = {POOL: "x", PRODUCT: "\x1b[2J" * 1000}, {**bare, "key": "x" * 999}
    found, _ = sections(nodes=[node(labels, (passing, bare)), node(labels, (bare, long))])
    assert found["jobset"]["tolerations"] == [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]


# The kubeconfig


def test_the_contexts_of_a_kubeconfig(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", "https://127.0.0.1:1")
    document, context = (
        yaml.safe_load(path.read_text()),
        {"cluster": "one", "user": "me", "namespace": "runs"},
    )
    document["contexts"].append({"name": "there", "context": context})
    path.write_text(yaml.safe_dump(document))
    assert contexts(str(path)) == ({"here": "", "there": "runs"}, "here")


def test_a_context_that_does_not_exist_is_an_error_with_those_that_do(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", "https://127.0.0.1:1")
    with pytest.raises(ConfigError, match="the kubeconfig has no context 'her'; did you mean 'here'"):
        survey("her", str(path), KNOWN, [])
    with pytest.raises(Denied, match="no such file"):
        survey("", str(tmp_path / "missing"), KNOWN, [])
    path.write_text("contexts: 3\n")
    with pytest.raises(Denied, match="cannot be used"):
        survey("", str(path), KNOWN, [])
