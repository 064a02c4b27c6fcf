"""Loads the plugins, and refuses a session without one of them."""

import gc
import os
import shlex
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

# What is loaded and collected lives as long as the session. To look for garbage in it takes a third of the time to collect.
# Most objects that are made later live as long too, so the garbage collector runs less often than by default.
gc.disable()
gc.set_threshold(10_000)

# Pydantic would look through all packages that are installed for plugins of its own.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

_PLUGINS = (
    "plugins.suite.session",
    "plugins.suite.fixtures",
    "fixtures.options",
    "fixtures.session.plugins",
)

# What the session loads when tests run, and what it uses of others.
_USED = ("plugins.suite.measured", "plugins.suite.outcomes", "terminalreporter")

# Plugins of others that take long to load, and how the options begin with which they are needed. A file (`@FILE`) may have any.
_OPTIONAL = {
    "allure_pytest": ("--allure", "--clean-alluredir", "--inversion", "-h", "--help", "@"),
    "benchmark": ("--benchmark-", "-h", "--help", "@"),
}


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Load the plugins. For those in `pytest_plugins`, pytest would look through all packages that are installed."""
    config = pluginmanager.get_plugin("pytestconfig")
    assert isinstance(config, pytest.Config)
    more = (*shlex.split(os.environ.get("PYTEST_ADDOPTS", "")), *config.getini("addopts"))
    words = [str(word) for word in (*config.invocation_params.args, *more)]
    runs = not config.known_args_namespace.collectonly
    for name, options in _OPTIONAL.items():
        if (runs and name == "allure_pytest") or any(word.startswith(options) for word in words):
            pluginmanager.consider_pluginarg(name)
    for name in _PLUGINS:
        pluginmanager.import_plugin(name)
    _run_own_alone(pluginmanager, config.rootpath)


def _run_own_alone(pluginmanager: pytest.PytestPluginManager, root: Path) -> None:
    """Run no conftest.py outside the checkout.

    Until our options are known, pytest takes `DIR` of `--from DIR` for a folder of tests, whose conftest.py it runs.
    """
    load = pluginmanager._loadconftestmodules

    def load_own(path: Path, *arguments: Any, **options: Any) -> None:
        if path.is_relative_to(root):
            load(path, *arguments, **options)

    pluginmanager._loadconftestmodules = load_own  # type: ignore[method-assign]


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
