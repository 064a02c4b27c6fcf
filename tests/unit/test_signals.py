"""Which signals end a session."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from fixtures.signals import Signals


@pytest.fixture
def ignored() -> Iterator[None]:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("ignored")
def test_under_nohup_a_closed_terminal_ends_nothing() -> None:
    fleet: Any = None
    signals = Signals(fleet)
    signals.catch()
    try:
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) == signals._on_signal
    finally:
        signals.restore()
    assert signal.getsignal(signal.SIGTERM) != signals._on_signal
