"""The parser that reads a training log as a stream; each format is a subclass. Pure.

`Lines` finds the few lines that matter among millions that do not.
"""

from __future__ import annotations

import re
import statistics
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple

from ahocorasick_rs import BytesAhoCorasick, Implementation, MatchKind

from plugins.logs.log import Attempt, FlopsName, HostError, Log, Step, Tells
from plugins.logs.marks import MARKS, Mark
from plugins.logs.nodes import GPUS, SYMPTOM_HINTS, TransportLines, Versions, keep_symptoms
from plugins.logs.origin import BEGINNING, HEADER, ORIGIN_HINTS, RESTART, contents, label_of, plain, stamp_of
from plugins.logs.statements import COMMON, Statement, Statements, printable

MANY = 48
"""The library finds this many texts with SIMD. It is slower with more, and ten times slower from 65 on."""

SHARED = range(16, 6, -1)
"""The lengths of common substrings that are tried, longest first. A short one is in many lines without a hint."""

SPARSE = 1 << 11
"""If texts occur more than once in this many bytes, it is faster to search for the whole hints."""

PROBE = 1 << 16
"""This many bytes of a buffer are searched first, to learn whether texts are frequent in it."""


class Lines(NamedTuple):
    """Lines that a parser itself reads."""

    kind: Literal["origin", "steps", "asides", "versions", "symptoms", "transports"]
    hints: tuple[bytes, ...]


Reader = Lines | Statement | Mark
"""Reads each line that contains one of its `hints`."""


class LineSearch:
    """Finds the lines of a log that contain a hint, and which `readers` read them."""

    def __init__(self, readers: tuple[Reader, ...]) -> None:
        self._readers = readers
        places: dict[bytes, list[int]] = {}
        for place, reader in enumerate(readers):
            for hint in reader.hints:
                places.setdefault(hint, []).append(place)
        self.hints, self._places_of = tuple(places), tuple(places.values())
        # The library uses SIMD only with leftmost matching.
        self._texts = BytesAhoCorasick(texts_of(self.hints), matchkind=MatchKind.LeftmostFirst)
        self._each = BytesAhoCorasick(self.hints, implementation=Implementation.ContiguousNFA)

    @cached_property
    def _first(self) -> BytesAhoCorasick:
        return BytesAhoCorasick(
            self.hints, matchkind=MatchKind.LeftmostFirst, implementation=Implementation.DFA
        )

    def lines(self, buffer: bytes, end: int) -> Iterator[tuple[int, int]]:
        """The start and end of each line of `buffer[:end]` that contains a hint, and of some others, in order.

        One pass searches for all hints. It is many times faster than cutting the buffer into lines.
        """
        start = stop = 0
        for at in self._places(memoryview(buffer)[:end], buffer.rfind(b"\n", 0, min(end, PROBE)) + 1):
            if at < stop:
                continue
            start = max(stop, buffer.rfind(b"\n", stop, at) + 1)
            stop = buffer.find(b"\n", at, end)
            if stop < 0:
                stop = end
            yield start, stop

    def _places(self, searched: memoryview, probe: int) -> Iterator[int]:
        """The place of each text; of each whole hint where texts are frequent. The first `probe` bytes may tell that for all."""
        matches = self._texts.find_matches_as_indexes(searched[:probe])
        if len(matches) * SPARSE > probe:
            probe = len(searched)
            matches = self._first.find_matches_as_indexes(searched)
        yield from (at for _, at, _ in matches)
        matches = self._texts.find_matches_as_indexes(searched[probe:])
        if len(matches) * SPARSE > len(searched) - probe:
            matches = self._first.find_matches_as_indexes(searched[probe:])
        yield from (probe + at for _, at, _ in matches)

    def readers_of(self, line: bytes) -> list[Reader]:
        """The readers that have a hint in the line, in their order. One pass finds them all."""
        hints = self._each.find_matches_as_indexes(line, overlapping=True)
        return [
            self._readers[place] for place in sorted({p for n, _, _ in hints for p in self._places_of[n]})
        ]


line_search = lru_cache(LineSearch)
"""The search for the hints of these readers, which many logs share."""


def texts_of(hints: tuple[bytes, ...]) -> list[bytes]:
    """Texts to search for: each hint contains at least one of them.

    They are the hints that contain no other hint. Common substrings replace several of these until `MANY` are left.
    """
    each = set(hints)
    texts = {hint for hint in each if sum(map(hint.__contains__, each)) == 1}
    for length in SHARED:
        counts = Counter(substring for text in texts for substring in _substrings(text, length))
        for _, substring in sorted((-count, substring) for substring, count in counts.items() if count > 1):
            if len(texts) <= MANY:
                return sorted(texts)
            containing = {text for text in texts if substring in text}
            if len(containing) > 1:
                texts = (texts - containing) | {substring}
    return sorted(texts)


def _substrings(text: bytes, length: int) -> set[bytes]:
    return {text[start : start + length] for start in range(len(text) - length + 1)}


# Limits above what any recipe prints, so that a broken log cannot fill the memory. Longer lines are cut;
# further steps, restarts and checkpoints are not kept. A log driver may wrap several lines in one.
MAX_LINE = 1 << 16
MAX_WRAPPED = 1 << 18
MAX_STEPS = 1 << 17
MAX_RESTARTS = 100
MAX_SAVES = 16

EARLY = 2
"""Start-up lines of one process may follow up to this many steps of another process."""

# Control sequences of a terminal: CSI and OSC. One inside a word or a number stays, because the text before
# and after it may be of two processes.
_SEQUENCE = r"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,512}(?:\x07|\x1b\\))"
_COLOUR = re.compile(rf"(?<![\w.+-]){_SEQUENCE}|{_SEQUENCE}(?![\w.+-])")


class LineParser(ABC):
    """Reads a log in pieces: `feed` takes the next bytes, `log` returns the log so far, `finish` the whole log.

    Each format is a subclass, which declares:

    - `hints`: `read_line` gets each line that contains one of these. It calls `add` for each step.
    - `asides`: `read_aside` gets each line that contains one of these.
    - `statements`: what the log may state about its run. `tells` and `flops` are as in `Log`.
    - `top`: a pattern of the first line of the configuration that is not indented. Its groups are the `prefix` of a
      launcher and the `blanks` after it. The line must contain one of `asides`.

    `wanted` are all substrings that are still searched for; other lines may be left out.

    A line ends with a line feed or a carriage return. The last line may have neither, so that its last number may
    be cut short: `finish` passes it on with `ended=False`. The size of the pieces does not change the result.
    """

    hints: tuple[bytes, ...] = ()
    asides: tuple[bytes, ...] = ()
    statements: tuple[Statement, ...] = ()
    top = re.compile("(?!)")
    tells: Tells = ""
    flops: tuple[FlopsName, ...] = ("full-attention",)

    def __init__(self) -> None:
        self._beginning = self._partial = b""
        self._log, self._size = Log(), 0
        self._steps: dict[int, Step] = {}
        self._repeated: set[int] = set()
        self._earlier: list[Attempt] = []
        self._restarter = ""
        self._launched = False
        self._header = ""
        self._blanks, self._prefix = MAX_LINE, ""
        self.stamp: float | None = None
        self._marks: dict[str, str] = {}
        self._saves: dict[int, float] = {}
        self._versions = Versions()
        self._transports = TransportLines()
        self._symptoms: dict[tuple[str, str], HostError] = {}
        self._stated = Statements((*COMMON, *self.statements))
        self._last: int | None = None
        self._look()

    @property
    def under_way(self) -> bool:
        """Whether the newest attempt has a step. Only then can a line end it."""
        return bool(self._steps)

    @property
    def _begun(self) -> bool:
        """Whether another attempt has begun after the last step."""
        restated = self._stated.restated_by_one and len(self._steps) > EARLY
        return self._stated.begun or self._launched or restated

    @abstractmethod
    def read_line(self, line: str, *, ended: bool) -> None:
        """Take a line that contains one of `hints`."""

    def read_aside(self, line: str) -> None:  # noqa: B027 - most formats have none
        """Take a line that contains one of `asides`."""

    def feed(self, data: bytes) -> None:
        self._size += len(data)
        self._beginning += data[: BEGINNING - len(self._beginning)]
        data = data.replace(b"\r", b"\n")
        if len(self._partial) == MAX_WRAPPED:
            data = b"".join(data.partition(b"\n")[1:])
        buffer = self._partial + data
        end = buffer.rfind(b"\n") + 1
        self._read(buffer, end, ended=True)
        self._partial = buffer[end : end + MAX_WRAPPED]

    def log(self) -> Log:
        steps, repeated = tuple(self._steps.values()), tuple(sorted(self._repeated))
        earlier = tuple(self._earlier)
        facts, garbled = self._stated.facts()
        if self._stated.begun:
            # Another attempt has begun, and is the last one even before its first step.
            if steps:
                earlier = (*earlier, self._ended())
            steps, repeated = (), ()
        return replace(
            self._log,
            steps=steps,
            facts=facts,
            garbled=garbled,
            repeated=repeated,
            earlier=earlier,
            marks=tuple(self._marks.items()),
            versions=self._versions.pairs,
            processes=self._transports.processes(),
            hosts=tuple(self._transports.hosts.items()),
            symptoms=tuple(self._symptoms.values()),
            saves=tuple(self._saves.values()),
            tells=self.tells,
            flops=self.flops,
            size=self._size,
            contents=contents(self._beginning),
        )

    def finish(self) -> Log:
        self._read(self._partial, len(self._partial), ended=False)
        self._partial = b""
        return self.log()

    def _read(self, buffer: bytes, end: int, *, ended: bool) -> None:
        for start, stop in self._search.lines(buffer, end):
            lines, whole = plain(buffer[start : min(stop, start + MAX_WRAPPED)])
            for line in lines:
                self._read_one(line, ended=ended and whole)

    def _read_one(self, raw: bytes, *, ended: bool) -> None:
        if self._transports.knows(raw):
            return
        readers = self._search.readers_of(raw)
        if not readers:
            return
        whole = ended and len(raw) < MAX_LINE
        if whole and isinstance(readers[-1], Lines) and readers[-1].kind == "transports":
            if self._transports.add(raw, alone=len(readers) == 1):
                self._look()
            if len(readers) == 1:
                return
        line = self._dedented(_text(raw))
        for reader in readers:
            self._hand(line, reader, whole=whole)

    def _dedented(self, line: str) -> str:
        """The line with one blank after its prefix instead of several. The least indented line `top` tells how many."""
        top = self.top.search(line)
        if top and len(top["blanks"]) < self._blanks:
            self._blanks, self._prefix = len(top["blanks"]), _prefix_of(top)
        return re.sub(self._prefix, r"\1 ", line, count=1) if self._prefix else line

    def _hand(self, line: str, reader: Reader, *, whole: bool) -> None:
        """Let one of the readers read a line. `whole`: no part of the line was cut off."""
        match reader:
            case Lines("steps"):
                self._read_label(line)
                self.read_line(line, ended=whole)
            case Statement():
                if whole and self._stated.read(reader, line):
                    self._look()
            case Mark():
                if re.search(reader.pattern, line):
                    self.spoilt(reader.kind, line)
            case Lines("asides"):
                self.read_aside(line)
            case Lines("origin"):
                self._read_origin(line)
            case Lines("versions") if whole:
                self._versions.read(line)
                self._launched |= self.under_way and GPUS.decode() in line
                self._look()
            case Lines("symptoms") if whole:
                keep_symptoms(line, self._symptoms)

    def _read_origin(self, line: str) -> None:
        """Note a line that says that the job is started again, or that lines of another file follow."""
        restart = RESTART.search(line)
        if restart and self.under_way and not self._begun:
            self._restarter = restart[0]
        header = HEADER.search(line)
        if header:
            self._header = header["file"]

    def _read_label(self, line: str) -> None:
        """Note the time stamp before a line with a step, and the name of another file, if one stands there."""
        self.stamp = stamp_of(line)
        label = self._log.other_file or self._header or label_of(line)
        if label != self._log.other_file:
            self._log = replace(self._log, other_file=label)

    def spoilt(self, kind: str, line: str) -> None:
        """Keep the first line of a mark. A trace prints millions of such lines."""
        self._marks.setdefault(kind, printable(line.strip()[:300]))
        self._look()

    def _look(self) -> None:
        """Search from now on for the hints that are still needed: a mark or a version is needed only once.

        The readers of a line get it in this order.
        """
        self._search = line_search(
            (
                # A progress bar has no line feed, so the line that ended the job may follow the last bar directly.
                Lines("steps", self.hints),
                Lines("origin", ORIGIN_HINTS),
                *self._stated.known,
                Lines("asides", self.asides),
                *(mark for kind, mark in MARKS.items() if kind not in self._marks),
                Lines("versions", self._versions.hints),
                Lines("symptoms", SYMPTOM_HINTS),
                Lines("transports", self._transports.hints),
            )
        )
        self.wanted = self._search.hints

    def add(self, step: Step) -> None:
        """Record a step.

        Another attempt begins if the log goes back to an earlier step, or has said that the job is started again.

        The same step twice is a repeat. But if it is the only step so far, another attempt begins: the first one
        may have died after it. If a second process prints each step, the next steps are repeats all the same.
        """
        if step.stamp is None and self.stamp is not None:
            step = replace(step, stamp=self.stamp, collected=True)
        back = step.index in self._steps and (
            len(self._steps) == 1 or (self._last is not None and step.index < self._last)
        )
        anew = back or ((self._begun or bool(self._restarter)) and self.under_way)
        if anew:
            self.begins_anew()
        self._stated.stepped(anew=anew)
        if step.index in self._steps:
            self._repeated.add(step.index)
        elif len(self._steps) < MAX_STEPS:
            self._steps[step.index] = step
        self._last = step.index

    def begins_anew(self) -> None:
        """Begin another attempt. A format that remembers more of an attempt forgets it here too.

        The attempt before is kept as an `Attempt`: its last step, its pace, and the line that began this one.
        `Statements` has the facts of each attempt. Marks, versions, processes, symptoms and the announced number
        of steps belong to the job, and stay.
        """
        self.ended(self._ended())
        self._restarter, self._launched = "", False
        self._steps.clear()
        self._repeated.clear()
        self._saves.clear()
        self._log = replace(self._log, saved_bytes=None)

    def _ended(self) -> Attempt:
        return attempt(self._steps.values(), self._restarter)

    def ended(self, attempt: Attempt) -> None:
        """Keep an attempt that ended. Of more than `MAX_RESTARTS`, drop the shortest, first among those with a mark."""
        self._earlier.append(attempt)
        if len(self._earlier) > MAX_RESTARTS:
            self._earlier.remove(min(self._earlier, key=lambda one: (not one.mark, one.last)))

    def plan(self, steps: int) -> None:
        """Note the number of steps that the run announced; 0 if it announced another number before."""
        if steps == self._log.planned:
            return
        if self._log.planned is not None:
            steps = 0
        self._log = replace(self._log, planned=steps)

    def saved(self, seconds: float, iteration: int | None = None) -> None:
        """Note that a checkpoint was written in this many seconds.

        If each rank prints a line, `iteration` identifies the checkpoint, and the slowest rank counts.
        """
        if iteration is None:
            iteration = -1 - len(self._saves)
        if iteration in self._saves or len(self._saves) < MAX_SAVES:
            self._saves[iteration] = max(seconds, self._saves.get(iteration, 0.0))

    def loaded(self, seconds: float) -> None:
        """Note that a rank loaded a checkpoint in this many seconds. The slowest rank counts."""
        self._log = replace(self._log, loaded=max(seconds, self._log.loaded or 0.0))

    def restored(self, path: str) -> None:
        """Note the path of the checkpoint that was loaded."""
        self._log = replace(self._log, restored=path)

    def counted(self, saved_bytes: int) -> None:
        """Note the size of the checkpoint in bytes, as the launcher counted it."""
        self._log = replace(self._log, saved_bytes=saved_bytes)

    def measured_peak(self, tflops: float) -> None:
        """Note a rate of matrix products that the run measured on its machine. The highest one counts."""
        self._log = replace(self._log, peak_tflops=max(tflops, self._log.peak_tflops or 0.0))


def attempt(steps: Iterable[Step], mark: str = "") -> Attempt:
    """The ended attempt with these steps. `mark` is the line after it that says that the job is started again."""
    steps = list(steps)
    last = max(step.index for step in steps)
    seconds = [step.seconds for step in steps if step.seconds is not None]
    return Attempt(last, statistics.median(seconds) if seconds else None, mark)


def _text(raw: bytes) -> str:
    """The line as text, without the control sequences that colour it. It is cut at `MAX_LINE` bytes."""
    text = raw[:MAX_LINE].decode("utf-8", errors="replace")
    return _COLOUR.sub("", text) if "\x1b" in text else text


def _prefix_of(top: re.Match[str]) -> str:
    """A pattern for prefixes with as many words as this line's, and as many blanks after them; "" for fewer than two blanks."""
    blanks, words = len(top["blanks"]), len((top["prefix"] or "").split())
    if blanks < 2:
        return ""
    if not words:
        return rf"^() {{{blanks}}}"
    return rf"^(\s*(?:\S+\s+){{{words - 1}}}\S+) {{{blanks}}}"
