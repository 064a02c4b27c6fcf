"""Fixtures that all tests of Pacemark share."""

from __future__ import annotations

import pytest

from tests.lab.fixtures import accounting_lab
from tests.lab.fixtures import accounting_parts
from tests.lab.fixtures import bucket_lab
from tests.lab.fixtures import kubernetes_lab
from tests.lab.fixtures import kubernetes_parts
from tests.lab.fixtures import scripted_lab
from tests.lab.fixtures import scripted_log
from tests.lab.fixtures import slurm_lab
from tests.lab.fixtures import slurm_parts

__all__ = [
    "accounting_lab",
    "accounting_parts",
    "bucket_lab",
    "kubernetes_lab",
    "kubernetes_parts",
    "scripted_lab",
    "scripted_log",
    "slurm_lab",
    "slurm_parts",
]


def pytest_itemcollected(item: pytest.Item) -> None:
    """`make test` runs what needs the Kubernetes lab, or the scripted scheduler, beside all the rest."""
    for fixture, marker in (("kubernetes_parts", "kubernetes"), ("scripted_log", "scripted")):
        if fixture in getattr(item, "fixturenames", ()):
            item.add_marker(marker)
