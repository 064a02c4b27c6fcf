"""What is done to the lab's cluster while a session is recorded: in the order in which a job meets it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.lab.k8s.api import ApiError
from tests.system.kube_trial import JOBSETS, KubeTrial
from tests.system.support import until

WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/namespaces/{}/workloads"
DENIED = 'MountVolume.SetUp failed for volume "job-logs" : rpc error: code = PermissionDenied desc = failed to get GCS bucket'


def evict_workload(real: KubeTrial) -> None:
    real.lab.set(real.namespace, real_step=0.02)
    (workload,) = real.items("workload")
    path = f"{WORKLOADS.format(real.namespace)}/{workload['metadata']['name']}"
    real.lab.api.merge(path, {"spec": {"active": False}})
    until(lambda: not real.items("pod"), "the pods' end")
    real.lab.api.merge(path, {"spec": {"active": True}})


def fail_mount(real: KubeTrial) -> None:
    until(lambda: sum("nodeName" in pod["spec"] for pod in real.items("pod")) == 4, "4 pods with nodes")
    pod, now = real.items("pod")[3]["metadata"], datetime.now(UTC)
    about = {"kind": "Pod", **{key: pod[key] for key in ("name", "namespace", "uid")}}
    event = {
        "metadata": {"name": f"{pod['name']}.18"},
        "involvedObject": about,
        "type": "Warning",
        "reason": "FailedMount",
        "message": DENIED,
        "count": 7,
        "firstTimestamp": f"{now - timedelta(seconds=40):%Y-%m-%dT%H:%M:%SZ}",
        "lastTimestamp": f"{now:%Y-%m-%dT%H:%M:%SZ}",
    }
    create(real, "Event", event)


def delete_job(real: KubeTrial) -> None:
    real.lab.set(real.namespace)
    assert real.jobset()["spec"]["failurePolicy"]["maxRestarts"] == 0
    with pytest.raises(ApiError):
        merge_jobset(real, {"spec": {"failurePolicy": {"maxRestarts": 3}}})
    (job,) = real.items("job")
    real.lab.api.delete(f"/apis/batch/v1/namespaces/{real.namespace}/jobs/{job['metadata']['name']}")


def create(real: KubeTrial, kind: str, document: dict[str, Any]) -> None:
    metadata = {**document["metadata"], "namespace": real.namespace}
    real.lab.api.create({"apiVersion": "v1", "kind": kind, **document, "metadata": metadata})


def jobset_path(real: KubeTrial) -> str:
    return f"{JOBSETS.format(real.namespace)}/{real.jobset()['metadata']['name']}"


def merge_jobset(real: KubeTrial, change: dict[str, Any]) -> None:
    real.lab.api.merge(jobset_path(real), change)


def pod_path(real: KubeTrial) -> str:
    return f"/api/v1/namespaces/{real.namespace}/pods/{real.pod(rank=3)['metadata']['name']}"


def evict(real: KubeTrial) -> None:
    metadata = {"name": real.pod(rank=3)["metadata"]["name"], "namespace": real.namespace}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    real.lab.api.post(f"{pod_path(real)}/eviction", eviction)


def taint(real: KubeTrial, key: str) -> Callable[[], None]:
    """The pod of rank 3 must leave its node."""
    path = f"/api/v1/nodes/{real.pod(rank=3)['spec']['nodeName']}"
    before = real.lab.api.get(path)["spec"].get("taints", [])
    broken = {"key": key, "value": "nodeshutdown", "effect": "NoExecute"}
    real.lab.api.merge(path, {"spec": {"taints": [*before, broken]}})
    return lambda: real.lab.api.merge(path, {"spec": {"taints": before}})


def keep_pod(real: KubeTrial) -> None:
    held = [*real.pod(rank=3)["metadata"]["finalizers"], "lab/dead"]
    real.lab.api.merge(pod_path(real), {"metadata": {"finalizers": held}})


def let_pod_go(real: KubeTrial) -> None:
    real.lab.api.merge(pod_path(real), {"metadata": {"finalizers": None}})


def add_sidecars(real: KubeTrial) -> Callable[[], None]:
    """Admission puts a sidecar into every pod of the namespace, as Istio does."""
    kind, meta = "admissionregistration.k8s.io/v1", {"name": f"sidecars-{real.namespace}"}
    label = {"matchLabels": {"kubernetes.io/metadata.name": real.namespace}}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
    proxy = 'Object.spec.containers{name: "istio-proxy", image: "istio/proxyv2:1.30"}'
    mutation = {"expression": f"Object{{spec: Object.spec{{containers: [{proxy}]}}}}"}
    policy = {
        "matchConstraints": {"namespaceSelector": label, "resourceRules": [rule]},
        "reinvocationPolicy": "Never",
        "failurePolicy": "Fail",
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": mutation}],
    }
    binding = {"policyName": meta["name"], "matchResources": {"namespaceSelector": label}}
    for name, spec in (("Policy", policy), ("PolicyBinding", binding)):
        document = {"apiVersion": kind, "kind": f"MutatingAdmission{name}", "metadata": meta, "spec": spec}
        real.lab.api.create(document)
    pod = {
        "metadata": {"name": "trial", "namespace": real.namespace},
        "spec": {"containers": [{"name": "one", "image": "one"}]},
    }
    path = f"/api/v1/namespaces/{real.namespace}/pods?dryRun=All"
    until(lambda: len(real.lab.api.post(path, pod)["spec"]["containers"]) == 2, "the policy is taken up")

    def remove() -> None:
        for kinds in ("mutatingadmissionpolicybindings", "mutatingadmissionpolicies"):
            real.lab.api.delete(f"/apis/{kind}/{kinds}/{meta['name']}")

    return remove


def require_few_lists_of_events(real: KubeTrial) -> None:
    """At 5, 10, 20 and 40 s, however often the job is looked at."""
    assert real.asked("list", "events") <= 4
