r"""Lines that spoil a timed run, by kind: as the upstreams' sources print them.

| kind | who prints it | where that stands in its source |
| --- | --- | --- |
| checkpoint | Megatron-LM core_v0.12.0 | megatron/training/checkpointing.py 361 and 630 (saving), 520 and 529 (saved), 566 (scheduled), 944 to 947 and 1476 (loaded); training.py 1649 to 1664 (the timer) |
| | Megatron-Bridge v0.3.0 | src/megatron/bridge/training/checkpointing.py 354, 545, 735, 775, 832, 1777, 1916, 2164 |
| | NeMo d2b21556 | nemo/lightning/io/pl.py 209 to 220 and 305; nemo/lightning/pytorch/callbacks/model_checkpoint.py 632 and 657; nemo/utils/callbacks/dist_ckpt_io.py 155, 185, 297 and 387 |
| | NeMo v2.0.0 and v2.1.0, which print nothing of these | nemo/utils/callbacks/nemo_model_checkpoint.py 472 and 498; nemo/utils/exp_manager.py 812 |
| | Lightning 2.4.0 | pytorch/callbacks/model_checkpoint.py 753; pytorch/trainer/connectors/checkpoint_connector.py 77 and 212 |
| | MaxText 8e55ab1, v0.2.4 | MaxText/train.py 205 and 696, MaxText/checkpointing.py 176 and 254; src/maxtext/common/checkpointing.py 451, 453 and 968 |
| | Orbax v0.9.1 | checkpointer.py 190 and 240, async_checkpointer.py 345 |
| profiler | nsys | its own output, as logs show it: it is closed |
| | NeMo v2.0.0 | nemo/core/classes/modelPT.py 1798, 1851, 1860, 1896 and 1903 |
| | NeMo d2b21556 | nemo/lightning/pytorch/callbacks/nsys.py 83 and memory_profiler.py 49 and 89 |
| | Megatron-LM core_v0.12.0, which says it in its arguments only | megatron/training/arguments.py 975 |
| | Megatron-Bridge v0.3.0 and v0.6.0 | scripts/performance/run_recipe.py 196 (configuration); src/megatron/bridge/training/utils/train_utils.py 478 |
| | XLA, MaxText v0.2.4 | profiler_session.cc; src/maxtext/common/metric_logger.py 176 |
| | PyTorch before 2.5 | kineto's ActivityProfilerController.cpp |
| nccl trace | NCCL 2.18 to 2.30 | src/enqueue.cc (2.28.9: 2645) |
| diagnostics | PyTorch, Lightning, Megatron-LM, NCCL 2.26 and 2.28 | anomaly_mode.py; trainer.py 459; ProcessGroupNCCL.cpp; megatron/core/utils.py 1356; profiler_v3.cc 15 (loaded); profiler_v5.cc 17 (Loaded) |
| socket fallback | NCCL 2.18 to 2.30 | src/transport/net.cc (2.28.9: 313, 317, 359), net_socket.cc (2.18.5: 279), for each connection |
| socket network | NCCL 2.18 to 2.30 | src/init.cc (2.28.9: 428), src/plugin/net.cc 244 |

A network of sockets is chosen for each communicator, also where NVLink carries everything; that a channel goes over it is another matter.
What a run prints without saving or loading anything is no mark: `could not find the metadata file`, `load-checkpoint ....: (0.61, 0.67)`,
`No existing checkpoints found, not restoring checkpoint`, `Using ... dist-ckpt save strategy`, `NET/IB : No device found.`
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Mark:
    """A line that spoils a timed run: it has one of `hints` in it and matches `pattern`."""

    kind: str
    hints: tuple[bytes, ...]
    pattern: re.Pattern[str]


# Each of these makes a step time incomparable with a baseline. The hints are as long as they can be, so that few
# other lines have to be looked at.
MARKS = (
    Mark(
        "checkpoint",
        (
            b"Global Checkpoint ", b"uccessfully saved ", b"uccessfully loaded checkpoint from ", b"checkpoint at iteration",
            b"async checkpoint save", b"Async checkpoint save", b"Async finalization time took", b"save-checkpoint",
            b"oading checkpoint from ", b"oading release ", b"oading distributed checkpoint from ",
            b"oading HuggingFace-format checkpoint from ", b"states from the checkpoint", b"Resuming training from checkpoint",
            b", saving model to ", b"aved a checkpoint at step", b"asynchronous checkpoint save", b"to finish before checkpoint",
            b"restoring from this run's directory", b"full state from", b"saving checkpoint to ", b"Finished restoring checkpoint",
        ),
        re.compile(
            r"Global Checkpoint (?:Save|Load) ?:"
            r"|[Ss]uccessfully saved (?:local )?checkpoint from iteration"
            r"|[Ss]uccessfully loaded checkpoint from "
            r"|\bsaving (?:dataloader )?checkpoint at iteration +\d"
            r"|cheduled an async checkpoint save|cheduled async checkpoint save for "
            r"|Async checkpoint save for step \d|(?:Unfinalized|Pending) async checkpoint saves|Async finalization time took"
            r"|save-checkpoint(?:-non-persistent)? \.{3,}:"
            r"|\b[Ll]oading (?:release )?(?:distributed |HuggingFace-format )?checkpoint from "
            r"|Restor(?:ing|ed all) states from the checkpoint|Resuming training from checkpoint"
            r"|, saving model to '.*' as top \d"
            r"|[Ss]aved a checkpoint at step \d|Started an asynchronous checkpoint save"
            r"|Waiting for step \d+ to finish before checkpoint"
            r"|restoring from this run's directory|(?:restoring|Loading) full state from"
            r"|Started (?:async )?saving checkpoint to |Finished restoring checkpoint "
        ),
    ),
    Mark("nccl trace", (b": opCount ",), re.compile(r"NCCL INFO \w+: opCount [0-9a-f]+ ")),
    Mark(
        "profiler",
        (
            b"Generating '", b"ed in the application", b".nsys-rep", b".qdrep", b"Nsys profiling setup with ", b"====== Start ", b"====== End ",
            b"emory profile snapshot", b"Torch memory profiles ", b"  profile ....", b"record_memory_history ....",
            b"_profiler: true", b"record_memory_history: true", b"Saved memory snapshot to ", b"Memory history recording enabled",
            b"Profiler session ", b"completed profiler activation", b"ActivityProfilerController.cpp",
            b"Kineto trace saved: ",
        ),
        re.compile(
            r"Generating '.*\.(?:qdstrm|nsys-rep)'|Capture range (?:started|ended) in the application"
            r"|%\] \S+\.(?:nsys-rep|qdrep)"
            r"|Nsys profiling setup with |=+ ?(?:Start|End) (?:nsys|CUDA memory|[Cc]hakra) profiling"
            r"|Writing memory profile snapshot to |Torch memory profiles will be written to"
            r"|(?:^| )(?:profile|record_memory_history) \.{4,} True"
            r"|\buse_(?:nsys|pytorch)_profiler: true|\brecord_memory_history: true"
            r"|Saved memory snapshot to |Memory history recording enabled"
            r"|Profiler session (?:initializing|started)|completed profiler activation"
            r"|Kineto trace saved: "
            r"|ActivityProfilerController\.cpp:\d+\] Completed Stage"
        ),
    ),
    Mark(
        "diagnostics",
        (
            b"Anomaly Detection has been enabled", b"(detect_anomaly=True)", b"_DESYNC_DEBUG: 1", b"TORCH_DISTRIBUTED_DEBUG: DETAIL",
            b"PROFILER/Plugin: loaded ", b"PROFILER/Plugin: Loaded ", b"MnRtt/Rnk: ",
        ),
        re.compile(
            r"Anomaly Detection has been enabled|turned on `Trainer\(detect_anomaly=True\)`|TORCH_NCCL_DESYNC_DEBUG: 1"
            r"|TORCH_DISTRIBUTED_DEBUG: DETAIL|PROFILER/Plugin: [lL]oaded |MnRtt/Rnk: "
        ),
    ),
    Mark(
        "socket fallback",
        (b"via NET/Socket/", b"via NET/FastSocket/", b"NET/Socket: Using "),
        re.compile(r"via NET/(?:Fast)?Socket/\d|NET/Socket: Using \d+ threads and \d+ sockets per thread"),
    ),
    Mark(
        "socket network",
        (b"Using network Socket", b"Using network FastSocket", b"Assigned NET plugin Socket"),
        re.compile(r"NCCL INFO Using network (?:Fast)?Socket\b|Assigned NET plugin Socket to comm"),
    ),
)  # fmt: skip
