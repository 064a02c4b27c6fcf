"""Training logs, read as a stream: bytes in, steps out. Nothing here does I/O.

A parser reports only what a line states. What that means for the case is judged in `plugins.judging.validity`. It raises
nothing, whatever the bytes are, and its memory does not grow with the log, only with the number of its steps.
"""

from __future__ import annotations

import re
from abc import ABC
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import replace
from datetime import UTC
from datetime import datetime
from decimal import Decimal
from typing import Literal
from typing import Protocol

from plugins.logs.lines import hints_in
from plugins.logs.lines import telling_lines
from plugins.logs.marks import MARKS
from plugins.logs.marks import Mark
from plugins.logs.statements import COMMON
from plugins.logs.statements import Fact
from plugins.logs.statements import Statement
from plugins.logs.statements import Statements
from plugins.logs.versions import Versions
from plugins.recipes.file import FlopsName

# Longer than any line a recipe prints; what goes beyond is cut, so that memory stays flat on a broken log.
MAX_LINE = 1 << 16

# More than any recipe runs or any job restarts; what goes beyond is not kept, for the same reason.
MAX_STEPS = 1 << 17
MAX_RESTARTS = 100
MAX_SAVES = 16

# A number as any framework prints it. Bounded, because a broken log can hold a megabyte of digits.
NUMBER = r"-?\d{1,15}(?:\.\d{1,24})?(?:e[+-]?\d{1,2})?|-?nan|-?inf"

# Control sequences of a terminal: CSI, and OSC up to its end. Within a word or a number one is left as it is: what stands on its two sides
# may be of two processes.
_SEQUENCE = r"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,512}(?:\x07|\x1b\\))"
_COLOUR = re.compile(rf"(?<![\w.+-]){_SEQUENCE}|{_SEQUENCE}(?![\w.+-])")

Tells = Literal["", "rate", "configuration"]


@dataclass(frozen=True)
class Span:
    """What a rounded figure may have been, both ends included."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True)
class Step:
    """One training step as the log states it; `None` is "not stated".

    `index` is the 0-based physical step, however the format counts. `seconds` is the step time, `resolution` half a
    unit of its last printed digit (both in seconds); `consumed_resolution` is that of `consumed_samples`, 0 where
    the format prints the whole number. `tokens` are those of the global batch (0: processes contradict each other).
    `tokens_per_gpu` and `flops_per_gpu` are what one device did in this step, as far as its printed rate and time
    tell; `disagreeing` processes printed different losses. `skipped_iterations` and `nan_iterations` count the steps without an
    update. `stamp` is when its line was printed, in seconds of any clock that goes on, and `stamp_resolution` half a unit of it.

    Where every process prints the step, `ranks` counts their lines, `seconds` is their median, and
    `slowest_seconds` is the longest, of process `slowest_rank` where the line names it.
    """

    index: int
    seconds: float | None
    resolution: float = 0.0
    gbs: int | None = None
    consumed_samples: int | None = None
    consumed_resolution: float = 0.0
    tokens: int | None = None
    tokens_per_gpu: Span | None = None
    flops_per_gpu: Span | None = None
    tflops_per_gpu: float | None = None
    loss: float | None = None
    grad_norm: float | None = None
    skipped_iterations: int | None = None
    nan_iterations: int | None = None
    disagreeing: bool = False
    stamp: float | None = None
    stamp_resolution: float = 0.5
    ranks: int = 1
    slowest_seconds: float | None = None
    slowest_rank: int | None = None


@dataclass(frozen=True)
class Log:
    """What a log says about its last attempt.

    `steps` are in the order of their first line, without repeats; `repeated` are indices that were printed more
    than once. `restarted_after` has the last step of each earlier attempt in the same file. `planned` is the
    number of steps that the run itself announced, `facts` what it states of its configuration. `marks` are lines that spoil a timed run, by kind.
    `captured_after` is the newest step when a profiler began to record last, None where none did. `versions` are of what the run was made with, as it printed them; a name more than once where nodes differ. `saves` are the seconds that each checkpoint took, and
    `saved_bytes` is what was there of it at the end, where the launcher looks. `peak_tflops` is the machine's own matrix product rate, where the run measured it.

    `interval`: every figure of a step is a mean over this many steps, of which `index` is the last; steps between
    are stated by no line (0: a single line, which does not tell). `ranks` is the number of processes that print
    each step, where all of them do. `profiling_steps` counts those of a profiling run that the recipe makes before
    the timed one. `flops` are the ways in which the format has counted the model FLOPs of a rate that it prints. `tells` is what of this
    format says which model ran, when it is there: a "rate", the "configuration", "" where nothing does. `queued`: it prints when the
    host had handed over a step, which may be before the GPU has done it.
    """

    steps: tuple[Step, ...] = ()
    planned: int | None = None
    facts: tuple[Fact, ...] = ()
    repeated: tuple[int, ...] = ()
    restarted_after: tuple[int, ...] = ()
    marks: tuple[tuple[str, str], ...] = ()
    captured_after: int | None = None
    versions: tuple[tuple[str, str], ...] = ()
    saves: tuple[float, ...] = ()
    saved_bytes: int | None = None
    peak_tflops: float | None = None
    interval: int = 1
    ranks: int | None = None
    profiling_steps: int = 0
    flops: tuple[FlopsName, ...] = ("full-attention",)
    queued: bool = False
    tells: Tells = ""
    size: int = 0

    def beside(self, other: Log) -> Log:
        """This log, with what another one of the same run tells besides its steps: what spoilt it, its facts and its versions."""
        marks, versions = dict(self.marks), dict(self.versions)
        facts = {(fact.name, fact.value): fact for fact in (*other.facts, *self.facts)}
        return replace(
            self,
            facts=tuple(facts.values()),
            marks=(*self.marks, *(mark for mark in other.marks if mark[0] not in marks)),
            versions=(*self.versions, *(pair for pair in other.versions if pair[0] not in versions)),
        )

    @property
    def last_index(self) -> int | None:
        return max((step.index for step in self.steps), default=None)


class LogParser(Protocol):
    """Feed it the log's bytes in any pieces; ask for the log so far at any time.

    `hints` are the substrings without which a line is no step; `wanted` those without which a line says nothing
    that is not known already: the hints, and those of marks and versions that are not known so far.
    """

    hints: tuple[bytes, ...]
    wanted: tuple[bytes, ...]

    def feed(self, data: bytes) -> None: ...
    def log(self) -> Log: ...
    def finish(self) -> Log: ...


class LineParser(ABC):
    """Cuts out the lines that matter and keeps the books of steps, attempts and marks; a format adds `read_line`.

    `asides` are substrings of lines that are no steps and tell something all the same, which `read_aside` takes. `statements` are
    the lines of this format that state facts, `tells` as in `Log`.

    A line is ended by a line feed or a carriage return. The rest behind the last one is read by `finish`
    only, with `ended=False`, because its last number may be cut short.
    """

    hints: tuple[bytes, ...] = ()
    asides: tuple[bytes, ...] = ()
    marks: tuple[Mark, ...] = MARKS
    statements: tuple[Statement, ...] = ()
    tells: Tells = ""

    def __init__(self) -> None:
        self._rest = b""
        self._log = Log()
        self._steps: dict[int, Step] = {}
        self._repeated: set[int] = set()
        self._restarts: list[int] = []
        self._marks: dict[str, str] = {}
        self._versions = Versions()
        self._stated = Statements((*COMMON, *self.statements))
        self._last: int | None = None
        self.wanted = self._telling()

    @abstractmethod
    def read_line(self, line: str, *, ended: bool) -> None:
        """Take one line that has a hint in it."""

    def read_aside(self, line: str) -> None:  # noqa: B027 - most formats have none
        """Take one line that has one of `asides` in it."""

    def feed(self, data: bytes) -> None:
        self._log = replace(self._log, size=self._log.size + len(data))
        buffer = self._rest + data.replace(b"\r", b"\n")
        end = buffer.rfind(b"\n") + 1
        self._read(buffer, end, ended=True)
        self._rest = buffer[end : end + MAX_LINE]

    def log(self) -> Log:
        # An attempt that has begun is the last one, also before its first step.
        steps = () if self._stated.begun else tuple(self._steps.values())
        ended = [max(self._steps)] if self._steps and not steps else []
        return replace(
            self._log,
            steps=steps,
            facts=self._stated.facts,
            repeated=tuple(sorted(self._repeated)) if steps else (),
            restarted_after=(*self._restarts, *ended),
            marks=tuple(self._marks.items()),
            versions=self._versions.pairs,
            tells=self.tells,
        )

    def finish(self) -> Log:
        self._read(self._rest, len(self._rest), ended=False)
        self._rest = b""
        return self.log()

    def _read(self, buffer: bytes, end: int, *, ended: bool) -> None:
        for start, stop in telling_lines(buffer, end, self.wanted):
            raw = buffer[start:stop]
            whole = ended and stop - start < MAX_LINE
            found = hints_in(raw, self.wanted)
            if not found.isdisjoint(self.hints):
                self.read_line(_text(raw), ended=whole)
            if whole and not found.isdisjoint(self._stated.hints) and self._stated.read(raw, _text(raw)):
                self.wanted = self._telling()
            if not found.isdisjoint(self.asides):
                self.read_aside(_text(raw))
            for mark in self.marks:
                if mark.kind not in self._marks and not found.isdisjoint(mark.hints):
                    self._read_mark(mark, _text(raw))
            if whole and not found.isdisjoint(self._versions.hints):
                self._versions.read(_text(raw))
                self.wanted = self._telling()

    def _read_mark(self, mark: Mark, line: str) -> None:
        if mark.pattern.search(line):
            self.spoilt(mark.kind, line)

    def spoilt(self, kind: str, line: str) -> None:
        """Something makes the run no timed one. The first line that says so is enough: a trace prints millions."""
        said = line.strip()[:300].encode(errors="replace").decode()
        self._marks.setdefault(kind, said)
        self.wanted = self._telling()

    def _telling(self) -> tuple[bytes, ...]:
        """The substrings to search for: those of steps, and of the marks and versions that are not known so far."""
        marks = (h for mark in self.marks if mark.kind not in self._marks for h in mark.hints)
        return (*self.hints, *self._stated.hints, *self.asides, *marks, *self._versions.hints)

    def add(self, step: Step) -> None:
        """Book a step. Going back to an earlier one is a new attempt, and so is any behind the beginning of one; the same one again is a repeat.

        Not so the only one so far: an attempt may die after its first line. Were it another process's, the next line
        would be a repeat too.
        """
        back = step.index in self._steps and (
            len(self._steps) == 1 or (self._last is not None and step.index < self._last)
        )
        anew = back or (self._stated.begun and bool(self._steps))
        if anew:
            self.begins_anew()
        self._stated.stepped(anew=anew)
        if step.index in self._steps:
            self._repeated.add(step.index)
        elif len(self._steps) < MAX_STEPS:
            self._steps[step.index] = step
        self._last = step.index

    def begins_anew(self) -> None:
        """What follows is of another attempt; nothing of the one before is kept but its last step."""
        self.restarted_after(max(self._steps))
        self._steps.clear()
        self._repeated.clear()
        self._log = replace(self._log, saves=(), saved_bytes=None)

    def restarted_after(self, index: int) -> None:
        """An attempt ended with this step and another one began."""
        if len(self._restarts) < MAX_RESTARTS:
            self._restarts.append(index)

    def plan(self, steps: int) -> None:
        """The run announced this number of steps; a second, different number is kept as 0 (contradictory)."""
        known = self._log.planned
        self._log = replace(self._log, planned=steps if known in (None, steps) else 0)

    def saved(self, seconds: float) -> None:
        """A checkpoint was written in this time."""
        if len(self._log.saves) < MAX_SAVES:
            self._log = replace(self._log, saves=(*self._log.saves, seconds))

    def found(self, saved_bytes: int) -> None:
        """The launcher counted what was written."""
        self._log = replace(self._log, saved_bytes=saved_bytes)

    def measured_peak(self, tflops: float) -> None:
        """The run measured its machine; of several measurements the best one counts."""
        self._log = replace(self._log, peak_tflops=max(tflops, self._log.peak_tflops or 0.0))


def _text(raw: bytes) -> str:
    """The line without the sequences that colour it."""
    text = raw[:MAX_LINE].decode("utf-8", errors="replace")
    return _COLOUR.sub("", text) if "\x1b" in text else text


def number(text: str | None) -> float | None:
    """The value of a `NUMBER`."""
    return None if text is None else float(text)


def integer(text: str | None) -> int | None:
    """The value of a `NUMBER` that is printed as a whole number; None for any other."""
    return int(text) if text is not None and text.lstrip("-").isdigit() else None


def seconds_of(clock: str) -> float | None:
    """`2025-01-01 12:00:00`, with or without a fraction, in seconds since the epoch as if it were UTC; None for anything else."""
    try:
        return datetime.fromisoformat(clock).replace(tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        return None


def resolution(number: str, significant: int | None = None) -> float:
    """Half a unit of the last digit that a format can print.

    `significant` is the format's number of significant digits, where it drops trailing zeros (`12.3` printed
    with 4 digits is 12.30); without it the digits behind the point count as they stand.
    """
    value = Decimal(number)
    exponent = value.as_tuple().exponent if significant is None else value.adjusted() - significant + 1
    return 0.5 * 10.0 ** int(exponent)


def worked(seconds: str, rate: str, unit: float) -> Span | None:
    """What was done in a step, from its time and its rate as printed: both are rounded. None where the rate is no number."""
    if not rate[-1].isdigit():
        return None
    low, high = (
        (float(seconds) + sign * resolution(seconds)) * (float(rate) + sign * resolution(rate))
        for sign in (-1, 1)
    )
    return Span(low * unit, high * unit)


def parser(name: str) -> LogParser:
    """The parser of a log format by its name in `recipe.yaml`."""
    from plugins.logs.dllogger import DLLogger
    from plugins.logs.maxtext import MaxText
    from plugins.logs.megatron_bridge import MegatronBridge
    from plugins.logs.megatron_lm import MegatronLM
    from plugins.logs.nemo1 import NeMo1
    from plugins.logs.nemo2 import NeMo2

    formats: dict[str, type[LineParser]] = {
        "nemo1": NeMo1,
        "nemo2": NeMo2,
        "maxtext": MaxText,
        "megatron_lm": MegatronLM,
        "megatron_bridge": MegatronBridge,
        "dllogger": DLLogger,
    }
    return formats[name]()


def read(name: str, pieces: Iterator[bytes]) -> Log:
    """A whole log from its pieces."""
    reader = parser(name)
    for piece in pieces:
        reader.feed(piece)
    return reader.finish()
