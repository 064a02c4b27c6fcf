"""The same jobs through ReFrame: its asynchronous policy and `squeue` scheduler, on the login node itself.

It is installed into a virtual environment of its own, kept between runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.bench import checkout
from tests.bench.process import Measured
from tests.lab.slurm import SlurmLab

_REQUIREMENTS = Path(__file__).with_name("requirements-reframe.txt")

# As many jobs at once as Pacemark may have; everything else as ReFrame ships it.
_SITE = """\
site_configuration = {{
    "systems": [{{
        "name": "lab", "hostnames": [".*"],
        "partitions": [{{
            "name": "batch", "scheduler": "squeue", "launcher": "local", "environs": ["builtin"],
            "access": ["--partition=batch", "--account=lab_acct", "--mem=0", "--gres=gpu:8"], "max_jobs": {jobs},
        }}],
    }}],
}}
"""

_TEST = """\
import reframe as rfm
import reframe.utility.sanity as sn


@rfm.simple_test
class Fleet(rfm.RunOnlyRegressionTest):
    number = parameter(range({jobs}))
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "{program}"
    num_tasks = {nodes}
    num_tasks_per_node = 1
    exclusive_access = True
    reference = {{"*": {{"step_time": (10, -0.10, 0.05, "s")}}}}

    @sanity_function
    def complete(self):
        return sn.assert_eq(sn.count(sn.findall("train_step_timing", self.stdout)), {steps})

    @performance_function("s")
    def step_time(self):
        return sn.extractall(r"train_step_timing in s: (\\S+)", self.stdout, 1, float)[-1]
"""


def install() -> Path:
    """The `reframe` of the pinned version; made on first use."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    pin = _REQUIREMENTS.read_text().split("==")[-1].strip()
    folder = cache / "pacemark" / f"reframe-{pin}"
    if not (folder / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        hashed = ["--require-hashes", "--only-binary", ":all:", "-r", str(_REQUIREMENTS.with_suffix(".lock"))]
        subprocess.run([*pip, *hashed], check=True)
        (folder / "complete").touch()
    return folder / "bin" / "reframe"


def start(program: Path, lab: SlurmLab, folder: Path, jobs: int) -> Measured:
    """Run `jobs` jobs in `folder`, each of as many nodes and as long as Pacemark's."""
    folder.mkdir()
    job = folder / "job.sh"
    job.write_text(checkout.JOB)
    job.chmod(0o755)
    (folder / "site.py").write_text(_SITE.format(jobs=jobs))
    test = _TEST.format(jobs=jobs, program=job, nodes=checkout.NODES, steps=checkout.STEPS)
    (folder / "fleet.py").write_text(test)
    return Measured(
        [str(program), "-C", "site.py", "-c", "fleet.py", "--prefix", str(folder / "out"), "-r"],
        cwd=folder,
        out=folder / "reframe.out",
        env=lab.environment | {"PATH": f"{program.parent}:{lab.environment['PATH']}"},
    )
