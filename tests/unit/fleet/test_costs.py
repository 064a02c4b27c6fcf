"""How often the fleet asks the cluster: by the round, not by the job."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from fixtures.backends.base import LogPlace
from fixtures.fleet import follow
from fixtures.fleet.controller import PollInterval
from fixtures.runs.ledger import Ledger
from fixtures.session import opening, prospects
from plugins.base.errors import Unreachable
from plugins.baselines.store import Baseline
from plugins.judging.evidence import baseline_in
from plugins.recipes.cases import Case
from plugins.record.job import JobRef, JobState
from tests.unit import examples
from tests.unit.chosen import chosen
from tests.unit.cluster import DONE, MIDDLE, NARROW, RUNNING, WIDE, Cluster, Start


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


def test_the_cluster_is_asked_sooner_only_near_an_end(
    cluster: Cluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    due = PollInterval.due

    def note(interval: PollInterval, now: float, *, changed: float, near: bool) -> float:
        asked.append(near)
        return due(interval, now, changed=changed, near=near)

    monkeypatch.setattr(PollInterval, "due", note)
    monkeypatch.setattr(follow.Follower, "near", property(lambda _: False))
    start(WIDE).finish()
    assert set(asked) == {False}


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


def test_the_baseline_of_a_case_is_looked_up_once_for_its_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    case, looked = chosen(), list[Baseline | None]()

    def counted(*arguments: Any) -> Baseline | None:
        looked.append(baseline_in(*arguments))
        return looked[-1]

    monkeypatch.setattr("fixtures.session.prospects.baseline_in", counted)
    plan = opening._planned(Path("run"), case, ())
    price = prospects.price(case)
    assert len(looked) == 2
    assert plan.expected is not None
    assert price is not None
    assert plan.minutes == price.minutes
