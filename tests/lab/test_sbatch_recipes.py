"""The stand-ins of the recipes that sbatch launches have the traps of the originals; run by hand, they spring."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

from tests.lab.slurm import SlurmLab
from tests.lab.stage import Stage
from tests.system.support import until


def submit(lab: SlurmLab, stage: Stage, nodes: int, **variables: str) -> int:
    """The README's command line; the job's id."""
    environment = {**lab.environment, "STAGE_PATH": str(stage.path), "MODEL_SIZE": "340b", **variables}
    done = subprocess.run(
        ["sbatch", "--parsable", "--gres=gpu:8", "-N", str(nodes), str(stage.path / "launch.sh")],
        cwd=stage.path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout)


def end_of(lab: SlurmLab, *jobs: int) -> list[str]:
    """The last states of these jobs, once none is left."""
    until(lambda: not {job.id for job in lab.squeue()} & set(jobs), "the jobs ended")
    until(lambda: set(jobs) <= {job.id for job in lab.jobs_ever()}, "they are in the completion log")
    return [job.state for job in lab.jobs_ever() if job.id in jobs]


def test_jobs_of_the_recipes_own_name_wait_for_each_other(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    stage = slurm_lab.stage(tmp_path.name, recipe="nemotron4", hang_at=1)
    jobs = [submit(slurm_lab, stage, 16, DTYPE=dtype) for dtype in ("bf16", "fp8")]
    try:
        expected = {
            jobs[0]: ("nemotron", "RUNNING", "None"),
            jobs[1]: ("nemotron", "PENDING", "Dependency"),
        }

        def found() -> dict[int, tuple[str, str, str]]:
            return {job.id: (job.name, job.state, job.reason) for job in slurm_lab.squeue() if job.id in jobs}

        until(lambda: found() == expected, "one runs and one waits for it")
    finally:
        slurm_lab.run("scancel", *map(str, jobs))
    end_of(slurm_lab, *jobs)


def test_nemotron_draws_one_bar_over_itself(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    log = tmp_path / "log"
    stage = slurm_lab.stage(tmp_path.name, recipe="nemotron4", real_step=0.0, noise=0.0)
    job = submit(slurm_lab, stage, 256, DTYPE="fp8", SLURM_STDOUTMODE=str(log), SRUN_OUTPUT=str(log))
    assert end_of(slurm_lab, job) == ["COMPLETED"]
    # srun passes on 1024 bytes at a time of rank 0, whatever they cut, and the other ranks' lines in between.
    said = re.sub(rb"Initializing distributed: .*\n|gpu\d+:.* NCCL INFO .*\n", b"", log.read_bytes())
    text = said.decode(errors="replace")
    steps = re.findall(
        r"\rEpoch 0: : +(\d+)%\|[█ ]*\| (\d+)/50 \[[\d:]+<[\d:]+, reduced_train_loss=[\d.]+, global_step=([\d.]+), "
        r"consumed_samples=([\d.]+), train_step_timing in s=([\d.]+)\]",
        text,
    )
    assert steps[0] == ("2", "1", "0.000", "512.0", "17.50")
    assert steps[-1] == ("100", "50", "49.00", "25600.0", "3.490")


def test_maxtext_prints_a_profiling_run_and_every_rank(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    log = tmp_path / "log"
    stage = slurm_lab.stage(tmp_path.name, recipe="maxtext_llama2", nodes=4, real_step=0.0, noise=0.0)
    job = submit(slurm_lab, stage, 64, DTYPE="bf16", SLURM_STDOUTMODE=str(log), SRUN_OUTPUT=str(log))
    assert end_of(slurm_lab, job) == ["COMPLETED"]
    found = re.findall(
        r"^completed step: (\d+), seconds: ([\d.]+), .* total_weights: (\d+), loss: [\d.]+$",
        log.read_text(),
        re.MULTILINE,
    )
    assert Counter(int(step) for step, _, _ in found) == {i: (2 if i < 15 else 1) * 8 * 4 for i in range(50)}
    assert {tokens for _, _, tokens in found} == {str(1024 * 4096)}
    assert abs(float(found[-1][1]) - 7.091) < 0.002
    assert "dcn_FSDP=16 dcn_DP=4" in log.read_text()
