"""The lab's processes: started, watched and ended by process id, never by name.

Every process of a lab carries `PACEMARK_LAB=<root>` in its environment, and so does what it starts: slurmd
passes it to slurmstepd, sshd to the shells of a session, sbatch to the job. Only sshd writes its title over
its environment, and that title names the lab's sshd_config. `sweep` ends exactly these and their descendants.
A slurmd and its slurmstepd carry `PACEMARK_LAB_NODE=<root>/<node>` besides.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

MARK = "PACEMARK_LAB"
NODE_MARK = "PACEMARK_LAB_NODE"


class LabError(RuntimeError):
    """A part of the lab did not start, or did not answer; carries the tail of its log."""


class Claim(Protocol):
    """Ports that a lab has taken."""

    def release(self) -> None: ...


@dataclass
class Daemon:
    """One daemon run in the foreground, as our child.

    `log` is the file that explains a failure: the daemon writes it itself or through its standard error.
    """

    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process id while it runs, else None."""
        return self.process.pid if self.process and self.process.poll() is None else None

    def start(self) -> None:
        """Start it and return at once; `check` tells whether it lived."""
        with self.log.open("ab") as log:
            # A session of its own: Ctrl-C in the terminal reaches pytest, which then stops the lab in order.
            self.process = subprocess.Popen(
                self.argv,
                env=dict(self.env),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def check(self) -> None:
        """Raise LabError, with the log's tail, if it is not running."""
        if self.process is None:
            raise LabError(f"{self.name} was not started")
        if self.process.poll() is not None:
            raise LabError(f"{self.name} ended with exit code {self.process.returncode}:\n{tail(self.log)}")

    def terminate(self) -> None:
        """Ask it to end (SIGTERM); does not wait."""
        if self.pid is not None and self.process is not None:
            self.process.terminate()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it runs."""
        if self.pid is not None and self.process is not None:
            self.process.send_signal(number)
            if number == signal.SIGKILL:
                self.process.wait()
            if number == signal.SIGSTOP:
                _wait_stopped([self.process.pid])

    def wait(self, deadline: float) -> None:
        """Wait until `deadline` (time.monotonic), then SIGKILL."""
        if self.process is None:
            return
        try:
            self.process.wait(max(0.01, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def stop(self, seconds: float = 5.0) -> None:
        """End it: SIGTERM, wait at most `seconds`, then SIGKILL."""
        self.terminate()
        self.wait(time.monotonic() + seconds)


def end(group: Iterable[Daemon], seconds: float) -> None:
    """Ask all of them to go, and wait for that; whoever stays is killed."""
    asked = list(group)
    for daemon in asked:
        daemon.terminate()
    deadline = time.monotonic() + seconds
    for daemon in asked:
        daemon.wait(deadline)


def clear(
    root: Path, claimed: Claim | None, watcher: subprocess.Popen[bytes] | None, *, keep: bool = False
) -> None:
    """Leave nothing of the lab at `root`: processes, ports, files (unless `keep`), and the reaper that watches it."""
    left = sweep(root)
    if claimed:
        claimed.release()
    if not keep:
        shutil.rmtree(root, ignore_errors=True)
    if watcher and watcher.stdin:
        watcher.stdin.close()
        watcher.wait()
    if left:
        raise LabError(f"processes {sorted(left)} of the lab at {root} outlived SIGKILL")


def tail(log: Path, lines: int = 15) -> str:
    """The last lines of a log, or a sentence saying that there is none."""
    if not log.exists():
        return f"(no log at {log})"
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def marked(root: Path) -> set[int]:
    """Process ids of the lab at `root`: all that carry its mark, and their descendants."""
    return _carrying(f"{MARK}={root}".encode(), f" {root}/ssh/sshd_config ".encode())


def born(pids: Iterable[int]) -> dict[int, str]:
    """When each process began, in clock ticks since the boot; those that have ended are left out."""
    ticks: dict[int, str] = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            if state != "Z":
                ticks[pid] = fields[18]
    return ticks


def survivors(before: Mapping[int, str]) -> list[int]:
    """Which of these processes still run: an id alone may have passed to another one."""
    now = born(before)
    return [pid for pid, ticks in before.items() if now.get(pid) == ticks]


def of_node(root: Path, node: str) -> set[int]:
    """Process ids of one node: slurmd, slurmstepd, and the jobs that they run."""
    return _carrying(f"{NODE_MARK}={root}/{node}".encode())


def _carrying(wanted: bytes, sshd_config: bytes | None = None) -> set[int]:
    """Process ids with this in their environment, sessions of this sshd, and the descendants of both."""
    parents: dict[int, int] = {}
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        pid = int(entry.name)
        try:
            # "pid (name) state ppid ...": the name may hold blanks and parentheses: cut behind the last.
            name, _, rest = (entry / "stat").read_text().rpartition(")")
            state, parent = rest.split()[:2]
            environment = (entry / "environ").read_bytes()
            title = (entry / "cmdline").read_bytes() if "(sshd" in name else b""
        except (OSError, ValueError):
            continue  # it ended while we looked
        if state == "Z":
            continue  # ended; only waits for its parent to notice
        parents[pid] = int(parent)
        if wanted in environment.split(b"\0") or (
            sshd_config is not None and title.startswith(b"sshd: ") and sshd_config in title
        ):
            found.add(pid)
    return _with_descendants(found, parents) - {os.getpid()}


def family(pids: Iterable[int]) -> set[int]:
    """These processes and their descendants."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        # It may have ended while we looked.
        with contextlib.suppress(OSError):
            parents[int(entry.parent.name)] = int(entry.read_text().rpartition(")")[2].split()[1])
    return _with_descendants(set(pids), parents)


def _with_descendants(pids: set[int], parents: Mapping[int, int]) -> set[int]:
    found, grown = set(pids), True
    while grown:
        children = {pid for pid, parent in parents.items() if parent in found} - found
        found |= children
        grown = bool(children)
    return found


def sweep(root: Path, seconds: float = 60.0) -> set[int]:
    """SIGKILL all that is left of the lab at `root`; returns what still lives after `seconds`."""
    deadline = time.monotonic() + seconds
    left = marked(root)
    while left and time.monotonic() < deadline:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.02)
        left = marked(root)
    return left


def kill(pids: Iterable[int]) -> None:
    """SIGKILL; what has ended meanwhile is well."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def is_stopped(pid: int) -> bool:
    """Whether none of its threads runs. After a SIGSTOP they go on until one of them has taken it.

    One that waits in the kernel for a child which was stopped before its exec takes it when it comes back.
    """
    try:
        stats = [(task / "stat").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        # A thread ended meanwhile. Of a process that has ended none is left.
        return not Path(f"/proc/{pid}").exists()
    return all(stat.rpartition(")")[2].split()[0] in "DTtXZ" for stat in stats)


def _wait_stopped(pids: Iterable[int], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    for pid in pids:
        while not is_stopped(pid):
            if time.monotonic() > deadline:
                raise LabError(f"process {pid} was stopped, but runs after {seconds:g} s: {command(pid)}")
            time.sleep(0.01)


@contextlib.contextmanager
def frozen(pids: Iterable[int]) -> Iterator[None]:
    """These processes are stopped while the block runs."""
    stopped = list(pids)
    for pid in stopped:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    try:
        _wait_stopped(stopped)
        yield
    finally:
        for pid in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def answers(host: str, port: int) -> bool:
    """Whether an SSH server greets there."""
    try:
        with socket.create_connection((host, port), timeout=10) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def environment(pid: int) -> bytes:
    """The variables that a process began with, each between two zero bytes; b"" if it has ended."""
    try:
        return b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def command(pid: int) -> str:
    """The command line of a process; "" if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
