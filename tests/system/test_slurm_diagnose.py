"""From red to cause on a real Slurm cluster: the further jobs, what they find, and what becomes of them."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from plugins.baselines.digests import load_digest, path_of
from tests.lab.slurm import SlurmLab
from tests.system.faults import MakeTrial, Trial
from tests.system.support import Run, pacemark, signal_group, site_file, until
from tests.unit import examples
from tests.unit.modes.test_nccl_trace import digest_of
from tests.unit.modes.traces import Trace

CAUSES = {8: "slow rank", 16: "sockets", 32: "slow link", 64: "host gaps", 128: "data stall"}
FOUND = {8: "compute", 16: "transport", 32: "exposed communication", 64: "host gap", 128: "data"}
MODES = ("profile", "nccl-trace")
# 8 % slow, where 5 % is the limit.
SLOW = 1.087
CASE = "llama3/8b-bf16-8gpus"


def selected(size: str) -> tuple[str, ...]:
    return "suites/llama3", "-m", f'case(size="{size}", dtype="bf16")'


def test_each_cause_is_named_beside_the_recorded_good_digests(lab: SlurmLab, tmp_path: Path) -> None:
    stage = lab.stage(tmp_path.name, real_step=0.005)
    # One job at a time: the launcher refuses to start a case twice within a second.
    site, own = site_file(lab, stage, tmp_path, limits=", jobs_in_flight: 1"), tmp_path / "own"
    common = ("--site", str(site), "--site-baselines", str(own))
    variants = [word for mode in MODES for word in ("--variant", mode)]
    modes = " or ".join(f'case(size="8b-{mode}", dtype="bf16", gpus=8)' for mode in MODES)
    good = pacemark(
        "suites/llama3", "-m", modes, *variants, *common, "--record-baselines", results=tmp_path / "good"
    )
    assert set(good.verdicts.values()) == {"passed"}, good.out
    assert good.out.count(": digest recorded: ") == len(list(own.rglob("*.json"))) == 2
    for gpus in CAUSES:
        for mode in MODES:
            _record_larger(own, gpus, mode)

    stage.set(pace=SLOW, causes=CAUSES)
    site_file(lab, stage, tmp_path)
    result = pacemark(*selected("8b"), *common, "--diagnose", "400", results=tmp_path / "results")
    assert result.verdicts == {f"llama3/8b-bf16-{gpus}gpus": "too slow" for gpus in CAUSES}, result.out
    found = {gpus: result.case(f"llama3/8b-bf16-{gpus}gpus")["diagnosis"] for gpus in CAUSES}
    assert {gpus: one["cause"] for gpus, one in found.items()} == FOUND, result.out
    assert found[16]["transport"] == {"good": "IB/GDRDMA on 16 ranks", "now": "Socket on 16 ranks"}
    assert found[8]["last"] == found[8]["slowest"] == "gpu001 GPU 3"
    assert f"llama3/8b-bf16-8gpus: {found[8]['headline']}" in result.out
    for gpus, one in found.items():
        case = result.case(f"llama3/8b-bf16-{gpus}gpus")
        assert [job["mode"] for job in one["jobs"]] == list(MODES)
        assert {job["nodes"] for job in one["jobs"]} == {case["job"]["nodes"]}
        assert {job["good"]["run"] for job in one["jobs"]} == {good.folder.name}
        sent = result.folder / case["id"] / "profile" / "sent.txt"
        assert f"--nodelist={case['job']['nodes']}" in sent.read_text()
    # A job each, and nothing is left of them but their files.
    jobs = [job.name for job in lab.jobs_ever() if result.folder.name in job.name]
    assert len(jobs) == len(set(jobs)) == 3 * len(CAUSES)
    assert list(stage.path.glob(".pacemark*")) == []


def _record_larger(own: Path, gpus: int, mode: str) -> None:
    """What a good run on so many GPUs would have left, made of that on one node: its first eight ranks are the same."""
    small, large = (examples.case(f"8b-{mode}-bf16-{count}gpus") for count in (8, gpus))
    recorded = load_digest(path_of(own, small))
    assert recorded is not None
    trace = digest_of(Trace(nodes=gpus // 8).whole()) if mode == "nccl-trace" else None
    made = recorded.model_copy(update={"case": large.id, "configuration": large.identity(), "trace": trace})
    path_of(own, large).write_text(made.model_dump_json())


@pytest.fixture
def slow(make_trial: MakeTrial) -> Trial:
    """A slow case, in the middle of the profile."""
    trial = make_trial(pace=SLOW, real_step=0.02)
    held = trial.folder / "held"
    held.touch()
    trial.stage.set(held_at=40, held_by=str(held))
    trial.start("--diagnose", "9")
    # One or two of the 41 may be torn. The jobs that come behind them are held elsewhere.
    trial.until_steps(39)
    trial.hold(10)
    held.unlink()
    until(
        lambda: any(job.name.endswith("-profile") and job.state == "RUNNING" for job in trial.living()),
        "the profile",
    )
    return trial


def names(trial: Trial) -> list[str]:
    return [job.name.rpartition("gpus")[2] for job in trial.jobs()]


def require_red(result: Run) -> None:
    assert result.verdicts == {CASE: "too slow"}, result.out


def test_a_session_killed_during_a_diagnosis_goes_on_with_it(slow: Trial) -> None:
    slow.kill()
    slow.let_go()
    result = slow.resume("--diagnose", "9")
    require_red(result)
    assert sorted(names(slow)) == ["", "-nccl-trace", "-profile"]
    found = result.case(CASE)["diagnosis"]
    assert [job["why_not"] for job in found["jobs"]] == ["", ""]
    assert "there is no good digest to compare with" in found["headline"]
    assert f'-k "[{CASE.partition("/")[2]}' not in found["headline"]
    assert "--record-baselines" in "".join(found["lines"])


def test_what_a_killed_session_left_of_a_diagnosis_is_swept(slow: Trial) -> None:
    slow.kill()

    def sweep() -> Run:
        return pacemark("suites/llama3", "--sweep", "--site", str(slow.site), results=slow.results)

    swept = sweep()
    assert swept.status == 0, swept.out
    assert f"{CASE}/profile: job " in swept.out
    assert slow.living() == []
    assert "no dead run" in sweep().out


def test_ctrl_c_cancels_the_diagnosis_and_the_verdict_stays(slow: Trial) -> None:
    assert slow.process is not None
    signal_group(slow.process, signal.SIGINT)
    slow.end()
    result = slow.resume()
    require_red(result)
    # Nothing is diagnosed again, and the report says what became of it.
    assert sorted(names(slow)) == ["", "-profile"]
    assert (
        "no diagnosis: profile: the session was stopped; job " in result.case(CASE)["diagnosis"]["headline"]
    )


def test_a_budget_that_is_too_small_submits_nothing_and_says_so(make_trial: MakeTrial) -> None:
    trial = make_trial(pace=SLOW, real_step=0.005)
    result = trial.start("--diagnose", "0.01").end()
    require_red(result)
    assert names(trial) == [""]
    assert "no diagnosis: profile: not run: about 1" in result.case(CASE)["diagnosis"]["headline"]
    plain = make_trial("plain", pace=SLOW, real_step=0.005, stage=trial.stage)
    command = plain.start().end().case(CASE)["diagnosis"]["command"]
    assert command == f"pytest suites/llama3 -k '[8b-bf16-8gpus]' --site {plain.site} --diagnose 2.5"
