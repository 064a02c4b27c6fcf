"""What the connection makes of a login node that misbehaves in ways that no real sshd can be brought to at will."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import paramiko
import pytest

from fixtures.ssh import SshConnection
from plugins.errors import Unreachable
from tests.unit.sshd import Server
from tests.unit.sshd import serving


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
        waiting.join(10)
        assert [str(error).partition(": ")[2] for error in said] == ["no answer within 1 s"]
        connection.close()
