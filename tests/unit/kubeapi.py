"""Stand-ins for the API server: objects in memory, with or without watches; and one that answers over HTTP."""

from __future__ import annotations

import contextlib
import copy
import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from fixtures.backends.kubernetes.api import Refused
from fixtures.backends.kubernetes.informer import Copy
from fixtures.backends.kubernetes.provision.apply import Provisioner
from tests.unit import gpt3_setup

Object = dict[str, Any]
JOBS, MAPS, PODS, CLAIMS, CLASSES = (
    "/apis/batch/v1/namespaces/runs/jobs",
    "/api/v1/namespaces/runs/configmaps",
    "/api/v1/namespaces/runs/pods",
    "/api/v1/namespaces/runs/persistentvolumeclaims",
    "/apis/storage.k8s.io/v1/storageclasses",
)
"""Where the objects of the namespace `runs` are."""
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
EVENTS = "/api/v1/namespaces/runs/events"
BOTH = {"nvidia.com/gpu": "8", "rdma/ib": "8"}
SKU = {"key": "sku", "value": "gpu", "effect": "NoSchedule"}
"""As AKS advises to taint its pools of GPUs."""


class Memory:
    """Stands in for `Api`. `before` is called with each request's method and path and may raise what the server would.

    All is allowed but what is `denied`, such as `delete jobs`.
    """

    release = "v1.34.1"

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        # The last known states of what watches saw go, in this order.
        self.deleted: dict[str, Object] = {}
        self.asked: list[tuple[str, str]] = []
        self.queries: list[dict[str, str]] = []
        self.before: Callable[[str, str], None] = lambda method, path: None
        self.logs: dict[str, bytes] = {}
        self.denied: set[str] = set()
        # What would be made of an object.
        self.dry_run: Callable[[Object], Object] = lambda document: document
        self.changed = threading.Condition()
        self.closed = False
        self._made = 0
        self._events: list[tuple[str, Object]] = []

    def find(self, path: str) -> Object | None:
        self._ask("GET", path)
        return copy.deepcopy(self.objects.get(path))

    def get(self, path: str, **query: str) -> Any:
        self._ask("LIST", path)
        self.queries.append(query)
        items = copy.deepcopy(picked(self.objects, path, query.get("labelSelector", "")))
        for item in items:
            item.pop("apiVersion", None), item.pop("kind", None)
        return {"items": items}

    def post(self, path: str, document: Object, **query: str) -> Object:
        self._ask("POST", path)
        if path == REVIEWS:
            asked = document["spec"]["resourceAttributes"]
            return {"status": {"allowed": f"{asked['verb']} {asked['resource']}" not in self.denied}}
        if query.get("dryRun"):
            return copy.deepcopy(self.dry_run(document))
        place = f"{path}/{document['metadata']['name']}"
        if place in self.objects:
            raise Refused(409, "already exists")
        self._made += 1
        made = copy.deepcopy(document)
        made["metadata"]["uid"] = f"uid-{self._made}"
        self.put(place, {"status": {}, **made}, "ADDED")
        return copy.deepcopy(made)

    def delete(self, path: str, uid: str, *, policy: str = "Foreground") -> None:
        self._ask("DELETE", path)
        there = self.objects.get(path)
        if there is None or there["metadata"]["uid"] != uid:
            return
        if policy == "Foreground" and path.startswith(MAPS):
            # Until the garbage collector has been there.
            there["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z"
            return
        del self.objects[path]
        self.tell(path, "DELETED", there)
        for place, item in list(self.objects.items()):
            if uid in {owner["uid"] for owner in item["metadata"].get("ownerReferences", [])}:
                del self.objects[place]

    def version(self, group: str, known: Any) -> str:
        return "v1beta2"

    @property
    def resource_version(self) -> str:
        """That of all objects together."""
        return str(1 + len(self._events))

    def put(self, path: str, item: Object, kind: str = "MODIFIED") -> None:
        """Make or replace an object, and tell it to those who watch."""
        with self.changed:
            self.objects[path] = item
            self.tell(path, kind, item)

    def tell(self, path: str, kind: str, item: Object) -> None:
        with self.changed:
            item["metadata"]["resourceVersion"] = str(2 + len(self._events))
            self._events.append((path, {"type": kind, "object": item}))
            self.changed.notify_all()

    def events(self, path: str, version: str) -> Iterator[Object]:
        """The events of a collection behind this version, until `close`."""
        number = int(version) - 1
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.closed or len(self._events) > number)  # noqa: B023 - called at once
                if self.closed:
                    return
                place, event = self._events[number]
            number += 1
            if place.startswith(f"{path}/"):
                yield event

    def close(self) -> None:
        with self.changed:
            self.closed = True
            self.changed.notify_all()

    def awaited(self, request: Any, call: Callable[[], Any]) -> Any:
        return call()

    def read(self, path: str, **_: Any) -> bytes:
        self._ask("GET", path)
        return self.logs.get(path, b"")

    def ask_release(self) -> str:
        return self.release

    def names(self, path: str) -> list[str]:
        """What is there, by the last word of its name."""
        return [place.rpartition("-")[2] for place in self.objects if place.startswith(f"{path}/")]

    def claim(self) -> None:
        """The set-up's claim, ready for use."""
        self.objects[f"{CLAIMS}/shared-storage-pvc"] = {
            "metadata": {"name": "shared-storage-pvc", "uid": "claim"},
            "spec": {"accessModes": ["ReadWriteMany"]},
            "status": {"phase": "Bound"},
        }

    def over(self, stage: str, condition: str = "Complete") -> None:
        """A stage's Job ends."""
        (job,) = (
            item for place, item in self.objects.items() if place.endswith(f"-{stage}") and JOBS in place
        )
        job["status"]["conditions"] = [
            {"type": condition, "status": "True", "reason": "BackoffLimitExceeded", "message": "it failed"}
        ]

    def pods(self, stage: str, **status: Any) -> list[str]:
        """Two pods of a stage, with this status; their names."""
        (owner,) = (
            item for place, item in self.objects.items() if place.endswith(f"-{stage}") and JOBS in place
        )
        job = owner["metadata"]["name"]
        names = [f"{job}-{number}-abcde" for number in range(2)]
        for name in names:
            self.objects[f"{PODS}/{name}"] = {
                "metadata": {
                    "name": name,
                    "ownerReferences": [{"kind": "Job", "name": job, "uid": owner["metadata"]["uid"]}],
                    "creationTimestamp": "2026-11-21T10:00:00Z",
                    "labels": {"batch.kubernetes.io/job-name": job},
                },
                "spec": {"nodeName": "aks-1"},
                "status": {"phase": "Running", **status},
            }
        return names

    def refuse(self, method: str, path: str, error: Exception | None, times: int = 1 << 30) -> None:
        """Answer the next so many of these requests, also those for objects of a collection, with an error; all if "" is given."""
        left = [times]

        def before(asked: str, place: str) -> None:
            if (
                method in ("", asked)
                and f"{place}/".startswith(f"{path}/")
                and left[0] > 0
                and error is not None
            ):
                left[0] -= 1
                raise error

        self.before = before

    def _ask(self, method: str, path: str) -> None:
        self.asked.append((method, path))
        self.before(method, path)


def picked(objects: dict[str, Object], path: str, selector: str = "") -> list[Object]:
    """Those of a collection that have this label."""
    key, _, value = selector.partition("=")
    items = [item for place, item in objects.items() if place.startswith(f"{path}/")]
    labels = [item["metadata"].get("labels", {}) for item in items]
    return [
        item
        for item, has in zip(items, labels, strict=True)
        if not key or (key in has and value in ("", has[key]))
    ]


class Watch:
    """Stands in for `Informer`: what is in memory now, without waiting."""

    def __init__(self, memory: Memory, path: str, selector: str) -> None:
        self._memory, self._path, self._selector = memory, path, selector
        self._seen: dict[str, Object] = {}

    def look(self) -> Copy:
        self._memory._ask("LIST", self._path)
        objects, deleted = (
            {item["metadata"]["name"]: item for item in picked(there, self._path, self._selector)}
            for there in (self._memory.objects, self._memory.deleted)
        )
        order = {item["metadata"]["uid"]: number for number, item in enumerate(deleted.values(), 1)}
        self._seen = objects
        return Copy(objects, deleted, order)

    def last_known(self, name: str) -> Object | None:
        return self._seen.get(name)

    def close(self) -> None:
        """Nothing is open."""


def setup(memory: Memory, **values: str) -> Provisioner:
    """The shipped set-up in the namespace `runs`, asked about anew at every look."""
    section = gpt3_setup.section(values={"files": "40", "parts": "40", "chunks": "2", **values})
    made = Provisioner("lab", memory, section, gpt3_setup.recipe())  # type: ignore[arg-type]
    made.read_seconds = 0
    return made


class Handler(BaseHTTPRequestHandler):
    """A connection to the server `to`."""

    to: Server
    body = b""
    protocol_version = "HTTP/1.1"
    # Headers and body go in one piece: a second one would wait for the client's delayed acknowledgement.
    wbufsize = -1

    def setup(self) -> None:
        super().setup()
        self.to.connections.append(self.connection)

    def do_GET(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.to.respond(self)

    do_POST = do_DELETE = do_GET  # noqa: N815 - as BaseHTTPRequestHandler wants them

    def answer(self, status: int, document: Any, **headers: str) -> None:
        """`document` is bytes, or what is written as JSON."""
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.begin(status, Content_Length=str(len(body)), **headers)
        self.wfile.write(body)

    def begin(self, status: int, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.flush()

    def begin_chunks(self) -> bool:
        self.begin(200, Transfer_Encoding="chunked")
        return True

    def chunk(self, data: bytes) -> None:
        """One more piece; an empty one is the end."""
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()

    def log_message(self, *_: Any) -> None:
        pass


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, *_: Any) -> None:
        """Who asks may not wait for the answer."""


class Server:
    """Answers each request over HTTP (status and body): by its method with one of `answers`, or else with `answer`.

    Keeps the Authorization and the path of each.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.paths: list[str] = []
        # The headers by which its user acted as another one.
        self.impersonated: list[tuple[str, str]] = []
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.answer: Callable[[str], tuple[int, bytes]] = lambda authorization: (200, b'{"items": []}')
        self.connections: list[socket.socket] = []
        self._listener = _Listener(("127.0.0.1", 0), type("Bound", (Handler,), {"to": self}))
        self.url = f"http://127.0.0.1:{self._listener.server_address[1]}"
        threading.Thread(target=self._listener.serve_forever, args=(0.01,), daemon=True).start()

    def respond(self, request: Handler) -> None:
        authorization = request.headers.get("Authorization", "")
        self.asked.append(authorization)
        self.paths.append(request.path)
        self.impersonated = [pair for pair in request.headers.items() if "Impersonate" in pair[0]]
        request.answer(*(self.answers.get(request.command) or self.answer(authorization)))

    def close(self) -> None:
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._listener.shutdown()
        self._listener.server_close()


def kubeconfig(path: Path, server: str, user: Object | None = None, **cluster: Any) -> Path:
    """A kubeconfig of one context, as this user."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "one", "user": "me"}}],
        "clusters": [{"name": "one", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "me", "user": user or {"token": "ONE"}}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


def node(name: str, *taints: Object, ready: str = "True", **resources: str) -> Object:
    """A node with what of `BOTH` is not changed."""
    there = {"cpu": "96", "pods": "110", **BOTH, **{key.replace("_", "/"): n for key, n in resources.items()}}
    conditions = [{"type": "Ready", "status": ready}]
    return {
        "metadata": {"name": name},
        "spec": {"taints": list(taints)},
        "status": {"capacity": there, "allocatable": there, "conditions": conditions},
    }
