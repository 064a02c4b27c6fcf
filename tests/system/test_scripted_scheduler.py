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
    killed_before_the_first_list,
    play,
    vanish,
)
from tests.system.support import login, pacemark

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


@pytest.mark.parametrize("forget_after", [0, None], ids=["forgotten", "known"])
@pytest.mark.parametrize("state", ["OUT_OF_ME+", "CANCELLED by 1234"])
def test_sacct_tells_how_a_job_ended(
    scripted_lab: ScriptedLab, tmp_path: Path, state: str, forget_after: float | None
) -> None:
    script = Script(timeline=ending("FAILED"), forget_after=forget_after, accounted=state, exit_code="0:125")
    session = play(scripted_lab, tmp_path, script)
    assert session.verdict == "infrastructure", session.run.out
    assert f"ended {state} on gpu[001-008] after step " in session.headline
    assert "exit code 0:125" in session.headline


# "Cannot ask" is never "finished".


@pytest.mark.parametrize(
    "fault", [Fault(f"slurm_load_jobs error: {TIMED_OUT}", calls=3), Fault(seconds=9, calls=2)]
)
def test_a_squeue_that_fails_for_a_while_changes_nothing(
    scripted_lab: ScriptedLab, tmp_path: Path, fault: Fault
) -> None:
    session = play(scripted_lab, tmp_path, Script(faults={"squeue": fault}))
    assert session.verdict == "passed", session.run.out
    assert "cannot be asked, will go on trying" in session.run.out
    assert "answers again" in session.run.out


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


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        (Fault(f"slurm_load_partitions error: {TIMED_OUT}"), TIMED_OUT),
        (Fault(seconds=FOR_EVER), f"scontrol: {NO_ANSWER}"),
    ],
)
def test_a_controller_that_does_not_answer_the_check_is_not_a_missing_partition(
    scripted_lab: ScriptedLab, tmp_path: Path, fault: Fault, cause: str
) -> None:
    session = play(scripted_lab, tmp_path, Script(faults={"scontrol": fault}), limits=SHORT)
    assert session.verdict == "infrastructure", session.run.out
    assert "never submitted" in session.headline
    assert names(session, cause)
    assert scripted_lab.calls("sbatch") == []


def test_a_job_that_ended_before_it_was_looked_for_is_found_in_accounting(
    scripted_lab: ScriptedLab, tmp_path: Path
) -> None:
    """Its submission timed out, and the controller forgot it before anybody could ask."""
    fault = Fault(f"sbatch: error: Batch job submission failed: {TIMED_OUT}")
    brief = ((0, "COMPLETED", 1),)
    session = play(scripted_lab, tmp_path, Script(faults={"sbatch": fault}, timeline=brief, forget_after=0))
    assert session.verdict == "passed", session.run.out


def test_a_job_found_in_accounting_whose_log_nobody_knows_is_infrastructure(
    scripted_lab: ScriptedLab, tmp_path: Path
) -> None:
    """The same with a launcher that prints where the log is. A log that was not found is not an empty one."""
    fault = Fault(f"sbatch: error: Batch job submission failed: {TIMED_OUT}")
    brief = ((0, "COMPLETED", 1),)
    script = Script(faults={"sbatch": fault}, timeline=brief, forget_after=0)
    session = play(scripted_lab, tmp_path, script, recipe="llama3")
    assert session.verdict == "infrastructure", session.run.out
    assert "job 4711 ended COMPLETED, but no step was seen: nobody knows where its log is" in session.headline


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


def test_a_job_of_several_parts_that_is_faster_than_that_does_not_pass_without_a_word(
    scripted_lab: ScriptedLab, tmp_path: Path
) -> None:
    session = play(scripted_lab, tmp_path, Script(kind="array"))
    (remark,) = session.case["remarks"]
    assert "several jobs in one: 4711_0 COMPLETED, 4711_1 COMPLETED" in remark


def test_an_id_that_has_passed_to_another_job_is_left_alone(
    scripted_lab: ScriptedLab, tmp_path: Path
) -> None:
    session = play(scripted_lab, tmp_path, Script(renamed="theirs", timeline=STUCK, ends=False))
    assert session.verdict == "lost", session.run.out
    assert "the id is now another job's, named theirs" in session.run.out
    assert scripted_lab.calls("scancel") == []


@pytest.mark.parametrize("interrupt", ["", "which the cluster named"])
def test_a_job_that_a_plugin_renames_is_followed_or_cancelled(
    scripted_lab: ScriptedLab, tmp_path: Path, interrupt: str
) -> None:
    script = Script(plugin="site-name")
    if interrupt:
        script = replace(script, timeline=STUCK, ends=False)
    session = play(scripted_lab, tmp_path, script, interrupt=interrupt)
    assert session.verdict == ("infrastructure" if interrupt else "passed"), session.run.out
    assert "job 4711, which the cluster named site-name" in session.run.out
    assert scripted_lab.live_jobs() == []


@pytest.mark.parametrize("then", ["--resume", "--sweep", "--cancel"])
def test_a_renamed_job_that_a_killed_session_never_saw_in_a_list_is_not_left(
    scripted_lab: ScriptedLab, tmp_path: Path, then: str
) -> None:
    script = Script(plugin="site-name", timeline=STUCK, ends=False)
    select = killed_before_the_first_list(scripted_lab, tmp_path, script)
    if then == "--resume":
        scripted_lab.play(replace(script, timeline=FINE, ends=True))
    run = pacemark(
        *(select if then == "--resume" else ["suites", *select[-2:]]),
        *([then] if then == "--sweep" else [then, "latest"]),
        results=tmp_path / "results",
    )
    assert run.status == 0, run.out
    assert scripted_lab.live_jobs() == []
    assert list(scripted_lab.jobs().values()) == ["COMPLETED" if then == "--resume" else "CANCELLED"]
    assert len(scripted_lab.calls("sbatch")) == 1


def test_an_id_with_its_cluster_is_an_id(scripted_lab: ScriptedLab, tmp_path: Path) -> None:
    session = play(scripted_lab, tmp_path, Script(reply="{id};here"))
    assert session.verdict == "passed", session.run.out
    assert session.case["job"]["id"] == "4711"


def test_a_job_on_another_cluster_than_squeue_shows_is_refused_and_cancelled_there(
    scripted_lab: ScriptedLab, tmp_path: Path
) -> None:
    script = Script(reply="{id};other", cluster="other", timeline=STUCK, ends=False)
    session = play(scripted_lab, tmp_path, script)
    assert session.verdict == "infrastructure", session.run.out
    assert "named job 4711 on the cluster other" in session.headline
    assert scripted_lab.live_jobs() == []


# What the tools print


def test_banners_on_both_outputs_of_every_tool_are_no_answer(
    scripted_lab: ScriptedLab, tmp_path: Path
) -> None:
    banner = "** Maintenance on 1 December | 8:00 to 12:00 | all of 4711 | nodes | gpu **\nWelcome\n\n"
    script = Script(stdout=banner, stderr=banner, forget_after=0)
    assert play(scripted_lab, tmp_path, script).verdict == "passed"


def test_banners_do_not_hide_a_failure(scripted_lab: ScriptedLab, tmp_path: Path) -> None:
    banner = "sbatch: warning: your password expires in 7 days\nCOMPLETED\n"
    script = Script(stdout=banner, stderr=banner, timeline=ending("TIMEOUT"))
    session = play(scripted_lab, tmp_path, script)
    assert session.verdict == "infrastructure", session.run.out
    assert "ended TIMEOUT" in session.headline


def test_a_state_of_no_table_is_loud_and_bounded(scripted_lab: ScriptedLab, tmp_path: Path) -> None:
    script = Script(timeline=((0, "WEIRD_STATE", 0.3),), ends=False)
    session = play(scripted_lab, tmp_path, script, limits={"unreachable_minutes": 0.06})
    assert session.verdict == "infrastructure", session.run.out
    assert "in the unknown state 'WEIRD_STATE' for " in session.headline
    assert scripted_lab.live_jobs() == []


def test_a_state_of_no_table_in_between_changes_nothing(scripted_lab: ScriptedLab, tmp_path: Path) -> None:
    script = Script(timeline=((0, "RUNNING", 0.3), (0.5, "WEIRD_STATE", 0.5)), ends=False)
    session = play(scripted_lab, tmp_path, script, then=[("weird_state", Script())])
    assert session.verdict == "passed", session.run.out


def test_a_requeued_job_goes_on(scripted_lab: ScriptedLab, tmp_path: Path) -> None:
    runs, requeued = (Script(timeline=((0, state, 0),), ends=False) for state in ("RUNNING", "REQUEUED"))
    # It is requeued only once it was seen to run: of a job that is first seen in the queue, no line is printed.
    session = play(scripted_lab, tmp_path, runs, then=[("running on", requeued), ("requeued", Script())])
    assert session.verdict == "passed", session.run.out


def test_a_job_that_stays_requeued_is_given_up_and_cancelled(
    scripted_lab: ScriptedLab, tmp_path: Path
) -> None:
    script = Script(timeline=((0, "RUNNING", 0), (0.4, "REQUEUED", 0)), ends=False, reason="BeginTime")
    session = play(scripted_lab, tmp_path, script, limits={"queue_minutes": 0.04})
    assert session.verdict == "infrastructure", session.run.out
    assert "still queued after 0.04 minutes; the queue says: BeginTime" in session.headline
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


def test_a_job_that_cannot_be_given_up_is_told(scripted_lab: ScriptedLab, tmp_path: Path) -> None:
    script = Script(
        timeline=((0, "PENDING", 0),), ends=False, reason="PartitionNodeLimit", cancel_ignored=True
    )
    session = play(scripted_lab, tmp_path, script, limits=SHORT)
    assert session.verdict == "infrastructure", session.run.out
    assert "it can never start; the queue says: PartitionNodeLimit" in session.headline
    told = r"its cancellation was asked for but NOT confirmed( \(.*no answer.*\))?, look after it"
    assert re.search(told, session.headline), session.headline


def test_a_cancel_that_fails_at_first_is_repeated(scripted_lab: ScriptedLab, tmp_path: Path) -> None:
    script = Script(
        timeline=STUCK, ends=False, faults={"scancel": Fault(f"scancel: error: {TIMED_OUT}", calls=1)}
    )
    session = play(scripted_lab, tmp_path, script, interrupt=SUBMITTED)
    assert "job 4711 was cancelled" in session.headline
    assert len(scripted_lab.calls("scancel")) == 2
    assert scripted_lab.live_jobs() == []


def test_results_that_vanish_while_a_job_runs_cancel_it_and_pass_nothing(
    scripted_lab: ScriptedLab, tmp_path: Path
) -> None:
    def strike() -> None:
        # At once, where to delete all that is in it takes a while.
        (tmp_path / "results" / "latest").resolve().rename(tmp_path / "away")

    run = vanish(scripted_lab, tmp_path, Script(timeline=STUCK, ends=False), strike)
    assert run.status == 1, run.out
    assert "the results folder cannot be written to any more" in run.out
    assert "the record of the run could not be written" in run.out
    assert not any(words in run.out for words in ("Traceback", "INTERNALERROR", " passed"))
    assert scripted_lab.live_jobs() == []
    assert len(scripted_lab.calls("sbatch")) == 1


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
