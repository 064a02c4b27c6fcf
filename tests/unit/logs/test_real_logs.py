"""What becomes of our own runs of upstream's programs: as their own case, against a faster baseline, as another model's.

The logs are those of `public_logs/`; one GPU ran each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest

from plugins.baselines.baseline_file import Cell, Table
from plugins.baselines.metrics import FlopsDefinition
from plugins.baselines.store import Baseline
from plugins.judging.evidence import SiteFacts
from plugins.judging.judgement import Judgement
from plugins.judging.model import flops_of_a_step
from plugins.judging.timing import levelled
from plugins.logs import Log, Span
from plugins.logs.means import SINGLE, Means
from plugins.modes.checkpoints import Written
from plugins.recipes.cases import Case
from plugins.record.baseline import Tolerance
from plugins.record.verdict import Kind
from tests.unit import aks, examples
from tests.unit.logs.test_public_logs import log_of

STEADY = Tolerance()
SHARED = Tolerance(spread=0.1)
"""For runs that had others beside them on their GPU."""
SHORT = Tolerance(hiccups=0.2)
"""For a run of so few steps that the warm-up reaches into the settled ones."""


@dataclass(frozen=True)
class Run:
    """A run as it was. `seconds` is what its statistic gives."""

    case: Case
    statistic: str
    seconds: float
    tolerance: Tolerance = STEADY


def _on_one_gpu(case: Case, *, layers: int | None = None, **changed: int | str | Means) -> Case:
    """The case as one GPU ran it."""
    model = case.model.model_copy(update={"layers": layers or case.model.layers})
    sizes = {"gpus": 1, "tp": 1, "pp": 1, "cp": 1, "vp": 1, "fsdp": 1}
    return replace(case, model=model, **(sizes | changed))  # type: ignore[arg-type]


RUNS = {
    "megatron_lm-0.13": Run(_on_one_gpu(aks.case(), gbs=16, mbs=4), "mean:50-99", 0.33548),
    "megatron_lm-0.19": Run(_on_one_gpu(aks.case(), gbs=16, mbs=4), "mean:50-99", 0.38486, SHARED),
    "megatron_lm-0.19-each": Run(
        _on_one_gpu(aks.case("125m-fp16-8gpus"), dtype="bf16", gbs=16, mbs=4, steps=40, means=SINGLE),
        "mean:20-39",
        0.504805,
    ),
    "maxtext-0.2.4": Run(
        _on_one_gpu(examples.case("8b-bf16-8gpus"), layers=4, gbs=8, steps=8), "last", 1.096, SHORT
    ),
    "maxtext-of-december-2024": Run(
        _on_one_gpu(examples.case("70b-bf16-64gpus", "maxtext_llama2"), layers=1, gbs=2), "last", 0.138
    ),
}


def judged(name: str, run: Run, *, seconds: float, log: Log | None = None) -> Judgement:
    """The run, or another `log`, against a baseline of so many seconds a step."""
    case = run.case
    own = {
        name: getattr(case, name) for name in ("size", "dtype", "gpus", "tp", "pp", "cp", "vp", "mbs", "gbs")
    }
    cell = Cell(**own, step_time=seconds, tokens_per_second=case.tokens_per_step / seconds, mfu=40)
    table = Table(
        release=case.release,
        gpu="h100",
        framework="upstream",
        source="this run",
        statistic=run.statistic,
        peak={case.dtype: 989},
        flops={case.size: FlopsDefinition(definition="full-attention")},
        tolerance=run.tolerance,
        cells=[cell],
    )
    baseline = Baseline(examples.BASELINES / f"{case.recipe}.yaml", table, cell)
    outcome = examples.outcome(nodes="gpu001")
    return examples.judged(case, outcome, log or log_of(name), baseline)


@pytest.mark.parametrize("name", RUNS)
def test_a_real_run_passes_against_its_own_pace(name: str) -> None:
    run = RUNS[name]
    found = judged(name, run, seconds=run.seconds)
    assert found.verdict.kind is Kind.PASSED, found.text
    assert found.measurement is not None
    assert found.measurement.step_time == pytest.approx(run.seconds)


@pytest.mark.parametrize("name", RUNS)
def test_a_real_run_is_too_slow_where_others_are_8_percent_faster(name: str) -> None:
    run = RUNS[name]
    assert judged(name, run, seconds=run.seconds / 1.08).verdict.kind is Kind.TOO_SLOW


@pytest.mark.parametrize("name", RUNS)
def test_a_real_run_is_not_one_of_another_model(name: str) -> None:
    run = RUNS[name]
    layers = run.case.model.layers * 2
    other = replace(run, case=_on_one_gpu(run.case, layers=layers))
    found = judged(name, other, seconds=run.seconds)
    assert found.verdict.kind is Kind.INVALID
    assert f"this case's layers is {layers}" in found.verdict.headline


# Full attention in December 2024, causal attention since the middle of 2025.
@pytest.mark.parametrize(
    ("name", "counted"),
    [("maxtext-of-december-2024", "full-attention"), ("maxtext-0.2.4", "causal-attention")],
)
def test_maxtexts_rates_are_the_models_by_either_count(name: str, counted: str) -> None:
    run = RUNS[name]
    details = judged(name, run, seconds=run.seconds).details
    assert [
        line.endswith(f"; its TFLOP/s are by {counted}") for line in details if line.startswith("identity ")
    ] == [True]


@pytest.mark.parametrize("name", ["maxtext-of-december-2024", "maxtext-0.2.4"])
def test_a_rate_is_by_one_count_throughout(name: str) -> None:
    run, log = RUNS[name], log_of(name)
    full, causal = (flops_of_a_step(run.case, count) for count in ("full-attention", "causal-attention"))
    mixed = [
        replace(step, flops_per_gpu=Span(*(2 * [full if step.index % 2 else causal]))) for step in log.steps
    ]
    found = judged(name, run, seconds=run.seconds, log=replace(log, steps=tuple(mixed)))
    assert found.verdict.kind is Kind.INVALID
    assert "step time x TFLOP/s is" in found.verdict.headline


DISPATCHED = "maxtext-of-december-2024"


def with_times(log: Log, changed: Mapping[int, float]) -> Log:
    """The log with other times at these steps, and what follows from them."""
    flops = flops_of_a_step(RUNS[DISPATCHED].case, "full-attention")
    return replace(
        log,
        steps=tuple(
            replace(step, seconds=changed[step.index], flops_per_gpu=Span(flops, flops))
            if step.index in changed
            else step
            for step in log.steps
        ),
    )


# Step 7 took 0.011 s behind one of 0.256 s, step 38 0.105 s behind one of 0.165 s.
def test_a_time_between_dispatches_is_no_step_time() -> None:
    run = RUNS[DISPATCHED]
    found = judged(DISPATCHED, run, seconds=run.seconds).measurement
    assert found is not None
    known = {step.index: step.seconds for step in levelled(log_of(DISPATCHED).steps)}
    assert [known[index] for index in (6, 7, 37, 38)] == pytest.approx([0.1335, 0.1335, 0.135, 0.135])
    assert 37 not in dict(found.timing.settled.hiccups)
    assert sum(s or 0 for s in known.values()) == pytest.approx(
        sum(step.seconds or 0 for step in log_of(DISPATCHED).steps)
    )


@pytest.mark.parametrize("faster", [1.0, 1.08])
def test_a_last_step_between_dispatches_is_seen_with_the_one_before_it(faster: float) -> None:
    run = RUNS[DISPATCHED]
    log = with_times(log_of(DISPATCHED), {48: 0.262, 49: 0.010})
    found = judged(DISPATCHED, run, seconds=0.136 / faster, log=log)
    assert found.verdict.kind is (Kind.PASSED if faster == 1 else Kind.TOO_SLOW)
    assert found.measurement is not None
    assert found.measurement.step_time == pytest.approx(0.136)
    said = "step 49 (printed: 0.01 s): a time between dispatches, seen together with its neighbour's"
    assert said in found.verdict.remarks


@pytest.mark.parametrize("changed", [{49: 0.010}, {48: 0.010, 49: 0.010}, {30: 0.010}])
def test_a_time_that_no_neighbour_took_is_faster_than_the_gpu(changed: dict[int, float]) -> None:
    run = RUNS[DISPATCHED]
    log = with_times(log_of(DISPATCHED), changed)
    found = judged(DISPATCHED, run, seconds=run.seconds, log=log)
    assert found.verdict.kind is Kind.INVALID
    assert "faster than" in found.verdict.headline


SAVED = _on_one_gpu(aks.case("125m-checkpoint-fp16-8gpus"), gbs=16, mbs=4)
PACE = 1_754_848_341 / 24.90324


def saved(case: Case, promised: float) -> Judgement:
    log = log_of("megatron_lm-0.13-save")
    outcome = examples.outcome(nodes="gpu001")
    return examples.judged(case, outcome, log, None, site=SiteFacts(promised=promised))


@pytest.mark.parametrize(
    ("promised", "kind"), [(PACE, Kind.PASSED), (1.5 * PACE, Kind.TOO_SLOW), (PACE / 1.2, Kind.TOO_FAST)]
)
def test_the_checkpoint_of_a_real_run(promised: float, kind: Kind) -> None:
    found = saved(SAVED, promised)
    assert found.verdict.kind is kind, found.text
    assert found.written == Written(24.90324, 1_754_848_341, promised)


# 14.01 bytes a parameter were written, and 14 are expected.
def test_a_real_checkpoint_has_the_bytes_that_are_expected() -> None:
    assert SAVED.parameters == 125_262_336
    assert SAVED.checkpoint == 14 * SAVED.parameters
    assert 1_754_848_341 / SAVED.parameters == pytest.approx(14.01, abs=0.005)
