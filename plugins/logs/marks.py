"""Lines that spoil a timed run, as upstreams print them. docs/dev/logs.md names the source of each. Pure.

NCCL chooses a network for each communicator, even if all traffic goes over NVLink. "socket network" is that
choice; "socket fallback" is a channel that uses it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class Mark:
    """A line that matches `pattern`, and so contains one of `hints`; `says` is why it makes the run invalid.

    `plugins.judging.validity.steps` has the runs that a kind does not spoil. Long hints match few other
    lines.
    """

    kind: str
    says: str
    hints: tuple[bytes, ...]
    pattern: str


_MARKS = (
    Mark(
        "checkpoint",
        "a checkpoint was saved or loaded during the run",
        (
            b"Global Checkpoint ", b"uccessfully saved ", b"uccessfully loaded checkpoint from ", b"checkpoint at iteration",
            b"async checkpoint save", b"Async checkpoint save", b"Async finalization time took", b"save-checkpoint",
            b"oading checkpoint from ", b"oading from a non-persistent checkpoint", b"oading release checkpoint from ", b"oading release distributed checkpoint from ",
            b"oading release HuggingFace-format checkpoint from ", b"oading distributed checkpoint from ",
            b"oading HuggingFace-format checkpoint from ", b"states from the checkpoint", b"Resuming training from checkpoint",
            b", saving model to ", b"aved a checkpoint at step", b"asynchronous checkpoint save", b"to finish before checkpoint",
            b"restoring from this run's directory", b"full state from", b"saving checkpoint to ", b"Finished restoring checkpoint",
        ),
        (
            r"Global Checkpoint (?:Save|Load) ?:"
            r"|[Ss]uccessfully saved (?:local )?checkpoint from iteration"
            r"|[Ss]uccessfully loaded checkpoint from "
            r"|\bsaving (?:dataloader )?checkpoint at iteration +\d"
            r"|cheduled an async checkpoint save|cheduled async checkpoint save for "
            r"|Async checkpoint save for step \d|(?:Unfinalized|Pending) async checkpoint saves|Async finalization time took"
            r"|save-checkpoint(?:-non-persistent)? \.{3,}:"
            r"|\b[Ll]oading (?:release )?(?:distributed |HuggingFace-format )?checkpoint from |Loading from a non-persistent checkpoint"
            r"|Restor(?:ing|ed all) states from the checkpoint|Resuming training from checkpoint: (?!None)"
            r"|, saving model to '.*' as top \d"
            r"|[Ss]aved a checkpoint at step \d|Started an asynchronous checkpoint save"
            r"|Waiting for step \d+ to finish before checkpoint"
            r"|restoring from this run's directory|(?:restoring|Loading) full state from"
            r"|Started (?:async )?saving checkpoint to |Finished restoring checkpoint "
        ),
    ),
    Mark("nccl trace", "NCCL tracing was on", (b": opCount ",), r"NCCL INFO \w+: opCount [0-9a-f]+ "),
    Mark(
        "profiler",
        "a profiler was on",
        (
            b".qdstrm", b"ed in the application", b".nsys-rep", b".qdrep", b"Nsys profiling setup with ", b"====== Start ", b"====== End ",
            b"profile snapshot to ", b"Torch memory profiles ", b"  profile ....", b"record_memory_history ....",
            b"_profiler: true", b"_profiler: True", b"record_memory_history: true", b"record_memory_history: True", b"Saved memory snapshot to ",
            b"Memory history recording enabled", b" re-parented processes", b"N5Agent6Client3FSM8Profiler",
            b"FIT Profiler Report",
            b"Profiler session ", b"completed profiler activation", b"ActivityProfilerController.cpp",
            b"Kineto trace saved: ", b"JOB_MODE=profile",
        ),
        (
            r"Generating '.*\.(?:qdstrm|nsys-rep)'|Capture range (?:started|ended) in the application"
            r"|%\] \S+\.(?:nsys-rep|qdrep)|(?:Generated:\s*|\t| {3})/?\S+\.(?:nsys-rep|qdrep)\s*$|(?:Report file moved|Saved report file|Saving temporary).*\.(?:nsys-rep|qdrep|qdstrm)\""
            r"|Waiting for termination of re-parented processes|N5Agent6Client3FSM8Profiler"
            r"|FIT Profiler Report"
            r"|Nsys profiling setup with |={6} (?:Start|End) (?:nsys|CUDA memory|[Cc]hakra) profiling"
            r"|Writing memory profile snapshot to |Torch memory profiles will be written to"
            r"|  profile \.{4,} True|(?:^| )record_memory_history \.{4,} True"
            r"|\buse_pytorch_profiler: [tT]rue|\brecord_memory_history: [tT]rue"
            r"|Saved memory snapshot to |Memory history recording enabled"
            r"|Profiler session (?:initializing|started)|completed profiler activation"
            r"|Kineto trace saved: |\bGSW: MODEL=.*\bJOB_MODE=profile\b"
            r"|ActivityProfilerController\.cpp:\d+\] Completed Stage"
        ),
    ),
    Mark("profiler setting", "a profiler was on", (b"_profiler: true", b"_profiler: True"), r"\buse_nsys_profiler: [tT]rue"),
    Mark("profiler throughout", "a profiler was on from the start", (b"Collecting data...",), r"(?:^|[\s:>\]])Collecting data\.\.\.\s*$"),
    Mark(
        "diagnostics",
        "a diagnostic that slows the run was on",
        (
            b"Anomaly Detection has been enabled", b"(detect_anomaly=True)", b"_DESYNC_DEBUG: 1", b"TORCH_DISTRIBUTED_DEBUG: DETAIL",
            b"PROFILER/Plugin: loaded ", b"PROFILER/Plugin: Loaded ", b"MnRtt/Rnk: ",
        ),
        (
            r"Anomaly Detection has been enabled|turned on `Trainer\(detect_anomaly=True\)`|TORCH_NCCL_DESYNC_DEBUG: 1"
            r"|TORCH_DISTRIBUTED_DEBUG: DETAIL|PROFILER/Plugin: [lL]oaded |MnRtt/Rnk: "
        ),
    ),
    Mark(
        "socket fallback",
        "NCCL fell back to TCP sockets: the fast network was not used",
        (b"via NET/Socket/", b"via NET/FastSocket/", b"NET/Socket: Using "),
        r"via NET/(?:Fast)?Socket/\d|NET/Socket: Using \d+ threads and \d+ sockets per thread",
    ),
    Mark(
        "socket network",
        "NCCL fell back to TCP sockets: the fast network was not used",
        (b"Using network Socket", b"Using network FastSocket", b"Assigned NET plugin Socket"),
        r"NCCL INFO Using network (?:Fast)?Socket\b|Assigned NET plugin Socket to comm",
    ),
)  # fmt: skip

MARKS = {mark.kind: mark for mark in _MARKS}
"""The marks by kind. To add a check for a line, add a `Mark` here and its row in docs/dev/logs.md."""
