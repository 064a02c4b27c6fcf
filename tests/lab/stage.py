"""A STAGE_PATH as a user of a recipe has it: recipe folder, virtual environment, image, results."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
import tarfile
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lab import config
from tests.lab.recipe.knobs import Knobs

# What tells a whole squashfs image: its magic and, at 40, how long it is. Bash reads an assignment and a comment.
_SUPERBLOCK = b"hsqs=1\n#".ljust(40) + (64).to_bytes(8, "little") + b"\n"

# Rank 0 trains, so to speak; what the others print, and when they end, it tells them. See tests.lab.recipe.ranks.
# Without stdbuf, sed writes a line of standard error in two pieces, and srun may put a line of rank 0 between them.
_CONTAINER = r"""
if [[ $SLURM_PROCID != 0 ]]; then
    exec stdbuf -eL sed -u -e '/^\x01error /{{s///;w /dev/stderr' -e 'd}}' -e '/^\x01meet/{{s/.*//;w '"$LAB_RANKS/answers" -e 'd}}' \
        -e '/^\x01end 0/Q0' -e '/^\x01end 1/Q1' <>"$LAB_RANKS/$SLURM_PROCID"
fi
cd {repository}
exec {python} -B -m {module} "$@"
"""

LAB = Path(__file__).parent
REPOSITORY = LAB.parents[1]


@dataclass(frozen=True)
class Kind:
    """A stand-in recipe: its folder here, its trainer there, its folder's name and the image on a stage, and its own part of a stage.

    What an installer brings is `upstream`, a folder of the archive, with Megatron-Bridge at the commit `bridge`.
    """

    source: str
    trainer: str
    folder: str
    image: str
    part: str = ""
    upstream: str = ""
    bridge: str = ""


KINDS = {
    "llama3": Kind("recipe", "standin_trainer", "llama3.1", "nvidia+nemo+25.02.01.sqsh"),
    "nemotron4": Kind("recipe_nemotron", "trainer", "nemotron", "nvidia+nemo+24.09.sqsh", "nemotron4"),
    "maxtext_llama2": Kind(
        "recipe_maxtext", "trainer", "maxtext", "nvidia+jax+maxtext-2024.12.09.sqsh", "maxtext_llama2"
    ),
    # All of a release as its installer leaves it: the stage is its LLMB_INSTALL. 26.06.01:
    "dgxc": Kind(
        "recipe_dgxc", "trainer", "llmb_repo", "images/nvidia+nemo+26.04.01.sqsh",
        upstream="dgxc-benchmarking", bridge="06f25c227ef9d3d9b22e5561fb9f46e1cbdab7e2",
    ),
    # 26.08.00:
    "exemplar": Kind(
        "recipe_dgxc", "trainer", "llmb_repo", "images/nvidia+nemo+26.06.01.sqsh",
        upstream="exemplar-performance", bridge="b50da4c7404caa41793e74ac40d18798844c7b67",
    ),
}  # fmt: skip

_WORKLOADS = ("pretrain_llama3.1", "pretrain_nemotron_3", "pretrain_qwen3", "pretrain_deepseek-v3")
_MODELS = (
    "deepseek-ai--DeepSeek-V3",
    "meta-llama--Meta-Llama-3-70B",
    "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    "Qwen--Qwen3-30B-A3B",
)


@dataclass(frozen=True)
class Stage:
    """`root` is the stage of the site; `path` the one of the recipe, which STAGE_PATH is set to."""

    root: Path
    kind: Kind

    @property
    def path(self) -> Path:
        return self.root / self.kind.part

    @property
    def recipe(self) -> Path:
        """The recipe's folder, from which setup.sh is run."""
        return self.path / self.kind.folder

    @property
    def venv(self) -> Path:
        """The virtual environment to activate first, for llama3."""
        return self.path / "venv"

    @property
    def image(self) -> Path:
        """The container image that setup.sh imports."""
        return self.path / self.kind.image

    @property
    def knobs(self) -> Knobs:
        """As a job that starts now would read them."""
        return Knobs.load(self.path)

    def set(self, **knobs: Any) -> None:
        """Change these knobs and keep the others; a name that Knobs lacks raises TypeError."""
        dataclasses.replace(self.knobs, **knobs).save(self.path)

    def hold(self, step: int) -> None:
        """Jobs that start from now on wait after this step until they are let go."""
        self._held.touch()
        self.set(held_at=step, held_by=str(self._held))

    def let_go(self) -> None:
        """Jobs that wait go on, and none waits any more."""
        self._held.unlink()

    @property
    def _held(self) -> Path:
        return self.path / "held"

    def provision(self) -> None:
        """Bring about by hand what setup.sh does in a job."""
        if self.kind is KINDS["llama3"]:
            self._provision_llama3()
            return
        if self.kind.upstream:
            self._install()
            return
        configuration = self.path / "cfg"
        configuration.mkdir()
        for source in self.recipe.iterdir():
            below = source.suffix in (".yaml", ".model") or (self.kind.folder, source.name) == (
                "maxtext",
                "configure.sh",
            )
            shutil.copy(source, configuration if below else self.path)
        shutil.move(self.path / "container", self.image)

    def _install(self) -> None:
        """What ./install.sh does: upstream's files, an image, and a virtual environment with NeMo-Run's stand-in."""
        upstream = self.path / "upstream"
        with tarfile.open(LAB / self.kind.source / "upstream.tar.xz") as archive:
            archive.extractall(upstream, filter="data")
        shutil.copytree(upstream / self.kind.upstream, self.recipe, dirs_exist_ok=True)
        for workload in _WORKLOADS:
            bridge = self.path / "workloads" / workload / "Megatron-Bridge"
            shutil.copytree(upstream / self.kind.bridge, bridge)
            (bridge / ".git").mkdir()
            (bridge / ".git" / "HEAD").write_text(f"{self.kind.bridge}\n")
        for model in _MODELS:
            (self.path / ".cache" / "huggingface" / "hub" / f"models--{model}").mkdir(parents=True)
        self.image.parent.mkdir()
        shutil.move(self.recipe / "container", self.image)
        (packages,) = self.venv.glob("lib/python*/site-packages")
        shutil.copytree(LAB / self.kind.source / "nemo_run", packages / "nemo_run")
        shutil.copy(LAB / "recipe" / "experiment.py", packages / "nemo_run")

    def _provision_llama3(self) -> None:
        done = subprocess.run(
            ["bash", "-c", f". {self.venv}/bin/activate; srun() {{ \"$@\"; }}; . ./setup.sh"],
            cwd=self.recipe, env={"STAGE_PATH": str(self.path), "PATH": config.SYSTEM_PATH}, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


def make_stage(root: Path, recipe: str, *, provisioned: bool, **knobs: Any) -> Stage:
    """A fresh stage in `root`; not provisioned: as it is before the recipe's set-up has run."""
    stage = Stage(root, KINDS[recipe])
    stage.path.mkdir(parents=True)
    source = LAB / stage.kind.source
    if stage.kind.upstream:
        stage.recipe.mkdir()
        venv.EnvBuilder(with_pip=False, symlinks=True).create(stage.venv)
    elif recipe == "llama3":
        shutil.copytree(source, stage.recipe, ignore=shutil.ignore_patterns("__pycache__"))
        venv.EnvBuilder(with_pip=False, symlinks=True).create(stage.venv)
    else:
        shutil.copytree(source, stage.recipe, ignore=shutil.ignore_patterns("__pycache__", "*.py"))
    # What enroot would import: here a script that runs the trainer from this checkout.
    trainer = _CONTAINER.format(
        repository=REPOSITORY,
        python=sys.executable,
        module=f"tests.lab.{stage.kind.source}.{stage.kind.trainer}",
    )
    (stage.recipe / "container").write_bytes(_SUPERBLOCK + trainer.encode())
    stage.set(**knobs)
    if provisioned:
        stage.provision()
    return stage
