"""Making a job: which answers of the API server are refusals, and what is told of them.

The answers are those of Kubernetes 1.36. A failed webhook is an InternalError
(apiserver/pkg/admission/plugin/webhook/mutating/dispatcher.go, apimachinery/pkg/api/errors NewInternalError). A webhook
that denies chooses the status (apiserver/pkg/admission/plugin/webhook/errors/statuserror.go). Errors of etcd
(api/v3rpc/rpctypes/error.go) are passed on with status 500 and without a reason
(apiserver/pkg/endpoints/handlers/responsewriters/status.go).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures.backends.kubernetes import preflight
from fixtures.backends.kubernetes.api import Api, Refused
from fixtures.backends.kubernetes.jobset import JobSets
from fixtures.backends.kubernetes.section import Kubernetes
from fixtures.backends.kubernetes.submit import Creator
from plugins.base.errors import Busy, SubmitError, Unreachable
from plugins.record.job import JobRef
from tests.unit.kubeapi import Server, kubeconfig

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


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


Create = Callable[[], Any]


@pytest.fixture
def api(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """The way to the server. Time passes only by the pauses between the requests, at once."""
    passed = [0.0]
    began = time.monotonic()

    def sleep(seconds: float) -> None:
        passed[0] += seconds

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: began + passed[0])
    made = Api("lab", Kubernetes(gpu="h100", kubeconfig=str(kubeconfig(tmp_path / "config", server.url))))
    yield made
    made.close()


@pytest.fixture
def create(api: Api) -> Create:
    """Make a JobSet."""
    creator = Creator(api, "default", lambda job: None)
    return lambda: creator.create(JobSets(), [dict(JOBSET)], time.monotonic() + 20)


@pytest.mark.parametrize(
    ("answer", "words", "mend"),
    [
        (internal(DEAD), "connection refused", "kubectl get pods -n jobset-system"),
        (
            internal(f'{CALL}no endpoints available for service "jobset-webhook-service"'),
            "no endpoints available",
            "jobset-webhook-service",
        ),
        (
            internal(f"{CALL}tls: failed to verify certificate: x509: certificate has expired or is not yet valid"),
            "certificate has expired",
            "jobset-webhook-service",
        ),
        (
            internal('failed calling webhook "gate.example.com": failed to call webhook: Post "https://gate.example.com/v": EOF'),
            "EOF",
            "kubectl get mutatingwebhookconfigurations,validatingwebhookconfigurations",
        ),
        (internal("jsonpatch add operation does not apply: doc is missing path: /spec"), "jsonpatch", ""),
        # A webhook whose own request failed denies with status 500 (controller-runtime, admission.Errored).
        (status(500, 'admission webhook "mjobset.kb.io" denied the request: no cache'), "no cache", ""),
        (status(429, 'admission webhook "gate" denied the request: too many jobs'), "too many jobs", ""),
        (status(503, 'admission webhook "gate" denied the request: closed'), "closed", ""),
        (status(500, "etcdserver: request is too large"), "too large", "`environment`"),
        (
            status(500, "rpc error: code = ResourceExhausted desc = trying to send message larger than max (3 vs. 2)"),
            "larger than max",
            "`environment`",
        ),
        (status(413, "Request entity too large: limit is 3145728", "RequestEntityTooLarge"), "limit is", "`environment`"),
        (status(500, "etcdserver: mvcc: database space exceeded"), "space exceeded", "defragment"),
        (
            status(
                403,
                'jobsets.jobset.x-k8s.io "pm-1" is forbidden: unable to create new content in namespace default because it '
                "is being terminated",
                "Forbidden",
            ),
            "is being terminated",
            "`namespace`",
        ),
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
        status(500, "etcdserver: leader changed"),
        status(503, "the server is currently unable to handle the request", "ServiceUnavailable"),
        status(504, "Timeout: request did not complete within requested timeout", "Timeout"),
        status(429, "too many requests, please try again later", "TooManyRequests"),
        (500, b"Internal Server Error"),
        (502, b"<html>denied the request</html>"),
        (500, b'"Internal error occurred"'),
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
    answers = iter([LOST, status(400, 'admission webhook "gate" denied the request: one at a time')])
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
    full = status(
        403, 'configmaps "pm-1" is forbidden: exceeded quota: few, requested: count/configmaps=1', "Forbidden"
    )
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


def test_a_review_that_fails_says_nothing_of_a_permission(server: Server, api: Api) -> None:
    server.answers = {"POST": internal("authorizer is down")}
    with pytest.raises((Unreachable, Refused), match="authorizer is down"):
        preflight.refused(api, "default", JobSets.rules)
