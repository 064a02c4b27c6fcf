"""The scripted scheduler speaks as the real one does, and it leaves nothing behind."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from fixtures.slurm_answers import SACCT
from fixtures.slurm_answers import SQUEUE
from tests.lab import daemons
from tests.lab.config import SYSTEM_PATH
from tests.lab.scripted import STUCK
from tests.lab.scripted import Fault
from tests.lab.scripted import Script
from tests.lab.scripted import ScriptedLab
from tests.lab.slurm import SlurmLab

NAME = "pacemark-scripted.case"
DISABLED = Fault("Slurm accounting storage is disabled")

# Each in order, with @ for the job's id. What is compared: status, both outputs.
COMMANDS = [
    "squeue --noheader --states=all --jobs=@ --format='%i|%j|%T|%r'",
    f"squeue --noheader --states=all --jobs=99999 --format='{SQUEUE}'",
    f"squeue --noheader --states=all --jobs=99998,99999 --format='{SQUEUE}'",
    "squeue --noheader --states=all --jobs=@,99999 --format='%i|%j|%T|%r'",
    f'squeue --noheader --states=all --user="$(id -un)" --name={NAME} --format="%i|%j|%T|%r"',
    f'squeue --noheader --states=all --user="$(id -un)" --name=nothing --format="{SQUEUE}"',
    f"sacct -X -P --noheader --jobs=@ --format={SACCT}",
    "scontrol --oneliner show job 99999",
    "scontrol show partition batch | head -1",
    'squeue --noheader --states=all --user="$(id -un)" --jobs=@ --format="%i|%j|%T|%r"',
    f'squeue --noheader --states=all --user="$(id -un)" --jobs=99999 --format="{SQUEUE}"',
    "scancel 99999",
    f'scancel --user="$(id -un)" --name={NAME} 99999',
    'scancel --user="$(id -un)" --name=another @',
    "squeue --noheader --states=all --jobs=@ --format='%i|%j|%T'",
    "scancel @ 99999",
    "scancel @",
    f'scancel --user="$(id -un)" --name={NAME} @',
    "squeue --noheader --states=all --jobs=@ --format='%i|%j|%T'",
]


def test_the_tools_say_what_those_of_slurm_say(
    slurm_lab: SlurmLab, scripted_lab: ScriptedLab, tmp_path: Path
) -> None:
    """A job that is held, told about, and cancelled."""
    (tmp_path / "job.sh").write_text("#!/bin/bash\n#SBATCH --hold\nsleep 600\n")
    scripted_lab.play(
        Script(timeline=((0, "PENDING", 0),), ends=False, reason="JobHeldUser", faults={"sacct": DISABLED})
    )
    real, played = slurm_lab.environment, {"PATH": f"{scripted_lab.root}/bin:{SYSTEM_PATH}"}
    assert told(real, tmp_path) == told(played, tmp_path)


def told(environment: Mapping[str, str], folder: Path) -> list[tuple[str, int, str, str]]:
    def run(command: str) -> tuple[int, str, str]:
        done = subprocess.run(
            ["bash", "-c", command], env={**environment, "SBATCH_JOB_NAME": NAME},
            capture_output=True, text=True, timeout=20, cwd=folder,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    status, out, error = run("sbatch --parsable --no-requeue -A lab_acct -p batch -N 2 job.sh")
    assert status == 0, error
    job = out.strip()
    answers = []
    for command in COMMANDS:
        status, out, error = run(command.replace("@", job))
        answers.append((command, status, out.replace(job, "@"), error.replace(job, "@")))
    return answers


def test_tools_that_hang_end_with_the_lab(scripted_log: bytes) -> None:
    with ScriptedLab(scripted_log) as lab:
        lab.play(Script(timeline=STUCK, faults={"squeue": Fault(seconds=600)}))
        tool = f"{lab.root}/bin/squeue --noheader --states=all --format=%i"
        hanging = subprocess.Popen(
            ["bash", "-c", tool], env={daemons.MARK: str(lab.root), "PATH": SYSTEM_PATH}
        )
        root = lab.root
    assert hanging.wait(5) == -9
    assert daemons.marked(root) == set()
    assert not root.exists()
