"""A STAGE_PATH as a user of the recipe has it: recipe folder, virtual environment, image, experiments."""

from __future__ import annotations

import dataclasses
import shutil
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lab.recipe.knobs import Knobs

RECIPE = Path(__file__).with_name("recipe")
IMAGE = "nvidia+nemo+25.02.01.sqsh"


@dataclass(frozen=True)
class Stage:
    """`path` is what STAGE_PATH is set to."""

    path: Path

    @property
    def recipe(self) -> Path:
        """The llama3.1 folder, from which setup.sh and launch.sh are run."""
        return self.path / "llama3.1"

    @property
    def venv(self) -> Path:
        """The virtual environment to activate first."""
        return self.path / "venv"

    @property
    def image(self) -> Path:
        """The container image that setup.sh imports."""
        return self.path / IMAGE

    @property
    def knobs(self) -> Knobs:
        """As a job that starts now would read them."""
        return Knobs.load(self.path)

    def set(self, **knobs: Any) -> None:
        """Change these knobs and keep the others; a name that Knobs lacks raises TypeError."""
        dataclasses.replace(self.knobs, **knobs).save(self.path)

    def provision(self) -> None:
        """Bring about by hand what setup.sh does in a job."""
        target = self.recipe / "NeMo" / "scripts" / "performance" / "llm"
        target.mkdir(parents=True)
        for source in (*self.recipe.glob("*.py"), *self.recipe.glob("*.json")):
            shutil.copy(source, target)
        (packages,) = self.venv.glob("lib/python3*/site-packages")
        (packages / "nemo_run").mkdir()
        (packages / "nemo_run" / "__init__.py").write_text('__version__ = "0+standin"\n')
        self.image.write_text("stand-in for the container image\n")


def make_stage(path: Path, *, provisioned: bool, **knobs: Any) -> Stage:
    """A fresh stage at `path`; not provisioned: as it is before the recipe's set-up has run."""
    stage = Stage(path)
    path.mkdir(parents=True)
    shutil.copytree(RECIPE, stage.recipe, ignore=shutil.ignore_patterns("__pycache__"))
    venv.EnvBuilder(with_pip=False, symlinks=True).create(stage.venv)
    stage.set(**knobs)
    if provisioned:
        stage.provision()
    return stage
