"""Fixtures that all tests of Pacemark share."""

from __future__ import annotations

from tests.lab.fixtures import slurm_lab
from tests.lab.fixtures import slurm_parts

__all__ = ["slurm_lab", "slurm_parts"]
