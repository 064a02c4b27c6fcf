"""Each line that a rule's pattern matches contains one of the rule's hints, so the search by hints misses none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from re import _constants, _parser  # type: ignore[attr-defined]  # as `sre_parse` until Python 3.10
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.gpu import samples
from plugins.logs import (
    dllogger,
    maxtext,
    megatron_bridge,
    megatron_lm,
    nemo1,
    nemo2,
    nodes,
    origin,
)
from plugins.logs.formats import parser
from plugins.logs.marks import MARKS
from plugins.logs.registry import FORMATS
from plugins.logs.statements import COMMON, Statement

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


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("a hint|another", ["another"]),
        (r"a (?:hin|pin)t", ["a pint"]),
        (r"a\b (?=b)h?int", ["a int"]),
        ("a[ -]hint", ["a-hint"]),
        ("a [g-i]int", [f"a {GAP}int"]),
        ("a {1,3}hint", [f"a {GAP} hint"]),
        ("a (hint){0,2}", [f"a {GAP}"]),
        ("a .hint", [f"a {GAP}hint"]),
        ("a{2,3} hint|(?:a hint)+", []),
    ],
)
def test_what_a_pattern_matches_without_a_hint_is_named(pattern: str, texts: list[str]) -> None:
    assert unhinted([b"a hint"], re.compile(pattern)) == texts


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
