"""The cluster takes a job away, holds it back or ends it: nodes, preemption, limits, administrators. For real."""

from __future__ import annotations

import re
import signal
import time
from functools import partial

import pytest

from tests.lab.slurm import SlurmLab
from tests.system.faults import CASE, MAXTEXT, NEMOTRON, MakeTrial, Trial
from tests.system.support import login, until

ALL = "gpu[001-256]"


def test_a_job_whose_node_fails_is_requeued_and_judged_by_its_new_log(
    lab: SlurmLab, make_trial: MakeTrial
) -> None:
    trial = make_trial().hold(10).start()
    trial.until_steps(5)
    lab.set_node(trial.node(), "down")
    # Slurm kills the first start a moment later, and until then it waits: only the second one does not.
    trial.stage.set(held_at=-1)
    result = trial.end()
    case = result.case(CASE)
    assert case["verdict"] == "passed", result.out
    assert case["job"]["attempts"] == 2
    assert "the job was started 2 times; judged by its last attempt" in case["remarks"]
    # This Slurm has no accounting, and the session may or may not have seen that the job waited in between.
    untold = "its GPU-hours are of its last attempt: the cluster does not tell how long the others ran"
    assert (untold in case["remarks"]) == (case["job"]["earlier_seconds"] == 0)
    assert (result.folder / CASE / "log.attempt-1.txt").exists()
    assert len(trial.jobs()) == 1


def has_told(trial: Trial, line: bytes) -> bool:
    """Whether the session has read this."""
    return line in trial.collected()


def test_a_job_that_writes_its_log_anew_after_a_requeue_is_judged_by_its_last_start(
    lab: SlurmLab, make_trial: MakeTrial
) -> None:
    """The first start hangs before its last step, at good pace. The second is 8 % slow, and truncates the same file."""
    steps = {NEMOTRON: b"global_step=45.0", MAXTEXT: b"completed step: 48,"}
    trials = [make_trial(case.partition("/")[0], case=case, hang_at=48).start() for case in steps]
    for trial in trials:
        until(partial(has_told, trial, steps[trial.case]), "its last steps in the session")
        trial.stage.set(hang_at=-1, pace=1.08)
        job = trial.job().id
        # The recipes forbid it, which an administrator may change.
        lab.run("scontrol", "update", f"JobId={job}", "Requeue=1")
        lab.run("scontrol", "requeue", str(job))
    for trial in trials:
        result = trial.end()
        found = result.case(trial.case)
        assert found["verdict"] == "too slow", result.out
        assert found["job"]["attempts"] == 2
        assert "the job was started 2 times; judged by its last attempt" in found["remarks"]
        kept = (result.folder / trial.case / "log.attempt-1.txt").read_bytes()
        assert steps[trial.case] in kept
        assert len(trial.jobs()) == 1


def test_a_job_that_may_not_be_requeued_ends_with_its_node_and_is_tried_again_elsewhere(
    lab: SlurmLab, make_trial: MakeTrial
) -> None:
    trial = make_trial(case=NEMOTRON).hold(10)
    trial.start("--retry-infrastructure", "1", "--exclude-failed-nodes")
    trial.until_steps(5)
    node = trial.node()
    # Else it registers again and is back: its slurmd is well.
    lab.set_node(node, "drain")
    lab.set_node(node, "down")
    # Slurm kills the first job a moment later, and until then it waits: only the second one does not.
    trial.stage.set(held_at=-1)
    result = trial.end()
    case = result.case(NEMOTRON)
    assert case["verdict"] == "passed", result.out
    (earlier,) = case["earlier_jobs"]
    assert earlier["state"] == "NODE_FAIL"
    # This Slurm does not say which node it was, but one alone is out of service.
    assert case["job"]["excluded_nodes"] == [node]
    assert "ended NODE_FAIL on gpu[" in result.out
    nodes = lab.run("scontrol", "show", "hostnames", case["job"]["nodes"]).split()
    assert len(nodes) == 16
    assert node not in nodes
    assert len(trial.jobs()) == 2


def test_a_job_that_is_preempted(lab: SlurmLab, make_trial: MakeTrial) -> None:
    """Two at once: one is requeued, the other one ends."""
    trials = [make_trial(case.partition("/")[0], case=case).hold(10).start() for case in (CASE, NEMOTRON)]
    urgent = []
    try:
        for trial in trials:
            trial.until_steps(5)
            job = lab.run(
                "sbatch", "--parsable", "-p", "urgent", "--exclusive", "-w", trial.node(), "--output=/dev/null",
                "--wrap", "sleep 600",
            )  # fmt: skip
            urgent.append(int(job))
        until(
            lambda: {job.id for job in lab.squeue() if job.state == "RUNNING"} >= set(urgent),
            "the urgent jobs",
        )
    finally:
        for number in urgent:
            lab.run("scancel", str(number))
    for trial in trials:
        trial.let_go()
    result = trials[0].end()
    assert result.case(CASE)["verdict"] == "passed", result.out
    assert result.case(CASE)["job"]["attempts"] == 2
    result = trials[1].end()
    assert result.case(NEMOTRON)["verdict"] == "infrastructure", result.out
    assert "ended PREEMPTED on gpu[" in result.case(NEMOTRON)["headline"]
    assert [len(trial.jobs()) for trial in trials] == [1, 1]


def test_a_job_that_hits_its_time_limit_is_infrastructure(lab: SlurmLab, make_trial: MakeTrial) -> None:
    trial = make_trial(hang_at=5).start()
    # All that it prints: steps 0 to 5.
    trial.until_steps(6)
    lab.exhaust_limit(trial.job().id)
    assert "ended TIMEOUT on gpu001 after step 5 of 0 to 49" in trial.blamed()


def test_a_job_that_is_held_can_never_start(lab: SlurmLab, make_trial: MakeTrial) -> None:
    """By an administrator and by its user."""
    lab.set_node(ALL, "drain")
    holds = {"hold": "JobHeldAdmin", "uhold": "JobHeldUser"}
    trials = {hold: make_trial(hold, limits=", hopeless_seconds: 1").start() for hold in holds}
    for hold, trial in trials.items():
        lab.run("scontrol", hold, str(trial.job("PENDING").id))
    for hold, trial in trials.items():
        case = trial.end().case(CASE)
        assert case["verdict"] == "infrastructure"
        assert f"it can never start; the queue says: {holds[hold]}; cancelled" in case["headline"]
        assert [job.state for job in trial.jobs()] == ["CANCELLED"]


def test_a_job_that_is_requeued_and_held_can_never_start(lab: SlurmLab, make_trial: MakeTrial) -> None:
    states = {"held": [], "special": ["State=SpecialExit"]}
    trials = [make_trial(name, limits=", hopeless_seconds: 1").hold(10).start() for name in states]
    for trial, state in zip(trials, states.values(), strict=True):
        trial.until_steps(3)
        lab.run("scontrol", "requeuehold", *state, str(trial.job().id))
    for trial in trials:
        headline = trial.end().case(CASE)["headline"]
        assert "it can never start; the queue says: " in headline
        assert headline.endswith("; cancelled")


def test_a_prolog_that_fails_is_told_with_its_node(lab: SlurmLab, make_trial: MakeTrial) -> None:
    (lab.root / "fail-prolog").touch()
    trial = make_trial(limits=", hopeless_seconds: 1")
    gate = trial.gate("squeue").shut()
    trial.start()
    # The node's slurmd reports the job first, and then, by a second message, itself.
    until(lambda: "Prolog error" in lab.run("sinfo", "-h", "-R", "-o", "%E"), "the drained node")
    gate.open()
    headline = trial.end().case(CASE)["headline"]
    assert re.search(r"it can never start; the queue says: launch.failed.requeued.held; ", headline), headline
    assert re.search(r"`sinfo -R` says: gpu\d+: Prolog error; cancelled", headline), headline


def test_a_job_that_is_suspended_does_not_hang(lab: SlurmLab, make_trial: MakeTrial) -> None:
    # Longer than a busy machine takes from the last step to the suspension, and shorter than that.
    trial = make_trial(limits=", stall_seconds: 30, stall_factor: 0.01").hold(10).start()
    trial.until_steps(5)
    job = str(trial.job().id)
    lab.run("scontrol", "suspend", job)
    trial.until_said("suspended on gpu001")
    time.sleep(33)
    lab.run("scontrol", "resume", job)
    trial.let_go()
    result = trial.end()
    assert result.case(CASE)["verdict"] == "passed", result.out
    assert any("the cluster suspended the job" in remark for remark in result.case(CASE)["remarks"])


def test_an_epilog_that_takes_its_time_is_no_job_that_goes_on(lab: SlurmLab, make_trial: MakeTrial) -> None:
    (lab.root / "hold-epilog").touch()
    trial = make_trial(limits=", stall_seconds: 20, stall_factor: 0.01").start()
    trial.until_said("completing on gpu001")
    time.sleep(22)
    (lab.root / "hold-epilog").unlink()
    result = trial.end()
    assert result.case(CASE)["verdict"] == "passed", result.out
    assert not any("it went on" in remark for remark in result.case(CASE)["remarks"])


def test_a_maintenance_is_told_with_its_times(lab: SlurmLab, make_trial: MakeTrial) -> None:
    lab.run(
        "scontrol", "create", "reservation", "ReservationName=works", "StartTime=now+5minutes", "Duration=30",
        "Users=root", "Flags=MAINT", "Nodes=ALL",
    )  # fmt: skip
    try:
        trial = make_trial(limits=", queue_minutes: 0.1")
        trial.first_seen_waiting_for("Reserved for maintenance")
        result = trial.end()
    finally:
        lab.run("scontrol", "delete", "ReservationName=works")
    headline = result.case(CASE)["headline"]
    assert re.search(
        r"the queue says: ReqNodeNotAvail.*; the reservation works is from \S+T\S+ to \S+T\S+: ", headline
    )
    assert "a job whose `time_limit` ends before it can still start" in headline


def test_a_job_that_is_released_in_time_goes_on(lab: SlurmLab, make_trial: MakeTrial) -> None:
    lab.set_node(ALL, "drain")
    trial = make_trial(limits=", queue_minutes: 5, hopeless_seconds: 60").start()
    job = trial.job("PENDING")
    lab.run("scontrol", "hold", str(job.id))
    time.sleep(2)
    lab.run("scontrol", "release", str(job.id))
    lab.mend()
    result = trial.end()
    assert result.case(CASE)["verdict"] == "passed", result.out
    assert [job.id for job in trial.jobs()] == [job.id]


def test_a_job_that_finds_no_node_is_given_up_with_the_queues_reason(
    lab: SlurmLab, make_trial: MakeTrial
) -> None:
    lab.set_node(ALL, "drain")
    trial = make_trial(limits=", queue_minutes: 0.1")
    trial.first_seen_waiting_for("DRAINED")
    headline = trial.blamed()
    assert "still queued after 0.1 minutes; the queue says: " in headline
    assert "DRAINED" in headline


def test_a_partition_that_takes_no_jobs_is_infrastructure_with_slurms_words(
    lab: SlurmLab, make_trial: MakeTrial
) -> None:
    lab.run("scontrol", "create", "PartitionName=closed", "Nodes=ALL", "State=INACTIVE")
    try:
        trial = make_trial(keys={"partition": "closed"}).start()
        result = trial.end()
    finally:
        lab.run("scontrol", "delete", "PartitionName=closed")
    assert result.case(CASE)["verdict"] == "infrastructure"
    assert "Required partition not available (inactive or drain)" in result.case(CASE)["headline"]
    assert trial.jobs() == []


def renaming(trial: Trial) -> Trial:
    """Give each job another name, as a job_submit plug-in does it; here right after the submission."""
    trial.tools.mkdir(exist_ok=True)
    (trial.tools / "sbatch").write_text(
        '#!/bin/bash\nanswer=$(/usr/bin/sbatch "$@") || exit\n'
        'scontrol update "JobId=${answer##* }" JobName="site-${answer##* }"\necho "$answer"\n'
    )
    (trial.tools / "sbatch").chmod(0o755)
    return trial


@pytest.mark.parametrize("then", ["--resume", "--sweep"])
def test_a_renamed_job_that_a_killed_session_never_saw_in_a_list_is_not_left(
    lab: SlurmLab, make_trial: MakeTrial, then: str
) -> None:
    trial = renaming(make_trial().hold(10))
    gate = trial.gate("squeue").shut()
    trial.start()
    trial.until_said("8b-bf16-8gpus: job ")
    trial.kill()
    gate.open()
    assert [job.name.partition("-")[0] for job in lab.squeue()] == ["site"]
    if then == "--resume":
        trial.let_go()
        assert trial.resume().verdicts == {CASE: "passed"}
    else:
        swept = trial.house("--sweep")
        assert swept.status == 0, swept.out
    assert lab.squeue() == []


@pytest.mark.parametrize("ends", ["by itself", "by Ctrl-C"])
def test_a_job_that_slurm_renames_is_followed_by_its_id(
    lab: SlurmLab, make_trial: MakeTrial, ends: str
) -> None:
    trial = renaming(make_trial().hold(10))
    trial.start()
    trial.until_steps(3)
    assert [job.name.partition("-")[0] for job in lab.squeue()] == ["site"]
    if ends == "by Ctrl-C":
        trial.signal(signal.SIGINT)
    else:
        trial.let_go()
    result = trial.end()
    assert lab.squeue() == []
    assert result.verdicts == {CASE: "passed" if ends == "by itself" else "infrastructure"}, result.out
    assert re.search(r"8b-bf16-8gpus: job (\d+), which the cluster named site-\1", result.out)


def test_a_cluster_that_may_have_no_more_jobs_is_named(lab: SlurmLab, make_trial: MakeTrial) -> None:
    """sbatch waits and says so, but NeMo-Run keeps it to itself until its bound ends it."""
    configuration = lab.root / "slurm.conf"
    text = configuration.read_text()
    other = lab.run(
        "sbatch", "--parsable", "--account=lab_acct", "--output=/dev/null", "--wrap=sleep 6000"
    ).strip()
    configuration.write_text(f"{text}\nMaxJobCount=1\n")
    lab.stop_controller()
    lab.start_controller()
    try:
        trial = make_trial(keys={"launch_minutes": "0.4", "ssh": login(lab, ", command_seconds: 20")})
        headline = trial.start().end().case(CASE)["headline"]
        assert "Slurm has as many jobs as it may have (MaxJobCount 1): sbatch waits until" in headline
    finally:
        configuration.write_text(text)
        lab.stop_controller()
        lab.start_controller()
        lab.run("scancel", other)
