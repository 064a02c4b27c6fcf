"""What others put into a folder that Pacemark reads and writes on the cluster: links, pipes, and odd names."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fixtures.backends.base import LogPlace
from fixtures.backends.shell import Answer
from fixtures.backends.ssh.log_tail import trouble
from plugins.base.errors import Unreachable
from plugins.record.job import JobRef
from tests.system.support import pacemark
from tests.unit.backends.ssh.test_log_tail import Here, drain, long

ODD = [
    "plain",
    "with space",
    "a\nb",
    "it's",
    '"q"',
    "$(touch planted)",
    "`touch planted`",
    "-n",
    "; touch planted",
]
NOWHERE = LogPlace()


class Watched(Here):
    """Keeps what the last script wrote."""

    def run(self, script: str, **kinds: Any) -> Answer:
        self.script = script
        self.answer = super().run(script)
        return self.answer


@pytest.mark.parametrize("name", ODD)
def test_the_probe_of_a_folder_leaves_nothing_and_says_nothing(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    here = Watched()
    assert trouble(here, str(folder), NOWHERE) == ""
    assert here.answer.status == 0
    assert "65536 bytes" in here.answer.err
    assert list(tmp_path.rglob("*")) == [folder]


def test_the_probe_follows_no_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, folder = tmp_path / "target", tmp_path / "stage"
    target.write_text("of somebody else")
    folder.mkdir()
    # Both the name that it once had and the one that it is going to have.
    monkeypatch.setattr("secrets.token_hex", lambda size: "guessed")
    planted = [folder / ".pacemark-probe", folder / ".pacemark-guessed"]
    for link in planted:
        link.symlink_to(target)
    here = Watched()
    trouble(here, str(folder), NOWHERE)
    assert "cannot overwrite existing file" in here.answer.err
    assert target.read_text() == "of somebody else"
    assert all(link.is_symlink() for link in planted)


def test_the_probe_makes_no_file_behind_a_dangling_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda size: "guessed")
    link = tmp_path / ".pacemark-guessed"
    link.symlink_to(tmp_path / "made")
    here = Watched()
    trouble(here, str(tmp_path), NOWHERE)
    assert here.answer.status != 0
    assert list(tmp_path.iterdir()) == [link]


def test_each_probe_has_a_name_of_its_own(tmp_path: Path) -> None:
    here = Watched()
    scripts = set()
    for _ in range(2):
        trouble(here, str(tmp_path), NOWHERE)
        scripts.add(here.script)
    assert len(scripts) == 2


def test_a_full_disk_is_told_by_whoever_notices_it(tmp_path: Path) -> None:
    class Full(Here):
        def run(self, script: str, **kinds: Any) -> Answer:
            return Answer(1, "", f"bash: line 3: {tmp_path}/x: Disk quota exceeded")

    told = trouble(Full(), str(tmp_path), NOWHERE)
    assert told == f"the disk of its log is full: Disk quota exceeded in {tmp_path}"


def test_a_large_log_that_became_a_link_is_not_searched(tmp_path: Path) -> None:
    class Replacing(Here):
        def run(self, script: str, **kinds: Any) -> Answer:
            if "grep" in script:
                path.unlink()
                path.symlink_to(secret)
            return super().run(script)

    secret, path = tmp_path / "secret", tmp_path / "log.out"
    secret.write_bytes(long("nemo2", 3))
    path.write_bytes(secret.read_bytes())
    with pytest.raises(Unreachable, match="failed"):
        drain(Replacing(), path, "nemo2")


@pytest.mark.parametrize("name", ODD)
def test_a_log_of_any_name_is_searched(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(long("nemo2", 3))
    got, end = drain(Here(), path, "nemo2")
    assert end == path.stat().st_size
    assert b"bytes without a step left out here" in got


@pytest.mark.parametrize("odd", ODD)
def test_no_job_id_is_a_command(odd: str, tmp_path: Path) -> None:
    """Ids come from a launcher's words and from a ledger; both may be damaged."""
    from fixtures.backends.slurm.answers import LoginNode
    from fixtures.backends.slurm.controller import Controller
    from fixtures.backends.slurm.launcher import cancel

    class Run:
        most_seconds = 60.0

        def run(self, script: str, *, seconds: float | None = None) -> Answer:
            subprocess.run(
                ["bash", "-s"], input=script.encode(), cwd=tmp_path, capture_output=True, check=False
            )
            return Answer(0, "", "")

    section = SimpleNamespace(
        prologue="", environment={}, launch_bound=9, ssh=SimpleNamespace(command_seconds=5)
    )
    login = LoginNode("here", section, Run())  # type: ignore[arg-type]
    controller = Controller(login)
    job = JobRef("llama3", "8b", f"name {odd}", odd, odd)
    cancel(login, controller, [job])
    controller.folder(odd)
    controller._shown([job])
    assert not list(tmp_path.iterdir())


def test_no_program_in_a_folder_of_logs_is_run(tmp_path: Path) -> None:
    """pytest looks for a conftest.py in each word of the command line that it does not know."""
    logs, ran = tmp_path / "logs", tmp_path / "ran"
    for folder in (logs, logs / "test_logs"):
        folder.mkdir()
        (folder / "conftest.py").write_text(f"open({str(ran)!r}, 'w')\n")
    chosen = ("suites/llama3", "-k", "70b and fp8 and 512", "--backend", "replay", "--from", str(logs))
    run = pacemark(*chosen, results=tmp_path / "results")
    assert (run.status, "ERROR: no log of llama3/70b-fp8-512gpus below" in run.out) == (4, True), run.out
    assert not ran.exists()
