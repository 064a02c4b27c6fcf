"""Who looks on: what a session shows, and what becomes of its jobs when the terminal is closed or `tee` dies of the same Ctrl-C."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from fixtures.backends.base import InQueue
from fixtures.backends.slurm.answers import LoginNode
from fixtures.backends.slurm.controller import Controller
from fixtures.backends.slurm.section import Slurm
from fixtures.backends.ssh.connection import SshConnection
from fixtures.site import load_site
from plugins.record.job import JobRef
from plugins.record.lines import JOBS_LOG
from tests.lab import daemons
from tests.lab.scripted import STUCK, Fault, Script, ScriptedLab
from tests.lab.slurm import SlurmLab
from tests.lab.stage import Stage
from tests.system.scripted import TIMED_OUT
from tests.system.support import (
    GUARD,
    ROOT,
    SELECT,
    TOKEN,
    command,
    environment,
    finish,
    site_file,
    start,
    until,
)

TWO = ("suites/maxtext_llama2", "-k", "70b and bf16 and (64gpus or 128gpus)")
# The first call asks for the version only.
SLOW = {"scancel": Fault(f"scancel: error: {TIMED_OUT}", calls=2)}


def session(lab: ScriptedLab, tmp_path: Path, *more: str, limits: str = "") -> list[str]:
    """The command line of a session on two cases."""
    site = site_file(lab, lab.stage(), tmp_path, limits=f", log_settle_seconds: 1{limits}")
    return command(*TWO, *more, "--site", str(site), results=tmp_path / "results")


def cases(tmp_path: Path) -> list[dict[str, Any]]:
    """What the record of the only run says."""
    (summary,) = (tmp_path / "results").glob("2*/summary.json")
    found: list[dict[str, Any]] = json.loads(summary.read_text())["cases"]
    return found


def require_cancelled(lab: ScriptedLab, tmp_path: Path) -> None:
    assert lab.live_jobs() == []
    assert len(lab.calls("scancel")) > 2
    assert set(lab.jobs().values()) == {"CANCELLED"}
    assert len(lab.jobs()) == 2
    assert {case["verdict"] for case in cases(tmp_path)} == {"infrastructure"}
    assert all("was cancelled" in case["headline"] for case in cases(tmp_path))


def two_jobs_run(lab: ScriptedLab, tmp_path: Path) -> bool:
    """Whether they do, and the session knows them."""
    ledger = "".join(path.read_text() for path in (tmp_path / "results").glob(f"2*/{JOBS_LOG}"))
    jobs = lab.jobs()
    return [*jobs.values()] == ["RUNNING"] * 2 and all(f'"id": "{number}"' in ledger for number in jobs)


@contextmanager
def piped(line: str) -> Iterator[subprocess.Popen[bytes]]:
    """A pipeline of bash, as the foreground group of a terminal."""
    with subprocess.Popen(
        ["bash", "-c", line], cwd=ROOT, env=environment(), start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["one process", "workers"])
def test_ctrl_c_that_also_ends_tee_leaves_no_job(
    scripted_lab: ScriptedLab, tmp_path: Path, workers: list[str]
) -> None:
    scripted_lab.play(Script(timeline=STUCK, ends=False, faults=SLOW))
    line = shlex.join(session(scripted_lab, tmp_path, *workers))
    # The shell waits for the whole pipeline, whatever becomes of tee.
    with piped(f"{line} 2>&1 | tee {tmp_path}/out") as process:
        until(lambda: two_jobs_run(scripted_lab, tmp_path), "two jobs running")
        os.killpg(process.pid, signal.SIGINT)
        process.wait(GUARD)
        until(lambda: not group(process.pid), "the end of the session")
    require_cancelled(scripted_lab, tmp_path)


@pytest.mark.parametrize("times", [1, 2], ids=["one SIGHUP", "another one of the shell's"])
def test_a_terminal_that_is_closed_leaves_no_job(
    scripted_lab: ScriptedLab, tmp_path: Path, times: int
) -> None:
    scripted_lab.play(Script(timeline=STUCK, ends=False, faults=SLOW))
    ours, theirs = pty.openpty()
    line = ["setsid", "--ctty", *session(scripted_lab, tmp_path)]
    process = subprocess.Popen(line, cwd=ROOT, env=environment(), stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    try:
        with looked_at(ours):
            until(lambda: two_jobs_run(scripted_lab, tmp_path), "two jobs running")
        # The kernel tells the session with a SIGHUP.
        os.close(ours)
        if times == 2:
            time.sleep(0.3)
            process.send_signal(signal.SIGHUP)
        process.wait(GUARD)
    finally:
        process.kill()
        process.wait()
    require_cancelled(scripted_lab, tmp_path)


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["one process", "workers"])
def test_under_nohup_a_terminal_that_is_closed_ends_nothing(
    scripted_lab: ScriptedLab, tmp_path: Path, workers: list[str]
) -> None:
    scripted_lab.play(Script(timeline=STUCK, ends=False))
    ours, theirs = pty.openpty()
    line = ["setsid", "--ctty", "nohup", *session(scripted_lab, tmp_path, *workers)]
    with (tmp_path / "out").open("w") as out:
        process = subprocess.Popen(line, cwd=ROOT, env=environment(), stdin=theirs, stdout=out, stderr=out)
    os.close(theirs)
    try:
        until(lambda: two_jobs_run(scripted_lab, tmp_path), "two jobs running")
        os.close(ours)
        # The shell's own, to the whole job.
        os.killpg(process.pid, signal.SIGHUP)
        scripted_lab.play(Script())
        process.wait(GUARD)
    finally:
        process.kill()
        process.wait()
    assert scripted_lab.calls("scancel") == []
    assert set(scripted_lab.jobs().values()) == {"COMPLETED"}
    # The scripted log is that of one of the two cases.
    assert {case["verdict"] for case in cases(tmp_path)} == {"passed", "invalid run"}


def test_a_reader_that_quits_ends_the_session_and_leaves_no_job(
    scripted_lab: ScriptedLab, tmp_path: Path
) -> None:
    """As a pager does. What pytest itself cannot print any more is the end of it; the cases come one after the other."""
    scripted_lab.play(Script())
    line = shlex.join(session(scripted_lab, tmp_path, limits=", jobs_in_flight: 1"))
    with piped(f"{line} 2>&1 | sed '/running on/q' >/dev/null") as process:
        process.wait(GUARD)
    assert scripted_lab.live_jobs() == []
    assert "passed" in {case["verdict"] for case in cases(tmp_path)}
    assert len(cases(tmp_path)) == 2


def group(number: int) -> list[str]:
    """The processes of this process group."""
    done = subprocess.run(["pgrep", "-g", str(number)], capture_output=True, text=True, check=False)
    return done.stdout.split()


@contextmanager
def looked_at(terminal: int) -> Iterator[None]:
    """Somebody reads what the terminal shows."""
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            if select.select([terminal], [], [], 0.05)[0]:
                os.read(terminal, 1 << 16)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


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
