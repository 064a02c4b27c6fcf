"""Prints what MaxText of December 2024 prints while it trains Llama 2 70b: every rank prints every step."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.lab.recipe.knobs import Knobs
from tests.lab.recipe.profiles import write_profiles
from tests.lab.recipe.ranks import VICTIM
from tests.lab.standin import OTHER_RANK, StandIn, published, settings, stage_knobs
from tests.printed import maxtext

PUBLISHED = {
    "bf16": {64: 6.999, 128: 7.072, 256: 7.153, 512: 7.091, 1024: 7.084, 2048: 7.066},
    "fp8": {64: 4.324, 128: 4.556, 256: 4.959, 512: 5.043, 1024: 5.062, 2048: 4.93},
}
# Of a sequence of 4096 tokens; the profiling run goes without the latency-hiding scheduler.
FLOPS = 1.8206e15
PROFILING_FACTOR = 1.3
LATE = 7
FIRST_PROFILED, LAST_PROFILED = 9, 11


class MaxText(StandIn):
    """Each rank has its own clock; a late one prints into the next step."""

    def __init__(
        self, knobs: Knobs, *, step_time: float, gbs: int, steps: int, length: int, mbs: int
    ) -> None:
        super().__init__(knobs, step_time=step_time, gbs=gbs, steps=steps)
        self.length = length
        self.mbs = mbs
        self.late = ""

    def say_step(self, step: int, seconds: float) -> None:
        if step == FIRST_PROFILED:
            self.say("Capture range started in the application.\n")
        mixed = self.knobs.interleave
        self.say(OTHER_RANK * (mixed and step % 3 == 0) + self.line(step, seconds))
        for rank in range(1, len(self.ranks) + 1):
            line = self.line(step, seconds + self.random.uniform(-0.001, 0.001))
            if rank == LATE and mixed:
                line, self.late = self.late + line * (step == self.steps - 1), line
            if rank != VICTIM or step != self.knobs.hang_at:
                self.ranks.say(rank, line)
        self.ranks.meet()
        if step == LAST_PROFILED:
            self.say("Capture range ended in the application.\nGenerating '/tmp/nsys-report-1a2b.qdstrm'\n")

    def line(self, step: int, seconds: float) -> str:
        rates = {"tflops": self.mbs * FLOPS / seconds / 1e12, "tokens": self.mbs * self.length / seconds}
        return maxtext.line(step, seconds, self.gbs * self.length, self.loss(step), **rates) + "\n"


def main(argv: list[str]) -> int:
    given = settings(argv)
    gpus = 1
    for name in ("dcn_fsdp_parallelism", "ici_fsdp_parallelism", "dcn_data_parallelism"):
        gpus *= int(given[name])
    mbs = int(given["per_device_batch_size"])
    step_time = published(PUBLISHED, given["quantization"] or "bf16", gpus)
    trainer = MaxText(
        stage_knobs(),
        step_time=step_time * (PROFILING_FACTOR if given["run_name"].endswith("-prof") else 1),
        gbs=mbs * gpus,
        steps=int(given["steps"]),
        length=int(given["max_target_length"]),
        mbs=mbs,
    )
    keys = ("max_target_length", "per_device_batch_size", "quantization", "run_name", "steps")
    said = "".join(maxtext.parameter(key, given[key]) + "\n" for key in keys)
    said += maxtext.devices(gpus, f"1, 1, {gpus}, 1, 1, 1, 1, 1") + "\n"
    trainer.say(said)
    trainer.ranks.all_say(lambda _: said)
    code = trainer.run()
    results = os.environ.get("RESULT_DIR")
    if results and trainer.knobs.profiles:
        # Upstream's nsys writes over the report of an earlier run of the same case.
        write_profiles([given["run_name"]], Path(results) / "nsys")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
