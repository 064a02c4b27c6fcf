"""What it costs to digest an NCCL trace where it lies, beside `grep -c` on the same file: seconds, memory, and what comes back.

Each in a process of its own, of a short trace and of a long one: memory is flat where both take the same.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from plugins.digests import nccl
from plugins.digests.nccl_trace import read_digest
from tests.bench.process import Measured
from tests.bench.report import Row
from tests.bench.report import print_table
from tests.bench.report import print_target
from tests.unit.digests.traces import Trace

SHORT, LONG = 2 * 10**7, 2 * 10**9
FEW, MANY = 2, 256
"""Nodes of eight GPUs."""
MORE = 32.0
"""MB that a trace may take besides, however long it is."""


@dataclass(frozen=True)
class Cost:
    """`peak` in MB, of the whole process; `answer` and `state` in bytes."""

    size: int
    seconds: float
    grep: float
    peak: float
    answer: int
    state: int

    def rows(self) -> list[Row]:
        return [
            ("trace", "MB", self.size / 1e6),
            ("digest", "MB/s", self.size / 1e6 / self.seconds),
            ("grep -c opCount", "MB/s", self.size / 1e6 / self.grep),
            ("largest process", "MB", self.peak),
            ("answer", "KB", self.answer / 1e3),
            ("state", "KB", self.state / 1e3),
        ]


def write(path: Path, nodes: int, size: int) -> None:
    """A trace of at least so many bytes. No more than a line of it is held."""
    written = 0
    with path.open("wb") as file:
        for line in Trace(nodes=nodes, steps=size).lines():
            written += file.write(line)
            if written >= size:
                break


def cost(folder: Path, nodes: int, size: int) -> Cost:
    trace, state, answer = folder / "trace", folder / "state", folder / "answer"
    write(trace, nodes, size)
    began = time.perf_counter()
    subprocess.run(["grep", "-c", "opCount", str(trace)], check=True, capture_output=True)
    grep = time.perf_counter() - began
    used = Measured(
        [sys.executable, "-I", nccl.__file__, "--state", str(state), str(trace)], cwd=folder, out=answer
    ).wait()
    digest = read_digest(answer.read_bytes())
    assert digest.done
    assert len(digest.members()) == 8 * nodes
    found = Cost(
        trace.stat().st_size, used.wall, grep, used.peak, answer.stat().st_size, state.stat().st_size
    )
    for path in (trace, state, answer):
        path.unlink()
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        for nodes in (FEW, MANY):
            short, long = (cost(Path(name), nodes, size) for size in (SHORT, LONG))
            print_table(f"an NCCL trace of {8 * nodes} ranks", ("short", "long"), (short.rows(), long.rows()))
            more = long.peak - short.peak
            print_target(f"memory is flat, within {MORE:.0f} MB", more <= MORE, f"{more:.1f} MB more")


if __name__ == "__main__":
    main()
