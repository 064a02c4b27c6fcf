"""A whole session on what a real Slurm answered, as in `test_jobset`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recordings.trials import PlayedSlurmTrial
from tests.system.faults import CASE, Trial


@pytest.fixture
def trial(request: pytest.FixtureRequest, tmp_path: Path) -> Trial:
    name = request.function.__name__.removeprefix("test_")
    return PlayedSlurmTrial(name, tmp_path, keys={"prologue": '""'})


def test_a_run_at_the_published_pace_passes(trial: Trial) -> None:
    result = trial.start().end()
    assert (result.status, result.verdicts) == (0, {CASE: "passed"}), result.out
    assert result.case(CASE)["step_time"] == pytest.approx(12.27, rel=0.01)
