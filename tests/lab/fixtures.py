"""pytest plugin with the lab's fixtures: load it with `pytest_plugins = ["tests.lab.fixtures"]`."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.lab.slurm import SlurmLab
from tests.lab.slurm import missing_parts

REQUIRE = "PACEMARK_REQUIRE_LABS"


@pytest.fixture(scope="session")
def slurm_parts() -> None:
    """What a lab needs is there; otherwise its tests are skipped with the reason, or fail where labs are required."""
    if missing := missing_parts():
        reason = "the Slurm lab needs " + "; ".join(missing)
        if os.environ.get(REQUIRE) == "1":
            pytest.fail(f"{reason}; {REQUIRE}=1 forbids to skip it")
        pytest.skip(reason)


@pytest.fixture(scope="session")
def slurm_lab(slurm_parts: None) -> Iterator[SlurmLab]:
    """One cluster of 256 nodes (2048 GPUs) for the session, started by the first test that asks for it.

    Tests share it: each makes its own stage, and leaves no job behind.
    """
    with SlurmLab(nodes=256) as lab:
        yield lab
