"""What a session shows while its jobs run: on a terminal, in a file, with workers, and when asked to be quiet."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import threading
import time
from datetime import datetime
from pathlib import Path

import pytest

from fixtures.backends.base import InQueue
from fixtures.backends.slurm.answers import LoginNode
from fixtures.backends.slurm.controller import Controller
from fixtures.backends.slurm.section import Slurm
from fixtures.backends.ssh.connection import SshConnection
from fixtures.site import load_site
from plugins.record.job import JobRef
from tests.lab import daemons
from tests.lab.slurm import SlurmLab
from tests.lab.stage import Stage
from tests.system.support import GUARD, ROOT, SELECT, TOKEN, finish, pacemark, site_file, start, until

# The pace of a case that runs, once the steps that warm it up weigh little.
PACE = re.compile(
    r"llama3/70b-fp8-512gpus +step \d+/50 +10\.\d+ s/step +expected 10\.07 +8\d\d,\d\d\d tokens/s +[-+]\d\.\d % +running \d+:\d\d +\d+:\d\d left"
)


def on_a_terminal(stage: Stage, *arguments: str, results: Path) -> str:
    """Everything that pytest writes when its output is a terminal. The stage's job is let go once its pace is shown."""
    master, slave = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--results", str(results), *arguments],
        cwd=ROOT,
        env={**os.environ, "HF_TOKEN": TOKEN, "COLUMNS": "160", "LINES": "40", "TERM": "xterm"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    ) as process:
        os.close(slave)
        guard = threading.Timer(GUARD, lambda: daemons.kill(daemons.family({process.pid})))
        guard.start()
        said, held = b"", True
        # Linux answers with an error when the last writer has gone.
        try:
            while data := os.read(master, 1 << 16):
                said += data
                if held and PACE.search(said.decode(errors="replace")):
                    stage.let_go()
                    held = False
        except OSError:
            pass
        finally:
            guard.cancel()
    os.close(master)
    return said.decode()


def test_a_terminal_shows_every_running_case_and_a_total(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    stage = slurm_lab.stage(tmp_path.name)
    stage.hold(20)
    site = site_file(slurm_lab, stage, tmp_path)
    said = on_a_terminal(stage, *SELECT, "--site", str(site), results=tmp_path / "results")
    assert "1 case: 1 running on 512 GPUs" in said
    assert PACE.search(said)
    # The region is taken away: what stays is the news and pytest's own lines.
    last = said[said.rindex("1 running on 512 GPUs") :]
    assert "\x1b[1A\x1b[2K" in last
    assert re.search(r"1 passed", last)


@pytest.mark.parametrize("workers", [[], ["-n", "2"]])
def test_a_file_gets_a_plain_line_for_each_change(
    slurm_lab: SlurmLab, tmp_path: Path, workers: list[str]
) -> None:
    stage = slurm_lab.stage(tmp_path.name)
    stage.hold(10)
    site = site_file(slurm_lab, stage, tmp_path)
    process = start(*SELECT, *workers, "--site", str(site), results=tmp_path / "results")
    # A session that asks late would see only the job's end.
    until(lambda: "running on" in process.said(), "the session has seen it run")
    stage.let_go()
    result = finish(process, tmp_path / "results")
    assert result.status == 0
    assert "\x1b" not in result.out
    log = re.escape(str(result.folder / "llama3" / "70b-fp8-512gpus" / "log.txt"))
    for change in (
        r": job \d+$",
        rf": running on gpu\[[\d,-]+\]; log: {log}$",
        r": passed: 10\.\d+ s a step",
    ):
        assert len(re.findall(r"70b-fp8-512gpus" + change, result.out, re.MULTILINE)) == 1, result.out
    assert result.out.index(": job ") < result.out.index(": running on") < result.out.index(": passed: ")
    # When the job ran, by the clock of Slurm.
    job = result.case()["job"]
    shown = slurm_lab.ask("scontrol", "show", "job", job["id"])
    for key, name in (("started", "StartTime"), ("ended", "EndTime")):
        at = re.search(rf"\b{name}=(\S+)", shown)
        assert at is not None
        assert datetime.fromisoformat(job[key]) == datetime.fromisoformat(at[1]).astimezone()


def test_quiet_is_quiet(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    site = site_file(slurm_lab, slurm_lab.stage(tmp_path.name), tmp_path)
    result = pacemark(*SELECT, "-q", "--site", str(site), results=tmp_path / "results")
    assert "running on" not in result.out
    assert len(re.findall(r"^llama3/70b-fp8-512gpus: passed: ", result.out, re.MULTILINE)) == 1
    assert result.status == 0


def test_the_place_of_a_job_in_the_queue_is_that_of_slurm(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    site = load_site(site_file(slurm_lab, slurm_lab.stage(tmp_path.name), tmp_path))
    section = site.section("slurm")
    assert isinstance(section, Slurm)
    ssh = SshConnection(section.ssh)
    waits = ("sbatch", "--parsable", "--account=lab_acct", "--nodes=1", "--begin=now+1hour", "--wrap=true")
    names = [f"{tmp_path.name}-{number}" for number in range(2)]
    began = time.time()
    jobs = [
        JobRef("llama3", "70b", name, slurm_lab.run(*waits, f"--job-name={name}").strip()) for name in names
    ]
    try:
        controller = Controller(LoginNode(site.site, section, ssh))
        places: dict[JobRef, InQueue] = {}

        def are_known() -> bool:
            # Nothing, if a busy controller is late.
            places.update(controller.in_queue(jobs))
            return len(places) == len(jobs)

        until(are_known, "both places in the queue")
        assert [places[job].position for job in jobs] == [1, 2]
        earliest, latest = began + 3600 - 120, time.time() + 3600 + 120
        assert all(earliest < (places[job].starts or 0.0) < latest for job in jobs)
    finally:
        ssh.close()
        slurm_lab.run("scancel", *(job.id for job in jobs))
