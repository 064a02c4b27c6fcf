"""The session itself: killed at any stage of a case's life, taken up, cancelled and swept; on a wrong clock, beside another, with secrets."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from fixtures.runs.ledger import Ledger
from plugins.record.lines import JOBS_LOG
from tests.lab import daemons
from tests.lab.slurm import SlurmLab
from tests.system.faults import CASE, Behind, MakeTrial, Trial
from tests.system.support import TOKEN, finish, login, until

DAY = 86400

# A login profile or a prologue that sets them for its user's own work.
FILTERS = (
    "SQUEUE_STATES=COMPLETED SQUEUE_NAMES=mine SQUEUE_PARTITION=other SQUEUE_FORMAT2=JobID SQUEUE_SORT=-p "
    "SCANCEL_STATE=PENDING SCANCEL_NAME=mine SCANCEL_PARTITION=other SCANCEL_INTERACTIVE=true SINFO_PARTITION=other "
    "SACCT_FORMAT=JobID SLURM_TIME_FORMAT=relative SLURM_RESTART_COUNT=3 SBATCH_HOLD=true"
)
OTHERS = {
    "GITHUB_TOKEN": "ghp_planted-by-a-test-0123456789",
    "AWS_SECRET_ACCESS_KEY": "planted/by+a/test/0123456789",
    "WANDB_API_KEY": "0123456789planted0123456789",
}


def followed(trial: Trial, *more: str, env: dict[str, str] | None = None) -> Trial:
    """Once its session has read steps: it then knows the job."""
    trial.start(*more, env=env).until_steps(5)
    return trial


# What the next session finds


@pytest.mark.promise("no leaked job: --resume")
def test_a_running_job_is_taken_up_and_judged(make_trial: MakeTrial) -> None:
    trial = followed(make_trial().hold(10))
    trial.kill()
    trial.let_go()
    run = trial.run
    result = trial.resume()
    assert (result.status, result.folder.name) == (0, run), result.out
    assert result.verdicts == {CASE: "passed"}
    assert len(trial.jobs()) == 1
    assert len((result.folder / CASE / "steps.csv").read_text().splitlines()) == 51


def test_a_job_that_ended_meanwhile_is_judged_without_another(make_trial: MakeTrial) -> None:
    trial = followed(make_trial().hold(10))
    trial.kill()
    trial.let_go()
    until(lambda: trial.living() == [], "the job's end")
    for _ in ("for the first time", "again"):
        trial.start("--resume", "latest").passed()


def test_after_ctrl_c_the_case_is_run_again_under_another_name(make_trial: MakeTrial) -> None:
    trial = followed(make_trial(hang_at=5))
    trial.signal(signal.SIGINT)
    trial.end()
    trial.stage.set(hang_at=-1)
    result = trial.resume()
    case = result.case(CASE)
    assert case["verdict"] == "passed", result.out
    assert case["job"]["name"].endswith("-try2")
    assert [job["state"] for job in case["earlier_jobs"]] == ["CANCELLED"]


def test_a_run_that_lives_is_not_resumed_twice_and_cancel_ends_it(make_trial: MakeTrial) -> None:
    trial = followed(make_trial(hang_at=5))
    refused = trial.house("--resume", "latest")
    assert (refused.status, " is still going on" in refused.out) == (4, True), refused.out
    swept = trial.house("--sweep")
    assert (swept.status, "no dead run in" in swept.out) == (0, True), swept.out
    assert [job.state for job in trial.living()] == ["RUNNING"]
    assert trial.process is not None
    assert f"running in process {trial.process.pid}" in trial.house("--list-runs").out
    cancelled = trial.house("--cancel", "latest")
    assert cancelled.status == 0, cancelled.out
    assert trial.end().verdicts == {CASE: "infrastructure"}


@pytest.mark.promise("no leaked job: --sweep")
@pytest.mark.parametrize(
    ("command", "workers"), [(["--cancel", "latest"], []), (["--sweep"], []), (["--sweep"], ["-n", "1"])]
)
def test_what_a_dead_session_left_is_cancelled(
    make_trial: MakeTrial, workers: list[str], command: list[str]
) -> None:
    trial = followed(make_trial(hang_at=5), *workers)
    trial.kill()
    (job,) = trial.living()
    shown = trial.house("--list-runs").out
    assert ("died" in shown, str(job.id) in shown) == (True, True)
    done = trial.house(*command)
    assert (done.status, f"job {job.id} is over" in done.out) == (0, True), done.out
    assert trial.living() == []
    again = trial.house(*command)
    assert (again.status, "left" in again.out) == (0, True), again.out


def test_a_job_that_is_not_ours_is_left_alone(lab: SlurmLab, make_trial: MakeTrial, tmp_path: Path) -> None:
    """The ledger's id belongs to a job of another name, submitted at another time: a cluster that was set up anew."""
    trial = make_trial(hang_at=5, limits=", cancel_seconds: 3")
    followed(trial, env=skewed(tmp_path / "clock", -DAY)).kill()
    (job,) = trial.living()
    lab.run("scontrol", "update", f"JobId={job.id}", "JobName=somebody-elses")
    swept = trial.house("--sweep")
    words = f"NOT confirmed (job {job.id} is named somebody-elses, and is ours only if it was renamed)"
    assert (swept.status, words in swept.out) == (1, True), swept.out
    assert [found.id for found in lab.squeue()] == [job.id]
    lab.run("scancel", str(job.id))
    until(lambda: not lab.squeue(), "the end of the test's own job")


@pytest.mark.parametrize("end", ["Ctrl-C", "--sweep", "--resume"])
def test_a_job_that_an_administrator_renames_in_mid_run_is_still_ours(
    lab: SlurmLab, make_trial: MakeTrial, end: str
) -> None:
    trial = followed(make_trial().hold(5))
    if end != "Ctrl-C":
        trial.kill()
    (job,) = trial.living()
    lab.run("scontrol", "update", f"JobId={job.id}", "JobName=rack-7")
    if end == "--resume":
        trial.let_go()
        assert trial.resume().verdicts == {CASE: "passed"}
    elif end == "--sweep":
        swept = trial.house("--sweep")
        assert (swept.status, f"job {job.id} is over" in swept.out) == (0, True), swept.out
    else:
        trial.until_said(f"job {job.id}, which the cluster named rack-7")
        trial.signal(signal.SIGINT)
        assert "was cancelled" in trial.end().case(CASE)["headline"]
    assert lab.squeue() == []


def test_a_worker_that_is_killed_leaves_no_job(make_trial: MakeTrial) -> None:
    trial = followed(make_trial().hold(10), "-n", "1")
    assert trial.process is not None
    children = ["pgrep", "-P", str(trial.process.pid)]
    workers = subprocess.run(children, capture_output=True, text=True, check=True).stdout.split()
    # Its short-lived children are among them.
    daemons.kill(map(int, workers))
    trial.let_go()
    # Another worker judges the case, whose job has gone on.
    result = trial.end()
    assert (result.status, result.verdicts) == (0, {CASE: "passed"}), result.out


def test_a_session_killed_after_a_run_goes_on_with_it_and_submits_the_next_one_once(
    lab: SlurmLab, make_trial: MakeTrial
) -> None:
    """Near the limit three runs decide: the slowest pace that passes is 1.0526 times the published one."""
    large = "llama3/70b-fp8-512gpus"
    quick = {"launch_minutes": "0.5", "ssh": login(lab, ", connect_seconds: 5, command_seconds: 10")}
    trial = make_trial(case=large, keys=quick, pace=1.05, noise=0.01)
    trial.start("--repeat-undecided")
    ledger = trial.results / "latest" / JOBS_LOG
    until(ledger.exists, "the run has begun")
    opened = Ledger(ledger.resolve())
    until(lambda: opened.earlier(large) != (), "the first run's end")
    # The next job is submitted.
    time.sleep(1)
    trial.kill()
    result = trial.resume("--repeat-undecided")
    case = result.case(large)
    assert case["verdict"] == "passed", result.out
    # Each job is there once, in the record and in its folder.
    assert len(trial.jobs()) == 3, result.out
    assert {job["failure"] for job in case["earlier_jobs"]} == {"repeated"}
    ids = [*(job["id"] for job in case["earlier_jobs"]), case["job"]["id"]]
    assert [run["id"] for run in case["runs"]] == ids
    for number in (1, 2):
        log = (result.folder / large / f"try-{number}" / "log.txt").read_text()
        # Another rank may write into the midst of this word.
        assert 48 <= log.count("train_step_timing") <= 50


# Killed before that, on another clock, beside others


@pytest.mark.promise("no leaked job: recorded before it is submitted")
@pytest.mark.parametrize(
    ("tool", "after"),
    [("scontrol", False), ("sbatch", False), ("sbatch", True)],
    ids=["checking", "before sbatch", "behind sbatch"],
)
def test_a_session_killed_before_it_knew_of_a_job(make_trial: MakeTrial, tool: str, after: bool) -> None:
    trial = make_trial()
    gate = trial.gate(tool, after=after).shut()
    trial.start()
    gate.until_somebody_waits()
    trial.kill()
    # The launcher is cut off, but goes on.
    trial.start("--resume", "latest")
    until(trial.owned, "the run has an owner again")
    gate.open()
    trial.passed()


def test_a_session_killed_while_its_job_waits(lab: SlurmLab, make_trial: MakeTrial) -> None:
    lab.set_node("gpu[001-256]", "drain")
    trial = make_trial().start()
    trial.job("PENDING")
    trial.kill()
    lab.mend()
    trial.start("--resume", "latest").passed()


def test_a_session_killed_while_its_set_up_waits(lab: SlurmLab, make_trial: MakeTrial) -> None:
    lab.set_node("gpu[001-256]", "drain")
    trial = make_trial(provisioned=False).start("--provision")
    waiting = trial.job("PENDING")
    assert waiting.name.endswith("llama3-setup")
    trial.kill()
    lab.mend()
    result = trial.resume("--provision")
    assert result.verdicts == {CASE: "passed"}, result.out
    assert "waiting for the set-up that this run left under way" in result.out
    # The set-up that was there, and the case.
    assert [job.id == waiting.id for job in trial.jobs()] == [True, False]


def test_a_session_killed_while_a_log_settles(make_trial: MakeTrial) -> None:
    trial = make_trial(limits=", log_settle_seconds: 300").hold(10).start()
    trial.until_steps(5)
    behind = Behind(trial.log())
    trial.let_go()
    until(lambda: trial.living() == [], "the job's end")
    trial.kill()
    behind.show()
    trial.start("--resume", "latest").passed()


def skewed(folder: Path, seconds: int) -> dict[str, str]:
    """The environment of a session whose wall clock is off by so much."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(
        f"import time\nright = time.time\ntime.time = lambda: right() + {seconds}\n"
    )
    return {"PYTHONPATH": str(folder)}


@pytest.mark.parametrize("seconds", [DAY, -DAY], ids=["a day ahead", "a day behind"])
def test_a_clock_that_is_wrong_changes_no_verdict(
    make_trial: MakeTrial, tmp_path: Path, seconds: int
) -> None:
    trial = make_trial(real_step=0.07).start(env=skewed(tmp_path / "clock", seconds))
    trial.until_steps(3)
    trial.kill()
    # And it is set right while nobody looks.
    trial.start("--resume", "latest").passed()


def test_two_sessions_on_one_site_do_not_touch_each_other(make_trial: MakeTrial) -> None:
    one, other = make_trial("one", hang_at=5), make_trial("other", real_step=0.1)
    one.start()
    other.start()
    one.until_steps(5)
    other.until_steps(5)
    one.signal(signal.SIGINT)
    cancelled, passed = one.end(), other.end()
    assert cancelled.verdicts == {CASE: "infrastructure"}
    assert passed.verdicts == {CASE: "passed"}, passed.out
    assert [job.state for job in (*one.jobs(), *other.jobs())] == ["CANCELLED", "COMPLETED"]


def test_a_launch_in_the_second_of_another_is_launched_again(make_trial: MakeTrial) -> None:
    """As of a session that launches the same case on the same stage in each second, until this one has noticed it."""
    trial = make_trial()
    name = "pretrain_llama3.1_8b_bf16_8"
    folder = trial.stage.path / "experiments" / name

    def noticed() -> bool:
        assert trial.process is not None
        if "another launch began in the same second: launching it again" in trial.process.said():
            return True
        for ahead in range(60):
            (folder / f"{name}_{int(time.time()) + ahead}").mkdir(parents=True, exist_ok=True)
        return False

    trial.start()
    until(noticed, "a launch that failed")
    for taken in folder.iterdir():
        # This one's own folder has something in it.
        with contextlib.suppress(OSError):
            taken.rmdir()
    trial.passed()


@pytest.mark.parametrize(
    ("knobs", "verdict"),
    [({}, "passed"), ({"crash_at": 3}, "infrastructure"), ({"hang_at": 5}, "infrastructure")],
    ids=["passes", "dies", "Ctrl-C"],
)
def test_no_secret_is_left_behind(make_trial: MakeTrial, knobs: dict[str, Any], verdict: str) -> None:
    """Every session of these tests must show the token nowhere; this one's job prints it, and it is told to say all."""
    trial = make_trial(leak=True, **knobs)
    trial.start("-vv", "--showlocals", "--tb=long", "--log-cli-level=DEBUG", env=OTHERS)
    if "hang_at" in knobs:
        trial.until_steps(5)
        trial.signal(signal.SIGINT)
    result = trial.end()
    assert result.verdicts == {CASE: verdict}, result.out
    written = {path: path.read_bytes() for path in result.folder.rglob("*") if path.is_file()}
    # Another rank may write into the midst of it.
    stars = b"*" * (len(TOKEN) // 2 + 1)
    assert stars in written[result.folder / CASE / "log.txt"]
    stage = {path: path.read_bytes() for path in trial.stage.path.rglob("*") if path.is_file()}
    for secret in OTHERS.values():
        assert secret not in result.out
        assert [path for path, data in {**written, **stage}.items() if secret.encode() in data] == []
    # Upstream's own traces: the job's output under `set -x`, and what the job itself prints.
    traced = [path.name for path, data in stage.items() if TOKEN.encode() in data]
    assert [name for name in traced if not name.startswith(("sbatch_", "log-"))] == []


@pytest.mark.parametrize("end", ["Ctrl-C", "kill -9"])
def test_options_of_the_login_shell_hide_no_job_and_keep_none_from_being_cancelled(
    make_trial: MakeTrial, tmp_path: Path, end: str
) -> None:
    words = f'"export PATH={tmp_path / "bin"}:$PATH {FILTERS}"'
    trial = make_trial(hang_at=5, keys={"prologue": words, "launch_minutes": "0.5"})
    gate = trial.gate("sbatch", after=True)
    # As while nobody can look up the names of users.
    (trial.tools / "id").write_text("#!/bin/sh\nexit 1\n")
    (trial.tools / "id").chmod(0o755)
    if end == "Ctrl-C":
        trial.start().until_steps(5)
        trial.signal(signal.SIGINT)
        result = trial.end()
        assert "was cancelled" in result.case(CASE)["headline"]
        return
    # The session dies before its launcher has named the job.
    gate.shut()
    trial.start()
    job = trial.job()
    trial.kill()
    swept = trial.session("suites", "--sweep")
    gate.open()
    done = finish(swept, trial.results)
    assert (done.status, f"job {job.id} is over" in done.out) == (0, True), done.out
    assert trial.living() == []
