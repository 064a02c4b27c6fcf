"""A namespace of the Kubernetes lab for the AKS recipe's set-up, and how a session follows it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from fixtures.backends.kubernetes.api import Api
from fixtures.backends.kubernetes.provision.apply import Provisioner
from plugins.record.job import JobRef, JobState
from tests.lab.k8s import manifests, processes
from tests.lab.k8s.cluster import KubernetesLab
from tests.system.support import GUARD, ROOT, until
from tests.unit import gpt3_setup
from tests.unit import hub as hubs
from tests.unit.hub import Hub

STAGES = ["download", "extract", "concatenate", "preprocess"]
JOB = "pacemark-20261121-120000-0001.gpt3_aks-setup"
CASE = "gpt3_aks/setup"


class Site:
    """A namespace of the lab with its claim, and the set-up as a session sees it, under the shipped roles alone."""

    def __init__(self, lab: KubernetesLab, namespace: str, hub: Hub, folder: Path) -> None:
        self.lab = lab
        self.namespace = namespace
        self.megatron = hubs.megatron(folder / "megatron")
        self.environment = {"HF_ENDPOINT": hub.url, "MEGATRON": str(self.megatron), "RETRY_SECONDS": "0.1"}
        documents = yaml.safe_load_all((ROOT / "docs" / "rbac" / "pytorchjob.yaml").read_text())
        rules = {(one["kind"], one["metadata"]["name"]): one["rules"] for one in documents}
        self.users = {
            "check": lab.user(
                namespace, "check", rules["Role", "pacemark-data"], rules["ClusterRole", "pacemark-storage"]
            ),
            "provision": lab.user(
                namespace,
                "provision",
                [*rules["Role", "pacemark-data"], *rules["Role", "pacemark-provision"]],
                [*rules["ClusterRole", "pacemark-storage"], *rules["ClusterRole", "pacemark-provision"]],
            ),
        }

    def session(self, user: str = "provision", *, pool: str = "gpu", **values: str) -> Provisioner:
        """The set-up, as a session of its own has it: nine files in five parts, of which two are kept twice."""
        section = gpt3_setup.section(
            namespace=self.namespace,
            kubeconfig=str(self.users[user]),
            environment=self.environment,
            node_selector={"agentpool": pool},
            values={"files": "9", "parts": "5", "chunks": "2", "processes": "2", **values},
        )
        made = Provisioner("lab", Api("lab", section), section, gpt3_setup.recipe())
        made.read_seconds = 0
        return made

    def claim(self) -> None:
        for document in manifests.claim(self.namespace, manifests.CLAIM):
            self.lab.api.create(document)
        claims = "persistentvolumeclaims"
        until(
            lambda: self.items(claims)[manifests.CLAIM]["status"].get("phase") == "Bound",
            "the claim is bound",
        )

    def items(self, kind: str) -> dict[str, Any]:
        group = "/apis/batch/v1" if kind == "jobs" else "/api/v1"
        found = self.lab.api.get(f"{group}/namespaces/{self.namespace}/{kind}")["items"]
        return {item["metadata"]["name"]: item for item in found}

    def volume(self) -> Path:
        return processes.volume(self.lab.root, self.namespace, manifests.CLAIM) / "slimpajama"

    def until_downloaded(self, count: int) -> None:
        downloaded = self.volume() / "downloaded"
        until(lambda: len(list(downloaded.glob("*.zst"))) == count, f"{count} files are there")

    def evict(self, pod: str) -> None:
        """As a node that is drained does it."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}"
        why = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
        self.lab.api.merge(f"{path}/status", {"status": {"phase": "Failed", "conditions": [why]}})
        self.lab.api.delete(path)

    def pods_of(self, stage: str) -> list[str]:
        return [name for name in self.items("pods") if f"-{stage}-" in name]


def follow(
    session: Provisioner,
    job: JobRef,
    enough: Callable[[JobState], bool] = lambda _: False,
    seconds: float = GUARD,
) -> list[JobState]:
    """Ask as the fleet does, until it is over or `enough`; every state that was seen."""
    seen: list[JobState] = []
    deadline = time.monotonic() + seconds
    while True:
        state = session.state(job)
        if not seen or state != seen[-1]:
            seen.append(state)
        if state.phase.over or enough(state):
            return seen
        assert time.monotonic() < deadline, seen
        time.sleep(0.1)
