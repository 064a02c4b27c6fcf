"""Another release, from the command line and from the site file: its cases, its numbers, and one clear error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.system.support import ROOT, Run, pacemark

# 405b in a step on one GPU, at half a sequence per GPU.
TFLOP = 10_753.7
SITE = ROOT / "docs" / "sites" / "slurm.yaml"


def site(folder: Path, replay: str) -> Path:
    path = folder / "site.yaml"
    path.write_text(f"site: archive\nreplay: {replay}\n")
    return path


def log(folder: Path, seconds: float, gbs: int) -> Path:
    """A run of release 25.05 that is slower at both ends than in steps 11 to 44."""
    path = folder / "log.out"
    path.write_text(
        "".join(
            f"Training epoch 0, iteration {i}/49 | lr: 6.897e-06 | global_batch_size: {gbs} | global_step: {i} | "
            f"max_memory_reserved: 127785762816 | max_memory_allocated: 115792977920 | "
            f"reduced_train_loss: {11.96 - i / 100:.4} | train_step_timing in s: {time:.4} | TFLOPS_per_GPU: {TFLOP / time:.4} | "
            f"consumed_samples: {(i + 1) * gbs}\n"
            for i in range(50)
            for time in [seconds * (1 if 10 < i < 45 else 1.02)]
        )
    )
    return path


def judge(folder: Path, case: str, source: Path, *options: str) -> Run:
    select = ("suites/llama3", "-k", case, "--backend", "replay", "--from", str(source))
    return pacemark(*select, *options, results=folder / "results")


def collected(*arguments: str, results: Path) -> list[str]:
    result = pacemark(*arguments, "--collect-only", "-q", results=results)
    assert result.status == 0, result.out
    return [
        line.partition("[")[2].rstrip("]") for line in result.out.splitlines() if "::test_pretrain[" in line
    ]


def test_a_log_of_a_gb200_is_judged_by_its_releases_number(tmp_path: Path) -> None:
    source = log(tmp_path, 6.183, 128)
    options = ("--release", "25.05", "--site", str(site(tmp_path, "{gpu: gb200}")))
    result = judge(tmp_path, "405b-fp8-256gpus", source, *options)
    assert result.status == 0, result.out
    case = result.case("llama3/405b-fp8-256gpus")
    assert (case["verdict"], case["release"], case["statistic"]) == ("passed", "25.05", "mean:11-44")
    assert case["step_time"] == pytest.approx(6.183)
    assert (case["expected"]["step_time"], case["expected"]["gpu"]) == (6.183, "gb200")
    assert case["expected"]["source"].endswith("/v25.05.05/llama3.1/README.md")
    assert "replay: judged as llama3 25.05 on gb200, which a log does not say" in result.out
    assert "judged against: llama3 25.05 on gb200" in result.out
    shown = [json.loads(path.read_text()) for path in (result.folder / "allure").glob("*-result.json")]
    assert [p["value"] for p in shown[0]["parameters"] if p["name"] == "release"] == ["'25.05'"]


def test_the_same_log_of_a_b200_has_no_baseline(tmp_path: Path) -> None:
    source = log(tmp_path, 6.183, 128)
    options = ("--release", "25.05", "--site", str(site(tmp_path, "{gpu: b200}")))
    result = judge(tmp_path, "405b-fp8-256gpus", source, *options)
    assert result.verdicts == {"llama3/405b-fp8-256gpus": "no baseline"}
    assert "baselines/llama3.yaml has no 405b-fp8-256gpus of release 25.05 on b200" in result.out
    assert result.case("llama3/405b-fp8-256gpus")["release"] == "25.05"


def test_a_site_may_stay_with_a_release(tmp_path: Path) -> None:
    path = site(tmp_path, '{gpu: h100, release: "25.05"}')
    result = judge(tmp_path, "405b-fp8-512gpus", log(tmp_path, 13.02, 256), "--site", str(path))
    case = result.case("llama3/405b-fp8-512gpus")
    assert (case["verdict"], case["expected"]["step_time"]) == ("passed", 13.020)
    # By 25.04, whose 12.37 s are of another release, the same run is too slow.
    again = judge(
        tmp_path, "405b-fp8-512gpus", tmp_path / "log.out", "--site", str(path), "--release", "25.04"
    )
    assert again.verdicts == {"llama3/405b-fp8-512gpus": "too slow"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ["--release", "99.1"],
            "llama3 has no release 99.1; it has 24.11, 25.01, 25.02, 25.03, 25.04, 25.05",
        ),
        (["--release", "25.05"], "llama3 release 25.05 cannot be run: "),
        (["--release", "25.05", "--site", str(SITE)], "no `launch`"),
    ],
)
def test_a_release_that_cannot_be_had_is_one_clear_error(
    tmp_path: Path, options: list[str], words: str
) -> None:
    result = pacemark("suites/llama3", "-k", "405b and 512", *options, results=tmp_path / "results")
    assert result.status == 4
    assert words in result.out
    assert result.out.count("ERROR: ") == 1
    assert "Traceback" not in result.out


def test_a_gpu_that_a_release_does_not_run_on_is_one_clear_error(tmp_path: Path) -> None:
    path = site(tmp_path, "{gpu: b300}")
    result = judge(
        tmp_path, "405b-fp8-512gpus", log(tmp_path, 6.0, 256), "--site", str(path), "--release", "25.05"
    )
    assert result.status == 4
    assert "llama3 release 25.05 runs nothing on b300, only on gb200, b200, h100" in result.out


def test_a_look_at_a_release_shows_its_cases(tmp_path: Path) -> None:
    look = ("suites/llama3", "--release", "25.05")
    assert collected(*look, results=tmp_path) == ["405b-bf16-512gpus", "405b-fp8-512gpus"]
    as_gb200 = ("--backend", "replay", "--from", str(SITE), "--site", str(site(tmp_path, "{gpu: gb200}")))
    gb200 = collected(*look, *as_gb200, results=tmp_path)
    assert gb200 == [f"405b-{dtype}-{gpus}gpus" for dtype in ("bf16", "fp8") for gpus in (128, 256, 512)]


def test_recipes_without_the_release_are_left_out_and_told(tmp_path: Path) -> None:
    result = pacemark("suites", "--release", "25.05", "--collect-only", "-q", results=tmp_path)
    assert result.status == 0
    assert "suites/llama3/test_llama3.py::test_pretrain[405b-fp8-512gpus]" in result.out
    assert "suites/nemotron4/test_nemotron4.py::test_pretrain[15b-bf16-16gpus]" in result.out
    assert (
        "left out 12 case(s) of maxtext_llama2: maxtext_llama2 has no release 25.05; it has 24.11, 25.01"
        in result.out
    )
    assert "left out 43 case(s) of proxy: proxy has no release 25.05; it has 2026-11" in result.out


def test_workers_judge_by_the_release_too(tmp_path: Path) -> None:
    source = log(tmp_path, 13.02, 256)
    result = judge(tmp_path, "405b-fp8-512gpus", source, "--release", "25.05", "-n", "1")
    assert result.verdicts == {"llama3/405b-fp8-512gpus": "passed"}, result.out


def test_the_plan_tells_the_price_by_the_release(tmp_path: Path) -> None:
    arguments = ("suites/llama3", "-k", "8b-bf16-8gpus", "--release", "24.11", "--plan")
    result = pacemark(*arguments, results=tmp_path)
    # 50 steps of 12.91 s and 6 minutes of start-up on 8 GPUs.
    assert "llama3/8b-bf16-8gpus      1     8  128     16.8        2.2" in result.out
