"""Finds the few lines of a log that matter among millions that do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache

from ahocorasick_rs import BytesAhoCorasick, Implementation, MatchKind

MANY = 48
"""The library finds this many texts with SIMD. It is slower with more, and ten times slower from 65 on."""

SHARED = range(16, 4, -1)
"""How long a common substring of several hints is. A short one is in many lines that contain no hint."""


def telling_lines(buffer: bytes, end: int, hints: tuple[bytes, ...]) -> Iterator[tuple[int, int]]:
    """The start and end of each line of `buffer[:end]` that contains a hint, and of some others, in order.

    One pass searches for all hints. It is many times faster than cutting the buffer into lines.
    """
    start = stop = 0
    for _, at, _ in _searcher(hints).find_matches_as_indexes(memoryview(buffer)[:end]):
        if at < stop:
            continue
        start = max(stop, buffer.rfind(b"\n", stop, at) + 1)
        stop = buffer.find(b"\n", at, end)
        if stop < 0:
            stop = end
        yield start, stop


def hints_in(line: bytes, hints: tuple[bytes, ...]) -> set[bytes]:
    """The hints that are in the line, found in one pass."""
    return {hints[n] for n, _, _ in _finder(hints).find_matches_as_indexes(line, overlapping=True)}


def texts_of(hints: tuple[bytes, ...]) -> list[bytes]:
    """Texts of which each hint contains one: the hints, or as many of their common substrings as leave `MANY` texts."""
    texts = set(hints)
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


@lru_cache
def _finder(hints: tuple[bytes, ...]) -> BytesAhoCorasick:
    return BytesAhoCorasick(hints, implementation=Implementation.ContiguousNFA)


@lru_cache
def _searcher(hints: tuple[bytes, ...]) -> BytesAhoCorasick:
    # The library uses SIMD only with leftmost matching.
    return BytesAhoCorasick(texts_of(hints), matchkind=MatchKind.LeftmostFirst)
