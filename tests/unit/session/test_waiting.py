"""A test waits for the end of its case."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from fixtures.session.run import Run
from fixtures.session.waiting import Waiting


class Ending:
    """A run that ends with its only case, at the moment when it is asked whether it still runs."""

    def __init__(self) -> None:
        self.job: Any = SimpleNamespace(status="submitted")
        self.ledger = SimpleNamespace(entry=lambda key: self.job)

    @property
    def running(self) -> bool:
        self.job = SimpleNamespace(status="ended")
        return False


def test_a_case_that_ends_with_its_run_is_not_lost(pytestconfig: pytest.Config) -> None:
    run = Ending()
    assert Waiting(pytestconfig)._ended(cast(Run, run), "llama3/a-case") is run.job
