"""A session that dies leaves nothing behind that the next one does not find: resume, cancel, sweep, list."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.lab import daemons
from tests.lab.slurm import SlurmLab
from tests.system.forks import Session
from tests.system.support import (
    CASE,
    SELECT,
    Run,
    finish,
    login,
    pacemark,
    signal_group,
    site_file,
    start,
    until,
)
from tests.system.test_slurm_session_faults import DAY, skewed

# A launcher that was cut off may submit for that long; the lab's needs two seconds, on a busy machine ten.
LAUNCH = {"launch_minutes": "0.5"}


def kill(process: Session) -> None:
    """kill -9 of the session and all its workers: nobody can clean up."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def running(lab: SlurmLab) -> bool:
    return any(job.state == "RUNNING" for job in lab.squeue())


def followed(results: Path) -> bool:
    """Whether a session has read of its job's log: it then knows the job."""
    log = results / "latest" / CASE / "log.txt"
    return log.exists() and log.stat().st_size > 0


def ever(lab: SlurmLab, name: str) -> int:
    """How many jobs there were, running ones included, with this test's folder in their run's site."""
    return len([job for job in lab.jobs_ever() if name in job.name]) + len(
        [job for job in lab.squeue() if name in job.name]
    )


def resume(site: Path, tmp_path: Path, *more: str) -> Run:
    return pacemark(*SELECT, "--site", str(site), "--resume", "latest", *more, results=tmp_path / "results")


@pytest.mark.promise("no leaked job: --resume")
def test_a_running_job_is_taken_up_and_judged(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    stage = slurm_lab.stage(tmp_path.name)
    stage.hold(10)
    site = site_file(slurm_lab, stage, tmp_path)
    process = start(*SELECT, "--site", str(site), results=tmp_path / "results")
    until(lambda: followed(tmp_path / "results"), "a job that is followed")
    kill(process)
    stage.let_go()
    run = (tmp_path / "results" / "latest").resolve().name
    result = resume(site, tmp_path)
    assert result.status == 0, result.out
    assert result.folder.name == run
    assert result.case()["verdict"] == "passed"
    assert ever(slurm_lab, run) == 1
    assert len((result.folder / CASE / "steps.csv").read_text().splitlines()) == 51


def test_a_job_that_ended_meanwhile_is_judged_without_another(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    stage = slurm_lab.stage(tmp_path.name)
    stage.hold(10)
    site = site_file(slurm_lab, stage, tmp_path)
    process = start(*SELECT, "--site", str(site), results=tmp_path / "results")
    until(lambda: followed(tmp_path / "results"), "a job that is followed")
    kill(process)
    stage.let_go()
    until(lambda: not slurm_lab.squeue(), "the job's end")
    result = resume(site, tmp_path)
    assert result.case()["verdict"] == "passed", result.out
    assert ever(slurm_lab, result.folder.name) == 1
    again = resume(site, tmp_path)
    assert again.case()["verdict"] == "passed", again.out
    assert ever(slurm_lab, result.folder.name) == 1


@pytest.mark.parametrize("after", [0.0, 0.4, 0.8, 1.2, 1.6])
def test_a_session_killed_while_submitting_never_submits_twice(
    slurm_lab: SlurmLab, tmp_path: Path, after: float
) -> None:
    quick = {**LAUNCH, "ssh": login(slurm_lab, ", connect_seconds: 5, command_seconds: 10")}
    site = site_file(slurm_lab, slurm_lab.stage(tmp_path.name, real_step=0.05), tmp_path, **quick)
    process = start(*SELECT, "--site", str(site), results=tmp_path / "results")
    until((tmp_path / "results" / "latest" / "jobs.log").exists, "the run has begun")
    time.sleep(after)
    kill(process)
    result = resume(site, tmp_path)
    assert result.case()["verdict"] == "passed", result.out
    assert ever(slurm_lab, result.folder.name) == 1
    assert slurm_lab.squeue() == []


def test_after_ctrl_c_the_case_is_run_again_under_another_name(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    stage = slurm_lab.stage(tmp_path.name, hang_at=5)
    site = site_file(slurm_lab, stage, tmp_path)
    process = start(*SELECT, "--site", str(site), results=tmp_path / "results")
    until(lambda: followed(tmp_path / "results"), "a job that is followed")
    signal_group(process, signal.SIGINT)
    finish(process, tmp_path / "results")
    assert slurm_lab.squeue() == []
    stage.set(hang_at=-1)
    result = resume(site, tmp_path)
    assert result.case()["verdict"] == "passed", result.out
    assert result.case()["job"]["name"].endswith("-try2")
    assert [job["state"] for job in result.case()["earlier_jobs"]] == ["CANCELLED"]


def test_a_run_that_lives_is_not_resumed_twice_and_cancel_ends_it(
    slurm_lab: SlurmLab, tmp_path: Path
) -> None:
    site = site_file(slurm_lab, slurm_lab.stage(tmp_path.name, hang_at=5), tmp_path)
    process = start(*SELECT, "--site", str(site), results=tmp_path / "results")
    until(lambda: followed(tmp_path / "results"), "a job that is followed")
    refused = resume(site, tmp_path)
    assert refused.status == 4
    assert " is still going on" in refused.out
    swept = pacemark("suites", "--sweep", "--site", str(site), results=tmp_path / "results")
    assert swept.status == 0
    assert "no dead run in" in swept.out
    assert running(slurm_lab)
    shown = pacemark("suites", "--list-runs", results=tmp_path / "results")
    assert f"running in process {process.pid}" in shown.out
    cancelled = pacemark("suites", "--cancel", "latest", "--site", str(site), results=tmp_path / "results")
    assert cancelled.status == 0, cancelled.out
    assert slurm_lab.squeue() == []
    assert finish(process, tmp_path / "results").case()["verdict"] == "infrastructure"


@pytest.mark.promise("no leaked job: --sweep")
@pytest.mark.parametrize(
    ("command", "workers"), [(["--cancel", "latest"], []), (["--sweep"], []), (["--sweep"], ["-n", "1"])]
)
def test_what_a_dead_session_left_is_cancelled(
    slurm_lab: SlurmLab, tmp_path: Path, workers: list[str], command: list[str]
) -> None:
    site = site_file(slurm_lab, slurm_lab.stage(tmp_path.name, hang_at=5), tmp_path)
    process = start(*SELECT, *workers, "--site", str(site), results=tmp_path / "results")
    until(lambda: followed(tmp_path / "results"), "a job that is followed")
    kill(process)
    (job,) = slurm_lab.squeue()
    shown = pacemark("suites", "--list-runs", results=tmp_path / "results")
    assert "died" in shown.out
    assert str(job.id) in shown.out
    done = pacemark("suites", *command, "--site", str(site), results=tmp_path / "results")
    assert done.status == 0, done.out
    assert f"job {job.id} is over" in done.out
    assert slurm_lab.squeue() == []
    again = pacemark("suites", *command, "--site", str(site), results=tmp_path / "results")
    assert again.status == 0
    assert "left" in again.out


def test_a_job_that_is_not_ours_is_left_alone(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    """The ledger's id belongs to a job of another name, submitted at another time: a cluster that was set up anew."""
    site = site_file(
        slurm_lab, slurm_lab.stage(tmp_path.name, hang_at=5), tmp_path, limits=", cancel_seconds: 3"
    )
    env = skewed(tmp_path / "clock", -DAY)
    process = start(*SELECT, "--site", str(site), results=tmp_path / "results", env=env)
    until(lambda: followed(tmp_path / "results"), "a job that is followed")
    kill(process)
    (job,) = slurm_lab.squeue()
    slurm_lab.run("scontrol", "update", f"JobId={job.id}", "JobName=somebody-elses")
    swept = pacemark("suites", "--sweep", "--site", str(site), results=tmp_path / "results")
    words = f"job {job.id} is named somebody-elses, and is ours only if it was renamed"
    assert (swept.status, f"NOT confirmed ({words})" in swept.out) == (1, True), swept.out
    assert [found.id for found in slurm_lab.squeue()] == [job.id]
    slurm_lab.run("scancel", str(job.id))
    until(lambda: not slurm_lab.squeue(), "the end of the test's own job")


@pytest.mark.parametrize("end", ["Ctrl-C", "--sweep", "--resume"])
def test_a_job_that_an_administrator_renames_in_mid_run_is_still_ours(
    slurm_lab: SlurmLab, tmp_path: Path, end: str
) -> None:
    stage = slurm_lab.stage(tmp_path.name)
    stage.hold(5)
    site = site_file(slurm_lab, stage, tmp_path)
    process = start(*SELECT, "--site", str(site), results=tmp_path / "results")
    until(lambda: followed(tmp_path / "results"), "a job that is followed")
    if end != "Ctrl-C":
        kill(process)
    (job,) = slurm_lab.squeue()
    slurm_lab.run("scontrol", "update", f"JobId={job.id}", "JobName=rack-7")
    if end == "--resume":
        stage.let_go()
        assert resume(site, tmp_path).case()["verdict"] == "passed"
    elif end == "--sweep":
        swept = pacemark("suites", "--sweep", "--site", str(site), results=tmp_path / "results")
        assert (swept.status, f"job {job.id} is over" in swept.out) == (0, True), swept.out
    else:
        until(
            lambda: f"job {job.id}, which the cluster named rack-7" in process.said(), "its new name is told"
        )
        signal_group(process, signal.SIGINT)
        assert "was cancelled" in finish(process, tmp_path / "results").case()["headline"]
    assert slurm_lab.squeue() == []


def test_a_worker_that_is_killed_leaves_no_job(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    stage = slurm_lab.stage(tmp_path.name)
    stage.hold(10)
    site = site_file(slurm_lab, stage, tmp_path)
    process = start(*SELECT, "-n", "1", "--site", str(site), results=tmp_path / "results")
    until(lambda: followed(tmp_path / "results"), "a job that is followed")
    workers = subprocess.run(
        ["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=True
    ).stdout.split()
    # Its short-lived children are among them.
    daemons.kill(map(int, workers))
    stage.let_go()
    result = finish(process, tmp_path / "results")
    # Another worker judges the case, whose job has gone on.
    assert (result.status, result.verdicts) == (0, {CASE: "passed"}), result.out
    assert slurm_lab.squeue() == []


def test_an_unknown_run_is_one_clear_error(tmp_path: Path) -> None:
    for command in (["--resume", "nowhere"], ["--cancel", "nowhere"]):
        result = pacemark(*SELECT, *command, results=tmp_path / "results")
        assert result.status == 4
        assert "no run 'nowhere' in" in result.out
        assert "Traceback" not in result.out
