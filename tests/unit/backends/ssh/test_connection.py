"""What the connection makes of a login node that misbehaves in ways that no real sshd can be brought to at will."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import paramiko
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from paramiko.common import AUTH_FAILED
from paramiko.common import AUTH_PARTIALLY_SUCCESSFUL
from paramiko.common import AUTH_SUCCESSFUL
from paramiko.sftp import SFTP_NO_SUCH_FILE

from fixtures.backends.ssh.connection import SshConnection
from plugins.errors import Denied
from plugins.errors import Unreachable
from tests.unit.sshd import Server
from tests.unit.sshd import serving
from tests.unit.sshd import write_key


class NeverStarts(Server):
    """Opens a session, but answers no request to start something in it."""

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        return self.over.wait(60)

    def check_channel_subsystem_request(self, channel: paramiko.Channel, name: str) -> bool:
        return self.over.wait(60)


def _run(connection: SshConnection) -> object:
    return connection.run("true")


def _size(connection: SshConnection) -> object:
    return connection.size("/some/log")


@pytest.mark.parametrize("ask", [_run, _size])
@pytest.mark.parametrize("server", [Server, NeverStarts], ids=["says nothing", "never starts"])
def test_a_shell_or_sftp_that_hangs_as_it_starts_is_given_up(
    server: type[Server], ask: Callable[[SshConnection], object], tmp_path: Path
) -> None:
    """As behind a home directory on a file system that hangs: sshd itself is well."""
    with serving(tmp_path, server) as sshd:
        connection = sshd.connect()
        said: list[BaseException] = []

        def wait() -> None:
            try:
                ask(connection)
            except Unreachable as error:
                said.append(error)

        # A wait without a bound shall end the test, not hang it.
        waiting = threading.Thread(target=wait, daemon=True)
        waiting.start()
        waiting.join(60)
        assert [str(error).partition(": ")[2] for error in said] == ["no answer within 1 s"]
        connection.close()


class SlowLogin(Server):
    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        self.over.wait(5)
        return AUTH_SUCCESSFUL


class CutLogin(Server):
    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        self.sock.close()
        return AUTH_SUCCESSFUL


class Refusing(Server):
    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return AUTH_FAILED


class WantsMore(Server):
    def get_allowed_auths(self, username: str) -> str:
        return "keyboard-interactive"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return AUTH_PARTIALLY_SUCCESSFUL


class NoFile(paramiko.SFTPServerInterface):
    def lstat(self, path: str) -> int:
        return SFTP_NO_SUCH_FILE


class Files(Server):
    """Has SFTP, and no file: enough to see that the login went well."""

    def check_channel_subsystem_request(self, channel: paramiko.Channel, name: str) -> bool:
        paramiko.SFTPServer(channel, name, self, NoFile).start()
        return True


NAMES = [b"log-ours_17_0.out", b"caf\xe9.out", "größe".encode(), b"\x1b[2J", b"\xed\xa0\x80"]


class OddNames(paramiko.SFTPServerInterface):
    def list_folder(self, path: str) -> list[paramiko.SFTPAttributes]:
        found = []
        for name in NAMES:
            entry = paramiko.SFTPAttributes()
            # What paramiko's server sends as it is.
            vars(entry).update(filename=name, longname=name)
            found.append(entry)
        return found


class OddFiles(Server):
    def check_channel_subsystem_request(self, channel: paramiko.Channel, name: str) -> bool:
        paramiko.SFTPServer(channel, name, self, OddNames).start()
        return True


class Garbage(Server):
    """Has SFTP that says anything but SFTP. `said` is what it sends behind its version."""

    said = b""

    def check_channel_subsystem_request(self, channel: paramiko.Channel, name: str) -> bool:
        def answer() -> None:
            with contextlib.suppress(OSError, EOFError):
                channel.recv(1 << 16)
                channel.sendall(b"\0\0\0\5\2\0\0\0\3" + self.said)
                self.over.wait(10)

        threading.Thread(target=answer, daemon=True).start()
        return True


def packet(kind: int, number: int, body: bytes) -> bytes:
    return (len(body) + 5).to_bytes(4, "big") + bytes([kind]) + number.to_bytes(4, "big") + body


HANDLE = packet(102, 1, b"\0\0\0\1h")
"""The answer to the first request: a folder was opened."""


KEYS: dict[str, Callable[[], PrivateKeyTypes]] = {
    "ed25519": ed25519.Ed25519PrivateKey.generate,
    "ecdsa": partial(ec.generate_private_key, ec.SECP256R1()),
    "rsa": partial(rsa.generate_private_key, 65537, 2048),
}


@pytest.fixture(autouse=True)
def _no_keys_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize(
    ("server", "said"), [(SlowLogin, "Authentication timeout"), (CutLogin, "cut off during the login")]
)
def test_a_login_that_is_slow_or_cut_off_may_go_well_next_time(
    server: type[Server], said: str, kind: str, tmp_path: Path
) -> None:
    key = write_key(tmp_path / kind, KEYS[kind]())
    with serving(tmp_path, server) as sshd, pytest.raises(Unreachable, match=said) as caught:
        _size(sshd.connect(key=str(key)))
    assert not isinstance(caught.value, Denied)


@pytest.mark.parametrize("kind", KEYS)
def test_a_login_that_is_refused_is_final_whatever_the_type_of_the_key(kind: str, tmp_path: Path) -> None:
    key = write_key(tmp_path / kind, KEYS[kind]())
    with serving(tmp_path, Refusing) as sshd, pytest.raises(Denied, match=r"refused \(keys refused: 1\)"):
        _size(sshd.connect(key=str(key)))


def test_a_login_that_needs_more_than_a_key_is_final(tmp_path: Path) -> None:
    with (
        serving(tmp_path, WantsMore) as sshd,
        pytest.raises(Denied, match="a key is not enough, the login also needs keyboard-interactive"),
    ):
        _size(sshd.connect())


LOCKED = ed25519.Ed25519PrivateKey.generate().private_bytes(
    serialization.Encoding.PEM,
    serialization.PrivateFormat.OpenSSH,
    serialization.BestAvailableEncryption(b"secret"),
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be used: there is no such file"),
        (b"no key", "is no private key in the form of OpenSSH or PEM"),
        (b"PuTTY-User-Key-File-3: ssh-ed25519\n", "is no private key in the form of OpenSSH or PEM"),
        (b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI me@here\n", "is a public key: name the file of the private one"),
        (b"sk-ssh-ed25519@openssh.com AAAA me@here\n", "is a public key: name the file of the private one"),
        (b"---- BEGIN SSH2 PUBLIC KEY ----\nAAAA\n", "is a public key: name the file of the private one"),
        (LOCKED, "has a passphrase, which nobody is asked for: add it to the agent with `ssh-add "),
    ],
)  # fmt: skip
def test_a_key_that_the_site_names_must_be_of_use(tmp_path: Path, text: bytes | None, said: str) -> None:
    path = tmp_path / "own key"
    if text is not None:
        path.write_bytes(text)
    with (
        serving(tmp_path) as sshd,
        pytest.raises(Denied, match=rf"no key to try; {re.escape(f'{path} {said}')}"),
    ):
        _size(sshd.connect(key=str(path)))


@pytest.mark.parametrize(
    ("files", "file"),
    [("A B", "A"), ("/dev/null", "~/.ssh/known_hosts"), ("none", "~/.ssh/known_hosts"), ("/dev/null B", "B")],
)
def test_an_unknown_host_key_is_to_be_added_to_the_users_own_first_file(
    tmp_path: Path, files: str, file: str
) -> None:
    config = tmp_path / "config"
    config.write_text(
        f"Host *\n  UserKnownHostsFile {files.replace('A', f'{tmp_path}/A').replace('B', f'{tmp_path}/B')}\n"
    )
    with serving(tmp_path) as sshd, pytest.raises(Denied) as caught:
        _size(sshd.connect(known_hosts=None, config=str(config)))
    place = file.replace("~", str(tmp_path)) if "~" in file else f"{tmp_path}/{file}"
    scan = f"mend: ssh-keyscan -p {sshd.port} 127.0.0.1 >> {place}"
    assert scan in str(caught.value)
    assert ("give `known_hosts:" in str(caught.value)) == ("~" in file)


def test_a_key_of_the_configuration_need_not_exist(tmp_path: Path) -> None:
    with serving(tmp_path, Files) as sshd:
        config = tmp_path / "config"
        config.write_text(f"Host *\n  IdentityFile {tmp_path}/none\n  IdentityFile {sshd.key}\n")
        assert _size(sshd.connect(key=None, config=str(config))) is None


def test_a_line_of_known_hosts_that_is_none_is_passed_over(tmp_path: Path) -> None:
    with serving(tmp_path, Files) as sshd:
        own = sshd.known_hosts.read_text()
        cut = "other ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI\nanother ssh-rsa AAAAB\nother\n# a remark\n\n"
        sshd.known_hosts.write_text(cut + own + cut)
        assert _size(sshd.connect()) is None


@pytest.fixture
def no_openssh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fixtures.backends.ssh.endpoint.shutil.which", lambda name: None)


MISTAKES = [
    (
        {"port": None},
        "Host *\n  Port abc\n",
        "config line 2: Bad (?:port|number) 'abc'",
        "Port abc of host 127.0.0.1",
    ),
    (
        {},
        "Host *\n  ProxyJump a:b:c\n",
        'config line 2: Invalid ProxyJump "a:b:c"',
        r"'a:b:c' is not \[user@\]host",
    ),
    ({}, "nonsense\n", "config: line 1: Bad configuration option: nonsense|config line 1", "config: "),
]


@pytest.mark.parametrize(("given", "config", "said"), [mistake[:3] for mistake in MISTAKES])
def test_a_mistake_in_the_configuration_is_the_users_to_mend(
    given: dict[str, object], config: str, said: str, tmp_path: Path
) -> None:
    refused(given, config, said, tmp_path)


@pytest.mark.usefixtures("no_openssh")
@pytest.mark.parametrize(("given", "config", "said"), [(*mistake[:2], mistake[3]) for mistake in MISTAKES])
def test_a_mistake_in_the_configuration_is_told_without_openssh_too(
    given: dict[str, object], config: str, said: str, tmp_path: Path
) -> None:
    refused(given, config, said, tmp_path)


def test_a_host_that_is_no_name_is_the_users_to_mend(tmp_path: Path) -> None:
    refused({"host": "login..cluster"}, "", r"login\.\.cluster", tmp_path)


def refused(given: dict[str, object], config: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(config)
    with serving(tmp_path) as sshd, pytest.raises(Denied, match=said):
        _size(sshd.connect(config=str(path), **given))


def test_what_the_configuration_includes_holds(tmp_path: Path) -> None:
    """paramiko does not read `Include` (paramiko/paramiko#1044): without OpenSSH the host would not be found."""
    with serving(tmp_path, Files) as sshd:
        (tmp_path / "cluster.conf").write_text(
            f"Host login\n  HostName 127.0.0.1\n  Port {sshd.port}\n  IdentityFile {sshd.key}\n"
        )
        config = tmp_path / "config"
        config.write_text(f"Include {tmp_path}/*.conf\n")
        assert _size(sshd.connect(host="login", port=None, key=None, config=str(config))) is None


def test_a_mistake_that_is_made_while_the_connection_is_open_hides_no_failure(tmp_path: Path) -> None:
    """The failure of the connection is told, not the configuration's: a session goes on after the former alone."""
    config = tmp_path / "config"
    config.write_text("")
    with serving(tmp_path, Files) as sshd:
        connection = sshd.connect(config=str(config))
        assert _size(connection) is None
        config.write_text("nonsense\n")
        sshd.close()
        with pytest.raises(Unreachable, match=r"^sftp \S+ somebody@127\.0\.0\.1:\d+: "):
            _size(connection)


def test_a_match_that_does_not_end_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fixtures.backends.ssh.endpoint._SECONDS", 0.2)
    refused({}, 'Match exec "sleep 5"\n  Port 1\n', "`ssh -G 127.0.0.1` does not end", tmp_path)


def test_a_file_of_any_name_hides_no_other(tmp_path: Path) -> None:
    """Whoever may write to the folder of the logs may put a file there whose name is no UTF-8."""
    with serving(tmp_path, OddFiles) as sshd:
        connection = sshd.connect()
        found = connection.names("/logs")
        connection.close()
    assert found == [name.decode(errors="replace") for name in NAMES]


def test_a_folder_of_too_many_files_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection still works, and the server has closed the folder."""
    monkeypatch.setattr("fixtures.backends.ssh.sftp.MOST_NAMES", len(NAMES) - 1)
    with serving(tmp_path, OddFiles) as sshd:
        connection = sshd.connect()
        for _ in range(2):
            with pytest.raises(
                Unreachable,
                match=r"^/logs on somebody@\S+ has more than 4 files: move away those that are not of this job$",
            ):
                connection.names("/logs")
        monkeypatch.setattr("fixtures.backends.ssh.sftp.MOST_NAMES", len(NAMES))
        assert len(connection.names("/logs")) == len(NAMES)
        connection.close()


@pytest.mark.parametrize(
    "said",
    [
        b"\xff" * 64,
        packet(77, 1, b""),
        packet(101, 1, b"\0\0\0\4\0\0\0\3\xff\xfe\xfd"),
        HANDLE + packet(104, 2, b"\xff" * 64),
        HANDLE + packet(104, 2, b"\xff\xff\xff\xff"),
        b"\0\0\0\0" * 8,
    ],
    ids=["no packet", "no answer of SFTP", "no text", "no names", "four billion names", "nothing"],
)
def test_an_sftp_server_that_says_anything_else_is_one_that_does_not_answer(
    said: bytes, tmp_path: Path
) -> None:
    server = type("Says", (Garbage,), {"said": said})
    with serving(tmp_path, server) as sshd:
        connection = sshd.connect()
        with pytest.raises(Unreachable, match=r"^sftp /logs somebody@"):
            connection.names("/logs")
        connection.close()
