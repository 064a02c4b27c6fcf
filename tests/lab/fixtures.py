"""pytest plugin with the lab's fixtures: load it with `pytest_plugins = ["tests.lab.fixtures"]`."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.lab import accounting, scripted, slurm
from tests.lab.accounting import AccountingLab
from tests.lab.buckets import BucketLab
from tests.lab.k8s import programs
from tests.lab.k8s.cluster import KubernetesLab
from tests.lab.scripted import ScriptedLab
from tests.lab.slurm import SlurmLab

REQUIRE = "PACEMARK_REQUIRE_LABS"


@pytest.fixture(scope="session")
def slurm_parts() -> None:
    """What a lab needs is there; otherwise its tests are skipped with the reason, or fail where labs are required."""
    _require("the Slurm lab", slurm.missing_parts())


@pytest.fixture(scope="session")
def slurm_lab(slurm_parts: None) -> Iterator[SlurmLab]:
    """One cluster of 256 nodes (2048 GPUs) for the session, started by the first test that asks for it.

    Tests share it: each makes its own stage, and leaves no job behind.
    """
    with SlurmLab(nodes=256) as lab:
        yield lab


@pytest.fixture(scope="session")
def accounting_parts() -> None:
    """As `slurm_parts`, with those of accounting."""
    _require("the Slurm lab with accounting", accounting.missing_parts())


@pytest.fixture(scope="session")
def accounting_lab(accounting_parts: None) -> Iterator[AccountingLab]:
    """One cluster of 8 nodes with slurmdbd for the session, started and shared as `slurm_lab` is."""
    with AccountingLab() as lab:
        yield lab


@pytest.fixture(scope="session")
def kubernetes_parts() -> None:
    """Like `slurm_parts`."""
    _require("the Kubernetes lab", programs.missing_parts())


@pytest.fixture(scope="session")
def kubernetes_lab(kubernetes_parts: None) -> Iterator[KubernetesLab]:
    """One cluster of 64 nodes of each cloud (1024 GPUs) for the session, started by the first test that asks for it.

    Tests share it: each makes its own namespace, and leaves no job that runs behind.
    """
    with KubernetesLab(nodes=64) as lab:
        yield lab


@pytest.fixture(scope="session")
def bucket_lab() -> Iterator[BucketLab]:
    """One storage for the session; each test has a bucket of its own."""
    with BucketLab() as lab:
        yield lab


@pytest.fixture(scope="session")
def scripted_log(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The training log that the jobs of the scripted scheduler write."""
    _require("the scripted scheduler", scripted.missing_parts())
    return scripted.training_log(tmp_path_factory.mktemp("scripted-log"))


@pytest.fixture
def scripted_lab(scripted_log: bytes) -> Iterator[ScriptedLab]:
    """A scheduler of the test's own that plays what the test says."""
    with ScriptedLab(scripted_log) as lab:
        yield lab


def _require(what: str, missing: list[str]) -> None:
    if missing:
        reason = f"{what} needs " + "; ".join(missing)
        if os.environ.get(REQUIRE) == "1":
            pytest.fail(f"{reason}; {REQUIRE}=1 forbids to skip it")
        pytest.skip(reason)
