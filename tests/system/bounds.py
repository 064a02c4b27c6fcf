"""Other bounds of a session, as a plugin of pytest: `-p tests.system.bounds`.

It expects no job of a launcher after three seconds, and repeats a submission for as long as an API server may take to start.
"""

from __future__ import annotations

import pytest

from fixtures.backends.kubernetes import backend
from fixtures.backends.slurm.section import Slurm


def pytest_configure() -> None:
    pytest.MonkeyPatch().setattr(Slurm, "launch_bound", 3.0)
    pytest.MonkeyPatch().setattr(backend, "SUBMIT_SECONDS", 300.0)
