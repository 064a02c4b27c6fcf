"""The recipes' other modes on a real Slurm cluster: judged by what they leave there, never by their pace."""

from __future__ import annotations

import re
from typing import Any

from tests.lab.slurm import SlurmLab
from tests.system.faults import MakeTrial
from tests.system.support import until

PROFILE = "llama3/8b-profile-bf16-8gpus"
TRACE = "llama3/8b-nccl-trace-bf16-16gpus"
PGLE = "maxtext_llama2/70b-profile-bf16-64gpus"


def test_the_profiles_of_a_job_are_found_and_nothing_is_left_of_the_search(make_trial: MakeTrial) -> None:
    trial = make_trial(case=PROFILE, pace=3.0)
    result = trial.start("--variant", "profile").end()
    case = result.case(PROFILE)
    assert case["verdict"] == "passed", result.out
    assert [file["size"] > 0 for file in case["artefacts"]["files"]] == [True] * 8
    assert "8 profiles of this job" in case["headline"]
    assert case["step_time"] is None
    # One job: the profile's, without the timed run.
    assert len(trial.jobs()) == 1
    assert re.search(
        r"to fetch them: scp -r \S+:/\S+/pretrain_llama3.1_8b_bf16_8_nsys/nsys_profile \.", result.out
    )
    assert list(trial.stage.path.glob(".pacemark*")) == []


def test_profiles_that_are_not_whole_make_an_invalid_run(make_trial: MakeTrial) -> None:
    """Four jobs at once."""
    faults = {
        "none": "no profiles of this job in /",
        "one missing": "7 profiles of this job in /",
        "empty": "profile_4007.nsys-rep is empty",
        "unfinished": "nsys did not finish profile_4007.qdstrm",
    }
    limits = ", log_settle_seconds: 3"
    trials = {
        words: make_trial(fault.replace(" ", "-"), case=PROFILE, profiles=fault, limits=limits).start(
            "--variant", "profile"
        )
        for fault, words in faults.items()
    }
    for words, trial in trials.items():
        result = trial.end()
        assert result.verdicts == {PROFILE: "invalid run"}, result.out
        assert words in result.case(PROFILE)["headline"]


def test_a_report_of_an_earlier_job_is_none_of_this_job(make_trial: MakeTrial) -> None:
    before = make_trial("before", case=PGLE)
    assert before.start("--variant", "profile").end().verdicts == {PGLE: "passed"}
    before.stage.set(profiles="none")
    trial = make_trial("now", case=PGLE, stage=before.stage, limits=", log_settle_seconds: 3")
    result = trial.start("--variant", "profile").end()
    assert result.verdicts == {PGLE: "invalid run"}, result.out
    assert "there is no profile prof and no profile perf of this job" in result.case(PGLE)["headline"]
    assert "are from before this job" in result.case(PGLE)["headline"]


def test_a_trace_is_digested_where_it_lies(make_trial: MakeTrial) -> None:
    trial = make_trial(case=TRACE, keys={"network": "IB/GDRDMA"})
    result = trial.start("--variant", "nccl-trace").end()
    case = result.case(TRACE)
    assert case["verdict"] == "passed", result.out
    # Other ranks' output may tear some lines.
    assert re.search(r"16 ranks on 2 hosts made (400|3[5-9]\d) NCCL calls, network IB", case["headline"])
    assert len(trial.jobs()) == 1
    assert list(trial.stage.path.glob(".pacemark*")) == []


def test_a_trace_that_is_not_whole_or_over_sockets_is_invalid(make_trial: MakeTrial) -> None:
    """Three jobs at once."""
    faults = {
        "one missing": "15 of 16 ranks made calls: gpu-01 has 7 of 8",
        "cut": "the trace is not whole",
        "sockets": "NCCL fell back to TCP sockets",
    }
    given: dict[str, Any] = {"case": TRACE, "keys": {"network": "IB"}, "limits": ", log_settle_seconds: 3"}
    trials = {
        words: make_trial(fault.replace(" ", "-"), trace=fault, **given).start("--variant", "nccl-trace")
        for fault, words in faults.items()
    }
    for words, trial in trials.items():
        result = trial.end()
        assert result.verdicts == {TRACE: "invalid run"}, result.out
        assert words in result.case(TRACE)["headline"]


def test_of_a_large_trace_little_is_sent(lab: SlurmLab, make_trial: MakeTrial) -> None:
    sshd = lab.root / "log" / "sshd.out"
    before = sshd.stat().st_size
    # 70 MB. Reading it takes its time on a busy machine.
    trial = make_trial(case=TRACE, trace_calls=2000, limits=", stall_seconds: 300")
    result = trial.start("--variant", "nccl-trace").end()
    assert result.verdicts == {TRACE: "passed"}, result.out
    (log,) = trial.stage.path.rglob("log-*_nccltrace_*.out")
    assert log.stat().st_size > 5 * 10**7
    log.unlink()
    until(lambda: b"Transferred: sent" in sshd.read_bytes()[before:], "the end of the connection")
    told = re.findall(rb"Transferred: sent (\d+), received (\d+)", sshd.read_bytes()[before:])
    assert 0 < sum(int(sent) + int(received) for sent, received in told) < 5 * 10**6
