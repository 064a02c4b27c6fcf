"""A session that repeats a submission for as long as an API server may take to start, as a plugin of pytest: `-p tests.system.patient`."""

from __future__ import annotations

import pytest

from fixtures.backends.kubernetes import backend


def pytest_configure() -> None:
    pytest.MonkeyPatch().setattr(backend, "SUBMIT_SECONDS", 300.0)
