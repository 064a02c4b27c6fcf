"""MaxText's log as the recipe has it: a profiling run of 15 steps, then the timed one; every process prints.

AI-Hypercomputer/maxtext 8e55ab1 (9 December 2024): MaxText/train.py L170 (the step line), MaxText/pyconfig.py L360 (every key of the
configuration), MaxText/max_utils.py L594 (devices). The whole is after maxtext-dec24-70b1l-bf16.log, a real run at that commit. The
lines around it: NVIDIA/dgxc-benchmarking v25.01: maxtext/configure.sh. XLA's own lines go to standard error. Since 2025 (v0.2.4
src/maxtext/common/metric_logger.py, src/maxtext/utils/maxtext_utils.py) a rate is by causal attention, every line has absl's prefix, and enums
are printed by their names: after maxtext-0.2.4-8b4l-bf16-ga8.log.
"""

from __future__ import annotations

import math

from tests.printed import dgxc, nccl
from tests.printed.run import Job, Page, flops, number, parameters

PROFILED_STEPS = 15


def line(
    index: int | str,
    seconds: float | str = "7.908",
    weights: int | str = 524288,
    loss: float | str = "0.000",
    *,
    tflops: float | str = 460.48,
    tokens: float | str = 1035.97,
) -> str:
    """That of a step; `tflops` and `tokens` a second and device."""
    return (
        f"completed step: {index}, seconds: {number(seconds, '.3f')}, TFLOP/s/device: {number(tflops, '.3f')}, "
        f"Tokens/s/device: {number(tokens, '.3f')}, "
        f"total_weights: {weights}, loss: {number(loss, '.3f')}"
    )


def parameter(name: str, value: object = "{}") -> str:
    """Of the configuration; with a hole for its value if none is given."""
    return f"Config param {name}: {value}"


def devices(count: object, axes: str = "1, 1, 64, 1, 1, 1, 1, 1") -> str:
    return f"Num_devices: {count}, shape ({axes})"


def _axes(job: Job) -> tuple[str, ...]:
    """MaxText/configs/base.yml 282 to 297 (8e55ab1), src/maxtext/configs/types.py 1222 to 1258 (v0.2.4)."""
    older = ("data", "fsdp", "fsdp_transpose", "sequence", "tensor", "pipeline", "expert", "autoregressive")
    newer = ("context", "context_autoregressive", "context_usp_ulysses", "diloco", "tensor_sequence")
    return (*older, *newer) if job.style.newer else older


def _configuration(job: Job, steps: int) -> list[str]:
    case, model = job.case, job.case.model
    inner = min(job.per_node, case.fsdp)
    stated: dict[str, object] = {
        "attention": "cudnn_flash_te",
        "base_emb_dim": model.hidden,
        "base_mlp_dim": model.ffn,
        "base_num_decoder_layers": model.layers,
        "base_num_kv_heads": model.query_groups,
        "base_num_query_heads": model.heads,
        "checkpoint_period": 10000,
        "async_checkpointing": True,
        "dataset_type": "synthetic",
        **dict.fromkeys(
            (f"{place}_{axis}_parallelism" for place in ("dcn", "ici") for axis in _axes(job)), 1
        ),
        "dcn_data_parallelism": -1 if job.seed % 2 else case.dp,
        "dcn_fsdp_parallelism": case.fsdp // inner,
        "dtype": "bfloat16",
        "emb_dim": model.hidden,
        "enable_checkpointing": False,
        "enable_jax_profiler": False,
        "global_batch_size_to_load": float(case.gbs),
        "global_batch_size_to_train_on": case.gbs,
        "hardware": "gpu_multiprocess",
        "gradient_accumulation_steps": case.ga,
        "ici_fsdp_parallelism": -1 if job.seed % 3 else inner,
        "max_target_length": case.sequence_length,
        "micro_batch_size_to_train_on": case.gbs // max(1, case.ga),
        "mlp_dim": model.ffn,
        "model_name": "llama2-70b",
        "num_decoder_layers": model.layers,
        "num_slices": job.nodes,
        "num_experts": model.experts,
        "num_experts_per_tok": model.top_k,
        "per_device_batch_size": case.mbs if job.style.newer else float(case.mbs),
        "profiler": "nsys",
        "profiler_steps": 3,
        "quantization": "fp8" if case.dtype == "fp8" else "",
        "skip_first_n_steps_for_profiler": 9,
        "steps": steps,
        "vocab_size": model.vocab,
        "weight_dtype": "float32",
    }
    if job.style.newer:
        stated["quantization"] = "fp8" if case.dtype == "fp8" else "QuantizationType.NONE"
    return [
        f"{_prefix(job, 'pyconfig.py:584')}{parameter(key, value)}" for key, value in sorted(stated.items())
    ]


def _prefix(job: Job, where: str) -> str:
    return f"I1120 09:02:48.162441 139732555342144 {where}] " if job.style.newer else ""


def _start(job: Job, steps: int) -> list[str]:
    case = job.case
    lines = [
        "Updating keys from env and command line: ['run_name', 'enable_checkpointing', 'hardware', 'steps']",
        "Running Model: llama2-70b",
    ]
    lines += [
        "Attempting to initialize the jax distributed system for GPU backend...",
        "Jax distributed system initialized on GPU!",
    ]
    if job.style.stderr:
        lines += [
            "I1120 09:02:47.906587    4324 service.cc:154] XLA service 0x4587bed0 initialized for platform CUDA (this does not guarantee that XLA will be used). Devices:",
            f"I1120 09:02:47.906651    4324 service.cc:170]   StreamExecutor [0]: {job.device}, Compute Capability 9.0",
        ]
    lines += ["System Information: Jax Version: 0.4.36", "System Information: Jax Backend: cuda 12060"]
    lines += _configuration(job, steps)
    lines += [
        _prefix(job, "maxtext_utils.py:2274")
        + devices(case.gpus, f"{case.gpus // case.fsdp}, 1, {case.fsdp}, 1, 1, 1, 1, 1"),
        "Setting up checkpoint logger...",
        "Checkpointing disabled, not creating checkpoint manager.",
        "No existing checkpoints found, not restoring checkpoint.",
        f"{_prefix(job, 'metric_logger.py:374')}number parameters: {parameters(case) / 1e9:.3f} billion",
        "Per train step:",
        f" Total TFLOPs: {case.mbs * flops(case, causal=job.style.newer) / 1e12:.2f} ",
        " split as 96.11% learnable weight flops and 3.89% attention flops",
    ]
    return lines


def step_line(job: Job, index: int, seconds: float, loss: float) -> str:
    case = job.case
    each = case.gbs / case.gpus
    # The figures follow from the time before it is rounded; the clock has nanoseconds.
    exact = max(seconds, 1e-10)
    done = each * flops(case, causal=job.style.newer)
    printed = line(
        index,
        seconds,
        case.gbs * case.sequence_length,
        loss,
        tflops=done / exact / 1e12,
        tokens=each * case.sequence_length / exact,
    )
    if job.style.newer:
        printed += f", lm_loss: {loss:.3f}, perplexity: {math.exp(min(loss, 20)):.3f}"
    return _prefix(job, "metric_logger.py:230") + printed


def render(job: Job) -> Page:
    page, rng, ranks = Page(), job.rng(), job.style.ranks
    case = job.case
    if not job.style.bare:
        info = dgxc.info(
            "maxtext",
            model="llama2",
            size="70b",
            nodes=job.nodes,
            devices=job.per_node,
            dtype=case.dtype,
            release=job.release,
            job=job.job_id,
            more=f" MBS={case.mbs} ici_FSDP={job.per_node} dcn_FSDP={case.fsdp // job.per_node} "
            f"QUANTIZATION={'fp8' if case.dtype == 'fp8' else ''}",
        )
        page.add(*[info] * ranks)
        page.add(
            "Command: nsys profile -s none -o /r/nsys/x-prof --force-overwrite true --capture-range=cudaProfilerApi python3 train.py steps=15"
        )
        for line in _start(job, PROFILED_STEPS):
            page.add(*[line] * ranks)
        page.tell_of(case, "processes dtype sequence layers hidden vocab mbs fsdp")
        page.tell(nodes=job.nodes, job=job.job_id)
        if job.style.stderr:
            page.tell(gpu=job.device)
    if job.style.nccl:
        nccl.start(page, job, rng)
    usual = sorted(job.times)[len(job.times) // 2]
    for index in range(PROFILED_STEPS):
        seconds = usual * (8 if index == 0 else 1.3) * (1 + 0.01 * rng.random())
        page.add(*[step_line(job, index, seconds, 10.9)] * ranks)
    page.add(
        "Capture range ended in the application.",
        "Generating '/tmp/nsys-report-4711.qdstrm'",
        "[1/1] [========================100%] x-prof.nsys-rep",
    )
    if not job.style.bare:
        for line in _start(job, job.total):
            page.add(*[line] * ranks)
    for index, (seconds, loss) in enumerate(zip(job.times, job.losses, strict=True)):
        jitter = [0.0, *(0.002 * rng.random() for _ in range(ranks - 1))]
        page.steps.append([step_line(job, index, seconds + more, loss) + "\n" for more in jitter])
    if len(page.steps) > 11:
        page.before(9, "Capture range started in the application.")
        page.before(11, "Capture range ended in the application.")
    page.end(
        "Generating '/tmp/nsys-report-4712.qdstrm'", "[1/1] [========================100%] x-perf.nsys-rep"
    )
    page.tell(
        tokens=case.gbs * case.sequence_length,
        rate=case.gbs / case.gpus * flops(case, causal=job.style.newer),
        each=case.gbs / case.gpus * case.sequence_length,
    )
    page.tell(steps=job.total)
    return page
