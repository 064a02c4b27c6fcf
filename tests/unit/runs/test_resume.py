"""What a session takes over from one that died, whatever it was doing; and what runs look like from outside."""

from __future__ import annotations

import io
import re
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from fixtures.backends.base import LogPlace
from fixtures.fleet.job import TrackedJob
from fixtures.runs.folders import Summary, all_runs, find_run, print_runs
from fixtures.runs.ledger import Ledger
from fixtures.runs.lock import RunLock, is_live
from fixtures.runs.planned import Held, PlannedJob
from fixtures.runs.resume import held, resumed
from fixtures.session.choosing import folder_of
from plugins.base.errors import Absent, ConfigError, Denied, Unreachable
from plugins.recipes.cases import Case
from plugins.record.folder import LOG, make_case_folder
from plugins.record.job import Failure, JobRef, JobState, Phase
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


def taken(ledger: Ledger, *cases: Case) -> list[PlannedJob]:
    return resumed(ledger, "lab", [plan(case) for case in cases or (ONE,)], {})


def test_what_was_only_planned_is_submitted(ledger: Ledger) -> None:
    assert taken(ledger) == [plan(ONE)]


def test_what_was_about_to_be_submitted_is_looked_up_by_its_name(ledger: Ledger) -> None:
    ledger.intend(ONE.key)
    (found,) = taken(ledger)
    assert found.ref == JobRef(ONE.recipe, ONE.id, name(ONE), "", "")
    assert found.age is not None
    assert 0 <= found.age < 5


def test_what_was_submitted_is_followed(ledger: Ledger) -> None:
    ledger.intend(ONE.key)
    ledger.submitted(JobRef(ONE.recipe, ONE.id, name(ONE), "17", "/logs"))
    (found,) = taken(ledger)
    assert found.ref == JobRef(ONE.recipe, ONE.id, name(ONE), "17", "/logs")


def test_the_attempts_of_a_job_are_counted_on_and_none_is_written_over(ledger: Ledger) -> None:
    """Whatever the backend: a later session would call the second attempt the first, and keep its log under that name."""
    ledger.intend(ONE.key)
    ledger.submitted(JobRef(ONE.recipe, ONE.id, name(ONE), "17", "/logs"))
    ledger.attempt(ONE.key, 2)
    (found,) = taken(ledger)
    assert TrackedJob.of(found).reading.place == LogPlace(attempt=2)
    # Another job of the case begins anew.
    ledger.end(ONE.key, "interrupted", "the session was stopped")
    ledger.cancel_asked(ONE.key)
    ledger.cancel_confirmed({ONE.key: CANCELLED})
    (again,) = taken(ledger)
    assert (again.try_number, again.attempts) == (2, 1)


@pytest.mark.parametrize("uid", ["uid-1", "uid-2"])
def test_a_copy_of_a_job_that_is_over_keeps_no_run_from_being_resumed(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, uid: str
) -> None:
    """A JobSet that somebody applied again from a copy is of no run. The run's own would be one that its ledger calls over."""
    ledger.intend(ONE.key)
    job = JobRef(ONE.recipe, ONE.id, name(ONE), "pm-1", "default", uid="uid-1")
    ledger.submitted(job)
    ledger.end(ONE.key, "infrastructure", "somebody deleted the JobSet")
    cluster = Cluster()
    monkeypatch.setattr(cluster, "listed", lambda prefix: [replace(job, uid=uid)])
    if uid == job.uid:
        with pytest.raises(ConfigError, match="its ledger calls over"):
            resumed(ledger, "lab", [plan(ONE)], {"slurm": cluster})
    else:
        assert resumed(ledger, "lab", [plan(ONE)], {"slurm": cluster}) == []


@pytest.mark.parametrize("failure", ["", "infrastructure", "given up", "hung"])
def test_what_has_ended_stays_so(ledger: Ledger, failure: Failure) -> None:
    ledger.intend(ONE.key)
    ledger.submitted(JobRef(ONE.recipe, ONE.id, name(ONE), "17", "/logs"))
    ledger.end(ONE.key, failure)
    assert taken(ledger) == []


@pytest.mark.parametrize("failure", ["", "infrastructure", "given up", "hung"])
def test_a_case_stays_as_it_ended_if_what_its_job_left_could_not_be_removed(
    ledger: Ledger, failure: Failure
) -> None:
    """It may be gone by now, and its log with it."""
    ledger.intend(ONE.key)
    ledger.submitted(JobRef(ONE.recipe, ONE.id, name(ONE), "17", "/logs"))
    ledger.observe(ONE.key, JobState(Phase.SUCCEEDED, "COMPLETED"))
    ledger.end(ONE.key, failure)
    ledger.cancel_asked(ONE.key)
    assert [planned.key for planned in taken(ledger, ONE, TWO)] == [TWO.key]
    assert [planned.key for planned in taken(ledger, TWO)] == [TWO.key]
    # `--sweep` removes it.
    assert [entry.case for entry in Summary.of(ledger.path.parent).left] == [ONE.key]


def test_a_lost_job_is_looked_for_again(ledger: Ledger) -> None:
    ledger.intend(ONE.key)
    ledger.submitted(JobRef(ONE.recipe, ONE.id, name(ONE), "17", "/logs"))
    ledger.end(ONE.key, "lost", "unreachable")
    assert [entry.ref.id for entry in Summary.of(ledger.path.parent).left] == ["17"]
    (found,) = taken(ledger)
    assert found.ref is not None
    assert found.ref.id == "17"
    # Nobody may take the other session's end for that of this one.
    entry = ledger.entry(ONE.key)
    assert entry is not None
    assert (entry.status, entry.failure, entry.message) == ("submitted", "", "")


def test_a_submission_that_was_lost_is_looked_up_by_its_name(ledger: Ledger) -> None:
    ledger.intend(ONE.key)
    ledger.end(ONE.key, "lost", "unreachable")
    (found,) = taken(ledger)
    assert found.ref == JobRef(ONE.recipe, ONE.id, name(ONE), "", "")


def test_a_job_that_the_cluster_has_forgotten_cannot_run_any_more(ledger: Ledger) -> None:
    ledger.intend(ONE.key)
    ledger.submitted(JobRef(ONE.recipe, ONE.id, name(ONE), "17", "/logs"))
    ledger.observe(ONE.key, JobState(Phase.GONE, "GONE"))
    ledger.end(ONE.key, "lost", "forgotten")
    assert Summary.of(ledger.path.parent).left == []


def test_a_cancelled_job_is_followed_by_another_one_of_another_name(ledger: Ledger) -> None:
    folder = ledger.path.parent / ONE.key
    for number in (2, 3):
        make_case_folder(folder)
        (folder / LOG).write_text(f"job {number}")
        ledger.intend(ONE.key)
        ledger.submitted(JobRef(ONE.recipe, ONE.id, "any", str(number), "/logs"))
        ledger.cancel_asked(ONE.key)
        ledger.cancel_confirmed({ONE.key: CANCELLED})
        ledger.end(ONE.key, "interrupted", "the session was stopped")
        (found,) = taken(ledger)
        again = JobRef(ONE.recipe, ONE.id, f"{name(ONE)}-try{number}")
        assert (found.ref, found.try_number, found.age) == (again, number, None)
    assert [tried.ref.id for tried in ledger.earlier(ONE.key)] == ["2", "3"]
    # The log of a job that was cancelled stays, beside that of the next one.
    assert [(folder / f"try-{number}" / LOG).read_text() for number in (1, 2)] == ["job 2", "job 3"]
    assert not (folder / LOG).exists()
    assert ledger.earlier(ONE.key)[0].message == "the session was stopped"


def run_undecided(ledger: Ledger) -> None:
    """A first run that ended well and did not tell, and the next one recorded."""
    ledger.intend(ONE.key)
    ledger.submitted(JobRef(ONE.recipe, ONE.id, name(ONE), "17", "/logs"))
    ledger.try_again(ONE.key, (), "repeated", "cannot tell")


def test_the_next_run_is_submitted_once_whenever_the_session_died(ledger: Ledger) -> None:
    run_undecided(ledger)
    again = JobRef(ONE.recipe, ONE.id, f"{name(ONE)}-try2")
    second = replace(plan(ONE), ref=again, try_number=2)
    assert taken(ledger) == [second]
    ledger.intend(ONE.key)
    (found,) = taken(ledger)
    assert (found.ref, found.age is None) == (again, False)
    ledger.submitted(JobRef(ONE.recipe, ONE.id, second.ref.name, "18", "/logs"))
    (found,) = taken(ledger)
    assert found.ref == JobRef(ONE.recipe, ONE.id, second.ref.name, "18", "/logs")
    ledger.end(ONE.key)
    assert taken(ledger) == []
    (tried,) = ledger.earlier(ONE.key)
    assert (tried.try_number, tried.failure) == (1, "repeated")


def test_an_undecided_run_outlives_a_cancelled_one(ledger: Ledger) -> None:
    run_undecided(ledger)
    ledger.intend(ONE.key)
    ledger.end(ONE.key, "interrupted", "the session was stopped")
    (found,) = taken(ledger)
    again = JobRef(ONE.recipe, ONE.id, f"{name(ONE)}-try3")
    assert (found.ref, found.try_number, found.age) == (again, 3, None)
    ledger.try_again(ONE.key, (), "repeated", "cannot tell")
    tries = [(tried.try_number, tried.failure) for tried in ledger.earlier(ONE.key)]
    assert tries == [(1, "repeated"), (2, "interrupted"), (3, "repeated")]


def test_a_node_that_was_kept_out_stays_out(ledger: Ledger) -> None:
    ledger.try_again(ONE.key, ("gpu007",))
    assert [found.excluded for found in taken(ledger)] == [("gpu007",)]
    ledger.intend(ONE.key)
    ledger.end(ONE.key, "interrupted", "the session was stopped")
    assert [found.excluded for found in taken(ledger)] == [("gpu007",)]


def test_a_case_that_a_killed_session_held_has_ended_as_it_had(ledger: Ledger) -> None:
    """Its job is neither followed nor run again, and the next session may hold it once more."""
    ledger.intend(ONE.key)
    ledger.submitted(JobRef(ONE.recipe, ONE.id, name(ONE), "17", "/logs"))
    ledger.end(ONE.key, ended=50.0)
    before = ledger.entry(ONE.key)
    for _ in range(2):
        (planned,) = held(ledger, [plan(ONE)])
        assert planned.held == Held("", "", 50.0)
        entry = ledger.entry(ONE.key)
        assert entry is not None
        assert (entry.status, entry.may_run) == ("held", False)
        assert taken(ledger) == []
        assert ledger.entry(ONE.key) == before


def test_a_case_that_the_run_did_not_have_avoids_the_nodes_of_the_others(tmp_path: Path) -> None:
    made = Ledger.create(tmp_path / JOBS_LOG, "run-1", "lab")
    made.plan([replace(planned(ONE, "slurm", name(ONE)), excluded=("gpu017",))])
    made.try_again(ONE.key, ("gpu017", "gpu007"))
    assert [found.excluded for found in taken(made, ONE, TWO)] == [("gpu017",), ("gpu017", "gpu007")]


def test_a_cancellation_that_was_not_confirmed_is_followed_up(ledger: Ledger) -> None:
    ledger.intend(ONE.key)
    ledger.submitted(JobRef(ONE.recipe, ONE.id, name(ONE), "17", "/logs"))
    ledger.cancel_asked(ONE.key)
    ledger.end(ONE.key, "interrupted", "NOT confirmed")
    (found,) = taken(ledger)
    assert found.ref is not None


def test_a_case_that_the_stop_came_before_is_submitted_under_its_own_name(ledger: Ledger) -> None:
    ledger.end(ONE.key, "interrupted", "it was never submitted")
    assert taken(ledger) == [plan(ONE)]
    entry = ledger.entry(ONE.key)
    assert entry is not None
    assert (entry.status, entry.failure) == ("planned", "")


def test_a_new_case_joins_the_run(ledger: Ledger) -> None:
    assert [found.case for found in taken(ledger, ONE, TWO)] == [TWO, ONE]
    assert ledger.entry(TWO.key) is not None


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
    if status != "planned":
        ledger.intend(ONE.key)
    if status in ("submitted", "ended"):
        ledger.submitted(JobRef(ONE.recipe, ONE.id, name(ONE), "17", "/logs"))
    if status == "ended":
        ledger.end(ONE.key, "interrupted", "the session was stopped")
    before = ledger.entries(), ledger.run()
    with pytest.raises(ConfigError, match=f"has {ONE.key} on the backend slurm, which would now be replay"):
        resumed(ledger, "lab", [replace(plan(ONE), backend="replay")], {})
    assert (ledger.entries(), ledger.run()) == before


def test_a_run_is_locked_as_long_as_its_process_lives(ledger: Ledger) -> None:
    folder = ledger.path.parent
    assert not is_live(folder)
    lock = RunLock(folder)
    assert lock.take()
    assert is_live(folder)
    assert not RunLock(folder).take()
    lock.release()
    assert not is_live(folder)


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


def test_a_dead_run_shows_the_jobs_that_may_still_run(ledger: Ledger) -> None:
    ledger.intend(ONE.key)
    ledger.submitted(JobRef(ONE.recipe, ONE.id, name(ONE), "4711", "/logs"))
    found = Summary.of(ledger.path.parent)
    assert [entry.ref.id for entry in found.left] == ["4711"]
    assert found.state == "died"
    shown = io.StringIO()
    print_runs(ledger.path.parents[1], shown, 200)
    assert "run-1" in shown.getvalue()
    assert "4711" in shown.getvalue()
    assert "1 not judged" in shown.getvalue()


def test_no_run_is_said_in_words(tmp_path: Path) -> None:
    shown = io.StringIO()
    print_runs(tmp_path, shown, 200)
    assert shown.getvalue() == f"no run in {tmp_path}\n"


def test_an_old_intent_keeps_its_age(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.intend(ONE.key)
    later = time.time() + 500
    monkeypatch.setattr(time, "time", lambda: later)
    (found,) = taken(ledger)
    assert found.age is not None
    assert 499 < found.age < 502


def test_a_clock_that_was_set_back_makes_no_job_younger_than_new(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.intend(ONE.key)
    earlier = time.time() - 86400
    monkeypatch.setattr(time, "time", lambda: earlier)
    (found,) = taken(ledger)
    assert found.age == 0


class Silent(Cluster):
    def listed(self, prefix: str) -> list[JobRef]:
        raise Unreachable("no route to host")


@pytest.mark.parametrize("ended", ["before it was submitted", "by Ctrl-C"])
def test_nothing_is_submitted_unasked_while_the_cluster_does_not_answer(ledger: Ledger, ended: str) -> None:
    expected = name(ONE)
    if ended == "by Ctrl-C":
        ledger.intend(ONE.key)
        ledger.submitted(JobRef(ONE.recipe, ONE.id, name(ONE), "17", "/logs"))
        expected += "-try2"
    ledger.end(ONE.key, "interrupted", "the session was stopped")
    (found,) = resumed(ledger, "lab", [plan(ONE)], {"slurm": Silent()})
    assert found.ref == JobRef(ONE.recipe, ONE.id, expected, "", "")
    (entry,) = ledger.entries()
    assert (entry.status, entry.ref.name, entry.may_run) == ("intent", expected, True)


@pytest.mark.parametrize("error", [Absent("the name login cannot be resolved"), Denied("401: Unauthorized")])
def test_a_cluster_whose_access_somebody_must_mend_leaves_the_run_as_it_was(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, error: Unreachable
) -> None:
    """Nothing is abandoned: the jobs that may still run are named, and a later session takes them up."""

    def refuse(prefix: str) -> list[JobRef]:
        raise error

    ledger.intend(ONE.key)
    ledger.submitted(JobRef(ONE.recipe, ONE.id, name(ONE), "17", "/logs"))
    ledger.plan([planned(TWO, "slurm", name(TWO))])
    before = ledger.entries()
    cluster = Cluster()
    monkeypatch.setattr(cluster, "listed", refuse)
    with pytest.raises(ConfigError) as caught:
        resumed(ledger, "lab", [plan(ONE), plan(TWO)], {"slurm": cluster})
    said = str(caught.value)
    assert said.startswith(f"--resume run-1: its jobs cannot be followed: {error}\n")
    assert f"still there, as far as the ledger knows: {ONE.key} (job 17)\n" in said
    assert TWO.key not in said
    assert ledger.entries() == before
    assert len(taken(ledger, ONE, TWO)) == 2


def test_runs_that_begin_in_the_same_second_have_names_of_their_own(tmp_path: Path) -> None:
    """On one cluster, by users whose results are in different folders: 32 bits are random."""
    config = SimpleNamespace(option=SimpleNamespace(resume=None), getoption=lambda _: str(tmp_path))
    names = {folder_of(config).name for _ in range(2)}  # type: ignore[arg-type]
    assert len(names) == 2
    assert all(re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{8}", name) for name in names)
