"""When it is settled that a submission without an answer made no job."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from fixtures.backends.base import Backend
from fixtures.runs import unconfirmed
from fixtures.runs.unconfirmed import Doubt
from plugins.record.job import JobRef

JOB = JobRef("llama3", "70b-fp8-512gpus", "pacemark-x.one")


class EmptyQueue:
    """A cluster that shows no job; each question takes as long as is asked for."""

    def __init__(self) -> None:
        self.now = 0.0

    def asked(self, doubt: Doubt, at: float, seconds: float = 0.0) -> bool:
        """Whether all is settled once it was looked up at this time."""
        self.now, self._seconds = at, seconds
        assert doubt.look_up(cast(Backend, self), JOB, bound=60) is None
        return doubt.settled

    def find(self, *_: Any, **__: Any) -> None:
        self.now += self._seconds


def test_two_lists_of_almost_one_time_settle_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    queue, doubt = EmptyQueue(), Doubt(submitted=0)
    monkeypatch.setattr(unconfirmed, "time", SimpleNamespace(monotonic=lambda: queue.now))
    assert not queue.asked(doubt, at=59, seconds=10)
    assert not queue.asked(doubt, at=70)
    # The answer comes late, and may have been made at once.
    assert not queue.asked(doubt, at=71, seconds=5)
    assert queue.asked(doubt, at=76)
