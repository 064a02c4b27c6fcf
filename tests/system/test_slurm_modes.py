"""The recipes' other modes on a real Slurm cluster: judged by what they leave there, which is removed whatever happens."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.lab.slurm import SlurmLab
from tests.lab.stage import Stage
from tests.system.faults import MakeTrial, Trial, small_disk
from tests.system.support import until

PROFILE = "llama3/8b-profile-bf16-8gpus"
TRACE = "llama3/8b-nccl-trace-bf16-16gpus"
PGLE = "maxtext_llama2/70b-profile-bf16-64gpus"


def test_the_profiles_of_a_job_are_found_and_nothing_is_left_of_the_search(make_trial: MakeTrial) -> None:
    trial = make_trial(case=PROFILE, pace=3.0)
    result = trial.start("--variant", "profile").end()
    case = result.case(PROFILE)
    assert case["verdict"] == "passed", result.out
    assert [file["size"] > 0 for file in case["artefacts"]["files"]] == [True] * 8
    assert "8 profiles of this job" in case["headline"]
    assert case["step_time"] is None
    # One job: the profile's, without the timed run.
    assert len(trial.jobs()) == 1
    assert re.search(
        r"to fetch them: scp -r \S+:/\S+/pretrain_llama3.1_8b_bf16_8_nsys/nsys_profile \.", result.out
    )
    assert list(trial.stage.path.glob(".pacemark*")) == []


def test_a_report_of_an_earlier_job_is_none_of_this_job(make_trial: MakeTrial) -> None:
    before = make_trial("before", case=PGLE)
    assert before.start("--variant", "profile").end().verdicts == {PGLE: "passed"}
    before.stage.set(profiles=False)
    trial = make_trial("now", case=PGLE, stage=before.stage, limits=", log_settle_seconds: 3")
    result = trial.start("--variant", "profile").end()
    assert result.verdicts == {PGLE: "invalid run"}, result.out
    assert "there is no profile prof and no profile perf of this job" in result.case(PGLE)["headline"]
    assert "are from before this job" in result.case(PGLE)["headline"]


def test_a_trace_is_digested_where_it_lies(make_trial: MakeTrial) -> None:
    trial = make_trial(case=TRACE, keys={"network": "IB/GDRDMA"})
    result = trial.start("--variant", "nccl-trace").end()
    case = result.case(TRACE)
    assert case["verdict"] == "passed", result.out
    # Other ranks' output may tear some lines.
    assert re.search(r"16 ranks on 2 hosts made (400|3[5-9]\d) NCCL calls, network IB", case["headline"])
    assert len(trial.jobs()) == 1
    assert list(trial.stage.path.glob(".pacemark*")) == []


def test_of_a_large_trace_little_is_sent(lab: SlurmLab, make_trial: MakeTrial) -> None:
    sshd = lab.root / "log" / "sshd.out"
    before = sshd.stat().st_size
    # 70 MB. Reading it takes its time on a busy machine.
    trial = make_trial(case=TRACE, trace_calls=2000, limits=", stall_seconds: 300")
    result = trial.start("--variant", "nccl-trace").end()
    assert result.verdicts == {TRACE: "passed"}, result.out
    (log,) = trial.stage.path.rglob("log-*_nccltrace_*.out")
    assert log.stat().st_size > 5 * 10**7
    log.unlink()
    until(lambda: b"Transferred: sent" in sshd.read_bytes()[before:], "the end of the connection")
    told = re.findall(rb"Transferred: sent (\d+), received (\d+)", sshd.read_bytes()[before:])
    assert 0 < sum(int(sent) + int(received) for sent, received in told) < 5 * 10**6


SAVE = "llama3/8b-checkpoint-bf16-16gpus"
LOAD = "llama3/8b-checkpoint-load-bf16-16gpus"
SIZES = ("8b-checkpoint", "8b-checkpoint-load")
BOTH = " or ".join(f'case(size="{size}", dtype="bf16", gpus=16)' for size in SIZES)
TREE = "experiments/*/*/*/code/nemo_experiments/default/checkpoints/default--*"
"""Where the job leaves it, below the stage."""


def make(make_trial: MakeTrial, *, room: int | None = 2**40, **knobs: Any) -> Trial:
    """A trial of both cases. Nothing is really written, so the login node says how much room there is."""
    trial = make_trial(case=SAVE, limits=", log_settle_seconds: 1", real_step=0.005, **knobs)
    if room is not None:
        trial.tools.mkdir(exist_ok=True)
        (trial.tools / "df").write_text(f"#!/bin/sh\necho Avail; echo {room}\n")
        (trial.tools / "df").chmod(0o755)
    return trial


def start(trial: Trial, *more: str) -> Trial:
    return trial.start("--variant", "checkpoint", "-m", BOTH, *more)


def left(stage: Stage) -> list[Path]:
    return list(stage.path.glob(TREE))


def test_a_run_killed_behind_its_save_goes_on_with_the_load_and_removes_the_checkpoint(
    make_trial: MakeTrial,
) -> None:
    trial = make(make_trial).hold(10)
    gate = trial.gate("sbatch")
    start(trial)
    until(lambda: any(job.state == "RUNNING" for job in trial.living()), "the save")
    gate.shut()
    trial.let_go()
    gate.until_somebody_waits()
    trial.kill()
    gate.open()
    result = start(trial, "--resume", "latest").end()
    assert result.verdicts == {SAVE: "passed", LOAD: "passed"}, result.out
    # The slowest rank's time, and the size of the 32 files that 16 ranks wrote.
    saved = result.case(SAVE)["checkpoint"]
    assert (saved["seconds"], saved["files"]) == (5.112, 32)
    assert saved["bytes"] == pytest.approx(105 * 2**30, rel=1e-6)
    headline = result.case(LOAD)["headline"]
    assert "113 GB loaded in 10.0 s, 11.3 GB/s; its loss of 11.97 continues 11.97" in headline
    assert left(trial.stage) == []
    assert "its checkpoint in /" in result.out
    assert list(trial.stage.path.glob(".pacemark*")) == []


def test_a_save_on_a_disk_that_fills_up_says_so_skips_the_load_and_leaves_nothing(
    make_trial: MakeTrial,
) -> None:
    trial = make(make_trial, saved="real")
    df = trial.tools / "df"
    df.write_text(
        df.read_text().replace("\n", '\ncase "$*" in */experiments/*) exec /bin/df "$@";; esac\n', 1)
    )
    with small_disk(trial.stage.path / "experiments"):
        result = start(trial).end()
        assert left(trial.stage) == []
    assert result.verdicts == {SAVE: "infrastructure", LOAD: "skipped"}, result.out
    assert "is full: " in result.case(SAVE)["headline"]
    assert "8b-checkpoint-bf16-16gpus saved nothing that can be loaded" in result.case(LOAD)["headline"]
    assert re.search(r"1 skipped,.* 1 error", result.out)
    assert len(trial.jobs()) == 1


def test_after_a_kill_the_next_sweep_removes_it(make_trial: MakeTrial) -> None:
    trial = make(make_trial).hold(10)
    gate = trial.gate("sbatch")
    start(trial)
    until(lambda: any(job.state == "RUNNING" for job in trial.living()), "the save")
    # The load, behind which the session removes the checkpoint itself, has to wait.
    gate.shut()
    trial.let_go()
    until(lambda: bool(left(trial.stage)), "a checkpoint")
    trial.kill()
    gate.open()
    assert "its checkpoint in /" in trial.house("--sweep").out
    assert left(trial.stage) == []
    assert "no dead run in" in trial.house("--sweep").out
