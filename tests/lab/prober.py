"""Stands in for a node's Python that runs the proxy: prints the lines of its steps, slower where a table says so.

Run as `prober.py TABLE ARGUMENT...`. TABLE is JSON: the slowness of `nodes`, of `cards` and `links` (joined by +) when two nodes
work together, of `leaves` (each with its `nodes`) when one of them works with another node, and the nodes that `crash`. It waits
while there is a file beside TABLE whose name ends in `.wait`. The lines are those of suites/proxy/train.py, as its first process prints them.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

from plugins.record.nodes import node_list

STEP, NOISE = 1.7, 0.002


def slowness(table: dict[str, Any], nodes: tuple[str, ...]) -> float:
    """By how much the step of these nodes is slower."""
    alone = max(table.get("nodes", {}).get(node, 0.0) for node in nodes)
    if len(nodes) == 1:
        return float(alone)
    together = [table.get("cards", {}).get(node, 0.0) for node in nodes]
    together.append(table.get("links", {}).get("+".join(nodes), 0.0))
    for leaf in table.get("leaves", {}).values():
        if len(set(nodes) & set(leaf["nodes"])) == 1:
            together.append(leaf["slowness"])
    return float(alone + max(together))


def main() -> int:
    table = json.loads(Path(sys.argv[1]).read_text())
    nodes, steps = node_list(os.environ["SLURM_JOB_NODELIST"]), int(sys.argv[sys.argv.index("--steps") + 1])
    if set(nodes) & set(table.get("crash", ())):
        print("CUDA error: uncorrectable ECC error encountered", file=sys.stderr)
        return 1
    if os.environ.get("SLURM_PROCID") != "0":
        return 0
    while Path(sys.argv[1]).with_suffix(".wait").exists():
        time.sleep(0.2)
    print(f"proxy: trains on {nodes[0]}, Python 3.12", flush=True)
    for step in range(steps):
        seconds = STEP * (1 + slowness(table, nodes)) * random.gauss(1, NOISE)
        print(
            f"completed step: {step}, seconds: {seconds:.6f}, TFLOP/s/device: 600.0, Tokens/s/device: 38000.0, "
            f"total_weights: 65536, loss: 0.001"
        )
    print(f"proxy done: {steps} steps")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
