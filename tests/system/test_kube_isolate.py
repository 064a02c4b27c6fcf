"""From a slow case to the node, the link or the leaf, on a real Kubernetes: its own scheduler puts each probe on the nodes it is for."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.system.kube import CASE, SELECT, items, running
from tests.system.kube_trial import INDEX, KubeTrial, MakeTrial
from tests.system.support import Run, until

# Of a published step with a band of 10 %.
SLOW = 1.2
HALVES = [f"llama3_gke/70b-{dtype}-256gpus" for dtype in ("bf16", "fp8")]
JOB = "jobset.sigs.k8s.io/jobset-name"
# All nodes of the case on one leaf, by a label that the site requires of them besides.
RACK = {"node_affinity": {"cloud.provider.com/topology-rack": ["rack-01"]}}


class Slow:
    """Sessions with cases that are too slow, whose probes find what a table says of nodes."""

    def __init__(self, trial: KubeTrial, table: Path) -> None:
        self.trial = trial
        self.table = table
        self.waits = table.with_suffix(".wait")

    def begin(self, *more: str, pods: int = 16) -> list[str]:
        """Start the session. While its jobs wait, each pod has its node: those of each job in the order of ranks, by its name."""
        self.trial.hold(10).start(*more)
        until(lambda: self._ended() or running(self.trial.lab, self.trial.namespace) == pods, f"{pods} pods")
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

    def _ended(self) -> bool:
        return self.trial.process is None or self.trial.process.poll() is not None


MakeSlow = Callable[..., Slow]


@pytest.fixture
def make_slow(kube_trial: MakeTrial, tmp_path: Path) -> MakeSlow:
    def make(select: tuple[str, ...] = SELECT, **keys: Any) -> Slow:
        table = tmp_path / "table.json"
        trial = kube_trial(
            select=select,
            keys=keys,
            limits={"jobs_in_flight": 64},
            pace=SLOW,
            real_step=0.005,
            probes=str(table),
        )
        return Slow(trial, table)

    return make


def isolation(result: Run, case: str = CASE) -> dict[str, Any]:
    assert result.case(case)["verdict"] == "too slow", result.out
    record: dict[str, Any] = result.case(case)["isolation"]
    return record


def accused(record: dict[str, Any]) -> list[str]:
    return sorted(node for part in record["parts"] for node in part["nodes"])


def leaf(node: str) -> str:
    """As a label of the lab's nodes tells it: sixteen have the same."""
    return f"leaf{int(node[-3:]) // 16}"


def test_the_uplink_of_a_leaf_and_a_link_beside_a_node_that_crashes_are_named_on_64_nodes(
    make_slow: MakeSlow, tmp_path: Path
) -> None:
    """Two cases at once, each on nodes of four leaves as the scheduler mixes them; there are numbers only once some were recorded."""
    own = ("--site-baselines", str(tmp_path / "own"))
    session = make_slow(("suites/llama3_gke", "-k", "70b and 256"))
    trial = session.trial
    trial.lab.set(trial.namespace, **{**trial.knobs, "pace": 1.0})
    assert trial.run("--record-baselines", *own).status == 0
    nodes = session.begin("--isolate", "150", *own, pods=64)
    first, second = nodes[:32], nodes[32:]
    behind = [node for node in first if leaf(node) == "leaf1"]
    link = max(pairwise(second[:-1]), key=lambda pair: leaf(pair[0]) == leaf(pair[1]))
    session.go_on(
        {
            "leaves": {"leaf1": {"slowness": 0.2, "nodes": behind}},
            "links": {"+".join(link): 0.2},
            "crash": second[-1:],
        }
    )
    result = trial.end()
    uplink, pair = (isolation(result, case) for case in HALVES)
    assert uplink["headline"].startswith(f"the uplink of leaf leaf1 ({len(behind)} nodes): ")
    assert pair["headline"].startswith(f"the link {'-'.join(link)}: ")
    assert (accused(uplink), accused(pair)) == (sorted(behind), sorted(link))
    assert [each["nodes"] for each in pair["failed"]] == [second[-1:]]
    # One more round is for the node that crashes.
    assert [uplink["rounds"] <= 7, pair["rounds"] <= 9] == [True, True]
    leaves = json.loads((result.folder / HALVES[0] / "leaves.json").read_text())
    assert {node: leaves[node] for node in nodes} == {node: leaf(node) for node in nodes}


def test_no_node_of_a_healthy_cluster_is_named(make_slow: MakeSlow) -> None:
    session = make_slow(**RACK)
    nodes = session.begin("--isolate", "60")
    session.go_on({})
    result = session.trial.end()
    record = isolation(result)
    assert record["headline"].startswith("no node: all are alike")
    assert (record["parts"], record["failed"]) == ([], [])
    assert result.case(CASE)["job"]["nodes"] == ", ".join(nodes)


def test_two_slow_nodes_are_named_and_proved_although_the_session_is_killed(make_slow: MakeSlow) -> None:
    """In the middle of the first round. No probe is made twice, and the case runs once more on other nodes."""
    session = make_slow()
    session.waits.touch()
    nodes = session.begin("--isolate", "5000")
    session.go_on({"nodes": {nodes[3]: 0.19, nodes[11]: 0.18}})

    def probed() -> set[str]:
        pods = [pod for pod in session.pods() if pod["status"].get("phase") == "Running"]
        return {
            pod["spec"]["nodeName"] for pod in pods if "/proxy/train.py" in str(pod["spec"]["containers"])
        }

    until(lambda: probed() == set(nodes), "a probe on each node")
    session.trial.kill()
    session.waits.unlink()
    record = isolation(session.trial.resume("--isolate", "5000"))
    slow = sorted([nodes[3], nodes[11]])
    assert accused(record) == slow, record["headline"]
    assert f"without {','.join(slow)}: " in record["headline"]
    assert record["proof"]["verdict"] == "passed"
