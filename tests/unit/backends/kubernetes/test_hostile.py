"""An API server, its proxies, kubelets and pods say anything at all: what follows is the truth or one clear error."""

from __future__ import annotations

import copy
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from google.api_core.exceptions import Forbidden
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.backends.base import LogCopy, LogPlace
from fixtures.backends.kubernetes import connection, job_logs, objects, shape
from fixtures.backends.kubernetes.api import Api, Refused, _pause
from fixtures.backends.kubernetes.blame import broken
from fixtures.backends.kubernetes.connection import Stream
from fixtures.backends.kubernetes.facts import Pod, images_of, is_true
from fixtures.backends.kubernetes.gcs import Storage, Unreadable, Written, fetch
from fixtures.backends.kubernetes.jobset import JobSets
from fixtures.backends.kubernetes.kinds import JobKind
from fixtures.backends.kubernetes.logs import Reading
from fixtures.backends.kubernetes.provision.apply import progress
from fixtures.backends.kubernetes.pytorchjob import PyTorchJobs
from fixtures.backends.kubernetes.section import Kubernetes
from fixtures.backends.kubernetes.states import Seen, state_of, why_not_running
from plugins.base.errors import Unreachable
from plugins.record.job import Phase
from tests.unit import gpt3_setup

SECTION = Kubernetes(gpu="h100", namespace="runs")
WHEN = "2026-11-21T09:00:00Z"


def _metadata(name: str, **more: Any) -> dict[str, Any]:
    labels = {"batch.kubernetes.io/job-completion-index": "0", "jobset.sigs.k8s.io/restart-attempt": "0"}
    return {
        "name": name, "namespace": "runs", "uid": f"uid-{name}", "resourceVersion": "7", "creationTimestamp": WHEN,
        "labels": labels, "annotations": {objects.JOB: "ours"}, **more,
    }  # fmt: skip


JOBSET: dict[str, Any] = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": _metadata("pm-x"),
    "spec": {"suspend": False, "replicatedJobs": [{"replicas": 1, "template": {"spec": {"parallelism": 2}}}]},
    "status": {"restarts": 0, "conditions": [
        {"type": "Completed", "status": "False", "reason": "r", "message": "m", "lastTransitionTime": WHEN},
        {"type": "Failed", "status": "True", "reason": "r", "message": "first failed job: pm-x-0", "lastTransitionTime": WHEN},
    ]},
}  # fmt: skip
PYTORCHJOB: dict[str, Any] = {
    "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": _metadata("pm-y"),
    "spec": {"runPolicy": {"suspend": False}, "pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 1}}},
    "status": {"conditions": [{"type": "Running", "status": "True", "reason": "r", "message": "m"}]},
}  # fmt: skip
POD: dict[str, Any] = {
    "metadata": _metadata("pod-0", deletionTimestamp=WHEN, deletionGracePeriodSeconds=30),
    "spec": {"nodeName": "n1"},
    "status": {
        "phase": "Failed", "reason": "Evicted", "message": "m", "startTime": WHEN,
        "conditions": [{"type": "DisruptionTarget", "status": "False", "reason": "r", "message": "m"}],
        "initContainerStatuses": [{"name": "i", "imageID": "x", "state": {"waiting": {"reason": "PodInitializing"}}}],
        "containerStatuses": [
            {"name": "c", "imageID": f"r/i@sha256:{'a' * 64}", "state": {"terminated": {"exitCode": 1, "reason": "Error", "finishedAt": WHEN}}}
        ],
    },
}  # fmt: skip
NOT_THERE = object()
ODD = st.sampled_from(
    [
        NOT_THERE, None, True, False, 0, -1, 1, 10**30, 1e300, float("inf"), float("nan"), "", "0", "9" * 5000, "²", "1e999", "True", "\ud800", "\0",
        "0000-00-00T00:00:00Z", "0001-01-01T00:00:00Z", "99999-01-01T00:00:00Z", "2026-11-21T09:00:00", "2026-13-45T99:99:99Z", "Unknown", [], {},
        [None], [[]], ["x"], {"a": None}, {"x": {"y": []}},
    ]
)  # fmt: skip


def _paths(document: Any, begin: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if begin:
        yield begin
    keys = (
        document if isinstance(document, dict) else range(len(document)) if isinstance(document, list) else ()
    )
    for key in keys:
        yield from _paths(document[key], (*begin, key))


def spoilt(whole: dict[str, Any]) -> st.SearchStrategy[Any]:
    """A document of the API's with up to three of its fields gone, or of any other type or value."""
    changes = st.lists(st.tuples(st.sampled_from(list(_paths(whole))), ODD), max_size=3)
    return changes.map(partial(_changed, whole))


def _changed(whole: dict[str, Any], changes: list[tuple[tuple[Any, ...], Any]]) -> Any:
    """The document with another value, or none, at each of these paths."""
    document = copy.deepcopy(whole)
    for path, value in changes:
        place = document
        try:
            for key in path[:-1]:
                place = place[key]
            if value is NOT_THERE:
                del place[path[-1]]
            else:
                place[path[-1]] = value
        except (KeyError, IndexError, TypeError):
            # What an earlier one put into its way.
            continue
    return document


def test_gos_zero_time_is_none_and_no_other_of_that_year_is_a_moment() -> None:
    """A provider of virtual nodes writes it of a container that has not ended; Kubernetes itself writes null."""
    document = copy.deepcopy({**POD, "apiVersion": "v1", "kind": "Pod"})
    ended = document["status"]["containerStatuses"][0]["state"]["terminated"]
    ended["finishedAt"] = "0001-01-01T00:00:00Z"
    found = shape.single(shape.parsed(json.dumps(document).encode()))
    assert "finishedAt" not in found["status"]["containerStatuses"][0]["state"]["terminated"]
    ended["finishedAt"] = "0001-06-01T00:00:00Z"
    with pytest.raises(ValueError, match="it is no moment in time"):
        shape.single(shape.parsed(json.dumps(document).encode()))


class Answers(Api):
    """Gets answers of this status, in these chunks."""

    def __init__(self, status: int, *chunks: bytes, stream: Iterable[bytes] = ()) -> None:
        super().__init__("lab", SECTION)
        raw = SimpleNamespace(stream=lambda *_, **__: iter(chunks or stream), close=lambda: None)
        answer = SimpleNamespace(status=status, response=raw, headers={})
        self._connection.send = lambda request: answer  # type: ignore[method-assign]


def _result(ask: Callable[[], Any]) -> Any:
    """What a request brings; None when it says, in one line, that no API server said that."""
    try:
        return ask()
    except Unreachable as error:
        message = str(error)
    assert re.fullmatch("lab: the Kubernetes API: GET /api.*", message)
    return None


def _listed(*documents: Any) -> Any:
    answer = {"kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": list(documents)}
    return _result(lambda: Answers(200, json.dumps(answer).encode()).get("/api/v1/pods")["items"])


JOB = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/runs/jobsets/x"


@settings(max_examples=150)
@given(
    spoilt(JOBSET) | spoilt(PYTORCHJOB), spoilt(POD), spoilt(POD), st.sampled_from([JobSets(), PyTorchJobs()])
)
def test_an_object_of_any_shape_is_a_state_or_no_answer(
    job: Any, one: Any, other: Any, kind: JobKind
) -> None:
    there = _result(lambda: Answers(200, json.dumps(job).encode()).find(JOB))
    listed = _listed(one, other)
    if there is None or listed is None:
        return
    pods = list(map(Pod, listed))
    state = state_of(kind, Seen(there, pods, there, there))
    done = kind.succeeded(there)
    assert (state.phase is Phase.SUCCEEDED) <= (
        done and is_true(there, "Completed" if kind.name == "JobSet" else "Succeeded")
    )
    assert state.phase is not Phase.GONE
    # What goes into the ledger, the record and the reports.
    json.dumps(state.__dict__, ensure_ascii=False).encode()
    kind.child(there), kind.over(there), broken(pods), images_of(pods, "c"), why_not_running(pods)
    for pod in kind.log_pods(pods):
        kind.place(pod, LogPlace())
        job_logs.why_gone(pod)
        storage = SimpleNamespace(read=lambda url: Written(b"", datetime(2026, 11, 21, tzinfo=UTC)))
        fetch(storage, LogCopy(LogPlace(), "gs://b/x", "w"), pod)  # type: ignore[arg-type]
    sorted(pod.age for pod in pods), sorted(pod.place for pod in pods)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"null", b"[]", b"{}", b"17", b'"text"', b"\xff\xfe\x00", b"<html>Sign in</html>", b"9" * 5000, b"NaN", b"[" * 100_000,
        b'{"a":' * 100_000, b'{"kind":"Status","status":"Success"}', b'{"items": 5}', b'{"items": [{}]}', b'{"metadata": {"name": "x"}}',
        b'{"kind":"Status","metadata":{},"status":"Failure","reason":"NotFound"}',
    ],
)  # fmt: skip
def test_an_answer_of_any_other_shape_says_nothing(data: bytes) -> None:
    """Least of all that there are no jobs."""
    api = Answers(200, data)
    asked = (
        lambda: api.find(JOB),
        lambda: api.find("/apis/jobset.x-k8s.io/v1alpha2"),
        lambda: api.get("/api/v1/pods"),
        lambda: api.post("/api/v1/pods", {}),
        lambda: api.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {}),
    )
    for ask in asked:
        with pytest.raises(
            Unreachable,
            match=r"^lab: the Kubernetes API: (GET|POST) .*the answer is not an API server's: .*$",
        ):
            ask()


def test_an_empty_list_may_be_a_null() -> None:
    assert (
        Answers(200, b'{"kind": "PodList", "metadata": {}, "items": null}').get("/api/v1/pods")["items"] == []
    )


@pytest.mark.parametrize(
    "page",
    [b"404 page not found\n", b"<html>404</html>", b"", b'{"kind":"Status","reason":"Gone"}', b"[" * 9999],
)
def test_only_the_server_itself_says_that_an_object_is_gone(page: bytes) -> None:
    """A job that a proxy does not find runs on."""
    with pytest.raises(Unreachable, match="404"):
        Answers(404, page).find(JOB)
    assert Answers(404, b'{"kind": "Status", "reason": "NotFound"}').find(JOB) is None
    assert Answers(404, page).find("/apis/jobset.x-k8s.io/v1alpha2") is None


def test_an_answer_without_an_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield b" " * 1000

    monkeypatch.setattr(connection, "_LONGEST", 100_000)
    with pytest.raises(Unreachable, match="broke off: no end after 101,000 bytes"):
        Answers(200, stream=endless()).get("/api/v1/pods")
    with pytest.raises(Unreachable, match="an event of more than 100,000 bytes"):
        list(Stream(SimpleNamespace(stream=lambda *_, **__: endless()), "lab").events())
    monkeypatch.setattr(connection, "_WHOLE_SECONDS", -1.0)
    with pytest.raises(Unreachable, match="no end after 1,000 bytes"):
        Answers(200, stream=endless()).get("/api/v1/pods")


@given(
    st.lists(
        spoilt({"type": "MODIFIED", "object": POD}) | st.just({"type": "ERROR", "object": {"code": 410}}),
        max_size=3,
    ),
    st.integers(1, 99),
)
def test_the_events_of_a_watch_arrive_whole_or_break_it(events: list[Any], size: int) -> None:
    data = b"".join(json.dumps(event).encode() + b"\n" for event in events)
    chunks = [data[at : at + size] for at in range(0, len(data), size)]
    seen, broke = list[Any](), ""
    try:
        for event in Stream(SimpleNamespace(stream=lambda *_, **__: iter(chunks)), "lab").events():
            seen.append(event)
    except Unreachable as error:
        broke = str(error)
    assert [event["type"] for event in seen] == [event["type"] for event in events[: len(seen)]]
    assert broke.startswith("lab: the watch broke off: ") if broke else len(seen) == len(events)
    for event in seen:
        if event["type"] not in ("ERROR", "BOOKMARK"):
            assert event["object"]["metadata"]["name"]


LOG = ("runs", "pod-0", "c")
STAMPS = ["2026-11-21T09:00:00Z ", "2026-11-21T09:00:00.5+01:00 ", "2026-13-45T99:99:99Z ", "2026-11-21T09:00:00+99:99 ", "0001-01-01T00:00:00Z ",
    "0001-01-01T00:00:00+14:00 ", "9999-12-31T23:59:59-14:00 ", "2026-11-21T09:00:00 ", "\n", "step 1\n", "\r", "\ufffd"]  # fmt: skip


@given(
    st.lists(st.sampled_from(STAMPS) | st.text(max_size=5), max_size=20),
    st.sampled_from(["", "2026-11-21T09:00:00.000000000Z 1 0"]),
)
def test_a_log_with_any_stamps_is_read(said: list[str], mark: str) -> None:
    data = "".join(said).encode()
    place, size = LogPlace("pod-0", mark=mark), 0
    for found in Reading(Answers(200, data), LOG, place):
        place, size = found.place, size + len(found.data)
    assert size <= len(data)
    # And read on from there.
    assert not any(found.data for found in Reading(Answers(200, data), LOG, place))


@pytest.mark.parametrize("number", ["9" * 5000, "-1", "²", "1e9", ""])
def test_what_pods_and_headers_count_is_a_number_or_nothing(number: str) -> None:
    contract = gpt3_setup.contract()
    said = f"pacemark: download {number} of 2: {number} of 3 files".encode()
    assert progress([said], contract.file.data.progress, "download", 2) == "download: starting"
    assert contract.counted(f"pacemark: data: {number} pairs, 0 without index, tokenizer yes") is None
    assert _pause(number, 1) >= 1
    pod = {"metadata": _metadata("pod-0", labels={"jobset.sigs.k8s.io/restart-attempt": number})}
    assert JobSets().place(Pod(pod), LogPlace()).attempt == 1


def test_five_thousand_pods_are_checked_in_no_time() -> None:
    began = time.process_time()
    assert len(_listed(*[POD] * 5000) or []) == 5000
    assert time.process_time() - began < 5


def test_a_refusal_in_any_words_is_told() -> None:
    for body in (b'{"message": 5}', b"[]", b'{"message": "\\ud800"}', b"[" * 9999, b"\xff"):
        with pytest.raises(Refused, match="403"):
            Answers(403, body).find("/api/v1/namespaces/runs/pods/x")


@pytest.mark.parametrize("field", ["size", "time_created"])
@given(value=ODD)
def test_a_bucket_that_tells_anything_of_an_object_has_a_reason_in_words(field: str, value: Any) -> None:
    written, why = datetime(2026, 11, 21, tzinfo=UTC), ""
    blob = SimpleNamespace(size=3, time_created=written, generation=1, reload=lambda **_: None)
    blob.download_as_bytes = lambda **_: b"log"
    setattr(blob, field, None if value is NOT_THERE else value)
    storage = Storage(Path("requirements.txt"))
    storage._client = SimpleNamespace(bucket=lambda _: SimpleNamespace(blob=lambda _: blob))
    try:
        found = storage.read("gs://b/x")
    except Unreadable as error:
        why = str(error)
    else:
        assert found == Written(b"log", written)
    assert why or field == "size"
    assert why.encode().isascii()


@pytest.mark.parametrize("said", [None, "a", {"message": 5}, {"message": "\ud800"}])
def test_a_bucket_that_refuses_in_any_words_answers_at_once(said: Any) -> None:
    refusal = Forbidden("no", errors=[said])

    def refuse(**_: Any) -> None:
        raise refusal

    storage = Storage(Path("requirements.txt"))
    blob = SimpleNamespace(reload=refuse)
    storage._client = SimpleNamespace(bucket=lambda _: SimpleNamespace(blob=lambda _: blob))
    with pytest.raises(Unreadable, match=r"^403: ") as caught:
        storage.read("gs://b/x")
    str(caught.value).encode()
