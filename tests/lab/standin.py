"""What the stand-ins of recipes that sbatch launches have in common: a loop of steps that trains nothing.

Step times are virtual: a step that says 4.61 s takes `real_step` seconds.
"""

from __future__ import annotations

import os
import random
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.lab.recipe.knobs import Knobs
from tests.lab.recipe.ranks import VICTIM, Ranks
from tests.printed import nccl

OTHER_RANK = "[rank5]:W1209 14:46:02.118 ProcessGroupNCCL.cpp:1250] using GPU 5 to perform barrier"


class StandIn(ABC):
    """One run of `steps` steps with a global batch of `gbs` sequences; `step_time` in s is the published one."""

    def __init__(self, knobs: Knobs, *, step_time: float, gbs: int, steps: int) -> None:
        self.knobs = knobs
        self.gbs = knobs.gbs or gbs
        self.steps = steps
        self.step_time = step_time
        self.ranks = Ranks()
        self.random = random.Random(f"{knobs.seed}/{step_time}/{gbs}")

    @abstractmethod
    def say_step(self, step: int, seconds: float) -> None:
        """Print a step's line as the framework does."""

    def run(self) -> int:
        """Train, so to speak; the exit code."""
        knobs = self.knobs
        time.sleep(knobs.startup)
        if knobs.socket_fallback:
            host = os.environ["SLURMD_NODENAME"]
            self.say(nccl.info(nccl.OVER_SOCKETS, host=host, pids="101:101") + "\n")
        for step in range(knobs.steps or self.steps):
            time.sleep(knobs.real_step)
            self.say_step(step, knobs.seconds(self.step_time, step, self.random))
            while knobs.holds(step):
                time.sleep(0.05)
            if step == knobs.crash_at:
                self.say("\nTraceback (most recent call last):\n")
                print(f"RuntimeError: NCCL error after step {step}", file=sys.stderr)
                return 1
            if step == knobs.dead_at:
                self.ranks.die(VICTIM, "RuntimeError: CUDA error: uncorrectable ECC error encountered\n")
            if step in (knobs.dead_at, knobs.hang_at):
                time.sleep(7200)
        self.say("\n")
        self.ranks.end()
        return knobs.exit_code_after

    def loss(self, step: int) -> float:
        return float("nan") if 0 <= self.knobs.nan_at <= step else 11.96 + 0.4 / (step + 1)

    def say(self, text: str) -> None:
        """At once in the file."""
        print(text, end="", flush=True)


def stage_knobs() -> Knobs:
    """The knobs of the stage that this job was submitted with."""
    knobs = Knobs.load(Path(os.environ["STAGE_PATH"]))
    time.sleep(knobs.late_log)
    return knobs


def settings(argv: Sequence[str]) -> dict[str, str]:
    """`key=value` arguments, as Hydra and MaxText take them."""
    return dict(argument.partition("=")[::2] for argument in argv)


def published(table: Mapping[str, Mapping[int, float]], dtype: str, gpus: int) -> float:
    """Published step time in s; of the nearest published scale where this one has none."""
    nearest = min(table[dtype], key=lambda scale: abs(scale - gpus))
    return table[dtype][nearest]
