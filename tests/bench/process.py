"""What a process costs: seconds, CPU seconds with all of its descendants, memory."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

KEEPING = {"PYTHONDONTWRITEBYTECODE": ""}
"""The environment in which what is compiled is kept."""

_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cost:
    """`began` and `ended` in s since the epoch; `cpu` in s, descendants included; `peak` in MB, of the largest one."""

    began: float
    ended: float
    cpu: float
    peak: float
    status: int

    @property
    def wall(self) -> float:
        return self.ended - self.began


class Measured:
    """A process in a group of its own, as a terminal makes one; what it prints goes to the file `out`."""

    def __init__(self, command: Sequence[str], *, cwd: Path, out: Path, env: Mapping[str, str] = {}) -> None:
        self.out = out
        self._began = time.time()
        with out.open("wb") as file:
            self._process = subprocess.Popen(
                command,
                cwd=cwd,
                env={**os.environ, **env},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait(self) -> Cost:
        """Wait for its end."""
        _, status, used = os.wait4(self.pid, 0)
        ended = time.time()
        self._process.returncode = os.waitstatus_to_exitcode(status)
        return Cost(
            began=self._began,
            ended=ended,
            cpu=used.ru_utime + used.ru_stime,
            peak=used.ru_maxrss / 1024,
            status=self._process.returncode,
        )


def pytest(checkout: Path, out: Path, *arguments: str) -> Measured:
    """Pacemark as its users start it: without the plugin of Hypothesis, which only Pacemark's own tests need.

    What Python and Jinja compile is kept, whatever the environment of the bench says.
    """
    plugins = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
    return Measured(
        [sys.executable, "-m", "pytest", "suites", *plugins, *arguments],
        cwd=checkout,
        out=out,
        env=KEEPING,
    )


def cpu_of(pid: int) -> float:
    """CPU seconds so far of a process that lives, and of the descendants that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(ticks) for ticks in fields[11:15]) / _TICK
