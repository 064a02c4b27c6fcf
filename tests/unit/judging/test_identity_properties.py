"""The promise of statements: whatever stands in such a line nothing is raised, and memory stays flat."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.judging import identity
from plugins.judging.validity import Started
from plugins.logs import Log, statements
from plugins.logs.formats import parser, read
from plugins.logs.statements import MAX_VALUES
from plugins.record.baseline import Statistic
from tests.unit.examples import parse, problems
from tests.unit.stated import (
    BEGINNINGS,
    CASES,
    COMMUNICATORS,
    GPU_LINES,
    H100,
    JOB,
    SAMPLES,
    asked,
    log_of,
    steps_of,
    text_of,
)

DIALECTS = pytest.mark.parametrize("dialect", sorted(CASES))


def lines_of(dialect: str) -> list[str]:
    """One of each statement of this dialect, and of all."""
    own = [sample.line.format(sample.right) for sample in SAMPLES if sample.dialect == dialect]
    common = [line.format(512) for line in COMMUNICATORS] + [line.format("NVIDIA H100") for line in GPU_LINES]
    gloo = "[Gloo] Rank 0 is connected to 511 peer ranks. Expected number of connected peer ranks is : 511"
    begun = [line for name, line in BEGINNINGS if name == dialect]
    return [*own, *common, gloo, *begun, asked("nemo1"), "  fp8: hybrid", "      log_step_timing: true"]


LINES: dict[str, list[str]] = {dialect: lines_of(dialect) for dialect in CASES}
INSERTED = [
    b"\n", b"\r", b"\0", b"9" * 30, b"-1", b"nan", b"1e9", b"{", b"]", b", ", b"\xff", "٣".encode(), b"'", b"NVIDIA ", b"\x1b[32m",
]  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn, dialect: str) -> bytes:
    """Statements, among a few steps, with any bytes in them, cut, doubled or glued to others."""
    chosen = draw(st.lists(st.sampled_from(LINES[dialect]), min_size=1, max_size=6))
    lines = [*chosen, *steps_of(dialect, 20)[: draw(st.integers(0, 4))], *chosen[:2]]
    data = bytearray("\n".join(lines).encode())
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        to = min(len(data), at + draw(st.integers(0, 60)))
        if draw(st.booleans()):
            data[at:at] = draw(st.one_of(st.binary(max_size=12), st.sampled_from(INSERTED)))
        else:
            del data[at:to]
    return bytes(data) + b"\n"


def told(dialect: str, log: Log) -> tuple[Iterable[object], ...]:
    case = CASES[dialect]
    return (
        problems(case, log, Statistic(), H100, started=Started(JOB)),
        identity.stated_by(case, log).items(),
        identity.anonymous(case, log),
    )


@DIALECTS
@given(data=st.data())
@settings(max_examples=30)
def test_whatever_a_statement_holds_nothing_is_raised(dialect: str, data: st.DataObject) -> None:
    log = parse(data.draw(damaged(dialect)), dialect)
    assert max(Counter(fact.name for fact in log.facts).values(), default=0) <= MAX_VALUES + 2
    assert all(len(fact.said) <= 200 and "\n" not in fact.said for fact in log.facts)
    told(dialect, log)
    told(dialect, replace(log, steps=log_of(dialect, text_of(dialect)).steps))


@DIALECTS
@given(data=st.data())
@settings(max_examples=25)
def test_statements_read_the_same_in_pieces(dialect: str, data: st.DataObject) -> None:
    found = data.draw(damaged(dialect))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(found)), max_size=5)))
    pieces = (found[a:b] for a, b in pairwise([0, *cuts, len(found)]))
    assert repr(read(dialect, pieces)) == repr(parse(found, dialect))


# A thousand processes state a fact each, again and again; or other output makes a new value of each.
@pytest.mark.parametrize(
    ("dialect", "line"),
    [
        ("nemo2", "Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/{}"),
        ("nemo1", "      num_layers: {}"),
        ("maxtext", "Config param emb_dim: {}"),
    ],
)
def test_memory_stays_flat_with_many_statements(
    monkeypatch: pytest.MonkeyPatch, dialect: str, line: str
) -> None:
    monkeypatch.setattr(statements, "MAX_LINES", 4000)
    different = "".join(f"{line.format(n)}\n" for n in range(1000)).encode()
    reader = parser(dialect)
    for _ in range(5):
        reader.feed(different)
    tracemalloc.start()
    for _ in range(200):
        reader.feed(different)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20
    assert len(reader.finish().facts) <= MAX_VALUES
