"""Fixtures that all tests of Pacemark share."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Generator, Iterator

import pytest
from _pytest.runner import runtestprotocol

from tests.lab.fixtures import (
    accounting_lab,
    accounting_parts,
    bucket_lab,
    kubernetes_lab,
    kubernetes_parts,
    scripted_lab,
    scripted_log,
    slurm_lab,
    slurm_parts,
)
from tests.lab.slurm import SlurmLab

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


# Under xdist each worker has labs of its own: what a lab's tests need, and into how many groups they are dealt out. The largest
# begin first, and a worker's lab serves its next group too. Tests that start a Kubernetes lab for themselves go to any worker.
LABS = {
    "kubernetes_lab": ("kubernetes", 3),
    # Two groups begin beside those of Kubernetes, the others behind them: of three the last would end alone.
    "slurm_parts": ("slurm", 4),
    "accounting_parts": ("accounting", 1),
    "scripted_log": ("scripted", 2),
}

FAILED = pytest.StashKey[bool]()

# Python gives their defaults back to what it starts.
IGNORED_BY_PYTHON = {signal.SIGPIPE, signal.SIGXFSZ}


def pytest_configure(config: pytest.Config) -> None:
    """A warning is an error, before what pytest.ini says of single ones."""
    config.addinivalue_line("markers", "promise(*names): proves what README promises (tests/promises.py)")
    config.getini("filterwarnings").insert(0, "error")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """For `--dist loadgroup`: the tests of one lab are dealt out into so many groups, but for those that have one of their own."""
    if not config.getoption("loadgroup", False):
        return
    dealt: Counter[str] = Counter()
    for item in items:
        needed = (LABS[name] for name in LABS if name in getattr(item, "fixturenames", ()))
        if not item.get_closest_marker("xdist_group") and (lab := next(needed, None)):
            name, workers = lab
            item.add_marker(pytest.mark.xdist_group(f"{name}-{dealt[name] % workers}"))
            dealt[name] += 1
        group = item.get_closest_marker("xdist_group")
        if group:
            # With pytest 9.2 xdist does this in vain: https://github.com/pytest-dev/pytest-xdist/issues/1386
            item._id = type(item.id).parse(f"{item.nodeid}@{group.args[0]}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """In a worker of xdist, report a test that passes once instead of three times.

    The terminal shows nothing of its setup and teardown, and each message takes as long as a short test. `--durations` and
    `--junitxml` need all of them.
    """
    config = item.config
    if not hasattr(config, "workerinput") or config.getoption("durations") or config.getoption("xmlpath"):
        return None
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """No test fails for what another one that failed left on the lab that they share."""
    try:
        if FAILED in item.stash and isinstance(item, pytest.Function):
            for lab in item.funcargs.values():
                if isinstance(lab, SlurmLab):
                    lab.recover()
    finally:
        yield


@pytest.fixture(scope="session", autouse=True)
def default_signals() -> Iterator[None]:
    """Whatever the tests start, it begins with no signal ignored, as from a terminal.

    A process inherits what its parent ignores: SIGHUP under nohup, SIGINT and SIGQUIT behind `&` in a script. A handler that does
    nothing lets the tests go on as well, and is not inherited.
    """
    ignored = [
        number
        for number in signal.valid_signals() - IGNORED_BY_PYTHON
        if signal.getsignal(number) == signal.SIG_IGN
    ]
    for number in ignored:
        signal.signal(number, lambda *_: None)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
