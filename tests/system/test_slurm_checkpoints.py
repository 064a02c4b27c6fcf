"""Checkpoints on a real Slurm cluster: saved, loaded, judged by their files, and removed whatever happens."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.stage import Stage
from tests.system.faults import MakeTrial, Trial
from tests.system.support import pacemark, until

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


def sweep(trial: Trial) -> str:
    return pacemark("suites", "--site", str(trial.site), "--sweep", results=trial.results).out


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


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A file system of 12 MB at this place."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "pacemark-lab", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


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
    assert "its checkpoint in /" in sweep(trial)
    assert left(trial.stage) == []
    assert "no dead run in" in sweep(trial)
