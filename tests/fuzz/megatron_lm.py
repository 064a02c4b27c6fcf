"""Megatron-LM's log from the pod of the last rank: a line for every ten iterations.

NVIDIA/Megatron-LM 878d65f: megatron/training/training.py `training_log` (the line), megatron/training/arguments.py `_print_args`,
megatron/training/theoretical_memory_usage.py (rank 0 alone). The whole is after megatron_lm-r0.13-375m-fp16-tput-i10.log, a real run at
that commit: the first interval has a warm-up in it and skips its updates, and prints no loss. On one node rank 0 is in the same pod
and prints the arguments too. The first line is the launcher's (suites/gpt3_aks). From core 0.16 on (c40b6ea070 and 6cf285b238) the first
iteration has a line too, which resets nothing, and dates have fractions: after megatron_lm-r0.19-375m-fp16-tput-i10.log and
megatron_lm-r0.19-125m-bf16-i1.log.
"""

from __future__ import annotations

import math

from tests.fuzz import words
from tests.fuzz.job import Job, Page, parameters, stamp, teraflops_of_a_step

SKIPPED = 14
"""Updates that FP16 skips when it begins."""


def _argument(name: str, value: object) -> str:
    return f"  {name} {'.' * (48 - len(name))} {value}"


def arguments(job: Job) -> list[str]:
    case, model = job.case, job.case.model
    stated: dict[str, object] = {
        "bf16": case.dtype == "bf16",
        "context_parallel_size": case.cp,
        "data_parallel_size": case.dp,
        "ffn_hidden_size": model.ffn,
        "fp16": case.dtype == "fp16",
        "fp8": None,
        "fp8_recipe": "delayed",
        "global_batch_size": case.gbs,
        "group_query_attention": False,
        "hidden_size": model.hidden,
        "load": None,
        "log_interval": case.means.every,
        "log_throughput": True,
        "max_position_embeddings": 2048,
        "micro_batch_size": case.mbs,
        "num_attention_heads": model.heads,
        "num_layers": model.layers,
        "num_query_groups": 1,
        "params_dtype": "torch.float16" if case.dtype == "fp16" else "torch.bfloat16",
        "pipeline_model_parallel_size": case.pp,
        "profile": job.nsys,
        "profile_ranks": [0],
        "save": None,
        "save_interval": None,
        "seq_length": case.sequence_length,
        "tensor_model_parallel_size": case.tp,
        "train_iters": job.total,
        "use_pytorch_profiler": False,
        "world_size": case.gpus,
    }
    lines = ["------------------------ arguments ------------------------"]
    lines += [_argument(name, value) for name, value in sorted(stated.items())]
    return [*lines, "-------------------- end of arguments ---------------------"]


def _head(page: Page, job: Job) -> None:
    case = job.case
    here = min(case.gpus, job.per_node)
    page.add(f"node pacemark-worker-1, GPUs and driver: {here} {job.device}, 550.90.07")
    page.add("training on 1200 of 1230 files in /mnt/data")
    page.tell(gpu=job.device)
    if job.nodes > 1:
        return
    page.add(
        f"using world size: {case.gpus}, data-parallel size: {case.dp}, context-parallel size: {case.cp}, hierarchical context-parallel sizes: None, tensor-model-parallel size: {case.tp}, encoder-tensor-model-parallel size: 0, pipeline-model-parallel size: {case.pp}, encoder-pipeline-model-parallel size: 0",
        f"using torch.{'float16' if case.dtype == 'fp16' else 'bfloat16'} for parameters ...",
        *arguments(job),
        f"INFO:megatron.core.num_microbatches_calculator:setting number of microbatches to constant {case.ga}",
        f" > padded vocab (size: 50257) with {case.model.vocab - 50257} dummy tokens (new size: {case.model.vocab})",
        "NCCL version 2.25.1+cuda12.8",
        "building GPT model ...",
        f" > number of parameters on (tensor, pipeline) model parallel rank (0, 0): {parameters(case) // (case.tp * case.pp)}",
        "[before the start of training step] datetime: 2026-11-20 09:03:00 ",
    )
    page.tell(
        processes=case.gpus,
        sequence=case.sequence_length,
        layers=case.model.layers,
        hidden=case.model.hidden,
        dtype=case.dtype,
    )
    page.tell(tp=case.tp, pp=case.pp, cp=case.cp, mbs=case.mbs, heads=case.model.heads)


def _line(job: Job, iteration: int, width: int) -> str:
    """That of this iteration, whose figures are of `width` iterations."""
    case, work = job.case, teraflops_of_a_step(job.case, causal=True)
    moment = job.moments()[iteration - 1]
    date = moment.strftime("%Y-%m-%d %H:%M:%S.%f") if job.style.newer else stamp(moment)
    seconds = math.fsum(job.times[iteration - width : iteration]) / width
    skipped = min(width, max(0, SKIPPED - iteration + width)) if case.dtype == "fp16" else 0
    loss = job.losses[iteration - 1]
    line = (
        f" [{date}] iteration {iteration:8d}/{job.total:8d} | consumed samples: {iteration * case.gbs:12d} |"
    )
    line += f" elapsed time per iteration (ms): {seconds * 1000:.1f} |"
    if not job.style.bare:
        line += f" throughput per GPU (TFLOP/s/GPU): {work / max(seconds, 1e-10):.1f} |"
    line += f" learning rate: {1.395349e-07 * iteration:.6E} | global batch size: {case.gbs:5d} |"
    if skipped < width and loss > 0:
        # Megatron leaves out a mean that is not above 0, and counts a NaN as an iteration of its own kind.
        line += f" lm loss: {loss:.6E} |"
    scale = 1.0 if case.dtype != "fp16" else 524288.0 if iteration > 10 else 8388608.0
    line += f" loss scale: {scale:.1f} |"
    if skipped < width:
        line += f" grad norm: {1.8 if loss == loss else loss:.3f} |"
    return f"{line} number of skipped iterations: {skipped:3d} | number of nan iterations: {0 if loss == loss else 1:3d} |\n"


def render(job: Job) -> Page:
    page, rng, case = Page(), job.rng(), job.case
    rated = not job.style.bare
    if rated:
        _head(page, job)
    if job.style.nccl:
        words.nccl(page, job, rng)
    every = case.means.every
    for iteration in range(every, len(job.times) + 1, every):
        # The line of the first iteration starts neither timer nor counts again.
        width = 2 if job.style.newer and every == 1 and iteration == 2 else every
        page.steps.append([_line(job, iteration, width)])
    if job.style.newer and every > 1 and page.steps:
        page.steps[0].insert(0, _line(job, 1, 1))
    if rated and job.nodes == 1:
        billions = parameters(case) / 1e9
        page.steps[0] += [
            f"Number of parameters in transformer block in billions:  {billions * 0.9:.2f}\n",
            f"Total number of parameters in billions: {billions:.2f}\n",
            "[Rank 0] (after 10 iterations) memory (MB) | allocated: 872.12158203125 | max allocated: 4555.60107421875 | reserved: 5354.0 | max reserved: 5354.0\n",
        ]
    page.end("exit code 0")
    page.tell(gbs=case.gbs, steps=job.total, scaled=case.dtype == "fp16")
    if rated:
        page.tell(rate=teraflops_of_a_step(case, causal=True))
    return page
