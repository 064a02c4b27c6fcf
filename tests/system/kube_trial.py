"""One session on the Kubernetes lab, alone in its namespace, and what must hold at its end.

Whatever breaks: nothing is left in the namespace, no JobSet was made twice, no secret is shown, the session ends in time.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from fixtures.runs.lock import is_live
from plugins.record.lines import JOBS_LOG
from tests.lab.k8s import manifests
from tests.lab.k8s.api import collection
from tests.lab.k8s.cluster import KubernetesLab
from tests.system.forks import Session
from tests.system.kube import CASE, SELECT, gke_site, items, nothing_is_left, running
from tests.system.support import Run, finish, pacemark, signal_group, start, until

TWO = ("-k", "70b and 32")
OTHER = "somebody-elses"
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets"
INDEX = "batch.kubernetes.io/job-completion-index"
JOB = "jobset.sigs.k8s.io/jobset-name"

MakeTrial = Callable[..., "KubeTrial"]


class KubeTrial:
    """Sessions on one results folder. `keys` are of the site file's section; all else are knobs of the namespace."""

    def __init__(
        self,
        lab: KubernetesLab,
        namespace: str,
        folder: Path,
        suite: str,
        *,
        limits: dict[str, float] | None = None,
        keys: dict[str, Any] | None = None,
        select: tuple[str, ...] = SELECT,
        **knobs: Any,
    ) -> None:
        self.lab = lab
        self.namespace = namespace
        self.results = folder / "results"
        self.select = (suite, *select)
        self.knobs = knobs
        lab.set(namespace, **knobs)
        self.site = gke_site(lab, namespace, folder, limits=limits, **(keys or {}))
        self.process: Session | None = None

    # The session

    def start(self, *more: str, env: dict[str, str] | None = None) -> KubeTrial:
        self.process = start(*self.select, "--site", str(self.site), *more, results=self.results, env=env)
        return self

    def end(self) -> Run:
        """Wait for the session's own end, and ask what it left."""
        assert self.process is not None
        result = finish(self.process, self.results)
        nothing_is_left(self.lab, self.namespace)
        made = self.made()
        assert len(made) == len(set(made)), f"made twice: {made}"
        assert "Pacemark itself failed" not in result.out
        for secret in self.secrets():
            assert secret not in result.out
            written = [path for path in self.results.rglob("*") if path.is_file()]
            assert [path for path in written if secret.encode() in path.read_bytes()] == []
        return result

    def run(self, *more: str) -> Run:
        return self.start(*more).end()

    def resume(self, *more: str) -> Run:
        return self.run("--resume", "latest", *more)

    def house(self, *command: str) -> Run:
        """`--sweep` and the like."""
        return pacemark("suites", *command, "--site", str(self.site), results=self.results)

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        signal_group(self.process, number)

    def kill(self) -> None:
        """kill -9 of the session and its workers: nobody can clean up."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()

    def clear(self) -> None:
        """End what a test that failed left of the session itself."""
        if self.process is not None and self.process.stdout is not None and not self.process.stdout.closed:
            self.kill()

    # The cluster around it

    def queue(self, gpus: int) -> None:
        """A queue of so many GPUs in the namespace, once it admits jobs."""
        make_queue(self.lab, self.namespace, "a3-mega", gpus, topology=True)

    def occupy(self, nodes: int = 4) -> Callable[[], None]:
        """Somebody else's JobSet takes the queue's GPUs; call what is returned to end it."""
        go_on = occupy(self.lab, self.namespace, nodes)
        self.lab.set(self.namespace, **self.knobs)
        return go_on

    # What is to be seen from outside

    def secrets(self) -> list[str]:
        """The token of the kubeconfig, if it has one."""
        section = yaml.safe_load(self.site.read_text())["jobset"]
        path = Path(section.get("kubeconfig", ""))
        users = yaml.safe_load(path.read_text())["users"] if path.is_file() else []
        return [user["user"]["token"] for user in users if "token" in user["user"]]

    def owned(self) -> bool:
        """Whether a session has the run."""
        return (self.results / "latest" / JOBS_LOG).exists() and is_live(self.results / "latest")

    def made(self) -> list[str]:
        """The JobSets that the API server made for this namespace's user, by its own log."""
        return [
            entry["objectRef"].get("name", entry["requestURI"])
            for entry in self.lab.requests(self.namespace)
            if entry["verb"] == "create"
            and entry["objectRef"]["resource"] == "jobsets"
            and entry["responseStatus"]["code"] == 201
            and "dryRun=All" not in entry["requestURI"]
        ]

    def asked(self, verb: str, resource: str) -> int:
        """How many such requests of this namespace's user the API server answered."""
        return sum(
            entry["verb"] == verb and entry["objectRef"]["resource"] == resource
            for entry in self.lab.requests(self.namespace)
            if "objectRef" in entry
        )

    def items(self, kind: str) -> list[dict[str, Any]]:
        return items(self.lab, self.namespace, kind)

    def until_running(self, pods: int = 4) -> None:
        until(lambda: running(self.lab, self.namespace) == pods, f"{pods} pods running")

    def until_there(self, kind: str, count: int = 1) -> list[dict[str, Any]]:
        until(lambda: len(self.items(kind)) == count, f"{count} {kind}s")
        return self.items(kind)

    def jobset(self) -> dict[str, Any]:
        """Its own, once it is there."""
        found: list[dict[str, Any]] = []

        def seen() -> bool:
            found[:] = [item for item in self.items("jobset") if item["metadata"]["name"] != OTHER]
            return bool(found)

        until(seen, "a JobSet of the session")
        return found[0]

    def jobset_ended(self) -> bool:
        return all(item.get("status", {}).get("terminalState") for item in self.items("jobset"))

    def began(self) -> bool:
        """Whether the pod of rank 0 of CASE runs, and has its knobs."""
        case = CASE.rpartition("/")[2]
        pods = [pod for pod in self.items("pod") if pod["metadata"]["labels"][JOB].endswith(case)]
        return any(self.lab.has_begun(pod) for pod in pods if pod["metadata"]["labels"][INDEX] == "0")

    def pod(self, rank: int = 0) -> dict[str, Any]:
        """The pod of this rank."""
        (found,) = [pod for pod in self.items("pod") if pod["metadata"]["labels"][INDEX] == str(rank)]
        return found

    def collected(self) -> bytes:
        """What the session has of the job's log."""
        path = self.results / "latest" / CASE / "log.txt"
        return path.read_bytes() if path.exists() else b""

    def hold(self, step: int) -> KubeTrial:
        """Its job is to wait after this step until it is let go."""
        self.lab.hold(self.namespace, step, **self.knobs)
        return self

    def let_go(self) -> None:
        self.lab.let_go(self.namespace)

    def until_said(self, words: str) -> None:
        """Until the session has printed this."""
        process = self.process
        assert process is not None
        until(lambda: words in process.said(), words)

    def until_recorded(self) -> None:
        """Until the session's ledger has the name of its JobSet."""
        name = self.jobset()["metadata"]["name"]
        ledger = self.results / "latest" / JOBS_LOG
        until(lambda: name in ledger.read_text(), f"{name} in the ledger")

    def until_steps(self, count: int) -> None:
        """Until the session knows so many steps."""
        until(lambda: self.collected().count(b"global_step") >= count, f"{count} steps in the session")


def make_queue(lab: KubernetesLab, namespace: str, name: str, gpus: int, *, topology: bool = False) -> None:
    """A queue of so many GPUs in the namespace, once it admits jobs."""
    for document in manifests.quota(namespace, name, gpus, topology=topology):
        made = lab.api.create(document)
    # What was made last is the local queue.
    until_queue_is(lab, made, "True")


def until_queue_is(lab: KubernetesLab, queue: dict[str, Any], active: str) -> None:
    """Until Kueue says of a local queue whether it admits jobs: "True" or "False"."""
    path = f"{collection(queue)}/{queue['metadata']['name']}"

    def conditions() -> list[dict[str, str]]:
        found: list[dict[str, str]] = lab.api.get(path).get("status", {}).get("conditions", [])
        return found

    until(lambda: ("Active", active) in [(c["type"], c["status"]) for c in conditions()], f"active: {active}")


def occupy(lab: KubernetesLab, namespace: str, nodes: int) -> Callable[[], None]:
    """Somebody else's JobSet takes the queue's GPUs for ever; call what is returned to end it."""
    lab.set(namespace, hang_at=0)
    lab.api.create(manifests.jobset(namespace, OTHER, nodes, queue="a3-mega"))

    def runs() -> bool:
        pods = items(lab, namespace, "pod")
        return len(pods) == nodes and all(map(lab.has_begun, pods))

    until(runs, "somebody else's pods")
    path = f"{JOBSETS.format(namespace)}/{OTHER}"
    return lambda: lab.api.delete(path)
