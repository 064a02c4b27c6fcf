"""Finds the few lines of a log that matter among millions that do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple

from ahocorasick_rs import BytesAhoCorasick, Implementation, MatchKind

from plugins.logs.marks import Mark
from plugins.logs.statements import Statement

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
