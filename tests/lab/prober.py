"""Stands in for a node's Python that runs the proxy: prints the lines of its steps, slower where a table says so.

Run as `prober.py TABLE ARGUMENT...`; the pods of the Kubernetes lab print the same lines. TABLE is JSON: the slowness of `nodes`, of `cards` and `links` (joined by +) when two nodes
work together, of `leaves` (each with its `nodes`) when one of them works with another node, the nodes that `crash`,
and the one of the `gpus` of a node that makes it slow. It waits
while there is a file beside TABLE whose name ends in `.wait`. The lines are those of suites/proxy/train.py, as its first process prints them.
"""

from __future__ import annotations

import json
import math
import os
import random
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from plugins.record.nodes import node_list

ROOT = Path(__file__).parents[2]
STEP, NOISE = 1.7, 0.002
TFLOP = 1103.758
"""Those of a step of 8b-8l on each GPU."""


def install(folder: Path, table: dict[str, Any]) -> Path:
    """A program in `folder` that stands in for the Python of the recipe proxy, by this table."""
    faults, python = folder / "faults.json", folder / "python"
    faults.write_text(json.dumps(table))
    python.write_text(
        '#!/bin/bash\n[ "$1" != -c ] || exit 0\nwhile [ "$1" = -u ] || [ "$1" = -B ]; do shift; done\nshift\n'
        f'PYTHONPATH={ROOT} exec {sys.executable} -m tests.lab.prober {faults} "$@"\n'
    )
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    return python


def slowness(table: dict[str, Any], nodes: tuple[str, ...]) -> float:
    """By how much the step of these nodes is slower."""
    alone = max(table.get("nodes", {}).get(node, 0.0) for node in nodes)
    if len(nodes) == 1:
        return float(alone)
    together = [table.get("cards", {}).get(node, 0.0) for node in nodes]
    links = {frozenset(link.split("+")): slow for link, slow in table.get("links", {}).items()}
    together.append(links.get(frozenset(nodes), 0.0))
    for leaf in table.get("leaves", {}).values():
        if len(set(nodes) & set(leaf["nodes"])) == 1:
            together.append(leaf["slowness"])
    return float(alone + max(together))


def crashes(table: dict[str, Any], nodes: Sequence[str]) -> str:
    """The words of a crash of a probe on these nodes; "" if it ends well."""
    crashing = set(nodes) & set(table.get("crash", ()))
    return "CUDA error: uncorrectable ECC error encountered" if crashing else ""


def printed(table: dict[str, Any], nodes: Sequence[str], words: Sequence[str]) -> Iterator[str]:
    """The lines of a probe on these nodes, of which the first runs process 0. `words` are its command line."""
    steps, *sizes = (
        int(words[words.index(name) + 1]) for name in ("--steps", "--seq-len", "--ga", "--mbs", "--gpus")
    )
    slow = slowness(table, tuple(nodes))
    yield f"proxy: trains on {nodes[0]}, Python 3.12"
    for step in range(steps):
        seconds = STEP * (1 + slow) * random.gauss(1, NOISE)
        yield (
            f"completed step: {step}, seconds: {seconds:.6f}, TFLOP/s/device: {TFLOP / seconds:.6f}, "
            f"Tokens/s/device: {math.prod(sizes[:3]) / seconds:.3f}, "
            f"total_weights: {math.prod(sizes)}, loss: {11 - step / 10:.3f}"
        )
    for gpu in range(sizes[-1] // len(nodes)):
        alone = slow if table.get("gpus", {}).get(nodes[0]) == gpu else 0.0
        yield f"proxy gpu {gpu} step alone: {0.21 * (1 + alone):.6f} s (one micro batch, median of 9)"
        yield f"proxy gpu {gpu} product after: burst 720.0, sustained 690.0 TFLOP/s (bfloat16 matmul)"
    yield f"proxy done: {steps} steps"


def main() -> int:
    table = json.loads(Path(sys.argv[1]).read_text())
    nodes = node_list(os.environ["SLURM_JOB_NODELIST"])
    if words := crashes(table, nodes):
        print(words, file=sys.stderr)
        return 1
    if os.environ.get("SLURM_PROCID") != "0":
        return 0
    while Path(sys.argv[1]).with_suffix(".wait").exists():
        time.sleep(0.2)
    for line in printed(table, nodes, sys.argv):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
