"""`make test` runs two pytest at once, as one command: one that fails or is interrupted is never overlooked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.unit.examples import ROOT

# Says which signals it ignores, waits until it is interrupted, and ends slowly, as a test that has a lab to take down.
STUB = """
import pathlib, signal, sys, time
name, mark = sys.argv[1], pathlib.Path(sys.argv[2])
print(name, "ignores SIGINT" if signal.getsignal(signal.SIGINT) == signal.SIG_IGN else "can be interrupted", flush=True)
(mark / name).touch()
try:
    time.sleep(60)
except KeyboardInterrupt:
    time.sleep(0.3)
    print(name, "took down its lab", flush=True)
    sys.exit(2)
"""


def _beside(quiet: str, loud: str, environment: dict[str, str] | None = None) -> subprocess.Popen[str]:
    python = [sys.executable, "-c"]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.beside", *python, *quiet.split("\0"), "--", *python, *loud.split("\0")],
        cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def _stubs(folder: Path, environment: dict[str, str] | None = None) -> subprocess.Popen[str]:
    both = _beside(f"{STUB}\0quiet\0{folder}", f"{STUB}\0loud\0{folder}", environment)
    deadline = time.monotonic() + 20
    while not ((folder / "quiet").exists() and (folder / "loud").exists()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return both


@pytest.mark.parametrize("ignored", [False, True])
def test_ctrl_c_ends_both_and_waits_for_them(ignored: bool, tmp_path: Path) -> None:
    """Also where it was started with SIGINT ignored, as by a script in its background."""
    files = {**os.environ, "TMPDIR": str(tmp_path / "files")}
    (tmp_path / "files").mkdir()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if ignored else None
    try:
        both = _stubs(tmp_path, files)
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)
    # As a terminal does: to the whole group.
    os.killpg(both.pid, signal.SIGINT)
    said, _ = both.communicate(timeout=20)
    assert both.returncode == 128 + signal.SIGINT
    assert said.splitlines() == [
        f"{name} {what}" for name in ("loud", "quiet") for what in ("can be interrupted", "took down its lab")
    ]
    assert list((tmp_path / "files").iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_for_it_alone_ends_both(number: signal.Signals, tmp_path: Path) -> None:
    both = _stubs(tmp_path)
    both.send_signal(number)
    both.communicate(timeout=20)
    assert both.returncode == 128 + number
    with pytest.raises(ProcessLookupError):
        os.killpg(both.pid, 0)


@pytest.mark.parametrize(
    ("quiet", "loud", "status"),
    [
        ("print('quiet')", "print('loud')", 0),
        ("print('quiet'); exit(1)", "print('loud')", 1),
        ("print('quiet')", "print('loud'); exit(5)", 1),
        ("import os; print('quiet', flush=True); os.kill(os.getpid(), 9)", "print('loud')", 1),
    ],
)
def test_both_must_succeed(quiet: str, loud: str, status: int) -> None:
    both = _beside(quiet, loud)
    assert both.communicate(timeout=20)[0].split() == ["loud", "quiet"]
    assert both.returncode == status


def test_they_run_at_once_and_all_that_the_quiet_one_says_is_told(tmp_path: Path) -> None:
    meet = "import pathlib,time; pathlib.Path({!r}).touch()\nwhile not pathlib.Path({!r}).exists(): time.sleep(.01)\n"
    one, other = str(tmp_path / "one"), str(tmp_path / "other")
    both = _beside(
        meet.format(one, other) + "import sys; print('x' * 300_000); print('last', file=sys.stderr)",
        meet.format(other, one),
    )
    said, _ = both.communicate(timeout=20)
    assert (both.returncode, said) == (0, "x" * 300_000 + "\nlast\n")
