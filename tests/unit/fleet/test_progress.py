"""What a running session says about its cases."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from fixtures.backends.base import InQueue
from fixtures.backends.section import Limits
from fixtures.fleet.job import Status
from fixtures.fleet.state import Progress, clock, time_left, total
from plugins.logs.formats import read
from plugins.record.job import JobState, Phase
from tests.unit import examples
from tests.unit.fleet.test_watchdog import PENDING, RUNNING, job
from tests.unit.logs.test_means import FIVE, smoothed


def status(times: list[float] | None = None, **changed: Any) -> Progress:
    made: dict[str, Any] = {"status": Status.LIVE, "state": RUNNING, "submitted": 0.0, "running": 100.0}
    return Progress.of(job(times, **(made | changed)))


def test_a_running_case_shows_step_pace_throughput_distance_and_the_time_left() -> None:
    line = status([10.6] * 31).line(410.0)
    assert line == (
        "llama3/70b-fp8-512gpus  step 31/50  10.6 s/step  expected 10.07  791,378 tokens/s  -5.0 %  running 5:10  3:21 left"
    )


def test_the_pace_is_that_of_the_last_ten_steps_and_of_printed_means_that_of_single_steps() -> None:
    assert status([50.0] + [10.07] * 30).step_time == 10.07
    raw = smoothed([50.0] + [10.07] * 9)
    case = replace(examples.case(), means=FIVE)
    assert status(raw, case=case).step_time == pytest.approx(10.07)
    assert (status(raw).step_time or 0) > 13
    # Whatever the log says, there is a line for it: these are no means.
    assert status([50.0, 10.0], case=case).step_time == 50.0


def test_a_case_without_a_baseline_has_no_distance() -> None:
    line = status([10.0] * 40, expected=None).line(200.0)
    assert "%" not in line
    assert "expected" not in line


def test_in_the_warm_up_there_is_no_distance_and_the_time_left_is_the_baselines() -> None:
    warming = status([50.0] * 3)
    assert warming.off is None
    assert warming.left == 47 * 10.07
    assert status([50.0] * 3, expected=None).left == 47 * 50.0
    assert status([50.0] * 3 + [10.6] * 13).off == pytest.approx(-0.05)


def test_before_its_first_step_a_case_shows_where_it_is_and_since_when() -> None:
    assert status().line(142.0) == f"{examples.case().key}  running 0:42"
    queued = status(state=JobState(Phase.QUEUED, "PENDING"), running=None, submitted=2.0)
    assert queued.line(3725.0) == f"{examples.case().key}  queued 1:02:03"


def test_before_its_first_step_a_program_says_what_it_does() -> None:
    begun = job(None, status=Status.LIVE, state=RUNNING, running=100.0)
    begun.reading.log = read(
        "maxtext", [b"proxy begins: a product\nproxy begins: to compile the training step\n"]
    )
    assert Progress.of(begun).line(142.0) == (
        f"{examples.case().key}  running 0:42  to compile the training step"
    )


def test_a_second_try_says_so_and_a_last_step_leaves_no_time() -> None:
    assert "running (try 2)" in status([10.0] * 3, try_number=2).line(200.0)
    assert "left" not in status([10.0] * 50).line(600.0)


def test_the_total_counts_by_phase_in_the_order_of_a_life() -> None:
    queued, over = JobState(Phase.QUEUED, "PENDING"), JobState(Phase.SUCCEEDED, "COMPLETED")
    board = [status(status=Status.PLANNED), status(), status(), status(status=Status.ENDED)]
    board += [status(state=queued), status(state=over)]
    assert total(board) == "6 cases: 1 ended, 2 running on 1,024 GPUs, 1 over, 1 queued, 1 planned"
    ended = [status(status=Status.ENDED)] * 3
    assert total(ended, ["passed", "too slow", "passed"]) == "3 cases: 3 ended (2 passed, 1 too slow)"


@pytest.mark.parametrize("stands", list(Status))
def test_every_place_in_a_life_can_be_counted(stands: Status) -> None:
    for phase in Phase:
        assert total([status(status=stands, state=JobState(phase, "X"))]).startswith("1 case: 1 "), phase


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (723, "12:03"), (3723, "1:02:03")]
)
def test_a_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def test_a_queued_case_shows_its_place_its_start_and_the_reason() -> None:
    at = datetime.now().replace(hour=23, minute=59)
    waits = status(state=PENDING, running=None, in_queue=InQueue(1017, at.timestamp())).waits
    assert waits == "position 1,017, starts about 23:59, Priority"
    tomorrow = at + timedelta(days=1)
    waits = status(state=PENDING, running=None, in_queue=InQueue(None, tomorrow.timestamp())).waits
    assert waits == f"starts about {tomorrow:%Y-%m-%d} 23:59, Priority"
    assert status(state=replace(PENDING, reason="a\n b")).waits == "a b"
    # What the queue said is of no interest any more.
    assert status(in_queue=InQueue(3, 1.0)).waits == ""


@pytest.mark.parametrize("phase", [Phase.QUEUED, Phase.STARTING, Phase.SUSPENDED])
def test_a_case_that_waits_again_after_its_first_steps_shows_the_reason(phase: Phase) -> None:
    held = JobState(phase, "X", "somebody has\n suspended it")
    assert status([10.0] * 5, state=held).line(412.0).endswith("  somebody has suspended it")


def test_a_case_whose_job_is_over_says_so_and_has_no_time_left() -> None:
    done = JobState(Phase.SUCCEEDED, "COMPLETED")
    case = status([10.0] * 40, state=done, phase_since=400.0)
    assert case.line(412.0).endswith("over 0:12  its log is awaited")
    assert case.to_come == 0.0


def of(name: str, gpus: int, minutes: float | None, **changed: Any) -> Progress:
    made = status(minutes=minutes, running=None, **changed)
    return replace(made, key=name, gpus=gpus)


def planned(name: str, gpus: int, minutes: float | None = 10) -> Progress:
    return of(name, gpus, minutes, status=Status.PLANNED)


@pytest.mark.parametrize(
    ("board", "limits", "said"),
    [
        ([planned("a", 8), planned("b", 8)], {}, "about 10:00 left"),
        ([planned("a", 8), planned("b", 8)], {"jobs_in_flight": 1}, "about 20:00 left"),
        ([planned("a", 8), planned("b", 16), planned("c", 8)], {"gpus_in_flight": 16}, "about 20:00 left"),
        ([planned("a", 8), planned("b", 8, None)], {}, "at least 10:00 left"),
        ([planned("a", 8, None)], {}, ""),
        ([of("a", 8, 10, status=Status.ENDED)], {}, ""),
        ([of("a", 8, 10, state=PENDING)], {}, "at least 10:00 left"),
        ([], {}, ""),
    ],
)
def test_the_time_left_is_that_of_the_jobs_in_their_order(
    board: list[Progress], limits: dict[str, int], said: str
) -> None:
    assert time_left(board, {"slurm": Limits(**limits)}) == said
    assert time_left(board, {}) == ""


def test_a_start_that_the_scheduler_expects_is_counted() -> None:
    queued = of("a", 8, 10, state=PENDING, in_queue=InQueue(1, time.time() + 600))
    assert time_left([queued], {"slurm": Limits()}) in ("about 20:00 left", "about 19:59 left")


def test_the_time_left_of_a_running_case_is_its_own() -> None:
    assert time_left([status([10.07] * 30)], {"slurm": Limits()}) == "about 3:21 left"
    begun = status(minutes=10, running=time.monotonic() - 240)
    assert time_left([begun], {"slurm": Limits()}) in ("about 6:00 left", "about 5:59 left")
