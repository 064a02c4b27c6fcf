"""What the lab puts into its cluster: nodes, stages of pods, and the controllers' kinds, webhooks and secrets."""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.lab.k8s import programs
from tests.lab.k8s.config import HOST, Settings

EXIT = "pacemark.lab/exit-code"
NO_IMAGE = "registry.test/no-such-image:24.07"
"""No node of the lab can pull it."""
NO_MOUNT = "registry.test/no-mount:24.07"
"""A pod of it never gets its volumes."""
# The names that controllers look for in the certificate of their webhooks.
WEBHOOK_HOSTS = ("training-operator.kubeflow.svc", "kueue-webhook-service.kueue-system.svc")
_JOBSET_PODS = {"matchExpressions": [{"key": "jobset.sigs.k8s.io/jobset-name", "operator": "Exists"}]}
# Kueue has webhooks for kinds that this cluster lacks, and for those that it leaves alone here.
_KUEUE_KINDS = {"jobsets", "pytorchjobs", "jobs", "clusterqueues", "resourceflavors", "workloads", "cohorts"}
_STAGES = ("pod-exit", "pod-no-image", "pod-no-mount")
_IMAGE = "- image: {{ .image | Quote }}\n"
# Each name is another image, also where only its tag differs.
_IMAGE_ID = (
    """imageID: {{ if contains "@" .image }}{{ .image | Quote }}{{ else }}"""
    """{{ printf "%s@sha256:%s" .image (sha256sum .image) | Quote }}{{ end }}\n"""
)


@dataclass(frozen=True)
class Machine:
    """A kind of node, as a cloud provider's nodes of this type show themselves. `name`: of number {n}; `leaf`: the label for that."""

    name: str
    type: str
    network: ipaddress.IPv4Network
    leaf: str
    accelerator: dict[str, str]
    capacity: dict[str, str]


MACHINES = {
    "a3-megagpu-8g": Machine(
        "gke-a3mega-pool-{n:03d}",
        "a3-megagpu-8g",
        ipaddress.IPv4Network("10.128.0.0/20"),
        "cloud.google.com/gce-topology-subblock",
        {
            "cloud.google.com/gke-accelerator": "nvidia-h100-mega-80gb",
            "cloud.google.com/gke-nodepool": "a3mega-pool",
            "cloud.google.com/gke-gpu-driver-version": "latest",
        },
        {"cpu": "208", "memory": "1900Gi"},
    ),
    "Standard_ND96isr_H100_v5": Machine(
        "aks-ndv5-vmss{n:06d}",
        "Standard_ND96isr_H100_v5",
        ipaddress.IPv4Network("10.224.0.0/20"),
        "network.topology.nvidia.com/leaf",
        {
            "agentpool": "gpu",
            "kubernetes.azure.com/agentpool": "gpu",
            "kubernetes.azure.com/accelerator": "nvidia",
        },
        {"cpu": "96", "memory": "1900Gi", "rdma/ib": "8"},
    ),
}


def node(machine: Machine, number: int) -> dict[str, Any]:
    """A node of 8 GPUs. Sixteen of them share a rack, as topology-aware scheduling sees it.

    Its address is that of nobody, and nothing is sent there: pods of the host's network have it too, and the API
    server takes no address of loopback for one that a Service leads to.
    """
    name = machine.name.format(n=number)
    address = str(machine.network[number + 2])
    capacity = {**machine.capacity, "nvidia.com/gpu": "8", "pods": "110", "ephemeral-storage": "6000Gi"}
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "node.kubernetes.io/instance-type": machine.type,
        "topology.kubernetes.io/zone": "zone-1",
        "cloud.provider.com/topology-rack": f"rack-{number // 16:02d}",
        machine.leaf: f"leaf{number // 16}",
        **machine.accelerator,
    }
    # As GKE's GPU nodes have it, which the recipe tolerates. Those of AKS have none.
    taints = [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints if "cloud.google.com/gke-accelerator" in labels else []},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "addresses": [
                {"type": "InternalIP", "address": address},
                {"type": "Hostname", "address": name},
                # Where its kubelet is for the API server: KWOK.
                {"type": "ExternalIP", "address": HOST},
            ],
        },
    }


def kwok_configuration() -> str:
    """KWOK's own stages of nodes and pods, and ours for how a container ends, or never starts.

    KWOK's leave out what a kubelet says of the image that it pulled.
    """
    stages = [path.read_text() for path in programs.manifests("kwok") if not _is_kind(path)]
    stages = [stage.replace(_IMAGE, f"{_IMAGE}        {_IMAGE_ID}") for stage in stages]
    own = [Path(__file__).with_name(f"{name}.yaml").read_text() for name in _STAGES]
    return "\n---\n".join([*stages, *own])


def kinds(settings: Settings, names: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The CustomResourceDefinitions of these programs."""
    for name in names:
        for path in programs.manifests(name):
            if not _is_kind(path):
                continue
            document = _undescribed(yaml.load(path.read_text(), yaml.CSafeLoader))
            if name == "kueue" and len(document["spec"]["versions"]) > 1:
                reached = _client(settings, "kueue", "/convert")
                document["spec"]["conversion"] = {
                    "strategy": "Webhook",
                    "webhook": {"clientConfig": reached, "conversionReviewVersions": ["v1"]},
                }
            yield document


def _undescribed(schema: Any) -> Any:
    """The same without descriptions, which are three quarters of its text: the API server starts with a tenth less work."""
    if isinstance(schema, list):
        return [_undescribed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    # A property of this name is a schema itself.
    kept = ((key, value) for key, value in schema.items() if key != "description" or isinstance(value, dict))
    return {key: _undescribed(value) for key, value in kept}


def served(kinds: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Where the API server lists the objects of these kinds."""
    for kind in kinds:
        spec = kind["spec"]
        for version in spec["versions"]:
            if version["served"]:
                yield f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}"


def namespaces() -> Iterator[dict[str, Any]]:
    """Where the controllers keep their secrets."""
    for name in ("kubeflow", "kueue-system"):
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def secrets(settings: Settings, ca_key: Path) -> Iterator[dict[str, Any]]:
    """The webhooks' certificate, where controllers that make their own look for it first."""
    files = {
        "ca.crt": settings.ca,
        "ca.key": ca_key,
        "tls.crt": settings.webhook.certificate,
        "tls.key": settings.webhook.key,
    }
    data = {name: base64.b64encode(path.read_bytes()).decode() for name, path in files.items()}
    for namespace, name in (
        ("kubeflow", "training-operator-webhook-cert"),
        ("kueue-system", "kueue-webhook-server-cert"),
    ):
        metadata = {"namespace": namespace, "name": name}
        yield {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


def webhooks(settings: Settings, name: str) -> Iterator[dict[str, Any]]:
    """The webhook configurations that a controller brings along, reached at its port here."""
    (path,) = [path for path in programs.manifests(name) if path.name == "manifests.yaml"]
    name = plain(name)
    for document in yaml.load_all(path.read_text(), yaml.CSafeLoader):
        kept = [hook for hook in document["webhooks"] if _wanted(name, hook)]
        for hook in kept:
            hook["clientConfig"] = _client(settings, name, hook["clientConfig"]["service"]["path"])
            # The most that there is: 10 s, the default, may be too little on a busy machine.
            hook["timeoutSeconds"] = 30
            if name == "jobset" and hook["rules"][0]["resources"] == ["pods"]:
                # As JobSet's own kustomization does.
                hook["objectSelector"] = _JOBSET_PODS
        document["webhooks"] = kept
        base = document["metadata"]["name"]
        full = "validator.training-operator.kubeflow.org" if name == "training-operator" else f"{name}-{base}"
        document["metadata"]["name"] = full
        yield document


def plain(name: str) -> str:
    """A controller's name without a version."""
    return name.partition("-1")[0]


def _wanted(name: str, hook: dict[str, Any]) -> bool:
    resources: Iterable[str] = hook["rules"][0]["resources"]
    if name == "training-operator":
        return "pytorchjobs" in resources
    return name != "kueue" or not _KUEUE_KINDS.isdisjoint(r.partition("/")[0] for r in resources)


def _client(settings: Settings, name: str, path: str) -> dict[str, str]:
    bundle = base64.b64encode(settings.ca.read_bytes()).decode()
    return {"url": f"https://{HOST}:{settings.ports[name]}{path}", "caBundle": bundle}


def _is_kind(path: Path) -> bool:
    return "kind: CustomResourceDefinition" in path.read_text()
