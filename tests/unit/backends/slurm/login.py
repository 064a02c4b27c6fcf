"""A login node that is this machine: its bash runs the scripts, and Slurm's tools are what a test writes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fixtures.backends.shell import Answer
from fixtures.backends.slurm.backend import SlurmBackend
from fixtures.backends.slurm.section import Slurm
from fixtures.backends.ssh.connection import SshConnection
from fixtures.backends.ssh.endpoint import Ssh
from plugins.recipes.cases import Recipe

KEYS = {"gpu": "h100", "ssh": {"host": "login01"}, "account": "a", "partition": "p"}
SECTION = Slurm(gpu="h100", account="a", partition="p", stage="/s", ssh=Ssh(host="login"))


class Login:
    """The stage is a folder below `root`, where scripts begin. `before` is run in front of each script."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, tools: str = "bin") -> None:
        self.root, self.stage, self.tools = root, root / "stage", root / tools
        self.before = ""
        self.scripts: list[str] = []
        self.tools.mkdir()
        monkeypatch.setattr(SshConnection, "run", lambda _, script, **__: self._run(script))
        monkeypatch.setenv("PATH", f"{self.tools}:{os.environ['PATH']}")
        monkeypatch.setenv("HF_TOKEN", "hf_0123456789")

    def backend(self, recipe: Recipe, **keys: Any) -> SlurmBackend:
        return SlurmBackend("lab", Slurm.model_validate({**KEYS, "stage": str(self.stage), **keys}), [recipe])

    def tool(self, name: str, bash: str = "") -> Path:
        """Write a program that is found before those of this machine."""
        path = self.tools / name
        path.write_text(f"#!/bin/bash\n{bash}\n")
        path.chmod(0o755)
        return path

    def _run(self, script: str) -> Answer:
        self.scripts.append(script)
        done = subprocess.run(
            ["bash", "-s"],
            input=f"{self.before}\n{script}",
            capture_output=True,
            text=True,
            timeout=120,
            cwd=self.root,
        )
        return Answer(done.returncode, done.stdout, done.stderr)
