"""Loads the plugins, and refuses a session without one of them."""

import gc
import os
import shlex
from collections.abc import Generator

import pytest

# What is loaded and collected lives as long as the session. To look for garbage in it takes a third of the time to collect.
gc.disable()

_PLUGINS = (
    "plugins.suite.collection",
    "plugins.suite.fixtures",
    "fixtures.options",
    "fixtures.session.plugins",
)

# What the session loads when tests run, and what it and the suites use of others.
_USED = ("plugins.suite.measured", "plugins.suite.outcomes", "allure_pytest", "terminalreporter")


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Load the plugins. In `pytest_plugins`, pytest would look for each of them in all packages that are installed."""
    for name in _PLUGINS:
        pluginmanager.import_plugin(name)
    config = pluginmanager.get_plugin("pytestconfig")
    assert isinstance(config, pytest.Config)
    words = (
        *config.invocation_params.args,
        *shlex.split(os.environ.get("PYTEST_ADDOPTS", "")),
        *config.getini("addopts"),
    )
    if any(str(word).startswith(("--benchmark-", "--help", "-h")) for word in words):
        pluginmanager.consider_pluginarg("benchmark")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    for name in (*_PLUGINS, *_USED):
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
