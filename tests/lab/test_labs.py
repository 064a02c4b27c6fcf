"""The labs themselves: reached on loopback alone, mended after a test, and gone with all that they started, however their owner ends."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import daemons, fixtures
from tests.lab.accounting import AccountingLab
from tests.lab.k8s.cluster import KubernetesLab
from tests.lab.slurm import SlurmLab
from tests.system.support import until


def listening(pids: set[int]) -> list[str]:
    """The addresses, in hexadecimal, at which these processes listen."""
    sockets = set()
    for pid in pids:
        # A process may end, and a file be closed, while they are looked at.
        with contextlib.suppress(OSError):
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    sockets.add(str(entry.readlink()).removeprefix("socket:[").removesuffix("]"))
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    return [row[1].partition(":")[0] for row in rows if row[3] == "0A" and row[9] in sockets]


def test_kubernetes_listens_on_loopback_alone(kubernetes_lab: KubernetesLab) -> None:
    found = listening(kubernetes_lab.pids)
    assert len(found) >= 10
    assert set(found) == {"0100007F"}


@pytest.mark.usefixtures("kubernetes_parts")
def test_kubernetes_comes_back_and_leaves_no_process_behind() -> None:
    with KubernetesLab(nodes=2, controllers=("jobset",)) as lab:
        lab.stop_api()
        assert not lab.answers()
        lab.start_api()
        before = daemons.born(lab.pids)
        assert len(before) == 7
    assert daemons.survivors(before) == []
    assert not lab.root.exists()


@pytest.mark.parametrize(
    ("module", "parts"), [("tests.lab.slurm", "slurm_parts"), ("tests.lab.k8s", "kubernetes_parts")]
)
def test_a_killed_owner_leaves_no_process_behind(
    module: str, parts: str, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(parts)
    command = [sys.executable, "-m", module, "--nodes", "2"]
    repository = Path(fixtures.__file__).parents[2]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=repository) as owner:
        assert owner.stdout is not None
        facts = next(line for line in owner.stdout if line.startswith("{"))
        root = next(Path(name) for name in re.findall(r"/tmp/pm[lk]-[^/\"]+", facts))
        before = daemons.marked(root)
        owner.send_signal(signal.SIGKILL)
    assert len(before) > 4
    until(lambda: not daemons.marked(root) and not root.exists(), "the lab is gone")


@pytest.fixture
def small_lab(slurm_parts: None) -> Iterator[SlurmLab]:
    with SlurmLab(nodes=2) as lab:
        yield lab


def test_slurm_is_mended_beside_another_lab(small_lab: SlurmLab, slurm_lab: SlurmLab) -> None:
    until(lambda: (small_lab.idle_nodes(), slurm_lab.idle_nodes()) == (2, 256), "both are idle")
    small_lab.set_node("gpu001", "drain")
    small_lab.run("sbatch", "-o", "/dev/null", "--wrap", "sleep 600")
    small_lab.stop_sshd()
    small_lab.stop_controller()
    small_lab.recover()
    until(lambda: small_lab.idle_nodes() == 2, "both nodes are idle")
    assert small_lab.squeue() == []
    assert [pid for pid in small_lab.pids if "sleep 600" in daemons.command(pid)] == []


@pytest.mark.parametrize(("kind", "parts"), [(SlurmLab, "slurm_parts"), (AccountingLab, "accounting_parts")])
def test_slurm_leaves_no_process_behind(
    kind: type[SlurmLab] | type[AccountingLab], parts: str, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(parts)
    with kind(nodes=2) as lab:
        job = lab.run("sbatch", "--parsable", "-o", "/dev/null", "--wrap", "trap '' TERM; sleep 600")
        until(lambda: [(j.id, j.state) for j in lab.squeue()] == [(int(job), "RUNNING")], "the job runs")
        before = daemons.born(lab.pids)
        assert len(before) > 5
    assert daemons.survivors(before) == []
    assert not lab.root.exists()
