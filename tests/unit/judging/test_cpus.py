"""What other programs on a machine mean for a run on its CPU. The log is of a machine of two processors beside other programs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plugins.baselines.store import find
from plugins.judging.hardware import peak
from plugins.judging.judgement import Judgement
from plugins.judging.shelving import Origin, offer_of
from plugins.logs.formats import read
from plugins.recipes.expansion import load_recipe
from plugins.record.job import Job, JobRef, JobState, Phase
from plugins.record.outcome import Outcome
from plugins.record.verdict import Kind
from tests.unit import examples

ROOT = Path(__file__).resolve().parents[3]
BUSY = (ROOT / "tests" / "unit" / "cpu_logs" / "busy.log").read_text()
PROXY = load_recipe(ROOT / "suites" / "proxy")
CASE = PROXY.case("tiny-fp32-1gpus")
BEST = 0.3487
"""The best product of the log in TFLOP/s."""

STEP_TFLOP = 0.142539
"""What it says of a step."""

Sample = dict[str, Any]


def judged(text: str, *, known: bool = True) -> Judgement:
    """`known`: there is a baseline."""
    assert CASE is not None
    job = Job(ref=JobRef("proxy", CASE.id, "x", "7"), state=JobState(Phase.SUCCEEDED, "COMPLETED"))
    log, outcome = read("maxtext", [text.encode()]), Outcome("cpu", ROOT, None, job)
    baseline = find(ROOT / "baselines", PROXY, CASE, "cpu") if known else None
    return examples.judged(CASE, outcome, log, baseline)


def sampled(text: str, change: Callable[[Sample], Sample]) -> str:
    """The log with other values in the samples of its processors."""

    def changed(found: re.Match[str]) -> str:
        return f"cpu sample: {json.dumps(change(json.loads(found[1])))}"

    return re.sub(r"cpu sample: (.*)", changed, text)


def slower(text: str, times: float, first: int = 0) -> str:
    """The log with steps that take so many times as long from the step `first` on."""

    def changed(found: re.Match[str]) -> str:
        seconds = round(float(found[2]) * (times if int(found[1]) >= first else 1.0), 6)
        return (
            f"completed step: {found[1]}, seconds: {seconds:.6f}, TFLOP/s/device: {STEP_TFLOP / seconds:.6f}, "
            f"Tokens/s/device: {1024 / seconds:.3f}"
        )

    return re.sub(
        r"completed step: (\d+), seconds: ([\d.]+), TFLOP.*, Tokens/s/device: ([\d.]+)", changed, text
    )


def alone(sample: Sample) -> Sample:
    """Nobody else ran, and the products reached their best."""
    return {**sample, "share": 0.97, "tflops": 0.97 * BEST, "others_s": 0.02, "programs": {}}


IDLE = slower(sampled(BUSY, alone), 0.33)
"""As if the machine had nothing else to do: its steps took 0.33 of the time."""


def test_a_run_beside_other_programs_passes_and_says_so() -> None:
    found = judged(BUSY)
    assert found.verdict.kind is Kind.PASSED
    who = "other programs had 59 % of the processors (python): judged by what this one had of them"
    assert found.verdict.remarks[-1] == who


def test_without_its_samples_the_same_run_is_too_slow() -> None:
    found = judged(re.sub("cpu sample: .*\n", "", BUSY))
    assert found.verdict.kind is Kind.TOO_SLOW
    assert found.expected is not None
    assert found.expected.mfu_basis.peak_tflops == BEST
    assert "its band is wide, -40 to +60 %: no table has numbers for all CPUs" in found.text


def test_a_slow_run_by_itself_is_too_slow_and_no_other_program_explains_it() -> None:
    verdict = judged(slower(IDLE, 2.2)).verdict
    assert verdict.kind is Kind.TOO_SLOW
    who = "other programs had less than 1 % of the processors, which explains no slow step"
    assert verdict.remarks[-1] == who


@pytest.mark.parametrize("times", [1.7, 1.85, 2.0])
def test_a_program_that_is_slow_beside_others_never_passes(times: float) -> None:
    assert judged(slower(BUSY, times)).verdict.kind in (Kind.INVALID, Kind.TOO_SLOW)


def test_beside_others_a_run_that_barely_passes_is_invalid() -> None:
    """A program that does its work twice would pass, too, if it had more of the processors than was counted."""
    steady = re.sub(r"seconds: [\d.]+,", "seconds: 1.0,", BUSY)
    assert judged(slower(steady, 2.8)).verdict.kind is Kind.PASSED
    verdict = judged(slower(steady, 3.1)).verdict
    assert verdict.headline.startswith("invalid run: other programs had 59 % of the processors (python), and")
    assert verdict.deviation is None
    assert verdict.remarks[0].startswith("judged beside them, it is passed: ")


def test_a_program_that_is_far_too_slow_beside_others_is_too_slow() -> None:
    verdict = judged(slower(BUSY, 3)).verdict
    assert verdict.kind is Kind.TOO_SLOW
    assert verdict.remarks[-1].startswith(
        "other programs had 59 % of the processors (python): judged by what"
    )


@pytest.mark.parametrize(
    "load",
    [
        {"others_s": 0.0},  # a thread or a child of the program computes, too
        {"others_s": 0.0, "share": 0.97},  # the clock fell
    ],
)
def test_products_that_no_other_program_slowed_excuse_nothing(load: Sample) -> None:
    verdict = judged(sampled(BUSY, lambda sample: {**sample, **load})).verdict
    assert verdict.kind is Kind.TOO_SLOW


def test_load_of_its_own_beside_others_excuses_nothing() -> None:
    """Its children computed all the time, so that it had the whole time of its threads."""
    verdict = judged(sampled(BUSY, lambda sample: {**sample, "share": 0.95})).verdict
    assert verdict.kind is not Kind.PASSED


def test_where_it_cannot_be_told_the_run_is_invalid_and_says_what_to_do() -> None:
    """The others ran during the last steps alone, so that the steps before do not fit."""
    quiet = re.compile(r"(completed step: (?:\d|[1-3]\d), .*\ncpu sample: )(.*)")
    text = quiet.sub(
        lambda found: found[1] + json.dumps(alone(json.loads(found[2]))), slower(BUSY, 3, first=45)
    )
    verdict = judged(text).verdict
    assert verdict.kind is Kind.INVALID
    assert verdict.headline.startswith("invalid run: other programs had ")
    assert "% of the processors (python), and the steps do not tell the machine's pace" in verdict.headline
    assert "let this program have the processors for itself, and run it again" in verdict.headline
    assert verdict.remarks[0].startswith("judged beside them, it is ")


def test_a_machine_that_does_not_tell_is_judged_by_the_best_product() -> None:
    def untold(sample: Sample) -> Sample:
        return {key: value for key, value in sample.items() if key not in ("others_s", "programs")}

    verdict = judged(sampled(BUSY, untold)).verdict
    assert verdict.kind is Kind.TOO_SLOW
    assert verdict.remarks[-1].startswith("this machine does not tell who had its processors")


def test_a_hypervisor_and_the_limit_of_a_cgroup_count_as_others() -> None:
    def elsewhere(sample: Sample) -> Sample:
        stolen, held = 0.2 * sample["others_s"], 0.8 * sample["others_s"]
        return {**sample, "others_s": 0.0, "stolen_s": stolen, "held_s": held, "programs": {}}

    verdict = judged(sampled(BUSY, elsewhere)).verdict
    assert verdict.kind is Kind.PASSED
    assert verdict.remarks[-1] == (
        "a hypervisor gave 12 % of the processors to other machines, the CPU limit of its cgroup kept 47 % of the "
        "processors from this program: judged by what this one had of them"
    )


def test_few_processors_of_many_explain_little() -> None:
    """One other program on a machine of 64 processors leaves two threads alone."""
    verdict = judged(sampled(BUSY, lambda sample: {**sample, "processors": 64})).verdict
    assert verdict.kind is Kind.TOO_SLOW


def test_runs_that_are_judged_together_count_by_the_highest_peak() -> None:
    assert CASE is not None
    logs = [read("maxtext", [text.encode()]) for text in (BUSY, IDLE)]
    assert peak(CASE, logs) == peak(CASE, logs[1:]) != peak(CASE, logs[:1])
    assert peak(CASE, [logs[0], read("maxtext", [b""])]) is None


def test_behind_a_runtimes_prefix_the_samples_count() -> None:
    text = "".join(f"2026-11-23T20:16:26.123456Z stdout F {line}\n" for line in BUSY.splitlines())
    assert judged(text).verdict.kind is Kind.PASSED
    assert len(read("maxtext", [text.encode()]).processors) == 50


@pytest.mark.parametrize(
    "damage",
    [
        f'"own_s": {"9" * 308}',
        '"own_s": NaN',
        '"own_s": 1e400',
        '"own_s": -1.0',
        '"share": 0.0, "own_s": 1.0',
        '"own_s": "much"',
        '"own_s": 1.0',
        f'"own_s": {"[" * 5000}',
    ],
)
def test_a_damaged_sample_does_not_count(damage: str) -> None:
    cut = damage == '"own_s": 1.0'
    text = re.sub(r'"own_s": [\d.]+' + (".*" if cut else ""), damage, BUSY)
    log = read("maxtext", [text.encode()])
    assert (len(log.steps), log.processors) == (50, ())


def test_samples_of_an_earlier_attempt_do_not_count() -> None:
    log = read("maxtext", [(IDLE + BUSY).encode()])
    assert log.processors == read("maxtext", [BUSY.encode()]).processors


def test_a_run_beside_others_becomes_no_baseline() -> None:
    origin = Origin("mine", "JAX", "1", "2026-11-23")
    who = "other programs had 59 % of the processors (python): run it again without them"
    assert offer_of(judged(BUSY, known=False), origin) == who
    assert "other programs" not in str(offer_of(judged(IDLE, known=False), origin))
