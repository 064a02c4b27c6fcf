"""The pure questions of a fleet: which jobs are next, what follows the end of a job, and when the cluster is asked again."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from fixtures.backends.base import LogPlace
from fixtures.backends.section import Limits
from fixtures.fleet import follow
from fixtures.fleet.controller import SLOWEST, PollInterval
from fixtures.fleet.ending import End, Hold, JobEnd, Repeat, Retry, after
from fixtures.fleet.job import Status, TrackedJob
from fixtures.fleet.order import CHECKPOINT, Busy, Candidate, busy_with, candidate, next_jobs
from fixtures.fleet.state import Isolation
from fixtures.runs.ledger import Ledger
from plugins.base.errors import Unreachable
from plugins.recipes.cases import Case, same_reports
from plugins.record.job import Failure, Job, JobRef, JobState
from tests.unit import examples
from tests.unit.cluster import DONE, MIDDLE, NARROW, RUNNING, WIDE, Cluster, Start
from tests.unit.fleet.test_isolate import isolation
from tests.unit.jobs_log import planned

# Which planned jobs are next: what fits, what a job comes after, and what it shares

MANY = Limits(jobs_in_flight=100, submissions_at_once=6)


def job(name: str, gpus: int = 8, **needs: object) -> Candidate:
    sets = {key: frozenset((value,)) for key, value in needs.items() if isinstance(value, str)}
    return Candidate(name, gpus, **{**needs, **sets})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("planned", "busy", "limits", "chosen"),
    [
        pytest.param([job("a", 8), job("b", 64)], Busy(), MANY, "b a", id="the widest first"),
        pytest.param([job("a", minutes=1.0), job("b", minutes=2.0)], Busy(), MANY, "b a", id="then the longest"),
        pytest.param([job("a", 64), job("b")], Busy(gpus=8), Limits(gpus_in_flight=64), "b", id="what fits overtakes"),
        pytest.param([job("a"), job("b"), job("c")], Busy(jobs=1), Limits(jobs_in_flight=3), "a b", id="so many jobs"),
        pytest.param([job("a"), job("b")], Busy(launchers=1), Limits(submissions_at_once=2), "a", id="so many launchers"),
        pytest.param([job("a")], Busy(jobs=3), Limits(jobs_in_flight=3), "", id="no room"),
        pytest.param([job("load", after="save")], Busy(), MANY, "", id="after what has not ended"),
        pytest.param([job("load", after="save")], Busy(reached=frozenset({"save"})), MANY, "load", id="after what has"),
        pytest.param([job("a", holds="x")], Busy(held=frozenset("x")), MANY, "", id="held by another"),
        pytest.param([job("a", holds="x")], Busy(shared=frozenset("x")), MANY, "", id="alone, and shared by another"),
        pytest.param([job("a", shares="x")], Busy(held=frozenset("x")), MANY, "", id="shared, and held by another"),
        pytest.param([job("a", shares="x")], Busy(shared=frozenset("x")), MANY, "a", id="shared with another"),
        pytest.param([job("a", holds="x"), job("b", holds="x")], Busy(), MANY, "a", id="one of two that need it alone"),
        pytest.param([job("a", shares="x"), job("b", shares="x")], Busy(), MANY, "a b", id="both that share it"),
        pytest.param([job("a", shares="x"), job("b", holds="x")], Busy(), MANY, "a", id="the first of the two kinds"),
    ],
)  # fmt: skip
def test_the_jobs_to_submit_now(planned: list[Candidate], busy: Busy, limits: Limits, chosen: str) -> None:
    assert [each.key for each in next_jobs(planned, busy, limits)] == chosen.split()


def tracked(case_id: str = WIDE.id, status: Status = Status.PLANNED) -> TrackedJob:
    plan = planned(WIDE, "slurm", "name")
    made = TrackedJob.of(replace(plan, ref=replace(plan.ref, case_id=case_id)))
    made.status = status
    return made


def test_a_job_of_an_isolation_comes_after_the_job_of_its_case_and_alone_on_its_nodes() -> None:
    both = [candidate(tracked(f"{WIDE.id}/isolate1x1.{run}-gpu001")) for run in (1, 2)]
    for status in Status:
        busy = busy_with([tracked(status=status)], 0)
        assert len(next_jobs(both, busy, MANY)) == (status is Status.HELD)
        other = tracked(f"{WIDE.id}/isolate1x1.2-gpu001", status)
        busy = busy_with([tracked(status=Status.HELD), other], 0)
        assert bool(next_jobs(both[:1], busy, MANY)) == (not other.is_there)


def test_a_load_comes_after_its_save_if_this_session_runs_it() -> None:
    load = next(case for case in examples.llama3().cases if case.after is not None)
    assert load.after is not None
    plan = TrackedJob.of(planned(load, "slurm", load.id))
    assert candidate(plan, [load.key, load.after.key]).after == {load.after.key}
    assert candidate(plan, [load.key]).after == set()
    assert candidate(plan).shares >= {CHECKPOINT}


def test_what_a_set_up_runs_for_it_does_not_use() -> None:
    setup = tracked("setup", Status.LIVE)
    setup.log_format = None
    assert busy_with([setup], 0) == Busy(jobs=1)
    live, reports = tracked(status=Status.LIVE), frozenset({WIDE.reports})
    assert busy_with([live], 0) == Busy(jobs=1, gpus=WIDE.gpus, shared=reports)


def test_jobs_that_write_the_same_reports_are_never_next_together() -> None:
    """As two by two, so in the one rule."""
    cases = examples.recipe_named("maxtext_llama2").cases
    cases = tuple(case for case in cases if not case.leaves_checkpoint and case.after is None)
    assert any(case.names_reports_by_kind for case in cases)
    jobs = {case.id: candidate(TrackedJob.of(planned(case, "slurm", case.id))) for case in cases}
    for first, second in itertools.combinations(cases, 2):
        together = next_jobs([jobs[first.id], jobs[second.id]], Busy(), MANY)
        assert (len(together) == 2) is not same_reports(first, second), (first.id, second.id)


# What follows the end of a case's job

SLOW = isolation()
WELL, BROKEN, DIED = JobEnd(complete=True), JobEnd("infrastructure"), JobEnd(died=True)


class Judge:
    """Says the same of each case. What it is not asked it does not say."""

    def __init__(
        self, another_run: str | None = None, isolation: Isolation | str | None = "not asked"
    ) -> None:
        self._another_run, self._isolation = another_run, isolation

    def another_run(self) -> str:
        assert self._another_run is not None
        return self._another_run

    def isolation(self) -> Isolation | None:
        assert not isinstance(self._isolation, str)
        return self._isolation


def tries(*failures: Failure) -> list[Job]:
    return [Job(ref=JobRef("r", "c", "name"), failure=failure) for failure in failures]


NOBODY, FINE, MORE, ILL = Judge(), Judge("", None), Judge("too noisy to tell"), Judge("", SLOW)
UNASKED = Judge(isolation=None)


@pytest.mark.parametrize(
    ("end", "earlier", "judge", "retries", "follows"),
    [
        pytest.param(WELL, [], FINE, 0, End(), id="it ended well"),
        pytest.param(WELL, [], MORE, 0, Repeat(2, "too noisy to tell"), id="one run cannot tell"),
        pytest.param(WELL, tries("repeated", "repeated"), MORE, 0, Repeat(4, "too noisy to tell"), id="the 4th run"),
        pytest.param(WELL, tries("infrastructure"), MORE, 1, Repeat(2, "too noisy to tell"), id="a retry is no run"),
        pytest.param(WELL, [], ILL, 0, Hold(SLOW), id="too slow, whose nodes are probed"),
        pytest.param(JobEnd(), [], UNASKED, 3, End(), id="its log is not whole"),
        pytest.param(JobEnd(), [], Judge(isolation=SLOW), 3, Hold(SLOW), id="its log is not whole, and it is slow"),
        pytest.param(BROKEN, [], UNASKED, 0, End(), id="broken, no retries"),
        pytest.param(BROKEN, [], NOBODY, 2, Retry(1), id="broken"),
        pytest.param(DIED, [], NOBODY, 2, Retry(1), id="died by itself"),
        pytest.param(BROKEN, tries("infrastructure"), NOBODY, 2, Retry(2), id="broken again"),
        pytest.param(BROKEN, tries("infrastructure", "infrastructure"), UNASKED, 2, End(), id="broken too often"),
        pytest.param(BROKEN, tries("repeated", "infrastructure"), NOBODY, 2, Retry(2), id="a run is no retry"),
        pytest.param(JobEnd("lost"), [], UNASKED, 2, End(), id="lost"),
        pytest.param(JobEnd("hung", complete=True), [], UNASKED, 2, End(), id="hung after its last step"),
        pytest.param(JobEnd("given up"), [], Judge(isolation=SLOW), 2, Hold(SLOW), id="given up as slow"),
        pytest.param(JobEnd("given up", died=True), [], UNASKED, 2, End(), id="a cancelled job did not die"),
        pytest.param(replace(WELL, isolating=True), [], FINE, 0, Hold(), id="its isolation is under way"),
        pytest.param(replace(BROKEN, final=True), [], NOBODY, 2, End(), id="the session stops"),
        pytest.param(replace(WELL, final=True), [], NOBODY, 0, End(), id="cancelled by hand"),
        pytest.param(
            replace(WELL, final=True, isolating=True), [], NOBODY, 0, Hold(), id="the session stops during an isolation"
        ),
    ],
)  # fmt: skip
def test_what_follows_the_end_of_a_job(
    end: JobEnd, earlier: Sequence[Job], judge: Judge, retries: int, follows: End | Retry | Repeat | Hold
) -> None:
    assert after(end, earlier, retries, judge.another_run, judge.isolation) == follows


# How often a cluster is asked, whatever happens on it


def asked(seconds: float, *, near: float = 0.0, changes: float = 0.0, fastest: float = 1.0) -> list[float]:
    """When a loop that looks every 10 ms asks; `near` and `changes` are how long these go on."""
    pace, times = PollInterval(fastest, 0.0), list[float]()
    for now in (tick / 100 for tick in range(int(100 * seconds))):
        if now >= pace.due(now, changed=min(now, changes), near=now < near):
            pace.ask(now)
            times.append(now)
    return times


def pauses(times: Sequence[float], holds: Callable[[float], bool]) -> list[float]:
    return [after - before for before, after in itertools.pairwise(times) if holds(after)]


@pytest.mark.parametrize("fastest", [1.0, 0.1])
@pytest.mark.parametrize(("near", "changes"), [(1e9, 1e9), (0.0, 1e9), (1e9, 0.0), (30.0, 20.0)])
def test_over_a_minute_it_is_one_question_a_second_at_most(
    near: float, changes: float, fastest: float
) -> None:
    assert len(asked(60, near=near, changes=changes, fastest=fastest)) <= 60 / fastest + 3


def test_an_end_that_is_near_is_seen_sooner_after_a_quiet_time() -> None:
    pace = PollInterval(1.0, 0.0)
    for second in range(5):
        pace.ask(second * 3.0)
    assert pace.due(12.1, changed=12.0, near=True) == 12.25
    assert pace.due(12.1, changed=12.0, near=False) == 13.5


def test_a_day_long_queue_is_asked_every_quarter_of_a_minute() -> None:
    waits = pauses(asked(4000), lambda now: now > 1000 + SLOWEST)
    assert min(waits) >= SLOWEST
    assert max(waits) < 1.15 * SLOWEST
    assert len({round(wait, 2) for wait in waits}) > 3


# How often the fleet asks the cluster: by the round, not by the job


@pytest.mark.parametrize(("together", "questions"), [(32, 1), (2, 2)])
def test_the_logs_of_all_jobs_that_ended_are_asked_for_together(
    cluster: Cluster, start: Start, monkeypatch: pytest.MonkeyPatch, together: int, questions: int
) -> None:
    """What they left is removed together, and their ends are one line of the ledger."""
    cases = (WIDE, MIDDLE, NARROW, examples.case("15b-bf16-64gpus", "nemotron4"))
    read, checked, removed, ended = (list[int]() for _ in range(4))
    end_all = Ledger.end_all

    def poll(jobs: Sequence[JobRef]) -> dict[JobRef, JobState]:
        return dict.fromkeys(jobs, DONE if len(jobs) == len(cases) else RUNNING)

    def check_ahead(places: Mapping[JobRef, LogPlace]) -> None:
        assert all(place.offset for place in places.values())
        checked.append(len(places))

    def release(jobs: Sequence[JobRef]) -> dict[JobRef, Unreachable]:
        removed.append(len(jobs))
        return {}

    def note_ends(ledger: Ledger, ends: Mapping[str, Any]) -> None:
        ended.append(len(ends))
        end_all(ledger, ends)

    monkeypatch.setattr(follow, "_TOGETHER", together)
    monkeypatch.setattr(Ledger, "end_all", note_ends)
    cluster.use(
        poll=poll,
        read_ahead=lambda places: read.append(len(places)),
        check_ahead=check_ahead,
        release=release,
    )
    entries = start(*cases).finish()
    assert {entry.failure for entry in entries.values()} == {""}
    assert checked == [len(cases) // questions] * questions
    assert (
        read[-questions:]
        == [count for count in removed if count]
        == [count for count in ended if count]
        == checked
    )


@pytest.mark.parametrize("cases", [[WIDE], [WIDE, MIDDLE, NARROW]])
def test_the_jobs_that_a_stop_cancels_are_recorded_together(
    cluster: Cluster, start: Start, monkeypatch: pytest.MonkeyPatch, cases: list[Case]
) -> None:
    synced = list[int]()
    cluster.run(*cases)
    session = start(*cases)
    session.await_running()
    monkeypatch.setattr(os, "fsync", synced.append)
    session.fleet.stop()
    assert {entry.status for entry in session.entries().values()} == {"ended"}
    # That they were asked to end, that they did, the ends of their cases, and that of the run.
    assert len(synced) == 4
