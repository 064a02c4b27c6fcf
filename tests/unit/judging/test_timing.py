"""From the steps of a run to its step time, and to what follows from it."""

from __future__ import annotations

import pytest

from plugins.base.errors import ConfigError
from plugins.judging.measurement import Measurement, Timing
from plugins.judging.timing import timing
from plugins.logs import Step
from plugins.record.baseline import Statistic
from tests.unit import examples


def boil(times: list[float], statistic: str = "last") -> Timing:
    return timing(examples.steps(times), Statistic.parse(statistic))


@pytest.mark.parametrize(
    ("text", "mean"),
    [("mean:11-44", 28.5), ("mean:35-44", 40.5), ("mean:15-40", 28.5), ("mean:7-7", 8.0), ("last", 50.0)],
)
def test_a_mean_includes_both_ends_of_its_0_based_window(text: str, mean: float) -> None:
    steps = examples.steps([float(i + 1) for i in range(50)])
    for ordered in (steps, steps[::-1]):
        assert timing(ordered, Statistic.parse(text)).published.step_time == mean
    assert str(Statistic.parse(text)) == text


@pytest.mark.parametrize(
    "text", ["", "median", "Last", "mean", "mean:44-35", "mean:-1-4", "mean:1-2 ", "last-10"]
)
def test_an_unknown_statistic_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="write last or mean:A-B"):
        Statistic.parse(text)


def test_steady_is_the_median_of_the_last_ten_steps() -> None:
    assert boil([99.0] * 40 + [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]).steady == 5.5


def test_spread_is_that_of_the_settled_steps_and_deaf_to_a_few_outliers() -> None:
    quiet = [10.0, 10.1, 9.9, 10.0, 10.1, 9.9, 10.0, 10.1, 9.9, 10.0]
    assert boil([30.0] * 10 + quiet * 4).settled.spread == pytest.approx(1.4826 * 0.1 / 10, rel=1e-6)
    assert boil([10.0] * 10 + quiet * 3 + quiet[:-3] + [30.0] * 3).settled.spread < 0.02


def test_the_tail_is_the_median_of_the_last_five() -> None:
    run = boil([10.0] * 45 + [11.0, 10.0, 12.0, 13.0, 11.0])
    assert (run.tail, run.settled.median, run.tail_error) == (11.0, 10.0, 0.0)
    # Its error is that of two medians.
    run = boil([10.0, 10.1, 9.9, 10.0, 10.1] * 10)
    assert run.tail_error == pytest.approx(1.2533 * run.settled.spread * (1 / 5 + 1 / 40) ** 0.5)


# A MaxText log has three decimals: of a step of 1 ms they leave 50 %, of one of a second a thousandth.
def test_one_tiny_step_does_not_coarsen_the_rest() -> None:
    tiny = [Step(i, 0.001 if i == 44 else 10.0, 0.0005) for i in range(50)]
    assert timing(tiny, Statistic.parse("last")).resolution == pytest.approx(0.00005)
    assert boil([10.07] * 50).resolution == pytest.approx(0.005 / 10.07)
    assert boil([9.33] * 50).resolution == pytest.approx(0.0005 / 9.33)


@pytest.mark.parametrize(
    ("times", "statistic", "outliers", "without"),
    [
        (examples.times(s40=13.1), "mean:35-44", ((40, 13.1),), 10.07),
        ([10.0] * 49 + [10.19], "last", (), 10.19),
        ([10.0] * 49 + [10.21], "last", ((49, 10.21),), 10.0),
        # A window of outliers alone falls back to the median.
        (examples.times(s49=20.0), "last", ((49, 20.0),), 10.07),
        (examples.times(s49=5.0), "last", ((49, 5.0),), 10.07),
    ],
)
def test_a_step_far_off_the_median_is_an_outlier_of_its_window(
    times: list[float], statistic: str, outliers: tuple[tuple[int, float], ...], without: float
) -> None:
    published = boil(times, statistic).published
    assert published.outliers == outliers
    assert published.without_outliers == pytest.approx(without, rel=0.003)


def test_hiccups_are_counted_behind_the_warm_up() -> None:
    found = boil(examples.times(s0=45.0, s9=20.0, s10=13.2, s30=13.1))
    assert found.settled.hiccups == ((10, 13.2), (30, 13.1))
    assert found.settled.steps == 40
    assert boil(examples.times(s49=5.0)).settled.hiccups == ()


def test_a_garbled_step_is_left_out_of_every_figure() -> None:
    steps = examples.steps([10.0] * 50)
    steps[44] = Step(44, None)
    found = timing(steps, Statistic.parse("last"))
    assert (found.steady, found.settled.spread, found.settled.steps) == (10.0, 0.0, 39)


def test_a_measurement_derives_everything_from_the_published_statistic() -> None:
    found = examples.measure(examples.times(s49=10.07))
    assert found.step_time == 10.07
    assert found.tokens_per_second == pytest.approx(833030, abs=0.5)
    assert found.mfu == pytest.approx(39.54, abs=0.005)
    assert found.days_per_1t_tokens == pytest.approx(13.89, abs=0.005)
    assert repr(found) == "<llama3/70b-fp8-512gpus: 10.07 s a step, 833,030 tokens/s>"


def test_without_a_peak_there_is_no_mfu() -> None:
    known = examples.measure(examples.times())
    found = Measurement(known.case, known.timing, None)
    assert (found.mfu, found.tflops_per_gpu) == (None, None)
    assert found.tokens_per_second == known.tokens_per_second
