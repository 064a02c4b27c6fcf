"""A session that expects no job of a launcher after three seconds, as a plugin of pytest: `-p tests.system.impatient`."""

from __future__ import annotations

import pytest

from fixtures.backends.slurm.section import Slurm


def pytest_configure() -> None:
    pytest.MonkeyPatch().setattr(Slurm, "launch_bound", 3.0)
