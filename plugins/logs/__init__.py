"""Training logs, read as a stream: bytes in, steps out. Nothing here does I/O.

A parser reports only what a line states. What that means for the case is judged in `plugins.validity`.
"""

from __future__ import annotations

import re
from abc import ABC
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import replace
from decimal import Decimal
from typing import Protocol

# Longer than any line a recipe prints; what goes beyond is cut, so that memory stays flat on a broken log.
MAX_LINE = 1 << 16

# A number as any framework prints it. Bounded, because a broken log can hold a megabyte of digits.
NUMBER = r"-?\d{1,15}(?:\.\d{1,15})?(?:e[+-]?\d{1,2})?|-?nan|-?inf"


@dataclass(frozen=True)
class Step:
    """One training step as the log states it; `None` is "not stated".

    `seconds` is the step time, `resolution` half a unit of its last printed digit (both in seconds).
    """

    index: int
    seconds: float | None
    resolution: float = 0.0
    gbs: int | None = None
    consumed_samples: int | None = None
    tokens: int | None = None
    tflops_per_gpu: float | None = None
    loss: float | None = None
    grad_norm: float | None = None


@dataclass(frozen=True)
class Log:
    """What a log says about its last attempt.

    `steps` are in the order of their first line, without repeats; `repeated` are indices that were printed more
    than once. `restarted_after` has the last step of each earlier attempt in the same file. `planned` is the
    number of steps that the run itself announced. `marks` are lines that spoil a timed run, by kind.
    `peak_tflops` is the machine's own matrix product rate, where the run measured it.
    """

    steps: tuple[Step, ...] = ()
    planned: int | None = None
    repeated: tuple[int, ...] = ()
    restarted_after: tuple[int, ...] = ()
    marks: tuple[tuple[str, str], ...] = ()
    peak_tflops: float | None = None
    size: int = 0

    @property
    def last_index(self) -> int | None:
        return max((step.index for step in self.steps), default=None)


class LogParser(Protocol):
    """Feed it the log's bytes in any pieces; ask for the log so far at any time.

    `hints` are the substrings without which a line is no step.
    """

    hints: tuple[bytes, ...]

    def feed(self, data: bytes) -> None: ...
    def log(self) -> Log: ...
    def finish(self) -> Log: ...


# Each of these makes a step time incomparable with a baseline.
_MARKS = {
    "checkpoint": re.compile(
        r"Global Checkpoint (?:Save|Load) ?:|Successfully saved checkpoint from iteration"
    ),
    "nccl trace": re.compile(r"NCCL INFO \w+: opCount [0-9a-f]+ "),
    "profiler": re.compile(
        r"Generating '.*\.(?:qdstrm|nsys-rep)'|Capture range (?:started|ended) in the application"
    ),
    "socket fallback": re.compile(r"NCCL INFO Using network Socket"),
}
_MARK_HINTS = (b"Checkpoint", b"checkpoint", b"NCCL INFO", b"Generating", b"Capture range")


class LineParser(ABC):
    """Cuts bytes into lines and keeps the books of steps, attempts and marks; a format adds `read_line`.

    A line is ended by a line feed or a carriage return. The rest behind the last one is read by `finish`
    only, with `ended=False`, because its last number may be cut short.
    """

    hints: tuple[bytes, ...] = ()

    def __init__(self) -> None:
        self._rest = b""
        self._log = Log()
        self._steps: dict[int, Step] = {}
        self._repeated: set[int] = set()
        self._marks: dict[str, str] = {}
        self._last: int | None = None

    @abstractmethod
    def read_line(self, line: str, *, ended: bool) -> None:
        """Take one line that has a hint in it."""

    def feed(self, data: bytes) -> None:
        self._log = replace(self._log, size=self._log.size + len(data))
        *lines, rest = re.split(rb"[\r\n]", self._rest + data)
        self._rest = rest[:MAX_LINE]
        for line in lines:
            self._take(line, ended=True)

    def log(self) -> Log:
        return replace(
            self._log,
            steps=tuple(self._steps.values()),
            repeated=tuple(sorted(self._repeated)),
            marks=tuple(self._marks.items()),
        )

    def finish(self) -> Log:
        self._take(self._rest, ended=False)
        self._rest = b""
        return self.log()

    def _take(self, raw: bytes, *, ended: bool) -> None:
        # A substring search first: a log is mostly lines that say nothing about steps.
        if any(hint in raw for hint in self.hints):
            self.read_line(
                raw[:MAX_LINE].decode("utf-8", errors="replace"), ended=ended and len(raw) < MAX_LINE
            )
        if any(hint in raw for hint in _MARK_HINTS):
            text = raw[:MAX_LINE].decode("utf-8", errors="replace")
            for kind, pattern in _MARKS.items():
                if kind not in self._marks and pattern.search(text):
                    self._marks[kind] = text.strip()[:300]

    def add(self, step: Step) -> None:
        """Book a step. Going back to an earlier one is a new attempt; the same one again is a repeat."""
        if self._last is not None and step.index < self._last and step.index in self._steps:
            self._log = replace(self._log, restarted_after=(*self._log.restarted_after, max(self._steps)))
            self._steps.clear()
            self._repeated.clear()
        if step.index in self._steps:
            self._repeated.add(step.index)
        else:
            self._steps[step.index] = step
        self._last = step.index

    def plan(self, steps: int) -> None:
        """The run announced this number of steps; a second, different number is kept as 0 (contradictory)."""
        known = self._log.planned
        self._log = replace(self._log, planned=steps if known in (None, steps) else 0)

    def measured_peak(self, tflops: float) -> None:
        """The run measured its machine; of several measurements the best one counts."""
        self._log = replace(self._log, peak_tflops=max(tflops, self._log.peak_tflops or 0.0))


def resolution(number: str, significant: int | None = None) -> float:
    """Half a unit of the last digit that a format can print.

    `significant` is the format's number of significant digits, where it drops trailing zeros (`12.3` printed
    with 4 digits is 12.30); without it the digits behind the point count as they stand.
    """
    value = Decimal(number)
    exponent = value.as_tuple().exponent if significant is None else value.adjusted() - significant + 1
    return 0.5 * 10.0 ** int(exponent)


def parser(name: str) -> LogParser:
    """The parser of a log format by its name in `recipe.yaml`."""
    from plugins.logs.maxtext import MaxText
    from plugins.logs.nemo2 import NeMo2

    formats: dict[str, type[LineParser]] = {"nemo2": NeMo2, "maxtext": MaxText}
    return formats[name]()


def read(name: str, pieces: Iterator[bytes]) -> Log:
    """A whole log from its pieces."""
    reader = parser(name)
    for piece in pieces:
        reader.feed(piece)
    return reader.finish()
