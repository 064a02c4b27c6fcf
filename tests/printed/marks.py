"""Lines that other programs and libraries print between the steps, with the upstream source of each.

`CHECKPOINTS` and `PROFILERS` spoil a timed run, as `nccl.SOCKETS` and `nccl.TRACES` do; `INNOCENT` looks like them and does not.
nsys prints what public logs show (harrism/nsys_easy#1, NVIDIA-NeMo/Megatron-Bridge#841 and #1656).
"""

from __future__ import annotations

from tests.printed.lightning import noted
from tests.printed.nccl import info

_NOW, _EARLIER = "2026-11-20 09:14:45", "2026-11-20 09:02:45"
_GLOG = "I1120 09:14:45.531340 138304841739136 checkpointing.py:451] "

CHECKPOINTS: dict[str, list[str]] = {
    # NVIDIA/NeMo d2b21556: nemo/lightning/io/pl.py L209-220, nemo/lightning/pytorch/callbacks/model_checkpoint.py L632, L657.
    "nemo2": [
        noted(
            "Global Checkpoint Save : Rank: 0 : Iteration: {n} : Start time: 1795166085.151s : Save duration: 4.389s",
            moment=_NOW,
        ),
        noted(
            "Global Checkpoint Save : Rank: 0 : Start time: 1795166085.151s : Save duration: 4.389s",
            moment=_NOW,
        ),
        noted(
            "Successfully saved checkpoint from iteration {n:7d} to /ckpt/default--None=0.0000-epoch=0",
            moment=_NOW,
        ),
        noted(
            "Async checkpoint save for step {n} (/ckpt/step={n}.ckpt) finalized successfully.",
            "model_checkpoint:657",
            _NOW,
        ),
        noted("Scheduled async checkpoint save for /ckpt/step={n}.ckpt", "model_checkpoint:632", _NOW),
        "Epoch 0, global step {n}: 'reduced_train_loss' reached 7.31000 (best 7.31000), saving model to '/ckpt/step={n}.ckpt' as top 10",
    ],
    # NVIDIA/NeMo v2.0.0: nemo/utils/callbacks/nemo_model_checkpoint.py L472, L498, L234; Lightning 2.4.0: model_checkpoint.py L753.
    "nemo1": [
        noted(
            "Async checkpoint save for step {n} (/results/megatron_gpt--step={n}.ckpt) finalized successfully.",
            "nemo_model_checkpoint:498",
            _NOW,
        ),
        noted(
            "Scheduled async checkpoint save for /results/megatron_gpt--step={n}.ckpt",
            "nemo_model_checkpoint:472",
            _NOW,
        ),
        "Epoch 0, global step {n}: 'reduced_train_loss' reached 7.31000 (best 7.31000), saving model to '/results/x.ckpt' as top 10",
    ],
    # AI-Hypercomputer/maxtext 8e55ab1: MaxText/train.py L205, L696; 62f949e8: MaxText/checkpointing.py L197, L199.
    "maxtext": [
        "saved a checkpoint at step {n}",
        "Saved a checkpoint at step {n}.",
        "Started an asynchronous checkpoint save for step {n}",
        _GLOG + "Started an asynchronous checkpoint save for step {n}",
        "Waiting for step {n} to finish before checkpoint...",
    ],
    # NVIDIA/Megatron-LM 878d65f: megatron/training/checkpointing.py L396, L558, L567, L604; core_v0.12.0: training.py L1649.
    "megatron_lm": [
        "saving checkpoint at iteration {n:7d} to /ckpt in torch_dist format",
        "[2026-11-20 09:14:45.123456] saving checkpoint at iteration {n:7d} to /ckpt in torch_dist format",
        "  successfully saved checkpoint from iteration {n:7d} to /ckpt [ t 1/8, p 1/16 ]",
        "  successfully saved local checkpoint from iteration {n:7d}",
        "  scheduled an async checkpoint save at iteration {n:7d} to /ckpt",
        "(min, max) time across ranks (ms):\n    save-checkpoint ................................: (41234.56, 41300.00)",
    ],
}
# NVIDIA-NeMo/Megatron-Bridge v0.2.0: src/megatron/bridge/training/checkpointing.py L506, L664, L703, L751.
CHECKPOINTS["megatron_bridge"] = CHECKPOINTS["megatron_lm"]
CHECKPOINTS["dllogger"] = CHECKPOINTS["nemo1"]

_NSYS = [
    "Capture range started in the application.",
    "Generating '/tmp/nsys-report-3660.qdstrm'",
    "[1/1] [========================100%] profile_0.nsys-rep",
    "Generated:\n\t/nemo_run/nsys_profile/profile_node0_rank6.nsys-rep",
    "Collecting data...",
    "Waiting for termination of re-parented processes.",
    'Report file moved to "/data/./nsys_profile.qdrep"',
]
PROFILERS: dict[str, list[str]] = {
    # NVIDIA/NeMo d2b21556: callbacks/nsys.py L83; v2.0.0 nsys.py L80; memory_profiler.py L49, L89; v2.4.0 pytorch_profiler.py L38, L129.
    "nemo2": [
        *_NSYS,
        noted("Nsys profiling setup with start_step: 20,and end_step: 25", "nsys:83", _EARLIER),
        noted("====== Start nsys profiling ======", "nsys:80", _EARLIER),
        noted(
            "Writing memory profile snapshot to /x/memory_snapshot-rank0.pickle",
            "memory_profiler:89",
            _EARLIER,
        ),
        noted("Torch memory profiles will be written to: /x", "memory_profiler:49", _EARLIER),
        noted("====== Start Chakra profiling at global_step 20 ======", "pytorch_profiler:129", _EARLIER),
        noted("Kineto trace saved: /x/rank0.json", "pytorch_profiler:38", _EARLIER),
    ],
    # NVIDIA/NeMo v2.0.0: nemo/core/classes/modelPT.py L1772, L1851, L1860, L1896; v2.1.0 L1937.
    "nemo1": [
        *_NSYS,
        noted("Nsys profiling setup with start_step: 20", "modelPT:1772", _NOW),
        noted("====== Start nsys profiling ======", "modelPT:1851", _NOW),
        noted("====== End nsys profiling ======", "modelPT:1896", _NOW),
        noted("====== Start CUDA memory profiling ======", "modelPT:1860", _NOW),
        noted("====== Start chakra profiling from global_step 20 ======", "modelPT:1937", _NOW),
    ],
    "megatron_lm": _NSYS,
    # v0.3.0: src/megatron/bridge/training/utils/train_utils.py L478.
    "megatron_bridge": [*_NSYS, "Saved memory snapshot to snapshot_rank-0.pickle"],
}
PROFILERS["dllogger"] = PROFILERS["nemo1"]

INNOCENT = [
    "[rank3]:[W1120 09:06:35.875208864 ProcessGroupNCCL.cpp:5188] Guessing device ID based on global rank.",
    "/usr/lib/python3/dist-packages/torch/distributed/c10d_logger.py:83: UserWarning: barrier(): using the device under current context.",
    "There were no checkpoints found in checkpoint_dir or no checkpoint folder at checkpoint_dir :/x. Training from scratch.",
    "    will not load any checkpoints and will start from random",
    "WARNING: could not find the metadata file /ckpt/latest_checkpointed_iteration.txt",
    info("Bootstrap : Using eth0:10.0.0.1<0>"),
    info("NCCL_SOCKET_IFNAME set by environment to eth0"),
    info("NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>"),
    "NCCL version 2.21.5+cuda12.6",
    "srun: warning: can't run 1 processes on 2 nodes, setting nnodes to 1",
    "slurmstepd: error: mpi/pmix_v4: _dmdx_req: gpu014 [14]: pmixp_dmdx.c:318: Bad request from gpu001",
    "",
]
