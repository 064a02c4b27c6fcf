"""A case that one run does not tell is run again, judged by all its runs, and recorded with each of them."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from fixtures.runs.ledger import Ledger
from plugins.record.lines import JOBS_LOG
from tests.lab.slurm import SlurmLab
from tests.system.support import CASE, SELECT, Run, finish, login, pacemark, site_file, start, until

# The slowest pace that passes is 1.0526 times the published one. At a noise of 1 % a run is told when it is 1.2 % off.
NEAR: dict[str, Any] = {"pace": 1.05, "noise": 0.01}
REPEAT = (*SELECT, "--repeat-undecided")


def jobs(lab: SlurmLab, result: Run) -> list[str]:
    """The names of all jobs that there were of a run."""
    name = result.folder.name
    return sorted(job.name for job in [*lab.jobs_ever(), *lab.squeue()] if name in job.name)


def require_every_run(lab: SlurmLab, result: Run, count: int) -> None:
    """Each job is there once, in the record and in its folder."""
    case = result.case()
    assert len(jobs(lab, result)) == len(set(jobs(lab, result))) == count, result.out
    assert [run["name"].rpartition("-try")[2] for run in case["runs"][1:]] == [
        str(n) for n in range(2, count + 1)
    ]
    assert [run["id"] for run in case["runs"]] == [
        *(job["id"] for job in case["earlier_jobs"]),
        case["job"]["id"],
    ]
    assert len({run["id"] for run in case["runs"]}) == count
    assert {job["failure"] for job in case["earlier_jobs"]} == {"repeated"}
    for number in range(1, count):
        assert (result.folder / CASE / f"try-{number}" / "sent.txt").exists()
        log = (result.folder / CASE / f"try-{number}" / "log.txt").read_text()
        # Another rank may write into the midst of this word.
        assert 48 <= log.count("train_step_timing") <= 50
    assert lab.squeue() == []


@pytest.mark.parametrize("workers", [[], ["-n", "1"]])
def test_a_case_near_the_limit_is_judged_by_three_runs(
    slurm_lab: SlurmLab, tmp_path: Path, workers: list[str]
) -> None:
    site = site_file(slurm_lab, slurm_lab.stage(tmp_path.name, **NEAR), tmp_path)
    result = pacemark(*REPEAT, *workers, "--site", str(site), results=tmp_path / "results")
    case = result.case()
    assert case["verdict"] == "passed", result.out
    require_every_run(slurm_lab, result, 3)
    steady = [run["steady_median"] for run in case["runs"]]
    assert case["steady_median"] == pytest.approx(sum(steady) / 3)
    assert "of a limit of the band; running it again (run 2)" in result.out
    assert "of a limit of the band; running it again (run 3)" in result.out
    assert not any("ended as infrastructure" in remark for remark in case["remarks"])
    again = pacemark(*SELECT, "--site", str(site), "--resume", "latest", results=tmp_path / "results")
    assert again.case()["runs"] == case["runs"]
    require_every_run(slurm_lab, again, 3)


def test_stalls_that_do_not_come_again_pass_by_two_runs(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    stalls = dict.fromkeys((20, 22, 27, 35, 43), 1.3)
    stage = slurm_lab.stage(tmp_path.name, slow_steps=stalls)
    stage.hold(2)
    site = site_file(slurm_lab, stage, tmp_path)
    process = start(*REPEAT, "--site", str(site), results=tmp_path / "results")
    # The trainer has read its knobs by then.
    until(lambda: list(stage.path.rglob("token.sha256")) != [], "the first run's start")
    stage.set(slow_steps={})
    stage.let_go()
    result = finish(process, tmp_path / "results")
    assert result.case()["verdict"] == "passed", result.out
    require_every_run(slurm_lab, result, 2)
    assert [len(run["hiccups"]) for run in result.case()["runs"]] == [5, 0]
    assert "5 of 40 settled steps stalled, which may be chance; running it again (run 2)" in result.out


@pytest.mark.parametrize(("pace", "verdict"), [(1.0, "passed"), (1.2, "too slow")])
def test_a_clear_case_is_run_once(slurm_lab: SlurmLab, tmp_path: Path, pace: float, verdict: str) -> None:
    site = site_file(slurm_lab, slurm_lab.stage(tmp_path.name, pace=pace, noise=0.01), tmp_path)
    result = pacemark(*REPEAT, "--site", str(site), results=tmp_path / "results")
    assert result.case()["verdict"] == verdict, result.out
    assert len(jobs(slurm_lab, result)) == 1
    assert (result.case()["runs"], result.case()["earlier_jobs"]) == ([], [])
    repeated = result.summary["repeated"]
    assert (repeated["runs"], repeated["not_needed"], repeated["gpu_hours_saved"] > 0) == (1, 2, True)
    assert "1 made, 2 not needed, which saved about " in result.out


def test_a_case_near_the_limit_is_run_once_where_nobody_asks_for_more(
    slurm_lab: SlurmLab, tmp_path: Path
) -> None:
    site = site_file(slurm_lab, slurm_lab.stage(tmp_path.name, **NEAR), tmp_path)
    result = pacemark(*SELECT, "--site", str(site), results=tmp_path / "results")
    assert len(jobs(slurm_lab, result)) == 1, result.out


@pytest.mark.parametrize("after", ["at once", "submitting", "running"])
def test_a_session_killed_after_a_run_goes_on_with_it_and_submits_the_next_one_once(
    slurm_lab: SlurmLab, tmp_path: Path, after: str
) -> None:
    """At once, while the next job is submitted, and while it runs."""
    stage = slurm_lab.stage(tmp_path.name, **NEAR)
    quick = {"launch_minutes": "0.5", "ssh": login(slurm_lab, ", connect_seconds: 5, command_seconds: 10")}
    site = site_file(slurm_lab, stage, tmp_path, **quick)
    process = start(*REPEAT, "--site", str(site), results=tmp_path / "results")
    ledger = tmp_path / "results" / "latest" / JOBS_LOG
    until(ledger.exists, "the run has begun")
    opened = Ledger(ledger.resolve())
    until(lambda: opened.earlier(CASE) != (), "the first run's end")
    if after == "submitting":
        time.sleep(1)
    if after == "running":
        run = ledger.resolve().parent.name
        until(lambda: sum(run in job.name for job in slurm_lab.jobs_ever()) == 2, "the second run's job")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    result = pacemark(*REPEAT, "--site", str(site), "--resume", "latest", results=tmp_path / "results")
    assert result.case()["verdict"] == "passed", result.out
    require_every_run(slurm_lab, result, 3)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--strict-last"], "--repeat-undecided judges all runs of a case together, --strict-last by"),
        (["--backend", "replay", "--from", "."], "a log that exists cannot be run again"),
    ],
)
def test_what_contradicts_it_is_refused(tmp_path: Path, more: list[str], said: str) -> None:
    result = pacemark(*REPEAT, *more, results=tmp_path / "results")
    assert result.status == 4
    assert said in result.out
    assert "Traceback" not in result.out


def test_the_plan_says_what_it_costs_at_most(tmp_path: Path) -> None:
    result = pacemark(*REPEAT, "--plan", results=tmp_path / "results")
    assert result.status == 0
    assert "about 123 GPU-hours, 368 with 3 runs at most; nothing was submitted" in result.out
