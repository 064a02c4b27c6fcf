"""Runs of Megatron-Bridge's own cases, of a dense model and of mixtures of experts, in each dtype.

The lines are in the format strings of src/megatron/bridge/training: utils/train_utils.py, lines 657 and 690
at v0.3.1, 1135 and 1178 at v0.6.0, and config.py, line 1729 at v0.3.1 and 1857 at v0.6.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from plugins.baselines.expected import counting, expected
from plugins.judging.judge import judge
from plugins.judging.judgement import Judgement
from plugins.record.verdict import Kind
from tests.printed.megatron_bridge import BALANCED, CAPACITY, SHARDED, STATED, parallel, text_of
from tests.unit import examples
from tests.unit.examples import parse

RECIPE = "megatron_bridge"
CASES = [
    ("llama3-70b-fp8_cs-64gpus", "26.04.01", "gb300"),
    ("llama3-70b-fp8_cs-64gpus", "26.04.01", "h100"),
    ("llama3.1-405b-mxfp8-256gpus", "26.06", "gb200"),
    ("llama3.1-405b-nvfp4-256gpus", "26.06", "gb300"),
    ("deepseek-v3-mxfp8-256gpus", "26.08", "gb300"),
    ("deepseek-v3-fp8_block-1024gpus", "25.09", "h100"),
    ("qwen3-30b-a3b-tokendrop-fp8_cs-16gpus", "25.09", "h100"),
    ("gpt-oss-120b-bf16-64gpus", "26.04", "b200"),
    ("gpt-oss-120b-mxfp8-64gpus", "26.06", "gb300"),
    ("qwen3-30b-a3b-fp8_cs-16gpus", "26.06", "h100"),
    ("qwen3-235b-a22b-mxfp8-256gpus", "26.06", "gb200"),
    ("nemotron-3-nano-mxfp8-8gpus", "26.06", "b300"),
    ("nemotron-3-super-nvfp4-64gpus", "26.08", "gb200"),
]


OF_25_09 = [
    (case.id, "25.09", gpu)
    for gpu in ("gb200", "b200", "h100")
    for case in examples.recipe_named(RECIPE, "25.09", gpu).cases
]
DENSE = [which for which in CASES if which[0].startswith("llama")]
# As tests/unit/public_logs/megatron_bridge-configuration.txt has it.
WITHOUT_EXPERTS = {"num_moe_experts": "null", "moe_router_topk": "2", CAPACITY: "null", BALANCED: "false"}
MIXTURE = CASES[CASES.index(("qwen3-30b-a3b-fp8_cs-16gpus", "26.06", "h100"))]
DROPPING = CASES[CASES.index(("qwen3-30b-a3b-tokendrop-fp8_cs-16gpus", "25.09", "h100"))]


def judged(
    which: tuple[str, str, str],
    slower: float = 1.0,
    stated: Mapping[str, str] | None = None,
    behind: str = "  (Mcore default: None)",
) -> Judgement:
    """The judgement on a run of the case `which`: its id, release and type of GPU."""
    case_id, release, gpu = which
    case = examples.case(case_id, RECIPE, release=release, gpu=gpu)
    baseline = examples.baseline(case_id, RECIPE, release=release, gpu=gpu)
    basis = counting(case, baseline, gpu, examples.BASELINES).basis()
    assert basis is not None
    text = text_of(
        case,
        expected(case, baseline, basis).step_time * slower,
        STATED[case.dtype] if stated is None else stated,
        behind,
    )
    outcome = replace(examples.outcome(), gpu=gpu)
    return examples.judged(case, outcome, parse(text, RECIPE), baseline)


@pytest.mark.parametrize("which", CASES, ids=" ".join)
def test_a_run_at_the_published_pace_passes_and_one_8_percent_slower_is_too_slow(
    which: tuple[str, str, str],
) -> None:
    judgement = judged(which)
    assert judgement.verdict.kind is Kind.PASSED, judgement.verdict
    assert judged(which, 1 / 0.92).verdict.kind is Kind.TOO_SLOW


# Each dtype is stated of two cases or more, one of which is of it.
@pytest.mark.parametrize(
    ("which", "dtype"),
    [(which, dtype) for n, which in enumerate(CASES) for m, dtype in enumerate(STATED) if n % 3 == m % 3 or f"-{dtype}-" in which[0]],
)  # fmt: skip
def test_a_run_in_another_dtype_is_another_run(which: tuple[str, str, str], dtype: str) -> None:
    own = f"-{dtype}-" in which[0]
    judgement = judged(which, stated=STATED[dtype])
    assert (judgement.verdict.kind is Kind.PASSED) == own, judgement.verdict
    assert (judgement.verdict.kind is Kind.INVALID) == (not own), judgement.verdict


SUMMARY = "  (Mcore default: None)"


@pytest.mark.parametrize(
    ("which", "stated", "behind", "words"),
    [
        (CASES[1], {"fp8": "'hybrid'"}, SUMMARY, "states FP8 and no recipe of it, which is delayed scaling; this case is fp8_cs"),
        (CASES[1], {"fp8": "null"}, "", "this case is fp8_cs"),
        (CASES[1], {"fp4": "'e2m1'"}, "", "this case is fp8_cs"),
        (CASES[0], {**STATED["fp8_cs"], SHARDED: ""}, SUMMARY, "this case's sharding by Megatron FSDP is True"),
        (CASES[1], {**STATED["fp8_cs"], SHARDED: "True"}, SUMMARY, "this case's sharding by Megatron FSDP is False"),
        (CASES[0], {**STATED["fp8_cs"], SHARDED: "false"}, "", "this case's sharding by Megatron FSDP is True"),
        (CASES[1], {**STATED["fp8_cs"], SHARDED: "true"}, "", "this case's sharding by Megatron FSDP is False"),
    ],
)  # fmt: skip
def test_another_dtype_or_sharding_is_another_run(
    which: tuple[str, str, str], stated: Mapping[str, str], behind: str, words: str
) -> None:
    verdict = judged(which, stated=stated, behind=behind).verdict
    assert verdict.kind is Kind.INVALID
    assert words in verdict.headline
    assert ("no recipe" in verdict.headline) == ("no recipe" in words)


@pytest.mark.parametrize("which", DENSE, ids=" ".join)
def test_what_core_states_of_the_experts_of_a_dense_model_says_nothing(which: tuple[str, str, str]) -> None:
    dtype = which[0].split("-")[-2]
    verdict = judged(which, stated={**STATED[dtype], **WITHOUT_EXPERTS}, behind="").verdict
    assert (verdict.kind, verdict.remarks) == (Kind.PASSED, ())


SET = "profiling:\n  use_nsys_profiler: true"


@pytest.mark.parametrize("which", OF_25_09, ids=" ".join)
def test_25_09_passes_as_upstream_ran_it(which: tuple[str, str, str]) -> None:
    """100 steps and a profiler that is set and not started: v0.1.0rc4 scripts/performance/configs, all six files."""
    case = examples.case(which[0], RECIPE, release=which[1], gpu=which[2])
    routing = (
        {CAPACITY: "1.0", BALANCED: "false"} if case.drops_tokens else {CAPACITY: "null", BALANCED: "true"}
    )
    stated = {
        **STATED[case.dtype],
        **routing,
        "micro_batch_size": str(case.mbs),
        "train_iters": f"100\n{SET}",
    }
    verdict = judged(which, stated=stated, behind="").verdict
    assert (case.steps, verdict.kind, verdict.remarks) == (100, Kind.PASSED, ())


@pytest.mark.parametrize(
    ("which", "line"),
    [
        (CASES[1], "  use_nsys_profiler: true"),
        (OF_25_09[0], "  use_pytorch_profiler: true"),
        (OF_25_09[0], "Capture range started in the application."),
    ],
)
def test_a_profiler_is_no_part_of_any_other_run(which: tuple[str, str, str], line: str) -> None:
    verdict = judged(which, stated={**STATED["fp8_cs"], "train_iters": f"100\n{line}"}, behind="").verdict
    assert verdict.kind is Kind.INVALID
    assert verdict.reasons == (f"a profiler was on: {line.strip()}",)


@pytest.mark.parametrize("experts", ["8", ""])
def test_a_router_may_tell_another_model_where_there_may_be_experts(experts: str) -> None:
    stated = {**STATED["fp8_cs"], **WITHOUT_EXPERTS, "num_moe_experts": experts}
    verdict = judged(CASES[1], stated=stated, behind="").verdict
    assert verdict.kind is Kind.INVALID
    assert "moe_router_topk: 2\", this case's top_k is 1" in verdict.headline


@pytest.mark.parametrize("which", CASES, ids=" ".join)
def test_another_parallel_size_is_another_run_and_one_that_the_summary_leaves_out_is_1(
    which: tuple[str, str, str],
) -> None:
    case = examples.case(which[0], RECIPE, release=which[1], gpu=which[2])
    for name, size in parallel(case).items():
        verdict = judged(which, stated={**STATED[case.dtype], f"{name}_parallel_size": ""}).verdict
        assert (verdict.kind is Kind.INVALID) == (size > 1), verdict
        assert size == 1 or f", which is then 1; this case's {name[0]}p is {size}" in verdict.headline
        other = judged(which, stated={**STATED[case.dtype], f"{name}_parallel_size": str(size + 2)}).verdict
        assert other.kind is Kind.INVALID


GPT_OSS = CASES[CASES.index(("gpt-oss-120b-bf16-64gpus", "26.04", "b200"))]


def test_a_summary_without_the_experts_of_a_token_has_two_of_them() -> None:
    """`moe_router_topk` is 2 by default, and the summary leaves out what is a default. GPT-OSS has 4."""
    verdict = judged(GPT_OSS, stated={**STATED["bf16"], "moe_router_topk": ""}).verdict
    assert verdict.kind is Kind.INVALID
    assert "and no top_k, which is then 2; this case's top_k is 4" in verdict.headline
    assert judged(GPT_OSS, stated={**STATED["bf16"], "moe_router_topk": "4"}).verdict.kind is Kind.PASSED


@pytest.mark.parametrize(
    ("which", "behind", "stated", "reason"),
    [
        (MIXTURE, "  (Mcore default: None)", {CAPACITY: "1.0"}, "this case drops no token"),
        (MIXTURE, "", {CAPACITY: "1.0", BALANCED: "true"}, "this case drops no token"),
        (MIXTURE, "", {CAPACITY: "null", BALANCED: "false"}, "balances its experts by force"),
        (MIXTURE, "  (Mcore default: None)", {BALANCED: ""}, "leaves the experts to the router; this case"),
        (DROPPING, "", {CAPACITY: "null"}, "this case drops tokens"),
        (DROPPING, "", {CAPACITY: "1.25"}, "this case drops tokens"),
        (DROPPING, "  (Mcore default: None)", {CAPACITY: ""}, "which drops no token; this case drops tokens"),
    ],
)
def test_other_routing_is_another_run(
    which: tuple[str, str, str], behind: str, stated: Mapping[str, str], reason: str
) -> None:
    verdict = judged(which, stated={**STATED["fp8_cs"], **stated}, behind=behind).verdict
    assert verdict.kind is Kind.INVALID
    assert reason in verdict.headline


def test_a_log_that_states_no_routing_is_remarked_on() -> None:
    """Without a summary, nothing tells what a line that is missing would have said."""
    verdict = judged(MIXTURE, stated={**STATED["fp8_cs"], BALANCED: ""}, behind="").verdict
    assert verdict.kind is Kind.PASSED
    assert any(
        "does not state whether experts dropped tokens and whether experts were balanced by force" in remark
        for remark in verdict.remarks
    )


NOTHING = dict.fromkeys(
    (
        *("num_layers", "hidden_size", "seq_length", "params_dtype", "num_moe_experts", "moe_router_topk", "moe_pad_expert_input_to_capacity"),
        *(CAPACITY, BALANCED, SHARDED),
        *(f"{name}_parallel_size" for name in ("tensor_model", "pipeline_model", "virtual_pipeline_model", "context", "expert_model")),
    ),
    "",
)  # fmt: skip


@pytest.mark.parametrize("which", CASES, ids=" ".join)
def test_a_log_without_a_configuration_is_remarked_on(which: tuple[str, str, str]) -> None:
    """`loss scale: 1.0` tells no dtype; the rate is that of all runs with as many FLOPs a GPU."""
    judgement = judged(which, stated=NOTHING)
    assert judgement.verdict.kind is Kind.PASSED
    assert judgement.verdict.remarks == (
        "the log states no configuration: no dtype, parallel sizes or routing; only step time x rate may tell the model; "
        "judged without",
    )


HYBRIDS = [which for which in CASES if which[0].startswith("nemotron-3")]


def without_rate(which: tuple[str, str, str], lines: range) -> Judgement:
    """The judgement on a run whose rate is 0.0 in these lines."""
    judgement = judged(which)
    steps = tuple(
        replace(step, tflops_per_gpu=0.0) if step.index in lines else step for step in judgement.log.steps
    )
    evidence = judgement.evidence
    return judge(replace(evidence, runs=(replace(evidence.own, log=replace(judgement.log, steps=steps)),)))


@pytest.mark.parametrize("which", HYBRIDS, ids=" ".join)
def test_a_rate_of_zero_is_known_of_models_with_mamba_layers(which: tuple[str, str, str]) -> None:
    """NVIDIA-NeMo/Megatron-Bridge#1499: v0.2.0 (container 25.11) returns 0 FLOPs for them, in flop_utils.py 345."""
    verdict = without_rate(which, range(50)).verdict
    assert verdict.kind is Kind.PASSED
    assert verdict.remarks == (
        "every line states 0.0 TFLOP/s a GPU, as Megatron-Bridge up to v0.2.0 (container 25.11) does of a model with Mamba layers: the rate "
        "tells nothing of the model; judged by the step times",
    )
    assert "no positive number" in without_rate(which, range(30, 31)).verdict.headline


@pytest.mark.parametrize("which", [which for which in CASES if which not in HYBRIDS], ids=" ".join)
def test_a_rate_of_zero_of_any_other_model_is_refused(which: tuple[str, str, str]) -> None:
    verdict = without_rate(which, range(50)).verdict
    assert verdict.kind is Kind.INVALID
    assert "the printed rate is no positive number" in verdict.headline


def test_the_flops_of_another_model_of_the_same_stated_shape_are_noticed() -> None:
    """Without multi-token prediction a DeepSeek V3 does 4 % less; the log states neither."""
    case = examples.case("deepseek-v3-mxfp8-256gpus", RECIPE, release="26.06", gpu="gb300")
    baseline = examples.baseline(case.id, RECIPE, release="26.06", gpu="gb300")
    less = examples.recipe_named(RECIPE, "26.06", "gb300").file.models["deepseek-v3-no-mtp"]
    text = text_of(replace(case, model=less), 10.34, STATED["mxfp8"])
    outcome = replace(examples.outcome(), gpu="gb300")
    judgement = examples.judged(case, outcome, parse(text, RECIPE), baseline)
    assert judgement.verdict.kind is Kind.INVALID


def test_a_known_regression_is_told_in_the_verdict_on_a_run_of_it() -> None:
    case = examples.case("gpt-oss-120b-mxfp8-64gpus", RECIPE, release="26.06.01", gpu="gb300")
    outcome = replace(examples.outcome(), gpu="gb300")
    verdict = examples.judged(
        case, outcome, parse(text_of(case, 10.0, STATED["mxfp8"]), RECIPE), None
    ).verdict
    assert verdict.kind is Kind.NO_BASELINE
    assert "Performance regression in GPT-OSS 120B pre-training is a [known issue]" in verdict.headline
