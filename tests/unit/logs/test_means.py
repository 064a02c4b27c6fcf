"""Step times printed as means over the last five steps: taken apart, and judged by what is taken apart."""

from __future__ import annotations

import csv
import math
import random
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.base.errors import ConfigError
from plugins.judging.judgement import Judgement
from plugins.judging.timing import levelled, timing
from plugins.logs import Log, Step
from plugins.logs.means import SINGLE, Means
from plugins.recipes.expansion import load_recipe
from plugins.record.baseline import Statistic
from plugins.record.folder import STEPS
from plugins.record.stored import case_as_json
from plugins.record.verdict import Kind
from plugins.suite.judged import write_case
from tests.bench import clusters
from tests.printed.dllogger import CONFIGURATION, data, in_file
from tests.printed.nemo1 import bar
from tests.unit import examples
from tests.unit.examples import problems
from tests.unit.recipes.test_cases import RECIPE, write

FIVE = Means(over=5, separable=True)
SMOOTHED = replace(examples.case(), means=FIVE)
LAST = Statistic()
STATED = in_file("PARAMETER", CONFIGURATION)


def smoothed(raw: Sequence[float], size: int = 5) -> list[float]:
    """What NeMo's timer prints: the mean over its buffer, which holds the last `size` steps."""
    return [statistics.fmean(raw[max(0, i - size + 1) : i + 1]) for i in range(len(raw))]


def steps(times: Sequence[float], garbled: Sequence[int] = ()) -> list[Step]:
    return [Step(i, None if i in garbled else seconds) for i, seconds in enumerate(times)]


def alone(times: Sequence[float], garbled: Sequence[int] = ()) -> list[float]:
    """The single steps of these printed means."""
    return list(FIVE.times(steps(times, garbled)).values())


def log_text(raw: Sequence[float], garbled: Sequence[int] = ()) -> str:
    lines = [in_file(i, data(i, seconds)) for i, seconds in enumerate(smoothed(raw))]
    text = "".join(f"{spoilt(line) if i in garbled else line}\n" for i, line in enumerate(lines))
    return f"{STATED}\n{text}"


def spoilt(line: str) -> str:
    """The same record with a step time that is no number."""
    before, key, rest = line.partition('"train_step_timing in s": ')
    return f'{before}{key}"10.0[rank3]"{rest[rest.index(",") :]}'


def judged(raw: Sequence[float], *, statistic: str = "last", garbled: Sequence[int] = ()) -> Judgement:
    return examples.judged(
        SMOOTHED,
        examples.outcome(),
        examples.parse(log_text(raw, garbled), "dllogger"),
        examples.baseline(statistic=statistic),
    )


# Taking apart


@given(st.lists(st.floats(0.001, 1000), min_size=1, max_size=200), st.integers(2, 9))
def test_what_was_smoothed_comes_back(raw: list[float], size: int) -> None:
    single = Means(size, separable=True).times(steps(smoothed(raw, size)))
    assert list(single) == list(range(len(raw)))
    assert list(single.values()) == pytest.approx(raw, abs=1e-9 * sum(raw) + 1e-9)


@given(
    st.lists(st.one_of(st.none(), st.floats()), max_size=60),
    st.sampled_from([SINGLE, Means(separable=True), Means(over=5), Means(10, 10)]),
)
def test_times_that_cannot_be_taken_apart_stay_as_they_are(times: list[float | None], kind: Means) -> None:
    printed = [Step(i, seconds) for i, seconds in enumerate(times)]
    expected = {i: seconds for i, seconds in enumerate(times) if seconds is not None}
    found = kind.times(printed)
    assert [(i, repr(seconds)) for i, seconds in found.items()] == [
        (i, repr(seconds)) for i, seconds in expected.items()
    ]


def test_a_garbled_entry_leaves_pairs_and_loses_no_time() -> None:
    raw = [10.0 + i / 10 for i in range(30)]
    single = FIVE.times(steps(smoothed(raw), garbled=[12]))
    assert 12 not in single
    for i in range(30):
        pair = {12, 13, 17, 18, 22, 23, 27, 28}
        if i not in pair:
            assert single[i] == pytest.approx(raw[i])
    for i in (17, 22, 27):
        assert single[i] == single[i + 1] == pytest.approx((raw[i] + raw[i + 1]) / 2)


def test_where_no_end_is_known_any_more_the_printed_means_stand_in() -> None:
    printed = smoothed([10.0] * 20 + [12.0] * 20)
    single = FIVE.times(steps(printed, garbled=range(15, 20)))
    assert [single[i] for i in range(20, 40)] == printed[20:40]
    # An entry whose own end is not known, and none behind it.
    assert FIVE.times(steps(printed[:26], garbled=[20]))[25] == printed[25]
    # A log that begins late begins with a mean, and what is no number is no end.
    late = [Step(i, 10.0) for i in range(3, 8)]
    assert FIVE.times(late) == pytest.approx(dict.fromkeys(range(3, 8), 10.0))
    single = FIVE.times(steps([10.0, math.nan, 10.0, math.inf, 10.0]))
    assert [single[i] for i in (0, 2, 4)] == [10.0, 10.0, 10.0]


@given(
    st.lists(st.floats(5, 20), min_size=50, max_size=50),
    st.sets(st.integers(0, 49), max_size=8),
)
def test_whatever_is_garbled_no_single_step_is_faster_than_the_fastest(
    raw: list[float], garbled: set[int]
) -> None:
    single = FIVE.times(steps(smoothed(raw), garbled=sorted(garbled)))
    assert all(min(raw) - 1e-6 <= seconds <= max(raw) + 1e-6 for seconds in single.values())


# Judging


def test_the_statistic_is_of_the_printed_means_and_the_rest_of_single_steps() -> None:
    raw = examples.times(s48=15.0)
    found = timing(steps(smoothed(raw)), LAST, FIVE)
    assert found.published.step_time == smoothed(raw)[49] == found.published.last[1]
    assert found.published.window == ((49, smoothed(raw)[49]),)
    assert found.steady == pytest.approx(statistics.median(raw[40:]))
    assert [i for i, _ in found.settled.hiccups] == [i for i, _ in found.published.outliers] == [48]
    # The last printed mean reaches over steps 45 to 49.
    assert found.published.without_outliers == pytest.approx(statistics.fmean([*raw[45:48], raw[49]]))


def test_a_last_mean_that_is_out_because_of_one_step_is_explained_by_it() -> None:
    found = judged(examples.times(s46=20.0))
    assert found.verdict.kind is Kind.PASSED
    assert found.verdict.remarks[0].startswith(
        "last step (49) is 12.06 s, out of the band, because of step 46 (20 s)"
    )


# Three stalls that cost 4.9 %, on top of a pace of -3 %: the printed means of the window are 9 % below.
def test_stalls_that_take_the_mean_below_the_band_are_explained_by_nothing() -> None:
    raw = [1.03 * t * (1.65 if i in (17, 25, 33) else 1) for i, t in enumerate(examples.times())]
    found = judged(raw, statistic="mean:15-40")
    assert found.verdict.kind is Kind.NOISY
    assert "the mean of all 40 settled steps is 10.88 s, -7.4 % throughput" in found.verdict.headline


@pytest.mark.parametrize("garbled", [(), (20,), (20, 41), (44, 48)])
@pytest.mark.parametrize(
    ("factor", "kind"), [(1.0, Kind.PASSED), (1.07, Kind.TOO_SLOW), (1 / 1.15, Kind.TOO_FAST)]
)
def test_the_pace_is_judged_with_and_without_garbled_lines(
    factor: float, kind: Kind, garbled: tuple[int, ...]
) -> None:
    found = judged([factor * seconds for seconds in examples.times()], garbled=garbled)
    assert found.verdict.kind is kind, found.text
    assert any("the mean of a few" in remark for remark in found.verdict.remarks) is bool(garbled)
    # Steps at the end that are slow, and a run whose printed means hide how many.
    slow = [seconds * (1.15 if i >= 43 else 1) for i, seconds in enumerate(examples.times())]
    assert judged(slow, garbled=garbled).verdict.kind is Kind.TOO_SLOW


@pytest.mark.parametrize("first", [30.0, 100.0])
def test_single_steps_printed_where_means_belong_are_an_invalid_run(first: float) -> None:
    printed = [first] + [10.07] * 49
    lines = [STATED, *(in_file(i, data(i, seconds)) for i, seconds in enumerate(printed))]
    log = examples.parse("\n".join(lines) + "\n", "dllogger")
    (said,) = problems(SMOOTHED, log, LAST)
    assert said.startswith(
        "the printed step times are not means over the last 5 steps, as this recipe's are: step 1 alone would have "
        f"taken {2 * 10.07 - first:.4g} s; the run's step_timing_kwargs.buffer_size is another one"
    )
    assert problems(examples.case(), log, LAST) == []


def test_a_time_that_is_not_positive_is_told_once() -> None:
    raw = [10 + i / 10 for i in range(50)]
    log = examples.parse(log_text(raw).replace(f": {smoothed(raw)[7]}", ": 0.0"), "dllogger")
    assert problems(SMOOTHED, log, LAST) == ["step 7: the step time is not a positive number"]


# Showing


def test_the_record_has_both_times_of_a_step(tmp_path: Path) -> None:
    raw = examples.times(s30=20.0)
    found = judged(raw, garbled=[48])
    record = case_as_json(write_case(examples.with_outcome(found, replace(found.outcome, folder=tmp_path))))
    assert record["means"] == {"over": 5, "every": 1, "judged": 1}
    assert record["last_step_time"] == pytest.approx(smoothed(raw)[49])
    with (tmp_path / STEPS).open() as file:
        rows = list(csv.DictReader(file))
    assert float(rows[31]["seconds"]) == pytest.approx(smoothed(raw)[31])
    assert float(rows[31]["raw_seconds"]) == pytest.approx(raw[31])
    assert (rows[48]["seconds"], rows[48]["raw_seconds"]) == ("", "")


def test_the_plot_is_of_single_steps_and_a_warm_up_off_its_scale_shares_a_label() -> None:
    assert len(examples.drawn(examples.plot(judged(examples.times(s30=20.0))), "hiccups")) == 1
    svg = examples.plot(judged(examples.times(s0=263.5, s1=57.5, s2=57.75)))
    assert "263.5, 57.5, 57.75 s" in svg.itertext()


# Recipes


@pytest.mark.parametrize(
    ("line", "of_group", "means"),
    [
        ("log: nemo2", "", SINGLE),
        ("log: dllogger\nmeans: {over: 5}", "", FIVE),
        ("log: nemo1\nmeans: {over: 5}", "", Means(over=5)),
        ("log: nemo1", ", means: {over: 5}", Means(over=5)),
        ("log: nemo1\nmeans: {over: 5}", ", means: {}", SINGLE),
        ("log: megatron_lm\nmeans: {over: 10, every: 10}", "", Means(10, 10)),
        ("log: megatron_lm", ", means: {over: 10, every: 10}", Means(10, 10)),
        ("log: nemo2\nmeans: {over: 1, every: 1}", "", SINGLE),
    ],
)
def test_a_recipe_or_a_line_of_its_cases_says_what_its_times_are_of(
    tmp_path: Path, line: str, of_group: str, means: Means
) -> None:
    text = RECIPE.replace("log: nemo2", line).replace("mbs: 1,", f"mbs: 1{of_group},")
    assert {case.means for case in load_recipe(write(tmp_path, text)).cases} == {means}


NONE_SUCH = "means: {{over: {}, every: {}}}: {} prints no such means; "


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("log: nemo2\nmeans: {over: 5}", NONE_SUCH.format(5, 1, "nemo2") + "only nemo1 and dllogger do"),
        ("log: megatron_lm\nmeans: {over: 5}", NONE_SUCH.format(5, 1, "megatron_lm") + "only nemo1 and dllogger do"),
        (
            "log: nemo2\nmeans: {over: 10, every: 10}",
            NONE_SUCH.format(10, 10, "nemo2") + "only megatron_lm and megatron_bridge do",
        ),
        (
            "log: megatron_lm\nmeans: {over: 5, every: 10}",
            NONE_SUCH.format(5, 10, "megatron_lm") + "let `every` be 1 or as much as `over`",
        ),
        ("log: megatron_lm\nmeans: {every: 10}", "let `every` be 1 or as much as `over`"),
        ("log: dllogger\nmeans: {over: 0}", "recipe.yaml:6: means.over: must be greater than 0"),
        ("log: dllogger\nmeans: {last: 5}", "recipe.yaml:6: means.last: must be 'over' or 'every', got 'last'"),
        ("log: dllogger\nsmoothing: 5", "recipe.yaml:6: smoothing: unknown key"),
        ("log: megatron_lm\nmeans: {over: 7, every: 7}", "every: 7}: steps 50 is not a multiple of 7"),
        ("log: megatron_lm\nmeans: {over: 50, every: 50}", "steps 50 is not a multiple of 50, two at the least"),
        ("log: nemo1\nmeans: {over: 7}", "means: {over: 7, every: 1}: steps 50 is not a multiple of 7"),
        ("log: nemo1\nmeans: {over: 50}", "steps 50 is not a multiple of 50, two at the least"),
    ],
)  # fmt: skip
def test_means_that_cannot_be_are_refused(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_recipe(write(tmp_path, RECIPE.replace("log: nemo2", line)))
    assert said in str(caught.value)


# What is judged, and how it is named


@pytest.mark.parametrize(
    ("means", "judged", "lines", "named", "recent"),
    [
        (SINGLE, SINGLE, range(10, 20), "steps 10 to 19", "10 steps"),
        (FIVE, SINGLE, range(10, 20), "steps 10 to 19", "10 steps"),
        (Means(over=5), Means(5, 5), range(14, 20, 5), "steps 10 to 19", "10 steps"),
        (Means(10, 10), Means(10, 10), range(19, 20, 10), "steps 10 to 19", "5 means over 10 steps"),
    ],
)
def test_the_lines_that_are_judged_share_no_steps(
    means: Means, judged: Means, lines: range, named: str, recent: str
) -> None:
    assert (means.judged, means.judged.lines(range(10, 20)), means.recent) == (judged, lines, recent)
    assert judged.named(lines[0], lines[-1]) == named
    assert [step for line in lines for step in judged.covered(line)] == list(range(10, 20))
    assert means.cut(range(10, 20)) is False
    assert means.cut(range(11, 20)) is means.cut(range(10, 19)) is (means.span > 1)


# Printed from dispatch to dispatch: what one step is too short by, its neighbour took.


@pytest.mark.parametrize(
    ("times", "alone"),
    [
        ([1.0, 1.9, 0.1, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0, 1.0]),
        ([1.0, 0.1, 1.9, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0, 1.0]),
        ([1.0, 2.8, 0.1, 0.1, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]),
        ([1.0, 1.0, 0.1, 1.0, 1.0], [1.0, 1.0, 0.1, 1.0, 1.0]),
        ([1.0, 1.58, 0.01, 1.0, 1.0], [1.0, 1.58, 0.01, 1.0, 1.0]),
        ([1.0, 2.9, 0.1, 1.0, 1.0], [1.0, 1.5, 1.5, 1.0, 1.0]),
        ([1.0, 1.1, 0.9, 1.0, 1.0], [1.0, 1.1, 0.9, 1.0, 1.0]),
        ([0.1], [0.1]),
        ([], []),
    ],
)
def test_a_step_that_took_no_time_has_the_mean_of_those_that_took_it(
    times: list[float], alone: list[float]
) -> None:
    assert [step.seconds for step in levelled(steps(times))] == [pytest.approx(each) for each in alone]
    assert [step.seconds for step in levelled(steps([1.0, 1.9, 0.1], garbled=[1]))] == [1.0, None, 0.1]


@given(st.lists(st.floats(0.001, 100), max_size=30))
def test_levelling_loses_no_time(times: list[float]) -> None:
    assert sum(step.seconds or 0 for step in levelled(steps(times))) == pytest.approx(sum(times))


# NeMo 1's times in three digits: judged by every fifth line, which is of steps of its own

CASE_405B = examples.case("405b-fp8-576gpus", release="24.11")
BASELINE_405B = examples.baseline(CASE_405B.id, release="24.11")
STEP_405B = BASELINE_405B.cell.step_time or 0.0


def read(raw: Sequence[float]) -> Log:
    """The log of a run whose single steps took so many times the published time."""
    bars = [bar(i, STEP_405B * mean, gbs=CASE_405B.gbs) for i, mean in enumerate(smoothed(raw))]
    log = examples.parse("\r".join(bars) + "\n", "nemo1")
    assert len(log.steps) == 50
    return log


def judged_nemo1(raw: Sequence[float], log_of: Callable[[Sequence[float]], Log] = read) -> Judgement:
    return examples.judged(CASE_405B, examples.outcome(), log_of(raw), BASELINE_405B)


def paced(pace: float = 1.0, **changed: float) -> list[float]:
    """`paced(1.08, s20=1.3)`: 50 steps at a pace, with a little noise, one of which took 1.3 times as long."""
    found = [pace * (1 + 0.002 * (i % 5 - 2)) for i in range(50)]
    found[0] *= 4
    for name, factor in changed.items():
        found[int(name.removeprefix("s"))] *= factor
    return found


@pytest.mark.parametrize(
    ("recipe", "release", "averaged"),
    [
        ("llama3", "24.11", {"405b-proxy", "405b"}),
        ("llama3", "25.03", {"405b-proxy", "405b"}),
        ("llama3", "25.04", set()),
        ("nemotron4", "24.11", set()),
        ("nemotron4", "25.01", set()),
        ("nemotron4", "25.03", {"15b"}),
        ("nemotron4", "25.04", set()),
    ],
)
def test_these_sizes_were_published_with_such_means(recipe: str, release: str, averaged: set[str]) -> None:
    found = examples.recipe_named(recipe, release).cases
    assert {case.size for case in found if case.means == Means(over=5)} == averaged
    assert {case.means for case in found} <= {SINGLE, Means(over=5)}


@pytest.mark.parametrize(
    ("index", "factor"), [(10, 1.3), (14, 2.0), (23, 1.6), (36, 1.3), (44, 1.6), (45, 2.0), (49, 1.3)]
)
def test_one_stalled_step_is_one_hiccup_and_condemns_nobody(index: int, factor: float) -> None:
    found = judged_nemo1(paced(**{f"s{index}": factor}))
    assert found.verdict.kind is Kind.PASSED, found.text
    assert found.measurement is not None
    assert [i for i, _ in found.measurement.timing.settled.hiccups] == [index // 5 * 5 + 4]
    first = index // 5 * 5
    assert any(
        f"1 of 8 settled intervals far above the median, by one slow step or more each: steps {first} to {first + 4} ("
        in remark
        for remark in found.verdict.remarks
    )


# Of the eight settled intervals only two are slow, so that the median does not tell.
@pytest.mark.parametrize(
    ("first", "pace"), [*((first, 1.08) for first in range(30, 43, 2)), (40, 1.15), (42, 1.15)]
)
def test_a_run_that_slows_down_at_its_end_never_passes(first: int, pace: float) -> None:
    found = judged_nemo1([seconds * (pace if i >= first else 1) for i, seconds in enumerate(paced())])
    assert found.verdict.kind in (Kind.TOO_SLOW, Kind.NOISY), found.text
    if first == 40:
        assert "it became slow at its end: the last 2 intervals are at least " in found.verdict.remarks[0]


def test_the_mean_is_that_of_the_single_steps_and_the_words_say_what_they_are_of(tmp_path: Path) -> None:
    raw = paced(s9=3.0, s20=1.3, s48=1.2)
    found = judged_nemo1(raw)
    assert found.measurement is not None
    assert found.measurement.timing.settled.mean == pytest.approx(
        STEP_405B * statistics.fmean(raw[10:]), rel=0.004
    )
    assert found.details[0].endswith("mean of steps 45 to 49")
    assert "median of the 8 settled intervals of 5 steps" in found.details[1]
    record = case_as_json(write_case(examples.with_outcome(found, replace(found.outcome, folder=tmp_path))))
    assert (record["means"], record["hiccups"]) == ({"over": 5, "every": 1, "judged": 5}, [24, 49])
    assert len((tmp_path / STEPS).read_text().splitlines()) == 51


# Simulation: seeded, so that it says the same on every machine.


def made(raw: Sequence[float]) -> Log:
    """What is read of such a log, without one: with the printed times of these steps in the place of others."""
    printed = clusters.nemo1([STEP_405B * seconds for seconds in raw])
    steps = (
        replace(step, seconds=other.seconds, resolution=other.resolution)
        for step, other in zip(whole().steps, printed, strict=True)
    )
    return replace(whole(), steps=tuple(steps))


@cache
def whole() -> Log:
    return read(paced())


def simulated(runs: int, draw: Callable[[random.Random], list[float]]) -> Counter[Kind]:
    rng = random.Random(20241109)
    first = draw(random.Random(20241109))
    assert made(first) == read(first)
    return Counter(judged_nemo1(draw(rng), made).verdict.kind for _ in range(runs))


def test_hardly_any_healthy_cluster_fails_and_no_slow_one_passes() -> None:
    def steps(rng: random.Random, pace: float) -> list[float]:
        noisy = [pace * (1 + rng.gauss(0, 0.01)) * (1.3 if rng.random() < 0.02 else 1) for _ in range(50)]
        return [4 * noisy[0], *noisy[1:]]

    # What is left has stalls in three of the last five intervals, or in several of them besides the last one.
    healthy = simulated(200, lambda rng: steps(rng, 1.0))
    assert healthy[Kind.PASSED] > 0.965 * 200, healthy
    assert simulated(50, lambda rng: steps(rng, 1.08)) == {Kind.TOO_SLOW: 50}
