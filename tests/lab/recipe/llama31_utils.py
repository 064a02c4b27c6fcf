"""Command line and scale rules of the Llama 3.1 recipe."""

from __future__ import annotations

import argparse


def parse_cli_args(argv: list[str]) -> argparse.Namespace:
    """The flags that launch.sh uses, with upstream's names."""
    parser = argparse.ArgumentParser(description="Stand-in for the Llama 3.1 pre-training launcher")
    parser.add_argument("-a", "--account", required=True)
    parser.add_argument("-p", "--partition", required=True)
    parser.add_argument("-l", "--log_dir", required=True)
    parser.add_argument("-t", "--time_limit", default="00:30:00")
    parser.add_argument("-i", "--container_image", required=True)
    parser.add_argument("-m", "--model_size", required=True, choices=["8b", "70b", "405b"])
    parser.add_argument("-c", "--compute_dtype", default="bf16", choices=["bf16", "fp8"])
    parser.add_argument("-ms", "--max_steps", type=int, default=50)
    parser.add_argument("-ng", "--num_gpus", type=int, required=True)
    parser.add_argument("-gn", "--gpus_per_node", type=int, default=8)
    parser.add_argument("-hf", "--hf_token", default=None)
    parser.add_argument("-fw", "--framework_version", required=True)
    parser.add_argument("-gsw", "--gsw_version", required=True)
    parser.add_argument("-dp", "--disable_perfrun", action="store_true")
    parser.add_argument("-ns", "--enable_profiling", action="store_true")
    parser.add_argument("-nt", "--enable_nccltrace", action="store_true")
    parser.add_argument("-pss", "--profiling_start_step", type=int, default=20)
    parser.add_argument("-pso", "--profiling_stop_step", type=int, default=30)
    return parser.parse_args(argv)


def global_batch_size(size: str, gpus: int) -> int:
    """Samples a step, by model size and number of GPUs; 405b on 32, 64 or 128 GPUs is a smaller proxy."""
    if size == "8b":
        return 16 * gpus
    if size == "70b":
        return 2 * gpus
    return {32: 64, 64: 64, 128: 128}.get(gpus, gpus // 2)


def layers(size: str, gpus: int) -> int:
    """Transformer layers of the model, or of its proxy."""
    if size == "405b":
        return {32: 8, 64: 30, 128: 62}.get(gpus, 126)
    return {"8b": 32, "70b": 80}[size]
