"""Which planned jobs are next: what fits, what a job comes after, and what it shares."""

from __future__ import annotations

import itertools

import pytest

from fixtures.backends.section import Limits
from fixtures.fleet.job import Status, TrackedJob
from fixtures.fleet.order import CHECKPOINT, Busy, Candidate, busy_with, candidate, next_jobs
from fixtures.runs.planned import PlannedJob
from plugins.recipes.cases import same_reports
from plugins.record.job import JobRef
from tests.unit import examples
from tests.unit.cluster import WIDE

MANY = Limits(jobs_in_flight=100, submissions_at_once=6)


def job(name: str, gpus: int = 8, **needs: object) -> Candidate:
    sets = {key: frozenset((value,)) for key, value in needs.items() if isinstance(value, str)}
    return Candidate(name, gpus, **{**needs, **sets})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("planned", "busy", "limits", "chosen"),
    [
        pytest.param([job("a", 8), job("b", 64)], Busy(), MANY, "b a", id="the widest first"),
        pytest.param([job("a", minutes=1.0), job("b", minutes=2.0)], Busy(), MANY, "b a", id="then the longest"),
        pytest.param(
            [job("a", 64), job("b", 8)],
            Busy(gpus=8),
            Limits(gpus_in_flight=64),
            "b",
            id="a smaller one overtakes what does not fit",
        ),
        pytest.param(
            [job("a"), job("b"), job("c")], Busy(jobs=1), Limits(jobs_in_flight=3), "a b", id="as many jobs as allowed"
        ),
        pytest.param(
            [job("a"), job("b")], Busy(launchers=1), Limits(submissions_at_once=2), "a", id="as many launchers"
        ),
        pytest.param([job("a")], Busy(jobs=3), Limits(jobs_in_flight=3), "", id="no room"),
        pytest.param([job("load", after="save")], Busy(), MANY, "", id="after what has not ended"),
        pytest.param(
            [job("load", after="save")], Busy(reached=frozenset({"save"})), MANY, "load", id="after what has"
        ),
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
    made = TrackedJob.of(PlannedJob(WIDE, "slurm", JobRef(WIDE.recipe, case_id, "name"), "nemo2"))
    made.status = status
    return made


def test_a_job_of_an_isolation_comes_after_the_job_of_its_case_and_alone_on_its_nodes() -> None:
    both = [candidate(tracked(f"{WIDE.id}/isolate1x1.{run}-gpu001")) for run in (1, 2)]
    for status in Status:
        busy = busy_with([tracked(status=status)], 0)
        assert len(next_jobs(both, busy, MANY)) == (status is Status.HELD)
    for status in Status:
        other = tracked(f"{WIDE.id}/isolate1x1.2-gpu001", status)
        busy = busy_with([tracked(status=Status.HELD), other], 0)
        assert bool(next_jobs(both[:1], busy, MANY)) == (not other.is_there)


def test_a_load_comes_after_its_save_if_this_session_runs_it() -> None:
    recipe = examples.llama3()
    load = next(case for case in recipe.cases if case.after is not None)
    assert load.after is not None
    plan = TrackedJob.of(PlannedJob(load, "slurm", JobRef(load.recipe, load.id, load.id), "nemo2"))
    assert candidate(plan, [load.key, load.after.key]).after == {load.after.key}
    assert candidate(plan, [load.key]).after == set()
    assert candidate(plan).shares >= {CHECKPOINT}


def test_what_a_set_up_runs_for_it_does_not_use() -> None:
    setup = TrackedJob.of(PlannedJob(WIDE, "slurm", JobRef(WIDE.recipe, "setup", "setup"), None))
    setup.status = Status.LIVE
    assert busy_with([setup], 0) == Busy(jobs=1)
    assert busy_with([tracked(status=Status.LIVE)], 0) == Busy(
        jobs=1, gpus=WIDE.gpus, shared=frozenset({WIDE.reports})
    )


def test_jobs_that_write_the_same_reports_are_never_next_together() -> None:
    """As two by two, so in the one rule."""
    cases = examples.recipe_named("maxtext_llama2").cases
    jobs = {
        case.id: candidate(
            TrackedJob.of(PlannedJob(case, "slurm", JobRef(case.recipe, case.id, case.id), "nemo2"))
        )
        for case in cases
        if not case.leaves_checkpoint and case.after is None
    }
    assert any(case.names_reports_by_kind for case in cases)
    for first, second in itertools.combinations(jobs, 2):
        pair = [case for case in cases if case.id in (first, second)]
        together = next_jobs([jobs[first], jobs[second]], Busy(), MANY)
        assert (len(together) == 2) is not same_reports(*pair), (first, second)
