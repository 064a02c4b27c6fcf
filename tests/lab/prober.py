"""Stands in for the Python of a cluster's nodes that runs the proxy: prints the lines of its steps, slower where a table says so.

The pods of the Kubernetes lab print the same lines. A table has the slowness of `nodes`, of `cards` and `links` (joined by +) when two nodes
work together, of `leaves` (each with its `nodes`) when one of them works with another node, the nodes that `crash`,
and the one of the `gpus` of a node that makes it slow. The lines are those of suites/proxy/train.py, as its first process prints them.
"""

from __future__ import annotations

import contextlib
import json
import math
import random
import socketserver
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from plugins.record.job import node_list

STEP, NOISE = 1.7, 0.002
TFLOP = 1103.758
"""Those of a step of 8b-8l on each GPU."""


class Prober(socketserver.ThreadingTCPServer):
    """The nodes of a test on Slurm: answers its probes, 256 at once, for each of which a Python would take longer than all else.

    Its table, JSON, lies in `folder`. A probe waits while there is a file beside it whose name ends in `.wait`.
    """

    request_queue_size = 512
    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Node)
        self.table = folder / "faults.json"
        self.closed = False

    def install(self, table: dict[str, Any]) -> Path:
        """A program that stands in for the Python of the recipe proxy, by this table. Of the processes of a probe the first answers."""
        self.table.write_text(json.dumps(table))
        python = self.table.with_name("python")
        python.write_text(
            '#!/bin/bash\n[ "$1" != -c ] && [ "$SLURM_PROCID" = 0 ] || exit 0\n'
            f"exec 3<>/dev/tcp/127.0.0.1/{self.server_address[1]}\n"
            'echo "$SLURM_JOB_NODELIST $*" >&3\nread -r crash <&3\n'
            '[ -z "$crash" ] || { echo "$crash" >&2; exit 1; }\nexec cat <&3\n'
        )
        python.chmod(python.stat().st_mode | stat.S_IXUSR)
        return python


class _Node(socketserver.StreamRequestHandler):
    server: Prober

    def handle(self) -> None:
        place, *words = self.rfile.readline().decode().split()
        nodes, path = node_list(place), self.server.table
        table = json.loads(path.read_text())
        crash = crashes(table, nodes)
        while not crash and path.with_suffix(".wait").exists() and not self.server.closed:
            time.sleep(0.2)
        lines = (crash, *(() if crash else printed(table, nodes, words)))
        # Of a job that was cancelled nobody listens.
        with contextlib.suppress(ConnectionError):
            self.wfile.write("".join(f"{line}\n" for line in lines).encode())


@contextlib.contextmanager
def answering(folder: Path) -> Iterator[Prober]:
    """While the block runs probes are answered."""
    with Prober(folder) as prober:
        thread = threading.Thread(target=prober.serve_forever, args=(0.1,))
        thread.start()
        try:
            yield prober
        finally:
            prober.closed = True
            prober.shutdown()
            thread.join()


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
