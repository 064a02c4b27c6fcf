"""What comes before a first submission: a cluster that has never answered, and a recipe's own set-up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.fleet.controller import Fleet
from fixtures.fleet.state import Policy
from fixtures.runs.planned import PlannedJob
from plugins.base.errors import Absent, Busy, Denied, SiteError, SubmitError, Unprovisioned, Unreachable
from plugins.recipes.cases import Case
from plugins.record.folder import make_case_folder
from plugins.record.job import SETUP_CASE, JobRef, JobState
from tests.unit import examples
from tests.unit.cluster import (
    BROKEN,
    DONE,
    MIDDLE,
    NARROW,
    RUNNING,
    WIDE,
    Clock,
    Cluster,
    Session,
    Site,
    Start,
    failing,
    until,
)
from tests.unit.jobs_log import planned

OTHER = examples.case("15b-bf16-64gpus", "nemotron4")
ENDLESS = Unreachable("ssh: no answer within 20 s")


@pytest.fixture(autouse=True)
def contact(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Set how many seconds a first contact may take: 0.3, unless a test says otherwise."""

    def bound(seconds: float) -> None:
        monkeypatch.setattr("fixtures.fleet.jobs.FIRST_CONTACT_SECONDS", seconds)

    monkeypatch.setattr("fixtures.fleet.submit._CHECK_AGAIN_SECONDS", 0.02)
    bound(0.3)
    return bound


class Failing(Cluster):
    """Answers no check of this recipe, so many times. `before` is called before each check."""

    def __init__(self, error: Unreachable, times: float, recipe: str = WIDE.recipe) -> None:
        super().__init__()
        self.checks = 0
        self.before: Callable[[Case], None] = lambda case: None

        def check(case: Case) -> None:
            self.before(case)
            if case.recipe == recipe and self.checks < times:
                self.checks += 1
                raise error

        self.on_check = check


@pytest.mark.parametrize(
    ("error", "checks"), [(Absent("unknown name"), 1), (Denied("no such user"), 1), (ENDLESS, 5)]
)
def test_a_cluster_that_never_answered_ends_its_cases(
    start: Start,
    cluster: Cluster,
    contact: Callable[[float], None],
    clock: Clock,
    error: Unreachable,
    checks: int,
) -> None:
    def pass_time(case: Case) -> None:
        clock.ahead = 601 if refusing.checks == 4 else clock.ahead

    contact(600)
    refusing = Failing(error, 10_000)
    refusing.before = pass_time
    cluster.on_check = refusing.on_check
    session = start(WIDE, NARROW)
    entries = session.finish(3600).values()
    assert {(entry.failure, entry.message) for entry in entries} == {
        ("infrastructure", f"never submitted: {error}")
    }
    assert (refusing.checks, cluster.submitted) == (checks, [])
    lines = [line for line in session.messages() if str(error) in line]
    # Said once of all cases, and before that, that it is tried again.
    assert sum("cannot be reached, so nothing is submitted there" in line for line in lines) == 1
    assert len(lines) == (1 if checks == 1 else 2)


def test_a_cluster_that_is_busy_from_the_first_request_on_is_there(
    start: Start, cluster: Cluster, contact: Callable[[float], None], clock: Clock
) -> None:
    """An API server that throttles: 429. It ended all cases after `FIRST_CONTACT_SECONDS`, as one that cannot be reached."""

    def pass_time(case: Case) -> None:
        clock.ahead += 1

    contact(0.5)
    throttling = Failing(Busy("GET /version: 429: too many requests"), 5)
    throttling.before = pass_time
    cluster.on_check = throttling.on_check
    session = start(WIDE)
    assert session.end(3600).failure == ""
    assert not any("cannot be reached" in line for line in session.messages())


def test_the_cases_of_another_cluster_go_on(tmp_path: Path, cluster: Cluster) -> None:
    absent = Failing(Absent("unknown name"), 10_000)
    session = Session(tmp_path, cluster, [WIDE, OTHER], Policy())
    plans = [planned(WIDE, "slurm", WIDE.id), planned(OTHER, "jobset", OTHER.id)]
    backends = {"slurm": absent, "jobset": cluster}
    sections = dict.fromkeys(backends, Site(gpu="h100"))
    session.fleet = Fleet(tmp_path, session.ledger, plans, backends, sections, Policy())
    session.fleet.start()
    entries = session.finish()
    assert (entries[WIDE.id].failure, entries[OTHER.id].failure) == ("infrastructure", "")
    assert (absent.submitted, cluster.submitted) == ([], [OTHER.id])


def test_a_hiccup_at_the_first_contact_ends_nothing(
    start: Start, cluster: Cluster, contact: Callable[[float], None]
) -> None:
    contact(60)
    cluster.on_check = Failing(ENDLESS, 2).on_check
    assert start(WIDE).end().failure == ""


@pytest.mark.parametrize("error", [Absent("refused port"), ENDLESS])
def test_a_cluster_that_answered_before_is_waited_for(
    start: Start, cluster: Cluster, clock: Clock, error: Unreachable
) -> None:
    """The check of one recipe has answered; that of another gets no answer for longer than a first contact may take."""

    def pass_time(case: Case) -> None:
        clock.ahead += case.recipe == OTHER.recipe

    silent = Failing(error, 5, OTHER.recipe)
    silent.before = pass_time
    cluster.on_check = silent.on_check
    # The wider case's recipe is checked first.
    entries = start(WIDE, OTHER, submissions_at_once=1).finish()
    assert silent.checks == 5
    assert {entry.failure for entry in entries.values()} == {""}


def test_a_session_that_resumes_a_job_waits_for_its_cluster(tmp_path: Path) -> None:
    cluster = Failing(Absent("refused port"), 3)
    silent = iter(range(3))

    def poll(jobs: Sequence[JobRef]) -> dict[JobRef, JobState]:
        if next(silent, None) is not None:
            raise Absent("refused port")
        return dict.fromkeys(jobs, DONE)

    cluster.use(poll=poll)
    session = Session(tmp_path, cluster, [WIDE, NARROW], Policy())
    job = JobRef(WIDE.recipe, WIDE.id, WIDE.id, "17", "/logs")
    make_case_folder(tmp_path / WIDE.key)
    session.ledger.intend(WIDE.key)
    session.ledger.submitted(job)
    plans = [PlannedJob(WIDE, "slurm", job, "nemo2", age=1.0), planned(NARROW, "slurm", NARROW.id)]
    session.resume(tmp_path, cluster, plans)
    assert {entry.failure for entry in session.finish().values()} == {""}
    assert next(silent, None) is None
    assert cluster.checks == 3


def test_what_a_session_waits_for_has_words(start: Start, cluster: Cluster) -> None:
    checking, go_on = threading.Event(), threading.Event()

    def check(case: Case) -> None:
        checking.set()
        assert go_on.wait(60)

    cluster.on_check = check
    cluster.run(WIDE, NARROW)
    session = start(WIDE, NARROW)
    assert checking.wait(60)
    assert session.fleet.waits_for == "slurm to answer"
    go_on.set()
    cases = "llama3/70b-fp8-512gpus (running), llama3/70b-fp8-64gpus (running)"
    until(lambda: session.fleet.waits_for == cases)
    session.fleet.stop()
    assert session.fleet.waits_for == ""


# A recipe's own set-up


def test_a_set_up_is_run_for_what_it_mends_and_not_for_a_mistake(cluster: Cluster, start: Start) -> None:
    asked = list[str]()

    def bare(case: Case) -> None:
        if not asked:
            raise Unprovisioned("the data set is missing")

    cluster.use(provision=lambda case, name: asked.append(name))
    cluster.on_check = failing(SiteError("values.claims means nothing"))
    assert start(WIDE, policy=PROVISION).end().message == "values.claims means nothing"
    assert asked == []
    cluster.on_check = bare
    assert start(WIDE, policy=PROVISION, run="run-2").end().failure == ""
    assert len(asked) == 1


def test_what_refused_a_set_up_stands_in_the_verdict(cluster: Cluster, start: Start) -> None:
    cluster.on_check = failing(Unprovisioned("the claim is missing"))
    cluster.use(provision=failing(SubmitError("the StorageClass is there and another one")))
    entry = start(WIDE, policy=PROVISION).end()
    assert entry.failure == "infrastructure"
    assert entry.message == (
        "the claim is missing\nThe recipe's own set-up did not mend that: the StorageClass is there and another one"
    )


# One that a dead session left under way: followed, never doubled, never forgotten

KEY, NAME = "llama3/setup", "pacemark-run-1.llama3-setup"
SETUP = JobRef("llama3", SETUP_CASE, NAME)
PROVISION = Policy(provision=True)


class Unready(Cluster):
    """Lacks what the set-up makes, until one has ended well. `there` are the jobs that have a name."""

    def __init__(self) -> None:
        super().__init__()
        self.there: dict[str, JobRef] = {}
        self.provisioned: list[str] = []
        self.ready = False
        self.ends[NAME] = [RUNNING]

    def check(self, case: Case) -> list[str]:
        if not self.ready:
            raise Unprovisioned("the container image is missing")
        return []

    def provision(self, case: Case, name: str) -> JobRef | None:
        self.provisioned.append(name)
        self.ends[name] = [DONE]
        return JobRef(case.recipe, case.id, name, "new", "/stage")

    def find(self, job: JobRef, *, to_end: bool = False) -> JobRef | None:
        return self.there.get(job.name)

    def _state(self, job: JobRef) -> JobState:
        state = super()._state(job)
        if job.case == KEY and state == DONE:
            self.ready = True
        return state


@pytest.fixture
def unready() -> Unready:
    return Unready()


Resume = Callable[..., Session]


@pytest.fixture
def resume(tmp_path: Path, unready: Unready) -> Iterator[Resume]:
    """Begin a session whose run's ledger has a set-up that was sent; "" is one whose id never came back."""
    sessions = list[Session]()

    def begin(job_id: str, policy: Policy = PROVISION) -> Session:
        session = Session(tmp_path, unready, (WIDE, MIDDLE), policy)
        sessions.append(session)
        session.ledger.plan_setup(SETUP, "slurm")
        session.ledger.intend(KEY)
        if job_id:
            session.ledger.submitted(replace(SETUP, id=job_id, folder="/stage"))
        session.fleet.start()
        return session

    yield begin
    for session in sessions:
        session.fleet.stop()


def setup(session: Session) -> tuple[str, str, bool]:
    entry = session.ledger.entry(KEY)
    assert entry is not None
    return entry.ref.id, entry.status, entry.may_run


@pytest.mark.parametrize("policy", [PROVISION, Policy()], ids=["--provision", "without"])
@pytest.mark.parametrize("ready", [False, True], ids=["not ready", "looks ready"])
def test_it_is_followed_to_its_end_before_anything_is_submitted(
    unready: Unready, resume: Resume, policy: Policy, ready: bool
) -> None:
    """Also where the stage looks ready: the set-up may be in the middle of the image."""
    unready.ready = ready
    session = resume("4711", policy)
    time.sleep(0.3)
    assert (setup(session), unready.submitted) == (("4711", "submitted", True), [])
    unready.ends[NAME] = [DONE]
    session.finish()
    assert (setup(session), unready.provisioned) == (("4711", "ended", False), [])
    assert sorted(unready.submitted) == sorted([WIDE.id, MIDDLE.id])


def test_one_whose_id_never_came_back_is_looked_up_by_its_name(unready: Unready, resume: Resume) -> None:
    unready.there[NAME] = replace(SETUP, id="4712", folder="/stage")
    session = resume("")
    until(lambda: setup(session) == ("4712", "submitted", True))
    unready.ends[NAME] = [DONE]
    session.finish()
    assert unready.provisioned == []


def test_one_that_was_never_submitted_is_sent(
    unready: Unready, resume: Resume, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fixtures.runs.unconfirmed.LOOK_AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(Site, "launch_bound", 0.2)
    session = resume("")
    session.finish()
    assert setup(session) == ("new", "ended", False)
    assert (len(unready.provisioned), len(unready.submitted)) == (1, 2)


def test_one_that_failed_is_followed_by_another_one_that_was_asked_for(
    unready: Unready, resume: Resume
) -> None:
    unready.ends[NAME] = [BROKEN]
    resume("4711").finish()
    assert (len(unready.provisioned), len(unready.submitted)) == (1, 2)


def test_one_that_failed_is_told_where_no_other_was_asked_for(unready: Unready, resume: Resume) -> None:
    unready.ends[NAME] = [BROKEN]
    session = resume("4711", Policy())
    message = session.end().message
    assert f"{KEY}: node_fail" in session.messages()
    assert unready.provisioned == []
    assert "The recipe's own set-up ran as job 4711 in /stage, and ended NODE_FAIL" in message


def test_it_is_cancelled_with_all_else(unready: Unready, resume: Resume) -> None:
    session = resume("4711")
    until(lambda: RUNNING in [entry.state for entry in session.ledger.entries() if entry.case == KEY])
    session.fleet.stop()
    assert NAME in unready.cancelled
    assert not setup(session)[2]
