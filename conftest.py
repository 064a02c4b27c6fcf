"""Loads the plugins, and refuses a session without one of them."""

import pytest

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
