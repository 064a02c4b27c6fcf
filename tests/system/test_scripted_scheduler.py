"""A scheduler that lies, lags, hangs and forgets: no wrong pass, no leaked job, no second submission, no endless wait.

`play` itself requires what holds in every session. Each test adds the verdict, and that the message names the cause.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.lab.scripted import FINE, STUCK, Fault, Script, ScriptedLab, ending
from tests.system.scripted import (
    FOR_EVER,
    NO_ANSWER,
    NO_ANSWER_OF_SHELL,
    SHORT,
    SUBMITTED,
    TIMED_OUT,
    Session,
    play,
)
from tests.system.support import login

DISABLED = Fault("Slurm accounting storage is disabled")
SACCT = {
    "hours behind": Script(accounted="RUNNING"),
    "from before it was requeued": Script(accounted="REQUEUED"),
    "purged": Script(purged=True),
    "disabled": Script(faults={"sacct": DISABLED}),
    "timing out": Script(faults={"sacct": Fault(f"sacct: error: {TIMED_OUT}")}),
    "hanging": Script(faults={"sacct": Fault(seconds=FOR_EVER)}),
}
TOLD = {
    "hours behind": "sacct still says RUNNING",
    "from before it was requeued": "sacct still says REQUEUED",
    "purged": "sacct does not know it",
    "disabled": "Slurm accounting storage is disabled",
    "timing out": TIMED_OUT,
    "hanging": f"sacct: {NO_ANSWER}",
}


def names(session: Session, cause: str) -> bool:
    """Whether the headline names this cause. A login node that is busy may not even say in time that a tool hangs."""
    late = cause.endswith(NO_ANSWER) and re.search(rf"ssh \S+: {NO_ANSWER_OF_SHELL}", session.headline)
    return cause in session.headline or bool(late)


# The controller drops the job at its end, so that only sacct could tell.


@pytest.mark.parametrize("how", ["hours behind", "purged", "disabled", "hanging"])
def test_a_whole_log_is_judged_whatever_sacct_says(
    scripted_lab: ScriptedLab, tmp_path: Path, how: str
) -> None:
    session = play(scripted_lab, tmp_path, replace(SACCT[how], forget_after=0))
    assert session.verdict == "passed", session.run.out
    assert session.run.status == 0


@pytest.mark.parametrize("how", SACCT)
def test_a_job_that_nobody_knows_and_whose_log_is_cut_is_lost(
    scripted_lab: ScriptedLab, tmp_path: Path, how: str
) -> None:
    session = play(scripted_lab, tmp_path, replace(SACCT[how], timeline=ending("FAILED"), forget_after=0))
    assert session.verdict == "lost", session.run.out
    assert "no longer knows job 4711" in session.headline
    assert TOLD[how] in session.run.out


@pytest.mark.parametrize("how", ["hours behind", "hanging"])
def test_what_the_controller_says_of_a_failed_job_holds_whatever_sacct_says(
    scripted_lab: ScriptedLab, tmp_path: Path, how: str
) -> None:
    session = play(scripted_lab, tmp_path, replace(SACCT[how], timeline=ending("NODE_FAIL")))
    assert session.verdict == "infrastructure", session.run.out
    assert "ended NODE_FAIL on gpu[001-008] after step " in session.headline


# "Cannot ask" is never "finished".


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        (Fault(f"slurm_load_jobs error: {TIMED_OUT}"), TIMED_OUT),
        (Fault(seconds=FOR_EVER), f"squeue: {NO_ANSWER}"),
    ],
)
def test_a_squeue_that_never_answers_loses_the_job_and_says_why(
    scripted_lab: ScriptedLab, tmp_path: Path, fault: Fault, cause: str
) -> None:
    session = play(scripted_lab, tmp_path, Script(faults={"squeue": fault}), limits=SHORT)
    assert session.verdict == "lost", session.run.out
    assert names(session, cause)
    assert "the job may still run: look for the name pacemark-" in session.headline


@pytest.mark.parametrize("calls", [1, None], ids=["once", "for ever"])
def test_an_empty_answer_of_squeue_is_not_the_end_of_a_job(
    scripted_lab: ScriptedLab, tmp_path: Path, calls: int | None
) -> None:
    """A wrapper that says something else and exits with 0, as on a day of maintenance."""
    script = Script(faults={"squeue": Fault(silent=True, calls=calls)}, timeline=STUCK, ends=False)
    if calls == 1:
        script = replace(script, timeline=FINE, ends=True)
    session = play(scripted_lab, tmp_path, script, interrupt="" if calls else SUBMITTED)
    assert session.verdict == ("passed" if calls else "infrastructure"), session.run.out
    assert scripted_lab.live_jobs() == []


# Submitting


@pytest.mark.parametrize("after", [0, 1.5], ids=["is there", "comes later"])
def test_a_job_whose_sbatch_got_no_answer_is_found_and_not_sent_again(
    scripted_lab: ScriptedLab, tmp_path: Path, after: float
) -> None:
    fault = Fault(f"sbatch: error: Batch job submission failed: {TIMED_OUT}")
    session = play(scripted_lab, tmp_path, Script(faults={"sbatch": fault}, appears_after=after))
    assert session.verdict == "passed", session.run.out
    assert session.case["job"]["id"] == "4711"
    assert TIMED_OUT in session.run.out


def test_a_job_whose_sbatch_hangs_is_found_and_not_sent_again(
    scripted_lab: ScriptedLab, tmp_path: Path
) -> None:
    script = Script(faults={"sbatch": Fault(seconds=FOR_EVER)})
    # So long the login node may take to report the end of the launcher.
    ssh = login(scripted_lab, ", command_seconds: 60")
    session = play(scripted_lab, tmp_path, script, launch_minutes="0.5", ssh=ssh)
    assert session.verdict == "passed", session.run.out
    assert "the launcher: no answer within 30 s" in session.run.out


@pytest.mark.parametrize("cancel_ignored", [False, True])
def test_a_launcher_that_does_not_name_its_job_leaves_none(
    scripted_lab: ScriptedLab, tmp_path: Path, cancel_ignored: bool
) -> None:
    script = Script(reply="done", timeline=STUCK, ends=False, cancel_ignored=cancel_ignored)
    session = play(scripted_lab, tmp_path, script, limits=SHORT if cancel_ignored else {})
    assert session.verdict == "infrastructure", session.run.out
    assert "named 0 job ids where one is expected" in session.headline
    if cancel_ignored:
        assert "asked to end, which is NOT confirmed: look after 4711" in session.headline
    else:
        assert "1 job(s) of that name were cancelled: 4711" in session.headline
        assert scripted_lab.live_jobs() == []


def test_a_job_that_ended_before_it_was_looked_for_is_found_in_accounting(
    scripted_lab: ScriptedLab, tmp_path: Path
) -> None:
    """Its submission timed out, and the controller forgot it before anybody could ask."""
    fault = Fault(f"sbatch: error: Batch job submission failed: {TIMED_OUT}")
    brief = ((0, "COMPLETED", 1),)
    session = play(scripted_lab, tmp_path, Script(faults={"sbatch": fault}, timeline=brief, forget_after=0))
    assert session.verdict == "passed", session.run.out


# Ids


@pytest.mark.parametrize(
    ("recipe", "kind", "reply"),
    [
        ("maxtext_llama2", "array", "{id}_0"),
        ("maxtext_llama2", "het", "{id}+0"),
        ("llama3", "array", "{id}_[0-1]"),
        ("llama3", "het", "{id}+1"),
    ],
)
def test_the_id_of_a_part_of_a_job_is_refused_and_the_whole_is_cancelled(
    scripted_lab: ScriptedLab, tmp_path: Path, recipe: str, kind: str, reply: str
) -> None:
    script = Script(kind=kind, reply=reply, timeline=STUCK, ends=False)
    session = play(scripted_lab, tmp_path, script, recipe=recipe)
    assert session.verdict == "infrastructure", session.run.out
    assert reply.format(id=4711) in session.headline
    assert "1 job(s) of that name were cancelled: 4711" in session.headline
    assert scripted_lab.live_jobs() == []


@pytest.mark.parametrize(("kind", "part"), [("array", "4711_0"), ("het", "4711+0")])
def test_a_job_of_several_parts_behind_a_plain_id_is_given_up_and_cancelled(
    scripted_lab: ScriptedLab, tmp_path: Path, kind: str, part: str
) -> None:
    script = Script(kind=kind, timeline=STUCK, ends=False)
    session = play(scripted_lab, tmp_path, script, limits={"unreachable_minutes": 0.06})
    assert session.verdict == "infrastructure", session.run.out
    assert f"in the unknown state 'several jobs in one: {part} RUNNING" in session.headline
    assert scripted_lab.live_jobs() == []


def test_an_id_that_has_passed_to_another_job_is_left_alone(
    scripted_lab: ScriptedLab, tmp_path: Path
) -> None:
    session = play(scripted_lab, tmp_path, Script(renamed="theirs", timeline=STUCK, ends=False))
    assert session.verdict == "lost", session.run.out
    assert "the id is now another job's, named theirs" in session.run.out
    assert scripted_lab.calls("scancel") == []


def test_a_job_on_another_cluster_than_squeue_shows_is_refused_and_cancelled_there(
    scripted_lab: ScriptedLab, tmp_path: Path
) -> None:
    script = Script(reply="{id};other", cluster="other", timeline=STUCK, ends=False)
    session = play(scripted_lab, tmp_path, script)
    assert session.verdict == "infrastructure", session.run.out
    assert "named job 4711 on the cluster other" in session.headline
    assert scripted_lab.live_jobs() == []


# What the tools print


def test_a_state_of_no_table_is_loud_and_bounded(scripted_lab: ScriptedLab, tmp_path: Path) -> None:
    script = Script(timeline=((0, "WEIRD_STATE", 0.3),), ends=False)
    session = play(scripted_lab, tmp_path, script, limits={"unreachable_minutes": 0.06})
    assert session.verdict == "infrastructure", session.run.out
    assert "in the unknown state 'WEIRD_STATE' for " in session.headline
    assert scripted_lab.live_jobs() == []


# Cancelling


@pytest.mark.parametrize(
    "script",
    [
        Script(timeline=STUCK, ends=False, cancel_ignored=True),
        Script(timeline=STUCK, ends=False, faults={"scancel": Fault(seconds=FOR_EVER)}),
        Script(
            timeline=STUCK, ends=False, faults={"scancel": Fault("scancel: error: Access/permission denied")}
        ),
    ],
    ids=["ignored", "hanging", "denied"],
)
def test_a_cancel_that_never_takes_effect_is_bounded_and_told(
    scripted_lab: ScriptedLab, tmp_path: Path, script: Script
) -> None:
    session = play(scripted_lab, tmp_path, script, interrupt=SUBMITTED, limits=SHORT)
    assert session.run.status == 2
    assert session.verdict == "infrastructure", session.run.out
    # On a busy machine squeue may be too slow for the last question, and then the headline says so.
    told = r"job 4711 was asked to end, which is NOT confirmed( \(lab: squeue: no answer within [\d.]+ s\))?: look after it"
    assert re.search(told, session.headline), session.headline
    assert scripted_lab.live_jobs() == [4711]


def test_a_cancel_that_fails_at_first_is_repeated(scripted_lab: ScriptedLab, tmp_path: Path) -> None:
    script = Script(
        timeline=STUCK, ends=False, faults={"scancel": Fault(f"scancel: error: {TIMED_OUT}", calls=1)}
    )
    session = play(scripted_lab, tmp_path, script, interrupt=SUBMITTED)
    assert "job 4711 was cancelled" in session.headline
    assert len(scripted_lab.calls("scancel")) == 2
    assert scripted_lab.live_jobs() == []


def test_a_job_that_is_given_up_as_hung_shows_what_it_complained_of(
    scripted_lab: ScriptedLab, tmp_path: Path
) -> None:
    # A rank died, and nobody ended the others.
    script = Script(
        timeline=STUCK,
        ends=False,
        traceback="RuntimeError: NCCL error: unhandled cuda error\n",
        complaints="srun: error: gpu002: task 11: Exited with exit code 1\n",
    )
    session = play(scripted_lab, tmp_path, script, limits={"stall_factor": 0.1, "stall_seconds": 1})
    assert session.verdict == "infrastructure", session.run.out
    assert "it hangs; cancelled" in session.headline
    assert "its error | RuntimeError: NCCL error: unhandled cuda error" in session.run.out
    assert "its error | srun: error: gpu002: task 11: Exited with exit code 1" in session.run.out
