"""The end of a session, Ctrl-C or otherwise, on a cluster whose API server is dark, throttles, is slow or refuses to delete."""

from __future__ import annotations

import contextlib
import json
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fixtures.backends.kubernetes import api, follow
from fixtures.backends.kubernetes.backend import KubernetesBackend
from fixtures.backends.kubernetes.connection import Connection
from fixtures.backends.kubernetes.jobset import JobSets
from fixtures.backends.kubernetes.section import Kubernetes
from fixtures.backends.section import Workload
from fixtures.fleet.state import Policy
from plugins.record.job import Job
from tests.unit import examples, kubeapi
from tests.unit.cluster import Session, told, until
from tests.unit.kubeapi import PODS

CASE = examples.case("70b-fp8-128gpus", "llama3_gke")
JOBSETS = JobSets().path("runs")
# Longer than any test: what is not cut off does not return.
FOREVER = 3600.0
DENIED = 'admission webhook "keep.example" denied the request: this queue is frozen'


class Apiserver:
    """Keeps objects, and answers lists, watches, creations and deletions. `fault` may answer in its place."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []
        self.connections: list[socket.socket] = []
        self.released = threading.Event()
        self.fault: Callable[[Handler], bool] = lambda handler: False
        self.changed = threading.Condition()
        self.events: list[tuple[str, dict[str, Any]]] = []
        self._server = _Quiet(("127.0.0.1", 0), Handler)
        self._server.kept = self
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.released.set()
        with self.changed:
            self.changed.notify_all()
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        # Those who were not waited for end now, but for one that pauses.
        for thread in threading.enumerate():
            if thread.name.startswith(("GET ", "POST ", "DELETE ", "watch ", "log ")):
                thread.join(2)
        self._server.shutdown()
        self._server.server_close()

    def change(self, path: str, kind: str, item: dict[str, Any]) -> None:
        with self.changed:
            item["metadata"]["resourceVersion"] = str(len(self.events) + 2)
            if kind == "DELETED":
                del self.objects[path]
                for place in [place for place, owned in self.objects.items() if is_owned(owned, item)]:
                    del self.objects[place]
            else:
                self.objects[path] = item
            self.events.append((path, {"type": kind, "object": item}))
            self.changed.notify_all()


def is_owned(item: dict[str, Any], owner: dict[str, Any]) -> bool:
    owners = item["metadata"].get("ownerReferences", [])
    return owner["metadata"]["uid"] in [each["uid"] for each in owners]


class _Quiet(ThreadingHTTPServer):
    kept: Apiserver
    daemon_threads = True
    block_on_close = False

    def handle_error(self, *_: Any) -> None:
        """Who asks may not wait for the answer."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def setup(self) -> None:
        super().setup()
        self.kept.connections.append(self.connection)

    @property
    def kept(self) -> Apiserver:
        assert isinstance(self.server, _Quiet)
        return self.server.kept

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path, _, query = self.path.partition("?")
        self.kept.asked.append(f"{self.command} {path}")
        if self.kept.fault(self):
            return
        if "watch=true" in query:
            self._watch(path)
            return
        items = [item for place, item in self.kept.objects.items() if place.startswith(f"{path}/")]
        version = str(len(self.kept.events) + 1)
        if self.command == "POST":
            item = json.loads(body)
            item["metadata"]["uid"] = item["metadata"]["name"]
            item["metadata"]["creationTimestamp"] = "2026-11-21T10:00:00Z"
            if "dryRun" not in query:
                self.kept.change(f"{path}/{item['metadata']['name']}", "ADDED", item)
            self.answer(201, item)
        elif self.command == "DELETE":
            self.kept.change(path, "DELETED", self.kept.objects[path])
            self.answer(200, {"kind": "Status", "status": "Success"})
        elif path in self.kept.objects:
            self.answer(200, self.kept.objects[path])
        elif path == "/version":
            self.answer(200, {"gitVersion": "v1.34.1"})
        elif path.rpartition("/")[2] in ("jobsets", "pods", "events", "configmaps"):
            self.answer(200, {"items": items, "metadata": {"resourceVersion": version}})
        else:
            self.answer(404, {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404})

    def do_GET(self) -> None:
        self._handle()

    def do_POST(self) -> None:
        self._handle()

    def do_DELETE(self) -> None:
        self._handle()

    def answer(self, status: int, document: Any, **headers: str) -> None:
        text = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(text)
        self.wfile.flush()

    def _watch(self, path: str) -> None:
        number = int(self.path.partition("resourceVersion=")[2].partition("&")[0]) - 1
        self.close_connection = True
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        while not self.kept.released.is_set():
            with self.kept.changed:
                while len(self.kept.events) == number and not self.kept.released.is_set():
                    self.kept.changed.wait()
                events, number = self.kept.events[number:], len(self.kept.events)
            for place, event in events:
                # Each label that is asked for is ours, and no test has an object with others alone.
                is_picked = "labelSelector=" not in self.path or event["object"]["metadata"].get("labels")
                if place.startswith(f"{path}/") and is_picked:
                    line = json.dumps(event).encode() + b"\n"
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.flush()

    def log_message(self, *_: Any) -> None:
        pass


def dark(handler: Handler) -> bool:
    """No answer at all, as behind a firewall that drops packets."""
    return handler.kept.released.wait(FOREVER)


def throttled(handler: Handler) -> bool:
    handler.answer(429, {"kind": "Status", "message": "too many requests"}, Retry_After=str(int(FOREVER)))
    return True


def broken(handler: Handler) -> bool:
    handler.answer(500, {"kind": "Status", "message": "etcdserver: leader changed"})
    return True


def slow(handler: Handler) -> bool:
    """An answer that never ends."""
    handler.send_response(200)
    handler.send_header("Content-Length", str(1 << 20))
    handler.end_headers()
    while not handler.kept.released.wait(0.05):
        handler.wfile.write(b" ")
        handler.wfile.flush()
    return True


def login_page(handler: Handler) -> bool:
    """As a proxy answers whose session has expired."""
    handler.send_response(200)
    handler.send_header("Content-Length", "12")
    handler.end_headers()
    handler.wfile.write(b"Please login")
    handler.wfile.flush()
    return True


def pods_forbidden(handler: Handler) -> bool:
    """The right to list pods was taken away. Whether any are left is not known."""
    if handler.command == "DELETE" or not handler.path.startswith(PODS):
        return False
    handler.answer(403, {"kind": "Status", "reason": "Forbidden", "message": "cannot list pods"})
    return True


def refusing(handler: Handler) -> bool:
    if handler.command != "DELETE":
        return False
    handler.answer(403, {"kind": "Status", "reason": "Forbidden", "message": DENIED})
    return True


@pytest.fixture
def server() -> Iterator[Apiserver]:
    made = Apiserver()
    yield made
    made.close()


@pytest.fixture
def session(
    server: Apiserver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Session:
    """A session with one job, whose watch has it. A request is waited for as long as it takes."""
    send = Connection.send
    monkeypatch.setattr(
        Connection, "send", lambda self, request: send(self, replace(request, seconds=FOREVER))
    )
    monkeypatch.setattr(api, "_LONGEST_PAUSE", FOREVER)
    section = Kubernetes(
        gpu="h100",
        namespace="runs",
        kubeconfig=str(kubeapi.kubeconfig(tmp_path / "config", server.url)),
        recipes={"llama3_gke": Workload(values={"image": "registry.test/nemo:1", "bucket": "lab-bucket"})},
    )
    backend = KubernetesBackend("lab", section, [examples.recipe_named("llama3_gke")], JobSets())
    monkeypatch.setattr(backend, "check", lambda case: [])
    seconds = getattr(request, "param", 1)
    return Session(tmp_path, backend, [CASE], Policy(), cancel_seconds=seconds)  # type: ignore[arg-type]


def ended(session: Session) -> tuple[Job, str]:
    """The case and what was said, once the session was told to end; it must return."""
    ends = threading.Thread(target=session.fleet.stop, daemon=True)
    ends.start()
    ends.join(60)
    assert not ends.is_alive(), "the session does not end"
    return session.entries()[CASE.id], "\n".join(told(session))


def followed(server: Apiserver, session: Session) -> None:
    """Until the fleet follows its job."""
    session.fleet.start()
    until(lambda: any(path.startswith(f"{JOBSETS}/") for path in server.objects))
    until(lambda: session.entries()[CASE.id].state.raw != "")


@pytest.mark.parametrize("session", [20], indirect=True)
def test_a_healthy_server_confirms_the_end(server: Apiserver, session: Session) -> None:
    followed(server, session)
    entry, _ = ended(session)
    assert not server.objects
    assert (entry.failure, entry.times.cancel_confirmed is not None) == ("interrupted", True)
    assert "was cancelled" in entry.message


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (dark, "no answer before the session's end"),
        (slow, "no answer before the session's end"),
        (throttled, "429: too many requests"),
        (broken, "500: etcdserver: leader changed"),
        (login_page, "DELETE"),
        (login_page, "the answer is not an API server's: 'Please login'"),
        (pods_forbidden, "403: cannot list pods"),
        (refusing, f"cannot be deleted: DELETE {JOBSETS}/"),
        (refusing, f"403: {DENIED}"),
    ],
    ids=["dark", "slow", "throttled", "500", "page", "its words", "pods", "refused", "reason"],
)
def test_the_end_of_a_session_is_bounded_and_says_why_a_job_is_not_known_to_be_over(
    server: Apiserver, session: Session, fault: Callable[[Handler], bool], words: str
) -> None:
    """`cancel_seconds` is the bound. It was exceeded by each request that went on, and by its repetitions."""
    followed(server, session)
    server.fault = fault
    entry, said = ended(session)
    assert entry.failure == "interrupted"
    assert entry.may_run
    assert "was asked to end, which is NOT confirmed (" in entry.message
    assert words in entry.message
    assert entry.message in said
    assert "cannot be asked" not in said
    assert any(line.startswith("DELETE ") for line in server.asked)


@pytest.mark.parametrize("session", [20], indirect=True)
@pytest.mark.parametrize("fault", [dark, slow, throttled], ids=["dark", "slow", "throttled"])
def test_a_question_that_was_asked_before_the_end_is_not_waited_for(
    server: Apiserver, session: Session, monkeypatch: pytest.MonkeyPatch, fault: Callable[[Handler], bool]
) -> None:
    """The job is there, and the first list of jobs hangs. Its end is asked for all the same."""
    hangs = threading.Event()

    def hang(handler: Handler) -> bool:
        if handler.path.partition("?")[0] != JOBSETS or handler.command != "GET":
            return False
        hangs.set()
        return fault(handler)

    server.fault = hang
    session.fleet.start()
    assert hangs.wait(60)
    until(lambda: session.entries()[CASE.id].status == "submitted")
    server.fault = lambda handler: False
    entry, _ = ended(session)
    assert not server.objects
    assert "was cancelled" in entry.message


def test_a_question_that_is_open_when_a_sweep_goes_on_is_answered(
    server: Apiserver, session: Session
) -> None:
    """A sweep has cancelled the jobs of a run in time, and asks for those that its ledger does not know."""
    asked, goes_on = threading.Event(), threading.Event()

    def late(handler: Handler) -> bool:
        if JOBSETS in handler.path:
            asked.set()
            goes_on.wait(60)
        return False

    server.fault = late
    (controller,) = session.fleet._controllers
    client = controller.backend._api  # type: ignore[attr-defined]
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(client.get(JOBSETS)["items"]))
    thread.start()
    assert asked.wait(60)
    client.end_by(math.inf)
    # Longer than the pause between two looks whether an answer is still waited for.
    thread.join(0.5)
    goes_on.set()
    thread.join(60)
    assert answers == [[]]


@pytest.mark.parametrize("session", [20], indirect=True)
@pytest.mark.parametrize("fault", [dark, slow], ids=["dark", "slow"])
def test_a_log_that_is_being_read_is_not_waited_for(
    server: Apiserver, session: Session, monkeypatch: pytest.MonkeyPatch, fault: Callable[[Handler], bool]
) -> None:
    """The node that has it may be gone."""
    monkeypatch.setattr(follow, "_FIRST_SILENCE", 0.0)
    followed(server, session)
    (jobset,) = (item for path, item in server.objects.items() if path.startswith(f"{JOBSETS}/"))
    server.fault = lambda handler: "/log?" in handler.path and fault(handler)
    for number in range(16):
        running = pod(jobset["metadata"]["name"], number)
        server.change(f"{PODS}/{running['metadata']['name']}", "ADDED", running)
    # One request follows the log, and one reads it.
    until(lambda: sum(line.endswith("/log") for line in server.asked) >= 2)
    entry, _ = ended(session)
    assert not server.objects
    assert "was cancelled" in entry.message


def pod(job: str, number: int) -> dict[str, Any]:
    """A pod of a job whose uid is its name; it runs."""
    labels = {
        "jobset.sigs.k8s.io/jobset-name": job,
        "jobset.sigs.k8s.io/jobset-uid": job,
        "batch.kubernetes.io/job-completion-index": str(number),
    }
    metadata: dict[str, Any] = {
        "name": f"{job}-{number}",
        "uid": f"uid-{number}",
        "namespace": "runs",
        "labels": labels,
    }
    metadata |= {"creationTimestamp": "2026-11-21T10:00:00Z", "ownerReferences": [{"uid": job}]}
    return {"metadata": metadata, "spec": {"nodeName": f"node-{number}"}, "status": {"phase": "Running"}}


@pytest.mark.parametrize("fault", [dark, slow, throttled, broken], ids=["dark", "slow", "throttled", "500"])
def test_a_submission_that_gets_no_answer_does_not_hold_up_the_end(
    server: Apiserver, session: Session, fault: Callable[[Handler], bool]
) -> None:
    server.fault = lambda handler: any(line.startswith("POST ") for line in server.asked) and fault(handler)
    session.fleet.start()
    until(lambda: any(line.startswith("POST ") for line in server.asked))
    entry, _ = ended(session)
    assert (entry.failure, entry.may_run) == ("interrupted", True)
    assert "its submission was never answered: look for a job named" in entry.message
    # Nothing is submitted any more once the session has ended.
    posts = sum(line.startswith("POST ") for line in server.asked)
    server.fault = lambda handler: False
    time.sleep(0.5)
    assert sum(line.startswith("POST ") for line in server.asked) == posts


@pytest.mark.parametrize("session", [20], indirect=True)
def test_an_answer_is_waited_for_until_the_end_if_it_changes_something(
    server: Apiserver, session: Session
) -> None:
    """The submission was sent before the session was told to end: its answer comes a moment later."""
    sent, goes_on = threading.Event(), threading.Event()

    def late(handler: Handler) -> bool:
        if handler.command == "POST":
            sent.set()
            goes_on.wait(60)
        return False

    server.fault = late
    session.fleet.start()
    assert sent.wait(60)
    controller = session.fleet._controllers[0]
    controller.jobs.backend.hurry(time.monotonic() + 60)
    goes_on.set()
    until(lambda: session.entries()[CASE.id].status == "submitted")
    entry, _ = ended(session)
    assert not server.objects
    assert "was cancelled" in entry.message


def test_a_job_that_lost_our_label_is_followed_to_its_end(server: Apiserver, session: Session) -> None:
    """A policy that keeps to its own labels. The watch of our label says that the job was deleted."""
    followed(server, session)
    (path,) = (path for path in server.objects if path.startswith(f"{JOBSETS}/"))
    before = server.objects[path]
    bare = {**before, "metadata": {**before["metadata"], "labels": {}}}
    with server.changed:
        server.change(path, "DELETED", before)
        server.change(path, "MODIFIED", bare)
    done = {"conditions": [{"type": "Completed", "status": "True"}], "terminalState": "Completed"}
    server.change(path, "MODIFIED", {**bare, "status": done})
    until(lambda: session.entries()[CASE.id].state.raw == "Completed")
