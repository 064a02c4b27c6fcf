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

# Tests of one lab run one after the other, in the worker that has it; the labs beside each other. See the Makefile.
_LABS = {
    "kubernetes": {"kubernetes_parts"},
    "slurm": {"slurm_parts", "accounting_parts", "scripted_log"},
}


def pytest_itemcollected(item: pytest.Item) -> None:
    # Before xdist looks for these marks, which it does as the first of those that may change the items.
    for lab, parts in _LABS.items():
        if parts & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.xdist_group(lab))
            break
