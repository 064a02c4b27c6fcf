"""From a slow case to the node, the link or the leaf, on a real Kubernetes: its own scheduler puts each probe on the nodes it is for."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.system.kube import items, small_suite
from tests.system.kube_trial import INDEX, JOB, KubeTrial, MakeTrial
from tests.system.support import Run, until

# Of a published step with a band of 10 %.
SLOW = 1.2
LARGE, SMALL = (f"llama3_gke/70b-{case}gpus" for case in ("bf16-256", "fp8-128"))
HEALTHY, SLOWED = (f"llama3_gke/70b-{dtype}-64gpus" for dtype in ("bf16", "fp8"))


class Slow:
    """Sessions with cases that are too slow, on so many nodes, whose probes find what a table says of nodes."""

    def __init__(self, trial: KubeTrial, nodes: int, table: Path) -> None:
        self.trial = trial
        self.nodes = nodes
        self.table = table
        self.waits = table.with_suffix(".wait")
        self.options = ("--isolate", "5000")

    def begin(self) -> list[str]:
        """Start the session. While its jobs wait, each pod has its node: those of each job in the order of ranks, by its name."""
        self.trial.hold(10).start(*self.options)
        until(lambda: self._ended() or self._begun() == self.nodes, "all pods with their knobs")
        assert not self._ended(), self.trial.end().out
        labels = {pod["spec"]["nodeName"]: pod["metadata"]["labels"] for pod in self.pods()}
        # The names of jobs begin with a number, and end with the case.
        return sorted(labels, key=lambda node: (labels[node][JOB].split("-", 2)[2], int(labels[node][INDEX])))

    def go_on(self, table: dict[str, Any]) -> None:
        """The job goes on, and what begins later is fast: the case once more, on other nodes."""
        self.table.write_text(json.dumps(table))
        self.trial.lab.set(self.trial.namespace, **{**self.trial.knobs, "pace": 1.0})
        self.trial.let_go()

    def pods(self) -> list[dict[str, Any]]:
        return items(self.trial.lab, self.trial.namespace, "pod")

    def _begun(self) -> int:
        return sum(map(self.trial.lab.has_begun, self.pods()))

    def _ended(self) -> bool:
        return self.trial.process is None or self.trial.process.poll() is not None


MakeSlow = Callable[..., Slow]


@pytest.fixture
def make_slow(kube_trial: MakeTrial, tmp_path: Path) -> MakeSlow:
    def make(cases: str, nodes: int, **suite: str) -> Slow:
        table = tmp_path / "table.json"
        trial = kube_trial(
            **suite,
            select=("-k", cases),
            limits={"jobs_in_flight": 64},
            pace=SLOW,
            real_step=0.005,
            probes=str(table),
        )
        return Slow(trial, nodes, table)

    return make


def isolation(result: Run, case: str) -> dict[str, Any]:
    assert result.case(case)["verdict"] == "too slow", result.out
    record: dict[str, Any] = result.case(case)["isolation"]
    return record


def accused(record: dict[str, Any]) -> list[str]:
    return sorted(node for part in record["parts"] for node in part["nodes"])


def leaf(node: str) -> str:
    """As a label of the lab's nodes tells it: sixteen have the same."""
    return f"leaf{int(node[-3:]) // 16}"


def test_the_uplink_of_a_leaf_and_a_link_beside_a_node_that_crashes_are_named(make_slow: MakeSlow) -> None:
    """Two cases at once, each on nodes of four leaves as the scheduler mixes them."""
    session = make_slow("bf16 and 256 or fp8 and 128", 48)
    nodes = session.begin()
    first, second = nodes[:32], nodes[32:]
    ((slow, _),) = Counter(map(leaf, first)).most_common(1)
    behind = [node for node in first if leaf(node) == slow]
    link = max(pairwise(second[:-1]), key=lambda pair: leaf(pair[0]) == leaf(pair[1]))
    session.go_on(
        {
            "leaves": {slow: {"slowness": 0.2, "nodes": behind}},
            "links": {"+".join(link): 0.2},
            "crash": second[-1:],
        }
    )
    result = session.trial.end()
    uplink, pair = (isolation(result, case) for case in (LARGE, SMALL))
    assert uplink["headline"].startswith(f"the uplink of leaf {slow} ({len(behind)} nodes): ")
    assert pair["headline"].startswith(f"the link {'-'.join(link)}: ")
    assert (accused(uplink), accused(pair)) == (sorted(behind), sorted(link))
    assert [each["nodes"] for each in pair["failed"]] == [second[-1:]]
    # One more round is for the node that crashes.
    assert [uplink["rounds"] <= 7, pair["rounds"] <= 9] == [True, True]
    leaves = json.loads((result.folder / LARGE / "leaves.json").read_text())
    assert {node: leaves[node] for node in nodes} == {node: leaf(node) for node in nodes}


def test_two_slow_nodes_and_none_are_named_although_the_session_is_killed(
    make_slow: MakeSlow, tmp_path: Path
) -> None:
    """Two cases at once, killed in the middle of their first round. No probe is made twice, and what is named is proved.

    Both on eight nodes: a round has half the probes of sixteen.
    """
    session = make_slow("70b", 16, suite=str(small_suite(tmp_path / "eight", (64,))))
    session.waits.touch()
    nodes = session.begin()
    healthy, slow = nodes[:8], [nodes[8 + 1], nodes[8 + 5]]
    session.go_on({"nodes": {slow[0]: 0.19, slow[1]: 0.18}})

    def probed() -> set[str]:
        pods = [pod for pod in session.pods() if pod["status"].get("phase") == "Running"]
        return {
            pod["spec"]["nodeName"] for pod in pods if "/proxy/train.py" in str(pod["spec"]["containers"])
        }

    until(lambda: probed() == set(nodes), "a probe on each node")
    session.trial.kill()
    session.waits.unlink()
    result = session.trial.resume(*session.options)
    record = isolation(result, HEALTHY)
    assert record["headline"].startswith("no node: all are alike")
    assert (record["parts"], record["failed"]) == ([], [])
    assert result.case(HEALTHY)["job"]["nodes"] == ", ".join(healthy)
    record = isolation(result, SLOWED)
    assert accused(record) == sorted(slow), record["headline"]
    assert f"without {','.join(sorted(slow))}: " in record["headline"]
    assert record["proof"]["verdict"] == "passed"


NODES = [f"gke-a3mega-pool-{number:03}" for number in range(12)]
SLOW_NODE, BROKEN = NODES[3], NODES[5]


def test_a_slow_and_a_broken_node_are_told_from_the_others(kube_trial: MakeTrial, tmp_path: Path) -> None:
    table = tmp_path / "table.json"
    table.write_text(json.dumps({"nodes": {SLOW_NODE: 0.09}, "crash": [BROKEN]}))
    trial = kube_trial(
        suite="suites/node",
        select=("--nodes", "gke-a3mega-pool-[000-011]"),
        keys={"recipes": {"proxy": {"values": {"image": "registry.test/jax:26.06"}}}},
        limits={"jobs_in_flight": 12},
        probes=str(table),
    )
    result = trial.run()
    nodes = {node["node"]: node for node in result.summary["screening"]["nodes"]}
    failing = {name for name, node in nodes.items() if node["state"] == "failing"}
    assert failing == {SLOW_NODE, BROKEN}, result.out
    assert sum(node["state"] == "passing" for node in nodes.values()) == 10
    assert "slower than its peers" in nodes[SLOW_NODE]["reason"]
    assert {case["id"].partition(".")[2]: case["job"]["nodes"] for case in result.summary["cases"]} == {
        node: node for node in NODES
    }
    assert len(trial.made()) == 12
