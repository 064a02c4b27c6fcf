"""What it costs to digest an NCCL trace where it lies, beside `grep -c` on the same file: CPU seconds, memory, and what comes back.

Each in a process of its own, of a short trace and of a long one: memory is flat where both take the same.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from plugins.logs import nccl
from plugins.modes.traces import read_digest
from tests.bench.report import Row, print_table, print_target
from tests.unit.modes.traces import Trace

SHORT, LONG = 2 * 10**7, 2 * 10**9
FEW, MANY = 2, 256
"""Nodes of eight GPUs."""
MORE = 32.0
"""MB that a trace may take besides, however long it is."""

# What `wait` says of a process would count this one, which it was before.
_ALONE = """
import atexit, pathlib, runpy, sys, time
def say():
    held = pathlib.Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]
    pathlib.Path("used").write_text(f"{time.process_time()} {held}")
atexit.register(say)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@dataclass(frozen=True)
class Cost:
    """`peak` in MB, of the whole process; `seconds` are those of a processor; `answer` in bytes."""

    size: int
    seconds: float
    grep: float
    peak: float
    answer: int

    def rows(self) -> list[Row]:
        return [
            ("trace", "MB", self.size / 1e6),
            ("digest", "MB a CPU second", self.size / 1e6 / self.seconds),
            ("grep -c opCount", "MB a CPU second", self.size / 1e6 / self.grep),
            ("memory", "MB", self.peak),
            ("answer", "KB", self.answer / 1e3),
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
    trace, used = folder / "trace", folder / "used"
    write(trace, nodes, size)
    before = children()
    subprocess.run(["grep", "-c", "opCount", str(trace)], check=True, capture_output=True)
    grep = children() - before
    command = [sys.executable, "-I", "-c", _ALONE, nccl.__file__, str(trace)]
    answer = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE).stdout
    seconds, peak = used.read_text().split()
    digest = read_digest(answer)
    assert digest.done
    assert len(digest.members()) == 8 * nodes
    found = Cost(trace.stat().st_size, float(seconds), grep, int(peak) / 1024, len(answer))
    for path in (trace, used):
        path.unlink()
    return found


def children() -> float:
    """CPU seconds of the processes that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        for nodes in (FEW, MANY):
            short, long = (cost(Path(name), nodes, size) for size in (SHORT, LONG))
            print_table(f"an NCCL trace of {8 * nodes} ranks", ("short", "long"), (short.rows(), long.rows()))
            more = long.peak - short.peak
            print_target(
                f"memory is flat, within {MORE:.0f} MB, {8 * nodes} ranks",
                more <= MORE,
                f"{more:.1f} MB more",
            )


if __name__ == "__main__":
    main()
