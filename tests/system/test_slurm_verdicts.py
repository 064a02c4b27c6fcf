"""The sentence that Pacemark exists for, on a real Slurm cluster: every verdict, in words that can be acted on."""

from __future__ import annotations

import hashlib
import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.lab.slurm import SlurmLab
from tests.system.support import CASE, SELECT, TOKEN, Run, pacemark, site_file, until


def run(lab: SlurmLab, tmp_path: Path, *more: str, **knobs: Any) -> Run:
    stage = lab.stage(tmp_path.name, **knobs)
    return pacemark(
        *SELECT, "--site", str(site_file(lab, stage, tmp_path)), *more, results=tmp_path / "results"
    )


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


def test_the_token_reaches_the_job_and_nothing_that_is_left_behind(
    slurm_lab: SlurmLab, tmp_path: Path
) -> None:
    stage = slurm_lab.stage(tmp_path.name)
    result = pacemark(
        *SELECT, "--site", str(site_file(slurm_lab, stage, tmp_path)), "-v", results=tmp_path / "results"
    )
    (received,) = stage.path.rglob("token.sha256")
    assert received.read_text().strip() == hashlib.sha256(TOKEN.encode()).hexdigest()
    assert TOKEN not in result.out
    files = [path for path in result.folder.rglob("*") if path.is_file()]
    assert files
    assert [path for path in files if TOKEN.encode() in path.read_bytes()] == []
    generated = list(stage.path.rglob("*_sbatch.sh"))
    assert generated
    assert [path for path in generated if TOKEN in path.read_text()] == []


@pytest.mark.promise("no confusing failure: what was measured", "no confusing failure: what was expected")
def test_a_failure_tells_the_window_the_source_and_both_figures(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    result = run(slurm_lab, tmp_path, pace=1.06, noise=0.001)
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
    result = run(slurm_lab, tmp_path, slow_steps={49: 1.3})
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
    result = run(slurm_lab, tmp_path, crash_at=17)
    assert result.status == 1
    assert "1 error" in result.out
    case = result.case()
    assert case["verdict"] == "infrastructure"
    assert "after step 17 of 0 to 49" in case["headline"]
    assert "FAILED on gpu[" in case["headline"]
    assert "NCCL error" in result.out


def test_a_job_that_can_never_start_is_infrastructure_and_is_cancelled(
    slurm_lab: SlurmLab, tmp_path: Path
) -> None:
    limits, stage = ", hopeless_seconds: 1", slurm_lab.stage(tmp_path.name)
    site = site_file(slurm_lab, stage, tmp_path, limits=limits, partition="small")
    result = pacemark(*SELECT, "--site", str(site), results=tmp_path / "results")
    assert result.case()["verdict"] == "infrastructure"
    assert "it can never start; the queue says: PartitionNodeLimit" in result.case()["headline"]
    assert slurm_lab.squeue() == []


def test_a_job_that_sbatch_refuses_is_infrastructure_with_slurms_words(
    slurm_lab: SlurmLab, tmp_path: Path
) -> None:
    site = site_file(slurm_lab, slurm_lab.stage(tmp_path.name), tmp_path, gres='"gpu:9"')
    result = pacemark(*SELECT, "--site", str(site), results=tmp_path / "results")
    assert result.case()["verdict"] == "infrastructure"
    assert "Requested node configuration is not available" in result.out
    assert slurm_lab.squeue() == []


def test_clean_up_that_fails_after_the_last_step_is_a_remark(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    result = run(slurm_lab, tmp_path, exit_code_after=3)
    assert result.case()["verdict"] == "passed", result.out
    assert "FAILED (exit code 3:0) after its last step" in result.case()["remarks"][0]


def test_a_requeued_job_is_judged_by_its_last_attempt(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    result = run(slurm_lab, tmp_path, restarts=1, restart_at=20)
    assert result.case()["verdict"] == "passed", result.out
    assert result.case()["job"]["attempts"] == 2
    assert "started 2 times; judged by its last attempt" in result.case()["remarks"][-1]


def test_a_log_that_comes_late_with_other_ranks_talking_in_between_is_read(
    slurm_lab: SlurmLab, tmp_path: Path
) -> None:
    stage = slurm_lab.stage(tmp_path.name, nodes=16, late_log=2, interleave=True)
    site = site_file(slurm_lab, stage, tmp_path, environment="{SLURM_LABELIO: '1'}")
    result = pacemark(*SELECT, "--site", str(site), results=tmp_path / "results")
    assert result.case()["verdict"] == "passed", result.out


def test_2048_gpus_on_256_nodes_pass(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    site = site_file(slurm_lab, slurm_lab.stage(tmp_path.name), tmp_path)
    result = pacemark(
        "suites/llama3", "-m", 'case(size="70b", dtype="fp8", gpus=2048)', "--site", str(site),
        results=tmp_path / "results",
    )  # fmt: skip
    assert result.status == 0, result.out
    assert result.verdicts == {"llama3/70b-fp8-2048gpus": "passed"}
    assert slurm_lab.jobs_ever()[-1].nodes == 256


def test_allure_shows_labels_steps_attachments_and_links(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    result = run(slurm_lab, tmp_path)
    allure = result.folder / "allure"
    (shown,) = [json.loads(path.read_text()) for path in allure.glob("*-result.json")]
    assert re.fullmatch(rf"{CASE}: passed, [\d,]+ tokens/s, MFU [\d.]+ %", shown["name"])
    job = result.case()["job"]
    for key, stamp in (("start", job["started"]), ("stop", job["ended"])):
        assert shown[key] == pytest.approx(1000 * datetime.fromisoformat(stamp).timestamp(), abs=1)
    labels = {label["name"]: label["value"] for label in shown["labels"]}
    assert (labels["epic"], labels["feature"], labels["story"]) == (
        "Llama 3.1 pre-training (NeMo 2)",
        "70b",
        "fp8",
    )
    assert [step["name"].split(":")[0] for step in shown["steps"]] == [
        "provision",
        "launch",
        "run",
        "parse",
        "judge",
    ]
    attached = {file["name"] for step in shown["steps"] for file in step.get("attachments", [])}
    assert {"what was sent", "the end of the log", "steps", "step times", "measurement"} <= attached
    assert {link["name"] for link in shown["links"]} == {"the recipe", "the baseline's source"}
    assert {"tp": "4", "gbs": "1024"}.items() <= {p["name"]: p["value"] for p in shown["parameters"]}.items()
    assert "site=lab" in (allure / "environment.properties").read_text()
    categories = {category["name"] for category in json.loads((allure / "categories.json").read_text())}
    assert {"too slow", "too fast", "noisy", "invalid run", "infrastructure", "lost"} <= categories


def test_pytest_benchmark_compares_the_steps_of_two_runs(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    storage = f"--benchmark-storage=file://{tmp_path}/benchmarks"
    first = run(slurm_lab, tmp_path, storage, "--benchmark-save=first")
    assert "Rounds" in first.out
    (saved,) = (tmp_path / "benchmarks").rglob("*_first.json")
    (bench,) = json.loads(saved.read_text())["benchmarks"]
    assert bench["stats"]["rounds"] == 40
    assert bench["stats"]["median"] == pytest.approx(10.07, rel=0.01)
    slurm_lab.stage(f"{tmp_path.name}-slower", pace=1.04)
    site = tmp_path / "site.yaml"
    site.write_text(site.read_text().replace(f"{tmp_path.name}\n", f"{tmp_path.name}-slower\n"))
    second = pacemark(
        *SELECT, "--site", str(site), storage, "--benchmark-compare", "--benchmark-compare-fail=median:3%",
        results=tmp_path / "second",
    )  # fmt: skip
    assert second.case()["verdict"] == "passed"
    assert second.status != 0
    assert f"regressed: {CASE}: median 10.4" in second.out


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
