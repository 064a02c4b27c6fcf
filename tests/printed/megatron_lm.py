"""Megatron-LM's log. That of a whole run is from the pod of the last rank: a line for every ten iterations.

NVIDIA/Megatron-LM 878d65f: megatron/training/training.py `training_log` (the line), megatron/training/arguments.py `_print_args`,
megatron/training/theoretical_memory_usage.py (rank 0 alone). The whole is after megatron_lm-r0.13-375m-fp16-tput-i10.log, a real run at
that commit: the first interval has a warm-up in it and skips its updates, and prints no loss. On one node rank 0 is in the same pod
and prints the arguments too. The first line is the launcher's (suites/gpt3_aks). From core 0.16 on (c40b6ea070 and 6cf285b238) the first
iteration has a line too, which resets nothing, and dates have fractions: after megatron_lm-r0.19-375m-fp16-tput-i10.log and
megatron_lm-r0.19-125m-bf16-i1.log.
"""

from __future__ import annotations

import math

from tests.printed import nccl
from tests.printed.run import Job, Page, number, parameters, stamp, teraflops_of_a_step

SKIPPED = 14
"""Updates that FP16 skips when it begins."""


def line(
    iteration: int,
    ms: float | str = 10070.0,
    *,
    total: int = 50,
    gbs: int = 1024,
    throughput: float | str | None = None,
    loss: float | str | None = "",
    skipped: int = 0,
    nan: int = 0,
    grad_norm: float | str | None = "0.475",
    scale: float = 1.0,
    date: object = "2025-01-01 12:00:00",
    learning_rate: float = 2.7e-4,
) -> str:
    """That of an iteration. None: `training_log` leaves it out; unless a loss is given, each is less than the one before."""
    rate = f" throughput per GPU (TFLOP/s/GPU): {number(throughput, '.1f')} |" if throughput else ""
    loss = 0.08645955 + (50 - iteration) / 1e4 if loss == "" else loss
    mean = f" lm loss: {number(loss, '.6E')} |" if loss is not None else ""
    norm = f" grad norm: {number(grad_norm, '.3f')} |" if grad_norm is not None else ""
    return (
        f" [{date}] iteration {iteration:8d}/{total:8d} | consumed samples: {iteration * gbs:12d} |"
        f" elapsed time per iteration (ms): {number(ms, '.1f')} |{rate} learning rate: {learning_rate:.6E} |"
        f" global batch size: {gbs:5d} |{mean} loss scale: {scale:.1f} |{norm}"
        f" number of skipped iterations: {skipped:3d} | number of nan iterations: {nan:3d} |"
    )


def argument(name: str, value: object = "{}") -> str:
    """Of `_print_args` (L1090 to L1103); with a hole for its value if none is given."""
    return f"  {name} {'.' * (48 - len(name))} {value}"


def padded(size: int, new: object) -> str:
    """Of `_vocab_size_with_padding`, megatron/training/tokenizer/tokenizer.py."""
    return f" > padded vocab (size: {size}) with {new - size if isinstance(new, int) else 47} dummy tokens (new size: {new})"


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
    lines += [argument(name, value) for name, value in sorted(stated.items())]
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
        padded(50257, case.model.vocab),
        "NCCL version 2.25.1+cuda12.8",
        "building GPT model ...",
        f" > number of parameters on (tensor, pipeline) model parallel rank (0, 0): {parameters(case) // (case.tp * case.pp)}",
        "[before the start of training step] datetime: 2026-11-20 09:03:00 ",
    )
    page.tell_of(case, "processes sequence layers hidden heads dtype tp pp cp mbs")


def _line_of(job: Job, iteration: int, width: int) -> str:
    """That of this iteration, whose figures are of `width` iterations."""
    case, loss = job.case, job.losses[iteration - 1]
    moment, seconds = (
        job.moments()[iteration - 1],
        math.fsum(job.times[iteration - width : iteration]) / width,
    )
    fp16, finite = case.dtype == "fp16", loss == loss
    skipped = min(width, max(0, SKIPPED - iteration + width)) if fp16 else 0
    updated = skipped < width
    return line(
        iteration,
        seconds * 1000,
        total=job.total,
        gbs=case.gbs,
        throughput=None if job.style.bare else teraflops_of_a_step(case, causal=True) / max(seconds, 1e-10),
        # A mean that is not above 0 is left out, and a NaN is counted as an iteration of its own kind.
        loss=loss if updated and loss > 0 else None,
        skipped=skipped,
        nan=0 if finite else 1,
        grad_norm=(1.8 if finite else loss) if updated else None,
        scale=(524288.0 if iteration > 10 else 8388608.0) if fp16 else 1.0,
        date=moment.strftime("%Y-%m-%d %H:%M:%S.%f") if job.style.newer else stamp(moment),
        learning_rate=1.395349e-07 * iteration,
    )


def render(job: Job) -> Page:
    page, rng, case = Page(), job.rng(), job.case
    rated = not job.style.bare
    if rated:
        _head(page, job)
    if job.style.nccl:
        nccl.start(page, job, rng)
    every = case.means.every
    for iteration in range(every, len(job.times) + 1, every):
        # The line of the first iteration starts neither timer nor counts again.
        width = 2 if job.style.newer and every == 1 and iteration == 2 else every
        page.steps.append([_line_of(job, iteration, width) + "\n"])
    if job.style.newer and every > 1 and page.steps:
        page.steps[0].insert(0, _line_of(job, 1, 1) + "\n")
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
