"""The session itself: killed at any stage of a case's life, on a clock that is wrong, beside another, with secrets."""

from __future__ import annotations

import contextlib
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.lab.slurm import SlurmLab
from tests.system.faults import CASE, Behind, MakeTrial
from tests.system.support import TOKEN, finish, signal_group, until

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
    result = trial.end()
    assert result.verdicts == {CASE: "passed"}, result.out
    assert len(trial.jobs()) == 1


def test_a_session_killed_while_its_job_waits(lab: SlurmLab, make_trial: MakeTrial) -> None:
    lab.set_node("gpu[001-256]", "drain")
    trial = make_trial().start()
    trial.job("PENDING")
    trial.kill()
    lab.mend()
    result = trial.resume()
    assert result.verdicts == {CASE: "passed"}, result.out
    assert len(trial.jobs()) == 1


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
    result = trial.resume()
    assert result.verdicts == {CASE: "passed"}, result.out
    assert len(trial.jobs()) == 1


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
    result = trial.resume()
    assert result.verdicts == {CASE: "passed"}, result.out
    assert len(trial.jobs()) == 1


def test_two_sessions_on_one_site_do_not_touch_each_other(make_trial: MakeTrial) -> None:
    one, other = make_trial("one", hang_at=5), make_trial("other", real_step=0.1)
    one.start()
    other.start()
    one.until_steps(5)
    other.until_steps(5)
    assert one.process is not None
    signal_group(one.process, signal.SIGINT)
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
    result = trial.end()
    assert result.verdicts == {CASE: "passed"}, result.out
    assert len(trial.jobs()) == 1


@pytest.mark.parametrize(
    ("knobs", "verdict"),
    [({}, "passed"), ({"crash_at": 3}, "infrastructure"), ({"hang_at": 5}, "infrastructure")],
    ids=["passes", "dies", "Ctrl-C"],
)
def test_no_secret_is_left_behind(make_trial: MakeTrial, knobs: dict[str, Any], verdict: str) -> None:
    """Every session of these tests must show the token nowhere; this one's job prints it, and it is told to say all."""
    trial = make_trial(leak=True, **knobs)
    trial.start("-vv", "--showlocals", "--tb=long", "--log-cli-level=DEBUG", env=OTHERS)
    assert trial.process is not None
    if "hang_at" in knobs:
        trial.until_steps(5)
        signal_group(trial.process, signal.SIGINT)
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
        assert trial.process is not None
        signal_group(trial.process, signal.SIGINT)
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
