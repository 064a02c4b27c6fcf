"""From a slow case to the node or the link, on a real Kubernetes: its own scheduler puts each probe on the nodes it is for."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.system.kube import CASE, items, running
from tests.system.kube_trial import INDEX, KubeTrial, MakeTrial
from tests.system.support import Run, until

# Of a published step with a band of 10 %.
SLOW = 1.2
# All nodes of the case on one leaf, by a label that the site requires of them besides.
RACK = {"node_affinity": {"cloud.provider.com/topology-rack": ["rack-01"]}}
# In GPU-hours: enough for all probes, and not for the case once more.
PROBES_ALONE = "60"


class Slow:
    """Sessions with a case that is too slow, whose probes find what a table says of nodes, which are given by their ranks."""

    def __init__(self, trial: KubeTrial, table: Path) -> None:
        self.trial = trial
        self.table = table
        self.waits = table.with_suffix(".wait")
        self.nodes: list[str] = []

    def begin(self, table: dict[str, Any], *more: str) -> None:
        """Start the session. While its job waits, each pod has its node, and the table is written."""
        self.trial.hold(10).start(*more)
        until(lambda: self._ended() or running(self.trial.lab, self.trial.namespace) == 16, "16 pods")
        assert not self._ended(), self.trial.end().out
        placed = {int(pod["metadata"]["labels"][INDEX]): pod["spec"]["nodeName"] for pod in self.pods()}
        self.nodes = [placed[rank] for rank in range(16)]
        named = re.sub(r"#(\d+)", lambda match: self.nodes[int(match[1])], json.dumps(table))
        self.table.write_text(named)
        # What begins later is fast: the case once more, on other nodes.
        self.trial.lab.set(self.trial.namespace, **{**self.trial.knobs, "pace": 1.0})
        self.trial.let_go()

    def pods(self) -> list[dict[str, Any]]:
        return items(self.trial.lab, self.trial.namespace, "pod")

    def _ended(self) -> bool:
        return self.trial.process is None or self.trial.process.poll() is not None


MakeSlow = Callable[..., Slow]


@pytest.fixture
def make_slow(kube_trial: MakeTrial, tmp_path: Path) -> MakeSlow:
    def make(**keys: Any) -> Slow:
        table = tmp_path / "table.json"
        trial = kube_trial(
            keys=keys,
            limits={"jobs_in_flight": 64},
            pace=SLOW,
            real_step=0.005,
            probes=str(table),
        )
        return Slow(trial, table)

    return make


def headline(result: Run) -> str:
    assert result.verdicts == {CASE: "too slow"}, result.out
    words: str = result.case(CASE)["isolation"]["headline"]
    return words


@pytest.mark.parametrize(
    ("table", "slow", "words"),
    [
        pytest.param(
            {"links": {"#4+#5": 0.2}, "crash": ["#12"]}, [4, 5], "the link {4}-{5}: ", id="link and crash"
        ),
        pytest.param({}, [], "no node: all are alike", id="healthy"),
    ],
)
def test_what_slows_a_case_is_named(make_slow: MakeSlow, table: Any, slow: list[int], words: str) -> None:
    session = make_slow(**RACK)
    session.begin(table, "--isolate", PROBES_ALONE)
    result = session.trial.end()
    isolation, nodes = result.case(CASE)["isolation"], session.nodes
    assert headline(result).startswith(words.format(*nodes))
    assert {node for part in isolation["parts"] for node in part["nodes"]} == {nodes[rank] for rank in slow}
    assert [each["nodes"] for each in isolation["failed"]] == [[nodes[12]]] * ("crash" in table)
    assert result.case(CASE)["job"]["nodes"] == ", ".join(nodes)


def test_two_slow_nodes_are_named_and_proved_although_the_session_is_killed(make_slow: MakeSlow) -> None:
    """In the middle of the first round. No probe is made twice, and the case runs once more on other nodes."""
    session = make_slow()
    session.waits.touch()
    session.begin({"nodes": {"#3": 0.19, "#11": 0.18}}, "--isolate", "5000")

    def probed() -> set[str]:
        pods = [pod for pod in session.pods() if pod["status"].get("phase") == "Running"]
        return {
            pod["spec"]["nodeName"] for pod in pods if "/proxy/train.py" in str(pod["spec"]["containers"])
        }

    until(lambda: probed() == set(session.nodes), "a probe on each node", 90)
    session.trial.kill()
    session.waits.unlink()
    result = session.trial.resume("--isolate", "5000")
    slow = sorted([session.nodes[3], session.nodes[11]])
    isolation = result.case(CASE)["isolation"]
    assert sorted(node for part in isolation["parts"] for node in part["nodes"]) == slow, headline(result)
    assert f"without {','.join(slow)}: " in headline(result)
    assert isolation["proof"]["verdict"] == "passed"
    # As a label of the nodes tells them: sixteen have the same.
    leaves = json.loads((result.folder / CASE / "leaves.json").read_text())
    assert {node: leaves[node] for node in session.nodes} == {
        node: f"leaf{int(node[-3:]) // 16}" for node in session.nodes
    }
