"""A plugin of pytest (`-p tests.unit.session.hook_log`) that logs the calls of a session's own hooks, beside its results."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from fixtures.runs.lock import RunLock
from fixtures.signals import Signals

NAME = "hooks.txt"


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    folder = Path(config.getoption("--results")).parent

    def log(line: str) -> None:
        with (folder / NAME).open("a") as file:
            file.write(f"{line}\n")

    for name, hook in vars(config.hook).items():
        for call in hook.get_hookimpls():
            if call.plugin_name.startswith("pacemark-"):
                line = f"{call.plugin_name} {name}"
                call.function = (_around if call.wrapper else _before)(line, call.function, log)
    Signals.restore = _before("Signals.restore", Signals.restore, log)  # type: ignore[method-assign]
    RunLock.release = _before("RunLock.release", RunLock.release, log)  # type: ignore[method-assign]


def _before(line: str, function: Callable[..., Any], log: Callable[[str], None]) -> Callable[..., Any]:
    @wraps(function)
    def logged(*arguments: Any) -> Any:
        log(line)
        return function(*arguments)

    return logged


def _around(line: str, function: Callable[..., Any], log: Callable[[str], None]) -> Callable[..., Any]:
    @wraps(function)
    def logged(*arguments: Any) -> Generator[None, Any, Any]:
        log(f"{line} begins")
        try:
            return (yield from function(*arguments))
        finally:
            log(f"{line} ends")

    return logged
