"""A cluster that has never answered in a session: its address is wrong, access is denied, or it says nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from fixtures.fleet.controller import Fleet
from fixtures.fleet.state import Policy
from fixtures.runs.planned import PlannedJob
from plugins.base.errors import Absent, Busy, Denied, Unreachable
from plugins.recipes.cases import Case
from plugins.record.folder import make_case_folder
from plugins.record.job import JobRef, JobState
from tests.unit import examples
from tests.unit.cluster import DONE, NARROW, RUNNING, WIDE, Clock, Cluster, Session, Site, Start, told

OTHER = examples.case("15b-bf16-64gpus", "nemotron4")
ENDLESS = Unreachable("ssh: no answer within 20 s")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fixtures.fleet.submit._CHECK_AGAIN_SECONDS", 0.02)
    monkeypatch.setattr("fixtures.fleet.jobs.FIRST_CONTACT_SECONDS", 0.3)


class Failing(Cluster):
    """Answers no check of these recipes, so many times."""

    def __init__(self, error: Unreachable, times: float, *recipes: str) -> None:
        super().__init__()
        self.checks = 0

        def check(case: Case) -> None:
            if case.recipe in recipes and self.checks < times:
                self.checks += 1
                raise error

        self.on_check = check


@pytest.mark.parametrize(
    ("error", "once"), [(Absent("unknown name"), True), (Denied("no such user"), True), (ENDLESS, False)]
)
def test_a_cluster_that_never_answered_ends_its_cases(
    start: Start,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    clock: Clock,
    error: Unreachable,
    once: bool,
) -> None:
    monkeypatch.setattr("fixtures.fleet.jobs.FIRST_CONTACT_SECONDS", 600.0)
    failing = Failing(error, 10_000, WIDE.recipe)

    def check(case: Case) -> None:
        if failing.checks == 4:
            clock.ahead = 601
        failing.on_check(case)

    cluster.on_check = check
    session = start(WIDE, NARROW)
    entries = session.finish(3600)
    assert {entry.message for entry in entries.values()} == {f"never submitted: {error}"}
    assert {entry.failure for entry in entries.values()} == {"infrastructure"}
    assert failing.checks == (1 if once else 5)
    assert cluster.submitted == []
    said = [line for line in told(session) if str(error) in line]
    # Said once of all cases, and before that, that it is tried again.
    assert sum("cannot be reached, so nothing is submitted there" in line for line in said) == 1
    assert len(said) == (1 if once else 2)


def test_a_cluster_that_is_busy_from_the_first_request_on_is_there(
    start: Start, cluster: Cluster, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An API server that throttles: 429. It ended all cases after `FIRST_CONTACT_SECONDS`, as one that cannot be reached."""
    monkeypatch.setattr("fixtures.fleet.jobs.FIRST_CONTACT_SECONDS", 0.5)
    failing = Failing(Busy("GET /version: 429: too many requests"), 5, WIDE.recipe)

    def check(case: Case) -> None:
        clock.ahead += 1
        failing.on_check(case)

    cluster.on_check = check
    session = start(WIDE)
    assert session.finish(3600)[WIDE.id].failure == ""
    assert not any("cannot be reached" in line for line in told(session))


def test_the_cases_of_another_cluster_go_on(tmp_path: Path, cluster: Cluster) -> None:
    failing = Failing(Absent("unknown name"), 10_000, WIDE.recipe)
    session = Session(tmp_path, cluster, [WIDE, OTHER], Policy())
    plans = [
        PlannedJob(case, backend, JobRef(case.recipe, case.id, case.id), "nemo2")
        for case, backend in ((WIDE, "slurm"), (OTHER, "jobset"))
    ]
    section = Site(gpu="h100")
    backends, sections = {"slurm": failing, "jobset": cluster}, {"slurm": section, "jobset": section}
    session.fleet = Fleet(tmp_path, session.ledger, plans, backends, sections, Policy())
    session.fleet.start()
    entries = session.finish()
    assert {name: entry.failure for name, entry in entries.items()} == {
        WIDE.id: "infrastructure",
        OTHER.id: "",
    }
    assert (failing.submitted, cluster.submitted) == ([], [OTHER.id])


def test_a_hiccup_at_the_first_contact_ends_nothing(
    start: Start, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fixtures.fleet.jobs.FIRST_CONTACT_SECONDS", 60.0)
    cluster.on_check = Failing(ENDLESS, 2, WIDE.recipe).on_check
    assert start(WIDE).finish()[WIDE.id].failure == ""


@pytest.mark.parametrize("error", [Absent("refused port"), ENDLESS])
def test_a_cluster_that_answered_before_is_waited_for(
    start: Start, cluster: Cluster, clock: Clock, error: Unreachable
) -> None:
    """The check of one recipe has answered; that of another gets no answer for longer than a first contact may take."""
    failing = Failing(error, 5, OTHER.recipe)

    def check(case: Case) -> None:
        clock.ahead += case.recipe == OTHER.recipe
        failing.on_check(case)

    cluster.on_check = check
    # The wider case's recipe is checked first.
    entries = start(WIDE, OTHER, submissions_at_once=1).finish()
    assert failing.checks == 5
    assert {entry.failure for entry in entries.values()} == {""}


def test_a_session_that_resumes_a_job_waits_for_its_cluster(tmp_path: Path) -> None:
    failing = Failing(Absent("refused port"), 3, NARROW.recipe)
    silent = iter(range(3))

    def poll(jobs: Sequence[JobRef]) -> dict[JobRef, JobState]:
        if next(silent, None) is not None:
            raise Absent("refused port")
        return dict.fromkeys(jobs, DONE)

    failing.poll = poll  # type: ignore[method-assign]
    session = Session(tmp_path, failing, [WIDE, NARROW], Policy())
    job = JobRef(WIDE.recipe, WIDE.id, WIDE.id, "17", "/logs")
    make_case_folder(tmp_path / WIDE.key)
    session.ledger.intend(WIDE.key)
    session.ledger.submitted(job)
    plans = [
        PlannedJob(WIDE, "slurm", job, "nemo2", age=1.0),
        PlannedJob(NARROW, "slurm", JobRef(NARROW.recipe, NARROW.id, NARROW.id), "nemo2"),
    ]
    session.fleet = Fleet(
        tmp_path, session.ledger, plans, {"slurm": failing}, {"slurm": Site(gpu="h100")}, Policy()
    )
    session.fleet.start()
    entries = session.finish()
    assert {entry.failure for entry in entries.values()} == {""}
    assert next(silent, None) is None
    assert failing.checks == 3


def test_what_a_session_waits_for_has_words(start: Start, cluster: Cluster) -> None:
    checking, go_on = threading.Event(), threading.Event()

    def check(case: Case) -> None:
        checking.set()
        assert go_on.wait(60)

    cluster.on_check = check
    cluster.ends = {case.id: [RUNNING] for case in (WIDE, NARROW)}
    session = start(WIDE, NARROW)
    assert checking.wait(60)
    assert session.fleet.waits_for == "slurm to answer"
    go_on.set()
    deadline = time.monotonic() + 60
    wanted = "llama3/70b-fp8-512gpus (running), llama3/70b-fp8-64gpus (running)"
    while session.fleet.waits_for != wanted:
        assert time.monotonic() < deadline, session.fleet.waits_for
        time.sleep(0.01)
    session.fleet.stop()
    assert session.fleet.waits_for == ""
