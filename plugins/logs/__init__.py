"""What a training log states, and the parser that reads it as a stream. Pure.

A parser accepts any bytes without an exception. Its memory grows with the number of steps, not with the
length of the log. `plugins.judging.validity` says what a log means for the case.
"""

from __future__ import annotations

import re
import statistics
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from plugins.logs.lines import hints_in, telling_lines
from plugins.logs.marks import MARKS, Mark
from plugins.logs.origin import HEADER, HEADER_HINT, RESTART, RESTART_HINTS, label_of, stamp_of
from plugins.logs.processors import Sample
from plugins.logs.statements import COMMON, Fact, Statement, Statements
from plugins.logs.versions import Versions
from plugins.wrapped import plain

# Limits above what any recipe prints, so that a broken log cannot fill the memory. Longer lines are cut;
# further steps, restarts and checkpoints are not kept.
MAX_LINE = 1 << 16
MAX_STEPS = 1 << 17
MAX_RESTARTS = 100
MAX_SAVES = 16

# Control sequences of a terminal: CSI and OSC. One inside a word or a number stays, because the text before
# and after it may be of two processes.
_SEQUENCE = r"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,512}(?:\x07|\x1b\\))"
_COLOUR = re.compile(rf"(?<![\w.+-]){_SEQUENCE}|{_SEQUENCE}(?![\w.+-])")

Tells = Literal["", "rate", "configuration"]

FlopsName = Literal["full-attention", "causal-attention", "nemotron-24.11"]
"""How model FLOPs are counted (`plugins.metrics`)."""

PrintedMeans = Literal["none", "intervals", "moving", "separable"]
"""What means over several steps a format may print; `means` in `recipe.yaml` says over how many.

"intervals" are over the steps since the line before. "moving" ones have a line for each step; "separable" ones
have enough digits to compute the single steps too.
"""


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

    `index` is 0-based. `seconds` is the step time. Each `resolution` is half a unit of the last printed
    digit; that of `consumed_samples` is 0 if the format prints them in full. `tokens` are those of the global
    batch, or 0 if processes contradict each other. `tokens_per_gpu` and `flops_per_gpu` are the printed rate
    x time. `skipped_iterations` and `nan_iterations` count steps without an update. If `disagreeing`,
    processes printed different losses. `stamp` is when the line was printed, in seconds;
    if `collected`, when somebody else took it, which may be later.

    If every process prints the step, `ranks` counts their lines, `seconds` is their median, and
    `slowest_seconds` is the longest time, of process `slowest_rank` if the line names it.
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
    collected: bool = False
    ranks: int = 1
    slowest_seconds: float | None = None
    slowest_rank: int | None = None


class Attempt(NamedTuple):
    """An attempt that another one follows in the same log.

    `last` is its last step, `seconds` the median of its printed step times, if it is known. `mark` is the line behind
    it that says that the job is started again, "" if there is none.
    """

    last: int
    seconds: float | None = None
    mark: str = ""


@dataclass(frozen=True)
class Log:
    """What a log states of its last attempt.

    `steps` are in the order of their first lines; `repeated` are the indices that were printed again.
    `earlier` are the attempts before. `other_file` is what stands before a line with a step to say that it is another file's. `planned` is the number of steps that the run
    announced, or 0 if it announced different ones. `facts` are what it states of its configuration, `garbled`
    what other output made of such statements, `marks` the kinds and lines of what spoils a timed run. `captured_after` is the last step before a profiler began to record.
    `versions` are names and values; if nodes differ, a name has several. `saves` are the seconds of each
    checkpoint, by its slowest rank, `saved_bytes` the size that the launcher counts at the end. `loaded` are
    the seconds in which the slowest rank loaded a checkpoint, `restored` is its path. `peak_tflops` is the
    rate of matrix products that the run measured, `processors` says who had the processors during its steps.
    `activity` is what its program says that it does now, before the first step.

    There is a line for `every` steps, of which `index` is the last; 0 means that a single line does not tell
    it. `ranks` is the number of processes that print each step. `profiling_steps` counts the steps of a
    profiling run before the timed one. `flops` are the definitions by which the format has counted FLOPs.
    `tells` is what identifies the model in this format: its "rate", its "configuration", or "" for nothing.
    If `queued`, a step is printed when it is handed to the GPU, which may be before it is done.
    """

    steps: tuple[Step, ...] = ()
    planned: int | None = None
    facts: tuple[Fact, ...] = ()
    garbled: tuple[Fact, ...] = ()
    repeated: tuple[int, ...] = ()
    earlier: tuple[Attempt, ...] = ()
    other_file: str = ""
    marks: tuple[tuple[str, str], ...] = ()
    captured_after: int | None = None
    versions: tuple[tuple[str, str], ...] = ()
    saves: tuple[float, ...] = ()
    saved_bytes: int | None = None
    loaded: float | None = None
    restored: str = ""
    peak_tflops: float | None = None
    processors: tuple[Sample, ...] = ()
    activity: str = ""
    every: int = 1
    ranks: int | None = None
    profiling_steps: int = 0
    flops: tuple[FlopsName, ...] = ("full-attention",)
    queued: bool = False
    tells: Tells = ""
    size: int = 0

    def beside(self, other: Log) -> Log:
        """This log with the marks, facts and versions of another log of the same run."""
        marks, versions = dict(self.marks), dict(self.versions)
        facts = {(fact.name, fact.value): fact for fact in (*other.facts, *self.facts)}
        return replace(
            self,
            facts=tuple(facts.values()),
            garbled=(*self.garbled, *other.garbled),
            marks=(*self.marks, *(mark for mark in other.marks if mark[0] not in marks)),
            versions=(*self.versions, *(pair for pair in other.versions if pair[0] not in versions)),
        )

    @property
    def restarted_after(self) -> tuple[int, ...]:
        """The last step of each earlier attempt."""
        return tuple(attempt.last for attempt in self.earlier)

    @property
    def last_index(self) -> int | None:
        return max((step.index for step in self.steps), default=None)


class LineParser(ABC):
    """Takes the log's bytes in pieces of any size, and returns the log so far. A format adds `read_line`.

    A format declares its `name` in `recipe.yaml`, the `means` that it can print, whether it states how long a
    checkpoint took (`times_saves`), and its `statements`. `tells` is as in `Log`. A line with one of `hints`
    goes to `read_line`, one with one of `asides` to `read_aside`. `wanted` are all substrings that are still
    looked for.

    A line ends with a line feed or a carriage return. `finish` reads the rest with `ended=False`, because its
    last number may be cut short.
    """

    name: str
    means: PrintedMeans = "none"
    times_saves: bool = False
    hints: tuple[bytes, ...] = ()
    asides: tuple[bytes, ...] = ()
    statements: tuple[Statement, ...] = ()
    tells: Tells = ""

    def __init__(self) -> None:
        self._rest = b""
        self._log = Log()
        self._steps: dict[int, Step] = {}
        self._repeated: set[int] = set()
        self._earlier: list[Attempt] = []
        self._restarter = ""
        self._header = ""
        self.stamp: float | None = None
        self.marks = tuple(MARKS.values())
        self._marks: dict[str, str] = {}
        self._saves: dict[int, float] = {}
        self._versions = Versions()
        self._stated = Statements((*COMMON, *self.statements))
        self._last: int | None = None
        self.wanted = self._telling()

    @abstractmethod
    def read_line(self, line: str, *, ended: bool) -> None:
        """Take a line that contains one of `hints`."""

    def read_aside(self, line: str) -> None:  # noqa: B027 - most formats have none
        """Take a line that contains one of `asides`."""

    def feed(self, data: bytes) -> None:
        self._log = replace(self._log, size=self._log.size + len(data))
        buffer = self._rest + data.replace(b"\r", b"\n")
        end = buffer.rfind(b"\n") + 1
        self._read(buffer, end, ended=True)
        self._rest = buffer[end : end + MAX_LINE]

    def log(self) -> Log:
        # If another attempt has begun, it is the last one, even before its first step.
        steps = () if self._stated.begun else tuple(self._steps.values())
        ended = [self._ended()] if self._steps and not steps else []
        return replace(
            self._log,
            steps=steps,
            facts=self._stated.facts,
            garbled=self._stated.garbled,
            repeated=tuple(sorted(self._repeated)) if steps else (),
            earlier=(*self._earlier, *ended),
            marks=tuple(self._marks.items()),
            versions=self._versions.pairs,
            saves=tuple(self._saves.values()),
            tells=self.tells,
        )

    def finish(self) -> Log:
        self._read(self._rest, len(self._rest), ended=False)
        self._rest = b""
        return self.log()

    def _read(self, buffer: bytes, end: int, *, ended: bool) -> None:
        for start, stop in telling_lines(buffer, end, self.wanted):
            lines, whole = plain(buffer[start:stop])
            for line in lines:
                self._read_one(line, ended=ended and whole)

    def _read_one(self, raw: bytes, *, ended: bool) -> None:
        whole = ended and len(raw) < MAX_LINE
        found = hints_in(raw, self.wanted)
        self._read_origin(found, raw)
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

    def _read_origin(self, hints: set[bytes], raw: bytes) -> None:
        """Note that the job is started again, and that a line with a step, or the lines that follow, are another file's."""
        if not hints.isdisjoint(RESTART_HINTS) and (restart := RESTART.search(_text(raw))):
            self._restarter = restart[0]
        if HEADER_HINT in hints and (header := HEADER.search(_text(raw))):
            self._header = header["file"]
        if hints.isdisjoint(self.hints):
            return
        line = _text(raw)
        self.stamp = stamp_of(line)
        if label := self._header or label_of(line):
            self._log = replace(self._log, other_file=self._log.other_file or label)

    def _read_mark(self, mark: Mark, line: str) -> None:
        if mark.pattern.search(line):
            self.spoilt(mark.kind, line)

    def spoilt(self, kind: str, line: str) -> None:
        """Keep the first line of a mark: a trace prints millions."""
        said = line.strip()[:300].encode(errors="replace").decode()
        self._marks.setdefault(kind, said)
        self.wanted = self._telling()

    def _telling(self) -> tuple[bytes, ...]:
        """The substrings to search for. Marks and versions that are known are not looked for."""
        marks = (h for mark in self.marks if mark.kind not in self._marks for h in mark.hints)
        origin = (*RESTART_HINTS, HEADER_HINT)
        return (*self.hints, *self._stated.hints, *self.asides, *origin, *marks, *self._versions.hints)

    def add(self, step: Step) -> None:
        """Record a step. Going back to an earlier step begins another attempt.

        The same step again is a repeat, unless it is the only one so far: an attempt may die after its first
        line. If another process printed it, the next line is a repeat too.
        """
        if step.stamp is None and self.stamp is not None:
            step = replace(step, stamp=self.stamp, collected=True)
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
        """Begin another attempt. Of the one before, only the last step is kept."""
        self.ended(self._ended())
        self._steps.clear()
        self._repeated.clear()
        self._saves.clear()
        self._log = replace(self._log, saved_bytes=None)

    def _ended(self) -> Attempt:
        return attempt(self._steps.values(), self._restarter)

    def ended(self, attempt: Attempt) -> None:
        """An attempt ended and another one began."""
        if len(self._earlier) < MAX_RESTARTS:
            self._earlier.append(attempt)
        self._restarter = ""

    def plan(self, steps: int) -> None:
        """The run announced this number of steps; 0 is kept if it announced another one before."""
        known = self._log.planned
        self._log = replace(self._log, planned=steps if known in (None, steps) else 0)

    def saved(self, seconds: float, iteration: int | None = None) -> None:
        """A checkpoint was written in this time.

        If each rank says so, `iteration` tells one checkpoint from another, and the slowest rank counts.
        """
        key = -1 - len(self._saves) if iteration is None else iteration
        if key in self._saves or len(self._saves) < MAX_SAVES:
            self._saves[key] = max(seconds, self._saves.get(key, 0.0))

    def loaded(self, seconds: float) -> None:
        """A rank has loaded a checkpoint in this time; the slowest one counts."""
        self._log = replace(self._log, loaded=max(seconds, self._log.loaded or 0.0))

    def restored(self, path: str) -> None:
        """The checkpoint at this path was loaded."""
        self._log = replace(self._log, restored=path)

    def found(self, saved_bytes: int) -> None:
        """The launcher counted the bytes of the checkpoint."""
        self._log = replace(self._log, saved_bytes=saved_bytes)

    def measured_peak(self, tflops: float) -> None:
        """The run measured its machine; the highest value counts."""
        self._log = replace(self._log, peak_tflops=max(tflops, self._log.peak_tflops or 0.0))


def attempt(steps: Iterable[Step], mark: str = "") -> Attempt:
    """An attempt of these steps that is over."""
    steps = list(steps)
    seconds = [step.seconds for step in steps if step.seconds is not None]
    return Attempt(max(step.index for step in steps), statistics.median(seconds) if seconds else None, mark)


def _text(raw: bytes) -> str:
    """The line without the sequences that colour it."""
    text = raw[:MAX_LINE].decode("utf-8", errors="replace")
    return _COLOUR.sub("", text) if "\x1b" in text else text
