"""Which pod prints the steps: searched for in all of them, whichever can be read."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, cast

import pytest

from fixtures.backends.kubernetes.api import Api
from fixtures.backends.kubernetes.facts import Pod
from fixtures.backends.kubernetes.job_logs import LogPods
from fixtures.backends.kubernetes.pytorchjob import PyTorchJobs
from fixtures.backends.kubernetes.watched import Watched
from plugins.base.errors import Unreachable
from plugins.record.job import JobRef

JOB = JobRef("gpt3_aks", "175b-fp16-512gpus", "run.gpt3_aks-175b", "pm-1", "default")
NAMES = [f"pm-1-worker-{number}" for number in range(4)]
STEP = b" [2026-11-21 09:00:00] iteration       10/     100 | elapsed time per iteration (ms): 75.0 |\n"


class Cluster:
    """The pods of one job. `says` is what each has printed; those in `dead` cannot be read."""

    def __init__(self) -> None:
        self.says: dict[str, bytes] = {}
        self.dead: set[str] = set()
        self.asked: list[str] = []
        self.clock = 0.0
        self.takes = 0.0

    def kind(self, job: JobRef) -> PyTorchJobs:
        return PyTorchJobs()

    def present_pods(self, job: JobRef) -> list[Pod]:
        return [Pod(self._pod(name)) for name in NAMES]

    def read(self, path: str, *, query: Mapping[str, str], attempts: int) -> bytes:
        name = path.split("/")[-2]
        self.asked.append(name)
        if name in self.dead:
            self.clock += self.takes
            raise Unreachable(f"{name}: i/o timeout")
        return self.says.get(name, b"")

    def _pod(self, name: str) -> dict[str, Any]:
        labels = {"training.kubeflow.org/job-name": "pm-1"}
        metadata = {"name": name, "uid": name, "labels": labels, "creationTimestamp": "2026-11-21T09:00:00Z"}
        return {"metadata": metadata, "spec": {}, "status": {"phase": "Running"}}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(time, "monotonic", lambda: made.clock)
    return made


@pytest.fixture
def found(cluster: Cluster) -> LogPods:
    hints = ("pytorch", (b"elapsed time per iteration",))
    made = LogPods(cast(Api, cluster), cast(Watched, cluster), lambda job: hints)
    look(made)
    return made


def look(found: LogPods, *, over: bool = False) -> str:
    pod = found.present(JOB, over=over)
    assert pod is not None
    return pod.name


def test_a_pod_that_cannot_be_read_keeps_no_other_from_being_found(cluster: Cluster, found: LogPods) -> None:
    cluster.dead, cluster.says = {NAMES[2]}, {NAMES[1]: STEP}
    assert look(found) == NAMES[3]
    cluster.clock = 31
    assert look(found) == NAMES[1]
    assert found.unheard(JOB) == ""


def test_a_search_that_did_not_reach_all_is_no_search(cluster: Cluster, found: LogPods) -> None:
    cluster.dead, cluster.says = {NAMES[2]}, {NAMES[2]: STEP}
    for cluster.clock in (31, 62, 93, 124):
        assert look(found) == NAMES[3]
    assert found.unheard(JOB).endswith(f"pod {NAMES[2]} cannot be read: {NAMES[2]}: i/o timeout")
    cluster.dead = set()
    cluster.clock = 155
    assert look(found) == NAMES[2]


def test_nobody_waits_long_for_pods_that_do_not_answer(cluster: Cluster, found: LogPods) -> None:
    cluster.dead, cluster.takes, cluster.clock = set(NAMES), 10, 31
    look(found)
    assert cluster.asked == [NAMES[3], NAMES[2]]
    # The others have their turn before these.
    cluster.clock, cluster.dead = 100, {NAMES[3], NAMES[2]}
    look(found)
    assert cluster.asked[2:4] == [NAMES[1], NAMES[0]]


def test_a_run_that_prints_its_first_line_late_is_still_found(cluster: Cluster, found: LogPods) -> None:
    for cluster.clock in (31, 121, 601, 1202, 1803):
        before = len(cluster.asked)
        assert look(found) == look(found) == NAMES[3]
        assert len(cluster.asked) == before + len(NAMES)
    cluster.says, cluster.clock = {NAMES[0]: STEP}, 2404
    assert look(found) == NAMES[0]


def test_at_the_end_all_are_searched_once_more(cluster: Cluster, found: LogPods) -> None:
    cluster.dead, cluster.says = {NAMES[0]}, {NAMES[0]: STEP}
    assert look(found, over=True) == look(found, over=True) == NAMES[3]
    assert len(cluster.asked) == len(NAMES)
    cluster.dead, cluster.clock = set(), 6
    assert look(found, over=True) == NAMES[0]
    assert found.unheard(JOB) == ""


def test_where_no_pod_has_printed_a_step_the_end_is_the_last_search(cluster: Cluster, found: LogPods) -> None:
    for cluster.clock in (1, 100, 1000):
        look(found, over=True)
    assert len(cluster.asked) == len(NAMES)
