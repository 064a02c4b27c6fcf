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
    """A cluster that answers what a test says. `known` is what it was told that was known."""

    def __init__(self) -> None:
        super().__init__()
        self.logs[PROFILE.id] = nemo2_text([10.0] * PROFILE.steps)
        self.known: list[str] = []
        self.answer: Callable[[int], tuple[str, bool]] = lambda _: (whole(), True)

    def examine(self, case: Case, job: JobRef, known: str) -> tuple[str, bool]:
        self.known.append(known)
        return self.answer(len(self.known))


def whole(modified: float = 1.0) -> str:
    files = tuple(File(name=f"profile_{rank}.nsys-rep", size=9999, modified=modified) for rank in range(8))
    return Artefacts(host="login", folder="/logs", begun=0.0, files=files).model_dump_json()


@pytest.fixture
def cluster() -> Looks:
    return Looks()


@pytest.mark.parametrize(
    "answer", [failing(RecursionError("too deep")), lambda _: ("{", True), lambda _: ("\ud800", True)]
)
def test_an_answer_that_nobody_foresaw_stops_no_other_case(
    cluster: Looks, start: Start, answer: Callable[[int], tuple[str, bool]]
) -> None:
    cluster.answer = answer
    session = start(PROFILE, NARROW)
    entry = session.end()
    over = f"{PROFILE.key}: job 1 is over: completed; what it left on the cluster is looked at"
    assert [line for line in session.messages() if " is over: " in line] == [over]
    assert (entry.failure, session.job(NARROW).failure, cluster.cancelled) == ("", "", set())
    assert "what it left on the cluster could not be looked at: " in entry.log_note


def test_files_that_never_stay_as_they_are_end_the_question(cluster: Looks, start: Start) -> None:
    cluster.answer = lambda count: (whole(float(count)), False)
    assert "still changes" in start(PROFILE, unreachable_minutes=0.005).end().log_note


@pytest.mark.parametrize("text", [b"\xff\xfe", b"{", b""])
def test_a_file_of_an_earlier_session_that_is_damaged_is_asked_for_anew(
    cluster: Looks, start: Start, tmp_path: Path, text: bytes
) -> None:
    def plant(_: str) -> None:
        (tmp_path / PROFILE.key / ARTEFACTS).write_bytes(text)

    cluster.on_submit = plant
    assert start(PROFILE).end().log_note == ""
    assert cluster.known[0] == ""
    artefacts = read_artefacts(tmp_path / PROFILE.key)
    assert artefacts is not None
    assert len(artefacts.files) == 8


def test_what_an_earlier_job_of_the_case_left_is_not_known_of_the_next(
    cluster: Looks, start: Start, tmp_path: Path
) -> None:
    cluster.answer = failing(Unreachable("no route to host"))
    folder = tmp_path / PROFILE.key
    folder.mkdir(parents=True)
    (folder / ARTEFACTS).write_text(whole())
    assert "could not be looked at" in start(PROFILE, unreachable_minutes=0.001).end().log_note
    assert cluster.known[0] == ""
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
