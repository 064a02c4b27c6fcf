"""Excerpts of logs that others made public, and of upstream's own programs: their real shapes, word for word.

Each file of `public_logs/` begins with its source; its name begins with its dialect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from plugins.baselines.baseline_file import Cell, Table
from plugins.baselines.metrics import FlopsDefinition
from plugins.baselines.store import Baseline
from plugins.judging.evidence import SiteFacts
from plugins.judging.judgement import Judgement
from plugins.judging.model import flops_of_a_step
from plugins.judging.timing import levelled
from plugins.logs import Log, Span
from plugins.logs.formats import read
from plugins.logs.means import SINGLE, Means
from plugins.modes.checkpoints import Written
from plugins.recipes.cases import Case
from plugins.record.baseline import Tolerance
from plugins.record.verdict import Kind
from tests.unit import aks, examples

FOLDER = Path(__file__).parents[1] / "public_logs"


@dataclass(frozen=True)
class Told:
    """What an excerpt tells. `steps` are index and time, in s; None where the line does not state it in a form that is read."""

    steps: tuple[tuple[int, float | None], ...] = ()
    planned: int | None = None
    facts: tuple[tuple[str, int | str], ...] = ()
    marks: tuple[str, ...] = ()
    every: int = 1


AXES_OF_2024 = (
    "autoregressive",
    "data",
    "expert",
    "fsdp",
    "fsdp_transpose",
    "pipeline",
    "sequence",
    "tensor",
)
AXES = (
    *AXES_OF_2024,
    "context",
    "context_autoregressive",
    "context_usp_ulysses",
    "diloco",
    "tensor_sequence",
)


def mesh(axes: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    """One GPU has a size of 1 on each axis of MaxText's mesh; -1 is what the others leave."""
    filled = {"dcn_data": -1, "ici_fsdp": -1}
    names = [f"{place}_{axis}" for place in ("dcn", "ici") for axis in axes]
    return (("slices", 1), *((name, filled.get(name, 1)) for name in names))


EXCERPTS: dict[str, Told] = {
    # The line of step 0 has no consumed_samples, so that its time is its last field.
    "nemo2-first-step": Told(
        ((0, 4.022), (1, 0.4357), (2, 0.4321)),
        50_000_000,
        (("dp", 2), ("cp", 1), ("tp", 1), ("ga", 4), ("processes", 2), ("first_stage", 40950336)),
    ),
    # consumed_samples stood before the batch size, in step 0 too, and the time last in each line.
    "nemo2-of-november-2024": Told(((0, 61.94), (1, 53.67), (2, 52.45)), 5),
    "nemo2-samples-before-batch": Told(((120, 0.03146), (121, 0.03163)), 150),
    "nemo2-validation": Told(((28, 0.189), (29, 0.1903), (30, 0.1915)), 100),
    "nemo2-labels-and-old-rates": Told(((8, 27.01), (9, 27.88), (10, 26.63), (11, 26.93)), 30),
    # Groups of one are printed as [0].
    "nemo2-one-process": Told((), None, (("cp", 1), ("tp", 1), ("pp", 1))),
    # No train_step_timing: the bar of 2023 has its own seconds an iteration, which is a mean that tqdm smooths.
    "nemo1-without-time": Told(((794, None),), 77225),
    # `9e+3` is one of a thousand steps: no line says which.
    "nemo1-nine-thousand": Told(),
    # The line was folded within its fields, so that neither time nor loss stands whole on the line of its iteration.
    "megatron_bridge-folded": Told(((9, None), (19, None)), 50, (), ("profiler",), 10),
    # Rank 0 counts parameters between its own line and the last rank's.
    "megatron_bridge-first-step": Told(((0, 7.0373),), 10, (("precision", "bf16"),)),
    "megatron_bridge-task-name": Told(((49, 9.089),), 50, (("precision", "bf16"),), every=0),
    "megatron_bridge-glued": Told(((0, 20.2891),), 1, (("precision", "bf16"),)),
    # What equals Megatron's default is not in a summary; FP4 is no dtype of any case, and the recipe of an FP8 that is off no FP8.
    "megatron_bridge-summary": Told((), None, (("ffn", 128), ("fp8", "fp4"), ("hidden", 128))),
    # The data are of another sequence length than the model, whose rate is therefore that of no GPU. Two processes' lines of Gloo
    # stand in each other: one of them is whole.
    "megatron_bridge-configuration": Told(
        ((9, 4.6478),),
        10,
        (
            ("gpu", "NVIDIA H100 80GB HBM3"), ("ga", 64), ("peers", 7), ("sequence_length", 1024), ("fp8", False), ("cp", 1), ("ep", 1),
            ("ffn", 8192), ("hidden", 2048), ("heads", 32), ("layers", 16), ("query_groups", 8), ("pp", 1), ("sequence_length", 131072),
            ("tp", 1), ("vp", 1), ("vocab", 128256), ("sharded", False), ("gbs", 512), ("mbs", 1), ("precision", "bf16"),
            # A dense model: Megatron Core's defaults of its experts stand there all the same.
            ("experts", 1), ("top_k", 2), ("expert_capacity", "none"), ("balanced", False),
        ),
        ("checkpoint",),
        0,
    ),
    "megatron_lm-mixtral": Told(((42, 5.4449), (43, 5.5338)), 100, (("precision", "bf16"),)),
    "megatron_lm-without-date": Told(((121, 86.5452),), 250_000, (("precision", "bf16"),), every=0),
    # Ten updates were skipped, so that there is no loss.
    "megatron_lm-skipped": Told(((9, 0.3562),), 1_000_000, (("precision", "fp16"),), every=0),
    # This fork prints two figures in each field, and how the time is the mean of others it does not say.
    "megatron_lm-fork": Told(((423, None),), 40_000, (("precision", "bf16"),), every=0),
    "megatron_lm-0.13": Told(
        (
            (9, 0.7838), (19, 0.4301), (29, 0.3495), (39, 0.3261), (49, 0.3376), (59, 0.3497), (69, 0.3283), (79, 0.3434), (89, 0.3331),
            (99, 0.3229),
        ),
        100,
        (
            ("processes", 1), ("dp", 1), ("cp", 1), ("tp", 1), ("pp", 1), ("ffn", 2048), ("precision", "fp16"), ("fp8", False), ("gbs", 16),
            ("hidden", 512), ("mbs", 4), ("heads", 8), ("layers", 12), ("sequence_length", 1024), ("vp", 1), ("experts", 1), ("ga", 4),
            ("vocab", 50304),
        ),
        every=10,
    ),
    # The first iteration has a line of its own, and what it took is in the mean of the first ten.
    "megatron_lm-0.19": Told(
        (
            (9, 0.8679), (19, 0.4307), (29, 0.4024), (39, 0.3814), (49, 0.3857), (59, 0.4198), (69, 0.3647), (79, 0.4124), (89, 0.3924), (99, 0.335),
        ),
        100,
        (
            ("processes", 1), ("dp", 1), ("cp", 1), ("tp", 1), ("pp", 1), ("ffn", 2048), ("precision", "fp16"), ("fp8", False), ("gbs", 16),
            ("hidden", 512), ("mbs", 4), ("heads", 8), ("layers", 12), ("sequence_length", 1024), ("vp", 1), ("experts", 1), ("ga", 4),
            ("vocab", 50304),
        ),
        every=10,
    ),
    # The line of iteration 2 has the mean of 1 and 2, 2918.4 ms: the first line does not start the timer again. By the dates it took 0.71 s.
    "megatron_lm-0.19-each": Told(
        (
            (0, 5.1329), (1, 0.7039), (2, 0.6714), (3, 0.6613), (4, 0.7186), (5, 0.4893), (6, 0.5294), (7, 0.511), (8, 0.499), (9, 0.3734),
            (10, 0.4849), (11, 0.5107), (12, 0.4888), (13, 0.5639), (14, 0.5148), (15, 0.502), (16, 0.4797), (17, 0.5081), (18, 0.5041),
            (19, 0.4809), (20, 0.5081), (21, 0.5189), (22, 0.515), (23, 0.4802), (24, 0.5092), (25, 0.5441), (26, 0.5163), (27, 0.4975),
            (28, 0.4834), (29, 0.5258), (30, 0.4632), (31, 0.4969), (32, 0.4997), (33, 0.5042), (34, 0.4958), (35, 0.4894), (36, 0.5802),
            (37, 0.5096), (38, 0.5077), (39, 0.4509),
        ),
        40,
        (
            ("processes", 1), ("dp", 1), ("cp", 1), ("tp", 1), ("pp", 1), ("precision", "bf16"), ("fp8", False), ("layers", 12),
            ("ffn", 3072), ("hidden", 768), ("heads", 12), ("sequence_length", 1024), ("gbs", 16), ("mbs", 4), ("experts", 1), ("vp", 1),
            ("ga", 4), ("vocab", 50304),
        ),
    ),
    "megatron_lm-0.13-save": Told(
        ((9, 0.6588), (19, 0.4371)),
        20,
        (
            ("processes", 1), ("dp", 1), ("cp", 1), ("tp", 1), ("pp", 1), ("ffn", 3072), ("fp8", False), ("gbs", 16), ("hidden", 768), ("mbs", 4), ("heads", 12), ("layers", 12), ("sequence_length", 1024), ("precision", "fp16"),
            ("experts", 1), ("vp", 1), ("ga", 4), ("vocab", 50304),
        ),
        ("checkpoint",),
        10,
    ),
    # Other figures of the loss stand behind it.
    "maxtext-behind-loss": Told(((1, 0.631), (2, 10.228))),
    # No total_weights, or not even Tokens/s, up to the middle of 2024: two of three lines are not read.
    "maxtext-without-weights": Told(((9, 5.667),)),
    # total_weights are the tokens that are no padding: fewer than GBS x sequence length.
    "maxtext-checkpointing": Told(
        ((46, 64.453), (47, 64.593), (48, 64.648)),
        None,
        (("precision", "bf16"), ("hidden", 8192), ("gbs", 896), ("sequence_length", 8192), ("layers", 80), ("fp8", False),
            ("dcn_data", 2), ("dcn_fsdp", -1), ("ici_fsdp", 8), ("slices", 16), ("ga", 1), ("sequences_per_gpu", 7),
        ),
        ("checkpoint",),
    ),
    "maxtext-tpu": Told((), None, (("processes", 32),)),
    "maxtext-of-december-2024": Told(
        (
            (0, 4.917), (1, 0.662), (2, 0.01), (3, 0.135), (4, 0.133), (5, 0.146), (6, 0.256), (7, 0.011), (8, 0.133), (9, 0.133), (10, 0.136),
            (11, 0.135), (12, 0.133), (13, 0.134), (14, 0.139), (15, 0.135), (16, 0.14), (17, 0.149), (18, 0.118), (19, 0.137), (20, 0.136),
            (21, 0.137), (22, 0.136), (23, 0.135), (24, 0.137), (25, 0.136), (26, 0.158), (27, 0.115), (28, 0.133), (29, 0.137), (30, 0.138),
            (31, 0.135), (32, 0.132), (33, 0.138), (34, 0.136), (35, 0.143), (36, 0.131), (37, 0.165), (38, 0.105), (39, 0.136), (40, 0.138),
            (41, 0.137), (42, 0.134), (43, 0.137), (44, 0.138), (45, 0.135), (46, 0.136), (47, 0.134), (48, 0.136), (49, 0.138),
        ),
        None,
        (
            ("gpu", "NVIDIA H100 80GB HBM3"), ("precision", "bf16"), ("layers", 1), ("fp8", False), ("processes", 1), ("million_parameters", 1380),
            ("hidden", 8192), ("ffn", 28672), ("heads", 64), ("query_groups", 8), ("vocab", 32000), ("experts", 1), ("top_k", 1), ("gbs", 2),
            ("ga", 1), ("sequence_length", 4096), ("micro_batch", 2), ("sequences_per_gpu", 2), *mesh(AXES_OF_2024),
        ),
    ),
    "maxtext-0.2.4": Told(
        (
            (0, 1.943), (1, 1.373), (2, 1.103), (3, 1.09), (4, 1.091), (5, 1.094), (6, 1.087), (7, 1.096),
        ),
        None,
        (
            ("gpu", "NVIDIA H100 80GB HBM3"), ("precision", "bf16"), ("hidden", 4096), ("gbs", 8), ("sequence_length", 8192), ("ffn", 14336),
            ("layers", 4), ("query_groups", 8), ("heads", 32), ("fp8", False), ("vocab", 128256), ("processes", 1), ("million_parameters", 1923),
            ("experts", 1), ("top_k", 1), ("ga", 8), ("micro_batch", 1), ("sequences_per_gpu", 1), *mesh(AXES),
        ),
    ),
    # Records of two runs; one of them counts its steps and samples in floats.
    "dllogger-file": Told(((47, 25.115550994873047), (16, 92.28738164901733))),
}  # fmt: skip
# Lines that any dialect may have, in files that have no step.
COMMON: dict[str, tuple[tuple[str, int | str], ...]] = {
    "lightning-one-process": (("processes", 1), ("gpu", "NVIDIA GeForce RTX 3060")),
    "nccl-rank-first": (("group", 8),),
}
DIALECTS = ("dllogger", "maxtext", "megatron_bridge", "megatron_lm", "nemo1", "nemo2")


def text_of(name: str) -> bytes:
    """An excerpt without its source."""
    return (FOLDER / f"{name}.txt").read_bytes().partition(b"\n")[2]


def log_of(name: str) -> Log:
    return read(name.partition("-")[0], iter([text_of(name)]))


@pytest.mark.parametrize("name", EXCERPTS)
def test_what_a_real_log_tells(name: str) -> None:
    told, log = EXCERPTS[name], log_of(name)
    assert [step.index for step in log.steps] == [index for index, _ in told.steps]
    assert [step.seconds for step in log.steps] == [
        None if seconds is None else pytest.approx(seconds) for _, seconds in told.steps
    ]
    assert (log.planned, log.every) == (told.planned, told.every)
    assert {(fact.name, fact.value) for fact in log.facts} == set(told.facts)
    assert tuple(kind for kind, _ in log.marks) == told.marks
    assert (log.repeated, log.restarted_after) == ((), ())


@pytest.mark.parametrize("name", EXCERPTS)
def test_a_real_log_reads_the_same_in_pieces(name: str) -> None:
    data = text_of(name)
    whole = repr(log_of(name))
    for size in (1, 7, 100):
        pieces = (data[at : at + size] for at in range(0, len(data), size))
        assert repr(read(name.partition("-")[0], pieces)) == whole


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", COMMON)
def test_what_any_dialect_may_have(name: str, dialect: str) -> None:
    log = read(dialect, iter([text_of(name)]))
    assert tuple((fact.name, fact.value) for fact in log.facts) == COMMON[name]
    assert (log.steps, log.marks) == ((), ())


# `GPU utilization: 58.2TFLOP/s/GPU` in v0.1, `MODEL_TFLOP/s/GPU` later.
@pytest.mark.parametrize(
    ("name", "rates"),
    [
        # The mean of the last ten steps, printed again until there is a new one: 85.8 of a step of 27.88 s and of one of 26.63 s.
        ("nemo2-labels-and-old-rates", [48.58, 85.8, 85.8, 85.8]),
        ("megatron_bridge-first-step", [24.7]),
        ("megatron_bridge-task-name", [663.5]),
        ("megatron_bridge-configuration", [59892.5]),
        ("megatron_bridge-glued", [None]),
    ],
)
def test_the_printed_rates_are_those_of_their_steps(name: str, rates: list[float | None]) -> None:
    assert [step.tflops_per_gpu for step in log_of(name).steps] == rates


# Real runs, judged

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
