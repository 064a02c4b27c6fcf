"""An SSH server that misbehaves as a test tells it, and the way to it. As a plugin, sessions soon give up a cluster that does not answer."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import paramiko
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from paramiko.common import AUTH_SUCCESSFUL, OPEN_SUCCEEDED

from fixtures.backends.kubernetes import preflight
from fixtures.backends.ssh.connection import SshConnection
from fixtures.backends.ssh.endpoint import Ssh
from fixtures.fleet import jobs, submit


def pytest_configure() -> None:
    jobs.FIRST_CONTACT_SECONDS = submit._CHECK_AGAIN_SECONDS = preflight.STARTING_SECONDS = 0.1


class Server(paramiko.ServerInterface):
    """Lets everybody in and opens every channel, and then says nothing. Tests override what they are about.

    `sock` is the connection, `over` is set at the test's end.
    """

    sock: socket.socket
    over: threading.Event

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return AUTH_SUCCESSFUL

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        return True


def write_key(path: Path, key: PrivateKeyTypes) -> Path:
    """Write a private key as ssh-keygen does."""
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        )
    )
    return path


class Sshd:
    """A server on a port of this machine, with one host key; `folder` has known_hosts and an ed25519 key of a user."""

    def __init__(self, folder: Path, server: type[Server]) -> None:
        self._folder = folder
        self._server = server
        self._over = threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._transports: list[paramiko.Transport] = []
        self.port: int = self._listening.getsockname()[1]
        self._host_key = paramiko.ECDSAKey.generate()
        self.key = write_key(folder / "key", ed25519.Ed25519PrivateKey.generate())
        self.known_hosts = folder / "known_hosts"
        self.known_hosts.write_text(
            f"[127.0.0.1]:{self.port} {self._host_key.get_name()} {self._host_key.get_base64()}\n"
        )
        threading.Thread(target=self._serve, daemon=True).start()

    def ssh(self, **given: object) -> Ssh:
        known: dict[str, object] = {
            "host": "127.0.0.1", "port": self.port, "user": "somebody", "key": str(self.key),
            "known_hosts": str(self.known_hosts), "config": "/nonexistent", "connect_seconds": 60, "command_seconds": 60,
        }  # fmt: skip
        return Ssh.model_validate({**known, **given})

    def connect(self, **given: object) -> SshConnection:
        return SshConnection(self.ssh(**given))

    def close(self) -> None:
        self._over.set()
        self._listening.close()
        for transport in self._transports:
            transport.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listening.accept()
                transport = paramiko.Transport(sock)
                transport.add_server_key(self._host_key)
                self._transports.append(transport)
                server = self._server()
                server.sock, server.over = sock, self._over
                with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
                    transport.start_server(server=server)


@contextlib.contextmanager
def serving(folder: Path, server: type[Server] = Server) -> Iterator[Sshd]:
    sshd = Sshd(folder, server)
    try:
        yield sshd
    finally:
        sshd.close()
