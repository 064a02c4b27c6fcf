"""The published recipes on a real Slurm cluster: submitted, followed, read, and judged in words that can be acted on."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest

from tests.lab.slurm import SlurmLab
from tests.lab.stage import Stage
from tests.system.support import CASE, SELECT, TOKEN, Run, finish, on_slurm, pacemark, site_file, start, until

SMALLEST = {"nemotron4": "340b-bf16-128gpus", "maxtext_llama2": "70b-bf16-64gpus"}
PUBLISHED = {"nemotron4": (4.61, 28432, 55.38), "maxtext_llama2": (6.999, 74909, 52.59)}


def select(recipe: str) -> tuple[str, ...]:
    return (f"suites/{recipe}", "-k", SMALLEST[recipe])


@pytest.mark.parametrize("recipe", list(SMALLEST))
def test_the_smallest_case_passes_at_the_published_pace(
    slurm_lab: SlurmLab, tmp_path: Path, recipe: str
) -> None:
    # All 128 or 64 tasks.
    result = on_slurm(slurm_lab, tmp_path, *select(recipe), recipe=recipe, nodes=16)
    assert result.status == 0, result.out
    case = result.case(f"{recipe}/{SMALLEST[recipe]}")
    found = (case["step_time"], case["tokens_per_second"], case["mfu"])
    assert found == pytest.approx(PUBLISHED[recipe], rel=0.02)
    assert (case["verdict"], case["job"]["attempts"]) == ("passed", 1)


@pytest.mark.promise("no wrong pass: the global batch size")
@pytest.mark.parametrize("recipe", list(SMALLEST))
def test_another_batch_size_is_an_invalid_run(slurm_lab: SlurmLab, tmp_path: Path, recipe: str) -> None:
    result = on_slurm(slurm_lab, tmp_path, *select(recipe), recipe=recipe, gbs=16)
    assert result.case(f"{recipe}/{SMALLEST[recipe]}")["verdict"] == "invalid run", result.out


def test_four_cases_of_a_recipe_run_at_once_in_spite_of_singleton(
    slurm_lab: SlurmLab, tmp_path: Path
) -> None:
    stage = slurm_lab.stage(tmp_path.name, recipe="nemotron4")
    stage.hold(10)
    site = site_file(slurm_lab, stage, tmp_path)
    process = start(
        "suites/nemotron4", "-m", "case(gpus=128)", "--site", str(site), results=tmp_path / "results"
    )
    until(
        lambda: len([job for job in slurm_lab.squeue() if job.state == "RUNNING"]) == 4, "four jobs at once"
    )
    stage.let_go()
    result = finish(process, tmp_path / "results")
    assert result.status == 0, result.out
    assert set(result.verdicts.values()) == {"passed"}


def test_two_recipes_share_a_session_and_a_site_and_set_themselves_up(
    slurm_lab: SlurmLab, tmp_path: Path
) -> None:
    before = {job.id for job in slurm_lab.jobs_ever()}
    stages = [slurm_lab.stage(tmp_path.name, recipe=recipe, provisioned=False) for recipe in SMALLEST]
    for stage in stages:
        stage.hold(10)
    site = site_file(slurm_lab, stages[0], tmp_path)
    process = start(
        *(f"suites/{recipe}" for recipe in SMALLEST), "-k", " or ".join(SMALLEST.values()), "--provision",
        "--site", str(site), results=tmp_path / "results",
    )  # fmt: skip
    cases = {f"{recipe}-{case}" for recipe, case in SMALLEST.items()}

    def running() -> set[str]:
        return {job.name.rpartition(".")[2] for job in slurm_lab.squeue() if job.state == "RUNNING"}

    until(lambda: running() == cases, "both cases at once")
    for job in slurm_lab.squeue():
        assert re.search(
            "Requeue=0.* TimeLimit=00:30:00", slurm_lab.ask("scontrol", "-o", "show", "job", str(job.id))
        )
    for stage in stages:
        stage.let_go()
    result = finish(process, tmp_path / "results")
    assert result.status == 0, result.out
    assert set(result.verdicts.values()) == {"passed"}
    setups = {job.name.rpartition(".")[2] for job in slurm_lab.jobs_ever() if job.id not in before}
    assert {f"{recipe}-setup" for recipe in SMALLEST} <= setups


def test_a_launcher_of_another_recipe_or_release_is_not_run(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    stage = slurm_lab.stage(tmp_path.name, recipe="nemotron4")
    launcher = stage.path / "launch.sh"
    launcher.write_text(launcher.read_text().replace("GSW_VERSION=24.11", "GSW_VERSION=25.01"))
    site = site_file(slurm_lab, stage, tmp_path)
    result = pacemark(*select("nemotron4"), "--site", str(site), results=tmp_path / "results")
    assert result.verdicts == {"nemotron4/340b-bf16-128gpus": "infrastructure"}
    assert "the launcher of release 24.11, for which the numbers hold, in the stage is missing" in result.out


def test_null_gpus_a_node_in_the_users_profile_do_no_harm(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    profile = {"prologue": '"export SLURM_GPUS_PER_NODE=null ENABLE_PROFILE=true SRUN_OUTPUT=/dev/null"'}
    bare: dict[str, Any] = {"recipe": "nemotron4", "provisioned": False}
    result = on_slurm(slurm_lab, tmp_path, *select("nemotron4"), "--provision", keys=profile, **bare)
    assert set(result.verdicts.values()) == {"passed"}, result.out


def test_a_job_that_died_shows_what_srun_said_and_no_secret(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    stage = slurm_lab.stage(tmp_path.name, nodes=16, dead_at=3, vboost_fails=True)
    site = site_file(slurm_lab, stage, tmp_path)
    result = pacemark(*SELECT, "--site", str(site), results=tmp_path / "results")
    # Not of the step before it, on another node.
    nodes = slurm_lab.run("scontrol", "show", "hostnames", result.case()["job"]["nodes"]).split()
    assert re.findall(r"its error \| (.*): (.*)", result.out) == [
        (f"srun: error: {nodes[1]}: task 11", "Exited with exit code 1")
    ]
    kept = [path for path in result.folder.rglob("*") if path.is_file()]
    assert any(path.name == "errors.txt" for path in kept)
    assert [path for path in kept if TOKEN.encode() in path.read_bytes()] == []
    (batch,) = stage.path.glob("experiments/*/*/*/sbatch_*.out")
    assert "task 0: Exited with exit code 127" in batch.read_text()


@pytest.mark.parametrize("recipe", list(SMALLEST))
def test_a_rank_that_dies_ends_its_job_at_once_and_its_node_is_kept_out(
    slurm_lab: SlurmLab, tmp_path: Path, recipe: str
) -> None:
    # The others wait for it. Nobody gives it up: the bound is ten minutes.
    options = (*select(recipe), "--retry-infrastructure", "1", "--exclude-failed-nodes")
    result = on_slurm(slurm_lab, tmp_path, *options, recipe=recipe, nodes=16, dead_at=1)
    case = result.case(f"{recipe}/{SMALLEST[recipe]}")
    assert case["verdict"] == "infrastructure", result.out
    assert "its error | RuntimeError: CUDA error: uncorrectable ECC error encountered" in result.out
    # The tasks that srun ended are not shown: maxtext's have a shell around them, and exit with 143.
    (said,) = re.findall(r"its error \| srun: (.*)", result.out)
    assert "task 11: Exited with exit code 1" in said
    nodes = slurm_lab.run("scontrol", "show", "hostnames", case["earlier_jobs"][0]["nodes"]).split()
    assert case["job"]["excluded_nodes"] == [nodes[1]]


@pytest.mark.promise("launches published recipes")
def test_one_case_is_one_job_on_64_nodes_and_passes_at_the_published_pace(
    slurm_lab: SlurmLab, tmp_path: Path
) -> None:
    before = {job.id for job in slurm_lab.jobs_ever()}
    stage = slurm_lab.stage(tmp_path.name, nodes=16)
    result = pacemark(
        *SELECT, "--site", str(site_file(slurm_lab, stage, tmp_path)), results=tmp_path / "results"
    )
    jobs = [job for job in slurm_lab.jobs_ever() if job.id not in before]
    assert result.status == 0, result.out
    assert "33 deselected / 1 selected" in result.out
    assert [(job.nodes, job.state) for job in jobs] == [(64, "COMPLETED")]
    assert slurm_lab.squeue() == []
    case = result.case()
    assert case["verdict"] == "passed"
    assert case["statistic"] == "last"
    assert case["step_time"] == pytest.approx(10.07, rel=0.02)
    assert case["tokens_per_second"] == pytest.approx(833_030, rel=0.02)
    assert case["mfu"] == pytest.approx(39.54, rel=0.02)
    assert case["job"]["id"] == str(jobs[0].id)
    assert case["job"]["name"] == jobs[0].name
    folder = result.folder / CASE
    assert {"case.json", "steps.csv", "log.txt", "sent.txt"} <= {path.name for path in folder.iterdir()}
    assert len((folder / "steps.csv").read_text().splitlines()) == 51
    (received,) = stage.path.rglob("token.sha256")
    assert received.read_text().strip() == hashlib.sha256(TOKEN.encode()).hexdigest()
    (generated,) = stage.path.rglob("*_sbatch.sh")
    assert TOKEN not in generated.read_text()


@pytest.mark.promise("no confusing failure: what was measured", "no confusing failure: what was expected")
def test_a_failure_tells_the_window_the_source_and_both_figures(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    result = on_slurm(slurm_lab, tmp_path, *SELECT, pace=1.06, noise=0.001)
    assert result.status == 1, result.out
    assert "1 failed" in result.out
    case = result.case()
    assert case["verdict"] == "too slow"
    assert case["headline"] in result.out
    for part in (
        "10.07 s is expected",
        "limit -5 %",
        "last step (49)",
        "median of the last 10 steps",
        "833,030 tokens/s",
        "https://github.com/NVIDIA/dgxc-benchmarking/blob/v25.04/llama3.1/README.md",
        "release 25.04 on h100",
        "peak 1979 TFLOP/s",
        "9.15 s to 10.6 s",
        "gpu[",
    ):
        assert part in result.out


@pytest.mark.promise("no wrong pass: one hiccup")
def test_one_slow_last_step_passes_with_a_remark(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    result = on_slurm(slurm_lab, tmp_path, *SELECT, slow_steps={49: 1.3})
    assert result.status == 0, result.out
    assert result.case()["verdict"] == "passed"
    (about_last, about_hiccups) = result.case()["remarks"]
    assert "last step (49)" in about_last
    assert "judged by the steady median" in about_last
    assert "1 of 40" in about_hiccups
    strict = pacemark(
        *SELECT, "--site", str(tmp_path / "site.yaml"), "--strict-last", results=tmp_path / "strict"
    )
    assert strict.case()["verdict"] == "too slow"


def test_a_job_that_dies_is_infrastructure_with_node_step_and_last_words(
    slurm_lab: SlurmLab, tmp_path: Path
) -> None:
    result = on_slurm(slurm_lab, tmp_path, *SELECT, crash_at=17)
    assert result.status == 1
    assert "1 error" in result.out
    case = result.case()
    assert case["verdict"] == "infrastructure"
    assert "after step 17 of 0 to 49" in case["headline"]
    assert "FAILED on gpu[" in case["headline"]
    assert "NCCL error" in result.out


def test_a_log_of_100_megabytes_is_judged_with_one_sent(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    sshd = slurm_lab.root / "log" / "sshd.out"
    before = sshd.stat().st_size
    stage = slurm_lab.stage(tmp_path.name, chatter=2)
    site = site_file(slurm_lab, stage, tmp_path)
    result = pacemark(*SELECT, "--site", str(site), results=tmp_path / "results")
    assert result.case()["verdict"] == "passed", result.out
    (log,) = stage.path.rglob("log-*.out")
    assert log.stat().st_size > 10**8
    # The log, and everything else of the session: the launch, each look at the queue, the protocol itself. The server
    # says it when the connection has ended.
    until(lambda: b"Transferred: sent" in sshd.read_bytes()[before:], "the end of the connection")
    sent = [int(n) for n in re.findall(rb"Transferred: sent (\d+)", sshd.read_bytes()[before:])]
    assert 0 < sum(sent) < 10**6
    collected = (result.folder / CASE / "log.txt").read_text()
    assert "bytes without a step left out here; the whole log is " in collected


LLAMA = ("llama3", "70b-fp8_cs-64gpus", "h100")
NEMOTRON = ("nemotron3", "30b-mxfp8-8gpus", "b200")


def judge(
    lab: SlurmLab, stage: Stage, folder: Path, which: tuple[str, str, str], *options: str, **keys: str
) -> Run:
    recipe, case_id, gpu = which
    site = site_file(lab, stage, folder, **{"gpu": gpu, "release": '"26.06.01"', **keys})
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


def test_an_installation_that_lacks_something_is_told_with_what_mends_it(
    slurm_lab: SlurmLab, tmp_path: Path
) -> None:
    before = slurm_lab.jobs_ever()
    stage = slurm_lab.stage(tmp_path.name, recipe="dgxc")
    stage.image.unlink()
    bridge = stage.path / "workloads" / "pretrain_llama3.1" / "Megatron-Bridge"
    (bridge / ".git" / "HEAD").write_text("67f987df03b8355b03192d88d70f1709fedf51a0\n")
    result = judge(slurm_lab, stage, tmp_path, LLAMA, gpus_per_node="4", gres='"gpu:4"')
    assert result.verdicts == {"llama3/70b-fp8_cs-64gpus": "infrastructure"}, result.out
    assert f"the container image {stage.image} is missing" in result.out
    assert f"enroot import -o {stage.image} docker://nvcr.io#nvidia/nemo:26.04.01" in result.out
    assert "Megatron-Bridge at the commit of this release is missing" in result.out
    assert f"git -C {bridge} checkout 06f25c227ef9d3d9b22e5561fb9f46e1cbdab7e2" in result.out
    assert "a site whose `gpus_per_node` (4) is what launch.sh takes for h100" in result.out
    assert slurm_lab.jobs_ever() == before


def test_variables_of_the_users_profile_change_nothing(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    stage = slurm_lab.stage(tmp_path.name, recipe="dgxc")
    profile = '"export TP=1 CONFIG_VARIANT=v1 CONFIG_OVERRIDES=--use_tokendrop=true ENABLE_PROFILE=true FP8_RECIPE=cs DTYPE=bf16"'
    result = judge(slurm_lab, stage, tmp_path, NEMOTRON, prologue=profile)
    assert result.verdicts == {"nemotron3/30b-mxfp8-8gpus": "passed"}, result.out


QWEN = ("qwen3", "30b-mxfp8-8gpus", "gb300")
PROXY = ("deepseek_v3", "671b-proxy-mxfp8-8gpus", "b300")
EXEMPLAR = {"release": '"26.08.00"'}


def test_a_case_of_26_08_passes_at_the_published_pace_whatever_the_users_profile_sets(
    slurm_lab: SlurmLab, tmp_path: Path
) -> None:
    """The Exemplar release, by its own launch.sh, which hands LLMB_MBRIDGE_EXTRA_ARGS on behind all else."""
    stage = slurm_lab.stage(tmp_path.name, recipe="exemplar")
    profile = '"export LLMB_MBRIDGE_EXTRA_ARGS=--micro_batch_size=2 FP8_RECIPE=mx PROXY_WORKLOAD=true DISABLE_CG=true"'
    keys = {"gpus_per_node": "4", "gres": '"gpu:4"', "prologue": profile}
    result = judge(slurm_lab, stage, tmp_path, QWEN, **EXEMPLAR, **keys)
    assert result.status == 0, result.out
    case = result.case("qwen3/30b-mxfp8-8gpus")
    assert (case["verdict"], case["release"], case["job"]["attempts"]) == ("passed", "26.08.00", 1)
    assert slurm_lab.jobs_ever()[-1].nodes == 2


@pytest.mark.parametrize(
    ("lost", "verdict"), [(False, "no baseline"), (True, "invalid run")], ids=["a proxy", "the whole model"]
)
def test_a_proxy_of_26_08_is_run_as_one_and_judged_as_nothing_else(
    slurm_lab: SlurmLab, tmp_path: Path, lost: bool, verdict: str
) -> None:
    """Without PROXY_WORKLOAD, launch.sh starts the whole model on as many GPUs."""
    stage = slurm_lab.stage(tmp_path.name, recipe="exemplar")
    if lost:
        launcher = stage.recipe / "deepseek_v3" / "pretrain" / "megatron_bridge" / "launch.sh"
        launcher.write_text(launcher.read_text().replace("${PROXY_WORKLOAD:-false}", "false"))
    result = judge(slurm_lab, stage, tmp_path, PROXY, **EXEMPLAR)
    case = result.case("deepseek_v3/671b-proxy-mxfp8-8gpus")
    assert case["verdict"] == verdict, result.out
    (log,) = stage.path.glob("workloads/*/experiments/*/*/*/log-*.out")
    assert ("num_moe_experts: 16" in log.read_text()) != lost
    if lost:
        assert "layers" in case["headline"]
    else:
        assert "upstream made this model smaller, and publishes whole models only" in result.out
