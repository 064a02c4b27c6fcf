"""A session that judges a case which has no number, with and without a plan that promises its expected range."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.printed.megatron_bridge import STATED, text_of
from tests.system.support import Run, pacemark
from tests.unit import examples

CASE_ID = "70b-fp8_cs-128gpus"
CASE = examples.case(CASE_ID, release="26.06.01")
RANGE = "90 %: 1,588 to 1,635 tokens/s/GPU, from 1 published scale (the nearest: 64 GPUs)"
"""Megatron-Bridge's tables have 731 TFLOP/s per GPU for 64 GPUs, which are 1,627 tokens/s."""

SITE = "site: lab\nreplay: {gpu: h100, release: 26.06.01}\n"
PLAN = f"site: lab\ncases: [llama3/{CASE_ID}]\n"


def session(folder: Path, pace: float, plan: str) -> Run:
    """Replay a log of the case at this pace in tokens/s per GPU."""
    logs = folder / "logs"
    logs.mkdir()
    name = f"log-x.pretrain_llama3_70b_fp8_cs_gpus128_tp4_pp8_cp1_vp5_mbs1_gbs{CASE.gbs}_17_0.out"
    (logs / name).write_text(text_of(CASE, CASE.tokens_per_step / CASE.gpus / pace, STATED[CASE.dtype]))
    (folder / "site.yaml").write_text(SITE)
    (folder / "plan.yaml").write_text(plan)
    given = ("--site", str(folder / "site.yaml"), "--acceptance", str(folder / "plan.yaml"))
    replay = ("--backend", "replay", "--from", str(logs))
    return pacemark("suites/llama3", *replay, *given, results=folder / "results")


@pytest.mark.parametrize(
    ("pace", "verdict", "part"), [(1600, "passed", "missing"), (1570, "too slow", "failed")]
)
def test_a_plan_that_promises_the_range_is_decided_by_it(
    tmp_path: Path, pace: float, verdict: str, part: str
) -> None:
    run = session(tmp_path, pace, f"{PLAN}by: expected\n")
    record = run.case(f"llama3/{CASE_ID}")
    assert record["verdict"] == verdict, run.out
    assert f"is the middle of the expected range, {RANGE}, whose lower end decides" in record["headline"]
    assert record["expected_range"]["scales"] == [64]
    acceptance = run.summary["acceptance"]
    assert acceptance["plan"]["by"] == "expected"
    assert (f"llama3/{CASE_ID}" in acceptance["failed"]) is (part == "failed")
    assert list(acceptance["missing"])[-1] == "the run"
    assert "judged against: llama3 26.06.01 on h100 by its expected range" in run.out
    page = (run.folder / "report.html").read_text()
    assert "the lower end of the expected range decides" in page
    assert f"by the expected range, {RANGE}" in page


def test_without_the_promise_the_case_is_missing_and_says_where_it_is(tmp_path: Path) -> None:
    run = session(tmp_path, 1600, PLAN)
    record = run.case(f"llama3/{CASE_ID}")
    assert record["verdict"] == "no baseline", run.out
    assert record["headline"].endswith(f"tokens/s/GPU is within the expected range, {RANGE}")
    assert record["expected"] is None
    assert run.summary["acceptance"]["missing"][f"llama3/{CASE_ID}"] == record["headline"]
    assert f"is within the expected range, {RANGE}" in run.out
    assert f"is within the expected range, {RANGE}" in (run.folder / "report.html").read_text()


def test_the_table_of_a_plan_tells_each_range_and_why_there_is_none(tmp_path: Path) -> None:
    machine = (
        "gpu: gb300, release: 26.06.01, account: me, partition: batch, stage: /stage, ssh: {host: login}"
    )
    cases = "llama3/405b-nvfp4-512gpus, llama3/70b-fp8_cs-128gpus, llama3/8b-nvfp4-8gpus"
    (tmp_path / "site.yaml").write_text(f"site: lab\nslurm: {{{machine}}}\n")
    (tmp_path / "plan.yaml").write_text(f"site: lab\ncases: [{cases}]\nby: expected\n")
    files = ("--site", str(tmp_path / "site.yaml"), "--acceptance", str(tmp_path / "plan.yaml"))
    run = pacemark("suites/llama3", "--plan", *files, results=tmp_path / "results")
    assert run.status == 0, run.out
    for line in (
        "expected range of llama3/405b-nvfp4-512gpus: 90 %: 1,412 to 1,454 tokens/s/GPU, from 1 published scale (the nearest: 256 GPUs)",
        "no baseline for 70b-fp8_cs-128gpus of llama3: no figure at this scale; published: 64 GPUs; no expected range: 64 GPUs are "
        "all connected by NVLink, those of the case are not",
        "no baseline for 8b-nvfp4-8gpus of llama3: no figure of llama3-8b in container 26.04.01 on gb300; no expected range: no other "
        "scale was published either",
    ):
        assert line in run.out.splitlines()
    (power,) = (line for line in run.out.splitlines() if "by the expected range: " in line)
    chance = "1 case(s) by the expected range: one run at 1.9 % finds a cluster as fast as others in 14."
    assert power.startswith(chance)
    assert power.endswith(", 8 % slow in 100.0 %")
