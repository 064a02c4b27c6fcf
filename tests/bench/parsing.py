"""How fast whole logs are parsed, beside `grep -c` on the same file: in turns, the best of each, files in the cache.

The logs are mostly lines that say nothing about steps, as real ones are.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from plugins.logs.formats import read
from tests.bench.report import print_target
from tests.printed import maxtext, nemo2

SIZE = 10**9
PIECE = 1 << 20
ROUNDS = 3
CHATTER = (
    b"[NeMo W 2025-04-11 14:48:45 nemo_logging:405] a warning of some rank that says nothing about any step\n"
)
_METRICS: dict[str, float | str] = {
    "global_batch_size": 128,
    "global_step": "{i}",
    "reduced_train_loss": 11.96,
    "train_step_timing in s": 12.39,
    "consumed_samples": "{n}",
}
STEPS = {
    "nemo2": (nemo2.line("{i}", 49, _METRICS) + "\n", "train_step_timing"),
    "maxtext": (maxtext.line("{i}") + "\n", "completed step"),
}


def write(path: Path, line: str) -> None:
    between = CHATTER * (SIZE // 50 // len(CHATTER))
    with path.open("wb") as log:
        for i in range(50):
            log.write(between + line.format(i=i, n=(i + 1) * 128).encode())


def parse(name: str, path: Path) -> None:
    with path.open("rb") as log:
        steps = read(name, iter(lambda: log.read(PIECE), b"")).steps
    assert len(steps) == 50


def grep(path: Path, word: str) -> None:
    subprocess.run(["grep", "-c", word, str(path)], check=True, capture_output=True)


def rate(action: Callable[[], None], size: int) -> float:
    """Megabytes (1e6) a second of one go."""
    start = time.perf_counter()
    action()
    return size / (time.perf_counter() - start) / 1e6


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, (line, word) in STEPS.items():
            path = Path(folder) / name
            write(path, line)
            size = path.stat().st_size
            goes = [
                (rate(partial(parse, name, path), size), rate(partial(grep, path, word), size))
                for _ in range(ROUNDS)
            ]
            ours, theirs = (max(column) for column in zip(*goes, strict=True))
            path.unlink()
            print_target(
                f"{name}: parse >= 1,500 MB/s",
                ours >= 1500,
                f"{ours:.0f} MB/s, grep -c '{word}' {theirs:.0f} MB/s, ratio {ours / theirs:.2f} ({size / 1e9:.1f} GB, best of {ROUNDS})",
            )


if __name__ == "__main__":
    main()
