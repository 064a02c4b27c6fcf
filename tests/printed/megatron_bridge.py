"""Megatron-Bridge's log: rank 0's rate and the last rank's line for each step, often on one line.

NVIDIA-NeMo/Megatron-Bridge v0.2.0: src/megatron/bridge/training/utils/train_utils.py L555-635 (both lines), setup.py L481 (the
configuration as YAML, from rank 0), utils/log_utils.py (`barrier_and_log`). v0.1 prints `TFLOP/s/GPU` without `MODEL_` (#841). From 26.02.01 (v0.3.1) on
the configuration is a summary (`log_non_default_values`; NVIDIA-NeMo/Megatron-Bridge#2974). Shapes: the public
log in shared/reference/slurm_recipes.md 2.4, NVIDIA-BioNeMo/bionemo-recipes#1357 (the counts of parameters behind the first step).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from plugins.baselines.metrics import FlopsDefinition, tflops_per_gpu
from plugins.baselines.metrics import flops_per_sequence as flops_of
from tests.printed import nccl
from tests.printed.megatron_lm import line
from tests.printed.run import Job, Page, parameters, stamp, teraflops_of_a_step

if TYPE_CHECKING:
    from plugins.recipes.cases import Case

DTYPES = {"bf16": "bfloat16", "fp8": "bfloat16", "fp16": "float16"}


def rate(seconds: float = 10.07, tflops: float = 730.9, *, model: str = "MODEL_") -> str:
    """Rank 0's; v0.1 has no `model`."""
    return f"Step Time : {seconds:.2f}s GPU utilization: {tflops:.1f}{model}TFLOP/s/GPU"


def setting(name: str, value: object, usual: object = None) -> str:
    """A value that is not Megatron's default (`log_non_default_values`)."""
    return f"  {name}: {value!r}  (Mcore default: {usual!r})"


class Bare(str):
    """What is printed without quotes, as a dtype is."""

    __repr__ = str.__str__


def configuration(job: Job) -> list[str]:
    case, model = job.case, job.case.model
    fp8 = case.dtype == "fp8"
    return f"""_target_: megatron.bridge.training.config.ConfigContainer
checkpoint:
  _target_: megatron.bridge.training.config.CheckpointConfig
  async_save: false
  load: null
  save: null
  save_interval: null
dataset:
  _target_: megatron.bridge.training.config.MockGPTDatasetConfig
  sequence_length: {case.sequence_length}
logger:
  _target_: megatron.bridge.training.config.LoggerConfig
  log_interval: 1
mixed_precision:
  _target_: megatron.bridge.training.mixed_precision.MixedPrecisionConfig
  bf16: true
  fp8: {"hybrid" if fp8 else "null"}
  fp8_recipe: tensorwise
model:
  _target_: megatron.bridge.models.llama.llama_provider.Llama31ModelProvider
  bf16: true
  context_parallel_size: {case.cp}
  ffn_hidden_size: {model.ffn}
  fp8: {"hybrid" if fp8 else "null"}
  hidden_size: {model.hidden}
  num_attention_heads: {model.heads}
  num_layers: {model.layers}
  num_moe_experts: null
  num_query_groups: {model.query_groups}
  params_dtype:
    _call_: false
    _target_: torch.{DTYPES[case.dtype]}
  pipeline_dtype:
    _call_: false
    _target_: torch.float32
  pipeline_model_parallel_size: {case.pp}
  seq_length: {case.sequence_length}
  tensor_model_parallel_size: {case.tp}
  virtual_pipeline_model_parallel_size: {case.vp if case.vp > 1 else "null"}
  vocab_size: {model.vocab}
optimizer:
  _target_: megatron.bridge.training.config.OptimizerConfig
  params_dtype:
    _call_: false
    _target_: torch.float32
profiling: null
tokenizer:
  _target_: megatron.bridge.training.tokenizers.config.TokenizerConfig
  tokenizer_type: NullTokenizer
  vocab_size: {min(32000, model.vocab)}
train:
  _target_: megatron.bridge.training.config.TrainingConfig
  global_batch_size: {case.gbs}
  micro_batch_size: {case.mbs}
  train_iters: {job.total}""".splitlines()


def _head(page: Page, job: Job) -> None:
    case = job.case
    page.add(
        "> initializing torch distributed ...",
        f"[Gloo] Rank 0 is connected to {case.gpus - 1} peer ranks. Expected number of connected peer ranks is : {case.gpus - 1}",
        "[Gloo] Rank 0 is connected to 0 peer ranks. Expected number of connected peer ranks is : 0",
        f"> initialized tensor model parallel with size {case.tp}",
        f"> initialized pipeline model parallel with size {case.pp}",
        "> setting random seeds to 1234 ...",
        "time to initialize megatron (seconds): 21.204",
        "[after megatron is initialized] datetime: 2026-11-20 09:01:30",
        f" > number of parameters on (tensor, pipeline) model parallel rank (0, 0): {parameters(case) // (case.tp * case.pp)}",
        "[after dataloaders are built] datetime: 2026-11-20 09:02:30",
        "done with setup ...",
    )
    page.tell_of(case, "processes sequence layers hidden tp pp mbs")
    fp8 = case.dtype == "fp8"
    if job.nsys or job.seed % 5 < 3:
        lines = configuration(job)
        if job.nsys:
            lines[lines.index("profiling: null")] = "profiling:\n  use_nsys_profiler: true"
        page.add("------- Task Configuration -------", *lines, "", "----------------------------------")
        page.tell(dtype=fp8, cp=case.cp, vp=case.vp, vocab=case.model.vocab)
    else:
        page.add(*summary(job))
        page.tell(vocab=case.model.vocab)
        if case.vp > 1:
            page.tell(vp=case.vp)
        if fp8:
            page.tell(dtype=fp8)
        if case.cp > 1:
            page.tell(cp=case.cp)
    page.add(
        "Training ...",
        "Setting rerun_state_machine.current_iteration to 0...",
        "Starting training loop at iteration 0",
    )


def summary(job: Job) -> list[str]:
    """The configuration as v0.4 prints it: what equals Megatron's default is not there, and tells nothing."""
    case, model = job.case, job.case.model
    stated: list[tuple[str, object, object]] = [
        ("bf16", True, False),
        ("context_parallel_size", case.cp, 1),
        ("ffn_hidden_size", model.ffn, None),
        ("first_last_layers_bf16", True, False),
        ("fp8", "hybrid" if case.dtype == "fp8" else None, None),
        ("fp8_recipe", "tensorwise", "delayed"),
        ("hidden_size", model.hidden, 0),
        ("num_attention_heads", model.heads, 0),
        ("num_layers", model.layers, 0),
        ("num_query_groups", model.query_groups, None),
        ("params_dtype", Bare(f"torch.{DTYPES[case.dtype]}"), Bare("torch.float32")),
        ("pipeline_model_parallel_size", case.pp, 1),
        ("seq_length", case.sequence_length, None),
        ("tensor_model_parallel_size", case.tp, 1),
        ("virtual_pipeline_model_parallel_size", case.vp if case.vp > 1 else None, None),
        ("vocab_size", model.vocab, None),
    ]
    return [
        "=" * 70,
        "Configuration Summary (Non-Default Values vs Megatron Core)",
        "=" * 70,
        "",
        "[model] Non-default values (vs Mcore TransformerConfig):",
        *(setting(*one) for one in stated if one[1] != one[2]),
        "",
        "Other Configuration Values:",
        "[dataset]:",
        f"  sequence_length: {case.sequence_length}",
        "[train]:",
        f"  global_batch_size: {case.gbs}",
        f"  micro_batch_size: {case.mbs}",
        f"  train_iters: {job.total}",
        "=" * 70,
    ]


def render(job: Job) -> Page:
    page, rng, case = Page(), job.rng(), job.case
    if not job.style.bare:
        _head(page, job)
    if job.style.nccl:
        nccl.start(page, job, rng)
    work = teraflops_of_a_step(case, causal=True)
    moments, model = job.moments(), "" if rng.random() < 0.1 else "MODEL_"
    for index, (seconds, loss, moment) in enumerate(zip(job.times, job.losses, job.moments(), strict=True)):
        finite = loss == loss
        first = rate(seconds, work / max(seconds, 1e-10), model=model)
        second = line(
            index + 1,
            seconds * 1000,
            total=job.total,
            gbs=case.gbs,
            loss=loss,
            nan=0 if finite else 1,
            grad_norm=0.475 if finite else loss,
            date=stamp(moment),
            learning_rate=3e-07 * (index + 1),
        )
        way = rng.random()
        if way < 0.3:
            page.steps.append([f"{first}{second}\n"])
        elif way < 0.4:
            page.steps.append([f"{second}{first}\n"])
        else:
            page.steps.append([first + "\n", second + "\n"])
    if page.steps and not job.style.bare:
        billions = parameters(case) / 1e9
        page.steps[0].append(
            f"Number of parameters in transformer layers in billions:  {billions * 0.9:.2f}\n"
        )
        page.steps[0].append(f"Total number of parameters in billions: {billions:.2f}\n")
    end = stamp(moments[-1]) if moments else "2026-11-20 09:05:00"
    page.end("Deleting CUDA graphs", f"[after training is done] datetime: {end}")
    page.tell(gbs=case.gbs, steps=job.total, rate=work)
    return page


# What the summary states of a run's dtype.
STATED = {
    # mixed_precision.py, line 45 at v0.3.1, has this recipe in the place of Megatron Core's.
    "bf16": {"fp8_recipe": "'tensorwise'"},
    "fp8_cs": {"fp8": "'hybrid'", "fp8_recipe": "'tensorwise'"},
    "fp8_block": {"fp8": "'e4m3'", "fp8_recipe": "'blockwise'"},
    "mxfp8": {"fp8": "'e4m3'", "fp8_recipe": "'mxfp8'"},
    "nvfp4": {"fp4": "'e2m1'", "fp8_recipe": "'tensorwise'"},
}
SHARDED = "use_megatron_fsdp"
CAPACITY, BALANCED = "moe_expert_capacity_factor", "moe_router_force_load_balancing"


def routed(case: Case) -> dict[str, str]:
    """What `apply_moe_token_drop` and the performance recipes change (v0.6.0: scripts/performance/utils/overrides.py 454)."""
    if case.model.experts == 1:
        return {}
    routing = {CAPACITY: "1.0", "moe_pad_expert_input_to_capacity": "True"}
    if not case.drops_tokens:
        routing = {BALANCED: "True"}
    # Megatron Core's default is 2.
    top_k = {"moe_router_topk": str(case.model.top_k)} if case.model.top_k != 2 else {}
    return {"num_moe_experts": str(case.model.experts), **top_k, **routing}


def parallel(case: Case) -> dict[str, int]:
    """The parallel sizes, by Megatron Core's names. The summary leaves out those of 1."""
    names = ("tensor_model", "pipeline_model", "virtual_pipeline_model", "context", "expert_model")
    return dict(zip(names, (case.tp, case.pp, case.vp, case.cp, case.ep), strict=True))


def text_of(
    case: Case, seconds: float, stated: Mapping[str, str], behind: str = "  (Mcore default: None)"
) -> str:
    """The log of a run at this pace, in s a step, whose summary states this beside the case's model. "" states nothing."""
    facts = {
        **routed(case),
        "num_layers": str(case.model.layers),
        "hidden_size": str(case.model.hidden),
        "seq_length": str(case.sequence_length),
        **{f"{name}_parallel_size": str(size) for name, size in parallel(case).items() if size > 1},
        **({SHARDED: "True"} if case.fsdp > 1 else {}),
        "params_dtype": "torch.bfloat16",
        **stated,
    }
    lines = [f"  {name}: {value}{behind}" for name, value in sorted(facts.items()) if value]
    flops = flops_of(case.model, case.sequence_length, FlopsDefinition(definition="causal-attention"))
    for iteration in range(1, case.steps + 1):
        took = seconds * (1 + 0.002 * (iteration % 5 - 2))
        lines.append(rate(took, tflops_per_gpu(case, took, flops)))
        lines.append(line(iteration, f"{1000 * took:.1f}", gbs=case.gbs, total=case.steps))
    return "\n".join([*lines, "[after training is done] datetime: 2026-03-27 23:13:36", ""])
