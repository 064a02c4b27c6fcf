"""What a run states of itself, in the words of each upstream, and what is held against the case that it is judged as."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plugins.judging import identity
from plugins.judging.model import first_stage, flops_of_a_step, parameters
from plugins.logs import Log
from plugins.logs.means import Means
from plugins.recipes.cases import Case
from plugins.record.baseline import Statistic
from tests.printed import megatron_lm
from tests.printed.megatron_lm import argument
from tests.printed.nemo2 import nemo2_line
from tests.unit import examples
from tests.unit.examples import parse, problems
from tests.unit.stated import (
    CASES,
    COMMUNICATORS,
    GPU_LINES,
    H100,
    LLAMA,
    NEMO,
    SAMPLES,
    STARTING,
    Sample,
    contradicted,
    facts_of,
    judged,
    steps_of,
    text_of,
)

DIALECTS = pytest.mark.parametrize("dialect", sorted(CASES))
EACH = pytest.mark.parametrize("sample", SAMPLES, ids=str)


@EACH
def test_the_right_value_is_read_and_agrees(sample: Sample) -> None:
    line = sample.line.format(sample.right)
    assert sample.fact in [name for name, _ in facts_of(sample.dialect, line + "\n")]
    assert judged(sample.dialect, text_of(sample.dialect, line)) == []


@pytest.mark.promise("no wrong pass: what a log states")
@EACH
def test_another_value_is_another_run(sample: Sample) -> None:
    text = text_of(sample.dialect, sample.line.format(sample.other))
    (said,) = judged(sample.dialect, text)
    assert said.startswith('the log says "')
    assert sample.said in said


@EACH
def test_of_two_values_one_is_wrong(sample: Sample) -> None:
    right, other = (sample.line.format(value) for value in (sample.right, sample.other))
    for head in ((right, other), (other, right)):
        (said,) = contradicted(sample.dialect, *head)
        assert sample.said in said


@EACH
def test_a_value_cut_short_or_with_other_output_in_it_says_nothing(sample: Sample) -> None:
    line, place = sample.line.format(sample.other), sample.line.index("{}")
    assert contradicted(sample.dialect, line) != []
    for garbled in (line[:place], f"{line[:place]}[rank3] careful{line[place:]}"):
        assert contradicted(sample.dialect, garbled) == []


# MaxText's two runs in one log are one job's; their statements are not told apart.
@pytest.mark.parametrize("sample", [one for one in SAMPLES if one.dialect != "maxtext"], ids=str)
def test_what_an_attempt_states_counts_until_another_one_states_it_anew(sample: Sample) -> None:
    dialect = sample.dialect
    right, other = (sample.line.format(value) for value in (sample.right, sample.other))
    first = steps_of(dialect, 3)
    assert contradicted(dialect, other, *first, right) == []
    for lines in ((other, *first), (right, *first, other)):
        (said,) = contradicted(dialect, *lines)
        assert sample.said in said


# What a run has of the same words and another meaning.
@pytest.mark.parametrize(
    ("dialect", "line"),
    [
        # Megatron-LM 878d65f, of a run with as many groups as heads.
        ("megatron_lm", argument("num_query_groups").format(1)),
        ("megatron_lm", argument("encoder_num_layers").format(24)),
        ("megatron_lm", argument("encoder_seq_length").format(2048)),
        ("megatron_lm", argument("max_position_embeddings").format(2048)),
        ("megatron_lm", argument("dino_head_hidden_size").format(1024)),
        ("megatron_lm", argument("decoder_num_layers").format(None)),
        ("megatron_lm", argument("bf16").format(False)),
        ("megatron_lm", argument("fp8_recipe").format("delayed")),
        ("megatron_lm", argument("num_layers").format("")),
        # NeMo: what the recipe always sets, interpolations, and keys of other sections and depths.
        ("nemo1", "      fp8_hybrid: false"),
        ("nemo1", "      ffn_hidden_size: ${multiply:4, ${.hidden_size}}"),
        ("nemo1", "      max_position_embeddings: 8192"),
        ("nemo1", "        seq_length: 2048"),
        ("nemo1", "    num_layers: 2"),
        ("nemo1", "        num_layers: 2"),
        ("nemo1", NEMO + "All tensor model parallel group ranks: [[0, 1], [2, 3]]"),
        ("nemo1", NEMO + "Rank 0 has model parallel group: [0, 1]"),
        ("nemo2", NEMO + "Rank 0 has combined group of data parallel and context parallel : [0, 1]"),
        ("nemo2", NEMO + "Ranks 0 has data parallel rank: 0"),
        ("nemo2", NEMO + "Rank 0 has tensor model parallel rank: 0"),
        ("nemo2", NEMO + " > number of parameters on (tensor, pipeline) model parallel rank (1 ,3): 8030261248"),
        ("nemo2", NEMO + "Setting up DistributedDataParallel with config DistributedDataParallelConfig(grad_reduce_in_fp32=False, bucket_size=134217728, fp8_param_gather=False)"),
        ("nemo2", "LOCAL_RANK: 0 - CUDA_VISIBLE_DEVICES: [0,1,2,3,4,5,6,7]"),
        # MaxText: before the scale of the whole model, and per device.
        ("maxtext", "Config param base_emb_dim: 2048"),
        ("maxtext", "Config param global_batch_size_to_load: 256.0"),
        ("maxtext", "Config param eval_per_device_batch_size: 4.0"),
        ("maxtext", "Config param ici_parallelism: [1, 1, 1, -1, 1, 1]"),
        ("maxtext", "Config param quantization_local_shard_count: 16"),
        ("maxtext", "Config param hidden_size_for_vit: 1408"),
        ("maxtext", "Config param weight_dtype: float32"),
        ("maxtext", "Config param dtype_mm: float32"),
        ("maxtext", "Config param quantization: ${QUANTIZATION}"),
        # Megatron-Bridge: a deeper key, the recipe of an FP8 that is off, and what another section has.
        ("megatron_bridge", "    num_layers: 4"),
        ("megatron_bridge", "  fp8_recipe: tensorwise"),
        ("megatron_bridge", "    vocab_size: 4"),
        ("megatron_bridge", "  num_query_groups_per_expert: null"),
        ("megatron_bridge", "  num_layers_in_first_pipeline_stage: null"),
    ],
)  # fmt: skip
def test_what_only_looks_like_a_statement_is_none(dialect: str, line: str) -> None:
    assert facts_of(dialect, text_of(dialect, line)) == facts_of(dialect, text_of(dialect))
    assert judged(dialect, text_of(dialect, line)) == []


# NeMo d2b21556: nemo/lightning/pytorch/plugins/mixed_precision.py 121 to 150, megatron/core/distributed/distributed_data_parallel.py 68.
# FP8 may be on without it, so that False says nothing.
@pytest.mark.parametrize(("case_id", "valid"), [("70b-fp8-512gpus", True), ("70b-bf16-512gpus", False)])
def test_nemo_2_says_fp8_by_what_it_gathers(case_id: str, valid: bool) -> None:
    line = f"{NEMO}Setting up DistributedDataParallel with config DistributedDataParallelConfig(grad_reduce_in_fp32=False, overlap_grad_reduce=True, bucket_size=134217728, fp8_param_gather=True, average_in_collective=False)"
    found = judged("nemo2", text_of("nemo2", line), examples.case(case_id))
    assert [said.endswith(", this case is bf16") for said in found] == ([] if valid else [True])


# A run in FP8 says so in one of several places, and null in the others.
@pytest.mark.parametrize(
    ("lines", "valid"),
    [
        (["  fp8: hybrid"], True),
        (["  fp8: e4m3"], True),
        (["  fp8: 'hybrid'  (Mcore default: None)"], True),
        (["  fp8: null", "  fp8: hybrid", "  fp8: null"], True),
        (["  fp8: hybrid", "  fp8: null"], True),
        (["  fp8: null"], False),
        (["  fp8: null", "  fp8: null"], False),
    ],
)
def test_megatron_bridge_says_fp8_in_one_place_of_several(lines: list[str], valid: bool) -> None:
    found = judged("megatron_bridge", text_of("megatron_bridge", *lines))
    assert found == ([] if valid else ['the log says "fp8: null", this case is fp8'])
    bf16 = judged("megatron_bridge", text_of("megatron_bridge", *lines), LLAMA, job="")
    assert any(said.endswith(", this case is bf16") for said in bf16) == valid


# NeMo 1: `step_timing_kwargs.buffer_size` is 1 where nothing sets it (nemo/utils/exp_manager.py), as most recipes have it.
@pytest.mark.parametrize(
    ("lines", "averaged", "valid"),
    [
        (["      log_step_timing: true"], 1, True),
        (["      log_step_timing: true"], 5, False),
        (["      log_step_timing: true", "        buffer_size: 5"], 5, True),
        (["      log_step_timing: true", "        buffer_size: 5"], 1, False),
        ([], 5, True),
    ],
)
def test_nemo_1_says_how_many_steps_a_time_is_the_mean_of(
    lines: list[str], averaged: int, valid: bool
) -> None:
    case = replace(CASES["nemo1"], means=Means(over=averaged))
    found = judged("nemo1", text_of("nemo1", *lines), case)
    said = f", this case's number of steps that each printed time is the mean of is {averaged}"
    assert [problem.endswith(said) for problem in found] == ([] if valid else [True])


# Rates.


def with_rates(case: Case, definition: str, factor: float = 1.0, every: int = 1) -> Log:
    """A NeMo 2 run with `TFLOPS_per_GPU` in its lines, a new one each so many steps and the old one in between."""
    flops = factor * flops_of_a_step(case, definition)  # type: ignore[arg-type]
    times = [30.0 if i == 0 else 10.07 * (1 + 0.004 * (i % 5 - 2)) for i in range(50)]
    lines, shown = [], ""
    for i, seconds in enumerate(times):
        if (i + 1) % every == 0:
            mean = sum(times[i + 1 - every : i + 1]) / every
            shown = f"TFLOPS_per_GPU: {flops / mean / 1e12:.4}"
        line = nemo2_line(i, seconds)
        # Where every step has a new one it stands before the samples, and else behind them (NVIDIA-NeMo/Speech#14850).
        before = line.replace(" | consumed", f" | {shown} | consumed")
        lines.append(line if not shown else before if every == 1 else f"{line} | {shown}")
    return parse("\n".join(lines) + "\n")


@pytest.mark.parametrize("every", [1, 10])
@pytest.mark.parametrize("factor", [0.5, 0.9, 1.05, 2.0])
def test_a_rate_of_another_model_is_another_run_unless_only_the_warm_up_has_it(
    factor: float, every: int
) -> None:
    case = examples.case()
    log = with_rates(case, "full-attention", factor)
    begun = case.means.warm_up(case.steps)
    steps = tuple(step if step.index < begun else replace(step, tflops_per_gpu=None) for step in log.steps)
    assert problems(case, replace(log, steps=steps), Statistic(), H100) == []
    (said,) = problems(case, with_rates(case, "full-attention", factor, every), Statistic(), H100)
    own = [flops_of_a_step(case, name) / 1e12 for name in ("full-attention", "causal-attention")]
    assert said.startswith("step time x TFLOP/s is ")
    assert said.endswith(f" TFLOP a GPU, this case's model is {own[0]:.1f} or {own[1]:.1f}")


# Counts of parameters, as real runs print them: NVIDIA's 8b and 70b in NeMo 2, and MaxText on an H100 with fewer layers.
@pytest.mark.parametrize(
    ("recipe", "case_id", "layers", "printed"),
    [
        *(
            ("llama3", "8b-bf16-8gpus", None, 8_030_261_248),
            ("llama3", "70b-bf16-512gpus", None, 4_541_186_048),
        ),
        ("llama3", "70b-fp8-512gpus", None, 2_401_927_168),
        ("maxtext_llama2", "70b-bf16-64gpus", 80, 68.977e9),
        ("maxtext_llama2", "70b-bf16-64gpus", 1, 1.380e9),
        ("llama3", "8b-bf16-8gpus", 4, 1.923e9),
    ],
)
def test_the_parameters_of_rank_0_and_of_a_whole_model(
    recipe: str, case_id: str, layers: int | None, printed: float
) -> None:
    """`layers`: of the whole model with so many; None: of what rank 0 has."""
    case = examples.case(case_id, recipe)
    count = parameters(case.model.model_copy(update={"layers": layers})) if layers else first_stage(case)
    assert count == pytest.approx(printed, rel=0.001)


# What the record says.

WHOLE: dict[str, tuple[str, ...]] = {
    "nemo2": (STARTING.format(512), NEMO + " > number of parameters on (tensor, pipeline) model parallel rank (0 ,0): 4541186048"),
    "nemo1": ("      num_layers: 96", "      encoder_seq_length: 4096", "      fp8: true", "      num_nodes: 32", "      devices: 8"),
    "maxtext": ("Num_devices: 64, shape (1, 1, 64, 1, 1, 1, 1, 1)", "Config param emb_dim: 8192", "Config param quantization: ", GPU_LINES[0].format("NVIDIA H100 80GB HBM3")),
    "megatron_lm": (argument("world_size").format(16), argument("num_layers").format(12), argument("seq_length").format(1024), argument("fp8").format(None)),
    "megatron_bridge": ("  num_layers: 80", "  seq_length: 8192", "  fp8: hybrid", COMMUNICATORS[0].format(512)),
    "dllogger": (STARTING.format(512), GPU_LINES[5].format("NVIDIA H100 80GB HBM3")),
}  # fmt: skip
TOLD: dict[str, dict[str, str]] = {
    "nemo2": {"processes": "All distributed processes registered. Starting with 512 processes", "model": "number of parameters on (tensor, pipeline) model parallel rank (0 ,0): 4541186048"},
    "nemo1": {"processes": "num_nodes: 32", "model": "num_layers: 96", "sequence length": "encoder_seq_length: 4096", "dtype": "fp8: true"},
    "maxtext": {
        "processes": "Num_devices: 64", "model": "Config param emb_dim: 8192", "sequence length": "the tokens of a step",
        "dtype": "Config param quantization:", "type of GPU": "NVIDIA H100 80GB HBM3",
    },
    "megatron_lm": {
        "processes": " ".join(argument("world_size").format(16).split()), "model": " ".join(argument("num_layers").format(12).split()),
        "sequence length": " ".join(argument("seq_length").format(1024).split()), "dtype": " ".join(argument("fp8").format(None).split()),
    },
    "megatron_bridge": {
        "processes": "NCCL INFO comm 0x55c13a6640d0 rank 15 nranks 512 cudaDev", "model": "num_layers: 80", "sequence length": "seq_length: 8192", "dtype": "fp8: hybrid",
    },
    "dllogger": {
        "processes": "All distributed processes registered. Starting with 512 processes", "model": "cfg/num_layers is 80", "sequence length": "cfg/encoder_seq_length is 8192",
        "dtype": "cfg/fp8 is True", "type of GPU": "NVIDIA H100 80GB HBM3",
    },
}  # fmt: skip


@DIALECTS
def test_the_record_says_which_line_stated_what(dialect: str) -> None:
    text = text_of(dialect, *WHOLE[dialect])
    case, log = CASES[dialect], parse(text, dialect)
    nothing = dict.fromkeys(("processes", "model", "sequence length", "dtype", "type of GPU"), "")
    assert judged(dialect, text) == judged(dialect, text_of(dialect)) == []
    assert identity.stated_by(case, log) == nothing | TOLD[dialect]
    assert identity.anonymous(case, log) == ""
    words = identity.identity_line(case, log).partition("; not stated: ")
    assert all(f"{name} ({line})" in words[0] for name, line in TOLD[dialect].items())
    assert words[2].split(", ") == [name for name in nothing if name not in TOLD[dialect]] or not words[2]


@pytest.mark.parametrize("dialect", ["nemo1", "nemo2"])
def test_a_log_that_says_nothing_of_itself_is_remarked(dialect: str) -> None:
    log = parse(text_of(dialect), dialect)
    assert set(identity.stated_by(CASES[dialect], log).values()) == {""}
    said = identity.anonymous(CASES[dialect], log)
    assert said.startswith("nothing in the log states the number of processes, the model, ")
    assert "its pace alone" in said
    # Groups and batches are those of several models: they tell none.
    line = NEMO + "Rank 0 has tensor model parallel group: [0, 1, 2, 3]"
    assert identity.anonymous(LLAMA, parse(text_of("nemo2", line))) != ""


@pytest.mark.parametrize("dialect", ["megatron_lm", "megatron_bridge"])
def test_a_loss_scale_of_1_tells_no_dtype(dialect: str) -> None:
    """It is that of BF16, FP8 and FP4. A larger one is that of FP16."""
    text = "".join(f"{megatron_lm.line(i)}\n" for i in range(1, 51))
    assert identity.anonymous(LLAMA, parse(text, dialect)).startswith("nothing in the log states the number")
    scaled = text.replace("loss scale: 1.0", "loss scale: 524288.0")
    assert identity.stated_by(LLAMA, parse(scaled, dialect))["dtype"] == "loss scale is 524288.0"


# MaxText's mesh beside the case's sharding, and what Megatron-Bridge prints of dtypes and vocabularies.

LARGE = examples.case("70b-bf16-512gpus", "maxtext_llama2")


def mesh(slices: object, **axes: int) -> list[str]:
    """As MaxText 8e55ab1 prints it, all axes that are not given being 1."""
    names = ("data", "fsdp", "fsdp_transpose", "sequence", "tensor", "pipeline", "expert", "autoregressive")
    lines = [
        f"Config param {place}_{axis}_parallelism: {axes.get(f'{place}_{axis}', 1)}"
        for axis in names
        for place in ("dcn", "ici")
    ]
    return [*lines, *([] if slices is None else [f"Config param num_slices: {slices}"])]


@pytest.mark.parametrize(
    ("axes", "slices", "wrong"),
    [
        # The recipe's 512 GPUs: 16 of 64 nodes share one copy of the parameters.
        ({"ici_fsdp": 8, "dcn_fsdp": 16, "dcn_data": 4}, 64, ""),
        ({"ici_fsdp": -1, "dcn_fsdp": 16, "dcn_data": -1}, 64, ""),
        ({"ici_fsdp": 8, "dcn_fsdp": -1, "dcn_data": 4}, 64, ""),
        # Without the number of slices, what is -1 is not known.
        ({"ici_fsdp": -1, "dcn_fsdp": 64}, None, "data is 4"),
        ({"ici_fsdp": 8, "dcn_fsdp": 16, "dcn_data": -1}, None, ""),
        # MaxText's defaults.
        ({"ici_fsdp": -1, "dcn_data": -1}, 64, "fsdp is 128"),
        ({"ici_fsdp": 8, "dcn_fsdp": 64}, 64, "fsdp is 128"),
        ({"ici_fsdp": 4, "ici_tensor": 2, "dcn_fsdp": 16, "dcn_data": 4}, 64, "tensor is 1"),
        ({"ici_fsdp": 8, "dcn_fsdp": 16, "dcn_pipeline": 4}, 64, "pipeline is 1"),
        ({"ici_fsdp": 8, "dcn_fsdp": 16, "dcn_expert": 4}, 64, "expert is 1"),
        ({"ici_fsdp_transpose": 8, "dcn_fsdp": 16, "dcn_data": 4}, 64, "fsdp_transpose is 1"),
        ({"ici_sequence": 8, "dcn_fsdp": 16, "dcn_data": 4}, 64, "sequence is 1"),
        ({"ici_fsdp": 8, "dcn_fsdp": 16, "dcn_autoregressive": 4}, 64, "autoregressive is 1"),
        ({"ici_data": 8, "dcn_fsdp": 16, "dcn_data": 4}, 64, "data is 4"),
    ],
)
def test_the_mesh_is_the_cases(axes: dict[str, int], slices: int | None, wrong: str) -> None:
    reasons = judged("maxtext", text_of("maxtext", *mesh(slices, **axes), count=50), LARGE)
    # The steps are those of 64 GPUs.
    stated = [reason for reason in reasons if "this case's" in reason and "_parallelism" in reason]
    assert any(reason.endswith(f"this case's {wrong}") for reason in stated) if wrong else stated == []


def yaml(model: str, optimizer: str = "torch.float32") -> list[str]:
    """As safe_dump writes the dtypes (Megatron-Bridge v0.3.0 src/megatron/bridge/utils/yaml_utils.py 120)."""
    return [
        "model:", "  autocast_dtype:", "    _call_: false", "    _target_: torch.float32",
        "  params_dtype:", "    _call_: false", f"    _target_: {model}",
        "  pipeline_dtype:", "    _call_: false", "    _target_: torch.float16",
        "optimizer:", "  params_dtype:", "    _call_: false", f"    _target_: {optimizer}",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        (yaml("torch.bfloat16"), ""),
        (yaml("torch.float32", "torch.bfloat16"), ""),
        (yaml("torch.float32"), "torch.float32"),
        (yaml("torch.float16"), "torch.float16"),
        (["  params_dtype: torch.bfloat16  (Mcore default: torch.float32)"], ""),
        (["  params_dtype: torch.float16  (Mcore default: torch.float32)"], "torch.float16"),
    ],
)
def test_the_dtype_of_the_parameters_is_the_cases(lines: list[str], wrong: str) -> None:
    reasons = judged("megatron_bridge", text_of("megatron_bridge", *lines))
    assert [f"params_dtype: {wrong}" in reason for reason in reasons] == ([True] if wrong else [])
