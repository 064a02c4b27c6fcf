"""The way to the cluster breaks: connection, login node, controller. Each fault is caused for real, at a sure moment."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import pytest

from tests.lab.daemons import LabError, command, kill
from tests.lab.slurm import SlurmLab
from tests.lab.sshd import few_sessions
from tests.system.faults import CASE, MakeTrial
from tests.system.support import finish, pacemark, signal_group, site_file, until

# The launcher is over for certain, so nobody waits until it can no longer submit.
IMPATIENT = ("-p", "tests.system.bounds")
FOUR = ("suites/llama3", "-k", "70b and (64 or 512)")
# On a busy machine a login shell and the check before the launch may need more than 2 s.
QUICK = ("config:", "connect_seconds: 20, command_seconds: 20, config:")


@pytest.mark.parametrize("submitted", [False, True], ids=["before sbatch", "behind sbatch"])
def test_a_connection_cut_while_submitting_costs_nothing(
    lab: SlurmLab, make_trial: MakeTrial, submitted: bool
) -> None:
    trial = make_trial()
    gate = trial.gate("sbatch", after=submitted).shut()
    trial.start()
    gate.until_somebody_waits()
    lab.cut_sessions()
    time.sleep(1)
    gate.open()
    out = trial.passed()
    assert "no answer to the submission, looking for its job" in out


def test_a_launcher_that_dies_with_its_connection_is_infrastructure(
    lab: SlurmLab, make_trial: MakeTrial
) -> None:
    trial = make_trial()
    gate = trial.gate("sbatch").shut()
    trial.start(*IMPATIENT)
    gate.until_somebody_waits()
    launcher = {pid for pid in lab.pids if str(trial.stage.path) in command(pid)}
    lab.cut_sessions()
    kill(launcher)
    assert "no job named" in trial.blamed()
    assert trial.jobs() == []


@pytest.mark.parametrize("sessions", [1, 2, 3])
def test_a_login_node_that_allows_few_sessions_runs_every_case(
    lab: SlurmLab, tmp_path: Path, sessions: int
) -> None:
    stage = lab.stage(tmp_path.name)
    with few_sessions(lab.root, lab.user, sessions) as to:
        site = site_file(to, stage, tmp_path, limits=", submissions_at_once: 4")
        result = pacemark(*FOUR, "--site", str(site), results=tmp_path / "results")
    assert list(result.verdicts.values()) == ["passed"] * 4, result.out
    assert "no answer to the submission" not in result.out


def test_a_connection_cut_while_asking_costs_nothing(lab: SlurmLab, make_trial: MakeTrial) -> None:
    trial = make_trial().hold(10).start()
    trial.until_steps(3)
    gate = trial.gate("squeue").shut()
    gate.until_somebody_waits()
    lab.cut_sessions()
    gate.open()
    trial.let_go()
    result = trial.end()
    assert result.verdicts == {CASE: "passed"}, result.out
    # Once of each outage: on a busy machine the controller itself may be late.
    told = re.findall("will go on trying|answers again", result.out)
    assert told
    assert told == ["will go on trying", "answers again"] * (len(told) // 2)
    assert len(trial.jobs()) == 1


def test_a_connection_that_breaks_again_and_again_costs_nothing(lab: SlurmLab, make_trial: MakeTrial) -> None:
    """Of so many cuts some hit every kind of request; the log grows so fast that reading it takes a while."""
    trial = make_trial(real_step=0.1, chatter=1).hold(40).start()
    trial.job()
    for _ in range(20):
        lab.cut_sessions()
        time.sleep(0.2)
    process = trial.process
    assert process is not None

    def is_told() -> bool:
        lab.cut_sessions()
        return "will go on trying" in process.said()

    until(is_told, "the session tells of a cut")
    trial.let_go()
    out = trial.passed()
    assert "will go on trying" in out


def test_a_login_node_that_restarts_or_is_gone_for_a_while_costs_nothing(
    lab: SlurmLab, make_trial: MakeTrial
) -> None:
    trial = make_trial().hold(10).start()
    trial.until_steps(3)
    lab.stop_sshd()
    lab.start_sshd()
    lab.stop_sshd()
    trial.until_said("cannot be asked")
    lab.start_sshd()
    trial.let_go()
    out = trial.passed()
    assert "cannot be asked, will go on trying: ssh" in out
    assert "slurm: answers again" in out


def test_a_login_node_that_hangs_is_given_up_on_and_tried_again(lab: SlurmLab, make_trial: MakeTrial) -> None:
    trial = make_trial().hold(10)
    trial.site.write_text(trial.site.read_text().replace(*QUICK))
    trial.start()
    trial.until_steps(3)
    with lab.frozen_login_node():
        trial.until_said("will go on trying")
    trial.let_go()
    out = trial.passed()
    assert "will go on trying" in out


def test_a_login_node_gone_for_too_long_is_lost_and_the_job_is_taken_up_again(
    lab: SlurmLab, make_trial: MakeTrial
) -> None:
    trial = make_trial(limits=", unreachable_minutes: 0.02").hold(10).start()
    trial.until_steps(3)
    lab.stop_sshd()
    result = trial.end(left=1)
    assert result.verdicts == {CASE: "lost"}
    headline = result.case(CASE)["headline"]
    assert "could not be asked for 0.02 minutes: ssh root@127.0.0.1" in headline
    assert f"the job may still run: look for the name {trial.living()[0].name}" in headline
    lab.start_sshd()
    trial.let_go()
    trial.start("--resume", "latest").passed()


def test_a_controller_that_is_gone_for_a_while_costs_nothing(lab: SlurmLab, make_trial: MakeTrial) -> None:
    # The job outlives the outage: slurmd tells of an end that it could not report only a while later.
    trial = make_trial().hold(10).start()
    trial.until_steps(3)
    lab.stop_controller()
    with pytest.raises(LabError, match="Unable to contact slurm controller"):
        lab.run("squeue", "--states=all", "--jobs=1")
    trial.until_said("Unable to contact slurm controller")
    lab.start_controller()
    trial.let_go()
    out = trial.passed()
    assert "Unable to contact slurm controller" in out
    assert "slurm: answers again" in out


@pytest.mark.promise("no leaked job: an end that was not confirmed")
def test_ctrl_c_while_the_controller_is_gone_ends_within_the_bound(
    lab: SlurmLab, make_trial: MakeTrial
) -> None:
    trial = make_trial(limits=", cancel_seconds: 20").hold(10).start()
    trial.until_steps(3)
    job = trial.job()
    lab.stop_controller()
    trial.until_said("Unable to contact slurm controller")
    assert trial.process is not None
    began = time.monotonic()
    signal_group(trial.process, signal.SIGINT)
    result = finish(trial.process, trial.results)
    # Three times the bound, for a busy machine; squeue, scancel and squeue may take 48 s each otherwise.
    seconds = time.monotonic() - began
    assert seconds < 60, seconds
    # Why depends on what was asked last.
    assert f"job {job.id} was asked to end, which is NOT confirmed" in result.out
    lab.start_controller()
    lab.run("scancel", str(job.id))
    until(lambda: not trial.living(), "the job's end")


def test_a_controller_that_is_gone_at_sbatch_is_infrastructure_with_slurms_words(
    lab: SlurmLab, make_trial: MakeTrial
) -> None:
    # Slurm's own patience, 10 s, is part of it.
    trial = make_trial(keys={"launch_minutes": "3"})
    trial.site.write_text(trial.site.read_text().replace(*QUICK))
    gate = trial.gate("sbatch").shut()
    trial.start(*IMPATIENT)
    gate.until_somebody_waits()
    lab.stop_controller()
    gate.open()
    with pytest.raises(LabError, match="Unable to contact slurm controller"):
        lab.run("sbatch", "--wrap", "true")
    until(lambda: not any("sbatch" in command(pid) for pid in lab.pids), "the launcher's own sbatch gave up")
    lab.start_controller()
    assert "Unable to contact slurm controller" in trial.blamed()
    assert trial.jobs() == []
