"""docs/recipes.md, carried out up to where it needs a cluster. The rest: tests/system/test_worked_example.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit import worked_example

WITHOUT_A_CLUSTER = [block for block in worked_example.BLOCKS if "SITE" not in block]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("example")
    worked_example.make(folder)
    return folder


def test_the_page_has_files_and_commands() -> None:
    assert len(worked_example.FILES) == 4
    assert (len(WITHOUT_A_CLUSTER), len(worked_example.BLOCKS)) == (4, 5)


@pytest.mark.parametrize("block", WITHOUT_A_CLUSTER)
def test_the_commands_print_what_the_page_says(block: str, checkout: Path) -> None:
    worked_example.carry_out(block, checkout)
