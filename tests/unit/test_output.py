"""What a session prints is in a pipe or a file at once; Ctrl-C says what was being waited for."""

from __future__ import annotations

import signal
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from fixtures.session.choices import CHOICES
from fixtures.session.terminal import Terminal
from tests.system.support import finish, signal_group, start, until
from tests.unit import sshd


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
