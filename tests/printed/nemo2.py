"""NeMo 2's log, all ranks and standard error in one file.

NVIDIA/NeMo d2b21556 (the commit of 25.04), v2.3.1 and v2.4.0: nemo/lightning/pytorch/callbacks/progress_printer.py (the step line),
nemo/lightning/megatron_init.py L441-537 (groups), nemo/lightning/megatron_parallel.py L618, nemo/lightning/base.py L49,
nemo/lightning/pytorch/callbacks/flops_callback.py (TFLOPS_per_GPU, from 25.05 on). Shapes of whole logs: NVIDIA-NeMo/Speech#14850
(labels, the blank line behind each step), and READMEs that show `consumed_samples` from step 1 on.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.printed import lightning, nccl
from tests.printed.lightning import noted
from tests.printed.run import Job, Page, after_start, share_of_rank_0, stamp, teraflops_of_a_step

# Of the right magnitude for a GPU of 80 GB, in bytes.
PEAK_MEMORY, MEMORY = 70833405952, 44271689728


def shown(value: float | str) -> str:
    """`format_string`: a float without a fraction as an integer, any other with 4 significant digits."""
    if isinstance(value, str):
        return value
    return str(int(value)) if float(value).is_integer() else f"{value:.4}"


def line(index: int | str, last: int, metrics: Mapping[str, float | str]) -> str:
    """`ProgressPrinter`'s; what is text already stands as it is."""
    fields = "".join(f" | {name}: {shown(value)}" for name, value in metrics.items())
    return f"Training epoch 0, iteration {index}/{last}{fields}"


def nemo2_line(
    index: int,
    seconds: float | str = 10.07,
    *,
    gbs: int | str = 1024,
    last: int = 49,
    loss: str | None = None,
    consumed: int | str | None = None,
    step: int | str | None = None,
) -> str:
    """A line whose loss falls; unless given, the counts are those of the step."""
    return line(
        index,
        last,
        {
            "lr": 7.496e-06,
            "global_batch_size": gbs,
            "global_step": index if step is None else step,
            "peak_memory_usage": PEAK_MEMORY,
            "memory_allocated": MEMORY,
            "reduced_train_loss": 11.96 - index / 100 if loss is None else loss,
            "train_step_timing in s": seconds if isinstance(seconds, str) else f"{seconds:.4}",
            "consumed_samples": (index + 1) * int(gbs) if consumed is None else consumed,
        },
    )


def render(job: Job) -> Page:
    page, rng = Page(), job.rng()
    if not job.style.bare:
        _head(page, job)
    if job.style.nccl:
        nccl.start(page, job, rng)
    rated = job.release >= "25.05"
    work = teraflops_of_a_step(job.case)
    blank = rated and rng.random() < 0.5
    for index, (seconds, loss) in enumerate(zip(job.times, job.losses, strict=True)):
        metrics = {"lr": 1.499e-07 * (index + 1), "global_batch_size": job.case.gbs, "global_step": index}
        if index:
            metrics |= {"peak_memory_usage": PEAK_MEMORY, "memory_allocated": MEMORY}
        metrics |= {"reduced_train_loss": loss, "train_step_timing in s": seconds}
        if rated:
            metrics["TFLOPS_per_GPU"] = work / max(seconds, 1e-10)
        if index or job.style.first_consumed:
            metrics["consumed_samples"] = (index + 1) * job.case.gbs
        printed = line(index, job.total - 1, metrics) + "\n"
        page.steps.append([printed, "\n"] if blank else [printed])
    page.end(f"`Trainer.fit` stopped: `max_steps={job.total}` reached.")
    page.tell(gbs=job.case.gbs, steps=job.total)
    if rated:
        page.tell(rate=work)
    return page


def _head(page: Page, job: Job) -> None:
    case = job.case

    def said(where: str, text: str) -> None:
        page.add(noted(text, where, stamp(after_start(60))))

    span = case.tp * case.cp
    world, dp = case.gpus, case.gpus // (case.tp * case.pp * case.cp)
    stride = case.gpus // case.pp
    if job.style.stderr:
        lightning.start(page, job)
    said(
        "megatron_strategy:399", f"Copying Trainer's 'max_steps' ({job.total}) to LR scheduler's 'max_steps'."
    )
    said("megatron_init:441", f"Rank 0 has data parallel group : {list(range(0, span * dp, span))}")
    both = [
        list(range(start, start + stride, case.tp))
        for base in range(0, world, stride)
        for start in range(base, base + case.tp)
    ]
    said("megatron_init:452", f"All data parallel group ranks with context parallel combined: {both}")
    said("megatron_init:463", f"Rank 0 has context parallel group: {list(range(0, span, case.tp))}")
    said("megatron_init:467", "Ranks 0 has context parallel rank: 0")
    said("megatron_init:484", f"Rank 0 has tensor model parallel group: {list(range(case.tp))}")
    tensor = [list(range(start, start + case.tp)) for start in range(0, world, case.tp)]
    said("megatron_init:488", f"All tensor model parallel group ranks: {tensor}")
    said("megatron_init:516", f"Rank 0 has pipeline model parallel group: {list(range(0, world, stride))}")
    pipeline = [list(range(start, world, stride)) for start in range(stride)]
    said("megatron_init:534", f"All pipeline model parallel group ranks: {pipeline}")
    said(
        "base:49",
        f"Padded vocab_size: {case.model.vocab}, original vocab_size: {case.model.vocab}, dummy tokens: 0.",
    )
    share = share_of_rank_0(case)
    said(
        "megatron_parallel:618",
        f" > number of parameters on (tensor, pipeline) model parallel rank (0 ,0): {share}",
    )
    said(
        "utils:302",
        "Setting up DistributedDataParallel with config DistributedDataParallelConfig(grad_reduce_in_fp32=False, "
        "overlap_grad_reduce=True, overlap_param_gather=True, align_param_gather=False, use_distributed_optimizer=True, "
        "num_distributed_optimizer_instances=1, check_for_nan_in_grad=True, check_for_large_grads=False, bucket_size=134217728, "
        f"pad_buckets_for_high_nccl_busbw=False, average_in_collective=False, fp8_param_gather={case.dtype == 'fp8'})",
    )
    said(
        "utils:323",
        f"Number of buckets for gradient all-reduce / reduce-scatter: 1\n    Params for bucket 1 ({share} elements, {share} padded size):",
    )
    said(
        "utils:302",
        "Setting up optimizer with config OptimizerConfig(optimizer='adam', lr=0.0003, min_lr=None, fp16=False, bf16=True, "
        "params_dtype=torch.bfloat16, use_precision_aware_optimizer=False)",
    )
    page.tell_of(case, "processes tp pp cp vocab")
    page.tell(parameters=str(share))
    # An FP8 run may be without it too: v2.3.0 nemo/collections/llm/recipes/precision/mixed_precision.py 101 and 114.
    if case.dtype == "fp8":
        page.tell(dtype=True)
