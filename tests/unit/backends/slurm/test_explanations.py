"""What sinfo and scontrol tell of nodes and reservations, beside the state of a job that does not start or end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fixtures.backends.slurm import states
from fixtures.backends.slurm.states import Explanations
from plugins.record.job import JobState, Phase

REASONS = "gpu[007,009]|replaced in December\ngpu003|Prolog error\nWelcome\n"
RESERVATION = (
    "ReservationName=team StartTime=2026-11-23T08:00:00 EndTime=2026-11-30T08:00:00 Flags=SPEC_NODES\n"
    "ReservationName=works StartTime=2026-11-24T02:00:00 EndTime=2026-11-24T08:00:00 Duration=06:00:00 Nodes=gpu[001-256] "
    "NodeCnt=256 Flags=MAINT,SPEC_NODES,ALL_NODES\n"
)
HELD = JobState(Phase.QUEUED, "PENDING", "launch failed requeued held", hopeless=True)
MAINTENANCE = JobState(Phase.QUEUED, "PENDING", "ReqNodeNotAvail, Reserved for maintenance")
FAILED = JobState(Phase.FAILED, "NODE_FAIL", nodes="gpu[001-064]")
ENDING = JobState(Phase.ENDING, "COMPLETING", nodes="gpu[001-064]")
OF_ALL_NODES = "sinfo --noheader --list-reasons --format='%N|%E'"


class Tools:
    """Slurm's tools, and what they were asked."""

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.commands: list[str] = []

    def __call__(self, command: str) -> str:
        self.commands.append(command)
        return self.answer


def test_a_failed_prolog_names_its_node_and_no_other() -> None:
    tools = Tools(REASONS)
    state = Explanations(tools).explained("17", HELD)
    assert state == replace(HELD, reason="launch failed requeued held; `sinfo -R` says: gpu003: Prolog error")
    assert tools.commands == [OF_ALL_NODES]


def test_a_node_that_is_drained_a_moment_after_its_job_was_requeued_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(states, "_FRESH_SECONDS", -1)
    tools = Tools("")
    explained = Explanations(tools).explained
    assert explained("17", HELD) == HELD
    tools.answer = REASONS
    for _ in range(3):
        assert "gpu003: Prolog error" in explained("17", HELD).reason
    assert tools.commands == [OF_ALL_NODES] * 2


def test_a_maintenance_names_its_reservation_and_its_times() -> None:
    reason = Explanations(Tools(RESERVATION)).explained("17", MAINTENANCE).reason
    assert reason == (
        "ReqNodeNotAvail, Reserved for maintenance; the reservation works is from 2026-11-24T02:00:00 to "
        "2026-11-24T08:00:00: a job whose `time_limit` ends before it can still start"
    )


def test_of_a_job_that_failed_the_nodes_that_are_out_of_service_are_named() -> None:
    tools = Tools("gpu017|Kill task failed\n")
    assert Explanations(tools).explained("17", FAILED).reason == "`sinfo -R` says: gpu017: Kill task failed"
    assert tools.commands == [OF_ALL_NODES]


def test_one_question_tells_of_the_nodes_of_all_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    # However long this machine takes for 500 jobs.
    monkeypatch.setattr(states, "_FRESH_SECONDS", 3600)
    tools = Tools("gpu[016-017,070]|Kill task failed\ngpu[080-081]|Not responding\n")
    explained = Explanations(tools).explained
    for job in range(500):
        reason = explained(f"{job}", FAILED).reason
        assert reason == "`sinfo -R` says: gpu016,gpu017: Kill task failed"
    assert (
        explained("600", replace(FAILED, nodes="gpu[080-089]")).reason
        == "`sinfo -R` says: gpu[080-081]: Not responding"
    )
    assert explained("601", replace(FAILED, nodes="gpu090")) == replace(FAILED, nodes="gpu090")
    assert tools.commands == [OF_ALL_NODES]
    # An answer from before a job failed does not tell of its nodes.
    monkeypatch.setattr(states, "_FRESH_SECONDS", -1)
    explained("1", FAILED)
    assert tools.commands == [OF_ALL_NODES]
    explained("602", FAILED)
    assert tools.commands == [OF_ALL_NODES] * 2


def test_a_job_that_ends_is_asked_about_only_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    tools = Tools("gpu017|Kill task failed\n")
    explained = Explanations(tools).explained
    assert explained("17", ENDING) == ENDING
    assert tools.commands == []
    monkeypatch.setattr(states, "_END_SECONDS", -1)
    for _ in range(3):
        assert explained("17", ENDING).reason == "`sinfo -R` says: gpu017: Kill task failed"
    assert tools.commands == [OF_ALL_NODES]


@pytest.mark.parametrize(
    "state", [HELD, MAINTENANCE, FAILED, replace(FAILED, nodes=""), JobState(Phase.RUNNING, "RUNNING")]
)
@pytest.mark.parametrize("answer", ["", "Welcome\n", "a=b\n\n|", "Flags=MAINT"])
def test_what_the_tools_do_not_tell_changes_nothing_else(state: JobState, answer: str) -> None:
    explained = Explanations(Tools(answer)).explained("17", state)
    assert replace(explained, reason="") == replace(state, reason="")
    assert explained.reason.startswith(state.reason)
