"""Lines that say nothing are not read, and none that says something is passed over."""

from __future__ import annotations

import random
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.logs import line_parser
from plugins.logs.formats import parser
from plugins.logs.line_parser import SHARED, Lines, LineSearch, texts_of
from plugins.logs.registry import FORMATS
from tests.bench.parsing import CHATTER, STEPS
from tests.unit.logs.test_marks import SPOILT

EACH = pytest.mark.parametrize("name", sorted(FORMATS))
HINTS = st.lists(st.text("ab ", min_size=1, max_size=24).map(str.encode), min_size=1, max_size=80).map(tuple)


@EACH
def test_the_texts_of_a_format_are_few_enough_for_simd_and_in_each_hint(name: str) -> None:
    hints = parser(name).wanted
    texts = texts_of(hints)
    # From 65 texts on, the library does not use SIMD.
    assert len(texts) <= 64
    assert all(any(text in hint for text in texts) for hint in hints)
    assert all(text in hints or len(text) in SHARED for text in texts)


@given(
    hints=HINTS,
    data=st.text("ab \n", max_size=300).map(str.encode),
    seed=st.integers(),
    probe=st.sampled_from([0, 1, 40, line_parser.PROBE]),
)
def test_each_line_with_a_hint_is_told(hints: tuple[bytes, ...], data: bytes, seed: int, probe: int) -> None:
    end = random.Random(seed).randint(0, len(data))
    with mock.patch.object(line_parser, "PROBE", probe):
        spans = list(LineSearch((Lines("steps", hints),)).lines(data, end))
    lines = {(start, data[start:stop]) for start, stop in spans}
    place, expected = 0, set()
    for line in data[:end].split(b"\n"):
        if any(hint in line for hint in hints):
            expected.add((place, line))
        place += len(line) + 1
    assert expected <= lines
    assert spans == sorted(spans)


def test_where_parts_of_hints_are_frequent_a_buffer_is_searched_once() -> None:
    """All of it for whole hints, and of its texts no more than what tells that they are frequent."""
    hints = tuple(f"profile of step {number}:".encode() for number in range(100))
    search = LineSearch((Lines("steps", hints),))
    texts = search._texts
    search._texts = mock.Mock()
    search._texts.find_matches_as_indexes.side_effect = texts.find_matches_as_indexes
    data = b"the profile of step of a rank\n" * 100_000 + b"profile of step 99: 1 s\n"
    assert list(search.lines(data, len(data))) == [(len(data) - 24, len(data) - 1)]
    searched = [len(call.args[0]) for call in search._texts.find_matches_as_indexes.call_args_list]
    assert sum(searched) <= line_parser.PROBE


@given(line=st.lists(st.sampled_from([b"a", b"ab", b"b", b"bc", b"\n"])).map(b"".join))
def test_the_readers_of_a_line_are_all_found_in_their_order(line: bytes) -> None:
    readers = [Lines("steps", hints) for hints in ((b"ab",), (b"a", b"abc"), (b"bca",), (b"b", b"ab"))]
    expected = [reader for reader in readers if any(hint in line for hint in reader.hints)]
    assert LineSearch(tuple(readers)).readers_of(line) == expected


def test_a_rule_without_a_hint_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        LineSearch((Lines("steps", (b"",)),))


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Each piece of a log that a parser decodes."""
    pieces: list[bytes] = []
    text = line_parser._text

    def decode(raw: bytes) -> str:
        pieces.append(raw)
        return text(raw)

    monkeypatch.setattr(line_parser, "_text", decode)
    return pieces


@pytest.mark.parametrize("name", sorted(STEPS))
def test_only_lines_with_steps_are_decoded(name: str, decoded: list[bytes]) -> None:
    reader, line = parser(name), STEPS[name][0]
    for i in range(50):
        reader.feed(CHATTER * 100 + line.format(i=i, n=(i + 1) * 128).encode())
    assert len(reader.finish().steps) == 50
    assert len(decoded) == 50
    assert CHATTER[:-1] not in decoded


@pytest.mark.parametrize("many", [1, 100_000])
def test_lines_with_parts_of_hints_hide_no_line_with_a_hint(many: int, decoded: list[bytes]) -> None:
    """Where such lines are many, the whole hints are searched for."""
    reader, line = parser("nemo2"), STEPS["nemo2"][0]
    reader.feed(b"the checkpoint of some rank\n" * many + line.format(i=0, n=128).encode())
    assert len(reader.finish().steps) == len(decoded) == 1


@EACH
def test_a_line_with_a_part_of_a_hint_is_not_decoded(name: str, decoded: list[bytes]) -> None:
    reader = parser(name)
    search = LineSearch((Lines("steps", reader.wanted),))
    for text in texts_of(reader.wanted):
        if not search.readers_of(text):
            reader.feed(b"chatter " + text + b"\n")
    reader.finish()
    assert decoded == []


@EACH
def test_a_mark_that_is_known_is_not_decoded_again(name: str, decoded: list[bytes]) -> None:
    reader = parser(name)
    lines = [line.encode() + b"\n" for line in SPOILT["nccl trace"]]
    reader.feed(lines[0] + lines[0])
    assert len(decoded) == 1
    for _ in range(10):
        reader.feed(b"".join(lines) * 100)
    assert len(decoded) == 1
