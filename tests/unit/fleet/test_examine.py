"""The fleet looks at what a job in another mode left: it ends, whatever the cluster or the disk says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from plugins.base.errors import Unreachable
from plugins.judging.job_files import read_artefacts
from plugins.modes.artefacts import Artefacts
from plugins.recipes.cases import Case
from plugins.record.case import File
from plugins.record.folder import ARTEFACTS
from plugins.record.job import JobRef
from tests.unit import examples
from tests.unit.cluster import DONE, NARROW, Cluster, Start, failing, until
from tests.unit.examples import nemo2_text

PROFILE = examples.case("70b-profile-fp8-64gpus")


class Looks(Cluster):
    """A cluster that answers what a test says."""

    def __init__(self) -> None:
        super().__init__()
        self.logs[PROFILE.id] = nemo2_text([10.0] * PROFILE.steps)
        self.answer: Callable[[Case], Artefacts] = lambda _: whole()

    def examine(self, case: Case, job: JobRef) -> Artefacts:
        return self.answer(case)


def whole(host: str = "login") -> Artefacts:
    files = tuple(File(name=f"profile_{rank}.nsys-rep", size=9999, modified=1.0) for rank in range(8))
    return Artefacts.model_construct(host=host, folder="/logs", begun=0.0, files=files)


@pytest.fixture
def cluster() -> Looks:
    return Looks()


@pytest.mark.parametrize("answer", [failing(RecursionError("too deep")), lambda _: whole("\ud800")])
def test_an_answer_that_nobody_foresaw_stops_no_other_case(
    cluster: Looks, start: Start, answer: Callable[[Case], Artefacts]
) -> None:
    cluster.answer = answer
    session = start(PROFILE, NARROW)
    entry = session.end()
    over = f"{PROFILE.key}: job 1 is over: completed; what it left on the cluster is looked at"
    assert [line for line in session.messages() if " is over: " in line] == [over]
    assert (entry.failure, session.job(NARROW).failure, cluster.cancelled) == ("", "", set())
    assert "what it left on the cluster could not be looked at: " in entry.log_note


def test_what_an_earlier_job_of_the_case_left_is_none_of_the_next(
    cluster: Looks, start: Start, tmp_path: Path
) -> None:
    cluster.answer = failing(Unreachable("no route to host"))
    folder = tmp_path / PROFILE.key
    folder.mkdir(parents=True)
    (folder / ARTEFACTS).write_text(whole().model_dump_json())
    assert "could not be looked at" in start(PROFILE, unreachable_minutes=0.001).end().log_note
    assert read_artefacts(folder) is None


def test_what_a_mode_left_is_removed_after_a_stop_too(cluster: Looks, start: Start) -> None:
    cluster.run(PROFILE)
    session = start(PROFILE)
    session.await_running()
    session.fleet.stop()
    assert session.job(PROFILE).failure == "interrupted"
    assert cluster.released == [PROFILE.id]


PGLE = examples.case("70b-profile-fp8-64gpus", "maxtext_llama2")
TIMED = examples.case("70b-fp8-64gpus", "maxtext_llama2")
OTHER = examples.case("70b-bf16-64gpus", "maxtext_llama2")


@pytest.mark.parametrize(("first", "second"), [(PGLE, TIMED), (TIMED, PGLE)])
def test_two_jobs_that_write_the_same_reports_never_run_at_once(
    cluster: Looks, start: Start, first: Case, second: Case
) -> None:
    """They are called alike, whichever job wrote them. A job of another scale or dtype is not held up."""
    cluster.run(first, second, OTHER)
    session = start(first, second, OTHER)
    session.await_running(first, OTHER)
    assert cluster.submitted == [first.id, OTHER.id]
    cluster.ends[first.id] = [DONE]
    until(lambda: second.id in cluster.submitted)
    assert session.job(first).status == "ended"
