"""Lines that other programs and libraries print between the steps, with the upstream source of each.

`MARKS` are those that spoil a timed run, `INNOCENT` those that look like them and do not. Lightning: 2.4.0
(src/lightning/fabric/utilities/distributed.py, src/lightning/pytorch/trainer/setup.py). NCCL: v2.21.5-1 (src/init.cc L322, L1541,
src/transport/net.cc L195, src/transport/net_socket.cc L62, src/enqueue.cc L2022) and v2.28.9-1 (src/plugin/net.cc L225).
nsys prints what public logs show (harrism/nsys_easy#1, NVIDIA-NeMo/Megatron-Bridge#841 and #1656).
"""

from __future__ import annotations

import random

from tests.fuzz.job import Job, Page

RULE = "-" * 100

_NEMO2 = "[NeMo I 2026-11-20 09:14:45 nemo_logging:393] "
_NEMO1 = "[NeMo I 2026-11-20 09:14:45 "
_GLOG = "I1120 09:14:45.531340 138304841739136 checkpointing.py:451] "

CHECKPOINTS: dict[str, list[str]] = {
    # NVIDIA/NeMo d2b21556: nemo/lightning/io/pl.py L209-220, nemo/lightning/pytorch/callbacks/model_checkpoint.py L632, L657.
    "nemo2": [
        _NEMO2
        + "Global Checkpoint Save : Rank: 0 : Iteration: {n} : Start time: 1795166085.151s : Save duration: 4.389s",
        _NEMO2 + "Global Checkpoint Save : Rank: 0 : Start time: 1795166085.151s : Save duration: 4.389s",
        _NEMO2 + "Successfully saved checkpoint from iteration {n:7d} to /ckpt/default--None=0.0000-epoch=0",
        "[NeMo I 2026-11-20 09:14:45 model_checkpoint:657] Async checkpoint save for step {n} (/ckpt/step={n}.ckpt) finalized successfully.",
        "[NeMo I 2026-11-20 09:14:45 model_checkpoint:632] Scheduled async checkpoint save for /ckpt/step={n}.ckpt",
        "Epoch 0, global step {n}: 'reduced_train_loss' reached 7.31000 (best 7.31000), saving model to '/ckpt/step={n}.ckpt' as top 10",
    ],
    # NVIDIA/NeMo v2.0.0: nemo/utils/callbacks/nemo_model_checkpoint.py L472, L498, L234; Lightning 2.4.0: model_checkpoint.py L753.
    "nemo1": [
        _NEMO1
        + "nemo_model_checkpoint:498] Async checkpoint save for step {n} (/results/megatron_gpt--step={n}.ckpt) finalized successfully.",
        _NEMO1
        + "nemo_model_checkpoint:472] Scheduled async checkpoint save for /results/megatron_gpt--step={n}.ckpt",
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
        "[NeMo I 2026-11-20 09:02:45 nsys:83] Nsys profiling setup with start_step: 20,and end_step: 25",
        "[NeMo I 2026-11-20 09:02:45 nsys:80] ====== Start nsys profiling ======",
        "[NeMo I 2026-11-20 09:02:45 memory_profiler:89] Writing memory profile snapshot to /x/memory_snapshot-rank0.pickle",
        "[NeMo I 2026-11-20 09:02:45 memory_profiler:49] Torch memory profiles will be written to: /x",
        "[NeMo I 2026-11-20 09:02:45 pytorch_profiler:129] ====== Start Chakra profiling at global_step 20 ======",
        "[NeMo I 2026-11-20 09:02:45 pytorch_profiler:38] Kineto trace saved: /x/rank0.json",
    ],
    # NVIDIA/NeMo v2.0.0: nemo/core/classes/modelPT.py L1772, L1851, L1860, L1896; v2.1.0 L1937.
    "nemo1": [
        *_NSYS,
        _NEMO1 + "modelPT:1772] Nsys profiling setup with start_step: 20",
        _NEMO1 + "modelPT:1851] ====== Start nsys profiling ======",
        _NEMO1 + "modelPT:1896] ====== End nsys profiling ======",
        _NEMO1 + "modelPT:1860] ====== Start CUDA memory profiling ======",
        _NEMO1 + "modelPT:1937] ====== Start chakra profiling from global_step 20 ======",
    ],
    "megatron_lm": _NSYS,
    # v0.3.0: src/megatron/bridge/training/utils/train_utils.py L478.
    "megatron_bridge": [*_NSYS, "Saved memory snapshot to snapshot_rank-0.pickle"],
}
PROFILERS["dllogger"] = PROFILERS["nemo1"]

SOCKETS = [
    "gpu001:1234:5678 [0] NCCL INFO Using network Socket",
    "gpu001:1234:5678 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0",
    "gpu001:1234:5678 [3] NCCL INFO Channel 01/0 : 8[0] -> 0[0] [receive] via NET/Socket/1/Shared",
    "gpu001:1234:5678 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0(1)",
    "gpu001:1234:5678 [0] NCCL INFO Assigned NET plugin Socket to comm",
    "gpu001:1234:5678 [0] NCCL INFO NET/Socket: Using 4 threads and 1 sockets per thread",
]
"""In a run of several nodes."""

TRACES = [
    "gpu001:1234:5678 [0] NCCL INFO AllReduce: opCount 2 sendbuff 0x7ffb4713c200 recvbuff 0x7ffb4713c200 count 1 datatype 1 op 0 root 0 comm 0x55556b100660 [nranks={world}] stream 0x5555630c58b0",
    "[7] NCCL INFO AllGather: opCount 1f sendbuff 0x7ffb4713c200 recvbuff 0x7ffb4713c200 count 4096 datatype 9 op 0 root 0 comm 0x55556b100660 [nranks=4] stream 0x5555630c58b0",
    "gpu001:1234:5678 [1] NCCL INFO ReduceScatter: opCount a3 sendbuff 0x7f recvbuff 0x7f count 131072 datatype 9 op 0 root 0 comm 0x5555 [nranks=8] stream 0x5555",
    "gpu001:1234:5678 [1] NCCL INFO Send: opCount a3 sendbuff (nil) recvbuff 0x7f count 131072 datatype 9 op 0 root 0 comm 0x5555 [nranks=2] stream 0x5555",
]

INNOCENT = [
    "[rank3]:[W1120 09:06:35.875208864 ProcessGroupNCCL.cpp:5188] Guessing device ID based on global rank.",
    "/usr/lib/python3/dist-packages/torch/distributed/c10d_logger.py:83: UserWarning: barrier(): using the device under current context.",
    "There were no checkpoints found in checkpoint_dir or no checkpoint folder at checkpoint_dir :/x. Training from scratch.",
    "    will not load any checkpoints and will start from random",
    "WARNING: could not find the metadata file /ckpt/latest_checkpointed_iteration.txt",
    "gpu001:1234:5678 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>",
    "gpu001:1234:5678 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to eth0",
    "gpu001:1234:5678 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>",
    "NCCL version 2.21.5+cuda12.6",
    "srun: warning: can't run 1 processes on 2 nodes, setting nnodes to 1",
    "slurmstepd: error: mpi/pmix_v4: _dmdx_req: gpu014 [14]: pmixp_dmdx.c:318: Bad request from gpu001",
    "",
]


def lightning(page: Page, job: Job) -> None:
    """Start-up words of Lightning; it logs to standard error."""
    world = job.case.gpus
    page.add(
        "GPU available: True (cuda), used: True",
        "TPU available: False, using: 0 TPU cores",
        "HPU available: False, using: 0 HPUs",
        *(
            f"Initializing distributed: GLOBAL_RANK: {rank}, MEMBER: {rank + 1}/{world}"
            for rank in range(min(world, 4))
        ),
        RULE,
        "distributed_backend=nccl",
        f"All distributed processes registered. Starting with {world} processes",
        RULE,
        "",
    )
    page.tell(processes=world)
    if job.seed % 3 == 0:
        # Only while float32's matrix products are at their highest precision (src/lightning/fabric/accelerators/cuda.py L163).
        page.add(
            f"You are using a CUDA device ('{job.device}') that has Tensor Cores. To properly utilize them, you should set `torch.set_float32_matmul_precision('medium' | 'high')` which will trade-off precision for performance."
        )
        page.tell(gpu=job.device)


def nccl(page: Page, job: Job, rng: random.Random) -> None:
    """NCCL_DEBUG=INFO: the world's communicator and one of a group; on one node it has no network to use."""
    world, where = job.case.gpus, "gpu001:1234:5678 [0] NCCL INFO "
    newer = rng.random() < 0.5
    call = "[Rank 0] ncclCommInitRankConfig" if newer else "ncclCommInitRank"
    page.add(
        where + "Bootstrap : Using eth0:10.0.0.1<0>",
        where + "cudaDriverVersion 12060",
        where
        + f"{call} comm 0x5624aab80dd0 rank 0 nranks {world} cudaDev 0 nvmlDev 0 busId 1b000 commId 0x2609201f6848b74c - Init START",
        where + ("Using network IB" if job.nodes > 1 else "Using network Socket"),
        where
        + f"{call} comm 0x5624aab80dd0 rank 0 nranks {world} cudaDev 0 nvmlDev 0 busId 1b000 commId 0x2609201f6848b74c - Init COMPLETE",
        where
        + f"ncclCommSplit comm 0x55c13a6640d0 rank 0 nranks {max(job.case.tp, 1)} cudaDev 0 nvmlDev 0 busId 1b000 parent 0x5624aab80dd0 color 1 key 0 commId 0x46cb - Init COMPLETE",
    )
    if job.nodes > 1:
        page.add(where + "Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA")
    page.tell(nranks=world)
