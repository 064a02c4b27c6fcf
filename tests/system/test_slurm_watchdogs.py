"""What costs GPU-hours is ended: hung jobs, lost paces, broken nodes. What was measured is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.slurm import SlurmLab
from tests.system.faults import CASE, MAXTEXT, MakeTrial, Trial
from tests.system.support import SELECT, Run, finish, on_slurm, site_file, start, until

STALL = ", stall_factor: 0.1, stall_seconds: 6"


def judged_once_it_hangs(trial: Trial, last: bytes) -> Run:
    """The session sees the job only when it has printed this: a step that a busy machine delays is no hung job."""
    gate = trial.gate("squeue").shut()
    trial.start()
    log = trial.log()
    until(lambda: last in log.read_bytes(), "its last step")
    gate.open()
    return trial.end()


@pytest.mark.promise("no leaked job: a hung collective")
def test_a_hung_job_is_cancelled_long_before_its_time_limit(make_trial: MakeTrial) -> None:
    # One of 64 ranks hangs: the others print one step more than it does.
    trial = make_trial(case=MAXTEXT, limits=STALL, nodes=8, hang_at=7)
    result = judged_once_it_hangs(trial, b"completed step: 7,")
    case = result.case(MAXTEXT)
    assert case["verdict"] == "infrastructure", result.out
    assert "no new step for" in case["headline"]
    assert "the last was 7: it hangs; cancelled" in case["headline"]


def test_a_job_that_hangs_after_its_last_step_is_judged(make_trial: MakeTrial) -> None:
    result = judged_once_it_hangs(make_trial(limits=STALL, hang_at=49), b" | global_step: 49 ")
    case = result.case(CASE)
    assert case["verdict"] == "passed", result.out
    assert any("after its last step; cancelled" in remark for remark in case["remarks"])


def test_a_case_that_cannot_reach_its_band_is_given_up(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    result = on_slurm(slurm_lab, tmp_path, *SELECT, "--give-up-after", "20", pace=1.2, hang_at=30)
    case = result.case()
    assert case["verdict"] == "too slow", result.out
    assert "given up after step" in case["headline"]
    assert "GPU-hours saved" in case["headline"]
    assert case["steady_median"] > 11.5
    assert slurm_lab.squeue() == []


def test_a_case_that_ended_as_infrastructure_is_tried_again(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    stage = slurm_lab.stage(tmp_path.name, crash_at=3)
    stage.hold(2)
    site = site_file(slurm_lab, stage, tmp_path)
    process = start(*SELECT, "--retry-infrastructure", "1", "--site", str(site), results=tmp_path / "results")
    # The trainer has read its knobs by then.
    until(lambda: list(stage.path.rglob("token.sha256")) != [], "the first try's start")
    stage.set(crash_at=-1)
    stage.let_go()
    result = finish(process, tmp_path / "results")
    case = result.case()
    assert case["verdict"] == "passed", result.out
    assert len(case["earlier_jobs"]) == 1
    assert case["earlier_jobs"][0]["state"] == "FAILED"
    assert any("ended as infrastructure before" in remark for remark in case["remarks"])
    assert (result.folder / case["id"] / "try-1" / "log.txt").exists()
    assert slurm_lab.squeue() == []


def test_a_node_that_is_blamed_is_kept_out_of_the_next_try(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    result = on_slurm(
        slurm_lab, tmp_path, *SELECT, "--retry-infrastructure", "1", "--exclude-failed-nodes", crash_at=3
    )
    case = result.case()
    (earlier,) = case["earlier_jobs"]
    (blamed,) = case["job"]["excluded_nodes"]
    assert blamed in nodes(slurm_lab, earlier["nodes"]), result.out
    assert blamed not in nodes(slurm_lab, case["job"]["nodes"])
    assert len(nodes(slurm_lab, case["job"]["nodes"])) == 64
    assert earlier["excluded_nodes"] == []
    assert f"without {blamed}" in result.out


def nodes(lab: SlurmLab, names: str) -> list[str]:
    return lab.run("scontrol", "show", "hostnames", names).split()
