"""What the controller and the accounting are taken to say where only one of them answers."""

from __future__ import annotations

import pytest

from fixtures.backends.base import ClusterTimes
from fixtures.backends.shell import Answer
from fixtures.backends.slurm.controller import Controller
from fixtures.backends.slurm.login_node import LoginNode
from fixtures.backends.slurm.section import Slurm
from fixtures.backends.ssh.connection import SshConnection
from fixtures.backends.ssh.section import Ssh
from plugins.errors import Unreachable
from plugins.record.job import JobRef

SECTION = Slurm(gpu="h100", account="a", partition="p", stage="/s", ssh=Ssh(host="login"))


def controller(monkeypatch: pytest.MonkeyPatch, sacct: Answer) -> Controller:
    monkeypatch.setattr(SshConnection, "run", lambda self, script: sacct)
    return Controller(LoginNode("lab", SECTION, SshConnection(SECTION.ssh)))


@pytest.mark.parametrize(
    "answer",
    [
        Answer(1, "", "sacct: error: Unable to contact slurmdbd: Connection refused\n"),
        Answer(1, "", "sacct: error: Failed to access munge.socket.2: No such file or directory\n"),
        Answer(124, "", ""),
        # A prologue's own words are not sacct's.
        Answer(
            1,
            "",
            "bash: module: command not found\nsacct: error: Unable to contact slurmdbd: Connection refused\n",
        ),
        Answer(124, "", "/etc/motd not found, telemetry is disabled\n"),
    ],
)
def test_accounting_that_does_not_answer_says_nothing_about_a_job(
    monkeypatch: pytest.MonkeyPatch, answer: Answer
) -> None:
    with pytest.raises(Unreachable, match="lab: sacct: "):
        controller(monkeypatch, answer).accounted("pacemark-x")


@pytest.mark.parametrize(
    "said",
    [
        "Slurm accounting storage is disabled\n",
        "bash: sacct: command not found\n",
        "timeout: failed to run command 'sacct': No such file or directory\n",
    ],
)
def test_where_there_is_no_accounting_it_knows_of_no_job(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    assert controller(monkeypatch, Answer(127, "", said)).accounted("pacemark-x") == []


def test_a_launcher_has_its_bound_from_when_the_connection_stands() -> None:
    """As long as the launcher and what ends it may take, and a login before that."""
    section = SECTION.model_copy(
        update={"launch_minutes": 2, "ssh": Ssh(host="login", connect_seconds=7, command_seconds=11)}
    )
    assert section.launch_bound == 120 + 30 + 7 + 11


def test_accounting_is_asked_for_the_times_of_a_job_that_was_requeued_or_that_the_controller_has_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = JobRef("llama3", "70b", "ours", "17", "/logs")
    known = "JobId=17 JobName=ours StartTime=1763830000 EndTime=1763830500"
    asked: list[str] = []

    def answer(self: SshConnection, script: str) -> Answer:
        asked.append("sacct" if "sacct" in script else "scontrol")
        assert "SLURM_TIME_FORMAT=%s" in script
        return Answer(0, said[asked[-1]], "")

    monkeypatch.setattr(SshConnection, "run", answer)
    asks = Controller(LoginNode("lab", SECTION, SshConnection(SECTION.ssh)))
    said = {"scontrol": known, "sacct": ""}
    assert asks.times(job) == ClusterTimes(started=1763830000.0, ended=1763830500.0)
    said = {"scontrol": "", "sacct": "17|ours|1763830000|1763830600\n"}
    assert asks.times(job) == ClusterTimes(started=1763830000.0, ended=1763830600.0)
    assert asked == ["scontrol", "scontrol", "sacct"]
    said = {"scontrol": f"{known} Restarts=1", "sacct": "17|ours|1763820000|1763820100\n"}
    assert asks.times(job) == ClusterTimes(
        started=1763830000.0, ended=1763830500.0, earlier_seconds=100.0, restarts=1
    )
