"""The tests' sessions are forked: they are what `python -m pytest` is."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.lab import daemons
from tests.system.support import (
    ROOT,
    SELECT,
    command,
    end_sessions,
    environment,
    forks,
    pacemark,
    start,
    until,
)

WHICH = """\
import os, sys
def pytest_configure(config):
    print(os.getpid() == os.getpgrp() == os.getsid(0), os.getcwd(), os.environ["TOLD"], sys.flags.hash_randomization, sys.argv[1:])
def pytest_unconfigure(config):
    os.abort()
"""


def timeless(text: str) -> str:
    # The line is filled up to the width of the terminal.
    return re.sub(r"=+ (.*) in \d+\.\d\ds(?: \([\d:]+\))? =+", r"\1", text)


def test_it_says_and_leaves_what_a_fresh_one_does(tmp_path: Path) -> None:
    arguments = (*SELECT, "--plan", "-v")
    fresh = subprocess.run(
        command(*arguments, results=tmp_path),
        cwd=ROOT, env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    forked = pacemark(*arguments, results=tmp_path)
    assert (forked.status, timeless(forked.out)) == (fresh.returncode, timeless(fresh.stdout))


def test_each_is_a_process_with_a_group_an_environment_and_an_end_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "which.py").write_text(WHICH)
    arguments = ["-s", "-p", "which", "--plan", *SELECT]
    for anew in (False, True):
        env = environment({"TOLD": "something", "PYTHONPATH": str(tmp_path), "PYTHONHASHSEED": "0"})
        argv = [
            *command(results=tmp_path)[:3],
            "-c",
            "pytest.ini",
            "-o",
            f"pythonpath=. {tmp_path}",
            *arguments,
        ]
        session = forks().start(argv, env, anew=anew)
        out, _ = session.communicate(300)
        assert session.returncode == -signal.SIGABRT, out
        assert f"True {ROOT} something {int(not anew)} {argv[3:]}" in out


def test_one_that_is_killed_says_so(tmp_path: Path) -> None:
    session = start("suites", "--collect-only", results=tmp_path)
    until(lambda: "collect" in session.said() or session.poll() is not None, "it runs")
    session.kill()
    assert session.wait(300) in (-signal.SIGKILL, 0)
    session.communicate(300)


def test_those_that_a_test_left_are_ended_with_what_they_started(tmp_path: Path) -> None:
    (tmp_path / "lasting.py").write_text(
        f"import subprocess\nchild = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        f"open('{tmp_path}/child', 'w').write(f'{{child.pid}}\\n')\nchild.wait()\n"
    )
    session = start("-p", "lasting", results=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    child = tmp_path / "child"
    until(lambda: child.exists() and child.read_text().endswith("\n"), "it has started a process")
    with pytest.raises(subprocess.TimeoutExpired):
        session.communicate(0.1)
    end_sessions()
    assert session.returncode == -signal.SIGKILL
    assert session.stdout.closed
    until(lambda: not daemons.command(int(child.read_text())), "the end of that process")
