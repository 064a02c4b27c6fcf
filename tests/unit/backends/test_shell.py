"""What a login shell prints is kept within bounds, however much that is, and nothing of an answer is lost."""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import subprocess
import time
import tracemalloc
from collections.abc import Iterator
from typing import IO, Any, cast

import pytest

import fixtures.backends.shell
from fixtures.backends.shell import KEPT_FIRST, KEPT_LAST, Shell, _Output
from fixtures.backends.ssh.connection import SshConnection, _Link
from fixtures.backends.ssh.endpoint import Ssh, endpoint
from plugins.base.errors import Unreachable

MARK = b"pacemark-0123456789"


class Channel:
    """A bash of this machine behind what the shell uses of paramiko's channel."""

    def __init__(self) -> None:
        self.closed = False

    def settimeout(self, seconds: float) -> None:
        self._seconds = seconds

    def exec_command(self, command: str) -> None:
        pipe = subprocess.PIPE
        self._bash = subprocess.Popen(["bash", "-s"], stdin=pipe, stdout=pipe, stderr=pipe)

    def exit_status_ready(self) -> bool:
        return self._bash.poll() is not None

    def send(self, data: bytes) -> int:
        assert self._bash.stdin is not None
        return os.write(self._bash.stdin.fileno(), data)

    def recv_stderr_ready(self) -> bool:
        return bool(select.select([cast("IO[bytes]", self._bash.stderr)], [], [], 0)[0])

    def recv(self, size: int) -> bytes:
        return self._read(self._bash.stdout, size)

    def recv_stderr(self, size: int) -> bytes:
        return self._read(self._bash.stderr, size)

    def _read(self, stream: Any, size: int) -> bytes:
        if not select.select([stream], [], [], self._seconds)[0]:
            raise TimeoutError
        return os.read(stream.fileno(), size)

    def close(self) -> None:
        self.closed = True
        self._bash.kill()
        with self._bash:
            # What it started may still hold its pipes: they are closed, not read to their ends.
            pass


@pytest.fixture
def shell() -> Iterator[Shell]:
    channel: Any = Channel()
    yield Shell(channel, 300)
    channel.close()


def test_a_script_of_any_letters_is_sent_as_ascii(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where LANG is zh_CN.GBK, bash takes the last byte of \u4e2d in UTF-8 for one letter with a backslash behind it."""
    sent, channel = bytearray(), cast("Any", shell)._channel
    send = channel.send

    def record(data: bytes) -> int:
        count = send(data)
        sent.extend(data[:count])
        return int(count)

    monkeypatch.setattr(channel, "send", record)
    text = "".join(map(chr, [*range(1, 127), 0xE9, 0x4E2D, 0x1F600])) + "\\\u4e2d"
    answer = shell.run(f"printf %s {shlex.quote(text)}\nprintf '\u4e2d'\n exit 3", 60)
    assert (answer.status, answer.out) == (3, text + "\u4e2d")
    assert sent.isascii()
    assert sent.count(b"\n") == 1


def fed(*pieces: bytes) -> _Output:
    output = _Output(MARK)
    for piece in pieces:
        output.feed(piece)
    return output


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_an_answer_is_whole_however_it_is_cut_on_its_way(size: int) -> None:
    data = b"Welcome!\n" + MARK + b"\none\ntwo" + MARK + b" 17\n"
    output = fed(*(data[at : at + size] for at in range(0, len(data), size)))
    assert (output.status, output.text(), output.left_out) == (17, "one\ntwo", 0)


@pytest.mark.parametrize("size", [1 << 12, 62_497, 1 << 20])
@pytest.mark.parametrize("extra", [-1, 0, 1, 50, 200_000])
def test_the_first_and_the_last_lines_are_kept(
    extra: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, last = KEPT_FIRST // 16, KEPT_LAST // 16
    monkeypatch.setattr(fixtures.backends.shell, "KEPT_FIRST", first)
    monkeypatch.setattr(fixtures.backends.shell, "KEPT_LAST", last)
    lines = [b"%09d" % number for number in range((first + last + extra) // 10)]
    data = MARK + b"\n" + b"\n".join(lines) + b"\n" + MARK + b" 0\n"
    output = fed(*(data[at : at + size] for at in range(0, len(data), size)))
    said = output.text().splitlines()
    assert output.status == 0
    assert said[0] == "000000000"
    assert said[-1] == lines[-1].decode()
    if output.left_out:
        told = next(line for line in said if line.startswith("["))
        assert told == f"[pacemark: {output.left_out} bytes left out here]"
        said.remove(told)
    assert {len(line) for line in said} == {9}
    assert len(said) * 10 + output.left_out == len(lines) * 10
    assert len(said) * 10 >= min(len(lines) * 10, first + last - 20)


def test_no_part_of_a_line_is_kept() -> None:
    """It may be the half of a secret."""
    output = fed(MARK + b"\n", *[b"SECRET" * 10_000] * 100, b"\rdone\n" + MARK + b" 0\n")
    assert output.text() == f"[pacemark: {output.left_out} bytes left out here]\ndone\n"


def test_however_much_is_printed_it_takes_no_more_memory_and_time_in_proportion(shell: Shell) -> None:
    """In the time of this bound, a search of all that came before for each piece would come to a tenth of it."""
    tracemalloc.start()
    began = time.process_time()
    answer = shell.run(
        "echo first; yes warning | head -c 40000000; yes error | head -c 100000 >&2; echo last", 300
    )
    assert time.process_time() - began < 20
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 6 * (KEPT_FIRST + KEPT_LAST)
    assert (answer.out.splitlines()[0], answer.out.splitlines()[-1]) == ("first", "last")
    told = f"[pacemark: {answer.left_out} bytes left out here]\n"
    assert len(answer.out) + len(answer.err) + answer.left_out == 40_100_011 + len(told)
    assert shell.run("echo more", 300).out == "more\n"


def test_an_answer_that_is_too_long_is_none(monkeypatch: pytest.MonkeyPatch, shell: Shell) -> None:
    """What is missing of squeue's list would count as a job that is gone."""
    ssh = Ssh.model_validate({"host": "lab", "user": "me", "config": "/nonexistent"})
    connection = SshConnection(ssh)
    link = _Link([], shells=[shell])
    # As connecting does.
    monkeypatch.setattr(connection, "_where", str(endpoint(ssh, None)))
    monkeypatch.setattr(connection, "_lease", lambda: contextlib.nullcontext(link))
    script = "yes | head -c 9000000"
    with pytest.raises(
        Unreachable, match=r"me@lab:22: the answer is too long to be one, by \d+ bytes: 'y\\ny\\n"
    ):
        connection.run(script)
    assert connection.run(script, cut=True).left_out > 5_000_000


def test_a_trace_of_commands_hides_no_answer() -> None:
    """What bash 5.2 writes to standard error under `set -x`."""
    trace = b"+ echo mark\n+ echo mark\nmark\n+ eval 'ls /x'\n++ ls /x\nno /x\n+ echo 'mark 2'\n+ echo 'mark 0'\nmark 0\n"
    traced = trace.replace(b"mark", MARK)
    whole = fed(traced)
    assert "no /x" in whole.text()
    assert whole.status == 0
    assert all(fed(traced[:size], b"").status is None for size in range(len(traced)))
    assert fed(*(traced[at : at + 1] for at in range(len(traced)))).status == 0
