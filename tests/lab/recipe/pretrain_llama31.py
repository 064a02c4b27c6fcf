"""Stand-in for the recipe's launcher: lays out an experiment, submits its tasks and says where they went."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

from . import experiment
from .knobs import Knobs
from .llama31_utils import global_batch_size, layers, parse_cli_args

NCCL_TRACE_STEPS = 5
NCCL_TRACE_LIMIT = "00:15:00"

# PerfEnvPlugin's step for the power of the tensor cores, on one node, where sudo is not found.
VBOOST = """
# Command 0: enable vboost

srun --nodes=1 --ntasks=1 --ntasks-per-node=1 -w "$(scontrol show hostnames "$SLURM_JOB_NODELIST" | tail -n1)" \\
    --output /dev/null --error /dev/null bash -c 'no-sudo nvidia-smi boost-slider --vboost 1'
"""


def main(argv: list[str]) -> int:
    """Submit up to three tasks: the timed run, a profile, an NCCL trace."""
    # Upstream imports it first of all: without the recipe's environment active, this is where it ends.
    importlib.import_module("nemo_run")
    args = parse_cli_args(argv)
    if args.log_dir != os.environ.get("NEMORUN_HOME"):
        print(
            f"[NeMo E launcher] NEMORUN_HOME must be {args.log_dir}: export it and run again.",
            file=sys.stderr,
        )
        return 1

    name = f"pretrain_llama3.1_{args.model_size}_{args.compute_dtype}_{args.num_gpus}"
    environment = {
        "TORCH_NCCL_AVOID_RECORD_STREAMS": "1",
        "TRANSFORMERS_OFFLINE": "1" if args.hf_token is None else "0",
        "TOKENIZERS_PARALLELISM": "False",
        "NCCL_NVLS_ENABLE": "0",
        "NVTE_FLASH_ATTN": "1",
        "NVTE_FUSED_ATTN": "1",
        "NEMO_LOG_MEMORY_USAGE": "1",
        "NEMORUN_HOME": args.log_dir,
        "NEMO_HOME": os.environ.get("NEMO_HOME", args.log_dir),
    }
    if args.hf_token is not None:
        environment["HF_TOKEN"] = args.hf_token

    def task(suffix: str, steps: int, *, limit: str = args.time_limit, **more: str) -> experiment.Task:
        return experiment.Task(
            name=name + suffix,
            account=args.account,
            partition=args.partition,
            nodes=args.num_gpus // args.gpus_per_node,
            gpus_per_node=args.gpus_per_node,
            time_limit=limit,
            environment=environment | more,
            setup=VBOOST if Knobs.load(Path(os.environ["STAGE_PATH"])).vboost_fails else "",
            plan={
                "size": args.model_size,
                "dtype": args.compute_dtype,
                "gpus": args.num_gpus,
                "layers": layers(args.model_size, args.num_gpus),
                "gbs": global_batch_size(args.model_size, args.num_gpus),
                "steps": steps,
                "profile": suffix == "_nsys",
                "image": args.container_image,
            },
        )

    tasks = []
    if not args.disable_perfrun:
        tasks.append(task("", args.max_steps))
    if args.enable_profiling:
        tasks.append(task("_nsys", args.profiling_stop_step))
    if args.enable_nccltrace:
        trace = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "COLL,P2P,NET"}
        tasks.append(task("_nccltrace", NCCL_TRACE_STEPS, limit=NCCL_TRACE_LIMIT, **trace))
    return experiment.run(name, tasks, home=Path(args.log_dir))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
