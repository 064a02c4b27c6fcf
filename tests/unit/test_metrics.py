"""The arithmetic of FLOPs, MFU and step times; tests/unit/baselines/test_published.py recomputes the published tables."""

from __future__ import annotations

import pytest

from plugins.errors import ConfigError
from plugins.judging.model import parameters
from plugins.logs import Step
from plugins.metrics import FlopsDefinition, Measurement, MfuBasis, flops_per_sequence, mfu, tflops_per_gpu
from plugins.recipes.models import Model
from plugins.timing import Statistic, Timing, timing
from tests.unit import examples

FULL = FlopsDefinition(definition="full-attention")
CAUSAL = FlopsDefinition(definition="causal-attention")
NEMOTRON_2411 = FlopsDefinition(definition="nemotron-24.11")


@pytest.mark.parametrize(
    ("size", "definition", "flops", "digits"),
    [
        ("8b", FULL, 4.744e14, 4),
        ("70b", FULL, 3.944e15, 4),
        ("405b", FULL, 2.1507e16, 5),
        ("405b", FlopsDefinition(definition="full-attention", query_groups=16), 2.1715e16, 5),
        ("8b", CAUSAL, 4.2165e14, 5),
        ("70b", CAUSAL, 3.6800e15, 5),
        ("405b", CAUSAL, 2.0676e16, 5),
        ("8b", FlopsDefinition(definition="full-attention", significant_digits=3), 4.74e14, 6),
        ("70b", FlopsDefinition(definition="full-attention", significant_digits=3), 3.94e15, 6),
    ],
)
def test_flops_of_a_sequence(size: str, definition: FlopsDefinition, flops: float, digits: int) -> None:
    computed = flops_per_sequence(examples.llama3().file.models[size], 8192, definition)
    assert float(f"{computed:.{digits - 1}e}") == flops


@pytest.mark.parametrize(
    ("layers", "groups", "flops"),
    [
        (8, 16, 1.475476e15),
        (8, 8, 1.462282e15),
        (30, 16, 5.249000e15),
        (62, 8, 1.063551e16),
        (62, 16, 1.073776e16),
    ],
)
def test_flops_of_a_proxy_follow_its_layers(layers: int, groups: int, flops: float) -> None:
    model = examples.llama3().file.models["405b"].model_copy(update={"layers": layers})
    definition = FlopsDefinition(definition="full-attention", query_groups=groups)
    assert flops_per_sequence(model, 8192, definition) == pytest.approx(flops, rel=1e-6)


# As the README's notes print them for 8b: attention + mlp + embedding, by hand.
def test_flops_are_the_sum_of_the_parts_in_the_notes() -> None:
    model = Model(layers=32, hidden=4096, ffn=14336, heads=32, query_groups=8, vocab=128256)
    by_hand = 8192 * (20_937_965_568 + 33_822_867_456 + 3_152_019_456)
    assert flops_per_sequence(model, 8192, FULL) == by_hand


# The four families of definitions, each by a number that others published.
@pytest.mark.parametrize(
    ("recipe", "size", "definition", "flops", "digits"),
    [
        # README notes, releases 24.11 and 25.01.
        ("nemotron4", "340b", NEMOTRON_2411, 1.009e16, 4),
        ("nemotron4", "340b", FlopsDefinition(definition="nemotron-24.11", significant_digits=3), 1.01e16, 6),
        ("maxtext_llama2", "70b", FULL, 1.8206e15, 5),
        (
            "maxtext_llama2",
            "70b",
            FlopsDefinition(definition="full-attention", significant_digits=3),
            1.82e15,
            6,
        ),
        # The formula of release 25.04.01, and NeMo 2's own figure: 1600.74 TFLOP/s per GPU at 21.542 s, GBS 512, 128 GPUs.
        ("nemotron4", "340b", FULL, 8.621e15, 4),
    ],
)
def test_flops_of_a_sequence_of_4096(
    recipe: str, size: str, definition: FlopsDefinition, flops: float, digits: int
) -> None:
    computed = flops_per_sequence(examples.recipe_named(recipe).file.models[size], 4096, definition)
    assert float(f"{computed:.{digits - 1}e}") == flops


# TFLOP/s per GPU as frameworks logged it: s a step, GBS, GPUs.
@pytest.mark.parametrize(
    ("recipe", "size", "length", "definition", "logged", "step_time", "gbs", "gpus"),
    [
        ("llama3", "405b", 8192, FULL, 1134.50, 9.479, 128, 256),
        ("nemotron4", "340b", 4096, FULL, 1600.74, 21.542, 512, 128),
        ("llama3", "8b", 8192, CAUSAL, 1183.9, 5.6986, 128, 8),
        ("llama3", "70b", 8192, CAUSAL, 1589.7, 4.63, 128, 64),
        ("maxtext_llama2", "70b", 4096, FULL, 460.480, 7.908, 128, 64),
    ],
)
def test_the_definitions_give_what_frameworks_logged(
    recipe: str,
    size: str,
    length: int,
    definition: FlopsDefinition,
    logged: float,
    step_time: float,
    gbs: int,
    gpus: int,
) -> None:
    flops = flops_per_sequence(examples.recipe_named(recipe).file.models[size], length, definition)
    assert gbs * flops / step_time / gpus / 1e12 == pytest.approx(logged, rel=2e-4)


# As the notes print their parts: attention + mlp + embedding.
@pytest.mark.parametrize(
    ("recipe", "size", "definition", "parts"),
    [
        ("nemotron4", "340b", NEMOTRON_2411, 869_730_877_440 + 1_565_515_579_392 + 28_311_552_000),
        ("maxtext_llama2", "70b", FULL, 104_689_827_840 + 338_228_674_560 + 1_572_864_000),
    ],
)
def test_the_parts_of_the_other_notes(
    recipe: str, size: str, definition: FlopsDefinition, parts: int
) -> None:
    assert (
        flops_per_sequence(examples.recipe_named(recipe).file.models[size], 4096, definition) == 4096 * parts
    )


def test_an_mlp_without_a_gate_has_two_thirds_of_the_products() -> None:
    gated = Model(layers=1, hidden=64, ffn=256, heads=4, query_groups=4, vocab=1)
    plain = gated.model_copy(update={"mlp": "squared-relu"})
    assert flops_per_sequence(gated, 8, FULL) - flops_per_sequence(plain, 8, FULL) == 8 * 6 * 256 * 64


def test_of_a_mixture_of_experts_those_that_a_token_uses_count() -> None:
    # 46.7 billion parameters, of which a token uses 12.9 (mistral.ai/news/mixtral-of-experts).
    mixtral = Model(
        layers=32, hidden=4096, ffn=14336, heads=32, query_groups=8, vocab=32000, experts=8, top_k=2
    )
    assert parameters(mixtral) == pytest.approx(46.7e9, rel=1e-3)
    # Of the embedding there is no product, and of attention's square 12 x layers x hidden for each token.
    products = 12.9e9 - 32000 * 4096
    assert flops_per_sequence(mixtral, 4096, FULL) == pytest.approx(
        4096 * (6 * products + 12 * 32 * 4096 * 4096), rel=2e-3
    )
    with pytest.raises(ValueError, match="top_k 2 is above experts 1"):
        Model(layers=1, hidden=8, ffn=8, heads=1, query_groups=1, vocab=8, top_k=2)


def test_the_nemotron_formula_takes_no_query_groups() -> None:
    with pytest.raises(ValueError, match="knows no query groups"):
        FlopsDefinition(definition="nemotron-24.11", query_groups=8)


def test_mfu_is_tflops_per_gpu_in_percent_of_the_peak() -> None:
    case = examples.case()
    assert mfu(case, 10.07, MfuBasis(4e15, FULL, 1979)) == pytest.approx(
        100 * tflops_per_gpu(case, 10.07, 4e15) / 1979
    )


@pytest.mark.parametrize(
    ("definition", "text"),
    [
        (FULL, "full-attention"),
        (FlopsDefinition(definition="full-attention", query_groups=16), "full-attention (16 query groups)"),
        (FlopsDefinition(definition="causal-attention", significant_digits=3), "causal-attention (3 digits)"),
        (NEMOTRON_2411, "nemotron-24.11"),
    ],
)
def test_a_definition_says_what_it_is(definition: FlopsDefinition, text: str) -> None:
    assert str(definition) == text


def boil(times: list[float], statistic: str = "last") -> Timing:
    return timing(examples.steps(times), Statistic.parse(statistic))


def test_last_is_the_last_step_alone() -> None:
    assert boil(examples.times(s49=10.21)).step_time == 10.21


@pytest.mark.parametrize(
    ("text", "mean"), [("mean:11-44", 28.5), ("mean:35-44", 40.5), ("mean:15-40", 28.5), ("mean:7-7", 8.0)]
)
def test_a_mean_includes_both_ends_of_its_0_based_window(text: str, mean: float) -> None:
    assert boil([float(i + 1) for i in range(50)], text).step_time == mean


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
    assert timing(forwards[::-1], last).step_time == timing(forwards, last).step_time


def test_spread_is_that_of_the_settled_steps_and_deaf_to_a_few_outliers() -> None:
    quiet = [10.0, 10.1, 9.9, 10.0, 10.1, 9.9, 10.0, 10.1, 9.9, 10.0]
    assert boil([30.0] * 10 + quiet * 4).spread == pytest.approx(1.4826 * 0.1 / 10, rel=1e-6)
    assert boil([10.0] * 10 + quiet * 3 + quiet[:-3] + [30.0] * 3).spread < 0.02


def test_the_tail_is_the_median_of_the_last_five() -> None:
    run = boil([10.0] * 45 + [11.0, 10.0, 12.0, 13.0, 11.0])
    assert (run.tail, run.settled, run.tail_error) == (11.0, 10.0, 0.0)


def test_the_error_of_the_tail_is_that_of_two_medians() -> None:
    run = boil([10.0, 10.1, 9.9, 10.0, 10.1] * 10)
    assert run.tail_error == pytest.approx(1.2533 * run.spread * (1 / 5 + 1 / 40) ** 0.5)


# A MaxText log has three decimals: of a step of 1 ms they leave 50 %, of one of a second a thousandth.
def test_one_tiny_step_does_not_coarsen_the_rest() -> None:
    tiny = [Step(i, 0.001 if i == 44 else 10.0, 0.0005) for i in range(50)]
    assert timing(tiny, Statistic.parse("last")).resolution == pytest.approx(0.00005)


def test_a_step_far_off_the_median_is_an_outlier_of_its_window() -> None:
    found = boil(examples.times(s40=13.1), "mean:35-44")
    assert found.outliers == ((40, 13.1),)
    assert found.without_outliers == pytest.approx(10.07, rel=0.003)


def test_a_quiet_window_does_not_call_two_percent_an_outlier() -> None:
    assert boil([10.0] * 49 + [10.19]).outliers == ()
    assert boil([10.0] * 49 + [10.21]).outliers == ((49, 10.21),)


def test_a_window_of_outliers_only_falls_back_to_the_median() -> None:
    assert boil(examples.times(s49=20.0)).without_outliers == pytest.approx(10.07)


def test_an_outlier_may_be_a_fast_step_but_a_hiccup_is_slow() -> None:
    found = boil(examples.times(s49=5.0))
    assert found.outliers == ((49, 5.0),)
    assert found.hiccups == ()


def test_hiccups_are_counted_behind_the_warm_up() -> None:
    found = boil(examples.times(s0=45.0, s9=20.0, s10=13.2, s30=13.1))
    assert found.hiccups == ((10, 13.2), (30, 13.1))
    assert found.settled_steps == 40


def test_a_garbled_step_is_left_out_of_every_figure() -> None:
    steps = examples.steps([10.0] * 50)
    steps[44] = Step(44, None)
    found = timing(steps, Statistic.parse("last"))
    assert (found.steady, found.spread, found.settled_steps) == (10.0, 0.0, 39)


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
