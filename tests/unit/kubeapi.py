"""Stand-ins for the API server: objects in memory, as far as set-ups ask for them; and one that answers over HTTP."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from fixtures.backends.kubernetes.api import Refused
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


class Memory:
    """Stands in for `Api`. `before` is called with each request's method and path and may raise what the server would.

    All is allowed but what is `denied`, such as `delete jobs`.
    """

    release = "v1.34.1"

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.asked: list[tuple[str, str]] = []
        self.before: Callable[[str, str], None] = lambda method, path: None
        self.logs: dict[str, bytes] = {}
        self.denied: set[str] = set()
        # What would be made of an object.
        self.dry_run: Callable[[Object], Object] = lambda document: document
        self._made = 0

    def find(self, path: str) -> Object | None:
        self._ask("GET", path)
        return copy.deepcopy(self.objects.get(path))

    def get(self, path: str, **query: str) -> Any:
        self._ask("LIST", path)
        key, _, value = query.get("labelSelector", "").partition("=")
        found = [item for place, item in self.objects.items() if place.startswith(f"{path}/")]
        labels = [item["metadata"].get("labels", {}) for item in found]
        fit = [
            {key: value for key, value in copy.deepcopy(item).items() if key not in ("apiVersion", "kind")}
            for item, has in zip(found, labels, strict=True)
            if not key or (key in has and value in ("", has[key]))
        ]
        return {"items": fit}

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
        self.objects[place] = {"status": {}, **made}
        return copy.deepcopy(self.objects[place])

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
        for place, item in list(self.objects.items()):
            if uid in {owner["uid"] for owner in item["metadata"].get("ownerReferences", [])}:
                del self.objects[place]

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

    def _ask(self, method: str, path: str) -> None:
        self.asked.append((method, path))
        self.before(method, path)


def setup(memory: Memory, **values: str) -> Provisioner:
    """The shipped set-up in the namespace `runs`, asked about anew at every look."""
    section = gpt3_setup.section(values={"files": "40", "parts": "40", "chunks": "2", **values})
    made = Provisioner("lab", memory, section, gpt3_setup.recipe())  # type: ignore[arg-type]
    made.read_seconds = 0
    return made


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
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Headers and body go in one piece: a second one would wait for the client's delayed acknowledgement.
            wbufsize = -1

            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                given = self.headers.get("Authorization", "")
                server.asked.append(given)
                server.paths.append(self.path)
                server.impersonated = [pair for pair in self.headers.items() if "Impersonate" in pair[0]]
                status, body = server.answers.get(self.command) or server.answer(given)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                self.do_GET()

            def do_DELETE(self) -> None:
                self.do_GET()

            def log_message(self, *_: Any) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            def handle_error(self, *_: Any) -> None:
                """Who asks may not wait for the answer."""

        self._server = Quiet(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


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
