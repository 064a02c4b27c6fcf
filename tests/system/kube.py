"""Kubernetes' side of the system tests: a site file for the lab, and what is left in a namespace."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.lab.k8s.api import ApiError
from tests.lab.k8s.cluster import KubernetesLab
from tests.system.support import ROOT, USUAL_LIMITS, Run, until

# Of the suite that `small_suite` makes.
CASE = "llama3_gke/70b-fp8-32gpus"
SELECT = ("-k", "70b and fp8 and 32")
# A test's own namespace, beside what every namespace has.
_GIVEN = {"kube-root-ca.crt"}
_KINDS = {
    "jobset": "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets",
    "pytorchjob": "/apis/kubeflow.org/v1/namespaces/{}/pytorchjobs",
    "job": "/apis/batch/v1/namespaces/{}/jobs",
    "pod": "/api/v1/namespaces/{}/pods",
    "configmap": "/api/v1/namespaces/{}/configmaps",
    "service": "/api/v1/namespaces/{}/services",
    "workload": "/apis/kueue.x-k8s.io/v1beta2/namespaces/{}/workloads",
}


def small_suite(folder: Path, scales: Sequence[int] = (32, 128, 256)) -> Path:
    """The suite of Llama 3 on GKE in a checkout of its own, with cases of so many GPUs, and a number for each.

    What a session and a cluster do with a job does not depend on its pods, and most of a test's time goes into these.
    """
    (folder / "baselines").mkdir(parents=True)
    for name in ("conftest.py", "pytest.ini", "plugins", "fixtures"):
        (folder / name).symlink_to(ROOT / name)
    suite = folder / "suites" / "llama3_gke"
    shutil.copytree(ROOT / "suites" / "llama3_gke", suite)
    # By which nodes are probed.
    (folder / "suites" / "proxy").symlink_to(ROOT / "suites" / "proxy")
    for name in ("accelerators.yaml", "proxy.yaml"):
        (folder / "baselines" / name).symlink_to(ROOT / "baselines" / name)
    recipe = (suite / "recipe.yaml").read_text()
    (suite / "recipe.yaml").write_text(recipe.replace("gpus: [128, 256, 512]", f"gpus: {list(scales)}"))
    published = yaml.safe_load((ROOT / "baselines" / "llama3_gke.yaml").read_text())
    (table,) = published["tables"]
    (cell,) = table["cells"]
    table["cells"] = [_scaled(cell, dtype, gpus) for dtype in ("fp8", "bf16") for gpus in scales]
    (folder / "baselines" / "llama3_gke.yaml").write_text(yaml.safe_dump(published))
    return suite


def _scaled(cell: dict[str, Any], dtype: str, gpus: int) -> dict[str, Any]:
    """What the lab's stand-in shows of another case, from the one that was published."""
    precision = 78.0 / 45.8 if dtype == "bf16" else 1
    slower = precision * 128 / gpus
    return {
        **cell,
        "dtype": dtype,
        "gpus": gpus,
        "dp": gpus // 32,
        "ga": 1024 * 32 // gpus,
        "step_time": cell["step_time"] * slower,
        "tokens_per_second": round(cell["tokens_per_second"] / slower),
        "mfu": cell["mfu"] / precision * (2 if dtype == "bf16" else 1),
    }


def rules(name: str, file: str = "jobset") -> list[dict[str, Any]]:
    """The rules of a Role or ClusterRole that is shipped."""
    documents = yaml.safe_load_all((ROOT / "docs" / "rbac" / f"{file}.yaml").read_text())
    found: list[dict[str, Any]] = next(d["rules"] for d in documents if d["metadata"]["name"] == name)
    return found


def user(lab: KubernetesLab, namespace: str) -> Path:
    """The kubeconfig of one who may do what the shipped Role says, and no more."""
    made = lab.root / "kubeconfig" / f"{namespace}-pacemark"
    if made.exists():
        return made
    return lab.user(namespace, "pacemark", rules("pacemark"), rules("pacemark-nodes"))


def gke_site(
    lab: KubernetesLab, namespace: str, folder: Path, *, limits: dict[str, float] | None = None, **keys: Any
) -> Path:
    """A site file for this namespace of the lab; `keys` replace or add keys of the section `jobset`, None removes."""
    section = {
        "gpu": "h100",
        "namespace": namespace,
        "recipes": {
            "llama3_gke": {"values": {"image": "registry.test/nemo_workload:24.07", "bucket": "lab-bucket"}}
        },
        # The lab has nodes of another cloud besides.
        "node_selector": {"cloud.google.com/gke-nodepool": "a3mega-pool"},
        "limits": {**USUAL_LIMITS, **(limits or {})},
        "kubeconfig": "",
        **keys,
    }
    if section["kubeconfig"] == "":
        section["kubeconfig"] = str(user(lab, namespace))
    path = folder / "site.yaml"
    kept = {key: value for key, value in section.items() if value is not None}
    path.write_text(yaml.safe_dump({"site": "lab", "jobset": kept}))
    return path


def aks_site(
    lab: KubernetesLab,
    namespace: str,
    folder: Path,
    *,
    limits: dict[str, float] | None = None,
    roles: Sequence[str] = (),
    **keys: Any,
) -> Path:
    """A site file for PyTorchJobs in this namespace of the lab; `keys` as above. `roles` are given besides the usual."""
    given = [rule for role in ("pacemark", "pacemark-data", *roles) for rule in rules(role, "pytorchjob")]
    allowed = given, [*rules("pacemark-nodes", "pytorchjob"), *rules("pacemark-storage", "pytorchjob")]
    section = {
        "gpu": "h100",
        "namespace": namespace,
        "node_selector": {"agentpool": "gpu"},
        "limits": {**USUAL_LIMITS, **(limits or {})},
        "kubeconfig": str(lab.user(namespace, f"pacemark-{secrets.token_hex(3)}", *allowed)),
        **keys,
    }
    path = folder / "site.yaml"
    path.write_text(yaml.safe_dump({"site": "lab", "pytorchjob": section}))
    return path


def items(lab: KubernetesLab, namespace: str, kind: str) -> list[dict[str, Any]]:
    """All objects of a kind in a namespace, but those that every namespace has; none of a kind that the lab has not."""
    try:
        found = lab.api.get(_KINDS[kind].format(namespace))["items"]
    except ApiError as error:
        if error.status != 404:
            raise
        return []
    # How many files of data there are is counted once and kept.
    own = [item for item in found if not item["metadata"]["name"].endswith("-counted")]
    return [item for item in own if item["metadata"]["name"] not in _GIVEN]


def left(lab: KubernetesLab, namespace: str) -> list[str]:
    """What is there that a session could have left."""
    return [f"{kind} {item['metadata']['name']}" for kind in _KINDS for item in items(lab, namespace, kind)]


def nothing_is_left(lab: KubernetesLab, namespace: str) -> None:
    """The cluster's garbage collector takes a moment."""
    until(
        lambda: not left(lab, namespace),
        f"nothing left in {namespace}, but there is {left(lab, namespace)}",
    )


def running(lab: KubernetesLab, namespace: str) -> int:
    """How many pods run."""
    return sum(pod["status"].get("phase") == "Running" for pod in items(lab, namespace, "pod"))


def require_failed(
    lab: KubernetesLab, namespace: str, result: Run, key: str, verdict: str, words: Sequence[str]
) -> None:
    """The session failed with this verdict of its case, said these words, and left nothing."""
    assert result.status == 1, result.out
    assert result.case(key)["verdict"] == verdict
    for word in words:
        assert word in result.out, result.out
    nothing_is_left(lab, namespace)
