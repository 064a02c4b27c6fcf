"""When the fleet gives up on a job: each bound, and just inside of it."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from fixtures.backends.base import InQueue, LogPlace
from fixtures.backends.kubernetes.section import Kubernetes
from fixtures.backends.section import Limits, Machine
from fixtures.backends.slurm.section import Slurm
from fixtures.backends.ssh.endpoint import Ssh
from fixtures.backends.this_machine import Local
from fixtures.fleet.job import Status, Timer, TrackedJob
from fixtures.fleet.state import Progress, time_left, total
from fixtures.fleet.watchdog import (
    LogEnd,
    fewest_steps_to_give_up,
    last_step_due,
    log_end,
    lost_pace,
    overdue,
    silent,
    waits_for_unavailable,
    watch,
)
from fixtures.runs.planned import ExpectedStepTime
from plugins.isolation import PROOF
from plugins.logs import Log
from plugins.logs.formats import parser, read
from plugins.record.job import JobRef, JobState, Phase
from tests.unit import examples
from tests.unit.logs.test_means import FIVE, smoothed

NOW = 100_000.0
DRAINED = "ReqNodeNotAvail, UnavailableNodes:gpu001"
PENDING = JobState(Phase.QUEUED, "PENDING", reason="Priority")
RUNNING = JobState(Phase.RUNNING, "RUNNING", nodes="gpu[001-064]")
BAND = ExpectedStepTime(10.07, 10.6)


def machine(**limits: Any) -> Slurm:
    return Slurm(
        gpu="h100", ssh=Ssh(host="login"), account="a", partition="p", stage="/s", limits=Limits(**limits)
    )


def job(times: list[float] | None = None, **changed: Any) -> TrackedJob:
    case = examples.case()
    ref = JobRef(case.recipe, case.id, "name")
    made = TrackedJob(case, "slurm", ref, "nemo2", expected=BAND)
    made.reading.parser = parser("nemo2")
    made.reading.log = Log(steps=tuple(examples.steps(times or [])))
    for name, value in changed.items():
        setattr(made.reading if hasattr(made.reading, name) else made, name, value)
    return made


def overdue_by(since: str, seconds: float, facts: dict[str, Any]) -> str | None:
    """What is overdue of a job with these facts, so many seconds after this moment of its life."""
    moment = NOW - seconds
    value = Timer(moment) if isinstance(getattr(job(), since), Timer) else moment
    return overdue(job(**{"submitted": NOW} | facts | {since: value}), machine(queue_minutes=60), NOW)


def probe_of(nodes: int) -> dict[str, Any]:
    """A job that probes so many nodes, and runs."""
    ref = JobRef.of_probe("proxy", examples.case().key, f"isolate2x{nodes}.1-gpu001+gpu002", "name")
    return {"ref": ref, "state": RUNNING}


TOO_LONG = "still running after {} minutes, beyond its own time limit"


@pytest.mark.parametrize(
    ("facts", "since", "seconds", "reason"),
    [
        pytest.param(
            {"state": PENDING}, "submitted", 3600, "still queued after 60 minutes; the queue says: Priority", id="queued"
        ),
        # It does not wait for ever for idle nodes.
        pytest.param(
            {"state": PENDING, "ref": JobRef("llama3", f"70b-fp8-512gpus/{PROOF}", "name")}, "submitted", 900,
            "still queued after 15 minutes; the queue says: Priority", id="a proof",
        ),
        pytest.param({"state": RUNNING}, "running", 40 * 60, TOO_LONG.format(40), id="running"),
        # The job's own limit, here of 40 minutes, is that of the site's cases: a probe that hangs before its first step
        # is cancelled sooner.
        pytest.param(probe_of(1), "running", 900, TOO_LONG.format(15), id="a probe"),
        pytest.param(probe_of(2), "running", 1800, TOO_LONG.format(30), id="a probe of two"),
        pytest.param(probe_of(8), "running", 2400, TOO_LONG.format(40), id="a probe of eight"),
        pytest.param(
            {"state": JobState(Phase.QUEUED, "PENDING", reason="BadConstraints", hopeless=True)}, "hopeless", 59,
            "it can never start; the queue says: BadConstraints", id="hopeless",
        ),
        pytest.param(
            {"state": JobState(Phase.STARTING, "Starting", reason="15 of 16 pods run: Pulling")}, "phase_since", 1799,
            "it has had its nodes for 30 minutes, and its containers do not run; the cluster says: 15 of 16 pods run: Pulling",
            id="starting",
        ),
        pytest.param(
            {"state": JobState(Phase.UNKNOWN, "ODD")}, "phase_since", 1799, "in the unknown state 'ODD' for 30 minutes",
            id="unknown",
        ),
        # It may have been busy for hours before, and be restarted now.
        pytest.param(
            {"state": replace(PENDING, reason=DRAINED), "submitted": NOW - 3500, "nodes": "gpu001"}, "unavailable", 899,
            f"its nodes (gpu001) have taken no jobs for 15 minutes; the queue says: {DRAINED}", id="no jobs",
        ),
    ],
)  # fmt: skip
def test_each_bound_holds_just_until_it_is_passed(
    facts: dict[str, Any], since: str, seconds: float, reason: str
) -> None:
    assert overdue_by(since, seconds, facts) is None
    assert overdue_by(since, seconds + 1, facts) == reason


UNPLACED = "0 of 1 pods have a node: pod p-0: Unschedulable: 0/65 nodes are available: "
ELSEWHERE = "node(s) didn't match Pod's node affinity/selector."
BUSY_PODS = (
    f"{UNPLACED}1 Insufficient nvidia.com/gpu, 1 node(s) had untolerated taint(s), 63 {ELSEWHERE} no new claims to deallocate, "
    "preemption: 0/65 nodes are available: 1 No preemption victims found for incoming pod, "
    "64 Preemption is not helpful for scheduling."
)


@pytest.mark.parametrize(
    ("reason", "unavailable"),
    [
        (DRAINED, True),
        (f"{UNPLACED}1 node(s) had untolerated taint(s), 1 node(s) were unschedulable, 63 {ELSEWHERE}", True),
        (f"{UNPLACED}1 node(s) had untolerated taint {{nvidia.com/gpu: repair}}, 64 {ELSEWHERE}", True),
        (BUSY_PODS, False),
        ("Resources", False),
        ("Priority", False),
    ],
    ids=["drained", "cordoned", "tainted", "busy pods", "busy", "behind others"],
)
@pytest.mark.parametrize(
    "ref",
    [
        JobRef("proxy", "proxy/8b-bf16-8gpus.gpu001", "name"),
        JobRef.of_probe("proxy", examples.case().key, "isolate2x1.1-gpu001", "name"),
    ],
    ids=["screening", "probe"],
)
def test_a_job_on_given_nodes_waits_for_busy_ones_and_not_long_for_one_that_takes_no_jobs(
    reason: str, unavailable: bool, ref: JobRef
) -> None:
    """As Slurm 22.05 and Kubernetes say it of a job on given nodes. Another case of the session may use them meanwhile.

    A node that is tainted or drained after a screening began held its job for `queue_minutes`, which are a day.
    """
    state = replace(PENDING, reason=reason)
    waiting = job(state=state, submitted=NOW, ref=ref, nodes="gpu001")
    assert waits_for_unavailable(waiting, state) is unavailable
    # A job of a case waits for any nodes, and one that runs for none.
    assert not waits_for_unavailable(job(), state)
    assert not waits_for_unavailable(waiting, RUNNING)


def test_a_job_that_prints_steps_has_started_whatever_is_said_of_a_container_beside_it() -> None:
    """A sidecar that somebody's admission puts into each pod may crash again and again while the job trains."""
    state = JobState(Phase.RUNNING, "Running", reason="container agent: CrashLoopBackOff", hopeless=True)
    facts = {"state": state, "running": NOW}
    assert overdue_by("hopeless", 61, {**facts, "stepped": NOW}) is None
    assert overdue_by("hopeless", 61, facts) == f"it can never start; the cluster says: {state.reason}"


@pytest.mark.parametrize(
    ("limit", "minutes"),
    [("30", 30), ("00:30:00", 30), ("30:30", 30.5), ("1-0", 1440), ("1-12:30", 2190), ("2:00:00", 120)],
)
def test_a_time_limit_is_read_as_slurm_reads_it(limit: str, minutes: float) -> None:
    site = machine().model_copy(update={"time_limit": limit})
    assert site.time_limit_of_a_job == minutes
    assert site.longest_run == minutes + 10


def test_a_machine_without_a_time_limit_has_no_longest_run() -> None:
    assert Machine(gpu="h100").longest_run is None
    assert Machine(gpu="h100", limits=Limits(run_minutes=5)).longest_run == 5
    assert Local().longest_run == 25


@pytest.mark.parametrize(("factor", "seconds", "bound"), [(20, 60, 200), (2, 300, 300)])
def test_silence_is_measured_in_steps_and_at_least_in_seconds(
    factor: float, seconds: float, bound: float
) -> None:
    site = machine(stall_factor=factor, stall_seconds=seconds)
    for quiet, silence in ((bound, None), (bound + 1, bound + 1)):
        running = job([10.0] * 5, running=NOW - 9000, state=RUNNING, stepped=NOW - quiet)
        assert silent(running, site, NOW) == silence


@pytest.mark.parametrize(("steps", "running"), [(1, 0.0), (9, None)])
def test_before_the_second_step_silence_says_nothing(steps: int, running: float | None) -> None:
    site = machine(stall_factor=1, stall_seconds=1)
    assert silent(job([10.0] * steps, stepped=0.0, running=running), site, NOW) is None


@pytest.mark.parametrize(
    ("times", "fewest", "expected", "pace"),
    [
        ([12.0] * 20, 20, BAND, 12.0),
        ([12.0] * 19, 20, BAND, None),
        ([12.0] * 15 + [10.6] + [12.0] * 9, 20, BAND, None),
        ([12.0] * 5 + [10.0] * 15, 20, BAND, None),
        ([12.0] * 20, 0, BAND, None),
        ([12.0] * 20, 20, None, None),
        # The log chooses the number, and it names no GPU.
        ([12.0] * 20, 20, ExpectedStepTime(10.07, 10.6, "h100"), None),
        # A run that is through is judged and not given up.
        ([12.0] * 50, 20, BAND, None),
    ],
)
def test_a_pace_is_lost_when_each_of_the_last_ten_steps_is_out_of_the_band(
    times: list[float], fewest: int, expected: ExpectedStepTime | None, pace: float | None
) -> None:
    assert lost_pace(job(times, expected=expected), fewest) == pace


def test_a_pace_needs_the_warm_up_and_ten_steps() -> None:
    assert fewest_steps_to_give_up(examples.case()) == 20


# Printed means over five steps: what is judged while a job runs are the single steps.


def means(raw: list[float], **changed: Any) -> TrackedJob:
    return job(smoothed(raw), case=replace(examples.case(), means=FIVE), **changed)


def test_one_fast_step_among_the_last_ten_saves_a_job_whose_means_are_all_slow() -> None:
    assert lost_pace(means([12.0] * 20), 20) == pytest.approx(12.0, abs=0.02)
    assert lost_pace(means([12.0] * 15 + [10.6] + [12.0] * 9), 20) is None
    assert lost_pace(job(smoothed([12.0] * 15 + [10.6] + [12.0] * 9)), 20) is not None


def test_the_warm_up_of_printed_means_does_not_stretch_what_counts_as_silence() -> None:
    site = machine(stall_factor=2, stall_seconds=1)
    running: dict[str, Any] = {"running": NOW - 900, "stepped": NOW - 50, "state": RUNNING}
    warming = [100.0, 10.0, 10.0, 10.0, 10.0]
    assert silent(means(warming, **running), site, NOW) == 50
    assert silent(job(smoothed(warming), **running), site, NOW) is None


def test_the_last_step_is_due_at_the_pace_since_the_job_runs() -> None:
    half = job([10.0] * 25, running=NOW - 100, stepped=NOW)
    assert last_step_due(half) == pytest.approx(NOW + 100)


@pytest.mark.parametrize(
    "unknown",
    [
        job([], running=NOW),
        job([10.0], running=NOW),
        job([10.0] * 50, running=NOW - 500, stepped=NOW),
        job([10.0], stepped=NOW),
    ],
    ids=["no step", "no time of a step", "all steps", "not running"],
)
def test_when_a_last_step_is_due_may_be_unknown(unknown: TrackedJob) -> None:
    assert last_step_due(unknown) == math.inf


def test_a_set_up_has_limits_of_its_own() -> None:
    """Not those of a case: llama3's set-up asks for an hour, data sets take many."""
    setup = job(state=RUNNING, running=NOW - 10 * 3600, log_format=None)
    assert overdue(setup, Kubernetes(gpu="h100"), NOW) is None
    assert overdue(setup, machine(), NOW) is None
    assert overdue(setup, machine(run_minutes=5), NOW) is None
    assert "still running after 70 minutes" in str(
        overdue(job(state=RUNNING, running=NOW - 10 * 3600), Kubernetes(gpu="h100"), NOW)
    )


WHOLE: list[float] = [10.0] * 50
DONE = JobState(Phase.SUCCEEDED, "COMPLETED")


@pytest.mark.parametrize(
    ("times", "changed", "gives_up"),
    [
        pytest.param(WHOLE[:20], {"stepped": NOW}, None, id="it runs"),
        pytest.param([12.0] * 20, {"stepped": NOW}, ("given up", False), id="its pace is lost"),
        pytest.param(WHOLE[:20], {"stepped": NOW - 201}, ("infrastructure", True), id="it is silent"),
        pytest.param(
            WHOLE[:20], {"stepped": NOW - 201, "unreadable": Timer(NOW)}, None, id="silent, and nobody can read its log"
        ),
        pytest.param(WHOLE, {"stepped": NOW - 201}, ("hung", False), id="it goes on after its last step"),
        pytest.param(
            WHOLE[:20], {"running": NOW - 2401}, ("infrastructure", False), id="beyond its time limit"
        ),
        pytest.param(
            WHOLE, {"running": NOW - 2401, "state": replace(RUNNING, phase=Phase.ENDING)}, ("hung", False), id="whole, and it is still cleaned up"
        ),
    ],
)  # fmt: skip
def test_when_to_give_up(
    times: list[float], changed: dict[str, Any], gives_up: tuple[str, bool] | None
) -> None:
    running = job(times, **{"state": RUNNING, "running": NOW - 600, "stepped": NOW} | changed)
    advice = watch(running, machine(stall_factor=20, stall_seconds=60), 20, NOW)
    assert (advice and (advice.failure, advice.stalled)) == gives_up


@pytest.mark.parametrize(
    ("times", "changed", "end"),
    [
        pytest.param(WHOLE, {}, LogEnd.WHOLE, id="every step"),
        pytest.param(WHOLE[:20], {}, LogEnd.AWAITED, id="steps are missing"),
        pytest.param(WHOLE[:20], {"phase_since": NOW - 31}, LogEnd.SHORT, id="steps are missing for long enough"),
        pytest.param(WHOLE[:20], {"phase_since": NOW - 31, "grown": NOW - 1}, LogEnd.AWAITED, id="it still grew"),
        pytest.param(WHOLE, {"blind": True}, LogEnd.AWAITED, id="the first lines are missing"),
        pytest.param(WHOLE, {"blind": True, "phase_since": NOW - 31}, LogEnd.UNSEEN, id="missing for long enough"),
        pytest.param(WHOLE, {"blind": True, "copied": True}, LogEnd.WHOLE, id="a copy has the first lines"),
        pytest.param(WHOLE, {"unreadable": Timer(NOW - 1)}, LogEnd.UNREADABLE, id="every step, and nobody can read it"),
        pytest.param(
            WHOLE, {"unreadable": Timer(NOW - 1), "phase_since": NOW - 31}, LogEnd.WHOLE, id="the same for long enough"
        ),
        pytest.param(
            WHOLE[:20], {"unreadable": Timer(NOW - 1), "phase_since": NOW - 31}, LogEnd.UNREADABLE, id="short and unreadable"
        ),
        pytest.param([], {"parser": None}, LogEnd.WHOLE, id="a set-up has no log"),
    ],
)  # fmt: skip
def test_when_the_log_of_a_job_that_is_over_is_done(
    times: list[float], changed: dict[str, Any], end: LogEnd
) -> None:
    over = job(
        times, **{"state": DONE, "phase_since": NOW, "place": LogPlace(gap="lines 1 to 9 are lost")} | changed
    )
    assert log_end(over, 30.0, NOW) is end


# What a running session says about its cases


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
