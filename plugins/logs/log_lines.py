"""Finds the few lines of a log that matter among millions that do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cached_property, lru_cache

from ahocorasick_rs import BytesAhoCorasick, Implementation, MatchKind

MANY = 48
"""The library finds this many texts with SIMD. It is slower with more, and ten times slower from 65 on."""

SHARED = range(16, 6, -1)
"""How long a common substring of several hints is. A short one is in many lines that contain no hint."""

SPARSE = 1 << 11
"""If there is a text in fewer bytes than this, it costs less to search for the whole hints."""

PROBE = 1 << 16
"""So many bytes of a buffer are searched for texts before it is known whether these are frequent in it."""


class LineSearch:
    """Finds the lines of a log that contain a hint."""

    def __init__(self, hints: tuple[bytes, ...]) -> None:
        self._hints = hints
        # The library uses SIMD only with leftmost matching.
        self._texts = BytesAhoCorasick(texts_of(hints), matchkind=MatchKind.LeftmostFirst)
        self._each = BytesAhoCorasick(hints, implementation=Implementation.ContiguousNFA)

    @cached_property
    def _first(self) -> BytesAhoCorasick:
        return BytesAhoCorasick(
            self._hints, matchkind=MatchKind.LeftmostFirst, implementation=Implementation.DFA
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
        """Where a text is, or a whole hint where texts are frequent. The first `probe` bytes tell that for all."""
        matches = self._texts.find_matches_as_indexes(searched[:probe])
        if len(matches) * SPARSE > probe:
            probe = len(searched)
            matches = self._first.find_matches_as_indexes(searched)
        yield from (at for _, at, _ in matches)
        matches = self._texts.find_matches_as_indexes(searched[probe:])
        if len(matches) * SPARSE > len(searched) - probe:
            matches = self._first.find_matches_as_indexes(searched[probe:])
        yield from (probe + at for _, at, _ in matches)

    def hints_in(self, line: bytes) -> set[bytes]:
        """The hints that are in the line, found in one pass."""
        return {self._hints[n] for n, _, _ in self._each.find_matches_as_indexes(line, overlapping=True)}


line_search = lru_cache(LineSearch)
"""The search for these hints, which many logs share."""


def texts_of(hints: tuple[bytes, ...]) -> list[bytes]:
    """Texts of which each hint contains one: hints that contain no other, or as many common substrings as leave `MANY` texts."""
    texts = {hint for hint in hints if not any(other in hint and other != hint for other in hints)}
    for length in SHARED:
        substrings = Counter(substring for text in texts for substring in _substrings(text, length))
        for substring, count in sorted(substrings.items(), key=lambda pair: (-pair[1], pair[0])):
            if len(texts) <= MANY or count == 1:
                break
            containing = {text for text in texts if substring in text}
            if len(containing) > 1:
                texts = (texts - containing) | {substring}
    return sorted(texts)


def _substrings(text: bytes, length: int) -> set[bytes]:
    return {text[start : start + length] for start in range(len(text) - length + 1)}
