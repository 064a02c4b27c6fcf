"""When a case is run again because its runs do not tell, and what several runs come to together."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Mapping
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType

import pytest

from plugins.judging.choice import MAX_RUNS, Repeats
from plugins.judging.job_files import ParsedLogs
from plugins.judging.judge import another_run
from plugins.judging.judgement import Judgement
from plugins.judging.measurement import Measurement
from plugins.judging.pace import judge_pace
from plugins.judging.repeats import ALL, Comparison, Finding, Pair, compare, judge_runs, pooled, unsure
from plugins.judging.verdicts import Band
from plugins.logs.log import Fact
from plugins.record.folder import LOG, try_folder
from plugins.record.job import Job, JobRef, JobState, Phase
from plugins.record.verdict import Kind
from tests.printed.nemo2 import nemo2_line
from tests.unit import examples
from tests.unit.examples import STEP_TIME, nemo2_text, parse, record_json

GOAL = examples.target()
LIMIT = Band(GOAL, 0.0).slowest / STEP_TIME
"""The pace, as a factor on the published step time, that just passes."""

WINDOW = "mean:35-44"
NOTHING_SLOW: Mapping[int, float] = MappingProxyType({})
STALLS = (11, 12, 15, 17, 22, 24, 30, 33, 38, 45)
"""Steps at distances of no pattern."""

END = range(46, 50)


def times(
    pace: float = 1.0, *, noise: float = 0.01, seed: int = 0, slow: Mapping[int, float] = NOTHING_SLOW
) -> list[float]:
    """50 steps with normal noise at this pace, of which those in `slow` took so many times as long."""
    dice = random.Random(seed)
    found = [STEP_TIME * pace * dice.gauss(1, noise) for _ in range(50)]
    for index, factor in slow.items():
        found[index] *= factor
    return found


def run(
    pace: float = 1.0,
    *,
    noise: float = 0.01,
    seed: int = 0,
    statistic: str = "last",
    slow: Mapping[int, float] = NOTHING_SLOW,
) -> Measurement:
    return examples.measure(times(pace, noise=noise, seed=seed, slow=slow), statistic=statistic)


def stalled(count: int, *, pace: float = 1.0, seed: int = 0, factor: float = 1.3) -> Measurement:
    """A quiet run of which so many steps stalled."""
    return run(pace, noise=0.002, seed=seed, slow=dict.fromkeys(STALLS[:count], factor))


def kind(*runs: Measurement) -> Kind:
    return judge_runs(runs, GOAL)[1].kind


@pytest.mark.parametrize("statistic", ["last", WINDOW])
@pytest.mark.parametrize(
    ("pace", "kind"),
    [
        *((pace, Kind.PASSED) for pace in (0.95, 1.0, 1.03)),
        *((pace, Kind.TOO_SLOW) for pace in (1.1, 1.5)),
        (0.8, Kind.TOO_FAST),
    ],
)
def test_a_run_that_clearly_passes_or_fails_is_not_run_again(pace: float, kind: Kind, statistic: str) -> None:
    target = examples.target(statistic=statistic)
    for seed in range(20):
        found = run(pace, seed=seed, statistic=statistic)
        assert judge_pace(found, target).kind is kind
        assert unsure([found], target) == ""


@pytest.mark.parametrize("pace", [LIMIT - 0.003, LIMIT, LIMIT + 0.003, 1 / 1.1])
@pytest.mark.parametrize("statistic", ["last", WINDOW])
def test_a_run_near_a_limit_of_the_band_is_run_again(pace: float, statistic: str) -> None:
    for seed in range(20):
        why = unsure([run(pace, seed=seed, statistic=statistic)], examples.target(statistic=statistic))
        assert "is within 3 standard errors" in why
        assert why.endswith("of a limit of the band")


@pytest.mark.parametrize("count", range(11))
def test_a_few_stalls_may_be_chance_and_many_are_not(count: int) -> None:
    found = stalled(count)
    assert len(found.timing.settled.hiccups) == count
    said = f"{count} of 40 settled steps stalled, which may be chance"
    assert unsure([found], GOAL) == (said if 3 <= count <= 7 else "")
    if count > 7:
        assert judge_pace(found, GOAL).kind is Kind.NOISY


def test_a_run_that_became_slow_at_its_end_is_run_again_unless_that_is_beyond_doubt() -> None:
    for slower, said in ((1.06, "too slow: "), (1.12, ""), (1.3, "")):
        found = run(noise=0.015, slow=dict.fromkeys(END, slower))
        assert judge_pace(found, GOAL).kind is Kind.TOO_SLOW
        assert unsure([found], GOAL)[:10] == said


def test_a_mean_or_a_spread_beyond_its_limit_is_run_again() -> None:
    costly = stalled(2, pace=1.03, factor=2.0)
    assert "the mean of all 40 settled steps" in unsure([costly], GOAL)
    unstable = run(noise=0.09, seed=3)
    assert unsure([unstable], GOAL)


@pytest.mark.parametrize("place", range(MAX_RUNS))
def test_a_clear_failure_decides_whatever_the_other_runs_say(place: int) -> None:
    runs = [run(LIMIT - 0.003, seed=seed) for seed in range(MAX_RUNS)]
    runs[place] = run(1.1, seed=9)
    measurement, verdict = judge_runs(runs, GOAL)
    assert measurement is runs[place]
    assert verdict.kind is Kind.TOO_SLOW
    assert verdict.remarks[0] == f"run {place + 1} of 3 decides by itself; the others change nothing of it"
    assert unsure(runs[: place + 1], GOAL) == ""


def test_no_number_of_good_runs_turns_a_clear_failure_into_a_pass() -> None:
    good = [run(seed=1), run(0.96, seed=2)]
    for bad in (run(1.08, seed=3), run(1.3, seed=4), run(0.85, seed=5), stalled(9)):
        assert judge_pace(bad, GOAL).fails
        assert unsure([bad], GOAL) == unsure([good[0], bad], GOAL) == ""
        assert kind(bad, *good) is judge_pace(bad, GOAL).kind


def test_one_run_is_judged_as_it_always_was() -> None:
    for found in (run(), run(LIMIT, seed=2), run(1.2), stalled(5), stalled(9)):
        assert pooled([found.timing]) is found.timing
        assert judge_runs([found], GOAL) == (found, judge_pace(found, GOAL))


def test_stalls_that_were_chance_pass_with_two_quiet_runs_and_those_that_come_again_fail() -> None:
    quiet = [stalled(0, seed=1), stalled(0, seed=2)]
    first = stalled(6)
    assert judge_pace(first, GOAL).kind is Kind.NOISY
    assert unsure([first, quiet[0]], GOAL) == "6 of 80 settled steps stalled, which may be chance"
    assert unsure([stalled(5), quiet[0]], GOAL) == unsure([first, *quiet], GOAL) == ""
    assert kind(first, *quiet) is Kind.PASSED
    again = judge_runs([stalled(6, seed=seed) for seed in range(MAX_RUNS)], GOAL)[1]
    assert again.kind is Kind.NOISY
    assert "18 of 120 settled steps" in again.headline


def test_a_slow_end_that_comes_again_fails_and_one_that_does_not_passes() -> None:
    slow = dict.fromkeys(END, 1.09)
    falling = [run(1.01, noise=0.015, seed=seed, slow=slow) for seed in range(MAX_RUNS)]
    assert kind(*falling) is Kind.TOO_SLOW
    assert kind(falling[0], run(noise=0.015, seed=7), run(noise=0.015, seed=8)) is Kind.PASSED


def test_the_mean_of_the_runs_decides_near_the_limit() -> None:
    slower, faster = run(LIMIT + 0.005, seed=0), run(LIMIT - 0.014, seed=2)
    assert judge_pace(slower, GOAL).kind is Kind.TOO_SLOW
    assert unsure([slower], GOAL)
    measurement, verdict = judge_runs([slower, faster], GOAL)
    assert measurement.timing.steady == statistics.fmean([slower.timing.steady, faster.timing.steady])
    assert verdict.kind is Kind.PASSED


def test_figures_of_runs_are_averaged_and_their_stalls_are_all_kept() -> None:
    first, second = stalled(3).timing, stalled(4, pace=1.02, seed=1).timing
    both = pooled([first, second])
    names = [
        *("steady", "tail", "resolution", "published.step_time", "published.without_outliers"),
        *("settled.median", "settled.mean", "settled.spread"),
    ]
    for figure in map(attrgetter, names):
        assert figure(both) == statistics.fmean([figure(first), figure(second)]), figure
    assert both.settled.hiccups == (*first.settled.hiccups, *second.settled.hiccups)
    assert (both.settled.steps, both.runs) == (80, 2)
    assert (both.published.window, both.published.last) == (second.published.window, second.published.last)


def test_runs_that_agree_narrow_the_doubt_and_those_that_lie_apart_widen_it() -> None:
    """Each alone is as quiet as can be: what differs between runs is the same in all steps of one."""
    same = [replace(run(seed=seed).timing, steady=STEP_TIME) for seed in range(MAX_RUNS)]
    assert pooled(same).steady_error < min(timed.steady_error for timed in same)
    low, high = run(LIMIT - 0.04, noise=0.001).timing, run(LIMIT + 0.005, noise=0.001).timing
    both = pooled([low, high])
    apart = abs(high.steady - low.steady) / (low.steady + high.steady)
    assert both.steady_error == pytest.approx(apart)
    assert both.steady_error > 10 * max(low.steady_error, high.steady_error)
    quiet = [run(LIMIT - 0.025, noise=0.001, seed=1), run(LIMIT - 0.002, noise=0.001, seed=2)]
    assert unsure(quiet[:1], GOAL) == ""
    assert "is within 3 standard errors" in unsure(quiet, GOAL)


UP_TO_THREE = Repeats()


def asked(*texts: str, baseline: bool = True, repeats: Repeats = UP_TO_THREE) -> str:
    *before, log = [parse(text) for text in texts]
    against = examples.baseline() if baseline else None
    return another_run(
        examples.judged(examples.case(), examples.outcome(), log, against, before=before), repeats
    )


def test_with_a_number_of_runs_each_case_has_so_many() -> None:
    good, always = nemo2_text(times()), Repeats(4, always=True)
    for baseline in (True, False):
        assert asked(good, good, repeats=always, baseline=baseline) == "run 2 of 4 has ended"
        assert asked(good, good, good, good, repeats=always, baseline=baseline) == ""
    assert asked(good, "no step\n", repeats=always) == "", "a run that is not valid decides"
    near = [nemo2_text(times(LIMIT, seed=seed)) for seed in range(5)]
    assert asked(*near[:3], repeats=Repeats(5))
    assert asked(*near, repeats=Repeats(5)) == ""
    assert asked(good, repeats=Repeats(5)) == ""


OTHER = "".join(f"{nemo2_line(i, seconds, gbs=512)}\n" for i, seconds in enumerate(times(LIMIT)))


def test_logs_tell_whether_another_run_would_unless_there_is_no_number_or_they_are_not_valid() -> None:
    near = nemo2_text(times(LIMIT))
    assert "is within 3 standard errors" in asked(near)
    assert asked(near, nemo2_text(times(LIMIT, seed=1)), nemo2_text(times(LIMIT, seed=2))) == ""
    assert asked(nemo2_text(times())) == asked(near, baseline=False) == ""
    for text in (OTHER, "no step\n", ""):
        assert asked(text) == asked(near, text) == asked(text, near) == ""


def tried(folder: Path, number: int, text: str) -> Job:
    """An undecided run, with its log where the fleet keeps it."""
    kept = try_folder(folder, number)
    kept.mkdir(parents=True)
    (kept / LOG).write_text(text)
    return Job(
        ref=JobRef("llama3", examples.CASE, f"name-try{number}", f"{number}"),
        try_number=number,
        state=JobState(Phase.SUCCEEDED, "COMPLETED", nodes=f"gpu{number:03}"),
        failure="repeated",
        message="cannot tell",
    )


def judged(folder: Path, *texts: str, gpu: str = "h100") -> Judgement:
    """The last of these logs is that of the case's job, the others are those of the runs before it."""
    earlier = tuple(tried(folder, number, text) for number, text in enumerate(texts[:-1], start=1))
    return examples.judged(
        examples.case(),
        examples.outcome(folder=folder, earlier=earlier),
        parse(texts[-1]),
        examples.baseline() if gpu == "h100" else None,
        before=[ParsedLogs().read_log("nemo2", try_folder(folder, one.try_number)) for one in earlier],
    )


def test_the_report_and_the_record_have_every_run_and_its_job(tmp_path: Path) -> None:
    texts = [
        nemo2_text(times(pace, seed=seed)) for seed, pace in enumerate((LIMIT, LIMIT - 0.02, LIMIT - 0.02))
    ]
    found = judged(tmp_path, *texts)
    assert found.verdict.kind is Kind.PASSED
    assert [line.partition("  ")[0] for line in found.details if line.startswith("run ")] == [
        "run 1",
        "run 2",
        "run 3",
    ]
    record = record_json(found)
    assert [(one["id"], one["name"], one["nodes"]) for one in record["runs"]] == [
        ("1", "name-try1", "gpu001"),
        ("2", "name-try2", "gpu002"),
        ("4711", "pacemark-1.llama3", "gpu[001-064]"),
    ]
    assert statistics.fmean(one["steady_median"] for one in record["runs"]) == record["steady_median"]
    assert [(one["id"], one["failure"]) for one in record["earlier_jobs"]] == [
        ("1", "repeated"),
        ("2", "repeated"),
    ]


@pytest.mark.parametrize(("job", "valid"), [(1, True), (4711, False)])
def test_each_run_must_have_the_log_of_its_own_job(tmp_path: Path, job: int, valid: bool) -> None:
    log = parse(nemo2_text(times()))
    stated = replace(log, facts=(Fact("job", job, f"SLURM_JOB_ID {job}"),))
    found = examples.judged(
        examples.case(),
        examples.outcome(earlier=(tried(tmp_path, 1, ""),)),
        log,
        examples.baseline(),
        before=[stated],
    )
    said = 'run 1: the log says "SLURM_JOB_ID 4711", this case\'s job is 1'
    assert (found.verdict.kind is Kind.PASSED) is valid
    assert (said in found.verdict.headline) is not valid


def test_a_case_without_a_baseline_tells_all_its_runs(tmp_path: Path) -> None:
    texts = [nemo2_text(times(pace, noise=0.0)) for pace in (1.0, 1.1, 1.2)]
    found = judged(tmp_path, *texts, gpu="b200")
    assert found.verdict.kind is Kind.NO_BASELINE
    record = record_json(found)
    medians = [run["steady_median"] for run in record["runs"]]
    assert medians[2] == pytest.approx(1.2 * medians[0], rel=1e-3)
    assert record["steady_median"] == statistics.fmean(medians)
    assert record["step_time"] == statistics.fmean(run["step_time"] for run in record["runs"])
    assert found.verdict.headline.startswith(f"no baseline: measured {record['step_time']:.4g} s a step, ")
    assert found.verdict.remarks[0].startswith("3 runs of this case are judged together: steady medians ")
    assert sum(line.startswith("run ") for line in found.details) == 3


@pytest.mark.parametrize(
    ("slow", "headline", "remark"),
    [
        ({15: 1.3}, ", spread 0", "1 of 40 settled steps far above the median"),
        (
            dict.fromkeys(range(12, 48, 3), 1.5),
            "and not steady: 12 of 40 settled steps far above the median",
            "12 of 40",
        ),
    ],
)
def test_a_case_without_a_baseline_tells_its_stalls(
    tmp_path: Path, slow: dict[int, float], headline: str, remark: str
) -> None:
    found = judged(tmp_path, nemo2_text(times(noise=0.002, slow=slow)), gpu="b200")
    assert found.verdict.kind is Kind.NO_BASELINE
    assert headline in found.verdict.headline
    assert remark in found.verdict.remarks[0]
    assert record_json(found)["runs"] == []


@pytest.mark.parametrize("kept", ["", "no step\n"])
def test_an_earlier_run_whose_log_is_spoiled_is_no_evidence(tmp_path: Path, kept: str) -> None:
    found = judged(tmp_path, kept, nemo2_text(times(LIMIT)))
    assert found.verdict.kind is Kind.INVALID
    assert "run 1: the log has no training step" in found.verdict.headline
    assert ParsedLogs().read_log("nemo2", tmp_path / "gone").steps == ()


def judged_share(pace: float, trials: int) -> tuple[float, float]:
    """Of cases at this pace, each run up to three times as the doubt asks: the share that passes, and the mean number of runs."""
    passed = used = 0
    for trial in range(trials):
        runs: list[Measurement] = []
        while not runs or unsure(runs, GOAL):
            runs.append(run(pace, noise=0.02, seed=MAX_RUNS * trial + len(runs)))
        passed += kind(*runs) is Kind.PASSED
        used += len(runs)
    return passed / trials, used / trials


@pytest.mark.parametrize(
    ("pace", "least", "most", "runs"), [(1.0, 1, 1, 1.1), (LIMIT, 0.2, 0.8, 3), (1.12, 0, 0, 1.3)]
)
def test_clear_cases_cost_one_run_and_near_ones_more(
    pace: float, least: float, most: float, runs: float
) -> None:
    share, mean = judged_share(pace, 60)
    assert least <= share <= most
    assert mean <= runs


# Two runs compared: simulated ones whose differences are known

Slower = Callable[[int, str], float]


def pairs(
    rng: random.Random, cases: int, spread: float, slower: Slower = lambda i, dtype: 0.0, runs: int = 1
) -> list[Pair]:
    """Cases of three recipes and two dtypes. `slower` is by what share a case is slower in the second run."""
    found = []
    for i in range(cases):
        dtype, recipe = ("bf16", "fp8")[i % 2], ("llama3", "nemotron4", "maxtext")[i % 3]

        def draw(factor: float) -> tuple[float, ...]:
            return tuple(10 * factor * math.exp(rng.gauss(0, spread)) for _ in range(runs))

        properties = {"dtype": dtype, "recipe": recipe}
        found.append(Pair(f"case{i}", draw(1.0), draw(1 + slower(i, dtype)), properties))
    return found


def many(count: int, make: Callable[[random.Random], list[Pair]]) -> list[Comparison]:
    rng = random.Random(20261122)
    return [compare(make(rng)) for _ in range(count)]


@pytest.mark.parametrize(("cases", "spread"), [(1, 0.01), (4, 0.003), (9, 0.007)])
def test_of_equal_runs_hardly_any_are_told_to_differ(cases: int, spread: float) -> None:
    found = many(60, lambda rng: pairs(rng, cases, spread))
    assert sum(bool(one.effects) for one in found) <= 3


def test_one_case_that_is_four_percent_slower_is_found_and_nothing_else() -> None:
    found = many(40, lambda rng: pairs(rng, 9, 0.003, lambda i, dtype: 0.04 * (i == 4)))
    right = [one for one in found if [effect.cases for effect in one.effects] == [("case4",)]]
    assert len(right) >= 38
    assert {one.findings["case4"] for one in right} == {Finding.SLOWER}
    assert not {Finding.SLOWER, Finding.FASTER} & {
        finding for one in right for key, finding in one.findings.items() if key != "case4"
    }


def test_what_a_dtype_has_in_common_is_one_effect() -> None:
    found = many(50, lambda rng: pairs(rng, 9, 0.003, lambda i, dtype: 0.03 * (dtype == "fp8")))
    assert sum([effect.name for effect in one.effects] == ["all fp8 cases"] for one in found) >= 48
    effect = found[0].effects[0].ratio
    assert effect.low < 1 / 1.03 < effect.high < 1
    assert effect.high - effect.low < found[0].ratios["case1"].high - found[0].ratios["case1"].low


def test_a_run_that_is_faster_as_a_whole_is_one_effect() -> None:
    found = many(50, lambda rng: pairs(rng, 9, 0.003, lambda i, dtype: -0.03))
    assert sum([effect.name for effect in one.effects] == [ALL] for one in found) >= 48
    assert set(found[0].findings.values()) == {Finding.FASTER}


@pytest.mark.parametrize(("cases", "effects"), [(7, 1), (8, 2)])
def test_each_effect_needs_four_cases(cases: int, effects: int) -> None:
    """Of two cases that differ much, each is an effect of its own."""
    (found,) = many(1, lambda rng: pairs(rng, cases, 0.0005, lambda i, dtype: (0.2, -0.3, 0.0)[min(i, 2)]))
    assert len(found.effects) == effects


def test_repeats_narrow_the_interval_where_one_run_cannot_tell() -> None:
    (once,), (often,) = (many(1, lambda rng, n=n: pairs(rng, 9, 0.003, runs=n)) for n in (1, 4))  # type: ignore[misc]
    (narrow, wide) = (one.ratios["case0"] for one in (often, once))
    assert narrow.high - narrow.low < 0.7 * (wide.high - wide.low)
    assert set(often.findings.values()) == {Finding.SAME}
    (noisy,) = many(1, lambda rng: pairs(rng, 9, 0.015))
    assert Finding.CANNOT_TELL in noisy.findings.values()
    assert compare([]).findings == {}
