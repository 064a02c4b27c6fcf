"""Loads the plugins, and refuses a session without one of them."""

import gc
from collections.abc import Generator

import pytest

# What is loaded and collected lives as long as the session. To look for garbage in it takes a third of the time to collect.
gc.disable()

pytest_plugins = [
    "plugins.suite.collection",
    "plugins.suite.fixtures",
    "fixtures.options",
    "fixtures.session.plugins",
]


# What the session loads when tests run, and what it and the suites use of others.
_USED = ("plugins.suite.measured", "plugins.suite.outcomes", "benchmark", "allure_pytest", "terminalreporter")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    for name in (*pytest_plugins, *_USED):
        if config.pluginmanager.is_blocked(name):
            raise pytest.UsageError(f"-p no:{name}: Pacemark does not work without it: leave that out")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for garbage from here on, but not in what there is already."""
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
