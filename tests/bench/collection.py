"""What collecting costs above an empty pytest run: all side by side, in turns, wall time of the process."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench import checkout
from tests.bench.report import print_target

ROUNDS = 9
FEW_ROUNDS = 3
SIZES, SCALES = 100, 100

_PLAIN = """\
import pytest


@pytest.mark.parametrize("case", range({cases}))
def test_nothing(case):
    pass
"""


def seconds(*command: str, cwd: Path) -> float:
    start = time.perf_counter()
    subprocess.run(command, cwd=cwd, check=True, capture_output=True)
    return time.perf_counter() - start


def medians(rounds: int, *folders: tuple[str, Path]) -> list[float]:
    """Median seconds to collect (what, in which folder), in turns."""
    pytest = (sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider")
    turns = [[seconds(*pytest, what, cwd=folder) for what, folder in folders] for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*turns, strict=True)]


def main() -> None:
    cases = SIZES * SCALES
    with tempfile.TemporaryDirectory() as name:
        empty, plain = Path(name) / "empty", Path(name) / "plain"
        for folder, text in ((empty, "def test_nothing():\n    pass\n"), (plain, _PLAIN.format(cases=cases))):
            folder.mkdir()
            (folder / "test_nothing.py").write_text(text)
        nothing, suites = medians(ROUNDS, (".", empty), ("suites", checkout.ROOT))
        print_target(
            "collecting suites <= 1.4 x an empty session",
            suites <= 1.4 * nothing,
            f"{suites / nothing:.2f} x {nothing:.2f} s, median of {ROUNDS}",
        )
        made = checkout.make(Path(name) / "checkout", SIZES, SCALES)
        nothing, bare, many = medians(FEW_ROUNDS, (".", empty), (".", plain), ("suites", made))
        tests, ours = bare - nothing, many - nothing
        print_target(
            f"collecting {cases:,} cases <= 1.5 x as many bare tests",
            ours <= 1.5 * tests,
            f"{ours / tests:.2f} x, +{ours:.2f} s and +{tests:.2f} s above {nothing:.2f} s, median of {FEW_ROUNDS}",
        )


if __name__ == "__main__":
    main()
