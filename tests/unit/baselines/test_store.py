"""Baselines: no placeholder gets in, and a number is only used for the configuration it was measured with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from plugins.base.errors import ConfigError
from plugins.baselines.baseline_file import NO_TABLES, accelerators, load_baselines
from plugins.baselines.expected import counting, expected
from plugins.baselines.store import find
from plugins.recipes.expansion import load_recipe
from plugins.record.baseline import Statistic
from tests.unit import examples, published

CELL = (
    "      - {size: 70b, dtype: fp8, gpus: 512, sequence_length: 8192, layers: 80, tp: 4, pp: 8, "
    "cp: 1, vp: 5, dp: 16, mbs: 1, gbs: 1024, ga: 64, step_time: 10.07, "
    "tokens_per_second: 833030, mfu: 39.54, days_per_1t_tokens: 13.89}\n"
)
TABLE = (
    """\
  - release: "25.04"
    gpu: h100
    framework: NeMo 25.02.01
    source: https://example.org/README.md
    statistic: last
    peak: {bf16: 989.5, fp8: 1979}
    flops:
      70b: {definition: full-attention}
    cells:
"""
    + CELL
)
FILE = "recipe: llama3\ntables:\n" + TABLE
MEASURED = """\
recipe: llama3
tables:
  - release: "25.04"
    gpu: h100
    framework: JAX
    source: measured here
    statistic: mean:35-44
    peak: measured
    flops:
      70b: {definition: causal-attention}
    cells:
      - {size: 70b, dtype: fp8, gpus: 512, tp: 4, pp: 8, cp: 1, vp: 5, mbs: 1, gbs: 1024, mfu: 40}
"""
LAST, SOURCE = "    statistic: last\n", "source: https://example.org/README.md"
FOLDERS = sorted(path.parent for path in examples.ROOT.glob("suites/*/recipe.yaml"))
FILES = sorted(path for path in examples.BASELINES.glob("*.yaml") if path.name not in NO_TABLES)


def write(folder: Path, text: str) -> Path:
    load_baselines.cache_clear()
    path = folder / "llama3.yaml"
    path.write_text(text)
    return path


def refused(folder: Path, text: str) -> str:
    path = write(folder, text)
    with pytest.raises(ConfigError) as caught:
        load_baselines(path)
    said = str(caught.value)
    assert said.startswith(f"{path}:"), said
    return said


def test_the_example_of_this_module_is_accepted(tmp_path: Path) -> None:
    write(tmp_path, FILE)
    found = find(tmp_path, examples.llama3(), examples.case(), "h100")
    assert found is not None
    assert found.cell.step_time == 10.07
    assert found.origin == "NeMo 25.02.01 release 25.04 on h100, https://example.org/README.md"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("    source: https://example.org/README.md\n", "", "source: missing"),
        ("source: https://example.org/README.md", "source:", "source: expected text"),
        ('release: "25.04"', 'release: ""', "release: a placeholder"),
        ('  - release: "25.04"\n    gpu: h100', "  - gpu: h100", "release: missing"),
        ('release: "25.04"', "release: 25.04", "put it in quotes"),
        ("    gpu: h100\n", "", "gpu: missing"),
        ("    framework: NeMo 25.02.01\n", "", "framework: missing"),
        ("    statistic: last\n", "", "statistic: missing"),
        ("step_time: 10.07", "step_time: 0", "step_time: must be greater than 0"),
        ("step_time: 10.07", "step_time: -10.07", "step_time: must be greater than 0"),
        ("step_time: 10.07", "step_time: .nan", "step_time: expected a number"),
        ("step_time: 10.07", "step_time: TODO", "step_time: expected a number"),
        ("step_time: 10.07, ", "", "step_time and tokens_per_second are required"),
        ("step_time: 10.07", "step_time: null", "step_time and tokens_per_second are required"),
        ("tokens_per_second: 833030, ", "", "step_time and tokens_per_second are required"),
        (
            "tokens_per_second: 833030",
            "tokens_per_second: 0",
            "tokens_per_second: must be greater than 0",
        ),
        ("mfu: 39.54, ", "", "mfu is required"),
        ("mfu: 39.54", "mfu: 0", "mfu: must be greater than 0"),
        ("mfu: 39.54", "mfu: 100", "mfu: must be less than 100"),
        ("      70b: {", "      8b: {", "no FLOPs definition for 70b"),
        ("full-attention", "full", "definition: must be 'full-attention', 'causal-attention' or"),
        ("{bf16: 989.5, fp8: 1979}", "{bf16: 989.5}", "no peak for fp8"),
        ("{bf16: 989.5, fp8: 1979}", "{}", "no peak for fp8"),
        ("    peak: {bf16: 989.5, fp8: 1979}\n", "", "peak: missing"),
        (LAST, f"{LAST}    tolerance: {{slower: 0}}\n", "slower"),
        (LAST, f"{LAST}    tolerance: {{slower: 1}}\n", "slower"),
        (LAST, f"{LAST}    tolerance: {{slower: .nan}}\n", "slower"),
        (LAST, f"{LAST}    tolerance: {{slowr: 0.05}}\n", "did you mean 'slower'?"),
        ("    cells:\n" + CELL, "    cells: []\n", "cells: must have 1 or more values"),
        ("gbs: 1024, ", "gbs: 1024, gsb: 1, ", "did you mean 'gbs'?"),
        *(("fp8: 1979", f"fp8: {peak}", "peak") for peak in ("0", "-1979", ".nan", ".inf")),
        ("step_time: 10.07", "step_time: .inf", "expected a number, got inf"),
        ("tokens_per_second: 833030", "tokens_per_second: .inf", "expected a number, got inf"),
        *(
            (LAST, f"{LAST}    tolerance: {{{name}: .inf}}\n", "expected a number, got inf")
            for name in ("faster", "spread")
        ),
        *((SOURCE, f"source: {name}", "source") for name in ("'  '", "TODO", "tbd", "'?'", '""')),
        *(
            (LAST, f"    statistic: {name}\n", f"statistic '{name}' is unknown; write last or mean:A-B")
            for name in ("median", "mean", "mean:44-35", "first")
        ),
        # Without them nothing says that the number was measured with what the recipe runs.
        *(
            (f"{key}, ", "", key[:3].strip(":"))
            for key in ("tp: 4", "pp: 8", "cp: 1", "vp: 5", "mbs: 1", "gbs: 1024")
        ),
        (
            LAST,
            f"    corrected_flops: {{71b: {{definition: full-attention}}}}\n{LAST}",
            "corrected_flops: no cell has the size 71b",
        ),
    ],
)
def test_a_placeholder_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in FILE
    assert said in refused(tmp_path, FILE.replace(old, new))


def test_a_window_beyond_the_run_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, FILE.replace("statistic: last", "statistic: mean:35-60"))
    with pytest.raises(ConfigError, match="mean:35-60"):
        find(path.parent, examples.llama3(), examples.case(), "h100")


@pytest.mark.parametrize(
    ("key", "value", "other"),
    [
        ("sequence_length", 8192, 4096),
        ("layers", 80, 79),
        ("tp", 4, 8),
        ("pp", 8, 4),
        ("cp", 1, 2),
        ("vp", 5, 1),
        ("dp", 16, 8),
        ("mbs", 1, 2),
        ("gbs", 1024, 512),
        ("ga", 64, 32),
    ],
)
def test_a_baseline_of_another_configuration_is_refused(
    tmp_path: Path, key: str, value: int, other: int
) -> None:
    assert f" {key}: {value}," in FILE
    path = write(tmp_path, FILE.replace(f" {key}: {value},", f" {key}: {other},"))
    with pytest.raises(ConfigError) as caught:
        find(tmp_path, examples.llama3(), examples.case(), "h100")
    assert str(caught.value) == (
        f"{path}: 70b-fp8-512gpus: the baseline was measured with {key} {other}, but llama3/recipe.yaml runs "
        f"{key} {value}; make them agree"
    )


ALSO = TABLE.replace('release: "25.04"', 'release: "25.03"\n    also: ["25.04"]')


@pytest.mark.parametrize(
    "more", [TABLE, ALSO, CELL], ids=["two tables", "one that holds for it too", "a table"]
)
def test_the_same_cell_twice_is_refused(tmp_path: Path, more: str) -> None:
    write(tmp_path, FILE + more)
    with pytest.raises(ConfigError, match=r"of release 25\.04 on h100 has 2 baselines; keep one"):
        find(tmp_path, examples.llama3(), examples.case(), "h100")


def step_time(folder: Path, text: str, case_id: str = examples.CASE, gpu: str = "h100") -> float | None:
    """That of the baseline which a file has for a case."""
    write(folder, text)
    found = find(folder, examples.llama3(), examples.case(case_id), gpu)
    return None if found is None else found.cell.step_time


def test_a_number_is_that_of_the_case_its_release_and_its_gpu(tmp_path: Path) -> None:
    b200 = FILE + TABLE.replace("h100", "b200").replace("10.07", "5.07")
    assert step_time(tmp_path, b200, gpu="b200") == 5.07
    older = TABLE.replace("25.04", "25.02").replace("10.07", "5.07")
    assert step_time(tmp_path, FILE + older) == 10.07
    assert step_time(tmp_path, f"recipe: llama3\ntables:\n{older}") is None
    assert step_time(tmp_path, FILE, "70b-fp8-256gpus") is None
    for gpu in ("b200", "H100", "h200", "", "cpu"):
        assert step_time(tmp_path, FILE, gpu=gpu) is None, gpu


def test_there_is_no_baseline_without_a_file(tmp_path: Path) -> None:
    assert find(tmp_path, examples.llama3(), examples.case(), "h100") is None


def test_a_file_of_another_recipe_is_refused(tmp_path: Path) -> None:
    write(tmp_path, FILE.replace("recipe: llama3", "recipe: llama2"))
    with pytest.raises(ConfigError, match="recipe is 'llama2', but the file is named after 'llama3'"):
        find(tmp_path, examples.llama3(), examples.case(), "h100")


def test_a_cell_overrides_its_tables_tolerance(tmp_path: Path) -> None:
    table = FILE.replace("statistic: last\n", "statistic: last\n    tolerance: {slower: 0.02}\n")
    write(tmp_path, table.replace("mfu: 39.54", "tolerance: {slower: 0.01}, mfu: 39.54"))
    found = find(tmp_path, examples.llama3(), examples.case(), "h100")
    assert found is not None
    assert (found.tolerance.slower, found.tolerance.faster) == (0.01, 0.10)
    assert found.table.tolerance.slower == 0.02


def test_the_usual_tolerance_is_5_percent_slower_and_10_faster() -> None:
    tolerance = examples.baseline().tolerance
    assert (tolerance.slower, tolerance.faster) == (0.05, 0.10)


def test_a_table_with_its_peak_measured_holds_mfu_only_and_needs_that_peak(tmp_path: Path) -> None:
    write(tmp_path, MEASURED)
    case = examples.case()
    found = find(tmp_path, examples.llama3(), case, "h100")
    assert found is not None
    counted = counting(case, found, "h100", examples.BASELINES)
    assert counted.basis() is None
    basis = counted.basis(1600.0)
    assert basis is not None
    target = expected(case, found, basis)
    assert target.mfu == pytest.approx(40)
    assert target.step_time == pytest.approx(1024 * basis.flops / 512 / (0.40 * 1600e12))


def test_a_table_with_its_peak_measured_refuses_a_step_time(tmp_path: Path) -> None:
    said = refused(tmp_path, MEASURED.replace("mfu: 40", "mfu: 40, step_time: 10"))
    assert "a table with its peak measured holds MFU only" in said


def test_without_a_baseline_the_data_sheet_is_the_yardstick() -> None:
    basis = counting(examples.case(), None, "b200", examples.BASELINES).basis()
    assert basis is not None
    assert (basis.peak_tflops, basis.definition.definition) == (4500, "full-attention")


def test_an_unknown_gpu_has_no_yardstick() -> None:
    assert counting(examples.case(), None, "abacus", examples.BASELINES).basis() is None


def test_the_expectation_is_the_published_step_time() -> None:
    target = examples.target()
    assert target.step_time == 10.07
    assert target.tokens_per_second == pytest.approx(833030, abs=0.5)
    assert target.mfu == pytest.approx(39.54, abs=0.005)


@pytest.mark.parametrize("table", list(published.TABLES), ids=" ".join)
def test_the_baselines_are_the_figures_of_the_readme(table: tuple[str, str, str]) -> None:
    recipe, release, gpu = table
    found = []
    for result in published.results_of(table):
        cell = examples.baseline(result.id, recipe, release=release, gpu=gpu).cell
        found.append(
            replace(
                result,
                step_time=cell.step_time or 0,
                tokens_per_second=cell.tokens_per_second or 0,
                mfu=cell.mfu or 0,
                days=None if cell.days_per_1t_tokens == "n/a" else cell.days_per_1t_tokens,
            )
        )
    assert found == published.results_of(table)


@pytest.mark.parametrize("table", list(published.TABLES), ids=" ".join)
def test_the_published_baselines_judge_by_their_releases_statistic(table: tuple[str, str, str]) -> None:
    recipe, release, gpu = table
    found = {
        str(examples.baseline(result.id, recipe, release=release, gpu=gpu).statistic)
        for result in published.results_of(table)
    }
    assert found == {"mean:11-44" if release == "25.05" else "last"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_baseline_belongs_to_a_case_of_its_recipe_and_release(path: Path) -> None:
    for table in load_baselines(path).tables:
        for release in (table.release, *table.also):
            recipe = load_recipe(examples.ROOT / "suites" / path.stem, release, table.gpu)
            assert recipe.unfit == ""
            for cell in table.cells:
                case = recipe.case(f"{cell.size}-{cell.dtype}-{cell.gpus}gpus")
                assert case is not None, cell
                found = find(path.parent, recipe, case, table.gpu)
                assert found is not None
                assert found.cell == cell


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_table_names_its_source_and_a_window_inside_the_run(path: Path) -> None:
    for table in load_baselines(path).tables:
        steps = load_recipe(examples.ROOT / "suites" / path.stem, table.release, table.gpu).file.steps
        assert table.source.startswith("https://") or (examples.ROOT / table.source).exists()
        assert set(Statistic.parse(table.statistic).indices(steps)) <= set(range(steps))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_recipe_is_named_after_its_folder(folder: Path) -> None:
    assert load_recipe(folder).name == folder.name


# Reference table of the main README since v26.02; H100's figures stand in every release.
def test_the_accelerators_have_the_peaks_of_their_source() -> None:
    known = accelerators(examples.BASELINES)
    assert {name: (known[name].peak["bf16"], known[name].peak["fp8"]) for name in known} == {
        "h100": (989, 1979),
        # gpu-recipes' own.
        "h200": (989, 1978),
        "b200": (2250, 4500),
        "b300": (2250, 4500),
        "gb200": (2450, 4900),
        "gb300": (2450, 4900),
    }
    assert all(accelerator.source.startswith("https://") for accelerator in known.values())
    assert all(accelerator.peak["fp16"] == accelerator.peak["bf16"] for accelerator in known.values())


# A peak of 0 was divided by, after the run.
@pytest.mark.parametrize(
    ("peak", "source", "said"),
    [
        ("0", "x.org", "peak.fp8: must be greater than 0"),
        ("-1", "x.org", "peak.fp8: must be greater than 0,"),
        ("1", "tbd", "source: a placeholder"),
    ],
)
def test_a_data_sheet_is_no_placeholder(tmp_path: Path, peak: str, source: str, said: str) -> None:
    path = tmp_path / "accelerators.yaml"
    path.write_text(f"accelerators:\n  mi300: {{name: MI300, peak: {{fp8: {peak}}}, source: {source}}}\n")
    with pytest.raises(ConfigError) as caught:
        accelerators(tmp_path)
    assert str(caught.value).startswith(f"{path}:2: accelerators.mi300.{said}")
