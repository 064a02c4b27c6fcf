"""What spoils a timed run, in the words of each upstream, and what only looks like it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from plugins.baselines.baseline_file import Accelerator, accelerators
from plugins.logs.marks import MARKS, Mark
from plugins.recipes.cases import Case
from plugins.record.baseline import Statistic
from tests.printed.nemo2 import nemo2_line
from tests.unit import examples
from tests.unit.examples import parse, problems

DIALECTS = ("dllogger", "maxtext", "megatron_bridge", "megatron_lm", "nemo1", "nemo2")
NEMO = "[NeMo I 2025-04-11 14:48:45 nemo_logging:393] "
ABSL = "I0306 06:29:01.874489 135530450430272 "
NCCL = "gpu001:1234:5678 [0] NCCL INFO "

# Each line as its upstream prints it. A file and a line stand behind the commit or the tag that they are of.
SPOILT: dict[str, tuple[str, ...]] = {
    "checkpoint": (
        # Megatron-LM 878d65f: megatron/training/checkpointing.py 396, 558, 567, 604 and 668, async_utils.py 51.
        "saving checkpoint at iteration      25 to /ckpt in torch_dist format",
        "  successfully saved local checkpoint from iteration      25",
        "  successfully saved checkpoint from iteration      25 to /ckpt [ t 1/8, p 1/16 ]",
        "  scheduled an async checkpoint save at iteration      25 to /ckpt",
        "saving dataloader checkpoint at iteration 25 to /ckpt/loader",
        "Unfinalized async checkpoint saves. Finalizing them synchronously now.",
        # 878d65f: checkpointing.py 983 to 986 and 1551.
        " loading checkpoint from /ckpt at iteration 25",
        " loading distributed checkpoint from /ckpt at iteration 25",
        " loading release checkpoint from /ckpt",
        " loading release distributed checkpoint from /ckpt",
        "  successfully loaded checkpoint from /ckpt [ t 1/8, p 1/16 ] at iteration 25",
        # core_v0.12.0: megatron/training/training.py 1649 to 1664, megatron/core/timers.py 311 to 319.
        "    save-checkpoint ................................: (41234.56, 41300.00)",
        "    save-checkpoint-non-persistent .................: (41234.56, 41300.00)",
        # core_v0.19.0: checkpointing.py 637, 967, 1014 and 1125. A date stands before the words.
        "[2026-01-02 03:04:05.678901] saving checkpoint at iteration      25 to /ckpt in torch_dist format",
        "  [2026-01-02 03:04:05.678901] successfully saved local checkpoint from iteration      25",
        "  [2026-01-02 03:04:05.678901] successfully saved checkpoint from iteration      25 to /ckpt [ t 1/8, gtp_remat 1/1, p 1/16 ]",
        "  [2026-01-02 03:04:05.678901] scheduled an async checkpoint save at iteration      25 to /ckpt",
        # Megatron-Bridge v0.3.0: src/megatron/bridge/training/checkpointing.py 545, 735, 774, 832, 1777 and 2164 have the same
        # words; 1916 and v0.6.0 2677 have their own.
        "Loading checkpoint from iteration 25 (specified via ckpt_step)",
        "Loading from a non-persistent checkpoint (non-persistent iter 25)",
        " loading HuggingFace-format checkpoint from /models/llama",
        " loading release HuggingFace-format checkpoint from /models/llama",
        # NeMo d2b21556: nemo/lightning/io/pl.py 209, 220 and 305.
        NEMO + "Global Checkpoint Save : Rank: 0 : Iteration: 50 : Start time: 1744382925.151s : Save duration: 4.389s",
        NEMO + "Global Checkpoint Save : Rank: 0 : Start time: 1744382925.151s : Save duration: 4.389s",
        NEMO + "Successfully saved checkpoint from iteration      50 to /ckpt/default--None=0.0000-epoch=0",
        NEMO + "Global Checkpoint Load : Rank : 0 : Start time : 1744382925.151s : Time spent in load_checkpoint: 12.345s",
        # NeMo d2b21556: nemo/lightning/pytorch/callbacks/model_checkpoint.py 632 and 657, nemo/utils/callbacks/dist_ckpt_io.py 155
        # and 185; NeMo v2.0.0: nemo/utils/callbacks/nemo_model_checkpoint.py 472 and 498.
        NEMO + "Scheduled async checkpoint save for /ckpt/step=49.ckpt",
        NEMO + "Async checkpoint save for step 50 (/ckpt/step=49.ckpt) finalized successfully.",
        NEMO + "Async finalization time took 0.012 s",
        NEMO + "Pending async checkpoint saves. Finalizing them synchronously now",
        # NeMo v2.0.0: nemo/utils/exp_manager.py 812, where a checkpoint was found.
        NEMO + "Resuming training from checkpoint: /results/checkpoints/megatron_gpt--step=25-last.ckpt",
        # Lightning 2.4.0: src/lightning/pytorch/callbacks/model_checkpoint.py 753, trainer/connectors/checkpoint_connector.py 77
        # and 212.
        "Epoch 0, global step 25: 'reduced_train_loss' reached 7.31000 (best 7.31000), saving model to '/x/a.ckpt' as top 10",
        "Restoring states from the checkpoint path at /ckpt/last",
        "Restored all states from the checkpoint at /ckpt/last",
        # MaxText 8e55ab1: MaxText/train.py 205 and 696, MaxText/checkpointing.py 176 (many blanks, for its text goes on behind a
        # backslash) and 254.
        "Waiting for step 0 to finish before checkpoint...",
        "saved a checkpoint at step 0",
        "restoring from this run's directory latest step         25",
        "restoring full state from load_full_state_from_path='gs://bucket/0/items'",
        # MaxText v0.2.4: src/maxtext/common/checkpointing.py 451, 453, 525, 667 and 968.
        ABSL + "checkpointing.py:451] Started an asynchronous checkpoint save for step 50",
        ABSL + "checkpointing.py:453] Saved a checkpoint at step 50.",
        ABSL + "checkpointing.py:525] restoring from this run's directory step 50",
        ABSL + "checkpointing.py:667] Loading full state from path: gs://bucket/0/items",
        ABSL + "checkpointing.py:968] Waiting for step 50 to finish before checkpoint...",
        # Orbax v0.9.1: checkpoint/orbax/checkpoint/checkpointer.py 190 and 240, async_checkpointer.py 345.
        ABSL + "checkpointer.py:190] [process=0] Started saving checkpoint to gs://bucket/0.",
        ABSL + "async_checkpointer.py:345] [process=0] Started async saving checkpoint to gs://bucket/0.",
        ABSL + "checkpointer.py:240] Finished restoring checkpoint from gs://bucket/0.",
    ),
    "profiler": (
        # nsys 2024.5 and later, as harrism/nsys_easy#1 and NVIDIA-NeMo/Megatron-Bridge#841 show it; the last is of 2020.
        "Capture range started in the application.",
        "Capture range ended in the application.",
        "Generating '/tmp/nsys-report-3660.qdstrm'",
        "Generating '/tmp/nsys-report-beb1.nsys-rep'",
        "[1/1] [========================100%] profile_0.nsys-rep",
        "[1/1] [========================100%] /results/profile_0.nsys-repProcessing events...",
        "[1/1] [========================100%] profile_0.qdrep",
        # NeMo v2.0.0: nemo/core/classes/modelPT.py 1798 (of the memory profiler, whatever it says), 1851, 1860, 1896 and 1903;
        # v2.1.0 1937 and 1994; v2.0.0 nemo/lightning/pytorch/callbacks/nsys.py 80 and 97.
        NEMO + "Nsys profiling setup with start_step: 20",
        NEMO + "Nsys profiling setup with end_step: 25",
        NEMO + "====== Start nsys profiling ======",
        NEMO + "====== End nsys profiling ======",
        NEMO + "====== Start CUDA memory profiling ======",
        NEMO + "====== End CUDA memory profiling ======",
        NEMO + "====== Start chakra profiling from global_step 20 ======",
        NEMO + "====== End chakra profiling at global_step 25 ======",
        # NeMo d2b21556: nemo/lightning/pytorch/callbacks/nsys.py 83, memory_profiler.py 49 and 89.
        NEMO + "Nsys profiling setup with start_step: 20,and end_step: 25",
        NEMO + "Torch memory profiles will be written to: /x",
        NEMO + "Writing memory profile snapshot to /x/memory_snapshot-rank0.pickle",
        # NeMo v2.4.0: nemo/lightning/pytorch/callbacks/pytorch_profiler.py 38, 129 and 146.
        NEMO + "====== Start Chakra profiling at global_step 20 ======",
        NEMO + "====== End Chakra profiling at global_step 25 ======",
        NEMO + "Kineto trace saved: /x/rank0.json",
        # What NVIDIA's launch scripts print first (dgxc-benchmarking v24.11.1 nemotron/configure.sh 118).
        "GSW: MODEL=nemotron4 FRAMEWORK=nemo MODEL_SIZE=340b DTYPE=fp8 JOB_ID=4711 JOB_MODE=profile OPTIMIZATION_NAME=''",
        # Megatron-LM core_v0.12.0: megatron/training/arguments.py 975 to 987. Nothing else tells of its profilers.
        "  profile ......................................... True",
        "  record_memory_history ........................... True",
        # Megatron-Bridge v0.3.0: scripts/performance/run_recipe.py 196, src/megatron/bridge/training/utils/train_utils.py 478;
        # v0.6.0: train_utils.py 234.
        "  use_pytorch_profiler: true",
        "  record_memory_history: true",
        "Saved memory snapshot to snapshot_0.pickle",
        "Memory history recording enabled (rank 0); snapshots will be written to 'snapshot.pickle'.",
        # XLA: tsl/profiler/lib/profiler_session.cc; MaxText v0.2.4: src/maxtext/common/metric_logger.py 176.
        "I0000 00:00:1735689600.000000    1234 profiler_session.cc:117] Profiler session initializing.",
        "I0000 00:00:1735689600.000000    1234 profiler_session.cc:132] Profiler session started.",
        ABSL + "metric_logger.py:230] completed profiler activation/deactivation step: 9, total_weights: 65536, loss: 10.050",
        # PyTorch before 2.5: third_party/kineto, libkineto/src/ActivityProfilerController.cpp.
        "STAGE:2024-06-02 03:57:04 6093:6093 ActivityProfilerController.cpp:314] Completed Stage: Warm Up",
        "STAGE:2024-06-02 03:57:05 6093:6093 ActivityProfilerController.cpp:320] Completed Stage: Collection",
        # nsys where its job hung and was killed, or the terminal had no progress bar: NVIDIA-NeMo/Megatron-Bridge#1656, MaxText's
        # own gpu/llama2_7b.sh; nsys of 2020 and 2021.
        "\t/nemo_run/nsys_profile/profile_1658148_4226796_node0_rank6.nsys-rep",
        "    /app/nsys_profile.out.nsys-rep",
        "Generated: /home/user/eager.nsys-rep",
        "Waiting for termination of re-parented processes.",
        "No transition in N5Agent6Client3FSM8Profiler8ShutdownE (1) for N5Agent6Client3FSM9InterruptE.",
        'Report file moved to "/data/./nsys_profile.qdrep"',
        # nsys of 2019 and 2020 without room for its report, or whose job ended before: NVIDIA's DLProf prints the same.
        'Saving temporary "/tmp/nsys-report-4817-75a0-f379-4106.qdstrm" file to disk...',
        'Saved report file to "/tmp/nsys-report-4817-75a0-f379-4106.qdrep"',
        # Lightning 2.4.0: src/lightning/pytorch/profilers/simple.py, `summary`; its stage is in capitals.
        "FIT Profiler Report",
        # Megatron-Bridge v0.3.1: the summary of src/megatron/bridge/training/config.py 1742 prints Python's values.
        "  use_pytorch_profiler: True",
        "  record_memory_history: True",
    ),
    # nsys without a capture range.
    "profiler throughout": ("Collecting data...",),
    "nccl trace": (
        # NCCL 2.18.5 src/enqueue.cc 1584, 2.21.5 2022, 2.28.9 2645, 2.30.7 3152.
        NCCL + "AllReduce: opCount 2 sendbuff 0x7ffb4713c200 recvbuff 0x7ffb4713c200 count 1 datatype 1 op 0 root 0 comm 0x55556b100660 [nranks=128] stream 0x5555630c58b0",
        NCCL + "AllGather: opCount 1f sendbuff 0x7f recvbuff 0x7f count 4096 datatype 9 op 0 root 0 comm 0x5555 [nranks=4] stream 0x5555",
        NCCL + "ReduceScatter: opCount a3 sendbuff 0x7f recvbuff 0x7f count 131072 datatype 9 op 0 root 0 comm 0x5555 [nranks=8] stream 0x5555",
        NCCL + "Send: opCount a3 sendbuff (nil) recvbuff 0x7f count 131072 datatype 9 op 0 root 0 comm 0x5555 [nranks=2] stream 0x5555",
    ),
    # Megatron-Bridge v0.1.0rc4: scripts/performance/configs, all six files.
    "profiler setting": ("  use_nsys_profiler: true", "  use_nsys_profiler: True"),
    "diagnostics": (
        # PyTorch 024bc9fa: torch/autograd/anomaly_mode.py; torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp.
        "/usr/lib/python3/dist-packages/torch/autograd/anomaly_mode.py:70: UserWarning: Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled for debugging.",
        "[rank0]:[I1122 01:31:04 ProcessGroupNCCL.cpp:852] [PG 0 Rank 0] ProcessGroupNCCL environments: NCCL version: 2.21.5, TORCH_NCCL_ASYNC_ERROR_HANDLING: 3, TORCH_NCCL_DESYNC_DEBUG: 1, TORCH_NCCL_BLOCKING_WAIT: 0, TORCH_DISTRIBUTED_DEBUG: OFF",
        "[rank0]:[I1122 01:31:04 ProcessGroupNCCL.cpp:852] [PG 0 Rank 0] ProcessGroupNCCL environments: NCCL version: 2.21.5, TORCH_NCCL_DESYNC_DEBUG: 0, TORCH_DISTRIBUTED_DEBUG: DETAIL",
        # Lightning 2.4.0: src/lightning/pytorch/trainer/trainer.py 459.
        "You have turned on `Trainer(detect_anomaly=True)`. This will significantly slow down compute speed and is recommended only for model debugging.",
        # Megatron-LM core_v0.12.0: megatron/core/utils.py 1356, README_STRAGGLER.md 13.
        " 0: INFO:megatron.core.utils:[2024-03-14 23:07:56] | MnRtt/Rnk: 3453.08ms/8 | MxRtt/Rnk: 3468.20ms/0 | MnPwr/Rnk: 601796W/8",
        # NCCL 2.26.6: src/plugin/profiler/profiler_v3.cc 15; 2.28.9: profiler_v5.cc 17.
        NCCL + "PROFILER/Plugin: loaded example",
        NCCL + "PROFILER/Plugin: Loaded Inspector (v5)",
    ),
    "socket fallback": (
        # NCCL 2.21.5 src/transport/net.cc 195, 198 and 235; 2.26.6 217, 221 and 263, where the suffixes grew; 2.30.7 324.
        NCCL + "Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0",
        NCCL + "Channel 01/0 : 8[0] -> 0[0] [receive] via NET/Socket/1/Shared",
        NCCL + "Channel 02/0 : 0[0] -> 8[0] [send] via NET/Socket/0(3)",
        NCCL + "Channel 02/0 : 0[0] -> 8[0] [send] via NET/Socket/0(3)(PCI)/Shared",
        # Google's plugin for A2: NVIDIA/nccl#651.
        NCCL + "Channel 00/0 : 0[0] -> 8[0] [send] via NET/FastSocket/0",
        # NCCL 2.18.5 src/transport/net_socket.cc 279, 2.28.9 337: for each connection.
        NCCL + "NET/Socket: Using 2 threads and 8 sockets per thread",
    ),
    "socket network": (
        # NCCL 2.18.5 src/init.cc 310, 2.28.9 428; 2.28.9 src/plugin/net.cc 244.
        NCCL + "Using network Socket",
        NCCL + "Using network FastSocket",
        NCCL + "Assigned NET plugin Socket to comm",
    ),
}  # fmt: skip
SAMPLES = [(kind, line) for kind, lines in SPOILT.items() for line in lines]

INNOCENT = (
    # Megatron-LM core_v0.12.0: checkpointing.py 926, 927, 1030 and 1042; training.py 1158 to 1169 (the timer is printed where nothing
    # was found, too); arguments.py 975.
    "WARNING: could not find the metadata file /ckpt/latest_checkpointed_iteration.txt",
    "    will not load any checkpoints and will start from random",
    "Checkpoint not found to provide arguments, using provided arguments.",
    "No load directory specified, using provided arguments.",
    "(min, max) time across ranks (ms):",
    "    load-checkpoint ................................: (0.61, 0.67)",
    "  save ............................................ /ckpt",
    "  save_interval ................................... 100",
    "  async_save ...................................... False",
    "  load ............................................ /ckpt",
    "  profile ......................................... False",
    "  profile_ranks ................................... [0]",
    "  use_pytorch_profiler ............................ False",
    "  record_memory_history ........................... False",
    # Megatron-Bridge v0.3.0: scripts/performance/run_recipe.py 196; checkpointing.py 1549.
    "  use_nsys_profiler: false",
    "  use_pytorch_profiler: false",
    "  record_memory_history: false",
    "  nvtx_ranges: false",
    "profiling: null",
    "WARNING: could not find metadata file in /ckpt",
    # NeMo v2.0.0rc0: nemo/utils/callbacks/dist_ckpt_io.py 28, without any save; exp_manager.py 779; configuration.
    NEMO + "Using <megatron.core.dist_checkpointing.strategies.fully_parallel.FullyParallelSaveStrategyWrapper object at 0x7f> dist-ckpt save strategy.",
    NEMO + "There were no checkpoints found in checkpoint_dir or no checkpoint folder at checkpoint_dir :/results/checkpoints. Training from scratch.",
    # NeMo 1: the training scripts in examples/nlp/language_modeling print `trainer.ckpt_path` as it is.
    NEMO + "Resuming training from checkpoint: None",
    "      create_checkpoint_callback: false",
    "      resume_if_exists: false",
    "      nsys_profile:",
    "        enabled: false",
    # Lightning 2.4.0: src/lightning/pytorch/callbacks/model_checkpoint.py 654 and 709.
    "Epoch 0, global step 24: 'reduced_train_loss' was not in top 1",
    "/usr/lib/python3/dist-packages/lightning/pytorch/callbacks/model_checkpoint.py:654: Checkpoint directory /results/checkpoints exists and is not empty.",
    # MaxText 8e55ab1: MaxText/checkpointing.py 55, 57, 81 and 261, MaxText/pyconfig.py 360, MaxText/profiler.py 47; v0.2.4:
    # src/maxtext/common/checkpointing.py 388 and 699.
    "Checkpointing disabled, not creating checkpoint manager.",
    "No existing checkpoints found, not restoring checkpoint.",
    "Creating checkpoint manager...",
    "Checkpoint manager created!",
    "Setting up checkpoint logger...",
    ABSL + "checkpointing.py:388] Creating checkpoint manager with ocdbt=True and zarr3=True",
    ABSL + "checkpointing.py:699] Successfully set up checkpoint cloud logger.",
    "Config param enable_checkpointing: False",
    "Config param async_checkpointing: True",
    "Config param checkpoint_period: 10000",
    "Config param load_full_state_path: ",
    "Config param profiler: nsys",
    "WARNING: Failed to load library for nsys: libcudart.so: cannot open shared object file",
    # Orbax v0.9.1: checkpoint/orbax/checkpoint/checkpoint_manager.py 735 and 1468.
    ABSL + "checkpoint_manager.py:1468] Found 0 checkpoint steps in gs://bucket/checkpoints",
    # The published MaxText recipe's own word on each of its runs: dgxc-benchmarking v25.01 maxtext/configure.sh 186.
    "Command: nsys profile -s none -o /r/nsys/x-perf --force-overwrite true --capture-range=cudaProfilerApi python3 train.py",
    # PyTorch: c10/cuda/CUDAException.cpp (of any error), ProcessGroupNCCL.cpp.
    "For debugging consider passing CUDA_LAUNCH_BLOCKING=1",
    "PGNCCL Watchdog environments: TORCH_NCCL_RETHROW_CUDA_ERRORS: 1, TORCH_NCCL_DESYNC_DEBUG: 0",
    "ProcessGroupNCCL environments: NCCL version: 2.21.5, TORCH_NCCL_DESYNC_DEBUG: 0, TORCH_DISTRIBUTED_DEBUG: OFF",
    # Chatter that has the words of a mark, and none of its meaning.
    "x_profiling: null",
    "Loading checkpoint shards: 100%",
    "Generating 'train' split: 100 examples",
    "Collecting data... done",
    "Collecting data from 8 GPUs",
    "  use_nsys_profiler: False",
    "Generated:",
    "\tNo reports were generated",
    "+ nsys stats x.nsys-rep",
)  # fmt: skip

# NCCL_DEBUG=INFO of runs that are well: of one node without InfiniBand, of several with it, and with the plugins of two clouds.
HEALTHY_NCCL = (
    # 2.18.5: src/transport/net.cc 179 and 186, net_ib.cc 252 and 264, net_socket.cc 62.
    NCCL + "NET/Plugin : Plugin load (libnccl-net.so) returned 2 : libnccl-net.so: cannot open shared object file",
    NCCL + "NET/Plugin : No plugin found, using internal implementation",
    NCCL + "NET/IB : No device found.",
    NCCL + "NET/Socket : Using [0]eth0:10.0.0.1<0>",
    NCCL + "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>",
    NCCL + "Using network IB",
    NCCL + "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read",
    NCCL + "Channel 00 : 0[0] -> 1[1] via SHM/direct/direct",
    NCCL + "Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA",
    # 2.19.4 to 2.21.5: src/net.cc 231, 349 and 422.
    NCCL + "NET/Plugin : dlerror=libnccl-net.so: cannot open shared object file No plugin found (libnccl-net.so), using internal implementation",
    NCCL + "NET/Plugin: No plugin found (libnccl-net.so)",
    NCCL + "NET/Plugin: Using internal network plugin.",
    NCCL + "NET/Plugin: Failed to find ncclNetPlugin_v8 symbol.",
    NCCL + "NET/Plugin: Loaded net plugin AWS Libfabric (v7)",
    NCCL + "Using network IBext_v8",
    # 2.22.3 to 2.26.6: src/misc/profiler.cc 114, src/plugin/plugin_open.cc 26.
    NCCL + "PROFILER/Plugin: Could not find: libnccl-profiler.so.",
    NCCL + "PROFILER/Plugin: failed to find ncclProfiler_v3",
    NCCL + "TUNER/Plugin: Could not find: libnccl-tuner.so. Using internal tuner plugin.",
    NCCL + "NET/Plugin: Could not find: libnccl-net.so. Using internal net plugin.",
    NCCL + "Channel 02/0 : 0[0] -> 8[0] [send] via NET/IB/0(3)/GDRDMA(PCI)/Shared",
    # 2.28.9: src/plugin/net.cc 187, 225 and 244; 2.30.7 alike. Each of the plugins is initialised where none is asked for.
    NCCL + "Initialized NET plugin Socket",
    NCCL + "Initialized NET plugin IB",
    NCCL + "Failed to initialize NET plugin IB",
    NCCL + "Assigned NET plugin IB to comm",
    NCCL + "External network plugin libnccl-net.so is unsupported",
    "[2026-01-02 03:04:05] " + NCCL + "Using network IB",
    # aws-ofi-nccl 2daf7d30: src/nccl_ofi_net.cpp 188 and 644; the others as Google's documentation shows them.
    NCCL + "NET/OFI Initializing aws-ofi-nccl 1.14.0",
    NCCL + "NET/OFI Selected provider is efa, fabric is efa (found 32 nics)",
    NCCL + "Using network Libfabric",
    NCCL + "Using network AWS Libfabric",
    NCCL + "Using network FasTrak",
    NCCL + "Using network gIB",
    NCCL + "Using network GPUDirectTCPX_v7",
    NCCL + "NCCL_SOCKET_IFNAME set by environment to eth0",
    NCCL + "Bootstrap : Using eth0:10.0.0.1<0>",
    NCCL + "ncclCommInitRank comm 0x5624aab80dd0 rank 0 nranks 512 cudaDev 0 nvmlDev 0 busId 1b000 commId 0x2609201f6848b74c - Init COMPLETE",
)  # fmt: skip


def marks_of(text: str) -> dict[str, tuple[str, ...]]:
    """The kinds of the marks that each dialect's parser finds."""
    return {dialect: tuple(kind for kind, _ in parse(text, dialect).marks) for dialect in DIALECTS}


def test_each_wording_is_a_mark_in_each_dialect() -> None:
    for kind, line in SAMPLES:
        assert marks_of(f"{line}\n") == dict.fromkeys(DIALECTS, (kind,)), line


# srun --label, torchrun --tee through NeMo-Run, mpirun, and output in the lines before and behind.
@pytest.mark.parametrize("before", [" 0: ", "retraining/0 [default0]:", "[1,5]<stdout>:"])
def test_each_wording_is_a_mark_behind_what_a_launcher_puts_first(before: str) -> None:
    for kind, line in SAMPLES:
        found = marks_of(f"chatter\n{before}{line}\r\nchatter\n")
        assert found == dict.fromkeys(DIALECTS, (kind,)), line


def test_what_only_looks_like_one_is_none() -> None:
    for line in (*INNOCENT, *HEALTHY_NCCL):
        assert marks_of(f"{line}\n") == dict.fromkeys(DIALECTS, ()), line


@pytest.mark.parametrize("mark", MARKS.values(), ids=MARKS.keys())
def test_no_hint_is_dead_and_each_wording_has_one(mark: Mark) -> None:
    for line in SPOILT[mark.kind]:
        assert any(hint in line.encode() for hint in mark.hints), line
    matching = [line.encode() for line in SPOILT[mark.kind] if re.search(mark.pattern, line)]
    assert [hint for hint in mark.hints if not any(hint in line for line in matching)] == []


def run_of(gpus: int, gpu: str, line: str) -> tuple[Case, str]:
    """A run of 8b on so many GPUs, with this line behind step 29."""
    case = replace(examples.case("8b-bf16-8gpus"), gpus=gpus, gbs=16 * gpus, accelerator=gpu)
    lines = [nemo2_line(i, gbs=case.gbs) for i in range(50)]
    return case, "\n".join([*lines[:30], line, *lines[30:]]) + "\n"


def part_named(gpu: str) -> Accelerator:
    return accelerators(examples.BASELINES)[gpu]


# NVLink connects the eight GPUs of a node, or the 72 of a rack of GB200.
@pytest.mark.parametrize(
    ("gpu", "gpus", "innocent"),
    [("h100", 8, True), ("h100", 4, True), ("h100", 16, False), ("gb200", 64, True), ("gb200", 72, True),
     ("gb200", 128, False), ("gb300", 72, True), ("b200", 16, False), (None, 8, False)],
)  # fmt: skip
@pytest.mark.parametrize("line", SPOILT["socket network"])
def test_a_network_of_sockets_is_innocent_within_the_reach_of_nvlink(
    line: str, gpu: str | None, gpus: int, innocent: bool
) -> None:
    case, text = run_of(gpus, gpu or "h100", line)
    found = problems(case, parse(text), Statistic(), part_named(gpu) if gpu else None)
    said = f"NCCL fell back to TCP sockets: the fast network was not used: {line}"
    assert found == ([] if innocent else [said])


@pytest.mark.parametrize(("gpu", "gpus"), [("h100", 8), ("h100", 16), ("gb200", 64), (None, 8)])
@pytest.mark.parametrize("line", SPOILT["socket fallback"])
def test_what_goes_over_a_socket_is_never_innocent(line: str, gpu: str | None, gpus: int) -> None:
    case, text = run_of(gpus, gpu or "h100", line)
    assert problems(case, parse(text), Statistic(), part_named(gpu) if gpu else None) == [
        f"NCCL fell back to TCP sockets: the fast network was not used: {line}"
    ]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("checkpoint", "a checkpoint was saved or loaded during the run: "),
        ("nccl trace", "NCCL tracing was on: "),
        ("profiler", "a profiler was on: "),
        ("profiler throughout", "a profiler was on from the start: "),
        ("diagnostics", "a diagnostic that slows the run was on: "),
    ],
)
def test_what_spoils_a_run_is_told_with_its_line(kind: str, said: str) -> None:
    case, text = run_of(8, "h100", SPOILT[kind][0])
    assert problems(case, parse(text), Statistic(), part_named("h100")) == [said + SPOILT[kind][0]]


def test_every_known_gpu_says_how_far_nvlink_reaches() -> None:
    reach = {name: part.nvlink for name, part in accelerators(examples.BASELINES).items()}
    assert reach == dict.fromkeys(("h100", "h200", "b200", "b300"), 8) | dict.fromkeys(("gb200", "gb300"), 72)
