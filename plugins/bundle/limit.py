"""Bounds how long files of a stranger keep this process busy, and shows meanwhile what it does."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from plugins.bundle.findings import Examination
from plugins.words import shown

SECONDS = 60.0
"""How long a bundle may take, unless the user gives it more."""

_TICK, _SHOWN_EVERY = 0.5, 5.0
# If what was raised was lost, as in a destructor, it is raised again. Until then the temporary folder is removed.
_AGAIN = 30.0


class TooLong(BaseException):
    """The time is over. It is no Exception, because what is wrong with a file of a stranger is caught as one."""


def add_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seconds",
        type=_seconds,
        default=SECONDS,
        metavar="N",
        help=f"how long to examine the bundle at most (default: {SECONDS:g}); what is not examined by then is not verified",
    )


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e7:
        raise argparse.ArgumentTypeError("is no time in seconds")
    return value


@contextmanager
def within(seconds: float, findings: Examination) -> Iterator[None]:
    """Let what is done here take so many seconds. If it takes longer, `findings` says so, and the rest is left out.

    Every 5 s a line on standard error says what is done. A signal tells the time, because it interrupts the search
    for a regular expression too; so this is for the main thread.
    """
    start = time.monotonic()
    shown_at = start

    def look(_number: int, _frame: FrameType | None) -> None:
        nonlocal shown_at
        now = time.monotonic()
        if now - start >= seconds:
            signal.setitimer(signal.ITIMER_REAL, _AGAIN, _AGAIN)
            raise TooLong
        if now - shown_at >= _SHOWN_EVERY:
            shown_at = now
            print(shown(f"{findings.doing}: {now - start:.0f} s of at most {seconds:g} s"), file=sys.stderr)

    before = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, _TICK, _TICK)
    try:
        yield
    except TooLong:
        findings.cut_off = True
        findings.cannot.append(
            f"after {seconds:g} s it was at {findings.doing}, and nothing after that was examined: --seconds N gives it more time"
        )
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
