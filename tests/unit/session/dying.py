"""A plugin of pytest (`-p tests.unit.session.dying`) that ends workers of xdist in the tests of one case: `DIES=call:2` ends two in the call."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def _die(item: pytest.Item, when: str) -> None:
    moment, case, times = os.environ["DIES"].split(":")
    if when != moment or case not in item.nodeid or "PYTEST_XDIST_WORKER" not in os.environ:
        return
    # A dead worker leaves a mark beside the results.
    folder = Path(item.config.getoption("--results")).parent
    dead = len(list(folder.glob("dead-*")))
    if dead < int(times):
        (folder / f"dead-{dead}").touch()
        os._exit(7)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    _die(item, "setup")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    _die(item, "call")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    _die(item, "teardown")
