"""The arithmetic of FLOPs and MFU, and the published tables recomputed by it: every figure that does not follow from its step time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from plugins.baselines.metrics import (
    FlopsDefinition,
    MfuBasis,
    days_per_1t_tokens,
    flops_per_sequence,
    mfu,
    tokens_per_second,
)
from plugins.judging.model import parameters
from plugins.recipes.cases import Case
from plugins.recipes.models import Model
from tests.unit import examples, published
from tests.unit.published import Result

# Half a unit of the last digit that each README prints: tokens/s, MFU, days. A whole one where it cuts digits off.
PRINTED = {
    "llama3 25.05 gb200": (0.5, 0.05, 0.005),
    "llama3": (0.5, 0.005, 0.005),
    "nemotron4 24.11 h100/340b": (0.5, 0.005, 0.5),
    "nemotron4 25.05": (1, 0.1, 1),
    "nemotron4": (0.5, 0.005, 0.005),
    "maxtext_llama2": (0.005, 0.005, 0.005),
}

# This README's figures follow from step times of more digits than the two decimals that it prints.
FROM_UNPRINTED_DIGITS = "llama3 25.02"
HALF_A_HUNDREDTH = 0.005

NEIGHBOUR = "belongs to 14.92 s, printed for 1024 GPUs, not to the 14.98 s printed here"
EXACT_FLOPS = "computed with 2.1715e16 model FLOPs, not with the text's 2.17E+16"
MORE_DIGITS = "computed from a step time of more digits than is printed"
UNKNOWN = "fits no rounding of the text's figures"

# What does not follow from the printed step time by the baseline's own definitions, in percent of the computed figure, with the cause.
LOOSE = {
    "llama3 24.11 h100/70b-bf16-2048gpus tokens/s": (0.40, NEIGHBOUR),
    "llama3 24.11 h100/70b-bf16-2048gpus MFU": (0.41, NEIGHBOUR),
    "llama3 24.11 h100/70b-bf16-2048gpus days": (-0.33, NEIGHBOUR),
    "llama3 24.11 h100/405b-proxy-fp8-32gpus tokens/s": (0.09, MORE_DIGITS),
    "llama3 24.11 h100/405b-proxy-fp8-32gpus MFU": (0.09, MORE_DIGITS),
    "llama3 24.11 h100/405b-proxy-fp8-96gpus tokens/s": (-0.05, MORE_DIGITS),
    "llama3 24.11 h100/405b-proxy-fp8-96gpus MFU": (-0.06, MORE_DIGITS),
    "llama3 24.11 h100/405b-proxy-fp8-192gpus tokens/s": (0.04, MORE_DIGITS),
    "llama3 24.11 h100/405b-proxy-fp8-192gpus MFU": (0.03, MORE_DIGITS),
    "llama3 24.11 h100/405b-fp8-576gpus MFU": (0.07, EXACT_FLOPS),
    "llama3 24.11 h100/405b-fp8-1152gpus MFU": (0.08, EXACT_FLOPS),
    "llama3 24.11 h100/405b-fp8-2304gpus MFU": (0.07, EXACT_FLOPS),
    "llama3 25.02 h100/405b-proxy-bf16-192gpus MFU": (-0.04, UNKNOWN),
    "llama3 25.05 h100/405b-bf16-512gpus MFU": (-0.07, UNKNOWN),
    "llama3 25.05 h100/405b-fp8-512gpus MFU": (0.03, UNKNOWN),
}


def figures(result: Result, basis: MfuBasis) -> Iterator[tuple[str, float, float]]:
    """Name, printed value and the value that follows from the printed step time."""
    case = case_of(result)
    yield "tokens/s", result.tokens_per_second, tokens_per_second(case, result.step_time)
    yield "MFU", result.mfu, mfu(case, result.step_time, basis)
    if result.days is not None:
        yield "days", result.days, days_per_1t_tokens(case, result.step_time)


def case_of(result: Result) -> Case:
    return examples.case(result.id, result.recipe, release=result.release, gpu=result.gpu)


# 25.02 prints 340b as well, with the figures of 24.11; its BF16 runs another configuration and has no baseline.
COLUMNS = {
    ("llama3", None, "h100"): (34, 0),
    ("nemotron4", None, "h100"): (26, 0),
    ("maxtext_llama2", None, "h100"): (12, 0),
    ("llama3", "24.11", "h100"): (34, 0),
    ("llama3", "25.02", "h100"): (34, 0),
    ("llama3", "25.05", "gb200"): (6, 0),
    ("llama3", "25.05", "h100"): (2, 0),
    ("nemotron4", "25.02", "h100"): (16, 10),
    ("nemotron4", "25.04", "h100"): (24, 0),
    ("nemotron4", "25.05", "gb200"): (12, 0),
    ("nemotron4", "25.05", "h100"): (4, 0),
}


@pytest.mark.parametrize(("table", "numbers"), COLUMNS.items())
def test_a_readme_has_this_many_columns_and_each_is_a_case(
    table: tuple[str, str | None, str], numbers: tuple[int, int]
) -> None:
    recipe, release, gpu = table
    results = published.results(recipe) if release is None else published.results_of((recipe, release, gpu))
    cases = {case.id for case in examples.recipe_named(*table).cases if case.is_timed}
    assert cases >= {result.id for result in results}
    assert (len(results), len(cases) - len(results)) == numbers


def half_units(result: Result) -> tuple[float, float, float]:
    return next(units for start, units in PRINTED.items() if result.name.startswith(start))


def test_by_its_baselines_definitions_every_figure_follows_from_its_step_time() -> None:
    off = {}
    for result in published.all_results():
        basis = examples.basis(result.id, result.recipe, release=result.release, gpu=result.gpu)
        unprinted = result.name.startswith(FROM_UNPRINTED_DIGITS)
        more = HALF_A_HUNDREDTH / result.step_time if unprinted else 0
        for (name, printed, computed), half_a_unit in zip(
            figures(result, basis), half_units(result), strict=False
        ):
            if abs(printed - computed) > half_a_unit + more * computed + 1e-9:
                off[f"{result.name} {name}"] = round(100 * (printed / computed - 1), 2)
    assert off == {name: percent for name, (percent, _) in LOOSE.items()}


# With the model's own query groups and one product for each weight.
def test_nemotrons_corrected_mfu() -> None:
    found: dict[str, list[float]] = {}
    for result in published.results("nemotron4"):
        corrected = examples.target(result.id, "nemotron4").corrected_mfu(result.step_time)
        assert corrected is not None
        size, dtype, _ = result.id.split("-")
        excess = {"15b": 1.1287, "340b": 1.1715}[size]
        assert result.mfu / corrected == pytest.approx(excess, abs=0.0002)
        if size == "340b":
            found.setdefault(dtype, []).append(round(corrected, 2))
    assert found == {"bf16": [47.27, 46.67, 46.37, 46.07, 45.03], "fp8": [34.46, 33.93, 33.41, 32.61, 31.21]}


@pytest.mark.parametrize("recipe", ["llama3", "maxtext_llama2"])
def test_other_tables_have_nothing_to_correct(recipe: str) -> None:
    for result in published.results(recipe):
        assert examples.target(result.id, recipe).corrected_mfu(result.step_time) is None


FULL = FlopsDefinition(definition="full-attention")
CAUSAL = FlopsDefinition(definition="causal-attention")
NEMOTRON_2411 = FlopsDefinition(definition="nemotron-24.11")


@pytest.mark.parametrize(
    ("recipe", "size", "length", "definition", "flops", "digits"),
    [
        ("llama3", "8b", 8192, FULL, 4.744e14, 4),
        ("llama3", "405b", 8192, FlopsDefinition(definition="full-attention", query_groups=16), 2.1715e16, 5),
        ("llama3", "405b", 8192, CAUSAL, 2.0676e16, 5),
        ("llama3", "8b", 8192, FlopsDefinition(definition="full-attention", significant_digits=3), 4.74e14, 6),
        # README notes, releases 24.11 and 25.01.
        ("nemotron4", "340b", 4096, NEMOTRON_2411, 1.009e16, 4),
        ("nemotron4", "340b", 4096, FlopsDefinition(definition="nemotron-24.11", significant_digits=3), 1.01e16, 6),
        ("maxtext_llama2", "70b", 4096, FULL, 1.8206e15, 5),
        # The formula of release 25.04.01, and NeMo 2's own figure: 1600.74 TFLOP/s per GPU at 21.542 s, GBS 512, 128 GPUs.
        ("nemotron4", "340b", 4096, FULL, 8.621e15, 4),
    ],
)  # fmt: skip
def test_flops_of_a_sequence(
    recipe: str, size: str, length: int, definition: FlopsDefinition, flops: float, digits: int
) -> None:
    computed = flops_per_sequence(examples.recipe_named(recipe).file.models[size], length, definition)
    assert float(f"{computed:.{digits - 1}e}") == flops


# As the README's notes print them for 8b: attention + mlp + embedding, by hand.
def test_flops_are_the_sum_of_the_parts_in_the_notes() -> None:
    model = Model(layers=32, hidden=4096, ffn=14336, heads=32, query_groups=8, vocab=128256)
    by_hand = 8192 * (20_937_965_568 + 33_822_867_456 + 3_152_019_456)
    assert flops_per_sequence(model, 8192, FULL) == by_hand


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
