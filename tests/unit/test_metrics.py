"""The arithmetic of FLOPs and MFU; tests/unit/baselines/test_published.py recomputes the published tables."""

from __future__ import annotations

import pytest

from plugins.baselines.metrics import FlopsDefinition, MfuBasis, flops_per_sequence, mfu, tflops_per_gpu
from plugins.judging.model import parameters
from plugins.recipes.models import Model
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
