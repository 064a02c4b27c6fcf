"""Which signals end a session, what is printed meanwhile, and which ones the tests' own processes ignore."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fixtures.session.choices import CHOICES
from fixtures.session.terminal import Terminal
from fixtures.signals import Signals
from tests.conftest import default_signals
from tests.system.support import finish, signal_group, start, until
from tests.unit import examples, sshd

ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


@contextmanager
def standard_error_in(path: Path) -> Iterator[None]:
    before = os.dup(2)
    with path.open("w") as file:
        os.dup2(file.fileno(), 2)
    yield
    os.dup2(before, 2)
    os.close(before)


@contextmanager
def caught(ignored: signal.Signals) -> Iterator[Signals]:
    """As in a session whose parent ignores this signal."""
    fleet: Any = None
    signals = Signals(fleet)
    before = signal.signal(ignored, signal.SIG_IGN)
    try:
        signals.catch()
        yield signals
        signals.restore()
        assert signal.getsignal(ignored) == signal.SIG_IGN
    finally:
        signals.restore()
        signal.signal(ignored, before)


@pytest.mark.parametrize(
    ("ends", "answer"), [(False, "SIGTERM: cancelling what is left"), (True, "still cancelling jobs")]
)
def test_a_signal_is_answered_on_the_terminal_while_pytest_captures(
    tmp_path: Path, ends: bool, answer: str
) -> None:
    fleet: Any = SimpleNamespace(waits_for="", running=True, ask_to_stop=lambda: None)
    signals, terminal, captured = Signals(fleet), tmp_path / "terminal", tmp_path / "captured"
    with standard_error_in(terminal):
        signals.catch()
        if ends:
            signals.hold()
        with standard_error_in(captured), contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        signals.restore()
    assert (answer in terminal.read_text(), captured.read_text()) == (True, "")


def test_a_session_under_nohup_ignores_sighup() -> None:
    with caught(signal.SIGHUP) as signals:
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) == signals._on_signal
    assert signal.getsignal(signal.SIGTERM) != signals._on_signal


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_the_parent_ignores_ends_a_session_all_the_same(number: signal.Signals) -> None:
    with caught(number) as signals:
        assert signal.getsignal(number) == signals._on_signal


def test_a_child_that_fails_is_heard_if_the_parent_ignores_the_end_of_children() -> None:
    with caught(signal.SIGCHLD):
        assert subprocess.run(["false"], check=False).returncode == 1


def test_ctrl_c_while_python_shuts_down_prints_no_traceback() -> None:
    # What is registered first is called last.
    session = (
        "import atexit, os, signal\n"
        "from fixtures.signals import Signals\n"
        "atexit.register(os.kill, os.getpid(), signal.SIGINT)\n"
        "signals = Signals(None)\n"
        "signals.catch()\n"
        "signals.restore()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", session], cwd=examples.ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


def ignored_by_children() -> list[str]:
    status = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True, check=True).stdout
    ignored = int(re.findall(r"^SigIgn:\s*(\w+)$", status, re.MULTILINE)[0], 16)
    return [number.name for number in ENDING if ignored >> (number - 1) & 1]


def test_what_the_tests_start_ignores_no_signal(request: pytest.FixtureRequest) -> None:
    assert "default_signals" in request.fixturenames
    assert ignored_by_children() == []


def test_tests_that_ignore_signals_start_processes_that_do_not() -> None:
    """As under nohup, or behind `&` in a script."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in ENDING}
    try:
        assert ignored_by_children() == [number.name for number in ENDING]
        with contextmanager(default_signals._get_wrapped_function())():
            assert ignored_by_children() == []
        assert ignored_by_children() == [number.name for number in ENDING]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_pipe_has_each_line_while_the_session_waits(tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    with sshd.serving(tmp_path) as server:
        # It lets everybody in, and then says nothing.
        keys = server.ssh(command_seconds=1).model_dump_json(exclude_none=True)
        site.write_text(
            f"site: lab\nslurm: {{gpu: h100, account: me, partition: batch, stage: /lustre, ssh: {keys}}}\n"
        )
        select = ("suites/llama3", "-k", "70b and fp8 and 512")
        # As users have it: where it is set, Python keeps nothing back.
        usual = {"PYTHONUNBUFFERED": ""}
        process = start(*select, "--site", str(site), results=tmp_path / "results", env=usual)
        until(
            lambda: "slurm: cannot be asked, will go on trying for 20 s: " in process.said(),
            "the line in the pipe",
        )
        assert process.poll() is None
        signal_group(process, signal.SIGINT)
        result = finish(process, tmp_path / "results")
    assert result.status == 2, result.out
    assert "pacemark: SIGINT while waiting for slurm to answer: cancelling what is left\n" in result.out
    assert "it was never submitted" in result.out
    assert "Traceback" not in result.out


@pytest.mark.parametrize("is_full", [False, True])
def test_the_source_of_one_function_is_read_for_an_interrupt(is_full: bool) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt("SIGINT: cancelling what is left")

    with pytest.raises(KeyboardInterrupt) as excinfo:
        interrupt()
    shown = str(excinfo.getrepr(funcargs=True).reprcrash)
    config = SimpleNamespace(option=SimpleNamespace(fulltrace=is_full), stash={CHOICES: None})
    Terminal(cast(pytest.Config, config)).pytest_keyboard_interrupt(excinfo)
    assert [entry.name for entry in excinfo.traceback][-1] == "interrupt"
    assert len(excinfo.traceback) == (2 if is_full else 1)
    assert str(excinfo.getrepr(funcargs=True).reprcrash) == shown
