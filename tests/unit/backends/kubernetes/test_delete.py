"""Ending several jobs at once: what keeps one from being ended keeps no other."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from fixtures.backends.kubernetes import submit
from fixtures.backends.kubernetes.api import Api, Refused
from fixtures.backends.kubernetes.section import Kubernetes
from fixtures.backends.kubernetes.submit import Deleter
from fixtures.runs import unconfirmed
from fixtures.runs.ledger import Ledger
from fixtures.runs.unconfirmed import cancel
from plugins.base.errors import Unreachable
from plugins.record.job import JobRef, JobState, Phase
from tests.unit import kubeapi
from tests.unit.cluster import MIDDLE, NARROW, RUNNING, WIDE, Cluster
from tests.unit.jobs_log import planned

JOBS = [JobRef(case.recipe, case.id, case.id, case.id, "default") for case in (WIDE, MIDDLE, NARROW)]
DENIED = "admission webhook denied the request"


class Cautious(Cluster):
    """Deletes one job after the other, as a Kubernetes backend does; a webhook denies it for the first."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.deleter = Deleter(self._release)

    def _release(self, job: JobRef) -> None:
        self.asked.append(job.name)
        if job == JOBS[0]:
            raise Unreachable(DENIED)
        self.cancelled.add(job.name)

    def cancel(self, jobs: Sequence[JobRef]) -> None:
        for error in self.deleter.ask(jobs).values():
            raise error

    def _state(self, job: JobRef) -> JobState:
        return JobState(Phase.GONE, "not found") if job.name in self.cancelled else RUNNING


def test_a_job_that_cannot_be_deleted_keeps_no_other() -> None:
    cluster = Cautious()
    with pytest.raises(Unreachable, match=DENIED):
        cluster.cancel(JOBS)
    assert cluster.cancelled == {MIDDLE.id, NARROW.id}


def test_a_defect_with_one_job_keeps_no_other() -> None:
    jobs, asked = [JobRef("llama3", "case", f"job-{number}") for number in range(5 * submit.AT_ONCE)], []

    def release(job: JobRef) -> None:
        if job == jobs[0]:
            raise KeyError("metadata")
        time.sleep(0.02)
        asked.append(job)

    with pytest.raises(KeyError, match="metadata"):
        Deleter(release).ask(jobs)
    assert set(asked) == set(jobs[1:])


def test_a_job_that_takes_long_to_fail_keeps_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs, answered = [JobRef("llama3", "case", f"job-{number}") for number in range(40)], threading.Event()
    asked: list[JobRef] = []

    def release(job: JobRef) -> None:
        asked.append(job)
        if job == jobs[0]:
            answered.wait()
            raise Unreachable(DENIED)
        answered.set()

    monkeypatch.setattr(submit, "_SLOW_SECONDS", -1.0)
    monkeypatch.setattr(submit, "AT_ONCE", 2)
    assert list(Deleter(release).ask(jobs)) == [jobs[0]]
    assert sorted(asked, key=jobs.index) == jobs


def test_where_each_would_take_long_the_others_come_first_the_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(submit, "_SLOW_SECONDS", -1.0)
    monkeypatch.setattr(submit, "AT_ONCE", 1)
    cluster = Cautious()
    for _ in range(2):
        with pytest.raises(Unreachable):
            cluster.cancel(JOBS)
    assert cluster.asked == [WIDE.id, MIDDLE.id, NARROW.id, WIDE.id]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger.create(tmp_path / "jobs.log", "run-1", "lab")
    made.plan([planned(case, "jobset", case.id) for case in (WIDE, MIDDLE, NARROW)])
    return made


def test_the_end_of_the_others_is_confirmed(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unconfirmed, "LOOK_SECONDS", 0.01)
    assert cancel(Cautious(), ledger, JOBS, 0.1) == {JOBS[0]: DENIED}
    confirmed = {entry.case: entry.times.cancel_confirmed is not None for entry in ledger.entries()}
    assert confirmed == {WIDE.key: False, MIDDLE.key: True, NARROW.key: True}


@pytest.mark.parametrize(
    ("message", "is_gone"),
    [
        (
            "the UID in the precondition (1) does not match the UID in record (2). The object might have been",
            True,
        ),
        (
            "StorageError: invalid object: Precondition failed: UID in precondition: 1, UID in object meta: 2",
            True,
        ),
        (f'admission webhook "keep.example" denied the request: {DENIED}', False),
        (
            "the object has been modified; please apply your changes to the latest version and try again",
            False,
        ),
    ],
)
def test_a_conflict_is_the_end_of_a_job_only_if_its_name_is_anothers(
    tmp_path: Path, message: str, is_gone: bool
) -> None:
    """A webhook chooses the status of its refusal (apiserver, admission/plugin/webhook/errors/statuserror.go)."""
    server = kubeapi.Server()
    conflict = {"kind": "Status", "reason": "Conflict", "code": 409, "message": message}
    server.answers["DELETE"] = 409, json.dumps(conflict).encode()
    config = kubeapi.kubeconfig(tmp_path / "config", server.url)
    api, refusals = Api("lab", Kubernetes(gpu="h100", kubeconfig=str(config))), list[str]()
    try:
        api.delete("/apis/jobset.x-k8s.io/v1alpha2/namespaces/runs/jobsets/pm-1", "1")
    except Refused as refusal:
        refusals.append(str(refusal))
    finally:
        api.close()
        server.close()
    assert (refusals == []) == is_gone
    assert is_gone or message in refusals[0]


@pytest.mark.parametrize("answer", [b"true", b"null", b"5", b"[]", b"{}", b'"OK"', b"OK"])
def test_what_a_proxy_answers_does_not_delete_a_job(tmp_path: Path, answer: bytes) -> None:
    server = kubeapi.Server()
    server.answers["DELETE"] = 200, answer
    config = kubeapi.kubeconfig(tmp_path / "config", server.url)
    api = Api("lab", Kubernetes(gpu="h100", kubeconfig=str(config)))
    try:
        with pytest.raises(Unreachable, match="DELETE /x: the answer is not an API server's"):
            api.delete("/x", "1")
    finally:
        api.close()
        server.close()
