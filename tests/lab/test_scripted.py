"""The scripted scheduler speaks as the real one does, and it leaves nothing behind."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from fixtures.backends.slurm.job_table import SACCT, SQUEUE
from tests.lab import daemons
from tests.lab.accounting import AccountingLab
from tests.lab.config import SYSTEM_PATH
from tests.lab.scripted import STUCK, Fault, Script, ScriptedLab, Timeline, ending
from tests.lab.slurm import SlurmLab
from tests.system.support import until

NAME = "pacemark-scripted.case"
DISABLED = Fault("Slurm accounting storage is disabled")

BRIEF = "'--Format=JobArrayID:|,Name:|,State:|,Reason:'"

# Each in order, with @ for the job's id. What is compared: status, both outputs.
COMMANDS = [
    f"squeue --noheader --states=all --jobs=@ {BRIEF}",
    f"squeue --noheader --states=all --jobs=99999 {SQUEUE}",
    f"squeue --states=all --jobs=99998,99999 {SQUEUE}",
    f"squeue --states=all --jobs=@,99999 {BRIEF}",
    f'squeue --noheader --states=all --user="$(id -un)" --name={NAME} {BRIEF}',
    f'squeue --noheader --states=all --user="$(id -un)" --name=nothing {SQUEUE}',
    f"sacct -X -P --noheader --jobs=@ {SACCT}",
    "scontrol --oneliner show job 99999",
    "scontrol show partition batch | head -1",
    f'squeue --noheader --states=all --user="$(id -un)" --jobs=@ {BRIEF}',
    f'squeue --noheader --states=all --user="$(id -un)" --jobs=99999 {SQUEUE}',
    "scancel 99999",
    f'scancel --user="$(id -un)" --name={NAME} 99999',
    'scancel --user="$(id -un)" --name=another @',
    "squeue --noheader --states=all --jobs=@ '--Format=JobArrayID:|,Name:|,State:'",
    "scancel @ 99999",
    "scancel @",
    f'scancel --user="$(id -un)" --name={NAME} @',
    "squeue --noheader --states=all --jobs=@ '--Format=JobArrayID:|,Name:|,State:'",
]

# Two jobs begin at different times.
TIMELESS = SACCT.removesuffix(",Start,End")
SACCT_COMMANDS = [
    f"sacct -X -P --noheader --jobs=@ {TIMELESS}",
    f"sacct -X -P --noheader --jobs=99999 {TIMELESS}",
    f"sacct -X -P --noheader --jobs=99999,@ {TIMELESS}",
    f"sacct -X -P --noheader --name={NAME} --starttime=now-7days {TIMELESS} | grep '^@|'",
    f"sacct -X -P --noheader --name=nothing --starttime=now-7days {TIMELESS}",
]
QUEUED: Timeline = ((0, "PENDING", 0),)


def test_the_tools_say_what_those_of_slurm_say(
    slurm_lab: SlurmLab, scripted_lab: ScriptedLab, tmp_path: Path
) -> None:
    """A job that is held, told about, and cancelled."""
    (tmp_path / "job.sh").write_text("#!/bin/bash\n#SBATCH --hold\nsleep 600\n")
    scripted_lab.play(
        Script(timeline=((0, "PENDING", 0),), ends=False, reason="JobHeldUser", faults={"sacct": DISABLED})
    )
    real = told(slurm_lab.environment, tmp_path, COMMANDS)
    assert real == told(played(scripted_lab), tmp_path, COMMANDS)


@pytest.mark.parametrize(
    ("job", "state", "script"),
    [
        ("#SBATCH --qos={full}", "PENDING", Script(timeline=QUEUED, ends=False)),
        ("#SBATCH --qos={full}", f"CANCELLED by {os.getuid()}", Script(timeline=QUEUED, ends=False)),
        ("true", "COMPLETED", Script(timeline=ending("COMPLETED"))),
        ("exit 3", "FAILED", Script(timeline=ending("FAILED"), exit_code="3:0")),
        ("kill -9 $$", "FAILED", Script(timeline=ending("FAILED"), exit_code="0:9")),
    ],
    ids=["queued", "cancelled", "completed", "failed", "killed"],
)
def test_sacct_says_what_that_of_slurm_says(
    accounting_lab: AccountingLab,
    scripted_lab: ScriptedLab,
    tmp_path: Path,
    job: str,
    state: str,
    script: Script,
) -> None:
    if "{full}" in job:
        job = job.format(full=accounting_lab.qos("GrpJobs=0"))
    (tmp_path / "job.sh").write_text(f"#!/bin/bash\n{job}\n")
    scripted_lab.play(script)
    # The real one lags behind by seconds; until then a job may be without its name and most of its nodes.
    seen = f"until {SACCT_COMMANDS[0]} | grep '|{NAME}|{state}|' >/dev/null; do sleep 0.1; done"
    commands = [*(["scancel @"] if "CANCELLED" in state else []), seen, *SACCT_COMMANDS]
    try:
        real = told(accounting_lab.environment, tmp_path, commands)
    finally:
        accounting_lab.run("scancel", "--state=PENDING", "--name", NAME)
    assert [status for _, status, _, _ in real] == [0] * len(commands)
    assert real == told(played(scripted_lab), tmp_path, commands)


def played(lab: ScriptedLab) -> dict[str, str]:
    return {"PATH": f"{lab.root}/bin:{SYSTEM_PATH}"}


def told(
    environment: Mapping[str, str], folder: Path, commands: Sequence[str]
) -> list[tuple[str, int, str, str]]:
    def run(command: str) -> tuple[int, str, str]:
        done = subprocess.run(
            ["bash", "-c", command], env={**environment, "SBATCH_JOB_NAME": NAME},
            capture_output=True, text=True, timeout=300, cwd=folder,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    status, out, error = run("sbatch --parsable --no-requeue -A lab_acct -p batch -N 8 job.sh")
    assert status == 0, error
    job = out.strip()
    answers = []
    for command in commands:
        status, out, error = run(command.replace("@", job))
        # Not in an exit code.
        out, error = (re.sub(rf"(?<!:)\b{job}\b(?!:\d)", "@", text) for text in (out, error))
        answers.append((command, status, out, error))
    return answers


def test_tools_that_hang_end_with_the_lab(scripted_log: bytes) -> None:
    with ScriptedLab(scripted_log) as lab:
        lab.play(Script(timeline=STUCK, faults={"squeue": Fault(seconds=600)}))
        tool = f"{lab.root}/bin/squeue --noheader --states=all --Format=Name:"
        hanging = subprocess.Popen(
            ["bash", "-c", tool], env={daemons.MARK: str(lab.root), "PATH": SYSTEM_PATH}
        )
        root = lab.root
        until(lambda: bool(lab.running_tools()), "the tool hangs")
    assert hanging.wait(300) == -9
    assert daemons.marked(root) == set()
    assert not root.exists()
