"""The connection to a login node: many scripts over one shell, several at a time, none in another's way."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.backends.ssh import files
from fixtures.backends.ssh.connection import SshConnection
from fixtures.backends.ssh.endpoint import Ssh
from plugins.base.errors import Unreachable
from tests.lab.scripted import ScriptedLab
from tests.lab.sshd import few_sessions
from tests.system.support import GUARD, until


@pytest.fixture
def ssh(scripted_lab: ScriptedLab) -> Iterator[SshConnection]:
    lab = scripted_lab
    section = Ssh(
        host=lab.host, port=lab.port, user=lab.user, key=str(lab.key), known_hosts=str(lab.known_hosts),
        config="/nonexistent", connect_seconds=GUARD, command_seconds=GUARD,
    )  # fmt: skip
    connection = SshConnection(section)
    yield connection
    connection.close()


def test_one_shell_runs_many_scripts_and_keeps_nothing_of_them(ssh: SshConnection) -> None:
    first = ssh.run("echo $$; export LEFT=over; cd /; set -eu; false; echo never")
    second = ssh.run("echo $$; echo ${LEFT:-nothing}; pwd")
    shell, left, folder = second.out.split()
    assert (first.status, first.out) == (1, f"{shell}\n")
    assert (left, folder == "/") == ("nothing", False)


def test_a_script_cannot_read_the_next_one(ssh: SshConnection) -> None:
    assert ssh.run("cat; echo end").out == "end\n"
    assert ssh.run("echo next").out == "next\n"


def test_scripts_run_at_the_same_time(ssh: SshConnection, tmp_path: Path) -> None:
    """Each of them ends only when all have begun."""
    ssh.run("true")
    said: list[str] = []

    def run(number: int) -> None:
        waits = f"until [ $(ls {tmp_path} | wc -l) = 5 ]; do sleep 0.05; done"
        said.append(ssh.run(f"touch {tmp_path}/{number}; {waits}; echo met", seconds=GUARD).out)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == ["met\n"] * 5


def test_short_scripts_take_turns_in_one_shell(ssh: SshConnection) -> None:
    shells = [ssh.run("echo $$").out]
    assert ssh._link is not None
    assert 0 < ssh._link.patience <= 1
    # As where a login shell takes long to start.
    ssh._link.patience = 3600
    threads = [
        threading.Thread(target=lambda: shells.extend(ssh.run("echo $$").out for _ in range(8)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(shells), len(set(shells))) == (33, 1)


@pytest.mark.parametrize("sessions", [1, 2, 3])
def test_where_sshd_allows_few_sessions_scripts_wait_for_their_turn(
    scripted_lab: ScriptedLab, sessions: int
) -> None:
    """`MaxSessions` of sshd_config: session_new in session.c of OpenSSH refuses a further one, and the connection goes on."""
    lab, answers = scripted_lab, list[str]()
    meet = lab.root / f"meet_{sessions}"
    meet.mkdir()
    # As many as may run at once end only when they have met.
    waits = f"until [ $(ls {meet} | wc -l) -ge {sessions} ]; do sleep 0.05; done"
    script = f"touch {meet}/$BASHPID; {waits}; echo met"
    with few_sessions(lab.root, lab.user, sessions) as to:
        section = Ssh(
            host=to.host, port=to.port, user=to.user, key=str(to.key), known_hosts=str(to.known_hosts),
            config="/nonexistent", connect_seconds=GUARD, command_seconds=GUARD,
        )  # fmt: skip
        ssh = SshConnection(section)
        assert ssh.run("echo first").out == "first\n"
        assert ssh._link is not None
        # A login shell that starts at once: no script waits for another's.
        ssh._link.patience = 0.0
        threads = [threading.Thread(target=lambda: answers.append(ssh.run(script).out)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ssh.close()
    assert answers == ["met\n"] * 6


def test_a_script_that_hangs_is_told_and_cuts_off_no_other(ssh: SshConnection, tmp_path: Path) -> None:
    said: list[str] = []
    begun, over = tmp_path / "begun", tmp_path / "over"
    waits = f"touch {begun}; until [ -e {over} ]; do sleep 0.05; done; echo whole"
    other = threading.Thread(target=lambda: said.append(ssh.run(waits, seconds=GUARD).out))
    other.start()
    until(begun.exists, "the other script has begun")
    with pytest.raises(Unreachable, match=r"no answer within 3 s"):
        ssh.run("sleep 60", seconds=3)
    assert ssh.run("echo after").out == "after\n"
    over.touch()
    other.join()
    assert said == ["whole\n"]


def test_when_the_session_ends_a_script_that_hangs_is_cut_and_a_launcher_is_not(
    ssh: SshConnection, tmp_path: Path
) -> None:
    begun, over, answers = tmp_path / "begun", tmp_path / "over", list[str]()
    launcher = f"touch {begun}-1; until [ -e {over} ]; do sleep 0.05; done; echo launched"

    def launch() -> None:
        answers.append(ssh.run(launcher, to_end=True).out)

    def hang() -> None:
        with pytest.raises(Unreachable, match="and the session ends"):
            ssh.run(f"touch {begun}-2; sleep {GUARD}")
        answers.append("cut")

    threads = [threading.Thread(target=launch), threading.Thread(target=hang)]
    for number, thread in enumerate(threads, 1):
        thread.start()
        until(Path(f"{begun}-{number}").exists, "the script has begun")
    ssh.until = time.monotonic()
    threads[1].join()
    over.touch()
    threads[0].join()
    assert answers == ["cut", "launched\n"]


def test_what_a_script_complains_of_is_heard_while_it_runs(ssh: SshConnection, tmp_path: Path) -> None:
    """The script goes on only when its words have been heard."""
    heard: list[str] = []

    def hear(line: str) -> None:
        heard.append(line)
        (tmp_path / line).touch()

    wait = "while [ ! -e {0}/{1} ]; do sleep 0.05; done"
    script = "\n".join(f"echo {word} >&2; {wait.format(tmp_path, word)}" for word in ("one", "two", "three"))
    assert ssh.run(script, heard=hear).err == "one\ntwo\nthree\n"
    assert heard == ["one", "two", "three"]


def test_a_shell_that_was_ended_is_replaced(ssh: SshConnection) -> None:
    shell = int(ssh.run("echo $$").out)
    assert ssh._link is not None
    (kept,) = ssh._link.shells
    os.kill(shell, signal.SIGKILL)
    until(lambda: not kept.usable, "its end is heard of")
    assert ssh.run("echo again").out == "again\n"


def test_a_shell_that_ends_in_the_midst_of_a_script_is_no_answer(ssh: SshConnection) -> None:
    with pytest.raises(Unreachable, match="the login shell ended"):
        ssh.run("kill -9 $$; sleep 1")
    assert ssh.run("echo again").out == "again\n"


def test_nothing_of_a_script_stands_in_a_process_list(ssh: SshConnection) -> None:
    shown = ssh.run(
        "planted=a-planted-secret; tr '\\0' ' ' </proc/$$/cmdline; tr '\\0' ' ' </proc/$BASHPID/cmdline"
    )
    assert "bash" in shown.out
    assert "planted" not in shown.out


def test_files_are_read_by_any_part(ssh: SshConnection, scripted_lab: ScriptedLab) -> None:
    """The sshd of the lab has no SFTP."""
    path = scripted_lab.root / "some.txt"
    path.write_bytes(b"\xff\0" + bytes(range(256)) * 9000)
    assert files.size(ssh, str(path)) == 2 + 256 * 9000
    assert files.read(ssh, str(path), 0, 4) == b"\xff\0\0\1"
    assert files.read(ssh, str(path), 2, 1 << 20) == path.read_bytes()[2 : 2 + (1 << 20)]
    assert "some.txt" in files.names(ssh, str(path.parent))
    missing = str(path.with_name("none"))
    assert (files.size(ssh, missing), files.read(ssh, missing, 0, 1), files.names(ssh, missing)) == (
        None,
        None,
        [],
    )
