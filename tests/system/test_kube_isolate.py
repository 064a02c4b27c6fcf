"""From a slow case to the node, the link or the leaf, on a real Kubernetes: its own scheduler puts each probe on the nodes it is for."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.system.kube import CASE, running
from tests.system.kube_trial import INDEX, KubeTrial, MakeTrial
from tests.system.support import Run, until

# Of a published step with a band of 10 %.
SLOW = 1.2
LARGE = "llama3_gke/70b-fp8-512gpus"
# All on one leaf, by a label that the site requires of them besides.
RACK = {"node_affinity": {"cloud.provider.com/topology-rack": ["rack-01"]}}

MakeSlow = Callable[..., "Slow"]


class Slow:
    """A trial whose case is too slow, and whose probes find what a table says of nodes, which are given by their ranks."""

    def __init__(self, trial: KubeTrial, table: Path, case: str) -> None:
        self.trial = trial
        self.table = table
        self.case = case
        self.nodes: list[str] = []

    def run(self, table: dict[str, Any], *more: str) -> Run:
        self.begin(table, *more)
        return self.trial.end()

    def begin(self, table: dict[str, Any], *more: str, pods: int = 16) -> None:
        """Start the session. Its table is written while its job waits, once each pod has its node."""
        self.trial.hold(10).start("--isolate", "5000", *more)
        until(lambda: self._ended() or running(self.trial.lab, self.trial.namespace) == pods, "its pods run")
        assert not self._ended(), self.trial.process and self.trial.process.said()
        placed = {
            pod["metadata"]["labels"][INDEX]: pod["spec"]["nodeName"] for pod in self.trial.items("pod")
        }
        self.nodes = [placed[str(rank)] for rank in range(pods)]
        words = re.sub(r"#(\d+)", lambda match: self.nodes[int(match[1])], json.dumps(table))
        self.table.write_text(words)
        self.trial.let_go()

    def _ended(self) -> bool:
        return self.trial.process is None or self.trial.process.poll() is not None

    def headline(self, result: Run) -> str:
        assert result.verdicts == {self.case: "too slow"}, result.out
        words: str = result.case(self.case)["isolation"]["headline"]
        return words


@pytest.fixture
def make_slow(kube_trial: MakeTrial, tmp_path: Path) -> MakeSlow:
    def make(case: str = CASE, **keys: Any) -> Slow:
        table = tmp_path / "table.json"
        select = ("suites/llama3_gke", "-k", f"[{case.partition('/')[2]}]")
        trial = kube_trial(select=select, keys=keys or RACK, pace=SLOW, real_step=0.005, probes=str(table))
        return Slow(trial, table, case)

    return make


@pytest.mark.parametrize(
    ("table", "slow", "words"),
    [
        pytest.param({"nodes": {"#3": 0.19, "#11": 0.18}}, [3, 11], "{3}: ", id="two nodes"),
        pytest.param(
            {"links": {"#4+#5": 0.2}, "crash": ["#12"]}, [4, 5], "the link {4}-{5}: ", id="link and crash"
        ),
        pytest.param({}, [], "no node: all are alike", id="healthy"),
    ],
)
def test_what_slows_a_case_is_named(make_slow: MakeSlow, table: Any, slow: list[int], words: str) -> None:
    session = make_slow()
    result = session.run(table)
    isolation, nodes = result.case(CASE)["isolation"], session.nodes
    assert session.headline(result).startswith(words.format(*nodes))
    assert {node for part in isolation["parts"] for node in part["nodes"]} == {nodes[rank] for rank in slow}
    assert [each["nodes"] for each in isolation["failed"]] == [[nodes[12]]] * ("crash" in table)
    assert result.case(CASE)["job"]["nodes"] == ", ".join(nodes)
