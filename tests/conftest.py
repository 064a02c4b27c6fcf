"""Fixtures that all tests of Pacemark share."""

from __future__ import annotations

from tests.lab.fixtures import bucket_lab
from tests.lab.fixtures import kubernetes_lab
from tests.lab.fixtures import kubernetes_parts
from tests.lab.fixtures import scripted_lab
from tests.lab.fixtures import scripted_log
from tests.lab.fixtures import slurm_lab
from tests.lab.fixtures import slurm_parts

__all__ = [
    "bucket_lab",
    "kubernetes_lab",
    "kubernetes_parts",
    "scripted_lab",
    "scripted_log",
    "slurm_lab",
    "slurm_parts",
]
