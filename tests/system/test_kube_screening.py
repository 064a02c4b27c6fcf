"""A case on each node of a real Kubernetes, whose own scheduler puts it there."""

from __future__ import annotations

import json
from pathlib import Path

from tests.system.kube_trial import MakeTrial

NODES = [f"gke-a3mega-pool-{number:03}" for number in range(12)]
SLOW, BROKEN = NODES[3], NODES[5]


def test_a_slow_and_a_broken_node_are_told_from_the_others(kube_trial: MakeTrial, tmp_path: Path) -> None:
    table = tmp_path / "table.json"
    table.write_text(json.dumps({"nodes": {SLOW: 0.09}, "crash": [BROKEN]}))
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
    assert failing == {SLOW, BROKEN}, result.out
    assert sum(node["state"] == "passing" for node in nodes.values()) == 10
    assert "slower than its peers" in nodes[SLOW]["reason"]
    assert {case["id"].partition(".")[2]: case["job"]["nodes"] for case in result.summary["cases"]} == {
        node: node for node in NODES
    }
    assert len(trial.made()) == 12
