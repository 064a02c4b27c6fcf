"""A session whose first case runs until the record of its second one is written, as a plugin of pytest: `-p tests.waits`."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.backends.slurm.section import Slurm
from fixtures.options import results_folder
from fixtures.session import prospects
from plugins.record.job import JobRef, JobState
from tests.unit.cluster import DONE, RUNNING, Cluster

# Its log is that of the second one, so it is no valid run.
FIRST, SECOND = "70b-fp8-64gpus", "70b-fp8-512gpus"


class Waits(Cluster):
    def __init__(self, results: Path) -> None:
        super().__init__()
        self._results = results

    def _state(self, job: JobRef) -> JobState:
        judged = list(self._results.glob(f"*/llama3/{SECOND}/case.json"))
        return DONE if job.case_id == SECOND or judged else RUNNING


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    backend = Waits(results_folder(config))
    vars(prospects)["make_backends"] = lambda *_, **__: {"slurm": backend}
    Slurm.fastest_poll = 0.02
