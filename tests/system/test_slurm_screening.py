"""A case on each node of a real Slurm cluster: which is slow, which breaks, which takes no jobs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.prober import Prober
from tests.lab.slurm import SlurmLab
from tests.system.faults import MakeTrial, Trial
from tests.system.support import Run, until

NODES = [f"gpu{number:03}" for number in range(1, 17)]
LIMITS = ", jobs_in_flight: 16"

Screening = Callable[..., Trial]


@pytest.fixture
def screen(make_trial: MakeTrial, prober: Prober, tmp_path: Path) -> Screening:
    """Begin a screening of 16 nodes, which are as a table says."""

    def begin(table: dict[str, Any], *more: str, wait: bool = False) -> Trial:
        keys = {"recipes": f"{{proxy: {{values: {{python: '{prober.install(table)}'}}}}}}"}
        if wait:
            (tmp_path / "faults.wait").touch()
        trial: Trial = make_trial(limits=LIMITS, keys=keys)
        trial.process = trial.session("suites/node", "--nodes", "gpu[001-016]", *more)
        return trial

    return begin


@pytest.fixture
def drained(lab: SlurmLab) -> Iterator[str]:
    """A node that takes no jobs."""
    lab.set_node("gpu007", "drain")
    yield "gpu007"
    lab.set_node("gpu007", "resume")


def states(result: Run) -> dict[str, str]:
    return {node["node"]: node["state"] for node in result.summary["screening"]["nodes"]}


def listed(result: Run, kind: str) -> list[str]:
    return (result.folder / f"{kind}_nodes.txt").read_text().split()


def test_a_slow_a_broken_and_a_drained_node_are_told_from_the_others(screen: Screening, drained: str) -> None:
    result = screen({"nodes": {"gpu003": 0.09}, "gpus": {"gpu003": 3}, "crash": ["gpu005"]}).end()
    assert result.status == 1, result.out
    failing = {"gpu003", "gpu005"}
    wanted = {node: "failing" if node in failing else "passing" for node in NODES}
    assert states(result) == {**wanted, drained: "not judged"}, result.out
    screening = result.summary["screening"]
    # Worst first.
    assert [node["node"] for node in screening["nodes"][:3]] == ["gpu003", "gpu005", drained]
    slow, broken, unfit = screening["nodes"][:3]
    assert slow["reason"].startswith("no baseline; ")
    assert re.search(
        r"; [89]\.\d % slower than its peers \(limit 2\.5 %\); GPU 3: a step alone takes ", slow["reason"]
    )
    assert "ended FAILED on gpu005" in broken["reason"]
    assert unfit["reason"] == f"skipped: {drained} takes no jobs: drained: lab"
    assert screening["unlike"] == ["gpu003"]
    assert listed(result, "failing") == sorted(failing)
    assert listed(result, "passing") == [
        node for node in NODES if wanted[node] == "passing" and node != drained
    ]
    # Each node had one job, on itself, and the drained one had none.
    assert len(result.summary["cases"]) == 16
    ran = {case["id"].partition(".")[2]: case["job"]["nodes"] for case in result.summary["cases"]}
    assert ran == {node: node if node != drained else "" for node in NODES}
    assert "test_peers" in result.out
    assert "16 nodes, 2 failing (gpu003, gpu005), 1 not judged (gpu007), 13 passing" in result.out


def test_a_job_that_an_administrator_cancels_tells_nothing_of_its_node(
    screen: Screening, tmp_path: Path, lab: SlurmLab
) -> None:
    trial = screen({}, "-k", "gpu00", wait=True)
    until(lambda: sum(job.state == "RUNNING" for job in trial.living()) == 9, "nine jobs")
    lab.run("scancel", next(str(job.id) for job in trial.living() if job.name.endswith(".gpu004")))
    trial.until_said("ended CANCELLED on gpu004")
    (tmp_path / "faults.wait").unlink()
    result = trial.end()
    assert result.status == 1, result.out
    nodes = [node for node in NODES if node.startswith("gpu00")]
    assert states(result) == {node: "not judged" if node == "gpu004" else "passing" for node in nodes}
    assert listed(result, "failing") == []


def test_a_screening_of_healthy_nodes_goes_on_after_it_was_killed(screen: Screening, tmp_path: Path) -> None:
    """With the nodes that it began with, and with workers of xdist."""
    trial = screen({}, wait=True)
    until(lambda: sum(job.state == "RUNNING" for job in trial.living()) == 16, "sixteen jobs")
    trial.kill()
    (tmp_path / "faults.wait").unlink()
    trial.process = trial.session("suites/node", "--resume", "latest", "-n", "2")
    result = trial.end()
    assert result.status == 0, result.out
    assert states(result) == dict.fromkeys(NODES, "passing"), result.out
    assert len(trial.jobs()) == 16
    assert "16 skipped" in result.out
    assert "1 passed" in result.out


def test_one_node_is_chosen_by_its_name_and_unknown_ones_are_refused(screen: Screening) -> None:
    trial = screen({}, "-k", "gpu002")
    result = trial.end()
    assert result.status == 0, result.out
    assert states(result) == {"gpu002": "not judged"}
    assert "too few were measured" in result.summary["screening"]["headline"]
    trial.process = trial.session("suites/node", "--nodes", "gpu001,gpu999")
    refused = trial.end()
    assert refused.status == 4
    assert "suites/node: site lab has no node gpu999" in refused.out
