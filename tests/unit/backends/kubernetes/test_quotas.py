"""Quotas of a namespace against cases. A ResourceQuota is as the API server has it (core/v1, ResourceQuotaSpec)."""

from __future__ import annotations

from typing import Any

import pytest

from fixtures.backends.kubernetes import readiness
from fixtures.backends.kubernetes.api import Refused
from fixtures.backends.kubernetes.section import Kubernetes

Object = dict[str, Any]
POD = {"spec": {"containers": [{"name": "t", "resources": {"limits": {"nvidia.com/gpu": 8, "cpu": 90}}}]}}
NEEDS = {f"of-{pods}": readiness.needs_of([POD, POD], pods) for pods in (16, 8, 2)}


class Server:
    """Stands in for `Api`. Without `quotas` this user may not list them."""

    def __init__(self, *quotas: Object, refused: bool = False) -> None:
        self.quotas, self.refused = quotas, refused

    def get(self, path: str, **query: str) -> Any:
        assert path == "/api/v1/namespaces/default/resourcequotas"
        if self.refused:
            raise Refused(403, "resourcequotas is forbidden")
        return {"items": list(self.quotas)}


def quota(hard: dict[str, str], **spec: Any) -> Object:
    return {
        "metadata": {"name": "team"},
        "spec": {"hard": hard, **spec},
        "status": {"hard": hard, "used": {}},
    }


def missing(*hard: dict[str, str]) -> str:
    server = Server(*(quota(one) for one in hard))
    found = readiness.refusals(server, Kubernetes(gpu="h100"), NEEDS)  # type: ignore[arg-type]
    assert bool(found.ready) == (bool(hard) and not found.missing)
    return "\n".join(found.missing)


@pytest.mark.parametrize(
    ("hard", "said"),
    [
        ({"requests.nvidia.com/gpu": "64"}, "requests.nvidia.com/gpu: 64 of the quota team in namespace default: too little for of-16 (128)\n    mend: "),
        ({"requests.nvidia.com/gpu": "0"}, "requests.nvidia.com/gpu: 0 of the quota team in namespace default: too little for of-16 (128), of-8 (64), of-2 (16)\n"),
        ({"pods": "10"}, "pods: 10 of the quota team in namespace default: too little for of-16 (16)\n"),
        ({"count/pods": "10"}, "count/pods: 10 of the quota team in namespace default: too little for of-16 (16)\n"),
    ],
)  # fmt: skip
def test_a_quota_that_is_too_small_is_told_with_the_cases(hard: dict[str, str], said: str) -> None:
    assert missing(hard).startswith(said)
    assert missing({"pods": "100"}, hard).startswith(said)


@pytest.mark.parametrize(
    "hard",
    [{}, {"requests.nvidia.com/gpu": "128"}, {"pods": "1k"}, {"requests.cpu": "1", "limits.memory": "1Gi"}],
)
def test_a_quota_that_is_large_enough_refuses_nothing(hard: dict[str, str]) -> None:
    assert missing(hard) == ""


def test_what_is_not_compared_is_said() -> None:
    section = Kubernetes(gpu="h100")
    scoped = Server(quota({"pods": "1"}, scopeSelector={"matchExpressions": []}))
    (remark,) = readiness.refusals(scoped, section, NEEDS).remarks  # type: ignore[arg-type]
    assert remark == "the quota team is for some pods only (scopes), and is not compared with the cases"
    (remark,) = readiness.refusals(Server(refused=True), section, NEEDS).remarks  # type: ignore[arg-type]
    assert remark == "not compared with the quotas of namespace default, which this user may not list"
