"""Logs and disks that go wrong underneath a run: full, late, cut, replaced, or somebody else's. For real."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.lab.stage import make_stage
from tests.system.faults import CASE, NEMOTRON, Behind, MakeTrial, small_disk
from tests.system.support import pacemark, until


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk"):
        yield tmp_path / "disk"


def fill(disk: Path) -> Path:
    """Take all that is left of it."""
    filler = disk / "filler"
    done = subprocess.run(
        ["dd", "if=/dev/zero", f"of={filler}", "bs=4k"], env={"LC_ALL": "C"}, capture_output=True, text=True
    )
    assert "No space left on device" in done.stderr
    return filler


def test_a_full_disk_of_results_cancels_the_job_and_says_so(disk: Path, make_trial: MakeTrial) -> None:
    # It does not end by itself.
    trial = make_trial(results=disk / "results", hang_at=40).hold(10).start()
    trial.until_steps(3)
    filler = fill(disk)
    trial.let_go()
    result = trial.end()
    assert result.case(CASE)["verdict"] == "infrastructure", result.out
    assert "the disk of the results folder is full" in result.case(CASE)["headline"]
    assert "Traceback" not in result.out
    assert [job.state for job in trial.jobs()] == ["CANCELLED"]
    filler.unlink()
    trial.stage.set(hang_at=-1)
    again = trial.resume()
    assert again.verdicts == {CASE: "passed"}, again.out


def test_a_full_disk_of_results_before_anything_runs_submits_nothing(
    disk: Path, make_trial: MakeTrial
) -> None:
    trial = make_trial(results=disk / "results")
    fill(disk)
    result = trial.start().end()
    assert result.status != 0
    assert re.search(r"ERROR: the run cannot be recorded in .*full", result.out), result.out
    assert "Traceback" not in result.out
    # Nor is what it left behind in the way of those who look for other runs.
    swept = pacemark("suites", "--sweep", "--site", str(trial.site), results=disk / "results")
    assert swept.status == 0, swept.out
    assert "no dead run in" in swept.out


def test_a_stage_that_is_full_before_the_launch_is_infrastructure(disk: Path, make_trial: MakeTrial) -> None:
    trial = make_trial(stage=make_stage(disk / "stage", "llama3", provisioned=True))
    fill(disk)
    result = trial.start().end()
    assert result.case(CASE)["verdict"] == "infrastructure"
    assert "No space left on device" in result.case(CASE)["headline"]
    assert trial.jobs() == []


def test_a_stage_that_fills_up_is_named(disk: Path, make_trial: MakeTrial) -> None:
    trial = make_trial(stage=make_stage(disk / "stage", "llama3", provisioned=True)).hold(10).start()
    trial.until_steps(3)
    fill(disk)
    trial.let_go()
    result = trial.end()
    case = result.case(CASE)
    assert case["verdict"] == "infrastructure", result.out
    assert re.search(r"but steps \d+ to 49 are missing: ", case["headline"])
    assert "the disk of its log is full: No space left on device in /" in case["headline"]


def test_a_stage_that_was_full_for_a_while_is_named(disk: Path, make_trial: MakeTrial) -> None:
    """The lines of that time are lost, and there is room again before the job ends."""
    # By this pace a step is late after 7 s, and the job hangs only after 300.
    stage = make_stage(disk / "stage", "llama3", provisioned=True, pace=0.2, hang_at=48)
    trial = make_trial(stage=stage).hold(10).start()
    trial.until_steps(5)
    filler = fill(disk)
    trial.let_go()
    trial.until_said("the disk of its log is full")
    filler.unlink()
    trial.lab.run("scancel", str(trial.job().id))
    case = trial.end().case(CASE)
    assert case["verdict"] == "infrastructure"
    assert re.search(r"the disk of its log is full: .*, at \d\d:\d\d:\d\d", case["headline"])


def test_a_stage_that_was_full_while_nobody_looked_is_a_remark(disk: Path, make_trial: MakeTrial) -> None:
    """srun writes no more into a log once a write to it has failed. Its job completes."""
    stage = make_stage(disk / "stage", "llama3", provisioned=True, real_step=0.05)
    trial = make_trial(stage=stage).hold(10)
    gate = trial.gate("squeue")
    trial.start().until_steps(5)
    gate.shut()
    filler = fill(disk)
    trial.let_go()
    until(lambda: trial.living() == [], "the job's end")
    filler.unlink()
    gate.open()
    case = trial.end().case(CASE)
    assert case["verdict"] != "passed"
    assert "if the disk of its log was full for a moment, srun wrote no more into it" in case["remarks"]


def test_a_log_that_is_whole_only_after_the_jobs_end_is_waited_for(make_trial: MakeTrial) -> None:
    trial = make_trial(limits=", log_settle_seconds: 300").hold(10).start()
    behind = Behind(trial.log())
    trial.let_go()
    until(lambda: trial.living() == [], "the job's end")
    for part in (0.6, 0.8):
        behind.show(part)
        shown = behind.shown.stat().st_size
        until(partial(trial.has_read, shown), "the session has read it")
    behind.show()
    result = trial.end()
    assert result.verdicts == {CASE: "passed"}, result.out


def test_a_log_that_nobody_can_read_now_is_read_by_the_next_session(make_trial: MakeTrial) -> None:
    trial = make_trial(limits=", unreachable_minutes: 0.02").hold(10).start()
    trial.until_steps(5)
    log = trial.log()
    real = log.rename(log.with_name("real"))
    log.symlink_to(real)
    trial.until_said("its log cannot be read, will go on trying")
    trial.let_go()
    result = trial.end()
    headline = result.case(CASE)["headline"]
    assert result.verdicts == {CASE: "lost"}
    assert "ended COMPLETED, but its log could not be read for 0.02 minutes" in headline
    assert "is a symbolic link, which is not read" in headline
    assert [job.state for job in trial.jobs()] == ["COMPLETED"]
    log.unlink()
    real.rename(log)
    trial.start("--resume", "latest").passed()


@pytest.mark.parametrize("grows", [False, True], ids=["shorter", "shorter, then longer"])
def test_a_log_that_is_replaced_underway_is_no_evidence(make_trial: MakeTrial, grows: bool) -> None:
    trial = make_trial().hold(20).start()
    trial.until_steps(10)
    log = trial.log()
    behind = Behind(log)
    behind.show(0.1)
    trial.let_go()
    if grows:
        until(lambda: trial.living() == [], "the job's end")
        lines = behind.real.read_bytes().splitlines(keepends=True)
        # Longer than all that the session can have read of it.
        log.write_bytes(b"".join(lines[:3] + lines[-30:]) * 4)
    result = trial.end()
    case = result.case(CASE)
    # What stands on the cluster now is no whole run.
    assert case["verdict"] == "infrastructure", result.out
    assert "its log was cut or replaced: " in case["headline"]


@pytest.mark.parametrize("case", [CASE, NEMOTRON])
def test_logs_of_other_jobs_in_the_same_folder_are_left_alone(make_trial: MakeTrial, case: str) -> None:
    trial = make_trial(case=case).hold(10).start()
    log, job = trial.log(), str(trial.job().id)
    other = log.with_name(log.name.replace(trial.run, "20200101-000000-0000"))
    names = {
        log.name.replace(job, f"1{job}"),
        log.name.replace(job, f"{job}1"),
        f"{log.name}.old",
        f"old-{log.name}.gz",
        *([other.name] if other != log else [f"log-x_{job}_0_9.out", f"log-x_1{job}_{job}.out"]),
    }
    for name in names:
        # Whole, and far too slow.
        log.with_name(name).write_text("global_step: 1 | train_step_timing in s: 999.0\n" * 50)
    trial.let_go()
    result = trial.end()
    assert result.verdicts == {case: "passed"}, result.out
    assert b"999.0" not in (result.folder / case / "log.txt").read_bytes()


def test_a_hole_in_a_log_holds_up_nothing(make_trial: MakeTrial) -> None:
    """As a disk that was full for a while leaves it. Its node goes on behind the hole."""
    trial = make_trial().hold(10).start()
    trial.until_steps(3)
    log = trial.log()
    os.truncate(log, log.stat().st_size + (1 << 28))
    trial.let_go()
    result = trial.end()
    assert result.verdicts == {CASE: "passed"}, result.out
    assert (result.folder / CASE / "log.txt").stat().st_size < 1 << 20
