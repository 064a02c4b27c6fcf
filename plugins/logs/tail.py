"""The last steps of a finished log, found from its end: a log of many GB costs a few hundred kB of reading.

What stands further up is not seen, marks and restarts included, so this is a quick look, and no evidence for a
verdict.
"""

from __future__ import annotations

from collections.abc import Callable

from plugins.errors import PacemarkError
from plugins.logs import MAX_LINE
from plugins.logs import Step
from plugins.logs import parser
from plugins.logs import telling_lines
from plugins.logs.runs import LATE

FIRST_BLOCK = 1 << 16
LARGEST_BLOCK = 1 << 22


class TailError(PacemarkError):
    """`read` did not give the bytes that it was asked for: the log is not finished, or was cut."""


def tail(
    name: str, read: Callable[[int, int], bytes], size: int, count: int, limit: int = 1 << 26
) -> tuple[Step, ...]:
    """The last `count` steps of the last attempt, fewer where there are no more.

    `name` is the log's format, `size` its length in bytes, `read(offset, length)` its bytes. No more than `limit`
    bytes are read, so that a log without steps ends as well.

    Raises:
        TailError: `read` gave more or fewer bytes than it was asked for.
    """
    hints = parser(name).hints
    steps: tuple[Step, ...] = ()
    text = carry = b""
    end, block = size, FIRST_BLOCK
    while end > max(0, size - limit):
        start = max(0, end - block)
        data = read(start, end - start)
        if len(data) != end - start:
            raise TailError(f"asked for {end - start} bytes of the log at {start}, got {len(data)}")
        buffer = data.replace(b"\r", b"\n") + carry
        # The first line may have begun further up, unless this is where the log begins.
        cut = buffer.find(b"\n") + 1 or len(buffer)
        carry, buffer = (_shortened(buffer[:cut]), buffer[cut:]) if start else (b"", buffer)
        lines = telling_lines(buffer, len(buffer), hints)
        if lines:
            text = b"".join(_shortened(buffer[a : b + 1]) for a, b in lines) + text
            reader = parser(name)
            reader.feed(text)
            log = reader.finish()
            steps = log.steps
            # Of the first steps in view, lines of other processes may stand further up, as late as they can be.
            if len(steps) > count + LATE or log.restarted_after:
                break
        end, block = start, min(2 * block, LARGEST_BLOCK)
    return steps[-count:]


def _shortened(line: bytes) -> bytes:
    """At most what a parser reads of a line, still as long as one that it knows to be cut."""
    return line if len(line) <= MAX_LINE else line[:MAX_LINE] + b"\n"
