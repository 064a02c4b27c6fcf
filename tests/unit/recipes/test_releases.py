"""Other releases of a recipe: read strictly, with the configurations of their READMEs, keyed by release and GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.site import only_replays
from plugins.base.errors import ConfigError
from plugins.baselines.store import find
from plugins.recipes.expansion import load_recipe
from plugins.recipes.recipe_file import read_recipe, read_releases
from tests.unit import examples, published
from tests.unit.recipes.test_cases import RECIPE

RELEASE = """\
release: "3.0"
also: ["3.1"]
source: https://example.org/small/3.0
log: nemo1
steps: 20
models:
  big: {layers: 4, hidden: 64, ffn: 128, heads: 4, query_groups: 2, vocab: 256}
cases:
  - {size: tiny, dtype: [bf16], gpus: [8], sequence_length: 128, mbs: 1, gbs: 64}
  - {gpu: [gb200], size: big, dtype: [fp8], gpus: [8], sequence_length: 128, tp: 2, mbs: 1, gbs: 64}
  - {gpu: [h100, h200], size: big, dtype: [fp8], gpus: [8], sequence_length: 128, tp: 4, mbs: 1, gbs: 64}
"""
HAS = {
    "llama3": ["24.11", "25.01", "25.02", "25.03", "25.04", "25.05", "26.06.01", "26.08.00"],
    "qwen3": ["26.06.01", "26.08.00"],
    "nemotron4": ["24.11", "25.01", "25.02", "25.03", "25.04", "25.05"],
    "maxtext_llama2": ["24.11", "25.01"],
    "proxy": ["2026-11"],
}


def write(folder: Path, text: str = RELEASE, name: str = "3.0") -> Path:
    (folder / "recipe.yaml").write_text(RECIPE)
    (folder / "releases").mkdir(exist_ok=True)
    path = folder / "releases" / f"{name}.yaml"
    path.write_text(text)
    return path


def refused(folder: Path, old: str, new: str) -> tuple[Path, list[str]]:
    """The file of `RELEASE` with `old` replaced by `new`, and the lines that are said about it."""
    assert old in RELEASE
    path = write(folder, RELEASE.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        load_recipe(folder, "3.0")
    return path, str(caught.value).splitlines()


@pytest.mark.parametrize(("recipe", "releases"), HAS.items())
def test_the_recipes_have_these_releases(recipe: str, releases: list[str]) -> None:
    folder = examples.ROOT / "suites" / recipe
    assert list(read_releases(folder, read_recipe(folder))) == releases


def configurations(recipe: str, *release: str) -> dict[str, dict[str, int]]:
    cases = examples.recipe_named(recipe, *release).cases
    return {case.id: case.configuration() for case in cases if case.is_timed}


@pytest.mark.parametrize("table", list(published.other_configurations()), ids=" ".join)
def test_a_case_of_another_release_runs_the_configuration_of_its_readme(table: tuple[str, str, str]) -> None:
    stated, cases = published.other_configurations()[table], configurations(*table)
    assert {case_id: cases[case_id] for case_id in stated} == stated
    assert {case_id for case_id in cases.keys() - stated if not case_id.startswith("340b")} == set()


# From 25.02 on the launcher runs 340b BF16 with CP 2, and the README prints the figures of CP 1.
@pytest.mark.parametrize("release", ["25.02", "25.03"])
def test_figures_of_another_configuration_are_no_baseline(release: str) -> None:
    recipe = examples.recipe_named("nemotron4", release)
    for case in recipe.cases:
        found = find(examples.BASELINES, recipe, case, "h100")
        assert (found is None) == (case.size == "340b" and case.dtype == "bf16"), case.id
    assert examples.baseline("340b-fp8-512gpus", "nemotron4", release=release).cell.step_time == 3.26


@pytest.mark.parametrize(
    ("gpu", "case_id", "step_time"),
    [
        ("gb200", "405b-fp8-512gpus", 6.244),
        ("h100", "405b-fp8-512gpus", 13.020),
        ("b200", "405b-fp8-512gpus", None),
    ],
)
def test_a_number_is_of_a_release_and_a_gpu(gpu: str, case_id: str, step_time: float | None) -> None:
    recipe = examples.recipe_named("llama3", "25.05", gpu)
    case = recipe.case(case_id)
    assert case is not None
    assert case.tp == (8 if gpu == "h100" else 4)
    found = find(examples.BASELINES, recipe, case, gpu)
    assert (found.cell.step_time if found else None) == step_time


def test_the_same_case_has_another_number_in_another_release() -> None:
    times = {None: 10.07, "25.04": 10.07, "24.11": 11.18, "25.01": 11.18, "25.02": 10.76, "25.03": 10.76}
    for release, step_time in times.items():
        assert examples.baseline("70b-fp8-512gpus", release=release).cell.step_time == step_time, release


def test_a_release_replaces_the_matrix_and_adds_models(tmp_path: Path) -> None:
    path = write(tmp_path)
    recipe = load_recipe(tmp_path, "3.0", "gb200")
    assert (recipe.path, recipe.file.log, recipe.file.steps, recipe.launches) == (path, "nemo1", 20, False)
    assert [(case.id, case.release, case.tp) for case in recipe.cases] == [
        ("tiny-bf16-8gpus", "3.0", 1),
        ("big-fp8-8gpus", "3.0", 2),
    ]
    assert [case.tp for case in load_recipe(tmp_path, "3.1", "h100").cases] == [1, 4]
    assert load_recipe(tmp_path, "3.1").file.release == "3.1"
    assert [case.id for case in load_recipe(tmp_path, "3.0", "b300").cases] == ["tiny-bf16-8gpus"]


def test_a_release_without_one_is_judged_from_logs_only(tmp_path: Path) -> None:
    path = write(tmp_path)
    recipe = load_recipe(tmp_path, "3.1")
    assert only_replays(recipe, "replay") is None
    assert only_replays(load_recipe(tmp_path), "slurm") is None
    said = only_replays(recipe, "slurm") or ""
    assert said.startswith(f"small release 3.1 cannot be run: {path} has no `launch`")
    assert "--backend replay --from PATH --release 3.1" in said


def test_an_unknown_release_is_told_with_those_there_are(tmp_path: Path) -> None:
    write(tmp_path)
    recipe = load_recipe(tmp_path, "3.2")
    assert recipe.unfit == "small has no release 3.2; it has 2.0, 3.0, 3.1"
    assert recipe.cases == load_recipe(tmp_path).cases


def test_a_gpu_that_no_group_names_is_told(tmp_path: Path) -> None:
    lines = [line for line in RELEASE.splitlines(keepends=True) if "size: tiny" not in line]
    write(tmp_path, "".join(lines))
    assert load_recipe(tmp_path, "3.0", "h200").unfit == ""
    assert load_recipe(tmp_path, "3.0", "b300").unfit.startswith(
        "small release 3.0 runs nothing on b300, only on gb200, h100, h200: set `gpu` in the site file"
    )


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("log: nemo1", "log: nemo9", 4, "log: no log format 'nemo9'; did you mean 'nemo2'?"),
        ("log: nemo1", "lgo: nemo1", 4, "did you mean 'log'?"),
        ('release: "3.0"', "release: 3.0", 1, "put it in quotes"),
        ("source: https://example.org/small/3.0\n", "", 1, "source: missing"),
        ("gpu: [gb200]", "gpu: gb200", 10, "gpu: expected a list, such as [a, b]"),
        ("steps: 20", "steps: 20\nrecipe: small", 6, "recipe: unknown key"),
    ],
)
def test_a_mistake_in_a_release_is_told_with_its_line(
    tmp_path: Path, old: str, new: str, line: int, said: str
) -> None:
    path, lines = refused(tmp_path, old, new)
    assert any(text.startswith(f"{path}:{line}: ") and said in text for text in lines), lines


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('release: "3.0"', 'release: "3.5"', "release is '3.5', but the file is named after '3.0'"),
        ('also: ["3.1"]', 'also: ["2.0"]', "release 2.0 is stated in"),
        ('also: ["3.1"]', 'also: ["3.0"]', "release 3.0 is stated in"),
        ("size: tiny", "size: huge", "no model 'huge'; known: tiny, big"),
        ("gpu: [gb200]", "gpu: [gb200, h100]", "big-fp8-8gpus given twice"),
        ("gbs: 64", "gbs: 63", "gbs 63 is not a multiple"),
    ],
)
def test_a_release_that_cannot_be_is_refused_with_its_file(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    path, lines = refused(tmp_path, old, new)
    assert lines[0].startswith(f"{path}:")
    assert said in "\n".join(lines)
