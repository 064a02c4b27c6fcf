"""What the connection makes of a login node that misbehaves in ways that no real sshd can be brought to at will."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from subprocess import PIPE
from typing import Any

import paramiko
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from paramiko import common

from fixtures.backends.base import LogCheck
from fixtures.backends.read_ranges import ReadRanges
from fixtures.backends.shell import Answer
from fixtures.backends.ssh import files
from fixtures.backends.ssh.connection import SshConnection
from fixtures.backends.ssh.log_tail import LARGE, RemoteLog, check
from plugins.base.errors import Denied, Unreachable
from tests.unit import examples
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
        with pytest.raises(Unreachable, match="no answer within 3 s"):
            sshd.connect(port=listening.getsockname()[1], connect_seconds=3).run("true")
        greeted[0].close()


# What a profile sets for its own commands changes no script.


def test_a_profile_may_ask_a_question_and_set_variables(connect: Connect) -> None:
    question = 'read -r -p "Change your password now? " answer\nasked="<$answer>"'
    connection = connect(profile=f"{question}\ntwice() {{ echo $1 $1; }}")
    for _ in range(2):
        assert connection.run("echo $asked; twice $((1 + 1)); cat").out == "<>\n2 2\n"


def test_a_profile_that_sets_ifs_changes_no_script(connect: Connect, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"step 1\n")
    connection = connect(profile="IFS=:\nset -u")
    assert connection.run("words='1 2'; printf '%s,' $words").out == "1,2,"
    assert files.read(connection, str(tmp_path / "log"), 0, 100) == b"step 1\n"


@pytest.mark.parametrize(
    "line",
    [
        "set -euo pipefail",
        "set -E; trap 'exit 7' ERR",
        "set -Cf",
        "set -v",
        "set -x",
        # As for the title of a terminal.
        "set -T; trap 'echo \"$BASH_COMMAND\"' DEBUG",
        "exec 2>&1",
        "exec > >(tee -a ~/login.log) 2>&1",
        "exec 3>/dev/null",
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


@pytest.mark.parametrize("line", ["exit 3", "exec bash", "exec sh"])
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
    assert connection.run("sleep 2; echo removed", seconds=60, to_end=True).out == "removed\n"
    with pytest.raises(Unreachable, match="and the session ends"):
        connection.run("sleep 20", seconds=60)


# Logins and keys

KEYS: dict[str, Callable[[], PrivateKeyTypes]] = {
    "ed25519": ed25519.Ed25519PrivateKey.generate,
    "ecdsa": partial(ec.generate_private_key, ec.SECP256R1()),
    "rsa": partial(rsa.generate_private_key, 65537, 2048),
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
        (b"no key", "is no private key in the form of OpenSSH or PEM"),
        (b"PuTTY-User-Key-File-3: ssh-ed25519\n", "is no private key in the form of OpenSSH or PEM"),
        (b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI me@here\n", "is a public key: name the file of the private one"),
        (b"sk-ssh-ed25519@openssh.com AAAA me@here\n", "is a public key: name the file of the private one"),
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
    [("A B", "A"), ("/dev/null", "~/.ssh/known_hosts"), ("none", "~/.ssh/known_hosts"), ("/dev/null B", "B")],
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


def test_a_host_that_is_no_name_is_the_users_to_mend(connect: Connect, tmp_path: Path) -> None:
    refused(connect, tmp_path, "", r"login\.\.cluster", host="login..cluster")


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


def test_what_only_paramikos_own_match_exec_needs_is_not_imported() -> None:
    """`invoke` and what it imports: a third of the memory that paramiko takes, and half of its time."""
    program = """
import contextlib, sys
from fixtures.backends.ssh.connection import SshConnection
from fixtures.backends.ssh.endpoint import Ssh
from plugins.base.errors import Unreachable
with contextlib.suppress(Unreachable):
    SshConnection(Ssh(host='127.0.0.1', port=1, config='/dev/null')).run('true')
assert {'paramiko', 'invoke'} & sys.modules.keys() == {'paramiko'}
import invoke
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=examples.ROOT)
