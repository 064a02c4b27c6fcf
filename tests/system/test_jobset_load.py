"""Waiting costs the API server nothing: its own log counts what a session asks."""

from __future__ import annotations

from pathlib import Path

from tests.bench import kube
from tests.lab.k8s.cluster import KubernetesLab

# By what a job needs: its check, JobSet and ConfigMap, its end and its deletion; what all share comes on top.
A_JOB, SHARED = 8, 30


def test_requests_do_not_grow_with_the_time_in_the_queue(
    kubernetes_lab: KubernetesLab, tmp_path: Path
) -> None:
    long = kube.session(kubernetes_lab, tmp_path / "long", 4, wait=12)
    assert long.waiting <= 2, long.requests
    assert long.besides_logs <= SHARED + 4 * A_JOB, long.requests
    assert long.requests["get pods/log"] <= kube.LOGS_A_JOB * long.jobs, long.requests
    assert long.left == 0
