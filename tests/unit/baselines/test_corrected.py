"""Nemotron's corrected MFU: shown and recorded beside the published kind, and never judged."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from plugins.judging.judgement import Judgement
from plugins.logs import Log, Step
from plugins.record.verdict import Kind
from tests.unit import examples
from tests.unit.examples import record_json

CASE = "340b-bf16-128gpus"


def judged(step_time: float = 4.61, *, corrected: bool = True) -> Judgement:
    case, baseline = examples.case(CASE, "nemotron4"), examples.baseline(CASE, "nemotron4")
    if not corrected:
        baseline = replace(baseline, table=baseline.table.model_copy(update={"corrected_flops": {}}))
    steps = tuple(
        Step(i, step_time, 0.005, consumed_samples=(i + 1) * case.gbs, loss=7.31 - i / 100) for i in range(50)
    )
    return examples.judged(
        case,
        examples.outcome(),
        Log(steps=steps, planned=50),
        baseline,
    )


def test_it_is_recorded_with_its_definition() -> None:
    found = json.loads(json.dumps(record_json(judged())))
    assert found["mfu"] == pytest.approx(55.38, abs=0.005)
    assert found["corrected_mfu"] == pytest.approx(47.27, abs=0.005)
    assert found["mfu_definition"]["flops"] == "nemotron-24.11 (3 digits)"
    assert found["mfu_definition"]["flops_per_sequence"] == 1.01e16
    assert found["mfu_definition"]["corrected_flops"] == "full-attention"
    assert found["mfu_definition"]["corrected_flops_per_sequence"] == pytest.approx(8.621236e15, rel=1e-6)
    assert found["expected"]["mfu"] == pytest.approx(55.38, abs=0.005)


def test_it_is_shown_as_what_it_is() -> None:
    (line,) = [line for line in judged(4.7).details if line.startswith("corrected")]
    assert line == (
        "corrected MFU 46.37 %, expected 47.27 %, by full-attention FLOPs: the published definition is +17.2 % off; "
        "shown for comparison, not judged"
    )


@pytest.mark.parametrize(
    ("step_time", "kind"), [(4.61, Kind.PASSED), (4.9, Kind.TOO_SLOW), (4.1, Kind.TOO_FAST)]
)
def test_it_changes_no_verdict(step_time: float, kind: Kind) -> None:
    with_it, without = judged(step_time), judged(step_time, corrected=False)
    assert with_it.verdict == without.verdict
    assert with_it.verdict.kind is kind
    assert not [line for line in without.details if line.startswith("corrected")]


def test_a_table_without_a_correction_records_none() -> None:
    found = record_json(judged(corrected=False))
    assert (found["corrected_mfu"], found["mfu_definition"]["corrected_flops"]) == (None, None)
