"""Whatever is left of a log, and however its job ended: one verdict that can be told and recorded, and no error."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.judging.case_record import record_of
from plugins.judging.choice import Repeats
from plugins.judging.judge import another_run, judge
from plugins.judging.judgement import Judgement
from plugins.logs import Log
from plugins.logs.formats import read
from plugins.record.job import Failure, Phase
from plugins.record.verdict import Kind
from plugins.reports.plot import drawable, steps_svg
from tests.fuzz import cells, run
from tests.fuzz.cells import Cell
from tests.unit import examples
from tests.unit.examples import record_json

ENDS: dict[str, dict[str, Any]] = {
    "completed": {},
    "timed out": {"phase": Phase.FAILED, "raw": "TIMEOUT"},
    "cancelled": {"phase": Phase.FAILED, "raw": "CANCELLED by 1000"},
    "gone": {"phase": Phase.GONE, "raw": ""},
    **{
        failure: {
            "phase": Phase.FAILED,
            "raw": "CANCELLED",
            "failure": failure,
            "message": f"it is {failure}",
        }
        for failure in Failure.__args__  # type: ignore[attr-defined]
        if failure
    },
}
_SHORT = "0 -1 nan inf -inf 1e99 1e-99 0.0 1e308 1e400 NaN Infinity # \x00"
WORDS = (*_SHORT.split(" "), "", "9" * 9, "9" * 15, "9" * 400)
"""What may stand where a number was."""

_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?")


@st.composite
def damaged(draw: st.DrawFn, lines: tuple[str, ...]) -> bytes:
    """A part of a log whose lines are lost, torn, doubled, moved, or have another number."""
    whole = st.just(len(lines))
    left = list(lines[: draw(whole | st.integers(0, len(lines)))])
    for _ in range(draw(st.integers(0, 3))):
        at, how = (
            draw(st.integers(0, max(0, len(left) - 1))),
            draw(st.sampled_from(["delete", "double", "cut", "turn", "one", "many"])),
        )
        if not left:
            break
        if how == "delete":
            left = left[:at] + left[at + draw(st.integers(1, 20)) :]
        elif how == "double":
            left.insert(draw(st.integers(0, len(left))), left[at])
        elif how == "cut":
            left[at] = left[at][: draw(st.integers(0, len(left[at])))]
        elif how == "turn":
            left = left[at:] + left[:at]
        else:
            rng, changed = (
                draw(st.randoms(use_true_random=False)),
                slice(at, at + (1 if how == "one" else 60)),
            )
            left[changed] = [_with(rng, line) for line in left[changed]]
    return "".join(left).encode()


def _with(rng: random.Random, line: str) -> str:
    """The line with another word for one of its numbers."""
    found = list(_NUMBER.finditer(line))
    return _changed(line, rng.choice(found), rng.choice(WORDS)) if found else line


def _changed(line: str, number: re.Match[str], word: str) -> str:
    return line[: number.start()] + word + line[number.end() :]


@cache
def healthy(dialect: str, number: int) -> tuple[Cell, tuple[tuple[str, ...], ...]]:
    """A case, and the lines of two runs of it."""
    cell = cells.draw(random.Random(number), dialect)
    jobs = (cells.job(random.Random(seed), cell) for seed in range(2))
    return cell, tuple(tuple(cell.render(job).text().splitlines(keepends=True)) for job in jobs)


@cache
def beginnings(dialect: str) -> tuple[Log, ...]:
    """The log of a run that ended before its first step, behind one of the first or the last ones, or after all."""
    lines = healthy(dialect, 0)[1][1]
    steps = [number + 1 for number in steps_in(dialect)]
    return tuple(read(dialect, ["".join(lines[:count]).encode()]) for count in (0, *steps[:12], *steps[-2:]))


@cache
def steps_in(dialect: str) -> tuple[int, ...]:
    """Which lines of the run have a step."""
    lines = healthy(dialect, 0)[1][1]
    return tuple(number for number, line in enumerate(lines) if read(dialect, [line.encode()]).steps)


def judged(cell: Cell, log: Log, end: str, before: list[Log], *, known: bool, strict: bool) -> Judgement:
    outcome = examples.with_facts(run.outcome(cell, 900.0), **ENDS[end])
    gpu = cell.gpu if known else "abacus"
    baseline = cell.baseline if known else None
    evidence = examples.evidence(
        cell.case, replace(outcome, gpu=gpu), log, baseline, before=before, strict_last=strict
    )
    judgement = judge(evidence)
    another_run(judgement, Repeats(4))
    return judgement


@pytest.mark.parametrize("dialect", cells.DIALECTS)
@settings(max_examples=25)
@given(st.data())
def test_every_log_and_every_end_has_one_verdict(dialect: str, data: st.DataObject) -> None:
    cell, (first, last) = healthy(dialect, data.draw(st.integers(0, 9)))
    log = read(dialect, [data.draw(damaged(last))])
    found = judged(
        cell,
        log,
        data.draw(st.just("completed") | st.just("given up") | st.sampled_from(sorted(ENDS))),
        [read(dialect, [data.draw(damaged(first))])] if data.draw(st.booleans()) else [],
        known=not data.draw(st.booleans()),
        strict=data.draw(st.booleans()),
    )
    assert found.text
    json.dumps(record_json(found), allow_nan=False)
    times = drawable(found.case.means.times(log.steps))
    # To draw a plot takes longer than all else.
    if times and data.draw(st.integers(0, 3)) == 0:
        assert steps_svg(record_of(found), times)
    assert found.verdict.kind is not Kind.PASSED or found.measurement is not None


@pytest.mark.parametrize("dialect", cells.DIALECTS)
@pytest.mark.parametrize("end", ENDS)
def test_every_beginning_of_a_log_has_one_verdict(dialect: str, end: str) -> None:
    cell, _ = healthy(dialect, 0)
    for log in beginnings(dialect):
        found = judged(cell, log, end, [], known=True, strict=False)
        assert found.verdict.kind is not Kind.PASSED or log == beginnings(dialect)[-1]


@pytest.mark.parametrize("dialect", cells.DIALECTS)
def test_each_number_of_a_step_may_be_any_other(dialect: str) -> None:
    """Also of a step that never was: no time is spent on the steps that would lie between."""
    cell, (_, lines) = healthy(dialect, 0)
    steps = steps_in(dialect)
    begin, at = steps[0], steps[min(12, len(steps) - 1)]
    for number in _NUMBER.finditer(lines[at]):
        for word in ("0", "-1", "nan", "1e99", "1e308", "9" * 9):
            text = "".join([*lines[begin:at], _changed(lines[at], number, word)])
            found = judged(cell, read(dialect, [text.encode()]), "given up", [], known=True, strict=False)
            json.dumps(record_json(found), allow_nan=False)
