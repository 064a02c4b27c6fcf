"""What a session takes over from one that died, whatever it was doing; and what runs look like from outside."""

from __future__ import annotations

import io
import re
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fixtures.backends.base import Backend, LogPlace
from fixtures.fleet.job import TrackedJob
from fixtures.runs import unconfirmed
from fixtures.runs.folders import Summary, all_runs, find_run, print_runs
from fixtures.runs.ledger import Ledger
from fixtures.runs.planned import Held, PlannedJob
from fixtures.runs.resume import held, resumed
from fixtures.runs.unconfirmed import Doubt
from fixtures.session.choosing import folder_of
from plugins.base.errors import Absent, ConfigError, Denied, Unreachable
from plugins.recipes.cases import Case
from plugins.record.folder import LOG, make_case_folder
from plugins.record.job import Failure, Job, JobRef, JobState, Phase
from plugins.record.lines import JOBS_LOG
from tests.unit import examples
from tests.unit.cluster import Cluster
from tests.unit.jobs_log import planned

ONE = examples.case()
TWO = examples.case("70b-fp8-64gpus")
CANCELLED = JobState(Phase.FAILED, "CANCELLED")


def plan(case: Case) -> PlannedJob:
    return PlannedJob(case, "slurm", JobRef(case.recipe, case.id, f"pacemark-run-1.{case.id}"), "nemo2")


def name(case: Case) -> str:
    return plan(case).ref.name


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    folder = tmp_path / "results" / "run-1"
    folder.mkdir(parents=True)
    made = Ledger.create(folder / JOBS_LOG, "run-1", "lab")
    made.plan([planned(ONE, "slurm", name(ONE))])
    return made


STOPPED = "the session was stopped"


def submit(ledger: Ledger, job: str = "17", **facts: str) -> JobRef:
    """The case gets this job, of the name that it was planned with."""
    ledger.intend(ONE.key)
    ref = JobRef(ONE.recipe, ONE.id, entry(ledger).ref.name, job, "/logs", **facts)
    ledger.submitted(ref)
    return ref


def entry(ledger: Ledger) -> Job:
    job = ledger.entry(ONE.key)
    assert job is not None
    return job


def taken(ledger: Ledger, *cases: Case) -> list[PlannedJob]:
    return resumed(ledger, "lab", [plan(case) for case in cases or (ONE,)], {})


def left(ledger: Ledger) -> list[str]:
    return [job.ref.id for job in Summary.of(ledger.path.parent).left]


@pytest.mark.parametrize(
    ("failure", "jobs"),
    [
        (None, ["17"]),
        ("lost", ["17"]),
        # Its cancellation was not confirmed.
        ("interrupted", ["17"]),
        ("", []),
        ("infrastructure", []),
        ("given up", []),
        ("hung", []),
    ],
)
def test_a_job_is_followed_unless_it_has_ended(
    ledger: Ledger, failure: Failure | None, jobs: list[str]
) -> None:
    ref = submit(ledger)
    if failure == "interrupted":
        ledger.cancel_asked(ONE.key)
    if failure is not None:
        ledger.end(ONE.key, failure, "unreachable")
    assert left(ledger) == jobs
    assert [job.ref for job in taken(ledger)] == [ref] * len(jobs)
    if jobs:
        # Nobody may take the other session's end for that of this one.
        assert (entry(ledger).status, entry(ledger).failure, entry(ledger).message) == ("submitted", "", "")


@pytest.mark.parametrize("lost", [True, False])
def test_a_submission_without_an_answer_is_looked_up_by_its_name(ledger: Ledger, lost: bool) -> None:
    ledger.intend(ONE.key)
    if lost:
        ledger.end(ONE.key, "lost", "unreachable")
    (job,) = taken(ledger)
    assert job.ref == JobRef(ONE.recipe, ONE.id, name(ONE), "", "")
    assert job.age is not None
    assert 0 <= job.age < 5


@pytest.mark.parametrize("stopped", [True, False])
def test_what_was_only_planned_is_submitted_under_its_own_name(ledger: Ledger, stopped: bool) -> None:
    if stopped:
        ledger.end(ONE.key, "interrupted", "it was never submitted")
    assert taken(ledger) == [plan(ONE)]
    assert (entry(ledger).status, entry(ledger).failure) == ("planned", "")


def test_the_attempts_of_a_job_are_counted_on_and_none_is_written_over(ledger: Ledger) -> None:
    """Whatever the backend: a later session would call the second attempt the first, and keep its log under that name."""
    submit(ledger)
    ledger.attempt(ONE.key, 2)
    (job,) = taken(ledger)
    assert TrackedJob.of(job).reading.place == LogPlace(attempt=2)
    # Another job of the case begins anew.
    ledger.end(ONE.key, "interrupted", STOPPED)
    ledger.cancel_asked(ONE.key)
    ledger.cancel_confirmed({ONE.key: CANCELLED})
    (again,) = taken(ledger)
    assert (again.try_number, again.attempts) == (2, 1)


@pytest.mark.parametrize("uid", ["uid-1", "uid-2"])
def test_a_copy_of_a_job_that_is_over_keeps_no_run_from_being_resumed(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, uid: str
) -> None:
    """A JobSet that somebody applied again from a copy is of no run. The run's own would be one that its ledger calls over."""
    job = submit(ledger, "pm-1", uid="uid-1")
    ledger.end(ONE.key, "infrastructure", "somebody deleted the JobSet")
    cluster = Cluster()
    monkeypatch.setattr(cluster, "listed", lambda prefix: [replace(job, uid=uid)])
    if uid == job.uid:
        with pytest.raises(ConfigError, match="its ledger calls over"):
            resumed(ledger, "lab", [plan(ONE)], {"slurm": cluster})
    else:
        assert resumed(ledger, "lab", [plan(ONE)], {"slurm": cluster}) == []


@pytest.mark.parametrize("failure", ["", "infrastructure", "given up", "hung"])
def test_a_case_stays_as_it_ended_if_what_its_job_left_is_there(ledger: Ledger, failure: Failure) -> None:
    """It may be gone by now, and its log with it."""
    submit(ledger)
    ledger.observe(ONE.key, JobState(Phase.SUCCEEDED, "COMPLETED"))
    ledger.end(ONE.key, failure)
    ledger.cancel_asked(ONE.key)
    for cases in ((ONE, TWO), (TWO,)):
        assert [planned.key for planned in taken(ledger, *cases)] == [TWO.key]
    # `--sweep` removes it.
    assert left(ledger) == ["17"]


def test_a_cancelled_job_is_followed_by_another_one_of_another_name(ledger: Ledger) -> None:
    folder = ledger.path.parent / ONE.key
    for number in (2, 3):
        make_case_folder(folder)
        (folder / LOG).write_text(f"job {number}")
        submit(ledger, str(number))
        ledger.cancel_asked(ONE.key)
        ledger.cancel_confirmed({ONE.key: CANCELLED})
        ledger.end(ONE.key, "interrupted", STOPPED)
        (job,) = taken(ledger)
        again = JobRef(ONE.recipe, ONE.id, f"{name(ONE)}-try{number}")
        assert (job.ref, job.try_number, job.age) == (again, number, None)
    assert [(tried.ref.id, tried.message) for tried in ledger.earlier(ONE.key)] == [
        ("2", STOPPED),
        ("3", STOPPED),
    ]
    # The log of a job that was cancelled stays, beside that of the next one.
    assert [(folder / f"try-{number}" / LOG).read_text() for number in (1, 2)] == ["job 2", "job 3"]
    assert not (folder / LOG).exists()


def test_the_next_run_is_submitted_once_whenever_the_session_died(ledger: Ledger) -> None:
    """The first run ended well and did not tell."""
    submit(ledger)
    ledger.try_again(ONE.key, (), "repeated", "cannot tell")
    again = JobRef(ONE.recipe, ONE.id, f"{name(ONE)}-try2")
    assert taken(ledger) == [replace(plan(ONE), ref=again, try_number=2)]
    ledger.intend(ONE.key)
    (job,) = taken(ledger)
    assert (job.ref, job.age is None) == (again, False)
    ref = submit(ledger, "18")
    assert [job.ref for job in taken(ledger)] == [ref] == [replace(again, id="18", folder="/logs")]
    ledger.end(ONE.key)
    assert taken(ledger) == []


def test_an_undecided_run_outlives_a_cancelled_one(ledger: Ledger) -> None:
    submit(ledger)
    ledger.try_again(ONE.key, (), "repeated", "cannot tell")
    ledger.intend(ONE.key)
    ledger.end(ONE.key, "interrupted", STOPPED)
    (job,) = taken(ledger)
    again = JobRef(ONE.recipe, ONE.id, f"{name(ONE)}-try3")
    assert (job.ref, job.try_number, job.age) == (again, 3, None)
    ledger.try_again(ONE.key, (), "repeated", "cannot tell")
    tries = [(tried.try_number, tried.failure) for tried in ledger.earlier(ONE.key)]
    assert tries == [(1, "repeated"), (2, "interrupted"), (3, "repeated")]


def test_a_node_that_was_kept_out_stays_out(ledger: Ledger) -> None:
    ledger.try_again(ONE.key, ("gpu007",))
    assert [job.excluded for job in taken(ledger)] == [("gpu007",)]
    ledger.intend(ONE.key)
    ledger.end(ONE.key, "interrupted", STOPPED)
    assert [job.excluded for job in taken(ledger)] == [("gpu007",)]


def test_a_case_that_a_killed_session_held_has_ended_as_it_had(ledger: Ledger) -> None:
    """Its job is neither followed nor run again, and the next session may hold it once more."""
    submit(ledger)
    ledger.end(ONE.key, ended=50.0)
    before = entry(ledger)
    for _ in range(2):
        (planned,) = held(ledger, [plan(ONE)])
        assert planned.held == Held("", "", 50.0)
        assert (entry(ledger).status, entry(ledger).may_run) == ("held", False)
        assert taken(ledger) == []
        assert entry(ledger) == before


def test_a_case_that_the_run_did_not_have_avoids_the_nodes_of_the_others(tmp_path: Path) -> None:
    made = Ledger.create(tmp_path / JOBS_LOG, "run-1", "lab")
    made.plan([replace(planned(ONE, "slurm", name(ONE)), excluded=("gpu017",))])
    made.try_again(ONE.key, ("gpu017", "gpu007"))
    assert [found.excluded for found in taken(made, ONE, TWO)] == [("gpu017",), ("gpu017", "gpu007")]


def test_a_job_must_not_be_forgotten(ledger: Ledger) -> None:
    ledger.intend(ONE.key)
    with pytest.raises(ConfigError, match=f"not selected now: {ONE.key}; select them too, or end them with"):
        taken(ledger, TWO)


def test_another_site_is_refused(ledger: Ledger) -> None:
    with pytest.raises(ConfigError, match="it was on site lab, but --site is other"):
        resumed(ledger, "other", [plan(ONE)], {})


@pytest.mark.parametrize("status", ["planned", "intent", "submitted", "ended"])
def test_another_backend_is_refused_before_anything_is_taken_over(ledger: Ledger, status: str) -> None:
    """A log from somewhere else must not stand for the job of a cluster."""
    if status == "intent":
        ledger.intend(ONE.key)
    elif status != "planned":
        submit(ledger)
    if status == "ended":
        ledger.end(ONE.key, "interrupted", STOPPED)
    before = ledger.entries(), ledger.run()
    with pytest.raises(ConfigError, match=f"has {ONE.key} on the backend slurm, which would now be replay"):
        resumed(ledger, "lab", [replace(plan(ONE), backend="replay")], {})
    assert (ledger.entries(), ledger.run()) == before


def test_a_run_is_found_by_name_by_path_and_as_the_latest(ledger: Ledger) -> None:
    folder = ledger.path.parent
    (folder.parent / "latest").symlink_to(folder.name)
    for way in ("run-1", "latest", str(folder)):
        assert find_run(folder.parent, way) == folder
    assert all_runs(folder.parent) == [folder]
    with pytest.raises(ConfigError, match=r"no run 'run-2' in .*; the last ones are run-1"):
        find_run(folder.parent, "run-2")
    with pytest.raises(ConfigError, match="there is none at all"):
        find_run(folder, "latest")


def test_a_dead_run_shows_the_jobs_that_may_still_run(ledger: Ledger, tmp_path: Path) -> None:
    submit(ledger, "4711")
    summary, shown = Summary.of(ledger.path.parent), io.StringIO()
    assert ([job.ref.id for job in summary.left], summary.state) == (["4711"], "died")
    print_runs(ledger.path.parents[1], shown, 200)
    assert all(words in shown.getvalue() for words in ("run-1", "4711", "1 not judged"))
    none = io.StringIO()
    print_runs(tmp_path, none, 200)
    assert none.getvalue() == f"no run in {tmp_path}\n"


@pytest.mark.parametrize(("passed", "low", "high"), [(500, 499, 502), (-86400, 0, 0)])
def test_an_old_intent_keeps_its_age_and_none_is_younger_than_new(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, passed: float, low: float, high: float
) -> None:
    """The clock may have been set back."""
    ledger.intend(ONE.key)
    now = time.time() + passed
    monkeypatch.setattr(time, "time", lambda: now)
    (job,) = taken(ledger)
    assert job.age is not None
    assert low <= job.age <= high


class Silent(Cluster):
    """It raises this, whatever it is asked."""

    def __init__(self, error: Unreachable) -> None:
        super().__init__()
        self.error = error

    def listed(self, prefix: str) -> list[JobRef]:
        raise self.error


@pytest.mark.parametrize("ended", ["before it was submitted", "by Ctrl-C"])
def test_nothing_is_submitted_unasked_while_the_cluster_does_not_answer(ledger: Ledger, ended: str) -> None:
    expected = name(ONE)
    if ended == "by Ctrl-C":
        submit(ledger)
        expected += "-try2"
    ledger.end(ONE.key, "interrupted", STOPPED)
    silent = Silent(Unreachable("no route to host"))
    (job,) = resumed(ledger, "lab", [plan(ONE)], {"slurm": silent})
    assert job.ref == JobRef(ONE.recipe, ONE.id, expected, "", "")
    assert (entry(ledger).status, entry(ledger).ref.name, entry(ledger).may_run) == ("intent", expected, True)


@pytest.mark.parametrize("error", [Absent("the name login cannot be resolved"), Denied("401: Unauthorized")])
def test_a_cluster_whose_access_somebody_must_mend_leaves_the_run(ledger: Ledger, error: Unreachable) -> None:
    """Nothing is abandoned: the jobs that may still run are named, and a later session takes them up."""
    submit(ledger)
    ledger.plan([planned(TWO, "slurm", name(TWO))])
    before = ledger.entries()
    with pytest.raises(ConfigError) as caught:
        resumed(ledger, "lab", [plan(ONE), plan(TWO)], {"slurm": Silent(error)})
    words = str(caught.value)
    assert words.startswith(f"--resume run-1: its jobs cannot be followed: {error}\n")
    assert f"still there, as far as the ledger knows: {ONE.key} (job 17)\n" in words
    assert TWO.key not in words
    assert ledger.entries() == before
    assert len(taken(ledger, ONE, TWO)) == 2


def test_runs_that_begin_in_the_same_second_have_names_of_their_own(tmp_path: Path) -> None:
    """On one cluster, by users whose results are in different folders: 32 bits are random."""
    config = SimpleNamespace(option=SimpleNamespace(resume=None), getoption=lambda _: str(tmp_path))
    names = {folder_of(config).name for _ in range(2)}  # type: ignore[arg-type]
    assert len(names) == 2
    assert all(re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{8}", name) for name in names)


LOST = JobRef("llama3", "70b-fp8-512gpus", "pacemark-x.one")


class EmptyQueue:
    """A cluster that shows no job; each question takes as long as is asked for."""

    def __init__(self) -> None:
        self.now = 0.0

    def asked(self, doubt: Doubt, at: float, seconds: float = 0.0) -> bool:
        """Whether all is settled once it was looked up at this time."""
        self.now, self._seconds = at, seconds
        assert doubt.look_up(cast(Backend, self), LOST, bound=60) is None
        return doubt.settled

    def find(self, *_: Any, **__: Any) -> None:
        self.now += self._seconds


def test_two_lists_of_almost_one_time_settle_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    queue, doubt = EmptyQueue(), Doubt(submitted=0)
    monkeypatch.setattr(unconfirmed, "time", SimpleNamespace(monotonic=lambda: queue.now))
    assert not queue.asked(doubt, at=59, seconds=10)
    assert not queue.asked(doubt, at=70)
    # The answer comes late, and may have been made at once.
    assert not queue.asked(doubt, at=71, seconds=5)
    assert queue.asked(doubt, at=76)
