"""What the connection makes of a login node that misbehaves in ways that no real sshd can be brought to at will; and its shell."""

from __future__ import annotations

import contextlib
import os
import re
import select
import shlex
import socket
import subprocess
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from subprocess import PIPE
from typing import IO, Any, cast

import paramiko
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from paramiko import common

import fixtures.backends.shell
from fixtures.backends.base import LogCheck
from fixtures.backends.read_ranges import ReadRanges
from fixtures.backends.shell import KEPT_FIRST, KEPT_LAST, Answer, Shell, _Output
from fixtures.backends.ssh import files
from fixtures.backends.ssh.connection import SshConnection, _Link
from fixtures.backends.ssh.endpoint import Ssh, endpoint
from fixtures.backends.ssh.log_tail import LARGE, RemoteLog, check
from plugins.base.errors import Denied, Unreachable
from tests.unit.sshd import Server, serving, write_key


class NeverStarts(Server):
    """Opens a session, but answers no request to start something in it."""

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        return self.over.wait(60)


class NoSession(Server):
    """As with `MaxSessions 0`, or where another program has taken them all."""

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return common.OPEN_FAILED_CONNECT_FAILED


class Refusals(Server):
    """Closes the channel before it says whether it starts a shell."""

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        channel.close()
        return True


class SlowLogin(Server):
    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        self.over.wait(60)
        return common.AUTH_SUCCESSFUL


class CutLogin(Server):
    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        self.sock.close()
        return common.AUTH_SUCCESSFUL


class Refusing(Server):
    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return common.AUTH_FAILED


class WantsMore(Server):
    def get_allowed_auths(self, username: str) -> str:
        return "keyboard-interactive"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return common.AUTH_PARTIALLY_SUCCESSFUL


class Shells(Server):
    """Runs the shell that it is asked for, on this machine."""

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        shell = subprocess.Popen(shlex.split(command.decode()), stdin=PIPE, stdout=PIPE, stderr=PIPE)
        assert shell.stdin is not None
        assert shell.stdout is not None
        assert shell.stderr is not None
        for take, give in (
            (partial(channel.recv, 1 << 16), partial(os.write, shell.stdin.fileno())),
            (partial(os.read, shell.stdout.fileno(), 1 << 16), channel.sendall),
            (partial(os.read, shell.stderr.fileno(), 1 << 16), channel.sendall_stderr),
        ):
            threading.Thread(target=self.pass_on, args=(take, give), daemon=True).start()
        threading.Thread(target=self.end, args=(shell, channel), daemon=True).start()
        return True

    def pass_on(self, take: Callable[[], bytes], give: Callable[[bytes], object]) -> None:
        with contextlib.suppress(OSError):
            while data := take():
                give(data)

    def end(self, shell: subprocess.Popen[bytes], channel: paramiko.Channel) -> None:
        while shell.poll() is None and not self.over.wait(0.05):
            pass
        with shell:
            shell.kill()
        # The client may close the whole connection first.
        with contextlib.suppress(EOFError):
            channel.close()


Connect = Callable[..., SshConnection]


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Connect]:
    """Makes connections to a server of this kind, whose user has this profile, and closes them at the test's end."""
    with contextlib.ExitStack() as stack:

        def make(server: type[Server] = Shells, profile: str = "", **keys: object) -> SshConnection:
            (tmp_path / ".bash_profile").write_text(f"{profile}\n")
            sshd = stack.enter_context(serving(tmp_path, server))
            connection = sshd.connect(**{"command_seconds": 10, **keys})
            stack.callback(connection.close)
            return connection

        yield make


@pytest.fixture(autouse=True)
def _no_keys_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


@pytest.mark.parametrize("server", [Server, NeverStarts], ids=["says nothing", "never starts"])
def test_a_shell_that_hangs_as_it_starts_is_given_up(server: type[Server], connect: Connect) -> None:
    """As behind a home directory on a file system that hangs: sshd itself is well."""
    connection = connect(server, command_seconds=0.1)
    errors: list[str] = []

    def wait() -> None:
        try:
            connection.run("true")
        except Unreachable as error:
            errors.append(str(error))

    # A wait without a bound shall end the test, not hang it.
    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    waiting.join(60)
    assert [error.partition(": ")[2].partition(":")[0] for error in errors] == ["no answer within 0.1 s"]


def test_a_server_that_allows_no_session_was_sent_nothing(connect: Connect) -> None:
    with pytest.raises(Unreachable, match="the server allows no further session") as caught:
        connect(NoSession).run("true")
    assert not caught.value.sent


def test_a_key_exchange_that_hangs_is_given_up_after_the_seconds_of_the_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """paramiko has a bound of its own for it, here 0.1 s: it counts no more."""

    class Impatient(paramiko.Transport):
        def __init__(self, *given: Any, **options: Any) -> None:
            super().__init__(*given, **options)
            self.handshake_timeout = 0.1

    with serving(tmp_path) as sshd, socket.create_server(("127.0.0.1", 0)) as listening:
        greeted: list[socket.socket] = []

        def greet() -> None:
            greeted.append(listening.accept()[0])
            greeted[0].sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

        threading.Thread(target=greet, daemon=True).start()
        monkeypatch.setattr(paramiko, "Transport", Impatient)
        with pytest.raises(Unreachable, match=r"no answer within 0\.3 s"):
            sshd.connect(port=listening.getsockname()[1], connect_seconds=0.3).run("true")
        greeted[0].close()


# What a profile sets for its own commands changes no script.


def test_a_profile_may_ask_a_question_and_set_variables(connect: Connect) -> None:
    question = 'read -r -p "Change your password now? " answer\nasked="<$answer>"'
    connection = connect(profile=f"{question}\ntwice() {{ echo $1 $1; }}")
    for _ in range(2):
        assert connection.run("echo $asked; twice $((1 + 1)); cat").out == "<>\n2 2\n"


@pytest.mark.parametrize(
    "line",
    [
        "set -euo pipefail; IFS=:",
        "set -E; trap 'exit 7' ERR",
        "set -v",
        # As for the title of a terminal.
        "set -T; trap 'echo \"$BASH_COMMAND\"' DEBUG",
        "exec > >(tee -a ~/login.log) 2>&1",
        'grep() { command grep --color=always "$@"; }',
        "shopt -s expand_aliases; alias grep='grep --color=always' echo='echo -e'",
        "readonly LC_ALL=C TMOUT=900",
        "export BASH_ENV=~/.bashrc; echo 'echo Welcome' >~/.bashrc",
    ],
)
def test_what_a_profile_sets_for_its_own_commands_changes_no_script(
    connect: Connect, tmp_path: Path, line: str
) -> None:
    """`Invalid job id` is a status of squeue: with `set -e` it ended the shell, and the cluster could not be asked."""
    log, known = tmp_path / "log", ReadRanges()
    log.write_bytes(b"step 1\n" * (LARGE // 4))
    connection = connect(profile=line)
    script = f"cd {tmp_path}; echo before; false; : >a; : >a; echo after ?; exit 3"
    assert connection.run(script) == Answer(3, "before\nafter a\n", "")
    assert files.read(connection, str(tmp_path / "none"), 0, 100) is None
    data = RemoteLog(connection, str(log), known).fetch([b"step"], lambda piece: piece)
    assert (data[:7], b"\x1b" in data) == (b"step 1\n", False)
    assert check(connection, str(log), known) == LogCheck()


@pytest.mark.parametrize("option", ["v", "x"])
def test_a_profile_that_traces_into_a_file_gets_no_secret_there(
    connect: Connect, tmp_path: Path, option: str
) -> None:
    trace = tmp_path / "trace"
    connection = connect(profile=f"exec 7>>{trace} 2>&7; BASH_XTRACEFD=7; set -{option}")
    script = "export HF_TOKEN='hf_it'\\''s a secret'\nls /none; exit 3"
    assert connection.run(script).status == 3
    assert "secret" not in connection.run(script).err
    connection.close()
    assert "secret" not in trace.read_text()


def test_a_profile_that_takes_longer_than_a_command_may_is_told(connect: Connect) -> None:
    """Also if the launcher that is to run may take longer."""
    connection = connect(profile="sleep 60", command_seconds=0.1)
    words = r"no answer within 0.1 s: the profile of its login shell must end within 0.1 s"
    with pytest.raises(Unreachable, match=words):
        connection.run("true", seconds=600)


ENDED = "the login shell ended: the profile of its login shell must end"


@pytest.mark.parametrize("line", ["exit 3", "exec bash"])
def test_a_profile_that_ends_the_shell_is_told(connect: Connect, line: str) -> None:
    with pytest.raises(Unreachable, match=ENDED) as caught:
        connect(profile=line).run("true")
    assert "If it has `exec bash` or `exit`, put `[[ $- == *i* ]] &&` before that" in str(caught.value)
    assert connect(profile=f"[[ $- == *i* ]] && {line}").run("echo there").out == "there\n"


def test_a_shell_that_ended_before_its_start_was_confirmed_is_told(connect: Connect) -> None:
    with pytest.raises(Unreachable, match=ENDED):
        connect(Refusals).run("true")


@pytest.mark.parametrize(("lost", "reason"), [(False, "the login shell ended"), (True, "Socket is closed")])
def test_a_shell_that_ended_before_it_took_a_script_is_told(
    connect: Connect, lost: bool, reason: str
) -> None:
    connection = connect()
    connection.run("true")
    assert connection._link is not None
    shell = connection._link.shells[0]
    shell._channel.close()
    if lost:
        connection._link.transport.close()
    with pytest.raises(OSError, match=f"^{reason}$"):
        shell.run("true", 1)


def test_a_script_that_must_come_to_its_end_does_so_although_the_session_ends(connect: Connect) -> None:
    """As the removal of a checkpoint, which may take minutes."""
    connection = connect()
    connection.run("true")
    connection.until = time.monotonic()
    assert connection.run("sleep 0.3; echo removed", seconds=60, to_end=True).out == "removed\n"
    with pytest.raises(Unreachable, match="and the session ends"):
        connection.run("sleep 20", seconds=60)


# Logins and keys

KEYS: dict[str, Callable[[], PrivateKeyTypes]] = {
    "ed25519": ed25519.Ed25519PrivateKey.generate,
    "rsa": partial(rsa.generate_private_key, 65537, 1024),
}


@pytest.mark.parametrize(
    ("server", "reason", "kind"),
    [
        (SlowLogin, "Authentication timeout", "ed25519"),
        *((CutLogin, "cut off during the login", kind) for kind in KEYS),
    ],
)
def test_a_login_that_is_slow_or_cut_off_may_go_well_next_time(
    server: type[Server], reason: str, kind: str, connect: Connect, tmp_path: Path
) -> None:
    key = write_key(tmp_path / kind, KEYS[kind]())
    # The key exchange has to end within this as well.
    seconds = 3 if server is SlowLogin else 60
    with pytest.raises(Unreachable, match=reason) as caught:
        connect(server, key=str(key), connect_seconds=seconds).run("true")
    assert not isinstance(caught.value, Denied)


@pytest.mark.parametrize("kind", KEYS)
def test_a_login_that_is_refused_is_final_for_any_key(kind: str, connect: Connect, tmp_path: Path) -> None:
    key = write_key(tmp_path / kind, KEYS[kind]())
    with pytest.raises(Denied, match=r"refused \(keys refused: 1\)"):
        connect(Refusing, key=str(key)).run("true")


def test_a_login_that_needs_more_than_a_key_is_final(connect: Connect) -> None:
    words = "a key is not enough, the login also needs keyboard-interactive"
    with pytest.raises(Denied, match=words):
        connect(WantsMore).run("true")


def locked() -> bytes:
    """A key with a passphrase, which takes a third of a second to make."""
    return ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.BestAvailableEncryption(b"secret"),
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "cannot be used: there is no such file"),
        (b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI me@here\n", "is a public key: name the file of the private one"),
        (b"---- BEGIN SSH2 PUBLIC KEY ----\nAAAA\n", "is a public key: name the file of the private one"),
        (locked, "has a passphrase, which nobody is asked for: add it to the agent with `ssh-add "),
    ],
)  # fmt: skip
def test_a_key_that_the_site_names_must_be_of_use(
    connect: Connect, tmp_path: Path, text: bytes | Callable[[], bytes] | None, reason: str
) -> None:
    path = tmp_path / "own key"
    if text is not None:
        path.write_bytes(text() if callable(text) else text)
    with pytest.raises(Denied, match=rf"no key to try; {re.escape(f'{path} {reason}')}"):
        connect(Server, key=str(path)).run("true")


# ~/.ssh/config and known_hosts


@pytest.mark.parametrize(
    ("files", "file"),
    [("A B", "A"), ("/dev/null", "~/.ssh/known_hosts")],
)
def test_an_unknown_host_key_is_to_be_added_to_the_first_file(tmp_path: Path, files: str, file: str) -> None:
    config = tmp_path / "config"
    config.write_text(
        f"Host *\n  UserKnownHostsFile {files.replace('A', f'{tmp_path}/A').replace('B', f'{tmp_path}/B')}\n"
    )
    with serving(tmp_path) as sshd, pytest.raises(Denied) as caught:
        sshd.connect(known_hosts=None, config=str(config)).run("true")
    place = file.replace("~", str(tmp_path)) if "~" in file else f"{tmp_path}/{file}"
    scan = f"mend: ssh-keyscan -p {sshd.port} 127.0.0.1 >> {place}"
    assert scan in str(caught.value)
    assert ("give `known_hosts:" in str(caught.value)) == ("~" in file)


def test_a_key_of_the_configuration_need_not_exist(tmp_path: Path) -> None:
    with serving(tmp_path, Shells) as sshd:
        config = tmp_path / "config"
        config.write_text(f"Host *\n  IdentityFile {tmp_path}/none\n  IdentityFile {sshd.key}\n")
        assert sshd.connect(key=None, config=str(config)).run("true").status == 0


def test_a_line_of_known_hosts_that_is_none_is_passed_over(tmp_path: Path) -> None:
    with serving(tmp_path, Shells) as sshd:
        own = sshd.known_hosts.read_text()
        cut = "other ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI\nanother ssh-rsa AAAAB\nother\n# a remark\n\n"
        sshd.known_hosts.write_text(cut + own + cut)
        assert sshd.connect().run("true").status == 0


BAD_PORT, BAD_JUMP = "Host *\n  Port abc\n", "Host *\n  ProxyJump a:b:c\n"


def refused(connect: Connect, folder: Path, config: str, reason: str, **keys: object) -> None:
    """Require that this configuration is the user's to mend."""
    (folder / "config").write_text(config)
    with pytest.raises(Denied, match=reason):
        connect(Server, config=str(folder / "config"), **keys).run("true")


@pytest.mark.parametrize(
    ("config", "keys", "reason", "without"),
    [
        (BAD_PORT, {"port": None}, "line 2: Bad (?:port|number) 'abc'", "Port abc of host 127.0.0.1"),
        (BAD_JUMP, {}, 'line 2: Invalid ProxyJump "a:b:c"', r"'a:b:c' is not \[user@\]host"),
        ("nonsense\n", {}, "line 1: Bad configuration option: nonsense|config line 1", "config: "),
    ],
)
@pytest.mark.parametrize("openssh", [True, False])
def test_a_mistake_in_the_configuration_is_the_users_to_mend(
    config: str,
    keys: dict[str, object],
    reason: str,
    without: str,
    openssh: bool,
    connect: Connect,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not openssh:
        monkeypatch.setattr("fixtures.backends.ssh.endpoint.shutil.which", lambda name: None)
    refused(connect, tmp_path, config, reason if openssh else without, **keys)


def test_a_match_that_does_not_end_is_told(
    connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fixtures.backends.ssh.endpoint._SECONDS", 0.2)
    match = 'Match exec "sleep 5"\n  Port 1\n'
    refused(connect, tmp_path, match, "`ssh -G 127.0.0.1` does not end")


def test_what_the_configuration_includes_holds(tmp_path: Path) -> None:
    """paramiko does not read `Include` (paramiko/paramiko#1044): without OpenSSH the host would not be found."""
    with serving(tmp_path, Shells) as sshd:
        (tmp_path / "cluster.conf").write_text(
            f"Host login\n  HostName 127.0.0.1\n  Port {sshd.port}\n  IdentityFile {sshd.key}\n"
        )
        config = tmp_path / "config"
        config.write_text(f"Include {tmp_path}/*.conf\n")
        connection = sshd.connect(host="login", port=None, key=None, config=str(config))
        assert connection.run("true").status == 0


def test_a_mistake_while_the_connection_is_open_hides_no_failure(connect: Connect, tmp_path: Path) -> None:
    """The failure of the connection is told, not the configuration's: a session goes on after the former alone."""
    config = tmp_path / "config"
    config.touch()
    connection = connect(config=str(config))
    assert connection.run("true").status == 0
    config.write_text("nonsense\n")
    with pytest.raises(Unreachable, match=r"^ssh somebody@127\.0\.0\.1:\d+: "):
        connection.run("kill -9 $$")


# What a login shell prints is kept within bounds, and nothing of an answer is lost


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
