"""dgxc-benchmarking 26.06.01 on a real Slurm: upstream's launch.sh and setup_experiment.py, as published.

Stand-ins are NeMo-Run, the container, and what trains in it (tests/lab/recipe_dgxc).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.slurm import SlurmLab
from tests.lab.stage import Stage
from tests.system.support import Run, pacemark, site_file

LLAMA = ("llama3", "70b-fp8_cs-64gpus", "h100")
NEMOTRON = ("nemotron3", "30b-mxfp8-8gpus", "b200")
QWEN = ("qwen3", "30b-bf16-16gpus", "h100")


def judge(
    lab: SlurmLab, stage: Stage, folder: Path, which: tuple[str, str, str], *options: str, **keys: str
) -> Run:
    recipe, case_id, gpu = which
    site = site_file(lab, stage, folder, gpu=gpu, release='"26.06.01"', **keys)
    select = (f"suites/{recipe}", "-k", case_id)
    return pacemark(*select, "--site", str(site), *options, results=folder / "results")


@pytest.mark.parametrize(("which", "tflops"), [(LLAMA, 731), (NEMOTRON, 726)])
def test_a_case_passes_at_the_published_pace(
    slurm_lab: SlurmLab, tmp_path: Path, which: tuple[str, str, str], tflops: int
) -> None:
    stage = slurm_lab.stage(tmp_path.name, recipe="dgxc")
    result = judge(slurm_lab, stage, tmp_path, which)
    assert result.status == 0, result.out
    case = result.case(f"{which[0]}/{which[1]}")
    assert (case["verdict"], case["release"], case["job"]["attempts"]) == ("passed", "26.06.01", 1)
    assert case["expected"]["gpu"] == which[2]
    (log,) = stage.path.glob("workloads/*/experiments/*/*/*/log-*.out")
    assert "MODEL_TFLOP/s/GPU" in log.read_text()
    assert case["mfu"] == pytest.approx(case["expected"]["mfu"], rel=0.01)
    # 64 or 8 GPUs are 8 nodes or one.
    assert slurm_lab.jobs_ever()[-1].nodes == int(which[1].rpartition("-")[2].removesuffix("gpus")) // 8


def test_a_case_without_a_number_says_why_none_was_published(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    stage = slurm_lab.stage(tmp_path.name, recipe="dgxc")
    result = judge(slurm_lab, stage, tmp_path, QWEN)
    assert result.verdicts == {"qwen3/30b-bf16-16gpus": "no baseline"}, result.out
    reason = "of release 26.06.01 on h100 (no figure in this precision; published: fp8_cs on 16 GPUs)"
    assert reason in result.out


def test_an_installation_that_lacks_something_is_told_with_what_mends_it(
    slurm_lab: SlurmLab, tmp_path: Path
) -> None:
    before = slurm_lab.jobs_ever()
    stage = slurm_lab.stage(tmp_path.name, recipe="dgxc")
    stage.image.unlink()
    bridge = stage.path / "workloads" / "pretrain_llama3.1" / "Megatron-Bridge"
    (bridge / ".git" / "HEAD").write_text("67f987df03b8355b03192d88d70f1709fedf51a0\n")
    result = judge(slurm_lab, stage, tmp_path, LLAMA, gpus_per_node="4")
    assert result.verdicts == {"llama3/70b-fp8_cs-64gpus": "infrastructure"}, result.out
    assert f"the container image {stage.image} is missing" in result.out
    assert f"enroot import -o {stage.image} docker://nvcr.io#nvidia/nemo:26.04.01" in result.out
    assert "Megatron-Bridge at the commit of this release is missing" in result.out
    assert f"git -C {bridge} checkout 06f25c227ef9d3d9b22e5561fb9f46e1cbdab7e2" in result.out
    assert "a site whose `gpus_per_node` (4) is what launch.sh takes for h100" in result.out
    assert slurm_lab.jobs_ever() == before


def test_another_configuration_than_the_releases_is_an_invalid_run(
    slurm_lab: SlurmLab, tmp_path: Path
) -> None:
    """Somebody changed upstream's table without changing the commit."""
    stage = slurm_lab.stage(tmp_path.name, recipe="dgxc")
    bridge = stage.path / "workloads" / "pretrain_llama3.1" / "Megatron-Bridge"
    (table,) = bridge.glob("scripts/performance/configs/llama/llama3_workload_base_configs.py")
    head, name, rest = table.read_text().partition("LLAMA3_70B_PRETRAIN_CONFIG_H100_FP8_CS_V2 = ")
    changed = rest.replace("pipeline_model_parallel_size=8", "pipeline_model_parallel_size=4", 1)
    table.write_text(head + name + changed)
    result = judge(slurm_lab, stage, tmp_path, LLAMA)
    case = result.case("llama3/70b-fp8_cs-64gpus")
    assert case["verdict"] == "invalid run", result.out
    assert "pipeline_model_parallel_size: 4" in result.out


def test_variables_of_the_users_profile_change_nothing(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    stage = slurm_lab.stage(tmp_path.name, recipe="dgxc")
    profile = '"export TP=1 CONFIG_VARIANT=v1 CONFIG_OVERRIDES=--use_tokendrop=true ENABLE_PROFILE=true FP8_RECIPE=cs DTYPE=bf16"'
    result = judge(slurm_lab, stage, tmp_path, NEMOTRON, prologue=profile)
    assert result.verdicts == {"nemotron3/30b-mxfp8-8gpus": "passed"}, result.out


def test_a_rank_that_dies_ends_its_job_and_its_words_are_shown(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    stage = slurm_lab.stage(tmp_path.name, recipe="dgxc", dead_at=3)
    result = judge(slurm_lab, stage, tmp_path, LLAMA)
    assert result.case("llama3/70b-fp8_cs-64gpus")["verdict"] == "infrastructure", result.out
    assert "task 11: Exited with exit code 1" in result.out
