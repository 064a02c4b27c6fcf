"""Bundles of recipes that Pacemark does not have, judged by those that the verifier supplies: `verify --recipes`."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pacemark.__main__ import main
from tests.unit.bundles import runs
from tests.unit.bundles.changes import renamed
from tests.unit.bundles.runs import Members

RECIPE, NUMBERS, SHEETS = "suites/mine/recipe.yaml", "baselines/mine.yaml", "baselines/accelerators.yaml"


def verify(members: Members, folder: Path, keys: Path, *options: str) -> int:
    bundle = runs.packed(runs.signed(members, keys / "vendor.pem"), folder / "run.zip")
    return main(["verify", str(bundle), "--key", str(keys / "vendor.pub"), *options])


@pytest.fixture
def supplied(members: Members, tmp_path: Path) -> Path:
    """The folder of a verifier who has the recipe `mine`, as llama3 is."""
    for name, data in renamed("llama3", "mine")(members).items():
        place = tmp_path / "shared" / name.removeprefix("basis/")
        if name.startswith(("basis/suites/", "basis/baselines/")):
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
    return tmp_path / "shared"


def edited(name: str, old: str, new: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))

    return edit


def removed(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


UNLIKE = "is not that of --recipes: "
TOLD: dict[str, tuple[Callable[[Path], object], int, str]] = {
    "the same": (lambda _: None, 0, f"supplied  judged by {RECIPE} of --recipes, which is not Pacemark's own: SHA-256 "),
    "its numbers are named too": (lambda _: None, 0, f"supplied  judged by {NUMBERS} of --recipes"),
    "another file that says the same": (edited(RECIPE, "recipe: mine", "# mine\nrecipe: mine"), 0, " (the bundle's file: "),
    "another number": (edited(NUMBERS, "step_time: 14.67", "step_time: 13"), 1, f"basis/{NUMBERS} {UNLIKE}step_time (13.0, 14.67)"),
    "fewer steps": (edited(RECIPE, "steps: 50", "steps: 20"), 1, f"its recipe {UNLIKE}steps (20, 50)"),
    "another peak of a GPU that Pacemark knows": (edited(SHEETS, "989", "500"), 0, f"supplied  judged by {NUMBERS} of --recipes"),
    "no number": (removed(NUMBERS), 2, "this Pacemark has no number for it"),
    "no data sheets": (removed(SHEETS), 2, f"lacks suites/NAME/recipe.yaml or {SHEETS}"),
    "no recipe": (lambda folder: shutil.rmtree(folder / "suites"), 2, "lacks suites/NAME/recipe.yaml"),
    "a mistake": (edited(RECIPE, "steps: 50", "steps: many"), 2, f"{RECIPE}:"),
    "YAML that would run": (edited(RECIPE, "steps: 50", "steps: !!python/object/apply:os.mkdir [ran]"), 2, f"{RECIPE}:"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "status", "words"), TOLD.values(), ids=TOLD)
def test_a_recipe_that_pacemark_lacks_is_judged_by_that_of_the_verifier(
    change: Callable[[Path], object],
    status: int,
    words: str,
    supplied: Path,
    members: Members,
    keys: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("conftest.py", "suites/mine/__init__.py", "suites/mine/test_mine.py", "sitecustomize.py"):
        (supplied / name).write_text("import os; os.mkdir('ran')")
    change(supplied)
    mine = renamed("llama3", "mine")(members)
    assert verify(mine, tmp_path, keys) == 2
    assert "; --recipes DIR gives yours" in capsys.readouterr().out
    assert verify(mine, tmp_path, keys, "--recipes", str(supplied)) == status
    told = capsys.readouterr()
    assert words in told.out + told.err
    assert ("result    VERIFIED: " in told.out) == (status == 0)
    assert told.out.rstrip().endswith(f", by recipes of {supplied}") == (status == 0)
    assert not (tmp_path / "ran").exists()


def test_the_data_sheet_of_a_gpu_that_pacemark_knows_is_its_own(
    supplied: Path, members: Members, keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else who supplies the recipe raises the peak that no figure may exceed, and no line says so."""
    theirs = runs.replaced(renamed("llama3", "mine")(members), f"basis/{SHEETS}", "fp8: 1979", "fp8: 9790")
    (supplied / SHEETS).write_bytes(theirs[f"basis/{SHEETS}"])
    status = verify(theirs, tmp_path, keys, "--recipes", str(supplied))
    assert (
        "the data sheet of h100 is not the published one: peak.fp8 (1979.0, 9790.0)"
        in capsys.readouterr().out
    )
    assert status == 1


def test_what_pacemark_has_itself_is_not_judged_by_what_is_supplied(
    supplied: Path, members: Members, keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = runs.replaced(members, "basis/baselines/llama3.yaml", "step_time: 14.67", "step_time: 16.15")
    for name in ("suites/llama3/recipe.yaml", "baselines/llama3.yaml"):
        (supplied / name).parent.mkdir(exist_ok=True)
        (supplied / name).write_bytes(theirs[f"basis/{name}"])
    assert verify(theirs, tmp_path, keys, "--recipes", str(supplied)) == 1
    assert "is not the published one: step_time (14.67, 16.15)" in capsys.readouterr().out
    assert verify(members, tmp_path, keys, "--recipes", str(supplied)) == 0
    assert "--recipes" not in capsys.readouterr().out
