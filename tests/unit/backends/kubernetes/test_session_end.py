"""The end of a session, Ctrl-C or otherwise, on a cluster whose API server is dark, throttles, is slow or refuses to delete."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

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
from tests.unit.kubeapi import PODS, Handler, Memory, Object, Server, picked

CASE = examples.case("70b-fp8-128gpus", "llama3_gke")
JOBSETS = JobSets().path("runs")
# Longer than any test: what is not cut off does not return.
FOREVER = 3600.0
DENIED = 'admission webhook "keep.example" denied the request: this queue is frozen'


class Apiserver(Server):
    """Serves objects in memory and their watches. `fault` may answer in its place."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = Memory()
        self.requests: list[str] = []
        self.released = threading.Event()
        self.fault: Fault = lambda server, request: False

    def close(self) -> None:
        self.released.set()
        self.memory.close()
        super().close()
        # Those who were not waited for end now, but for one that pauses.
        for thread in threading.enumerate():
            if thread.name.startswith(("GET ", "POST ", "DELETE ", "watch ", "log ")):
                thread.join(0.2)

    def asked_for(self, words: str) -> int:
        """How many requests there were that begin, or end, like this."""
        return sum(line.startswith(words) or line.endswith(words) for line in self.requests)

    def job(self) -> tuple[str, Object]:
        """The one job's path and object."""
        (found,) = (pair for pair in self.memory.objects.items() if pair[0].startswith(f"{JOBSETS}/"))
        return found

    def respond(self, request: Handler) -> None:
        path, _, options = request.path.partition("?")
        query, memory = dict(parse_qsl(options)), self.memory
        self.requests.append(f"{request.command} {path}")
        if self.fault(self, request):
            return
        if query.get("watch"):
            self._watch(request, path, query)
        elif request.command == "POST":
            document = json.loads(request.body)
            document["metadata"]["creationTimestamp"] = "2026-11-21T10:00:00Z"
            request.answer(201, memory.post(path, document, **query))
        elif request.command == "DELETE":
            memory.delete(path, json.loads(request.body)["preconditions"]["uid"])
            request.answer(200, {"kind": "Status", "status": "Success"})
        elif path in memory.objects:
            request.answer(200, memory.objects[path])
        elif path == "/version":
            request.answer(200, {"gitVersion": "v1.34.1"})
        elif path.rpartition("/")[2] in ("jobsets", "pods", "events", "configmaps"):
            version = {"resourceVersion": memory.resource_version}
            request.answer(200, {**memory.get(path, **query), "metadata": version})
        else:
            request.answer(404, {"kind": "Status", "reason": "NotFound"})

    def _watch(self, request: Handler, path: str, query: dict[str, str]) -> None:
        request.close_connection = request.begin_chunks()
        for event in self.memory.events(path, query["resourceVersion"]):
            if picked({f"{path}/": event["object"]}, path, query.get("labelSelector", "")):
                request.chunk(json.dumps(event).encode() + b"\n")


Fault = Callable[[Apiserver, Handler], bool]


def dark(server: Apiserver, request: Handler) -> bool:
    """No answer at all, as behind a firewall that drops packets."""
    return server.released.wait(FOREVER)


def answering(status: int, document: Any, **headers: str) -> Fault:
    def fault(server: Apiserver, request: Handler) -> bool:
        request.answer(status, document, **headers)
        return True

    return fault


throttled = answering(429, {"kind": "Status", "message": "too many requests"}, Retry_After=str(int(FOREVER)))
broken = answering(500, {"kind": "Status", "message": "etcdserver: leader changed"})
# As a proxy answers whose session has expired.
login_page = answering(200, b"Please login")


def slow(server: Apiserver, request: Handler) -> bool:
    """An answer that never ends."""
    request.begin(200, Content_Length=str(1 << 20))
    while not server.released.wait(0.05):
        request.wfile.write(b" ")
        request.wfile.flush()
    return True


def pods_forbidden(server: Apiserver, request: Handler) -> bool:
    """The right to list pods was taken away. Whether any are left is not known."""
    fault = answering(403, {"kind": "Status", "reason": "Forbidden", "message": "cannot list pods"})
    return request.command != "DELETE" and request.path.startswith(PODS) and fault(server, request)


def refusing(server: Apiserver, request: Handler) -> bool:
    fault = answering(403, {"kind": "Status", "reason": "Forbidden", "message": DENIED})
    return request.command == "DELETE" and fault(server, request)


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
    for looks in ("fixtures.fleet.ending.LOOK_SECONDS", "fixtures.runs.unconfirmed.LOOK_SECONDS"):
        monkeypatch.setattr(looks, 0.05)
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


def was_cancelled(server: Apiserver, session: Session) -> bool:
    """Whether the session's end ended its job."""
    entry, _ = ended(session)
    return not server.memory.objects and "was cancelled" in entry.message


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
    until(lambda: session.entries()[CASE.id].state.raw != "")


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (dark, ["no answer before the session's end"]),
        (slow, ["no answer before the session's end"]),
        (throttled, ["429: too many requests"]),
        (broken, ["500: etcdserver: leader changed"]),
        (login_page, ["DELETE", "the answer is not an API server's: 'Please login'"]),
        (pods_forbidden, ["403: cannot list pods"]),
        (refusing, [f"cannot be deleted: DELETE {JOBSETS}/", f"403: {DENIED}"]),
    ],
    ids=["dark", "slow", "throttled", "500", "page", "pods", "refused"],
)
def test_the_end_of_a_session_is_bounded_and_says_why_a_job_is_not_known_to_be_over(
    server: Apiserver, session: Session, fault: Fault, words: list[str]
) -> None:
    """`cancel_seconds` is the bound. It was exceeded by each request that went on, and by its repetitions."""
    followed(server, session)
    server.fault = fault
    entry, said = ended(session)
    assert entry.failure == "interrupted"
    assert entry.may_run
    assert "was asked to end, which is NOT confirmed (" in entry.message
    assert all(word in entry.message for word in words)
    assert entry.message in said
    assert "cannot be asked" not in said
    assert server.asked_for("DELETE ")


@pytest.mark.parametrize("session", [20], indirect=True)
@pytest.mark.parametrize("fault", [slow, throttled], ids=["slow", "throttled"])
def test_a_question_that_was_asked_before_the_end_is_not_waited_for(
    server: Apiserver, session: Session, fault: Fault
) -> None:
    """The job is there, and the first list of jobs hangs. Its end is asked for all the same."""
    hangs = threading.Event()

    def hang(server: Apiserver, request: Handler) -> bool:
        if request.path.partition("?")[0] != JOBSETS or request.command != "GET":
            return False
        hangs.set()
        return fault(server, request)

    server.fault = hang
    session.fleet.start()
    assert hangs.wait(60)
    until(lambda: session.entries()[CASE.id].status == "submitted")
    server.fault = lambda *_: False
    assert was_cancelled(server, session)


@pytest.mark.parametrize("session", [20], indirect=True)
@pytest.mark.parametrize("fault", [dark, slow], ids=["dark", "slow"])
def test_a_log_that_is_being_read_is_not_waited_for(
    server: Apiserver, session: Session, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    """The node that has it may be gone."""
    monkeypatch.setattr(follow, "_FIRST_SILENCE", 0.0)
    followed(server, session)
    _, jobset = server.job()
    server.fault = lambda server, request: "/log?" in request.path and fault(server, request)
    for number in range(16):
        running = pod(jobset["metadata"], number)
        server.memory.put(f"{PODS}/{running['metadata']['name']}", running)
    # One request follows the log, and one reads it.
    until(lambda: server.asked_for("/log") >= 2)
    assert was_cancelled(server, session)


def pod(job: Object, number: int) -> Object:
    """A pod of a job, by the job's metadata; it runs."""
    labels = {
        **job["labels"],
        "jobset.sigs.k8s.io/jobset-name": job["name"],
        "jobset.sigs.k8s.io/jobset-uid": job["uid"],
        "batch.kubernetes.io/job-completion-index": str(number),
    }
    names: Object = {"name": f"{job['name']}-{number}", "uid": f"pod-{number}", "namespace": "runs"}
    owners = [{"uid": job["uid"]}]
    made = {"labels": labels, "creationTimestamp": "2026-11-21T10:00:00Z", "ownerReferences": owners}
    return {"metadata": names | made, "spec": {"nodeName": "node-0"}, "status": {"phase": "Running"}}


@pytest.mark.parametrize("fault", [dark, broken], ids=["dark", "500"])
def test_a_submission_that_gets_no_answer_does_not_hold_up_the_end(
    server: Apiserver, session: Session, fault: Fault
) -> None:
    server.fault = lambda server, request: bool(server.asked_for("POST ")) and fault(server, request)
    session.fleet.start()
    until(lambda: server.asked_for("POST ") > 0)
    entry, _ = ended(session)
    assert (entry.failure, entry.may_run) == ("interrupted", True)
    assert "its submission was never answered: look for a job named" in entry.message
    # Nothing is submitted any more once the session has ended.
    posts = server.asked_for("POST ")
    server.fault = lambda *_: False
    time.sleep(0.5)
    assert server.asked_for("POST ") == posts


@pytest.mark.parametrize("session", [20], indirect=True)
def test_an_answer_is_waited_for_until_the_end_if_it_changes_something(
    server: Apiserver, session: Session
) -> None:
    """The submission was sent before the session was told to end: its answer comes a moment later."""
    sent, goes_on = threading.Event(), threading.Event()

    def late(_: Apiserver, request: Handler) -> bool:
        if request.command == "POST":
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
    assert was_cancelled(server, session)
