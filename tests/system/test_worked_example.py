"""The end of docs/recipes.md: the recipe runs on a real Slurm."""

from __future__ import annotations

from pathlib import Path

from tests.lab.slurm import SlurmLab
from tests.system.support import site_file
from tests.unit import worked_example


def test_the_recipe_of_the_example_runs_on_slurm(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    stage = slurm_lab.stage(tmp_path.name)
    worked_example.make(tmp_path)
    block = worked_example.BLOCKS[-1]
    worked_example.carry_out(
        block, tmp_path, STAGE=str(stage.root), SITE=str(site_file(slurm_lab, stage, tmp_path))
    )
