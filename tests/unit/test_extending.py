"""What docs/architecture.md says of adding things, done: each of these tests adds one without touching a file of the product."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from plugins.judging.judge import judge_outcome
from plugins.judging.verdicts import Kind
from plugins.logs import LineParser
from plugins.logs import Step
from plugins.logs.formats import FORMATS
from plugins.logs.formats import read
from plugins.recipes.cases import load_recipe
from plugins.recipes.file import read_recipe
from tests.unit import examples

STEP_TIME = 10.07


class Toy(LineParser):
    """`toy step 7 took 10.07 s for 1024 sequences, loss 11.9`."""

    name = "toy"
    hints = (b"toy step ",)

    def read_line(self, line: str, *, ended: bool) -> None:
        found = re.search(
            r"toy step (\d{1,9}) took (\d{1,9}\.\d+) s for (\d{1,9}) sequences, loss (\d{1,9}\.\d+)$", line
        )
        if found and ended:
            self.add(
                Step(
                    int(found[1]), float(found[2]), resolution=0.005, gbs=int(found[3]), loss=float(found[4])
                )
            )


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FORMATS, Toy.name, Toy)


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize(("factor", "kind"), [(1.0, Kind.PASSED), (1.1, Kind.TOO_SLOW)])
def test_a_log_format_is_a_parser_and_a_line_of_the_registry(
    factor: float, kind: Kind, tmp_path: Path
) -> None:
    folder = tmp_path / "llama3"
    shutil.copytree(examples.ROOT / "suites" / "llama3", folder)
    recipe = folder / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("log: nemo2", "log: toy"))
    case = load_recipe(folder).case(examples.case().id)
    assert case is not None
    assert read_recipe(folder).log == "toy"

    log = read(
        "toy",
        [
            f"toy step {i} took {factor * STEP_TIME:.2f} s for {case.gbs} sequences, loss {12 - i / 50:.2f}\n".encode()
            for i in range(50)
        ],
    )
    found = judge_outcome(
        case, examples.outcome(), log, examples.baseline(), gpu="h100", baselines=examples.BASELINES
    )  # fmt: skip
    assert found.verdict.kind is kind, found.verdict.headline
