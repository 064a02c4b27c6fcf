"""Cleans up behind a lab whose owner was killed: `python -m tests.lab.reaper ROOT [--keep]`, input a pipe.

The owner (pytest) holds the other end of the pipe. However the owner dies, `kill -9` included, the kernel
closes that end, and the reaper ends every process of the lab and removes its folder (or keeps it). A
parent-death signal on each daemon would miss slurmstepd and the jobs, which are not the owner's children.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

from tests.lab.daemons import sweep

REPOSITORY = Path(__file__).resolve().parents[2]


def start(root: Path, *, keep: bool) -> subprocess.Popen[bytes]:
    """Let a reaper watch over the lab at `root`; close its input, and wait for it, when the lab has ended."""
    argv = [sys.executable, "-m", "tests.lab.reaper", str(root), *(["--keep"] if keep else [])]
    return subprocess.Popen(argv, cwd=REPOSITORY, stdin=subprocess.PIPE, start_new_session=True)


def main(root: Path, *, keep: bool) -> int:
    """Wait for the end of standard input, then sweep; 1 if something outlived it."""
    # Whoever signals a whole group on the way out must not take the cleaner first.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    left = sweep(root)
    if not keep:
        shutil.rmtree(root, ignore_errors=True)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), keep="--keep" in sys.argv[2:]))
