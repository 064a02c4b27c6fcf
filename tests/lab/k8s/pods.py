"""The lab's container runtime: writes the logs of pods and ends their containers. `python -m tests.lab.k8s.pods ROOT`.

KWOK plays the kubelets but runs nothing. This process watches pods; one that runs gets a stand-in for its main
container, whose lines go into a file as a container runtime writes it, and a KWOK Logs object that lets the API
server serve this file. It does so with the kubelet's own reader (k8s.io/cri-client, pkg/logs), so that a log which is rotated looks as
it does on a node: a read shows the newest file alone, and who follows gets each file to its end. But KWOK never tells that reader that
a container has ended, so that who follows is left waiting. Its exit code becomes an annotation of the pod, on which KWOK's stage `pod-exit` ends it.
"""

from __future__ import annotations

import datetime
import fcntl
import heapq
import itertools
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.lab.k8s import processes
from tests.lab.k8s.api import Api, ApiError
from tests.lab.k8s.certificates import Pair
from tests.lab.k8s.objects import EXIT
from tests.lab.k8s.standins import Container, Said
from tests.lab.recipe.knobs import Knobs

_PODS = "/api/v1/pods"


@dataclass
class Pod:
    """One that runs. `begun`: its container has."""

    manifest: dict[str, Any]
    container: Container
    log: Path
    said: Said
    begun: bool = False
    ended: bool = False

    @property
    def path(self) -> str:
        """Of the object, at the API server."""
        metadata = self.manifest["metadata"]
        return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"


@dataclass
class Runtime:
    """Pods by uid; what is due next by time.monotonic."""

    root: Path
    api: Api
    pods: dict[str, Pod] = field(default_factory=dict)
    due: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    events: queue.SimpleQueue[Any] = field(default_factory=queue.SimpleQueue)
    _number: itertools.count[int] = field(default_factory=itertools.count)

    def run(self) -> None:
        """Until the process ends."""
        threading.Thread(target=self._watch, daemon=True).start()
        while True:
            left = self.due[0][0] - time.monotonic() if self.due else 60
            try:
                self._seen(self.events.get(timeout=max(0, left)))
            except queue.Empty:
                while self.due and self.due[0][0] <= time.monotonic():
                    heapq.heappop(self.due)[2]()

    def _watch(self) -> None:
        while True:
            try:
                listed = self.api.get(_PODS)
                self.events.put({"type": "LISTED", "object": listed})
                for event in self.api.watch(_PODS, listed["metadata"]["resourceVersion"], 300):
                    if event["type"] == "ERROR":
                        break
                    self.events.put(event)
            except ApiError:
                time.sleep(0.5)

    def _seen(self, event: dict[str, Any]) -> None:
        if event["type"] == "LISTED":
            pods = {pod["metadata"]["uid"]: pod for pod in event["object"]["items"]}
            # They were deleted while nothing was watched.
            for uid in self.pods.keys() - pods.keys():
                self._forget(uid)
            for pod in pods.values():
                self._seen({"type": "ADDED", "object": pod})
            return
        manifest = event["object"]
        uid = manifest["metadata"]["uid"]
        if event["type"] == "DELETED" or "deletionTimestamp" in manifest["metadata"]:
            self._forget(uid)
        elif uid not in self.pods and manifest.get("status", {}).get("phase") == "Running":
            self._start(uid, manifest)

    def _forget(self, uid: str) -> None:
        gone = self.pods.pop(uid, None)
        if gone is not None:
            gone.said.close()
            # Of a job that begins anew the last old pod may go after the last new one came.
            self._begin(gone)

    def _start(self, uid: str, manifest: dict[str, Any]) -> None:
        container, namespace = Container.of(manifest), manifest["metadata"]["namespace"]
        log = self.root / "pods" / namespace / uid / f"{container.name}.0.log"
        log.parent.mkdir(parents=True)
        said = container.run(self._knobs(namespace), partial(self._nodes, manifest, container))
        if processes.is_meant(manifest):
            said = processes.run(manifest, self.api, self.root)
        pod = Pod(manifest, container, log, said)
        self._open(pod)
        self.pods[uid] = pod
        self._begin(pod)

    def _begin(self, pod: Pod) -> None:
        """As ranks do: nothing begins before all of its job are there."""
        group = self._group(pod)
        if len(group) == pod.container.nodes and not any(member.begun for member in group):
            for member in group:
                member.begun = True
                self._next(member)

    def _knobs(self, namespace: str) -> Knobs:
        return Knobs.load(self.root / "knobs" / namespace)

    def _group(self, pod: Pod) -> list[Pod]:
        """Those of its job that run."""
        return [one for one in self._all_of(pod.manifest, pod.container) if not one.ended]

    def _all_of(self, manifest: dict[str, Any], container: Container) -> list[Pod]:
        """Those of a job, which is that of this pod."""
        namespace = manifest["metadata"]["namespace"]
        return [
            one
            for one in self.pods.values()
            if (one.manifest["metadata"]["namespace"], one.container.group) == (namespace, container.group)
        ]

    def _nodes(self, manifest: dict[str, Any], container: Container) -> list[str]:
        """The nodes of the pod's job, its own one first."""
        nodes = [one.container.node for one in self._all_of(manifest, container)]
        return sorted(nodes, key=lambda node: node != container.node)

    def _open(self, pod: Pod) -> None:
        """A log that is empty, and what lets the API server find it."""
        pod.log.touch()
        quiet = pod.log.with_name("others.log")
        quiet.touch()
        metadata = pod.manifest["metadata"]
        entry = {"containers": [pod.container.name], "logsFile": str(pod.log), "follow": False}
        owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        document = {
            "apiVersion": "kwok.x-k8s.io/v1alpha1",
            "kind": "Logs",
            "metadata": {
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "ownerReferences": [owner],
            },
            "spec": {"logs": [entry, {"logsFile": str(quiet), "follow": False}]},
        }
        self._ask(lambda: self.api.apply(document))

    def _next(self, pod: Pod) -> None:
        try:
            wait, line = next(pod.said)
        except StopIteration as end:
            if end.value is not None:
                self._end(pod, end.value)
            return
        self._at(wait, lambda: self._say(pod, line))

    def _say(self, pod: Pod, line: str | None) -> None:
        if pod.manifest["metadata"]["uid"] not in self.pods:
            return  # deleted meanwhile
        if line is None:
            self._next(pod)
            return
        now = datetime.datetime.now(datetime.UTC)
        _append(pod.log, f"{now:%Y-%m-%dT%H:%M:%S.%f}000Z stdout F {line}\n")
        self._next(pod)

    def _end(self, pod: Pod, code: int) -> None:
        """It exits; those of its job that only followed exit with it, unless it failed: they hang in NCCL.

        A master that ends first ends alone.
        """
        change = {"metadata": {"annotations": {EXIT: str(code)}}}
        knobs = self._knobs(pod.manifest["metadata"]["namespace"])
        alone = code or (knobs.master_first and pod.container.is_master)
        for one in [pod] if alone else self._group(pod):
            if not one.ended:
                one.ended = True
                self._ask(partial(self.api.merge, one.path, change))

    def _ask(self, what: Callable[[], object]) -> None:
        """Ask the API server, again later while it is away; a refusal is of a pod that was deleted meanwhile."""
        try:
            what()
        except ApiError as error:
            if error.status == 0 or error.status >= 500:
                self._at(0.3, lambda: self._ask(what))
            else:
                print(error, file=sys.stderr, flush=True)

    def _at(self, seconds: float, what: Callable[[], None]) -> None:
        heapq.heappush(self.due, (time.monotonic() + seconds, next(self._number), what))


def _append(path: Path, text: str) -> None:
    """Never to a file that was rotated away: whoever rotates it has it locked meanwhile."""
    while True:
        with path.open("a") as log:
            fcntl.flock(log, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(log.fileno()), path.stat()):
                log.write(text)
                return


def main(root: Path) -> None:
    """Serve the cluster of the lab at `root`."""
    server = (root / "server").read_text()
    client = Pair(root / "pki" / "pods.crt", root / "pki" / "pods.key")
    Runtime(root, Api(server, str(root / "pki" / "ca.crt"), client=client)).run()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
