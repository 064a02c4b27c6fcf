"""The published tables recomputed: all 56 columns, and every figure that does not follow from its step time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from plugins.metrics import FlopsDefinition
from plugins.metrics import Yardstick
from plugins.metrics import days_per_1t_tokens
from plugins.metrics import flops_per_sequence
from plugins.metrics import mfu
from plugins.metrics import tokens_per_second
from tests.unit import examples
from tests.unit import published
from tests.unit.published import Result

FULL = FlopsDefinition(definition="full-attention")
NEMOTRON_2411 = FlopsDefinition(definition="nemotron-24.11")
DATA_SHEET = {"bf16": 989.0, "fp8": 1979.0}

# Half a unit of the last digit that each README prints: tokens/s, MFU, days.
PRINTED = {
    "llama3": (0.5, 0.005, 0.005),
    "nemotron4": (0.5, 0.005, 0.5),
    "maxtext_llama2": (0.005, 0.005, 0.005),
}

SIXTEEN_GROUPS = "computed with 16 query groups, where the model has 8"
INTEGER_DAYS = "printed as an integer"

# Every figure that is off by more than 0.5 % when it is computed as the README's text says: exact model FLOPs by
# its formula, 989 and 1979 TFLOP/s. In percent of the computed figure, with the cause.
DEVIATIONS = {
    "llama3/405b-proxy-bf16-32gpus MFU": (0.86, SIXTEEN_GROUPS),
    "llama3/405b-proxy-bf16-64gpus MFU": (0.90, SIXTEEN_GROUPS),
    "llama3/405b-proxy-bf16-128gpus MFU": (0.91, SIXTEEN_GROUPS),
    "llama3/405b-bf16-512gpus MFU": (0.91, SIXTEEN_GROUPS),
    "llama3/405b-bf16-1024gpus MFU": (0.92, SIXTEEN_GROUPS),
    "llama3/405b-bf16-2048gpus MFU": (0.91, SIXTEEN_GROUPS),
    "llama3/405b-proxy-fp8-32gpus MFU": (0.90, SIXTEEN_GROUPS),
    "llama3/405b-proxy-fp8-64gpus MFU": (0.96, SIXTEEN_GROUPS),
    "llama3/405b-proxy-fp8-128gpus MFU": (0.97, SIXTEEN_GROUPS),
    "llama3/405b-fp8-512gpus MFU": (0.96, SIXTEEN_GROUPS),
    "llama3/405b-fp8-1024gpus MFU": (0.96, SIXTEEN_GROUPS),
    "llama3/405b-fp8-2048gpus MFU": (0.96, SIXTEEN_GROUPS),
    "nemotron4/340b-bf16-2048gpus days": (1.08, INTEGER_DAYS),
    "nemotron4/340b-fp8-2048gpus days": (-1.36, INTEGER_DAYS),
}


def figures(result: Result, stick: Yardstick) -> Iterator[tuple[str, float, float]]:
    """Name, printed value and the value that follows from the printed step time."""
    case = examples.case(result.id, result.recipe)
    yield "tokens/s", result.tokens_per_second, tokens_per_second(case, result.step_time)
    yield "MFU", result.mfu, mfu(case, result.step_time, stick)
    if result.days is not None:
        yield "days", result.days, days_per_1t_tokens(case, result.step_time)


def as_the_text_says(result: Result) -> Yardstick:
    case = examples.case(result.id, result.recipe)
    definition = NEMOTRON_2411 if result.recipe == "nemotron4" else FULL
    flops = flops_per_sequence(case.model, case.sequence_length, definition)
    return Yardstick(flops, definition, DATA_SHEET[case.dtype])


@pytest.mark.parametrize(("recipe", "columns"), [("llama3", 34), ("nemotron4", 10), ("maxtext_llama2", 12)])
def test_a_readme_has_this_many_columns_and_each_is_a_case(recipe: str, columns: int) -> None:
    results = published.results(recipe)
    assert len(results) == columns
    assert {result.id for result in results} == {case.id for case in examples.recipe_named(recipe).cases}


def test_there_are_56_columns() -> None:
    assert len(published.results()) == 56


def test_by_its_baselines_definitions_every_figure_follows_from_its_step_time() -> None:
    off = [
        f"{result.recipe}/{result.id} {name}: printed {printed}, computed {computed:.4f}"
        for result in published.results()
        for (name, printed, computed), half_a_unit in zip(
            figures(result, examples.stick(result.id, result.recipe)), PRINTED[result.recipe], strict=False
        )
        if abs(printed - computed) > half_a_unit + 1e-9
    ]
    assert off == []


def test_every_deviation_from_the_text_has_its_cause() -> None:
    off = {
        f"{result.recipe}/{result.id} {name}": round(100 * (printed / computed - 1), 2)
        for result in published.results()
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
        corrected = examples.goal(result.id, "nemotron4").corrected_mfu(result.step_time)
        assert corrected is not None
        assert result.mfu / corrected == pytest.approx(1.1715, abs=0.0002)
        found.setdefault(result.id.split("-")[1], []).append(round(corrected, 2))
    assert found == {"bf16": [47.27, 46.67, 46.37, 46.07, 45.03], "fp8": [34.46, 33.93, 33.41, 32.61, 31.21]}


@pytest.mark.parametrize("recipe", ["llama3", "maxtext_llama2"])
def test_other_tables_have_nothing_to_correct(recipe: str) -> None:
    for result in published.results(recipe):
        assert examples.goal(result.id, recipe).corrected_mfu(result.step_time) is None


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
    case, stick = examples.case(case_id, recipe), examples.stick(case_id, recipe)
    assert tokens_per_second(case, seconds) == pytest.approx(tokens, abs=0.005)
    assert mfu(case, seconds, stick) == pytest.approx(percent, abs=0.005)
    # 174.575 is printed as 174.57.
    assert days_per_1t_tokens(case, seconds) == pytest.approx(days, abs=0.0055)
    assert seconds > examples.goal(case_id, recipe).step_time / 0.95


def test_nemotrons_worked_example() -> None:
    case = examples.case("340b-bf16-128gpus", "nemotron4")
    assert mfu(case, 4.77, examples.stick(case.id, "nemotron4")) == pytest.approx(53.52, abs=0.01)
    larger = examples.case("340b-bf16-1024gpus", "nemotron4")
    assert tokens_per_second(larger, 3.59) == pytest.approx(292082, abs=0.5)
    assert days_per_1t_tokens(larger, 3.59) == pytest.approx(39.6, abs=0.05)
