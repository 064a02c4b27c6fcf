"""How often a cluster is asked, whatever happens on it."""

from __future__ import annotations

import itertools

import pytest

from fixtures.fleet.controller import SLOWEST, PollInterval


def asked(seconds: float, *, near: float = 0.0, changes: float = 0.0, fastest: float = 1.0) -> list[float]:
    """When a loop that looks every 10 ms asks; `near` and `changes` are how long these go on."""
    pace, found = PollInterval(fastest, 0.0), []
    now = 0.0
    while now < seconds:
        if now >= pace.due(now, changed=min(now, changes), near=now < near):
            pace.ask(now)
            found.append(now)
        now += 0.01
    return found


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


def test_a_short_job_is_looked_at_every_two_seconds() -> None:
    times = asked(20)
    assert max(b - a for a, b in itertools.pairwise(times) if b < 10) < 2


def test_a_short_run_saves_some_questions_for_its_end() -> None:
    pace, now = PollInterval(1.0, 0.0), 0.0
    while now < 10:
        now = pace.due(now, changed=now, near=False)
        pace.ask(now)
    pauses = []
    for _ in range(4):
        due = pace.due(now, changed=now, near=True)
        pauses.append(round(due - now, 2))
        pace.ask(now := due)
    assert pauses == [0.25, 0.25, 0.5, 1.0]


def test_a_day_long_queue_is_asked_every_quarter_of_a_minute() -> None:
    times = asked(4000)
    pauses = [b - a for a, b in itertools.pairwise(times) if a > 1000]
    assert min(pauses) >= SLOWEST
    assert max(pauses) < 1.15 * SLOWEST
    assert len({round(pause, 2) for pause in pauses}) > 3
