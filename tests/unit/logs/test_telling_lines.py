"""Lines that say nothing are not read, and none that says something is passed over."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from re import _constants, _parser  # type: ignore[attr-defined]  # as `sre_parse` until Python 3.10
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.gpu import samples
from plugins.logs import (
    dllogger,
    line_parser,
    maxtext,
    megatron_bridge,
    megatron_lm,
    nemo1,
    nemo2,
    nodes,
    origin,
)
from plugins.logs.formats import parser
from plugins.logs.line_parser import SHARED, Lines, LineSearch, texts_of
from plugins.logs.marks import MARKS
from plugins.logs.registry import FORMATS
from plugins.logs.statements import COMMON, Statement
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


# Each line that a rule's pattern matches contains one of the rule's hints, so the search by hints misses none.

GAP = "\0"
"""Any text."""

LAUNCHED = b"GSW: MODEL="
"""What begins the line of the launch script's arguments. A pattern is of one argument."""


def unhinted(hints: Iterable[bytes], pattern: re.Pattern[str]) -> list[str]:
    """The texts that the pattern matches and that contain none of the hints, with a NUL for what may be any text."""
    words = [hint.decode() for hint in hints]
    return [
        text
        for text in sorted(_texts(_parser.parse(pattern.pattern, pattern.flags)))
        if not any(word in part for part in text.split(GAP) for word in words)
    ]


def _texts(tree: Iterable[tuple[Any, Any]]) -> set[str]:
    """What a parsed pattern matches, one text for each of its branches."""
    texts = {""}
    for operator, argument in tree:
        texts = {before + behind for before in texts for behind in _alternatives(operator, argument)}
    return texts


def _alternatives(operator: Any, argument: Any) -> set[str]:
    match operator:
        case _constants.LITERAL:
            return {chr(argument)}
        case _constants.IN if all(kind is _constants.LITERAL for kind, _ in argument):
            return {chr(character) for _, character in argument}
        case _constants.BRANCH:
            return set[str]().union(*map(_texts, argument[1]))
        case _constants.SUBPATTERN:
            return _texts(argument[3])
        case _constants.AT | _constants.ASSERT | _constants.ASSERT_NOT:
            return {""}
        case _constants.MAX_REPEAT | _constants.MIN_REPEAT:
            return _repeated(*argument)
    return {GAP}


def _repeated(least: int, most: int, tree: Iterable[tuple[Any, Any]]) -> set[str]:
    texts = _texts(tree)
    if most == 1:
        return texts | {""} if least == 0 else texts
    if len(texts) > 1:
        return {GAP}
    [text] = texts
    return {text * least} if least == most else {text * least + GAP + text * least}


# The rules by name, each with its hints and its pattern.
def _rules() -> Iterator[tuple[str, tuple[bytes, ...], re.Pattern[str]]]:
    for mark in MARKS.values():
        yield mark.kind, mark.hints, re.compile(mark.pattern)
    yield "restart", origin.ORIGIN_HINTS, origin.RESTART
    yield "header", origin.ORIGIN_HINTS, origin.HEADER
    for pattern in (nodes._NCCL_VERSION, nodes._NODE):
        yield "version", nodes.Versions().hints, pattern
    for pattern in (nodes._XID, nodes._WARNING):
        yield "symptom", nodes.SYMPTOM_HINTS, pattern
    for name, patterns in FORMAT_PATTERNS.items():
        reader = parser(name)
        for pattern in patterns:
            yield name, (*reader.hints, *reader.asides), pattern
    for statement in STATEMENTS:
        if statement.hint != LAUNCHED:
            yield "statement", (statement.hint,), re.compile(statement.pattern)


STATEMENTS: list[Statement] = [
    *COMMON,
    *(known for name in sorted(FORMATS) for known in parser(name).statements),
]
# Besides a format's statements. `dllogger` reads JSON, and a step of `nemo1` and `megatron_lm` is one by its fields.
FORMAT_PATTERNS = {
    "dllogger": [dllogger._OUTPUT],
    "maxtext": [
        *(maxtext._STEP, maxtext._PEAK, maxtext._VERSION, maxtext._BEGINS),
        *(samples._PRODUCT, samples._ALONE, samples._ALL_REDUCE, samples._HANDICAP, samples._NOT_IDLE),
        re.compile(samples._JSON.pattern.decode()),
    ],
    "megatron_bridge": [megatron_bridge._UTILIZATION, megatron_bridge._DTYPE, megatron_bridge._TARGET],
    "megatron_lm": [megatron_lm._SAVED, megatron_lm._COUNTED],
    "nemo1": [nemo1._PROFILE, nemo1._ENABLED],
    "nemo2": [nemo2._HEAD, nemo2._SAVED, nemo2._LOADED, nemo2._RESTORED],
}  # fmt: skip
RULES = list(_rules())
REAL = sorted((Path(__file__).parents[1] / "public_logs").iterdir())


def test_whatever_a_pattern_matches_contains_a_hint() -> None:
    for name, hints, pattern in RULES:
        assert unhinted(hints, pattern) == [], name


@given(data=st.data())
def test_each_generated_line_contains_a_hint(data: st.DataObject) -> None:
    _, hints, pattern = data.draw(st.sampled_from(RULES))
    line = data.draw(st.from_regex(pattern)).encode()
    assert any(hint in line for hint in hints)


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
def test_each_line_of_a_real_log_contains_a_hint_of_what_it_matches(path: Path) -> None:
    for line in path.read_text(errors="replace").splitlines():
        for name, hints, pattern in RULES:
            if pattern.search(line):
                assert any(hint in line.encode() for hint in hints), (name, line)
