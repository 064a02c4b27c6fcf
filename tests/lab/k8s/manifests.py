"""Jobs as the recipes make them, cut down to what the lab's controllers, scheduler and stand-ins look at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

QUEUE = "kueue.x-k8s.io/queue-name"
CLAIM = "shared-storage-pvc"


def jobset(namespace: str, name: str, nodes: int, *, queue: str = "", **spec: Any) -> dict[str, Any]:
    """Llama3 on GKE: one Indexed Job of `nodes` pods of 8 GPUs; `spec` adds to the JobSet's."""
    environment = {"JOB_IDENTIFIER": name, "WORLD_SIZE": str(nodes * 8), "NNODES": str(nodes)}
    container = {
        "name": "workload",
        "image": "nemo",
        "command": ["bash", "-c", "bash /workload/launcher/launch-workload.sh trainer.max_steps=50"],
        "env": [{"name": key, "value": value} for key, value in environment.items()],
        "resources": {"limits": {"nvidia.com/gpu": "8"}},
        "securityContext": {"privileged": True},
    }
    daemon = {"name": "tcpxo-daemon", "image": "rxdm", "restartPolicy": "Always"}
    pods = {
        "hostNetwork": True,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "restartPolicy": "Never",
        "tolerations": [{"operator": "Exists", "key": "nvidia.com/gpu"}],
        "initContainers": [daemon],
        "containers": [container],
    }
    job = {
        "parallelism": nodes,
        "completions": nodes,
        "backoffLimit": 0,
        "completionMode": "Indexed",
        "template": {"spec": pods},
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": namespace, "labels": {QUEUE: queue} if queue else {}},
        "spec": {
            "failurePolicy": {"maxRestarts": 0},
            "replicatedJobs": [{"name": "workload", "replicas": 1, "template": {"spec": job}}],
            **({"suspend": True} if queue else {}),
            **spec,
        },
    }


def claim(namespace: str, name: str) -> list[dict[str, Any]]:
    """A volume that all may share, as the AKS recipe wants it made beforehand, and its claim in `namespace`."""
    volume = f"{namespace}-{name}"
    wanted = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    size = {"storage": "16Ti"}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": volume},
            "spec": {**wanted, "capacity": size, "hostPath": {"path": "/data"}},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {**wanted, "volumeName": volume, "resources": {"requests": size}},
        },
    ]


def data(volume: Path) -> None:
    """Put 40 files of a preprocessed data set on a claim, 30 of them not to train on, and the tokenizer."""
    folders = [volume / "slimpajama" / name for name in ("preprocessed", "bpe")]
    for folder in folders:
        folder.mkdir(parents=True)
    for number in range(40):
        for kind in ("bin", "idx"):
            (folders[0] / f"part-{number:02d}_text_document.{kind}").write_bytes(b"tokens")
    for name in ("vocab.json", "merges.txt"):
        (folders[1] / name).write_text("{}")


def quota(namespace: str, queue: str, gpus: int, *, topology: bool = False) -> list[dict[str, Any]]:
    """A queue of Kueue for so many GPUs of the AKS nodes' or GKE nodes' kind, and its local end in `namespace`.

    With `topology` one for GKE's nodes alone that knows their racks, which the GKE recipe asks for.
    """
    group = "kueue.x-k8s.io/v1beta2"
    resources = [{"name": "nvidia.com/gpu", "nominalQuota": gpus}, {"name": "rdma/ib", "nominalQuota": gpus}]
    cluster_queue = {
        "namespaceSelector": {},
        "resourceGroups": [
            {
                "coveredResources": [resource["name"] for resource in resources],
                "flavors": [{"name": f"{namespace}-{queue}", "resources": resources}],
            }
        ],
    }
    name = {"name": f"{namespace}-{queue}"}
    levels = [
        {"nodeLabel": label} for label in ("cloud.provider.com/topology-rack", "kubernetes.io/hostname")
    ]
    flavor = {
        "nodeLabels": {"node.kubernetes.io/instance-type": "a3-megagpu-8g"},
        "topologyName": name["name"],
    }
    return [
        *(
            [{"apiVersion": group, "kind": "Topology", "metadata": name, "spec": {"levels": levels}}]
            if topology
            else []
        ),
        {
            "apiVersion": group,
            "kind": "ResourceFlavor",
            "metadata": name,
            "spec": flavor if topology else {},
        },
        {
            "apiVersion": group,
            "kind": "ClusterQueue",
            "metadata": {"name": f"{namespace}-{queue}"},
            "spec": cluster_queue,
        },
        {
            "apiVersion": group,
            "kind": "LocalQueue",
            "metadata": {"name": queue, "namespace": namespace},
            "spec": {"clusterQueue": f"{namespace}-{queue}"},
        },
    ]
