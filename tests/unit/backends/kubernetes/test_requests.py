"""How often a session asks the API server, and how often it works out a state: exactly as often as something changed."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from itertools import chain
from types import SimpleNamespace
from typing import Any

import pytest

from fixtures.backends.base import LogPlace
from fixtures.backends.kubernetes import backend as module
from fixtures.backends.kubernetes import follow, job_states, reasons, rendering, states
from fixtures.backends.kubernetes.backend import KubernetesBackend
from fixtures.backends.kubernetes.jobset import JobSets
from fixtures.backends.kubernetes.section import Kubernetes
from fixtures.backends.section import Workload
from plugins.base.yaml_text import as_yaml
from plugins.record.job import JobRef, Phase
from tests.unit import examples, kubeapi
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
        self._changed = threading.Condition()
        self._events: list[tuple[str, Object]] = []
        self._closed = False

    def get(self, path: str, **query: str) -> Any:
        with self._changed:
            return {**super().get(path, **query), "metadata": {"resourceVersion": str(1 + len(self._events))}}

    def put(self, path: str, item: Object) -> None:
        """Make or replace an object, and tell it to those who watch."""
        with self._changed:
            item["metadata"]["resourceVersion"] = str(2 + len(self._events))
            self.objects[path] = item
            self._events.append((path, {"type": "MODIFIED", "object": item}))
            self._changed.notify_all()

    @contextlib.contextmanager
    def stream(self, path: str, seconds: int, **query: str) -> Iterator[Watch]:
        self._ask("WATCH", path)
        yield Watch(self, path, int(query["resourceVersion"]) - 1)

    def after(self, path: str, number: int) -> Iterator[Object]:
        """The events of this collection from one of this number on."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or len(self._events) > number)  # noqa: B023 - called at once
                if self._closed:
                    return
                place, event = self._events[number]
            number += 1
            if place.startswith(f"{path}/"):
                yield event

    @contextlib.contextmanager
    def chunks(self, path: str, query: Mapping[str, str], *, silent: float) -> Iterator[Log]:
        follows = query.get("follow") == "true"
        self._ask("FOLLOW" if follows else "READ", path)
        yield Log(follows=follows)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

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


class Watch:
    def __init__(self, cluster: Cluster, path: str, number: int) -> None:
        self._cluster, self._path, self._number = cluster, path, number

    def events(self) -> Iterator[Object]:
        yield from self._cluster.after(self._path, self._number)

    def stop(self) -> None:
        self._cluster.close()


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
    metadata: Object = {"name": name, "uid": name, "labels": labels}
    metadata |= {
        "creationTimestamp": "2026-11-21T09:00:00Z",
        "ownerReferences": [{"uid": f"{job.id}-workload-0"}],
    }
    return {"metadata": metadata, "spec": {"nodeName": f"node-{number}"}, "status": {"phase": phase}}


def put_pods(cluster: Cluster, job: JobRef, phase: str) -> None:
    for number in range(NODES):
        made = pod(job, number, phase)
        cluster.put(f"{PODS}/{made['metadata']['name']}", made)


def phases(backend: KubernetesBackend, jobs: Sequence[JobRef]) -> set[Phase]:
    return {state.phase for state in backend.poll(jobs).values()}


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_job_costs_two_objects_a_delete_and_two_requests_for_its_log(
    cluster: Cluster, backend: KubernetesBackend
) -> None:
    jobs = [backend.submit(CASE, f"run.{number}") for number in range(JOBS)]
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
        there = cluster.objects[f"{JOBSETS}/{job.id}"]
        done = [{"type": "Completed", "status": "True"}]
        cluster.put(f"{JOBSETS}/{job.id}", {**there, "status": {"conditions": done}})
    until(lambda: look() == {Phase.SUCCEEDED})
    for _ in range(20):
        look()
    assert backend.release(jobs) == {}
    assert cluster.requests == {
        **{f"POST {kind}": JOBS for kind in ("jobsets", "configmaps")},
        **{f"{method} {kind}": 1 for kind in ("jobsets", "pods") for method in ("LIST", "WATCH")},
        "FOLLOW log": JOBS,
        "READ log": JOBS,
        "DELETE jobsets": JOBS,
    }


def test_the_logs_of_jobs_that_have_ended_are_read_at_once_and_so_are_the_jobs_deleted(
    cluster: Cluster, backend: KubernetesBackend
) -> None:
    jobs = [backend.submit(CASE, f"run.{number}") for number in range(JOBS)]
    for job in jobs:
        put_pods(cluster, job, "Succeeded")
        done = [{"type": "Completed", "status": "True"}]
        cluster.put(
            f"{JOBSETS}/{job.id}", {**cluster.objects[f"{JOBSETS}/{job.id}"], "status": {"conditions": done}}
        )
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
    put_pods(cluster, job, "Succeeded")
    done = [{"type": "Completed", "status": "True"}]
    cluster.put(
        f"{JOBSETS}/{job.id}", {**cluster.objects[f"{JOBSETS}/{job.id}"], "status": {"conditions": done}}
    )
    until(lambda: phases(backend, [job]) == {Phase.SUCCEEDED})
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
    jobs = [backend.submit(CASE, f"run.{number}") for number in range(JOBS)]
    for job in jobs[1:]:
        put_pods(cluster, job, "Running")
    for _ in range(10):
        seen = backend.poll(jobs)
        assert [seen[job].phase for job in jobs] == [Phase.QUEUED, Phase.RUNNING, Phase.RUNNING]
    assert worked_out == dict.fromkeys((job.id for job in jobs), 1)
    cluster.put(f"{PODS}/{jobs[1].id}-workload-0-0", pod(jobs[1], 0, "Pending"))
    until(lambda: backend.poll(jobs)[jobs[1]].phase is Phase.STARTING)
    assert worked_out == {jobs[0].id: 1, jobs[1].id: 2, jobs[2].id: 1}


def test_the_files_that_jobs_have_in_common_are_written_once(
    backend: KubernetesBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Counter[str]()

    def counted(*documents: Any, **how: Any) -> str:
        written.update(chain.from_iterable(documents))
        return as_yaml(*documents, **how)

    monkeypatch.setattr(rendering, "as_yaml", counted)
    rendering._files.cache_clear()
    plans = {backend.plan(CASE, f"run.{number}") for number in range(JOBS)}
    assert len(plans) == JOBS
    assert (written["data"], written["metadata"]) == (1, 2 * JOBS)


def test_warnings_are_compared_once_with_each_job_that_waits(
    cluster: Cluster, backend: KubernetesBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, compared = [0.0], Counter[str]()
    why_missing = reasons.why_missing

    def counted(events: Any, awaited: Any) -> Any:
        compared.update(name for kind, name in awaited.makers if kind == "JobSet")
        return why_missing(events, awaited)

    monkeypatch.setattr(reasons, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(reasons, "why_missing", counted)
    jobs = [backend.submit(CASE, f"run.{number}") for number in range(JOBS)]
    assert phases(backend, jobs) == {Phase.QUEUED}
    for clock[0] in (10.0, 11.0, 12.0, 13.0):
        assert phases(backend, jobs) == {Phase.QUEUED}
    assert compared == dict.fromkeys((job.id for job in jobs), 1)
    assert cluster.requests["LIST events"] == 1
