"""Who looks on may go at any moment: the terminal is closed, `tee` dies of the same Ctrl-C. No job is left for that.

On the scripted scheduler, whose `scancel` fails at first, so that cancelling takes its time.
"""

from __future__ import annotations

import json
import os
import pty
import select
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from plugins.record.lines import JOBS_LOG
from tests.lab.scripted import STUCK, Fault, Script, ScriptedLab
from tests.system.scripted import TIMED_OUT
from tests.system.support import GUARD, ROOT, command, environment, site_file, until

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
