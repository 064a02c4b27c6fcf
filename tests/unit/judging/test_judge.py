"""From what became of a job and its log to the one verdict that the case ends in."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import plugins.judging.job_files
import plugins.suite.judged
from plugins.baselines.store import Baseline
from plugins.judging.choice import Choice, Repeats, Setting
from plugins.judging.job_files import MOST_PARSED, ParsedLogs
from plugins.judging.judge import another_run
from plugins.judging.judgement import Judgement
from plugins.logs import Log
from plugins.logs.formats import read
from plugins.logs.log import Fact
from plugins.record.folder import LOG, keep_try
from plugins.record.job import Job, JobRef, JobState, Phase
from plugins.record.outcome import Outcome
from plugins.record.verdict import Kind
from plugins.suite.judged import Judge
from plugins.suite.measured import Target
from tests.printed.nemo2 import nemo2_line
from tests.unit import examples
from tests.unit.examples import nemo2_text, outcome, parse, times

FAILED = {"raw": "FAILED", "phase": Phase.FAILED, "exit_code": "1:0"}
NODE_FAIL = {
    "raw": "NODE_FAIL",
    "phase": Phase.FAILED,
    "exit_code": "1:0",
    "reason": "NodeDown",
    "nodes": "gpu[001-064]",
}


def judged(
    job: Outcome,
    log: Log | str,
    *,
    against: Baseline | None = None,
    last_lines: Sequence[str] = (),
    strict_last: bool = False,
) -> Judgement:
    return examples.judged(
        examples.case(),
        job,
        parse(log) if isinstance(log, str) else log,
        against or examples.baseline(),
        last_lines=tuple(last_lines),
        strict_last=strict_last,
    )


def until(last: int, seconds: float | str = 10.07, **changed: Any) -> str:
    return "".join(f"{nemo2_line(i, seconds, **changed)}\n" for i in range(last + 1))


GIVEN_UP = {
    "failure": "given up",
    "message": "given up after step 24 of 0 to 49: ... 2.5 GPU-hours saved",
    **FAILED,
}
REFUSED = {
    "failure": "infrastructure",
    "message": "sbatch: error: Invalid account",
    "phase": Phase.FAILED,
    "id": "",
    "log": None,
}
LOST = {"failure": "lost", "message": "the cluster no longer knows job 4711", "phase": Phase.FAILED}
CUT_OFF = until(20) + "".join(f"{nemo2_line(i, loss='nan')}\n" for i in range(21, 31))
NOT_FINITE = "the loss is not a finite number from step 21 on (10 steps)"


@pytest.mark.parametrize(
    ("job", "log", "kind", "headline"),
    [
        ({}, nemo2_text([1.06 * seconds for seconds in times()]), Kind.TOO_SLOW, "too slow: "),
        ({}, nemo2_text([seconds / 1.15 for seconds in times()]), Kind.TOO_FAST, "too fast: "),
        ({}, nemo2_text([10.07 * (1.05 if i % 2 else 0.95) for i in range(50)]), Kind.NOISY, "noisy: "),
        ({}, until(49, gbs=512), Kind.INVALID, "global batch size 512 at step 0, this case runs 1024; and 49 more such steps"),
        ({}, until(48), Kind.INVALID, "the last step seen is 48 of 0 to 49: step 49 is missing"),
        ({}, CUT_OFF, Kind.INVALID, NOT_FINITE),
        ({}, until(49, loss="nan"), Kind.INVALID, "the loss is not a finite number from step 0 on (50 steps)"),
        ({"log": None}, "", Kind.INVALID, "the log has no training step (it is empty)"),
        ({}, "Traceback (most recent call last):\n", Kind.INVALID, "the log has no training step"),
        ({}, nemo2_text() + until(9), Kind.INVALID, "the last step seen is 9 of 0 to 49"),
        ({}, f"NCCL INFO Using network Socket\n{nemo2_text()}", Kind.INVALID, "NCCL fell back"),
        ({}, "".join(f"{nemo2_line(i, last=24)}\n" for i in range(25)), Kind.INVALID, "the run announced 25 steps"),
        (REFUSED, "", Kind.INFRASTRUCTURE, "infrastructure: sbatch: error: Invalid account"),
        ({"failure": "interrupted", "message": "Ctrl-C"}, nemo2_text(), Kind.INFRASTRUCTURE, "infrastructure: Ctrl-C"),
        (LOST, until(17), Kind.LOST, "lost: the cluster no longer knows job 4711"),
        (FAILED, nemo2_text([12.0] * 50), Kind.TOO_SLOW, "too slow: "),
        (FAILED, CUT_OFF, Kind.INVALID, NOT_FINITE),
        (FAILED, nemo2_text() + until(9), Kind.INFRASTRUCTURE, "infrastructure: job 4711 ended FAILED on gpu[001-064] after step 9 of 0 to 49"),
        (FAILED, "", Kind.INFRASTRUCTURE, "infrastructure: job 4711 ended FAILED on gpu[001-064] before its first step (exit code 1:0)"),
        (GIVEN_UP, until(24, 11.5, gbs=512), Kind.INVALID, "global batch size 512"),
        (GIVEN_UP, until(24, 11.5).replace(nemo2_line(12, 11.5) + "\n", ""), Kind.INVALID, "step 12 is missing"),
        (GIVEN_UP, until(1, "x"), Kind.INVALID, "no settled step in its log has a time that can be read"),
    ],
)  # fmt: skip
def test_each_end_has_one_verdict(job: dict[str, object], log: str, kind: Kind, headline: str) -> None:
    found = judged(outcome(**job), log)
    assert found.verdict.kind is kind
    assert headline in found.verdict.headline
    judged_by_pace = kind in (Kind.TOO_SLOW, Kind.TOO_FAST, Kind.NOISY)
    assert (found.measurement is not None, found.expected is not None) == (judged_by_pace, judged_by_pace)


def test_a_case_without_a_baseline_says_what_it_measured() -> None:
    job = outcome(gpu="b200")
    found = examples.judged(examples.case(), replace(job, gpu="b200"), parse(nemo2_text()), None)
    assert found.verdict.kind is Kind.NO_BASELINE
    assert found.verdict.headline == (
        "no baseline: measured 10.11 s a step, 829,734 tokens/s, spread 0.29 %; nothing to compare with: "
        "baselines/llama3.yaml has no 70b-fp8-512gpus of release 25.04 on b200"
    )
    assert found.measurement is not None
    assert found.measurement.mfu is not None
    assert found.expected is None


def test_a_case_without_a_baseline_must_be_valid_all_the_same() -> None:
    found = examples.judged(examples.case(), outcome(gpu="b200"), parse(until(48)), None)
    assert found.verdict.kind is Kind.INVALID


@pytest.mark.parametrize("state", ["FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL"])
def test_a_job_that_failed_after_all_its_steps_is_judged_with_a_remark(state: str) -> None:
    found = judged(outcome(raw=state, phase=Phase.FAILED, exit_code="1:0"), nemo2_text())
    assert found.verdict.kind is Kind.PASSED
    assert found.verdict.remarks == (
        f"job 4711 ended {state} (exit code 1:0) after its last step: every step is there, so the pace "
        f"stands, but look at its clean-up",
    )


# A launcher that hides its program's exit code ends like this, and the cause stands at the end of its log.
def test_an_invalid_run_that_is_not_whole_quotes_the_end_of_its_log() -> None:
    last = ["RuntimeError: CUDA error: an illegal memory access", "Training completed"]
    found = judged(outcome(), until(17), last_lines=last)
    assert found.verdict.kind is Kind.INVALID
    assert found.details[-2:] == tuple(f"its log   | {line}" for line in last)
    assert "its log   | RuntimeError" in found.text
    spoilt = judged(outcome(), nemo2_text() + "NCCL INFO Using network Socket\n", last_lines=last)
    assert spoilt.verdict.kind is Kind.INVALID
    assert not [line for line in spoilt.details if "RuntimeError" in line]


def test_a_job_that_died_is_infrastructure_and_says_where() -> None:
    found = judged(outcome(**NODE_FAIL), until(17), last_lines=["slurmstepd: error: *** STEP CANCELLED ***"])
    assert found.verdict.kind is Kind.INFRASTRUCTURE
    assert found.verdict.headline == (
        "infrastructure: job 4711 ended NODE_FAIL on gpu[001-064] after step 17 of 0 to 49 (reason NodeDown, "
        "exit code 1:0)"
    )
    assert found.details == (
        "job       4711 (pacemark-1.llama3), NODE_FAIL, nodes gpu[001-064], queued 60 s, ran 900 s",
        "log       log.txt",
        "its log   | slurmstepd: error: *** STEP CANCELLED ***",
    )


def test_a_log_from_elsewhere_is_remarked_whatever_the_verdict() -> None:
    noted = {"log_note": "the pod is gone; the steps were read from gs://bucket/log"}
    for found in (
        judged(outcome(**noted), nemo2_text()),
        judged(outcome(**noted), until(20)),
        judged(outcome(failure="lost", message="nobody knows", **noted), ""),
        judged(outcome(raw="FAILED", phase=Phase.FAILED, **noted), until(20)),
    ):
        assert noted["log_note"] in found.verdict.remarks
        assert noted["log_note"] in found.text


def test_the_published_statistic_decides_alone_when_asked() -> None:
    text = nemo2_text(times(s49=13.1))
    assert judged(outcome(), text).verdict.kind is Kind.PASSED
    assert judged(outcome(), text, strict_last=True).verdict.kind is Kind.TOO_SLOW


def test_the_statistic_is_that_of_the_baseline() -> None:
    beyond = judged(outcome(), nemo2_text(), against=examples.baseline(statistic="mean:45-60"))
    assert beyond.verdict.kind is Kind.INVALID
    found = judged(outcome(), nemo2_text(times(s40=11.0)), against=examples.baseline(statistic="mean:35-44"))
    assert str(found.statistic) == "mean:35-44"
    assert found.measurement is not None
    assert found.measurement.step_time == pytest.approx(
        (sum(times()[35:45]) - times()[40] + 11.0) / 10, abs=0.001
    )


@pytest.mark.parametrize("peak", [None, 0.0, float("inf")])
def test_a_run_that_does_not_state_its_own_peak_is_an_invalid_run(tmp_path: Path, peak: float | None) -> None:
    known = examples.baseline()
    table = known.table.model_copy(update={"peak": "measured"})
    cell = known.cell.model_copy(update={"step_time": None})
    log = parse(nemo2_text())
    for job in (outcome(), outcome(**GIVEN_UP)):
        found = judged(
            job,
            Log(steps=log.steps, planned=50, size=log.size, peak_tflops=peak),
            against=Baseline(known.path, table, cell),
        )
        assert found.verdict.kind is Kind.INVALID
        assert "the run did not state its machine's own peak" in found.verdict.headline


def test_the_text_has_headline_figures_and_remarks() -> None:
    found = judged(outcome(attempts=2), nemo2_text([seconds * 1.1 for seconds in times()]))
    assert found.text.splitlines() == [
        "llama3/70b-fp8-512gpus: too slow: 11.12 s a step where 10.07 s is expected, -9.4 % throughput "
        "(limit -5 %)",
        *[f"  {line}" for line in found.details],
        "  remark    its GPU-hours are of its last attempt: the cluster does not tell how long the others ran",
        "  remark    the job was started 2 times; judged by its last attempt",
    ]
    assert (
        "  job       4711 (pacemark-1.llama3), COMPLETED, nodes gpu[001-064], queued 60 s, ran 900 s"
        in found.text
    )


def test_a_straggling_process_is_named() -> None:
    log = parse(nemo2_text())
    *rest, last = log.steps
    assert last.seconds is not None
    slow = replace(last, ranks=512, slowest_seconds=1.1 * last.seconds, slowest_rank=17)
    found = judged(outcome(), replace(log, steps=(*rest, slow)))
    assert found.verdict.kind is Kind.PASSED
    assert "process 17 of 512 took" in found.verdict.remarks[-1]
    even = replace(slow, slowest_seconds=1.01 * last.seconds)
    assert judged(outcome(), replace(log, steps=(*rest, even))).verdict.remarks == ()


# What the fleet ended itself, and what it tried before.

TRIED = Job(
    ref=JobRef("llama3", examples.CASE, "pacemark-1.x", "17"),
    state=JobState(Phase.FAILED, "NODE_FAIL", nodes="gpu[001-064]"),
    message="job 17 ended NODE_FAIL on gpu[001-064]",
)


def test_a_run_given_up_for_its_pace_is_too_slow_and_shows_what_was_measured() -> None:
    log = "".join(f"{nemo2_line(i, 11.5)}\n" for i in range(25))
    found = judged(outcome(**GIVEN_UP), log)
    assert found.verdict.kind is Kind.TOO_SLOW
    assert "given up after step 24" in found.verdict.headline
    assert "GPU-hours saved" in found.verdict.headline
    assert found.measurement is not None
    assert found.measurement.timing.steady == 11.5
    assert any("expected" in line for line in found.details)
    garbled = judged(outcome(**GIVEN_UP), log.replace(nemo2_line(24, 11.5), nemo2_line(24, "x")))
    assert garbled.verdict.kind is Kind.TOO_SLOW
    assert garbled.measurement is not None
    assert garbled.measurement.step_time == 11.5


@pytest.mark.promise("no wrong pass: another job's log")
@pytest.mark.parametrize("job", [outcome(), outcome(**GIVEN_UP)])
def test_the_log_of_another_job_is_no_pass(job: Outcome) -> None:
    log = replace(parse(nemo2_text([11.5] * 50)), facts=(Fact("job", 17, "SLURM_JOB_ID 17"),))
    found = judged(job, log)
    assert found.verdict.kind is Kind.INVALID
    assert 'the log says "SLURM_JOB_ID 17", this case\'s job is 4711' in found.verdict.headline


def test_a_pass_at_the_second_try_tells_of_the_first() -> None:
    found = judged(outcome(earlier=(TRIED,)), nemo2_text())
    assert found.verdict.kind is Kind.PASSED
    assert any("1 job of this case ended as infrastructure before" in r for r in found.verdict.remarks)
    failed = judged(outcome(earlier=(TRIED,), **NODE_FAIL), until(3))
    assert failed.verdict.kind is Kind.INFRASTRUCTURE
    for seen in (found, failed):
        assert any("17: job 17 ended NODE_FAIL" in line for line in seen.details)


def test_nodes_that_the_user_left_out_are_blamed_for_nothing() -> None:
    first = replace(TRIED, excluded=("gpu017",))
    remarks = judged(outcome(earlier=(first,), excluded=("gpu017", "gpu003")), nemo2_text()).verdict.remarks
    assert "kept away from gpu017, by --exclude-nodes" in remarks
    assert "kept away from gpu003, which the end of an earlier job is blamed on" in remarks


def test_a_node_that_was_left_out_and_used_all_the_same_is_told() -> None:
    """A launcher may set its own PATH, and with it another sbatch."""
    for excluded, told in ((("gpu017", "gpu003"), True), (("gpu003",), False)):
        remarks = judged(outcome(nodes="gpu[016-017]", excluded=excluded), nemo2_text()).verdict.remarks
        words = "it ran on gpu017 all the same: its launcher did not pass that on"
        assert (words in remarks) == told


# What a suite's test asserts agrees with the verdict, also where a run has no figure to compare.


def target(own: float | None, seconds: float) -> Target:
    judgement = judged(
        examples.outcome(), examples.nemo2_text([seconds + step % 2 / 1000 for step in range(50)])
    )
    return Target(39.5, "% MFU", own, 0.05, 0.05, judgement)


@pytest.mark.parametrize("own", [39.5, 80.0, None])
@pytest.mark.parametrize(("seconds", "passes"), [(10.07, True), (11.5, False)])
def test_the_runs_own_figure_agrees_with_the_verdict(own: float | None, seconds: float, passes: bool) -> None:
    """None: the last step was so fast that its MFU would be above 100 %, and the steady median decides."""
    assert (own == target(own, seconds)) is passes


def test_any_other_figure_is_compared_by_the_tolerance() -> None:
    other = target(39.5, 11.5)
    assert other == 38.0
    assert other != 30.0
    assert other != "39.5"
    assert other != None  # noqa: E711


# Each log is parsed once and each end of a job is judged once, and the disk has the last word

CASE = examples.case()
SETTING = Setting(examples.llama3(), Choice(), examples.BASELINES)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many logs were parsed, and how many cases judged."""
    counts: Counter[str] = Counter()

    def count(module: Any, name: str, word: str) -> None:
        plain: Callable[..., Any] = getattr(module, name)

        def counting(*values: Any) -> Any:
            counts[word] += 1
            return plain(*values)

        monkeypatch.setattr(module, name, counting)

    count(plugins.judging.job_files, "read", "parsed")
    count(plugins.suite.judged, "judge", "judged")
    return counts


def ended(folder: Path, text: str, *earlier: Job) -> Outcome:
    """The end of the case's job, whose log says this."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / LOG).write_text(text)
    return replace(examples.outcome(), folder=folder, log=folder / LOG, earlier=earlier)


def undecided(seed: int) -> str:
    """A log whose pace is at the limit of the band."""
    dice, limit = random.Random(seed), 1 / (1 - 0.05)
    return nemo2_text([examples.STEP_TIME * limit * dice.gauss(1, 0.01) for _ in range(50)])


def test_each_of_several_runs_is_parsed_once_though_its_log_moves(
    tmp_path: Path, counted: Counter[str]
) -> None:
    judge, first = Judge(), ended(tmp_path, undecided(0))
    assert "standard errors" in another_run(judge.judge(CASE, first, SETTING), Repeats())
    keep_try(tmp_path, 1)
    before = replace(first.job, failure="repeated", try_number=1)
    second = ended(tmp_path, undecided(1), before)
    judged = judge.judge(CASE, second, SETTING)
    assert len(judged.runs) == 2
    assert judge.judge(CASE, second, SETTING) is judged
    assert counted == {"parsed": 2, "judged": 2}


@pytest.mark.parametrize("kept_time", [False, True])
def test_a_log_that_changed_is_parsed_and_judged_again(
    tmp_path: Path, counted: Counter[str], kept_time: bool
) -> None:
    judge, outcome = Judge(), ended(tmp_path, nemo2_text(times()))
    assert judge.judge(CASE, outcome, SETTING).verdict.kind is Kind.PASSED
    path = tmp_path / LOG
    before, text = path.stat(), path.read_text()
    slow = nemo2_text([1.1 * seconds for seconds in times()])
    path.write_text(slow)
    if kept_time:
        # Somebody puts another file with the time of the first in its place.
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert len(slow) != len(text)
    assert judge.judge(CASE, outcome, SETTING).verdict.kind is Kind.TOO_SLOW
    assert counted == {"parsed": 2, "judged": 2}


def test_another_file_of_the_same_size_and_time_is_parsed(tmp_path: Path, counted: Counter[str]) -> None:
    logs, path = ParsedLogs(), tmp_path / LOG
    path.write_text(nemo2_text(times()))
    before = path.stat()
    assert logs.read_log("nemo2", tmp_path).steps[0].loss != 9.0
    other = tmp_path / "other"
    other.write_text(path.read_text().replace("reduced_train_loss: 11.96", "reduced_train_loss: 19.96"))
    other.replace(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert logs.read_log("nemo2", tmp_path).steps[0].loss == 19.96
    assert counted["parsed"] == 2


def test_another_end_of_the_same_job_is_judged_again(tmp_path: Path, counted: Counter[str]) -> None:
    judge, outcome = Judge(), ended(tmp_path, nemo2_text(times()))
    judge.judge(CASE, outcome, SETTING)
    lost = replace(outcome, job=replace(outcome.job, failure="lost", message="gone"))
    assert judge.judge(CASE, lost, SETTING).verdict.kind is Kind.LOST
    assert counted == {"parsed": 1, "judged": 2}


def test_what_is_known_of_a_judged_case_is_forgotten(tmp_path: Path, counted: Counter[str]) -> None:
    judge, outcome = Judge(), ended(tmp_path / "case", nemo2_text(times()))
    ended(tmp_path / "other", nemo2_text(times()))
    judge.logs.read_log("nemo2", tmp_path / "other")
    judge.forget(judge.judge(CASE, outcome, SETTING))
    judge.judge(CASE, outcome, SETTING)
    judge.logs.read_log("nemo2", tmp_path / "other")
    assert counted == {"parsed": 3, "judged": 2}


def test_the_oldest_parsed_logs_make_room(tmp_path: Path, counted: Counter[str]) -> None:
    logs = ParsedLogs()
    folders = [tmp_path / str(number) for number in range(MOST_PARSED + 1)]
    for folder in folders:
        ended(folder, nemo2_text(times()[:1]))
        logs.read_log("nemo2", folder)
    logs.read_log("nemo2", folders[1])
    assert counted["parsed"] == MOST_PARSED + 1
    logs.read_log("nemo2", folders[0])
    assert counted["parsed"] == MOST_PARSED + 2


def test_a_file_that_grows_while_it_is_read_is_not_kept(
    tmp_path: Path, counted: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logs, path = ParsedLogs(), tmp_path / LOG
    path.write_text(nemo2_text(times()[:10]))

    def grows(*values: Any) -> Any:
        log = read(*values)
        with path.open("a") as file:
            file.write("more\n")
        return log

    with monkeypatch.context() as patch:
        patch.setattr(plugins.judging.job_files, "read", grows)
        logs.read_log("nemo2", tmp_path)
    logs.read_log("nemo2", tmp_path)
    assert counted["parsed"] == 1, "the second time, too"
