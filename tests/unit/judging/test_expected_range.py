"""A case without a number is told where its pace is in its expected range; only a plan that promises it has it decide."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest

from plugins.acceptance.scaling import Shown
from plugins.baselines.store import Baseline
from plugins.judging.case_record import record_of
from plugins.judging.choice import Choice, Setting
from plugins.judging.evidence import baseline_in
from plugins.judging.judgement import Judgement
from plugins.judging.steadiness import PUBLISHED, PaceGate
from plugins.record.baseline import AgreedTolerance
from plugins.record.stored import case_as_json, read_case, write_case
from plugins.record.verdict import Kind
from plugins.reports.terminal import print_table
from tests.golden import faults
from tests.printed import nemo2
from tests.unit import examples
from tests.unit.baselines.test_expected_range import without

CASE = examples.case()
RANGE = "90 %: 1,599 to 1,646 tokens/s/GPU, from 5 published scales (the nearest: 256, 1,024 GPUs)"
MIDDLE, LOW, HIGH = 10.054, 10.245, 9.959
"""The step times in s of the middle and the ends of that range."""


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """The published tables without the number of the case."""
    return without(tmp_path / "baselines", 512)


def by(tables: Path, **choice: object) -> Baseline | None:
    return baseline_in(Setting(examples.llama3(), Choice(**choice), tables), CASE, "h100", None)  # type: ignore[arg-type]


def judged(tables: Path, seconds: float, against: Baseline | None = None) -> Judgement:
    """A steady run at this step time in s."""
    log = examples.parse(examples.nemo2_text([seconds + step % 2 / 1000 for step in range(50)]))
    return examples.judged(CASE, examples.outcome(), log, against, baselines=tables)


@pytest.mark.parametrize(
    ("seconds", "side"),
    [(MIDDLE, "within"), (LOW - 0.01, "within"), (LOW + 0.01, "below"), (HIGH - 0.01, "above")],
)
def test_without_a_plan_it_is_no_baseline_and_says_where_it_is(
    tables: Path, seconds: float, side: str
) -> None:
    found = judged(tables, seconds, by(tables))
    assert found.verdict.kind is Kind.NO_BASELINE
    assert not found.verdict.fails
    assert found.expected is None
    assert found.verdict.headline.endswith(f"/GPU is {side} the expected range, {RANGE}")
    assert "pass" not in found.text


def test_it_says_why_there_is_no_range(tables: Path) -> None:
    other = replace(CASE, gbs=512)
    log = examples.parse("".join(f"{nemo2.nemo2_line(i, gbs=512)}\n" for i in range(50)))
    found = examples.judged(other, examples.outcome(), log, None, baselines=tables)
    assert found.verdict.headline.endswith(
        "; no expected range: 64, 128, 256, 1024, 2048 GPUs run a batch of 2 sequences per GPU, the case 1"
    )


@pytest.mark.parametrize(
    ("seconds", "kind"),
    [
        (MIDDLE, Kind.PASSED),
        (LOW - 0.01, Kind.PASSED),
        (LOW + 0.01, Kind.TOO_SLOW),
        (HIGH - 0.01, Kind.PASSED),
        (HIGH / 1.1 - 0.02, Kind.TOO_FAST),
    ],
)
def test_a_plan_that_promises_it_has_the_lower_end_decide(tables: Path, seconds: float, kind: Kind) -> None:
    found = judged(tables, seconds, by(tables, by_expected=True))
    assert found.verdict.kind is kind
    assert (
        f"is the middle of the expected range, {RANGE}, whose lower end decides by the acceptance plan, "
        in (found.verdict.headline)
    )
    assert f"baseline  expected range, {RANGE}: nobody published a number of this case; " in found.text


def test_no_tolerance_of_the_plan_moves_the_lower_end(tables: Path) -> None:
    agreed = AgreedTolerance(slower=0.2, faster=0.5, spread=0.01)
    against = by(tables, by_expected=True, agreed=agreed)
    assert against is not None
    assert against.tolerance.spread == 0.01
    for seconds, kind in ((LOW + 0.01, Kind.TOO_SLOW), (HIGH / 1.1 - 0.02, Kind.TOO_FAST)):
        assert judged(tables, seconds, against).verdict.kind is kind


def test_a_published_number_comes_before_the_range() -> None:
    found = by(examples.BASELINES, by_expected=True)
    assert found == examples.baseline()
    assert record_of(judged(examples.BASELINES, 10.07, found)).expected_range is None


def test_a_record_has_the_range_only_where_there_is_one(tables: Path, tmp_path: Path) -> None:
    plain, promised = (
        record_of(judged(tables, MIDDLE, against)) for against in (by(tables), by(tables, by_expected=True))
    )
    for record, has_target in ((plain, False), (promised, True)):
        assert record.expected_range is not None
        assert record.expected_range.text == RANGE
        assert (record.expected is not None) is has_target
        (tmp_path / record.id).mkdir(parents=True, exist_ok=True)
        write_case(tmp_path / record.id, record)
        stored = read_case(tmp_path / record.id)
        assert stored is not None
        assert (stored.expected_range, stored.expected) == (record.expected_range, record.expected)
    numbered = record_of(judged(examples.BASELINES, 10.07, examples.baseline()))
    assert "expected_range" not in case_as_json(numbered)


def test_the_table_of_a_session_says_that_a_range_decided(tables: Path) -> None:
    out = StringIO()
    print_table([record_of(judged(tables, MIDDLE, by(tables, by_expected=True)))], out, 120, colour=False)
    assert "judged against: llama3 25.04 on h100 by its expected range\n" in out.getvalue()


def test_the_middle_of_a_range_is_no_published_pace_for_scaling(tables: Path) -> None:
    promised = Shown.of(record_of(judged(tables, MIDDLE, by(tables, by_expected=True))))
    assert promised.by_range
    assert promised.published is None
    assert promised.pace is not None
    assert not Shown.of(record_of(judged(tables, MIDDLE))).by_range


def test_no_pair_of_faults_makes_a_range_decide_more_than_a_plan_promises(tables: Path) -> None:
    """Whatever is wrong with a run is told beside a range as beside a number, and a pass is never below the range."""
    ranged = by(tables, by_expected=True)
    assert ranged is not None
    assert ranged.range is not None
    numbered = dict(
        line.split("\t")[1:3] for line in faults.STORED.read_text().splitlines() if line.startswith("nemo2")
    )
    sides = set()
    for names, run in faults.combined("nemo2"):
        told, promised = (faults.judgement_of(run, against, tables) for against in (None, ranged))
        if numbered[names] in (Kind.INVALID, Kind.INFRASTRUCTURE, Kind.LOST):
            assert promised.verdict.kind == numbered[names], names
            assert told.verdict == promised.verdict, names
            assert "expected range" not in told.text, names
            continue
        if names == "cut-short + given-up":
            # Nobody gives a job up for its pace that is compared with nothing, so its log lacks steps.
            assert (told.verdict.kind, promised.verdict.kind) == (Kind.INVALID, Kind.TOO_SLOW)
            continue
        assert promised.measurement is not None
        timing = promised.measurement.timing
        side = ranged.range.side(CASE.tokens_per_step / CASE.gpus / timing.steady, timing.resolution)
        sides.add(side)
        assert told.verdict.kind is Kind.NO_BASELINE, names
        assert f"is {side} the expected range, {RANGE}" in told.verdict.headline, names
        assert "pass" not in told.verdict.headline, names
        assert promised.verdict.kind is not Kind.PASSED or side != "below", names
    assert sides == {"below", "within", "above"}


def test_several_runs_make_a_healthy_cluster_hardly_ever_too_slow(tables: Path) -> None:
    """In the middle of the range, at one doubling: the docs say how often."""
    against = by(tables, by_expected=True)
    assert against is not None
    gate = PaceGate(10, 40, against.tolerance.slower)
    assert 0.03 < gate.found(PUBLISHED, 0.0) < 0.05
    assert replace(gate, runs=3).found(PUBLISHED, 0.0) < 0.002
