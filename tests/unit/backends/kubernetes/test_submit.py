"""Making and ending jobs: which answers of the API server are refusals, and what keeps one job from being ended keeps no other.

The answers are those of Kubernetes 1.36. A failed webhook is an InternalError
(apiserver/pkg/admission/plugin/webhook/mutating/dispatcher.go, apimachinery/pkg/api/errors NewInternalError). A webhook
that denies chooses the status (apiserver/pkg/admission/plugin/webhook/errors/statuserror.go). Errors of etcd
(api/v3rpc/rpctypes/error.go) are passed on with status 500 and without a reason
(apiserver/pkg/endpoints/handlers/responsewriters/status.go).
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fixtures.backends.kubernetes import preflight, submit
from fixtures.backends.kubernetes.api import Api, Refused
from fixtures.backends.kubernetes.jobset import JobSets
from fixtures.backends.kubernetes.submit import Creator, Deleter
from fixtures.runs import unconfirmed
from fixtures.runs.ledger import Ledger
from fixtures.runs.unconfirmed import cancel
from plugins.base.errors import Busy, SubmitError, Unreachable
from plugins.record.job import JobRef, JobState, Phase
from tests.unit.cluster import MIDDLE, NARROW, RUNNING, WIDE, Cluster
from tests.unit.jobs_log import planned
from tests.unit.kubeapi import Server

CALL = (
    'failed calling webhook "mjobset.kb.io": failed to call webhook: Post "https://jobset-webhook-service.jobset-system.svc:443/'
    'mutate-jobset-x-k8s-io-v1alpha2-jobset?timeout=10s": '
)
DEAD = f"{CALL}dial tcp 10.96.12.7:443: connect: connection refused"
JOBSET = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "metadata": {"name": "pm-1", "uid": "1", "annotations": {"pacemark/job": "run.x"}},
}


def status(code: int, message: str, reason: str | None = None) -> tuple[int, bytes]:
    """An answer as the API server writes it."""
    made = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
    return code, json.dumps({**made, **({"reason": reason} if reason else {}), "code": code}).encode()


def internal(message: str) -> tuple[int, bytes]:
    return status(500, f"Internal error occurred: {message}", "InternalError")


Create = Callable[[], Any]


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes only by the pauses between the requests, at once."""
    pauses = [time.monotonic()]
    monkeypatch.setattr(time, "sleep", pauses.append)
    monkeypatch.setattr(time, "monotonic", lambda: sum(pauses))


@pytest.fixture
def create(api: Api, pauses: None) -> Create:
    """Make a JobSet."""
    creator = Creator(api, "default", lambda job: None)
    return lambda: creator.create(JobSets(), [dict(JOBSET)], time.monotonic() + 20)


WEBHOOK = "jobset-webhook-service"
ENDS = "unable to create new content in namespace default because it is being terminated"
GATE = 'failed calling webhook "gate.example.com": failed to call webhook: Post "https://gate.example.com/v": EOF'


def denied(code: int, reason: str) -> tuple[int, bytes]:
    return status(code, f'admission webhook "gate" denied the request: {reason}')


@pytest.mark.parametrize(
    ("answer", "words", "mend"),
    [
        (internal(DEAD), "connection refused", "kubectl get pods -n jobset-system"),
        (internal(GATE), "EOF", "kubectl get mutatingwebhookconfigurations,validatingwebhookconfigurations"),
        # A webhook whose own request failed denies with status 500 (controller-runtime, admission.Errored).
        (denied(500, "no cache"), "no cache", ""),
        (status(500, "etcdserver: request is too large"), "too large", "`environment`"),
        (status(500, "rpc error: code = ResourceExhausted desc = message larger than max (3 vs. 2)"), "than max", "`environment`"),
        (status(500, "etcdserver: mvcc: database space exceeded"), "space exceeded", "defragment"),
        (status(403, f'jobsets.jobset.x-k8s.io "pm-1" is forbidden: {ENDS}', "Forbidden"), "is being terminated", "`namespace`"),
        (status(404, 'namespaces "default" not found', "NotFound"), "not found", "`namespace`"),
    ],
)  # fmt: skip
def test_a_refusal_is_told_at_once_in_its_words_whatever_its_status(
    server: Server, create: Create, answer: tuple[int, bytes], words: str, mend: str
) -> None:
    missing = status(404, 'jobsets.jobset.x-k8s.io "pm-1" not found', "NotFound")
    server.answers = {"GET": missing, "POST": answer}
    began = time.monotonic()
    with pytest.raises(SubmitError) as caught:
        create()
    told = str(caught.value)
    assert told.startswith("the cluster refuses JobSet pm-1: ")
    assert words in told
    assert mend in told.partition("\n    mend: ")[2]
    assert ("\n    mend: " in told) == bool(mend)
    assert not caught.value.may_run
    assert time.monotonic() - began < 7


@pytest.mark.parametrize(
    "answer",
    [
        status(500, "etcdserver: request timed out"),
        status(503, "the server is currently unable to handle the request", "ServiceUnavailable"),
        status(429, "too many requests, please try again later", "TooManyRequests"),
        (500, b"Internal Server Error"),
        (502, b"<html>denied the request</html>"),
    ],
)
def test_an_answer_that_leaves_open_what_was_made_is_none(
    server: Server, create: Create, answer: tuple[int, bytes]
) -> None:
    server.answers = {"POST": answer}
    with pytest.raises(Unreachable) as caught:
        create()
    # One that throttles is there.
    assert isinstance(caught.value, Busy) == (answer[0] == 429)


LOST = status(503, "the server is currently unable to handle the request", "ServiceUnavailable")
FORBIDDEN = status(403, 'jobsets.jobset.x-k8s.io is forbidden: User "me" cannot create it', "Forbidden")


def test_a_server_that_forbids_everything_after_a_lost_answer_leaves_open_what_was_made(
    server: Server, create: Create
) -> None:
    """It was restarted, and has not read its roles by the end of the submission."""
    answers = iter([LOST, FORBIDDEN])

    def answer(_: str) -> tuple[int, bytes]:
        time.sleep(15)
        return next(answers)

    server.answers = {"GET": status(404, "not found", "NotFound")}
    server.answer = answer
    with pytest.raises(Unreachable, match="403"):
        create()


@pytest.mark.parametrize("made", [True, False])
def test_a_refusal_after_a_lost_answer_counts_only_if_nothing_was_made(
    server: Server, create: Create, made: bool
) -> None:
    """Admission refuses a second object of the name before the server looks whether there is one."""
    answers = iter([LOST, denied(400, "one at a time")])
    server.answers = {"GET": status(404, "not found", "NotFound")}
    if made:
        server.answers = {"GET": (200, json.dumps(JOBSET).encode())}
    server.answer = lambda _: next(answers)
    if made:
        assert create()["metadata"]["uid"] == "1"
        return
    with pytest.raises(SubmitError, match="one at a time"):
        create()


def test_what_a_job_mounts_is_there_although_a_second_one_would_be_refused(server: Server, api: Api) -> None:
    """A session that goes on completes a job that runs. The quota is full of what the earlier session made."""
    config = {**JOBSET, "apiVersion": "v1", "kind": "ConfigMap"}
    full = status(403, 'configmaps "pm-1" is forbidden: exceeded quota: few', "Forbidden")
    server.answers = {"GET": (200, json.dumps(config).encode()), "POST": full}
    ended = list[JobRef]()
    job, owner = JobRef("llama3_gke", "x", "run.x", "pm-1", kind="JobSet"), {**JOBSET, "kind": "JobSet"}
    Creator(api, "default", ended.append).complete([config], job, owner, time.monotonic())
    assert ended == []


def test_a_look_at_a_taken_name_that_is_refused_leaves_open_whose_it_is(
    server: Server, create: Create
) -> None:
    server.answers = {"GET": FORBIDDEN, "POST": status(409, "already exists", "AlreadyExists")}
    with pytest.raises(Unreachable):
        create()


def test_a_webhook_that_comes_back_within_seconds_costs_no_job(server: Server, create: Create) -> None:
    answers = iter([internal(DEAD), (201, json.dumps(JOBSET).encode())])
    server.answer = lambda _: next(answers)
    assert create()["metadata"]["name"] == "pm-1"


def test_a_job_that_is_there_after_an_internal_error_is_ours(server: Server, create: Create) -> None:
    """The error may come after the object was written, as when its answer cannot be encrypted."""
    server.answers = {"GET": (200, json.dumps(JOBSET).encode()), "POST": internal("unable to transform key")}
    assert create()["metadata"]["uid"] == "1"


# Ending several jobs at once


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


def test_those_that_would_take_long_come_last_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit, "_SLOW_SECONDS", -1.0)
    monkeypatch.setattr(submit, "AT_ONCE", 1)
    cluster = Cautious()
    for _ in range(2):
        with pytest.raises(Unreachable):
            cluster.cancel(JOBS)
    assert cluster.asked == [WIDE.id, MIDDLE.id, NARROW.id, WIDE.id]


def test_the_end_of_the_others_is_confirmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger.create(tmp_path / "jobs.log", "run-1", "lab")
    ledger.plan([planned(case, "jobset", case.id) for case in (WIDE, MIDDLE, NARROW)])
    monkeypatch.setattr(unconfirmed, "LOOK_SECONDS", 0.01)
    assert cancel(Cautious(), ledger, JOBS, 0.1) == {JOBS[0]: DENIED}
    confirmed = {entry.case: entry.times.cancel_confirmed is not None for entry in ledger.entries()}
    assert confirmed == {WIDE.key: False, MIDDLE.key: True, NARROW.key: True}


CONFLICTS = [
    (
        "the UID in the precondition (1) does not match the UID in record (2). The object might have been",
        True,
    ),
    (
        "StorageError: invalid object: Precondition failed: UID in precondition: 1, UID in object meta: 2",
        True,
    ),
    (f'admission webhook "keep.example" denied the request: {DENIED}', False),
    ("the object has been modified; please apply your changes to the latest version and try again", False),
]


@pytest.mark.parametrize(("message", "is_gone"), CONFLICTS)
def test_a_conflict_is_the_end_of_a_job_only_if_its_name_is_anothers(
    server: Server, api: Api, message: str, is_gone: bool
) -> None:
    """A webhook chooses the status of its refusal (apiserver, admission/plugin/webhook/errors/statuserror.go)."""
    server.answers["DELETE"] = status(409, message, "Conflict")
    with contextlib.nullcontext() if is_gone else pytest.raises(Refused, match=re.escape(message)):
        api.delete("/apis/jobset.x-k8s.io/v1alpha2/namespaces/runs/jobsets/pm-1", "1")


@pytest.mark.parametrize("answer", [b"true", b"{}"])
def test_what_a_proxy_answers_does_not_delete_a_job(server: Server, api: Api, answer: bytes) -> None:
    server.answers["DELETE"] = 200, answer
    with pytest.raises(Unreachable, match="DELETE /x: the answer is not an API server's"):
        api.delete("/x", "1")


@pytest.mark.usefixtures("pauses")
def test_a_review_that_fails_says_nothing_of_a_permission(server: Server, api: Api) -> None:
    server.answers = {"POST": internal("authorizer is down")}
    with pytest.raises((Unreachable, Refused), match="authorizer is down"):
        preflight.refused(api, "default", JobSets.rules)
