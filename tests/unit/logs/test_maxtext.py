"""MaxText's log, and the local proxy's, which prints the same line."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import replace

import pytest

from plugins.baselines.metrics import FlopsDefinition, flops_per_sequence
from plugins.judging.validity.run import TimedRun
from plugins.judging.validity.steps import profiled_as_published
from plugins.logs import Step
from plugins.recipes.expansion import load_recipe
from plugins.record.baseline import Statistic
from tests.printed.maxtext import line
from tests.unit import examples
from tests.unit.examples import parse, problems

PUBLISHED = (
    "completed step: 49, seconds: 7.908, TFLOP/s/device: 460.480, Tokens/s/device: 1035.970, "
    "total_weights: 524288, loss: 0.000"
)


def only(text: str | bytes) -> Step:
    (step,) = parse(text, "maxtext").steps
    return step


def test_the_published_line() -> None:
    step = only(PUBLISHED + "\n")
    assert step.tokens_per_gpu is not None
    assert step.flops_per_gpu is not None
    # Two sequences of 4096 tokens a device; 7.908 x 1035.970 itself is 8192.45.
    assert (step.tokens_per_gpu.low, step.tokens_per_gpu.high) == pytest.approx(
        (8191.929, 8192.973), abs=0.001
    )
    assert 2 * 1.82064e15 in step.flops_per_gpu
    assert replace(step, tokens_per_gpu=None, flops_per_gpu=None) == Step(
        index=49,
        seconds=7.908,
        resolution=0.0005,
        tokens=524288,
        tflops_per_gpu=460.48,
        loss=0.0,
        slowest_seconds=7.908,
    )


@pytest.mark.parametrize(
    ("printed", "seconds", "half_a_unit"),
    [
        *(("7.908", 7.908, 0.0005), ("0.123456", 0.123456, 5e-7), ("12.0", 12.0, 0.05)),
        *((text, None, 0) for text in ("7", "nan", "-7.908", "7,908", "7.9.08", "1e3", "")),
    ],
)
def test_a_time_and_its_resolution_are_the_decimals_that_stand_there(
    printed: str, seconds: float | None, half_a_unit: float
) -> None:
    steps = parse(f"{line(3, printed)} {line(4)}\n", "maxtext").steps
    assert [step.seconds for step in steps if step.index == 3] == ([] if seconds is None else [seconds])
    assert seconds is None or steps[0].resolution == pytest.approx(half_a_unit)


@pytest.mark.parametrize("between", ["[rank3] careful", "\n[rank3] careful\n", "\n"])
def test_a_line_cut_by_another_rank_never_states_another_time(between: str) -> None:
    for cut in range(1, len(PUBLISHED) + 1):
        assert parse(PUBLISHED[:cut], "maxtext").steps == (), PUBLISHED[:cut]
    for at in range(1, PUBLISHED.index(", loss: ")):
        found = parse(f"{PUBLISHED[:at]}{between}{PUBLISHED[at:]}\n", "maxtext").steps
        assert [(step.index, step.seconds) for step in found] in ([], [(49, 7.908)]), at


def peak(*numbers: object) -> float | None:
    lines = (f"proxy machine peak: {number} TFLOP/s/device (bf16, 8192)\n" for number in numbers)
    return parse("".join(lines), "maxtext").peak_tflops


def test_of_several_peaks_the_best_counts() -> None:
    assert peak(0.19, 0.36, 0.35) == 0.36
    assert peak("0", "0.0", "1e400", "0e10") is None
    line = "proxy machine peak: 812.5 TFLOP/s/device (bf16)"
    assert [parse(line[:cut], "maxtext").peak_tflops for cut in range(len(line))] == [None] * len(line)


def test_a_megabyte_without_a_line_feed() -> None:
    assert parse(b"x" * (1 << 20) + f"{PUBLISHED}\n{line(3)}\n".encode(), "maxtext").last_index == 3


# Many processes, all of which print every step.


def ticks(
    ranks: int, steps: Iterable[int], *, late: int = 0, seed: int = 1, label: bool = False
) -> list[str]:
    """The lines of one run in the order of their arrival: any rank may be up to `late` steps behind the first."""
    chance = random.Random(seed)
    lags = [chance.uniform(0, late) for _ in range(ranks)]
    arrivals = [(step + lags[rank] + chance.random(), rank, step) for rank in range(ranks) for step in steps]
    text = []
    for _, rank, step in sorted(arrivals):
        seconds = f"{7.9 + step / 1000 + rank / 1e5:.5f}"
        text.append((f"{rank}: " if label else "") + line(step, seconds))
    return text


def expected_seconds(ranks: int, steps: int) -> list[float]:
    return [round(7.9 + step / 1000 + (ranks // 2) / 1e5, 5) for step in range(steps)]


def joined(*runs: list[str]) -> str:
    return "".join(f"{text}\n" for run in runs for text in run)


def check_whole(text: str, ranks: int, restarted: tuple[int, ...] = ()) -> None:
    log = parse(text, "maxtext")
    assert [step.seconds for step in log.steps] == expected_seconds(ranks, 50)
    assert {step.ranks for step in log.steps} == {ranks}
    assert [step.slowest_seconds for step in log.steps] == [
        round(7.9 + step / 1000 + (ranks - 1) / 1e5, 5) for step in range(50)
    ]
    assert (log.ranks, log.repeated, log.restarted_after) == (ranks, (), restarted)


@pytest.mark.parametrize(("ranks", "late"), [(1, 0), (2, 1), (8, 0), (8, 3), (64, 3)])
def test_a_profiling_run_and_the_timed_run_of_all_processes(ranks: int, late: int) -> None:
    check_whole(joined(ticks(ranks, range(15), late=late), ticks(ranks, range(50), late=late, seed=2)), ranks)


def test_a_step_that_is_printed_too_often_among_those_of_its_run_is_no_earlier_run() -> None:
    first = [line(index) for index in (0, 1, 0, 0, 0, 1)]
    log = parse(joined(first, ticks(2, range(2, 50))), "maxtext")
    assert (log.ranks, log.repeated, log.restarted_after) == (2, (0,), ())


NSYS = "Capture range started in the application.", "Capture range ended in the application."
# tsl/profiler/lib/profiler_session.cc: XLA's own profiler.
XLA = (
    "I0000 00:00:1788059620.600370    8310 profiler_session.cc:186] Profiler session started.",
    "I0000 00:00:1788059655.869582    8310 profiler_session.cc:134] Profiler session collecting data.",
)


# The published run is profiled on steps 9 to 11 by nsys. `until` None: the profiler's last word never came.
@pytest.mark.parametrize(("begins", "ends"), [NSYS, XLA])
@pytest.mark.parametrize(
    ("first", "until", "said"),
    [(8, 11, ""), (8, 14, ""), (12, 14, "behind step 12"), (29, 32, "behind step 29"), (8, 30, "until step 30"), (8, None, "until step 49")],
)  # fmt: skip
def test_a_profiler_on_other_steps_than_in_the_published_run(
    begins: str, ends: str, first: int, until: int | None, said: str
) -> None:
    lines = list(ticks(1, range(50)))
    if until is not None:
        lines.insert(until + 1, ends)
    lines.insert(first + 1, begins)
    report = ["Generating '/tmp/nsys-report-4712.qdstrm'"]
    log = parse(joined(ticks(1, range(15)), [*NSYS, *report], lines, report if until else []), "maxtext")
    case = examples.case("70b-bf16-64gpus", "maxtext_llama2")
    (*reasons,) = profiled_as_published(TimedRun(case, log, Statistic()))
    assert said in "".join(reasons)
    assert bool(reasons) is bool(said)
    assert all("not on steps 9 to 11 as in the published run" in reason for reason in reasons)


def test_the_slowest_process_is_named_by_its_label() -> None:
    log = parse(joined(ticks(64, range(50), late=2, label=True)), "maxtext")
    assert {step.slowest_rank for step in log.steps} == {63}
    assert {step.slowest_rank for step in parse(joined(ticks(64, range(50))), "maxtext").steps} == {None}


@pytest.mark.parametrize(
    ("ranks", "died_after", "label"),
    [(1, 0, False), (1, 7, True), (1, 48, False), (64, 0, True), (64, 1, False), (64, 8, True), (64, 17, False)],
)  # fmt: skip
def test_a_restart_leaves_the_last_attempt(ranks: int, died_after: int, label: bool) -> None:
    first = ticks(ranks, range(died_after + 1), seed=1, late=1, label=label)
    first = [text.replace("seconds: 7.9", "seconds: 1.9") for text in first]
    second = ticks(ranks, range(50), seed=2, late=1, label=label)
    check_whole(joined(first, second), ranks, (died_after,))


def test_a_requeued_job_that_profiles_again() -> None:
    profile, died, whole = ticks(8, range(15)), ticks(8, range(21)), ticks(8, range(50))
    check_whole(joined(profile, died, profile, whole), 8, (20,))


def test_lines_lost_leave_the_median_of_the_others_and_few_of_many_no_time() -> None:
    lost = ("seconds: 7.92000,", "seconds: 7.92001,", "seconds: 7.92063,")
    lines = [text for text in ticks(64, range(50), late=1) if not any(part in text for part in lost)]
    log = parse(joined(lines), "maxtext")
    assert (log.ranks, log.repeated) == (64, ())
    assert (log.steps[20].ranks, log.steps[20].seconds, log.steps[20].slowest_seconds) == (
        61,
        7.92032,
        7.92062,
    )
    kept = [text for place, text in enumerate(ticks(8, range(50))) if not 160 < place < 166]
    few = parse(joined(kept), "maxtext").steps[20]
    assert (few.index, few.ranks, few.seconds) == (20, 3, None)


def test_a_line_printed_twice_is_a_repeat() -> None:
    lines = ticks(8, range(50))
    assert parse(joined([*lines, lines[-1]]), "maxtext").repeated == (49,)
    assert parse(joined([lines[0], *lines]), "maxtext").restarted_after == (0,)
    assert parse(joined([*lines[:170], lines[165], *lines[170:]]), "maxtext").repeated == (20,)
    assert parse(joined([text for text in lines for _ in (0, 1)]), "maxtext").ranks == 16
    died = parse(joined(ticks(8, range(15)), lines, ticks(8, range(15))), "maxtext")
    assert (died.last_index, died.restarted_after) == (14, (49,))


def test_of_processes_that_contradict_each_other_the_doubtful_counts() -> None:
    assert parse(f"{line(3)}\n{line(3, weights='262144')}\n", "maxtext").steps[0].tokens == 0
    text = "".join(f"{line(3, loss=loss)}\n" for loss in ("0.0", "nan", "0.0"))
    assert math.isnan(parse(text, "maxtext").steps[0].loss or 0.0)
    assert not any(
        math.isfinite(only(line(7, loss=loss) + "\n").loss or 0.0) for loss in ("nan", "inf", "-inf")
    )


@pytest.mark.parametrize(
    ("stated", "said"), [("", "step time x TFLOP/s"), ("4096", ""), ("2048", "sequence")]
)
def test_twice_the_sequences_of_half_the_length_are_another_case(stated: str, said: str) -> None:
    """By full attention they take the FLOPs that the case takes by causal attention; the tokens of a step are the same."""
    case = examples.recipe_named("maxtext_llama2").case("70b-bf16-64gpus")
    assert case is not None
    half = flops_per_sequence(
        case.model, case.sequence_length // 2, FlopsDefinition(definition="full-attention")
    )
    tflops = 2 * case.gbs * half / case.gpus / 8e12
    text = f"Config param max_target_length: {stated}\n" if stated else ""
    for i in range(50):
        text += (
            f"completed step: {i}, seconds: 8.000, TFLOP/s/device: {tflops:.3f}, Tokens/s/device: 1024.000, "
            f"total_weights: {case.tokens_per_step}, loss: {8.123 - i / 1000:.3f}\n"
        )
    found = problems(case, parse(text, "maxtext"), Statistic())
    assert [problem for problem in found if said in problem] if said else found == []


@pytest.mark.parametrize("handicap", [1, 3])
def test_the_proxys_own_rates_agree_with_its_case(handicap: int) -> None:
    case = load_recipe(examples.ROOT / "suites" / "proxy").case("tiny-fp32-1gpus")
    assert case is not None
    definition = FlopsDefinition(definition="full-attention")
    flops = case.mbs * flops_per_sequence(case.model, case.sequence_length, definition) / 1e12
    text = ""
    for i in range(50):
        seconds = handicap * (0.21 + i / 1e5)
        text += (
            f"completed step: {i}, seconds: {seconds:.6f}, TFLOP/s/device: {flops / seconds:.6f}, "
            f"Tokens/s/device: {1024 / seconds:.3f}, total_weights: 1024, loss: {8.123 - i / 1000:.3f}\n"
        )
    assert problems(case, parse(text, "maxtext"), Statistic()) == []
    slower = text.replace("seconds: 0.21", "seconds: 0.20").replace("seconds: 0.63", "seconds: 0.53")
    assert "step time x tokens/s" in problems(case, parse(slower, "maxtext"), Statistic())[0]
