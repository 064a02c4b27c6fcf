"""An API server on loopback, and the way to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fixtures.backends.kubernetes.api import Api
from fixtures.backends.kubernetes.section import Kubernetes
from tests.unit.kubeapi import Server, kubeconfig


@pytest.fixture
def server() -> Iterator[Server]:
    with closing(Server()) as made:
        yield made


@pytest.fixture
def api(server: Server, tmp_path: Path) -> Iterator[Api]:
    config = kubeconfig(tmp_path / "config", server.url)
    with closing(Api("lab", Kubernetes(gpu="h100", kubeconfig=str(config)))) as made:
        yield made
