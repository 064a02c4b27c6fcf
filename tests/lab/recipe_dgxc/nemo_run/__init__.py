"""What Megatron-Bridge's setup_experiment.py asks of NeMo-Run: an executor, a script, and a run of it by sbatch.

`experiment` beside this file is tests/lab/recipe/experiment.py, which says and does what NeMo-Run does.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from . import config
from .core.execution.kubeflow import KubeflowExecutor as KubeflowExecutor

experiment: Any = importlib.import_module(".experiment", __name__)


class SlurmExecutor(SimpleNamespace):
    """The settings of a job, by NeMo-Run's names."""

    setup_lines = ""


class Script(SimpleNamespace):
    """A script that each rank runs: `path`, `entrypoint`, `args`."""

    def to_command(self) -> list[str]:
        return [self.entrypoint, self.path, *self.args]


class Plugin:
    """The base class of upstream's plugins, each of which changes a script and its executor."""


class Experiment:
    """An experiment that was submitted, by its title."""

    folders: dict[str, str] = {}

    def __init__(self, title: str) -> None:
        self._title = title

    @classmethod
    def from_title(cls, title: str) -> Experiment:
        return cls(title)

    def status(self, return_dict: bool = False) -> dict[str, dict[str, str]]:
        return {self._title: {"local_dir": self.folders[self._title], "status": "SUBMITTED"}}


def run(
    script: Script, *, executor: SlurmExecutor, plugins: list[Any], dryrun: bool, detach: bool, name: str
) -> None:
    """Submit the script as a job, and say where its log will be. It ends this process if sbatch refuses."""
    for plugin in plugins:
        plugin.setup(script, executor)
    task = experiment.Task(
        name=name,
        account=executor.account,
        partition=executor.partition,
        nodes=executor.nodes,
        gpus_per_node=executor.ntasks_per_node,
        time_limit=executor.time,
        # The lab's srun reads its knobs there.
        environment={"STAGE_PATH": os.environ["LLMB_INSTALL"], **executor.env_vars},
        plan={"name": name, "arguments": script.args, "image": executor.container_image},
    )
    home = Path(config.get_nemorun_home())
    status = experiment.run(name, [task], home=home)
    if status:
        sys.exit(status)
    Experiment.folders[name] = str(home / "experiments" / name)


def __getattr__(name: str) -> Any:
    """Executors and packagers that no recipe here uses."""
    if name.startswith("__"):
        raise AttributeError(name)
    return SimpleNamespace
