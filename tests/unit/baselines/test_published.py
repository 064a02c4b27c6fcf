"""The published tables recomputed: all 204 columns, and every figure that does not follow from its step time."""

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
from plugins.recipes.cases import Case
from tests.unit import examples, published
from tests.unit.published import Result

FULL = FlopsDefinition(definition="full-attention")
NEMOTRON_2411 = FlopsDefinition(definition="nemotron-24.11")
DATA_SHEET = {"h100": {"bf16": 989.0, "fp8": 1979.0}, "gb200": {"bf16": 2450.0, "fp8": 4900.0}}

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

SIXTEEN_GROUPS = "computed with 16 query groups, where the model has 8"
INTEGER_DAYS = "printed as an integer"
CUT_OFF_DAYS = "printed as an integer, cut off"
NEIGHBOUR = "belongs to 14.92 s, printed for 1024 GPUs, not to the 14.98 s printed here"
EXACT_FLOPS = "computed with 2.1715e16 model FLOPs, not with the text's 2.17E+16"
MORE_DIGITS = "computed from a step time of more digits than is printed"
UNKNOWN = "fits no rounding of the text's figures"

# Every figure that is off by more than 0.5 % when it is computed as the README's text says: exact model FLOPs by
# its formula, 989 and 1979 TFLOP/s. In percent of the computed figure, with the cause.
DEVIATIONS = {
    "llama3 25.04 h100/405b-proxy-bf16-32gpus MFU": (0.86, SIXTEEN_GROUPS),
    "llama3 25.04 h100/405b-proxy-bf16-64gpus MFU": (0.90, SIXTEEN_GROUPS),
    "llama3 25.04 h100/405b-proxy-bf16-128gpus MFU": (0.91, SIXTEEN_GROUPS),
    "llama3 25.04 h100/405b-bf16-512gpus MFU": (0.91, SIXTEEN_GROUPS),
    "llama3 25.04 h100/405b-bf16-1024gpus MFU": (0.92, SIXTEEN_GROUPS),
    "llama3 25.04 h100/405b-bf16-2048gpus MFU": (0.91, SIXTEEN_GROUPS),
    "llama3 25.04 h100/405b-proxy-fp8-32gpus MFU": (0.90, SIXTEEN_GROUPS),
    "llama3 25.04 h100/405b-proxy-fp8-64gpus MFU": (0.96, SIXTEEN_GROUPS),
    "llama3 25.04 h100/405b-proxy-fp8-128gpus MFU": (0.97, SIXTEEN_GROUPS),
    "llama3 25.04 h100/405b-fp8-512gpus MFU": (0.96, SIXTEEN_GROUPS),
    "llama3 25.04 h100/405b-fp8-1024gpus MFU": (0.96, SIXTEEN_GROUPS),
    "llama3 25.04 h100/405b-fp8-2048gpus MFU": (0.96, SIXTEEN_GROUPS),
    "nemotron4 24.11 h100/340b-bf16-2048gpus days": (1.08, INTEGER_DAYS),
    "nemotron4 24.11 h100/340b-fp8-2048gpus days": (-1.36, INTEGER_DAYS),
    "llama3 25.05 gb200/405b-bf16-128gpus MFU": (0.94, SIXTEEN_GROUPS),
    "llama3 25.05 gb200/405b-bf16-256gpus MFU": (0.91, SIXTEEN_GROUPS),
    "llama3 25.05 gb200/405b-bf16-512gpus MFU": (0.94, SIXTEEN_GROUPS),
    "llama3 25.05 gb200/405b-fp8-128gpus MFU": (0.85, SIXTEEN_GROUPS),
    "llama3 25.05 gb200/405b-fp8-256gpus MFU": (0.86, SIXTEEN_GROUPS),
    "llama3 25.05 gb200/405b-fp8-512gpus MFU": (1.0, SIXTEEN_GROUPS),
    "llama3 25.05 h100/405b-bf16-512gpus MFU": (0.82, SIXTEEN_GROUPS),
    "llama3 25.05 h100/405b-fp8-512gpus MFU": (0.92, SIXTEEN_GROUPS),
    "nemotron4 25.05 gb200/340b-bf16-256gpus days": (-0.72, CUT_OFF_DAYS),
    "nemotron4 25.05 gb200/340b-fp8-128gpus days": (-0.73, CUT_OFF_DAYS),
    "nemotron4 25.05 gb200/340b-fp8-512gpus days": (-0.57, INTEGER_DAYS),
    "nemotron4 25.05 gb200/340b-strong-bf16-256gpus days": (0.54, INTEGER_DAYS),
    "nemotron4 25.05 gb200/340b-strong-bf16-512gpus days": (0.57, INTEGER_DAYS),
    "nemotron4 25.05 gb200/340b-strong-fp8-512gpus days": (-0.90, INTEGER_DAYS),
}


# What does not follow from the printed step time by the baseline's own definitions, though by less than 0.5 %.
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


def as_the_text_says(result: Result) -> MfuBasis:
    case = case_of(result)
    old = result.recipe == "nemotron4" and result.release in ("24.11", "25.02")
    definition = NEMOTRON_2411 if old else FULL
    flops = flops_per_sequence(case.model, case.sequence_length, definition)
    return MfuBasis(flops, definition, DATA_SHEET[result.gpu][case.dtype])


def case_of(result: Result) -> Case:
    return examples.case(result.id, result.recipe, release=result.release, gpu=result.gpu)


@pytest.mark.parametrize(("recipe", "columns"), [("llama3", 34), ("nemotron4", 26), ("maxtext_llama2", 12)])
def test_a_readme_has_this_many_columns_and_each_is_a_case(recipe: str, columns: int) -> None:
    results = published.results(recipe)
    assert len(results) == columns
    cases = examples.recipe_named(recipe).cases
    assert {result.id for result in results} == {case.id for case in cases if case.is_timed}


# 25.02 prints 340b as well, with the figures of 24.11; its BF16 runs another configuration and has no baseline.
@pytest.mark.parametrize(
    ("recipe", "release", "gpu", "columns", "others"),
    [
        ("llama3", "24.11", "h100", 34, 0),
        ("llama3", "25.02", "h100", 34, 0),
        ("llama3", "25.05", "gb200", 6, 0),
        ("llama3", "25.05", "h100", 2, 0),
        ("nemotron4", "25.02", "h100", 16, 10),
        ("nemotron4", "25.04", "h100", 24, 0),
        ("nemotron4", "25.05", "gb200", 12, 0),
        ("nemotron4", "25.05", "h100", 4, 0),
    ],
)
def test_another_release_has_this_many_columns(
    recipe: str, release: str, gpu: str, columns: int, others: int
) -> None:
    results = published.results_of((recipe, release, gpu))
    assert len(results) == columns
    cases = {case.id for case in examples.recipe_named(recipe, release, gpu).cases}
    assert cases >= {result.id for result in results}
    assert len(cases) == columns + others


def test_there_are_204_columns() -> None:
    assert len(published.results()) == 72
    assert len(published.all_results()) == 204


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


def test_every_deviation_from_the_text_has_its_cause() -> None:
    off = {
        f"{result.name} {name}": round(100 * (printed / computed - 1), 2)
        for result in published.all_results()
        for name, printed, computed in figures(result, as_the_text_says(result))
        if abs(printed / computed - 1) > 0.005
    }
    assert off == {name: percent for name, (percent, _) in DEVIATIONS.items()}


# In percent of the MFU computed as the text says.
@pytest.mark.parametrize(
    ("recipe", "model", "dtype", "lowest", "highest"),
    [
        ("llama3", "8b", "bf16", -0.14, -0.13),
        ("llama3", "8b", "fp8", -0.10, -0.09),
        ("llama3", "70b", "bf16", -0.15, -0.14),
        ("llama3", "70b", "fp8", -0.11, -0.09),
        ("llama3", "405b", "bf16", 0.86, 0.92),
        ("llama3", "405b", "fp8", 0.90, 0.97),
        ("nemotron4", "15b", "bf16", -0.00, 0.01),
        ("nemotron4", "15b", "fp8", -0.00, 0.02),
        ("nemotron4", "340b", "bf16", 0.09, 0.10),
        ("nemotron4", "340b", "fp8", 0.09, 0.10),
        ("maxtext_llama2", "70b", "bf16", -0.04, -0.03),
        ("maxtext_llama2", "70b", "fp8", -0.04, -0.02),
    ],
)
def test_the_definitions_stated_in_the_text_miss_the_printed_mfu(
    recipe: str, model: str, dtype: str, lowest: float, highest: float
) -> None:
    deviations = []
    for result in published.results(recipe):
        case = examples.case(result.id, recipe)
        if (case.model_name, case.dtype) == (model, dtype):
            deviations.append(100 * (result.mfu / mfu(case, result.step_time, as_the_text_says(result)) - 1))
    assert (round(min(deviations), 2), round(max(deviations), 2)) == (lowest, highest)


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


# The READMEs' own worked examples are no cells of their tables.
@pytest.mark.parametrize(
    ("recipe", "case_id", "seconds", "tokens", "percent", "days"),
    [
        ("llama3", "8b-fp8-8gpus", 12.39, 84630.83, 30.93, 136.76),
        ("maxtext_llama2", "70b-bf16-64gpus", 7.908, 66298.43, 46.54, 174.57),
    ],
)
def test_a_worked_example_is_right_and_would_not_pass(
    recipe: str, case_id: str, seconds: float, tokens: float, percent: float, days: float
) -> None:
    case, basis = examples.case(case_id, recipe), examples.basis(case_id, recipe)
    assert tokens_per_second(case, seconds) == pytest.approx(tokens, abs=0.005)
    assert mfu(case, seconds, basis) == pytest.approx(percent, abs=0.005)
    # 174.575 is printed as 174.57.
    assert days_per_1t_tokens(case, seconds) == pytest.approx(days, abs=0.0055)
    assert seconds > examples.target(case_id, recipe).step_time / 0.95


def test_nemotrons_worked_example() -> None:
    case = examples.case("340b-bf16-128gpus", "nemotron4")
    assert mfu(case, 4.77, examples.basis(case.id, "nemotron4")) == pytest.approx(53.52, abs=0.01)
    larger = examples.case("340b-bf16-1024gpus", "nemotron4")
    assert tokens_per_second(larger, 3.59) == pytest.approx(292082, abs=0.5)
    assert days_per_1t_tokens(larger, 3.59) == pytest.approx(39.6, abs=0.05)
