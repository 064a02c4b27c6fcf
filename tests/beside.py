"""Two commands at once: `python -m tests.beside QUIET... -- LOUD...`.

What QUIET says is printed whole when both have ended; the status is 0 when both succeed. A terminal sends Ctrl-C to both
of them, and their own ends are waited for; SIGTERM and SIGHUP, which may be meant for `make` alone, are passed on. A shell
would make QUIET, and every session that its tests start, deaf to Ctrl-C.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from types import FrameType


def main(arguments: Sequence[str]) -> int:
    """Run both; 0, 1, or as shells tell it 128 + the signal that ended it."""
    cut = arguments.index("--")
    running: list[subprocess.Popen[bytes]] = []
    caught: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        caught.append(number)
        if number != signal.SIGINT:
            for process in running:
                process.terminate()

    # With a handler here they start with none, also where SIGINT is ignored, as in a script's background.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    # It has no name: nothing is left of it, whatever ends us.
    with tempfile.TemporaryFile() as said:
        running.append(
            subprocess.Popen(arguments[:cut], stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT)
        )
        running.append(subprocess.Popen(arguments[cut + 1 :]))
        if caught:
            # Too early for the second one to have got it.
            end(signal.SIGTERM, None)
        failed = [process.wait() for process in reversed(running)] != [0, 0]
        said.seek(0)
        # The terminal may be gone.
        with contextlib.suppress(OSError):
            shutil.copyfileobj(said, sys.stdout.buffer)
            sys.stdout.flush()
    return 128 + caught[0] if caught else int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
