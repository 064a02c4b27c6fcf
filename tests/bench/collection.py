"""What collecting all suites costs above an empty pytest run: both side by side, in turns, wall time of the process."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 9


def seconds(*command: str, cwd: Path) -> float:
    start = time.perf_counter()
    subprocess.run(command, cwd=cwd, check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> None:
    pytest = (sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider")
    with tempfile.TemporaryDirectory() as name:
        empty = Path(name)
        (empty / "test_nothing.py").write_text("def test_nothing():\n    pass\n")
        pairs = [(seconds(*pytest, cwd=empty), seconds(*pytest, "suites", cwd=ROOT)) for _ in range(ROUNDS)]
    nothing, suites = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(
        f"collection, median of {ROUNDS}: empty {nothing:.3f} s, suites {suites:.3f} s, "
        f"{suites - nothing:+.3f} s, ratio {suites / nothing:.2f}"
    )


if __name__ == "__main__":
    main()
