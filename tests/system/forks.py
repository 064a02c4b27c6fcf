"""Starts sessions from a process that has pytest and Pacemark loaded: `python -m tests.system.forks FD` at one end, `Forks` at the other.

Each session is a process of its own, with its own environment, output and process group, as `python -m pytest` is; only the
second of processor time that the imports take is saved, and the tenth that it takes to unload them.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import inspect
import io
import json
import os
import random
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path
from typing import IO, NoReturn, Self

import pytest
from pydantic import BaseModel

ROOT = Path(__file__).resolve().parents[2]
# Users have no hypothesis, which takes half a second to load.
OPTIONS = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
_IMPORTED_LATE = (
    "fixtures.backends.ssh.login",
    "fixtures.backends.kubernetes.backend",
    "kubernetes.client",
    "kubernetes.config",
    "kubernetes.utils",
    "google.cloud.storage",
    "fixtures.backends.slurm.backend",
    "fixtures.backends.replay",
    "fixtures.housekeeping",
    "scipy.special",
    "rich.live",
    "rich.table",
    "jinja2",
    "plugins.base.console",
)
_MESSAGE = 1 << 17

GUARD = 500.0
"""Seconds after which what is waited for will never come, even where thirty processes share two processors.

A test that passes waits for no guard. Two tests that fail by it leave a run of all tests within its hour.
"""


class Session:
    """A session that runs, or has ended: what of `subprocess.Popen` the tests use."""

    def __init__(self, pid: int, stdout: IO[str], status: socket.socket) -> None:
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None
        self._status = status
        self._said = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stdout.close()
        self.wait()

    def poll(self) -> int | None:
        """The exit status, or less the signal that ended it; None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float = GUARD) -> int:
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("pytest", timeout)
            self.returncode = int(self._status.recv(_MESSAGE))
            self._status.close()
        return self.returncode

    def communicate(self, timeout: float = GUARD) -> tuple[str, None]:
        """All that it and the processes that have its output print, until none is left; then its end is waited for.

        `timeout`: its longest silence. A session of hundreds of jobs may take longer on a busy machine, but tells of each. It
        must end within three times as long.
        """
        last = time.monotonic() + 3 * timeout
        while select.select([self.stdout], [], [], max(0, min(timeout, last - time.monotonic())))[0]:
            fresh = os.read(self.stdout.fileno(), 1 << 16)
            self._said += fresh
            if not fresh:
                self.stdout.close()
                self.wait(timeout)
                return io.TextIOWrapper(io.BytesIO(self._said)).read(), None
        raise subprocess.TimeoutExpired("pytest", timeout, output=self._said)

    def said(self) -> str:
        """What it has printed so far."""
        while select.select([self.stdout], [], [], 0)[0] and (
            fresh := os.read(self.stdout.fileno(), 1 << 16)
        ):
            self._said += fresh
        return self._said.decode(errors="replace")

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


class Forks:
    """The process that sessions are forked from; it ends with this one."""

    def __init__(self, env: Mapping[str, str]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket, self._lock = ours, threading.Lock()
        # A session of its own: Ctrl-C in the terminal is not for it.
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.system.forks", str(theirs.fileno())],
                cwd=ROOT,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        atexit.register(self._end)

    def _end(self) -> None:
        self._socket.close()
        self._process.wait()

    def start(self, argv: Sequence[str], env: Mapping[str, str], *, anew: bool = False) -> Session:
        """This command line of `python -m pytest`, with this environment, in a process group of its own."""
        read, write = os.pipe()
        status, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with self._lock, its:
            socket.send_fds(
                self._socket, [json.dumps([list(argv), dict(env), anew]).encode()], [write, its.fileno()]
            )
        os.close(write)
        return Session(int(status.recv(_MESSAGE)), os.fdopen(read), status)


def serve(requests: socket.socket) -> list[str]:
    """Fork a session for each request; returns the arguments, in the session. Ends with the one who asks."""
    while True:
        message, fds, _, _ = socket.recv_fds(requests, _MESSAGE, 2)
        if not message:
            os._exit(0)
        if os.fork() == 0:
            break
        for fd in fds:
            os.close(fd)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    requests.close()
    output, status = fds
    if pid := os.fork():
        os.close(output)
        _tell(pid, socket.socket(fileno=status))
    os.close(status)
    os.setsid()
    for stream in (1, 2):
        os.dup2(output, stream)
    os.close(output)
    argv: list[str]
    argv, environment, anew = json.loads(message)
    if anew:
        os.execve(argv[0], argv, environment)
    os.environ.clear()
    os.environ.update(environment)
    random.seed()
    return argv[argv.index("pytest") + 1 :]


def _tell(pid: int, status: socket.socket) -> NoReturn:
    """Say which process it is and how it ended. Until that was heard its number is kept, as by a parent that has not waited."""
    status.send(str(pid).encode())
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert ended is not None
    with contextlib.suppress(OSError):
        status.send(str(ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status).encode())
        status.recv(1)
    os._exit(0)


def _read_once() -> None:
    """Keep what each session would read again: what is installed, and the commit that pytest-benchmark makes a tag of."""
    # Pytest has to import it first.
    from pytest_benchmark import utils

    patch = pytest.MonkeyPatch()
    points = cached_property(vars(metadata.Distribution)["entry_points"].fget)
    points.__set_name__(metadata.Distribution, "entry_points")
    patch.setattr(metadata.Distribution, "entry_points", points)
    installed = list(metadata.distributions())
    for distribution in installed:
        assert distribution.entry_points is not None
    patch.setattr(metadata, "distributions", lambda: installed)
    commit_of = cache(utils.get_commit_info)
    commit_of(None)
    patch.setattr(utils, "get_commit_info", commit_of)


def _make_ready() -> None:
    """Make what each session would make again of the same bytes: templates, types of records, recipes, and where modules are."""
    # Pytest has to import these first.
    from plugins.baselines.baseline_file import load_baselines
    from plugins.recipes.expansion import load_recipe
    from plugins.record import case, stored, summary
    from plugins.reports import markup, page

    for name in (page.HTML, page.MARKDOWN):
        markup.template(name)
    for record in (case.CaseRecord, summary.Summary):
        stored._adapter(record)
    models = BaseModel.__subclasses__()
    for model in models:
        models += model.__subclasses__()
        model.model_rebuild(raise_errors=False)
    for suite in ("llama3", "proxy"):
        load_recipe(ROOT / "suites" / suite)
        load_baselines(ROOT / "baselines" / f"{suite}.yaml")
    # It looks for the file of each module, once; pytest asks it about each test that fails.
    inspect.getmodule(compile("", "", "exec"))


def main() -> None:
    requests = socket.socket(fileno=int(sys.argv[1]))
    # Loads pytest, its plug-ins and Pacemark's, and leaves nothing else.
    pytest.main(["--markers", "-p", "benchmark", *OPTIONS])
    for module in _IMPORTED_LATE:
        importlib.import_module(module)
    _make_ready()
    _read_once()
    gc.freeze()
    sys.argv = ["pytest", *serve(requests)]
    try:
        runpy.run_module("pytest", run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        _leave(ended)


def _leave(ended: SystemExit) -> NoReturn:
    """End as Python does, but without clearing each module, for which the session would copy all memory that it shares."""
    vars(threading)["_shutdown"]()
    vars(atexit)["_run_exitfuncs"]()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(ended.code or 0))
    raise ended


if __name__ == "__main__":
    main()
