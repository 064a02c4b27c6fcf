"""Prints what NeMo 25.02 prints while it trains Llama 3.1, at the published pace, and trains nothing.

Step times are virtual: a step that says 10.07 s takes `real_step` seconds.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.printed import lightning, nccl, nemo2
from tests.printed.nccl import Trace

from . import checkpoints
from .knobs import Knobs
from .profiles import write_profiles
from .ranks import OTHERS, VICTIM, Ranks

OTHER_RANK = "[rank5]:W0411 14:46:02.118 ProcessGroupNCCL.cpp:1250] using GPU 5 to perform barrier"
CHATTER = f"{OTHER_RANK}\n" * (10**6 // (len(OTHER_RANK) + 1))


class Trainer:
    """One start of the job; a requeued job starts again from step 0 with a log of its own."""

    def __init__(self, folder: Path, knobs: Knobs) -> None:
        self.folder = folder
        self.plan: dict[str, Any] = json.loads((folder / "configs" / "plan.json").read_text())
        self.knobs = knobs
        self.ranks = Ranks()
        self.restart = int(os.environ.get("SLURM_RESTART_COUNT", "0"))
        self.random = random.Random(f"{knobs.seed}/{folder.name}/{self.restart}")
        which = self.plan["size"], self.plan["dtype"], self.plan["gpus"]
        self.step_time = published(*which) * knobs.paces.get("-".join(map(str, which)), 1.0)
        self.gbs: int = knobs.gbs or self.plan["gbs"]
        # The steps before this run, in the one whose checkpoint it loads.
        self.trained = 50 if os.environ.get("LOAD_CHECKPOINT_PATH") and knobs.loaded != "anew" else 0

    def run(self) -> int:
        """Train, so to speak; the exit code."""
        knobs, plan = self.knobs, self.plan
        time.sleep(knobs.late_log)
        token = os.environ.get("HF_TOKEN", "")
        (self.folder / "token.sha256").write_text(hashlib.sha256(token.encode()).hexdigest() + "\n")
        self.preamble()
        if knobs.leak:
            self.say(f"environ({{'HF_TOKEN': '{token[:10]}", end="")
            time.sleep(2)
            print(f"{token[10:]}'}})", flush=True)
        time.sleep(knobs.startup)
        traced = self.trace() if "COLL" in os.environ.get("NCCL_DEBUG_SUBSYS", "") else None
        if traced is not None:
            self.say_traced(traced.set_up())
        for step in range(knobs.steps or plan["steps"]):
            time.sleep(knobs.real_step)
            for _ in range(knobs.chatter):
                print(CHATTER, end="", flush=True)
            # Once: on a busy machine each line may tear one of the steps'.
            if step == 15:
                self.ranks.note()
            self.say_step(step)
            if traced is not None:
                self.say_traced(traced.step(step))
            if step == knobs.restart_at and self.restart < knobs.restarts:
                # srun, which writes the log, is killed first: what it has not written yet is lost.
                while not self.is_written(step):
                    time.sleep(0.05)
                subprocess.run(["scontrol", "requeue", os.environ["SLURM_JOB_ID"]], check=True)
                time.sleep(3600)  # until Slurm ends this start of the job
            if step == knobs.crash_at:
                self.crash(step)
                return 1
            if step == knobs.dead_at:
                self.ranks.die(VICTIM, "RuntimeError: CUDA error: uncorrectable ECC error encountered\n")
            while knobs.holds(step):
                time.sleep(0.05)
            if step in (knobs.dead_at, knobs.hang_at):
                time.sleep(7200)
        if os.environ.get("ENABLE_CHECKPOINT") == "true":
            try:
                checkpoints.save(
                    self.folder, plan["size"], plan["gpus"], plan["steps"] * self.gbs, knobs.saved
                )
            except checkpoints.Cut:
                return 1
        if knobs.checkpoint or os.environ.get("ENABLE_CHECKPOINT") == "true":
            # A save takes a while, by whose end srun has written what the steps printed.
            self.until_written((knobs.steps or plan["steps"]) - 1)
            self.each_notes(
                lambda rank: (
                    f"Global Checkpoint Save : Rank: {rank} : Iteration: {plan['steps']} : "
                    f"Start time: {time.time():.3f}s : Save duration: {5.112 if rank == VICTIM else 4.389}s"
                )
            )
        if plan["profile"] and knobs.profiles:
            write_profiles(
                [f"profile_{4000 + rank}" for rank in range(min(8, plan["gpus"]))],
                self.folder / "nsys_profile",
            )
        self.note("Trainer.fit stopped: max_steps reached.")
        self.ranks.end()
        return knobs.exit_code_after

    def preamble(self) -> None:
        """What a reader has to skip before the first step."""
        plan = self.plan
        host = os.environ.get("SLURMD_NODENAME", "gpu001")
        self.note(f"Initializing llama3.1 {plan['size']}: {plan['layers']} layers, {plan['gpus']} ranks")
        self.say("GPU available: True (cuda), used: True")
        self.ranks.all_say(lambda rank: lightning.initializing(rank, plan["gpus"]) + "\n")
        self.ranks.warn()
        self.say(lightning.starting(plan["gpus"]))
        if self.knobs.socket_fallback:
            for text in ("NET/Plugin: could not find libnccl-net.so", nccl.OVER_SOCKETS):
                self.say(nccl.info(text, host=host, pids="101:101"))
        self.note(f"Copying Trainer's 'max_steps' ({plan['steps']}) to LR scheduler's 'max_steps'.")
        self.note("Padded vocab_size: 128256, original vocab_size: 128256, dummy tokens: 0.")
        self.note(
            "Setting up DistributedDataParallel with config DistributedDataParallelConfig(grad_reduce_in_fp32=False, "
            f"overlap_grad_reduce=True, use_distributed_optimizer=True, fp8_param_gather={plan['dtype'] == 'fp8'})"
        )
        if path := os.environ.get("LOAD_CHECKPOINT_PATH"):
            checkpoints.load(Path(path), plan["size"])
            self.each_notes(
                lambda rank: (
                    f"Global Checkpoint Load : Rank : {rank} : Start time : {time.time():.3f}s : "
                    f"Time spent in load_checkpoint: {10.004 if rank == VICTIM else 9.712}s"
                )
            )
            where = path.replace("consumed", "other") if self.knobs.loaded == "another" else path
            self.note(
                f"Finished restoring from RestoreConfig(path='{where}', adapter_path=None, load_model_state=True, "
                "load_optim_state=True, load_artifacts=False), cleaning up."
            )

    def say_step(self, step: int) -> None:
        """The step line, torn up by other ranks' text if so wished."""
        loss = float("nan") if 0 <= self.knobs.nan_at <= step else 11.96 + 0.4 / (self.trained + step + 1)
        seconds = self.knobs.seconds(self.step_time, step, self.random)
        line = nemo2.nemo2_line(
            step, seconds, gbs=self.gbs, last=self.plan["steps"] - 1, loss=nemo2.shown(loss)
        )
        if self.knobs.interleave and step % 3 == 0:
            line = OTHER_RANK + line
        elif self.knobs.interleave and step % 3 == 1:
            # Into a number that nobody judges.
            line = line.replace(str(nemo2.MEMORY), f"{nemo2.MEMORY // 10**6}{OTHER_RANK}", 1)
        glued = self.knobs.interleave and step % 4 == 2
        self.say(line, end="" if glued else "\n")

    def until_written(self, step: int) -> None:
        """Wait until srun has written this step, so that no other rank's line tears it; a torn one is not waited for long."""
        end = time.monotonic() + 60
        while not self.is_written(step) and time.monotonic() < end:
            time.sleep(0.05)

    def is_written(self, step: int) -> bool:
        """Whether the log of this start has the step's line."""
        (log,) = self.folder.glob(f"log-*_{self.restart}.out")
        return f"consumed_samples: {(step + 1) * self.gbs}\n" in OTHERS.sub("", log.read_text())

    def trace(self) -> Trace:
        """What NCCL prints of this job, of all its ranks."""
        gpus = min(8, self.plan["gpus"])
        nodes = self.plan["gpus"] // gpus
        return Trace(
            nodes=nodes,
            gpus=gpus,
            steps=self.plan["steps"],
            sizes=[1 << 20] * self.knobs.trace_calls,
        )

    def say_traced(self, lines: Iterator[bytes]) -> None:
        """Lines of the trace, in large pieces."""
        sys.stdout.flush()
        for _, block in groupby(enumerate(lines), lambda pair: pair[0] // 10_000):
            sys.stdout.buffer.write(b"".join(line for _, line in block))
        sys.stdout.buffer.flush()

    def crash(self, step: int) -> None:
        """What a failed collective leaves in the log."""
        self.say("Traceback (most recent call last):")
        self.say('  File "/opt/NeMo/nemo/lightning/pytorch/trainer.py", line 112, in fit')
        self.say(f"torch.distributed.DistBackendError: NCCL error after step {step}: remote process exited")

    def note(self, text: str) -> None:
        """A line of NeMo's logger."""
        self.say(noted(text))

    def each_notes(self, text: Callable[[int], str]) -> None:
        """A line of NeMo's logger by each rank."""
        self.note(text(0))
        self.ranks.all_say(lambda rank: noted(text(rank)) + "\n")

    def say(self, text: str, end: str = "\n") -> None:
        """A line of rank 0, at once in the file."""
        print(text, end=end, flush=True)


def noted(text: str) -> str:
    """As NeMo's logger writes it now."""
    return lightning.noted(text, moment=time.strftime("%Y-%m-%d %H:%M:%S"))


def published(size: str, dtype: str, gpus: int) -> float:
    """Published step time in seconds; of the nearest published scale where this one has none."""
    table = json.loads(Path(__file__).with_name("published.json").read_text())[size][dtype]
    nearest = min(table, key=lambda scale: abs(int(scale) - gpus))
    return float(table[nearest])


if __name__ == "__main__":
    sys.exit(Trainer(Path(sys.argv[1]), Knobs.load(Path(os.environ["STAGE_PATH"]))).run())
