"""A set-up that a dead session left under way: followed, never doubled, never forgotten."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.fleet.state import Policy
from plugins.base.errors import Unprovisioned
from plugins.recipes.cases import Case
from plugins.record.job import SETUP_CASE, JobRef, JobState
from tests.unit.cluster import BROKEN, DONE, MIDDLE, RUNNING, WIDE, Cluster, Session, Site, told, until

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
def cluster() -> Unready:
    return Unready()


Resume = Callable[..., Session]


@pytest.fixture
def resume(tmp_path: Path, cluster: Unready) -> Iterator[Resume]:
    made: list[Session] = []

    def begin(job_id: str, policy: Policy = PROVISION) -> Session:
        """A session whose run's ledger has a set-up that was sent; "" is one whose id never came back."""
        session = Session(tmp_path, cluster, (WIDE, MIDDLE), policy)
        made.append(session)
        session.ledger.plan_setup(SETUP, "slurm")
        session.ledger.intend(KEY)
        if job_id:
            session.ledger.submitted(replace(SETUP, id=job_id, folder="/stage"))
        session.fleet.start()
        return session

    yield begin
    for session in made:
        session.fleet.stop()


def setup(session: Session) -> tuple[str, str]:
    entry = session.ledger.entry(KEY)
    assert entry is not None
    return entry.ref.id, entry.status


@pytest.mark.parametrize("policy", [PROVISION, Policy()], ids=["--provision", "without"])
@pytest.mark.parametrize("ready", [False, True], ids=["not ready", "looks ready"])
def test_it_is_followed_to_its_end_before_anything_is_submitted(
    cluster: Unready, resume: Resume, policy: Policy, ready: bool
) -> None:
    """Also where the stage looks ready: the set-up may be in the middle of the image."""
    cluster.ready = ready
    session = resume("4711", policy)
    time.sleep(0.3)
    assert setup(session) == ("4711", "submitted")
    assert cluster.submitted == []
    cluster.ends[NAME] = [DONE]
    session.finish()
    assert cluster.provisioned == []
    assert sorted(cluster.submitted) == sorted([WIDE.id, MIDDLE.id])
    assert setup(session) == ("4711", "ended")


def test_one_whose_id_never_came_back_is_looked_up_by_its_name(cluster: Unready, resume: Resume) -> None:
    cluster.there[NAME] = replace(SETUP, id="4712", folder="/stage")
    session = resume("")
    deadline = time.monotonic() + 60
    while setup(session) != ("4712", "submitted"):
        assert time.monotonic() < deadline, setup(session)
        time.sleep(0.01)
    cluster.ends[NAME] = [DONE]
    session.finish()
    assert cluster.provisioned == []


def test_one_that_was_never_submitted_is_sent(
    cluster: Unready, resume: Resume, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fixtures.runs.unconfirmed.LOOK_AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(Site, "launch_bound", 0.2)
    session = resume("")
    session.finish()
    assert len(cluster.provisioned) == 1
    assert setup(session) == ("new", "ended")
    assert len(cluster.submitted) == 2


def test_one_that_failed_is_followed_by_another_one_that_was_asked_for(
    cluster: Unready, resume: Resume
) -> None:
    cluster.ends[NAME] = [BROKEN]
    session = resume("4711")
    session.finish()
    assert len(cluster.provisioned) == 1
    assert len(cluster.submitted) == 2


def test_one_that_failed_is_told_where_no_other_was_asked_for(cluster: Unready, resume: Resume) -> None:
    cluster.ends[NAME] = [BROKEN]
    session = resume("4711", Policy())
    entries = session.finish()
    assert any(line.endswith(f"{KEY}: node_fail") for line in told(session))
    assert cluster.provisioned == []
    assert (
        "The recipe's own set-up ran as job 4711 in /stage, and ended NODE_FAIL" in entries[WIDE.id].message
    )


def test_it_is_cancelled_with_all_else(cluster: Unready, resume: Resume) -> None:
    session = resume("4711")
    until(lambda: RUNNING in [entry.state for entry in session.ledger.entries() if entry.case == KEY])
    session.fleet.stop()
    assert NAME in cluster.cancelled
    entry = session.ledger.entry(KEY)
    assert entry is not None
    assert not entry.may_run
