"""Finds the few lines of a log that matter among millions that do not."""

from __future__ import annotations

from functools import lru_cache

from ahocorasick_rs import BytesAhoCorasick, Implementation, MatchKind


def telling_lines(buffer: bytes, end: int, hints: tuple[bytes, ...]) -> list[tuple[int, int]]:
    """The start and end of each line of `buffer[:end]` that contains a hint, in order.

    One pass searches for all hints. It is many times faster than cutting the buffer into lines.
    """
    lines: list[tuple[int, int]] = []
    start = stop = 0
    for _, at, _ in _searcher(hints).find_matches_as_indexes(memoryview(buffer)[:end]):
        if at < stop:
            continue
        start = max(stop, buffer.rfind(b"\n", stop, at) + 1)
        stop = buffer.find(b"\n", at, end)
        if stop < 0:
            stop = end
        lines.append((start, stop))
    return lines


def hints_in(line: bytes, hints: tuple[bytes, ...]) -> set[bytes]:
    """The hints that are in the line, found in one pass."""
    return {hints[n] for n, _, _ in _finder(hints).find_matches_as_indexes(line, overlapping=True)}


@lru_cache
def _finder(hints: tuple[bytes, ...]) -> BytesAhoCorasick:
    return BytesAhoCorasick(hints, implementation=Implementation.ContiguousNFA)


@lru_cache
def _searcher(hints: tuple[bytes, ...]) -> BytesAhoCorasick:
    # With leftmost matching the library searches with SIMD, at ten times the speed of its standard kind.
    return BytesAhoCorasick(hints, matchkind=MatchKind.LeftmostFirst, implementation=Implementation.DFA)
