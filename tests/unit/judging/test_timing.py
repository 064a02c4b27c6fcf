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


def test_last_is_the_last_step_alone() -> None:
    assert boil(examples.times(s49=10.21)).published.step_time == 10.21


@pytest.mark.parametrize(
    ("text", "mean"), [("mean:11-44", 28.5), ("mean:35-44", 40.5), ("mean:15-40", 28.5), ("mean:7-7", 8.0)]
)
def test_a_mean_includes_both_ends_of_its_0_based_window(text: str, mean: float) -> None:
    assert boil([float(i + 1) for i in range(50)], text).published.step_time == mean


@pytest.mark.parametrize("text", ["last", "mean:35-44", "mean:0-0"])
def test_a_statistic_reads_what_it_writes(text: str) -> None:
    assert str(Statistic.parse(text)) == text


@pytest.mark.parametrize(
    "text", ["", "median", "Last", "mean", "mean:44-35", "mean:-1-4", "mean:1-2 ", "last-10"]
)
def test_an_unknown_statistic_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="write last or mean:A-B"):
        Statistic.parse(text)


def test_a_statistic_needs_its_own_steps_only() -> None:
    assert list(Statistic.parse("last").indices(50)) == [49]
    assert list(Statistic.parse("mean:35-44").indices(50)) == list(range(35, 45))


def test_steady_is_the_median_of_the_last_ten_steps() -> None:
    assert boil([99.0] * 40 + [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]).steady == 5.5


def test_steps_may_come_in_any_order() -> None:
    forwards = examples.steps(examples.times())
    last = Statistic.parse("last")
    assert timing(forwards[::-1], last).published.step_time == timing(forwards, last).published.step_time


def test_spread_is_that_of_the_settled_steps_and_deaf_to_a_few_outliers() -> None:
    quiet = [10.0, 10.1, 9.9, 10.0, 10.1, 9.9, 10.0, 10.1, 9.9, 10.0]
    assert boil([30.0] * 10 + quiet * 4).settled.spread == pytest.approx(1.4826 * 0.1 / 10, rel=1e-6)
    assert boil([10.0] * 10 + quiet * 3 + quiet[:-3] + [30.0] * 3).settled.spread < 0.02


def test_the_tail_is_the_median_of_the_last_five() -> None:
    run = boil([10.0] * 45 + [11.0, 10.0, 12.0, 13.0, 11.0])
    assert (run.tail, run.settled.median, run.tail_error) == (11.0, 10.0, 0.0)


def test_the_error_of_the_tail_is_that_of_two_medians() -> None:
    run = boil([10.0, 10.1, 9.9, 10.0, 10.1] * 10)
    assert run.tail_error == pytest.approx(1.2533 * run.settled.spread * (1 / 5 + 1 / 40) ** 0.5)


# A MaxText log has three decimals: of a step of 1 ms they leave 50 %, of one of a second a thousandth.
def test_one_tiny_step_does_not_coarsen_the_rest() -> None:
    tiny = [Step(i, 0.001 if i == 44 else 10.0, 0.0005) for i in range(50)]
    assert timing(tiny, Statistic.parse("last")).resolution == pytest.approx(0.00005)


def test_a_step_far_off_the_median_is_an_outlier_of_its_window() -> None:
    found = boil(examples.times(s40=13.1), "mean:35-44")
    assert found.published.outliers == ((40, 13.1),)
    assert found.published.without_outliers == pytest.approx(10.07, rel=0.003)


def test_a_quiet_window_does_not_call_two_percent_an_outlier() -> None:
    assert boil([10.0] * 49 + [10.19]).published.outliers == ()
    assert boil([10.0] * 49 + [10.21]).published.outliers == ((49, 10.21),)


def test_a_window_of_outliers_only_falls_back_to_the_median() -> None:
    assert boil(examples.times(s49=20.0)).published.without_outliers == pytest.approx(10.07)


def test_an_outlier_may_be_a_fast_step_but_a_hiccup_is_slow() -> None:
    found = boil(examples.times(s49=5.0))
    assert found.published.outliers == ((49, 5.0),)
    assert found.settled.hiccups == ()


def test_hiccups_are_counted_behind_the_warm_up() -> None:
    found = boil(examples.times(s0=45.0, s9=20.0, s10=13.2, s30=13.1))
    assert found.settled.hiccups == ((10, 13.2), (30, 13.1))
    assert found.settled.steps == 40


def test_a_garbled_step_is_left_out_of_every_figure() -> None:
    steps = examples.steps([10.0] * 50)
    steps[44] = Step(44, None)
    found = timing(steps, Statistic.parse("last"))
    assert (found.steady, found.settled.spread, found.settled.steps) == (10.0, 0.0, 39)


def test_the_resolution_is_that_of_the_log() -> None:
    assert boil([10.07] * 50).resolution == pytest.approx(0.005 / 10.07)
    assert boil([9.33] * 50).resolution == pytest.approx(0.0005 / 9.33)


# Three decimals of a step that was dispatched in 2 ms say +-25 % of that step, and nothing about the others.
def test_one_tiny_step_does_not_widen_the_resolution_of_the_others() -> None:
    steps = [Step(i, 7.908, 0.0005) for i in range(50)]
    steps[1] = Step(1, 0.002, 0.0005)
    assert timing(steps, Statistic.parse("last")).resolution < 0.0001


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
