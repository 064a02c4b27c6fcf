"""Baselines: no placeholder gets in, and a number is only used for the configuration it was measured with."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from plugins.base.errors import ConfigError
from plugins.baselines.baseline_file import NO_TABLES, accelerators, load_baselines
from plugins.baselines.expected import counting, expected, usual_statistic
from plugins.baselines.store import find, references
from plugins.judging.case_record import record_of
from plugins.judging.judgement import Judgement
from plugins.logs import Log, Step
from plugins.recipes.expansion import load_recipe
from plugins.record.baseline import Statistic
from plugins.record.verdict import Kind
from plugins.reports.terminal import print_table
from tests.printed import nemo2
from tests.unit import examples, published
from tests.unit.examples import record_json

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
        (SOURCE, "source: '  '", "source"),
        (SOURCE, "source: TODO", "source"),
        ('release: "25.04"', 'release: ""', "release: a placeholder"),
        ('release: "25.04"', "release: 25.04", "put it in quotes"),
        (LAST, "", "statistic: missing"),
        (LAST, "    statistic: median\n", "statistic 'median' is unknown; write last or mean:A-B"),
        ("step_time: 10.07", "step_time: 0", "step_time: must be greater than 0"),
        ("step_time: 10.07", "step_time: .inf", "expected a number, got inf"),
        ("step_time: 10.07", "step_time: TODO", "step_time: expected a number"),
        ("step_time: 10.07", "step_time: null", "step_time and tokens_per_second are required"),
        ("tokens_per_second: 833030, ", "", "step_time and tokens_per_second are required"),
        ("mfu: 39.54, ", "", "mfu is required"),
        ("mfu: 39.54", "mfu: 100", "mfu: must be less than 100"),
        ("      70b: {", "      8b: {", "no FLOPs definition for 70b"),
        ("full-attention", "full", "definition: must be 'full-attention', 'causal-attention' or"),
        ("{bf16: 989.5, fp8: 1979}", "{bf16: 989.5}", "no peak for fp8"),
        ("fp8: 1979", "fp8: 0", "peak"),
        (LAST, f"{LAST}    tolerance: {{slower: 0}}\n", "slower"),
        (LAST, f"{LAST}    tolerance: {{slower: 1}}\n", "slower"),
        (LAST, f"{LAST}    tolerance: {{faster: .inf}}\n", "expected a number, got inf"),
        (LAST, f"{LAST}    tolerance: {{slowr: 0.05}}\n", "did you mean 'slower'?"),
        ("    cells:\n" + CELL, "    cells: []\n", "cells: must have 1 or more values"),
        # Without it nothing says that the number was measured with what the recipe runs.
        ("gbs: 1024, ", "", "gbs"),
        (LAST, f"    corrected_flops: {{71b: {{definition: full-attention}}}}\n{LAST}", "corrected_flops: no cell has the size 71b"),
    ],
)  # fmt: skip
def test_a_placeholder_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in FILE
    assert said in refused(tmp_path, FILE.replace(old, new))


def test_a_window_beyond_the_run_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, FILE.replace("statistic: last", "statistic: mean:35-60"))
    with pytest.raises(ConfigError, match="mean:35-60"):
        find(path.parent, examples.llama3(), examples.case(), "h100")


@pytest.mark.parametrize(
    ("key", "value", "other"), [("sequence_length", 8192, 4096), ("layers", 80, 79), ("tp", 4, 8), ("dp", 16, 8), ("gbs", 1024, 512)]
)  # fmt: skip
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


# Figures beside a judgement; and a case without a baseline, measured as its neighbours are

DGX = (
    '{name: "NVIDIA NeMo 24.07 (DGX H100)", size: 70b, dtype: fp8, gpus: 64, tokens_per_second_per_gpu: 1549, '
    "source: https://example.org/summary.md, note: GBS 128}"
)
WITH = FILE.replace("    cells:\n", f"    references:\n      - {DGX}\n    cells:\n")
BESIDE = (
    "beside    1,627 tokens/s/GPU here; 1,549 tokens/s/GPU: NVIDIA NeMo 24.07 (DGX H100) on 64 GPUs (105.0 %), for "
    "comparison, not judged"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(examples.BASELINES / "accelerators.yaml", tmp_path)
    return tables_in(tmp_path, WITH)


def tables_in(folder: Path, text: str) -> Path:
    load_baselines.cache_clear()
    (folder / "llama3.yaml").write_text(text)
    return folder


def judged_beside(
    folder: Path, case_id: str = examples.CASE, raw: Sequence[float] = (10.07,) * 50
) -> Judgement:
    case = examples.case(case_id)
    lines = [nemo2.nemo2_line(i, seconds, gbs=case.gbs) for i, seconds in enumerate(raw)]
    return examples.judged(
        case,
        examples.outcome(folder=folder / "case"),
        examples.parse("\n".join(lines) + "\n"),
        find(folder, examples.llama3(), case, "h100"),
        baselines=folder,
    )


def test_a_figure_of_others_stands_beside_the_judgement(folder: Path) -> None:
    found = judged_beside(folder)
    assert found.verdict.kind is Kind.PASSED
    assert BESIDE in found.details
    record = record_json(found)
    assert record["references"] == [
        {
            "name": "NVIDIA NeMo 24.07 (DGX H100)",
            "gpus": 64,
            "tokens_per_second_per_gpu": 1549,
            "source": "https://example.org/summary.md",
            "note": "GBS 128",
            "text": BESIDE,
        }
    ]


def test_it_is_never_judged(folder: Path) -> None:
    for rate in ("1", "999999"):
        tables_in(folder, WITH.replace("1549", rate))
        assert judged_beside(folder).verdict.kind is Kind.PASSED


def test_it_stands_beside_another_scale_that_has_no_baseline(folder: Path) -> None:
    found = judged_beside(folder, "70b-fp8-256gpus")
    assert found.verdict.kind is Kind.NO_BASELINE
    assert [line.split()[0] for line in found.details] == [
        "measured",
        "steady",
        "MFU",
        "beside",
        "identity",
        "job",
        "log",
    ]
    assert "MFU" in found.details[0]
    shown = io.StringIO()
    print_table([record_of(found)], shown, 200, colour=False)
    assert "llama3/70b-fp8-256gpus: beside 1,627 tokens/s/GPU here; 1,549" in shown.getvalue()


def test_it_does_not_stand_beside_another_size_dtype_gpu_or_release(folder: Path) -> None:
    assert len(references(folder, examples.case(), "h100")) == 1
    for case_id, gpu in ((examples.CASE, "b200"), ("70b-bf16-512gpus", "h100"), ("405b-fp8-512gpus", "h100")):
        assert references(folder, examples.case(case_id), gpu) == ()
    assert references(folder, replace(examples.case(), release="25.05"), "h100") == ()
    assert record_json(judged_beside(folder, "70b-bf16-512gpus"))["references"] == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("size: 70b, dtype: fp8, gpus: 64", "size: 71b, dtype: fp8, gpus: 64", "references: no cell has the size 71b"),
        ("1549", "0", "tokens_per_second_per_gpu: must be greater than 0"),
        ("https://example.org/summary.md", "TODO", "source: a placeholder"),
        ('name: "NVIDIA NeMo 24.07 (DGX H100)", ', "", "name: missing"),
        ("note: GBS 128", "nte: GBS 128", "did you mean 'note'?"),
    ],
)  # fmt: skip
def test_a_reference_that_says_nothing_is_refused(folder: Path, old: str, new: str, said: str) -> None:
    tables_in(folder, WITH.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        references(folder, examples.case(), "h100")
    assert said in str(caught.value)


# A case without a baseline is measured as its release's tables are.


def test_without_a_baseline_the_statistic_is_that_of_its_release(folder: Path) -> None:
    tables_in(folder, FILE.replace("statistic: last", "statistic: mean:15-40"))
    found = judged_beside(folder, "70b-fp8-256gpus", raw=[10.07] * 41 + [11.0] * 9)
    assert str(found.statistic) == "mean:15-40"
    assert found.measurement is not None
    assert found.measurement.step_time == pytest.approx(10.07)
    assert [line.split()[0] for line in found.details[:3]] == ["measured", "last", "steady"]
    assert "measured 10.07 s a step" in found.verdict.headline


@pytest.mark.parametrize(
    "text",
    [
        FILE + "  - " + FILE.partition("  - ")[2].replace("last", "mean:15-40").replace("512", "1024"),
        FILE.replace("25.04", "25.02").replace("statistic: last", "statistic: mean:15-40"),
        FILE.replace("statistic: last", "statistic: mean:15-60").replace("512", "1024"),
    ],
    ids=["two", "another release", "beyond the run"],
)
def test_where_a_release_does_not_tell_it_is_the_last_step(folder: Path, text: str) -> None:
    tables_in(folder, text)
    assert str(usual_statistic(folder, examples.case())) == "last"


def test_without_a_baseline_mfu_is_counted_as_its_neighbours_is(folder: Path) -> None:
    own = FILE.replace("fp8: 1979", "fp8: 1978").replace("full-attention", "causal-attention")
    tables_in(folder, own)
    case = examples.case("70b-fp8-256gpus")
    for gpu, peak in (("h100", 1978), ("b200", 4500)):
        basis = counting(case, None, gpu, folder).basis()
        assert basis is not None
        assert (str(basis.definition), basis.peak_tflops) == ("causal-attention", peak)


def test_without_a_baseline_a_definition_that_is_known_to_be_wrong_is_not_used(folder: Path) -> None:
    right = "    corrected_flops: {70b: {definition: full-attention}}\n    cells:\n"
    tables_in(folder, FILE.replace("full-attention", "nemotron-24.11").replace("    cells:\n", right))
    basis = counting(examples.case("70b-fp8-256gpus"), None, "h100", folder).basis()
    assert basis is not None
    assert str(basis.definition) == "full-attention"


NEMOTRON = "340b-bf16-128gpus"


def corrected_run(step_time: float = 4.61, *, corrected: bool = True) -> Judgement:
    case, baseline = examples.case(NEMOTRON, "nemotron4"), examples.baseline(NEMOTRON, "nemotron4")
    if not corrected:
        baseline = replace(baseline, table=baseline.table.model_copy(update={"corrected_flops": {}}))
    steps = tuple(
        Step(i, step_time, 0.005, consumed_samples=(i + 1) * case.gbs, loss=7.31 - i / 100) for i in range(50)
    )
    return examples.judged(
        case,
        examples.outcome(),
        Log(steps=steps, planned=50),
        baseline,
    )


def test_it_is_recorded_with_its_definition() -> None:
    found = json.loads(json.dumps(record_json(corrected_run())))
    assert found["mfu"] == pytest.approx(55.38, abs=0.005)
    assert found["corrected_mfu"] == pytest.approx(47.27, abs=0.005)
    assert found["mfu_definition"]["flops"] == "nemotron-24.11 (3 digits)"
    assert found["mfu_definition"]["flops_per_sequence"] == 1.01e16
    assert found["mfu_definition"]["corrected_flops"] == "full-attention"
    assert found["mfu_definition"]["corrected_flops_per_sequence"] == pytest.approx(8.621236e15, rel=1e-6)
    assert found["expected"]["mfu"] == pytest.approx(55.38, abs=0.005)


@pytest.mark.parametrize(
    ("step_time", "kind"), [(4.61, Kind.PASSED), (4.9, Kind.TOO_SLOW), (4.1, Kind.TOO_FAST)]
)
def test_it_changes_no_verdict(step_time: float, kind: Kind) -> None:
    with_it, without = corrected_run(step_time), corrected_run(step_time, corrected=False)
    assert with_it.verdict == without.verdict
    assert with_it.verdict.kind is kind
    assert not [line for line in without.details if line.startswith("corrected")]
