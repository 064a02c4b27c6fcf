"""What a session asks the API server and how often; the copy of a namespace's objects, and what is kept of those that are gone."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent import futures
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from fixtures.backends.base import LogPlace
from fixtures.backends.kubernetes import backend as module
from fixtures.backends.kubernetes import follow, job_states, states
from fixtures.backends.kubernetes.backend import KubernetesBackend
from fixtures.backends.kubernetes.informer import Informer
from fixtures.backends.kubernetes.jobset import JobSets
from fixtures.backends.kubernetes.section import Kubernetes
from fixtures.backends.section import Workload
from plugins.base.errors import Unreachable
from plugins.record.job import JobRef, Phase
from tests.unit import examples, kubeapi
from tests.unit.cluster import until
from tests.unit.kubeapi import PODS, Object

JOBS = 3
CASE = examples.case("70b-fp8-128gpus", "llama3_gke")
NODES = CASE.nodes(8)
JOBSETS = JobSets().path("runs")


class Cluster(kubeapi.Memory):
    """Objects with watches, and a log for each pod. `requests` counts all requests by what they ask for."""

    def __init__(self, *_: object) -> None:
        super().__init__()
        self.requests = Counter[str]()

    def get(self, path: str, **query: str) -> Any:
        with self.changed:
            return {**super().get(path, **query), "metadata": {"resourceVersion": self.resource_version}}

    @contextlib.contextmanager
    def stream(self, path: str, seconds: int, **query: str) -> Iterator[Any]:
        self._ask("WATCH", path)
        events = partial(self.events, path, query["resourceVersion"])
        yield SimpleNamespace(events=events, stop=self.close)

    @contextlib.contextmanager
    def chunks(self, path: str, query: Mapping[str, str], *, silent: float) -> Iterator[Log]:
        follows = query.get("follow") == "true"
        self._ask("FOLLOW" if follows else "READ", path)
        yield Log(follows=follows)

    def _ask(self, method: str, path: str) -> None:
        words = path.split("/")
        kind = next(word for word in words if word in ("jobsets", "pods", "configmaps", "events"))
        if words[-1] == "log":
            kind = "log"
        self.requests[f"{method} {kind}"] += 1
        super()._ask(method, path)


class Log:
    """The log of a pod, of one line. Who follows it gets its end when it stops to follow."""

    def __init__(self, *, follows: bool) -> None:
        self._ended = threading.Event()
        if not follows:
            self.stop()

    def __iter__(self) -> Iterator[bytes]:
        yield b"2026-11-21T09:00:00Z Pod on it is running\n"
        self._ended.wait()

    def stop(self) -> None:
        self._ended.set()


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(module, "Api", lambda *_: made)
    # No log is read because it is silent: how long these threads take says nothing about the requests.
    monkeypatch.setattr(follow, "_FIRST_SILENCE", 600.0)
    monkeypatch.setattr(follow, "_END_SECONDS", 600.0)
    return made


@pytest.fixture
def backend(cluster: Cluster) -> Iterator[KubernetesBackend]:
    values = {"image": "registry.test/nemo:1", "bucket": "lab-bucket"}
    section = Kubernetes(gpu="h100", namespace="runs", recipes={"llama3_gke": Workload(values=values)})
    made = KubernetesBackend("lab", section, [examples.recipe_named("llama3_gke")], JobSets())
    yield made
    made.close()


def pod(job: JobRef, number: int, phase: str) -> Object:
    name = f"{job.id}-workload-0-{number}"
    labels = {
        "jobset.sigs.k8s.io/jobset-name": job.id,
        "jobset.sigs.k8s.io/jobset-uid": job.uid,
        "batch.kubernetes.io/job-completion-index": str(number),
        "app.kubernetes.io/managed-by": "pacemark",
    }
    owners = [{"uid": f"{job.id}-workload-0"}]
    names = {"name": name, "uid": name, "creationTimestamp": "2026-11-21T09:00:00Z"}
    metadata: Object = {**names, "labels": labels, "ownerReferences": owners}
    return {"metadata": metadata, "spec": {"nodeName": f"node-{number}"}, "status": {"phase": phase}}


def put_pods(cluster: Cluster, job: JobRef, phase: str) -> None:
    for number in range(NODES):
        made = pod(job, number, phase)
        cluster.put(f"{PODS}/{made['metadata']['name']}", made)


def complete(cluster: Cluster, job: JobRef) -> None:
    """The job and its pods have ended."""
    put_pods(cluster, job, "Succeeded")
    done = {"conditions": [{"type": "Completed", "status": "True"}]}
    cluster.put(f"{JOBSETS}/{job.id}", {**cluster.objects[f"{JOBSETS}/{job.id}"], "status": done})


def submitted(backend: KubernetesBackend) -> list[JobRef]:
    return [backend.submit(CASE, f"run.{number}") for number in range(JOBS)]


def phases(backend: KubernetesBackend, jobs: Sequence[JobRef]) -> set[Phase]:
    return {state.phase for state in backend.poll(jobs).values()}


def test_a_job_costs_two_objects_a_delete_and_two_requests_for_its_log(
    cluster: Cluster, backend: KubernetesBackend
) -> None:
    jobs = submitted(backend)
    for job in jobs:
        put_pods(cluster, job, "Running")
    assert phases(backend, jobs) == {Phase.RUNNING}
    places = dict.fromkeys(jobs, LogPlace())

    def look() -> set[Phase]:
        for job in jobs:
            places[job] = backend.read_log(job, places[job], ()).place
        return phases(backend, jobs)

    until(lambda: look() == {Phase.RUNNING} and all(place.offset for place in places.values()))
    for _ in range(20):
        assert look() == {Phase.RUNNING}
    for job in jobs:
        put_pods(cluster, job, "Succeeded")
    for _ in range(20):
        look()
    for job in jobs:
        complete(cluster, job)
    until(lambda: look() == {Phase.SUCCEEDED})
    for _ in range(20):
        look()
    assert cluster.requests == {
        **{f"POST {kind}": JOBS for kind in ("jobsets", "configmaps")},
        **{f"{method} {kind}": 1 for kind in ("jobsets", "pods") for method in ("LIST", "WATCH")},
        "FOLLOW log": JOBS,
        "READ log": JOBS,
    }
    assert backend.release(jobs) == {}
    assert cluster.requests["DELETE jobsets"] == JOBS


def test_the_logs_of_jobs_that_have_ended_are_read_at_once_and_so_are_the_jobs_deleted(
    cluster: Cluster, backend: KubernetesBackend
) -> None:
    jobs = submitted(backend)
    for job in jobs:
        complete(cluster, job)
    until(lambda: phases(backend, jobs) == {Phase.SUCCEEDED})
    meeting = threading.Barrier(JOBS, timeout=60)

    def meet(method: str, path: str) -> None:
        """A request is answered only once there is one for each job."""
        if method in ("READ", "DELETE"):
            meeting.wait()

    cluster.before = meet
    places = dict.fromkeys(jobs, LogPlace())
    backend.read_ahead(places)
    backend.read_ahead(places)
    assert all(backend.read_log(job, LogPlace(), ()).data for job in jobs)
    assert backend.release(jobs) == {}
    assert cluster.requests["READ log"] == cluster.requests["DELETE jobsets"] == JOBS


def test_what_was_read_ahead_while_a_job_ran_is_not_the_end_of_its_log(
    cluster: Cluster, backend: KubernetesBackend
) -> None:
    """A fleet that cannot ask about one job leaves what it read ahead of the others to its next round."""
    job = backend.submit(CASE, "run.1")
    put_pods(cluster, job, "Pending")
    until(lambda: phases(backend, [job]) == {Phase.STARTING})
    backend.read_ahead({job: LogPlace()})
    futures.wait([backend._logs._ahead[job.name][-1]])
    complete(cluster, job)
    until(lambda: phases(backend, [job]) == {Phase.SUCCEEDED})
    # The pods have a watch of their own.
    until(lambda: {each.phase for each in backend._watched.present_pods(job)} == {"Succeeded"})
    backend.read_ahead({job: LogPlace()})
    assert backend.read_log(job, LogPlace(), ()).data


def test_a_state_is_worked_out_only_when_an_object_of_its_job_has_changed(
    cluster: Cluster, backend: KubernetesBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    worked_out = Counter[str]()

    def counted(kind: Any, seen: Any) -> Any:
        worked_out[seen.job["metadata"]["name"]] += 1
        return states.state_of(kind, seen)

    monkeypatch.setattr(job_states, "state_of", counted)
    jobs = submitted(backend)
    for job in jobs[1:]:
        put_pods(cluster, job, "Running")
    for _ in range(10):
        seen = backend.poll(jobs)
        assert [seen[job].phase for job in jobs] == [Phase.QUEUED, Phase.RUNNING, Phase.RUNNING]
    assert worked_out == dict.fromkeys((job.id for job in jobs), 1)
    cluster.put(f"{PODS}/{jobs[1].id}-workload-0-0", pod(jobs[1], 0, "Pending"))
    until(lambda: backend.poll(jobs)[jobs[1]].phase is Phase.STARTING)
    assert worked_out == {jobs[0].id: 1, jobs[1].id: 2, jobs[2].id: 1}


# The copy of a namespace's objects


class Feed:
    """Stands in for the API: three objects, two of which are deleted in front of the watch."""

    def __init__(self) -> None:
        # What is there besides, whatever its labels.
        self.there: list[dict[str, Any]] = []
        self.told = threading.Event()
        self._begun = False
        self._over = threading.Event()

    def get(self, path: str, **query: str) -> Any:
        if "fieldSelector" in query:
            field, _, name = query["fieldSelector"].partition("=")
            assert (field, len(query)) == ("metadata.name", 1)
            return {"items": [each for each in self.there if each["metadata"]["name"] == name]}
        items = [item("before", ends=True), item("first"), item("second")]
        if query.get("labelSelector") or not self.there:
            return {"items": items, "metadata": {"resourceVersion": "1"}}
        items = [item("before", ends=True), item("first", ends=True), *self.there]
        return {"items": [*items, item("another's", labels={})], "metadata": {"resourceVersion": "3"}}

    @contextlib.contextmanager
    def stream(self, path: str, seconds: int, **query: str) -> Iterator[Feed]:
        yield self

    def events(self) -> Iterator[dict[str, Any]]:
        if not self._begun:
            self._begun = True
            yield {"type": "MODIFIED", "object": item("first", ends=True)}
            yield {"type": "DELETED", "object": item("second")}
            yield {"type": "MODIFIED", "object": item("before", ends=True)}
            self.told.set()
        self._over.wait(5)

    def stop(self) -> None:
        self._over.set()


LABEL = "app.kubernetes.io/managed-by=pacemark"
OURS = {"app.kubernetes.io/managed-by": "pacemark"}


def item(name: str, *, ends: bool = False, labels: dict[str, str] = OURS, **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "uid": f"uid of {name}", "resourceVersion": "2", "labels": labels}
    return {"metadata": metadata | ({"deletionTimestamp": "2026-11-21T09:00:00Z"} if ends else {}), **more}


@contextlib.contextmanager
def watching(feed: Feed, selector: str) -> Iterator[Informer]:
    with contextlib.closing(Informer(feed, "/apis/any", selector)) as watch:  # type: ignore[arg-type]
        yield watch


def test_a_watch_that_nobody_looked_at_is_closed() -> None:
    Informer(Feed(), "/apis/any", LABEL).close()  # type: ignore[arg-type]


@pytest.mark.parametrize("selector", [LABEL, ""])
def test_only_what_is_ours_is_remembered_when_it_is_gone(selector: str) -> None:
    feed = Feed()
    with watching(feed, selector) as watch:
        watch.look()
        assert feed.told.wait(60)
        copy = watch.look()
        assert list(copy.objects) == ["before", "first"]
        assert list(copy.deleted) == (["second"] if selector else [])
        # The end of one was asked for before anybody watched.
        assert copy.leaving.get("uid of before", 0) == 0
        order = sorted(filter(copy.leaving.get, copy.leaving), key=copy.leaving.__getitem__)
        assert order == (["uid of first", "uid of second"] if selector else [])


def until_there_is(watch: Informer, name: str, **fields: Any) -> None:
    """Until the copy has this object with these fields."""
    deadline = time.monotonic() + 60
    while not fields.items() <= watch.look().objects.get(name, {}).items():
        assert time.monotonic() < deadline, watch.look()
        time.sleep(0.01)


def test_what_lost_our_label_is_followed_on() -> None:
    """A watch with a selector calls it deleted, as it was before (apiserver, storage/cacher/cache_watcher.go, convertToWatchEvent)."""
    feed = Feed()
    feed.there = [item("second", labels={}, phase="Succeeded")]
    with watching(feed, LABEL) as watch:
        watch.look()
        until_there_is(watch, "second", phase="Succeeded")
        copy = watch.look()
        assert sorted(copy.objects) == ["before", "first", "second"]
        assert copy.deleted == {}


def test_another_object_of_the_name_did_not_lose_our_label() -> None:
    feed = Feed()
    feed.there = [again(item("second"))]
    with watching(feed, LABEL) as watch:
        watch.look()
        assert feed.told.wait(60)
        copy = watch.look()
        assert sorted(copy.objects) == ["before", "first"]
        assert list(copy.deleted) == ["second"]


class Blind(Feed):
    """The watch's version is forgotten, and of the two objects one has lost our label meanwhile."""

    def get(self, path: str, **query: str) -> Any:
        listed = super().get(path, **query)
        if self.told.is_set() and query.get("labelSelector"):
            listed["items"].pop()
        return listed

    def events(self) -> Iterator[dict[str, Any]]:
        if not self.told.is_set():
            self.told.set()
            yield {"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}}
        self._over.wait(60)


def test_what_lost_our_label_while_nobody_watched_is_followed_on() -> None:
    feed = Blind()
    feed.there = [item("second", labels={}, phase="Running")]
    with watching(feed, LABEL) as watch:
        watch.look()
        until_there_is(watch, "second", phase="Running")
        assert watch.look().deleted == {}


def again(made: dict[str, Any]) -> dict[str, Any]:
    """Another object of the same name."""
    return {"metadata": {**made["metadata"], "uid": "another"}}


class Forgetful(Feed):
    """An API server, or a proxy in front of it, that answers 410 to every watch."""

    def __init__(self) -> None:
        super().__init__()
        self.lists = 0

    def get(self, path: str, **query: str) -> Any:
        self.lists += 1
        return super().get(path, **query)

    def events(self) -> Iterator[dict[str, Any]]:
        yield {"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}}


def test_a_server_that_forgets_every_version_is_asked_after_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    feed, pauses = Forgetful(), list[float]()
    watch = Informer(feed, "/apis/any", "")  # type: ignore[arg-type]
    enough = threading.Event()

    def wait(seconds: float) -> bool:
        pauses.append(seconds)
        if len(pauses) == 8:
            enough.set()
        return enough.is_set()

    monkeypatch.setattr(watch._ended, "wait", wait)
    monkeypatch.setattr(watch._ended, "is_set", enough.is_set)
    try:
        # What was listed is not in doubt.
        assert list(watch.look().objects) == ["before", "first", "second"]
        assert enough.wait(60)
    finally:
        watch.close()
    assert pauses == [0.25, 0.5, 1, 2, 4, 5, 5, 5]
    assert feed.lists == 8


class Mute(Forgetful):
    """A proxy that holds back the events of each watch until the connection is given up."""

    def get(self, path: str, **query: str) -> Any:
        return {**super().get(path, **query), "items": [item(f"list {self.lists}")]}

    def events(self) -> Iterator[dict[str, Any]]:
        raise Unreachable("the watch broke off: Read timed out")
        yield


def test_a_watch_that_said_nothing_until_it_broke_is_followed_by_a_new_list() -> None:
    feed = Mute()
    watch = Informer(feed, "/apis/any", "")  # type: ignore[arg-type]
    try:
        with contextlib.suppress(Unreachable):
            watch.look()
        deadline = time.monotonic() + 60
        while watch.last_known("list 2") is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        watch.close()
