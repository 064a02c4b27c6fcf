"""Prints what NeMo 24.09 prints while it trains Nemotron4: one progress bar, drawn over itself by carriage returns."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from tests.lab.standin import OTHER_RANK, StandIn, published, settings, stage_knobs
from tests.printed import lightning, nemo1

PUBLISHED = {
    "15b": {"bf16": {16: 2.83, 128: 2.89}, "fp8": {16: 2.08, 128: 2.08}},
    "340b": {
        "bf16": {128: 4.61, 256: 4.67, 512: 4.7, 1024: 4.73, 2048: 4.84},
        "fp8": {128: 3.16, 256: 3.21, 512: 3.26, 1024: 3.34, 2048: 3.49},
    },
}
YAML = {"True": "true", "False": "false", "None": "null", "null": "null"}


class Nemotron(StandIn):
    """The bar of rank 0. Each step draws it twice: once with the last step's figures, once with its own."""

    figures = ""
    elapsed = 0.0

    def say_configuration(self, given: Mapping[str, str]) -> None:
        """What was given on the command line, as OmegaConf prints it and NeMo's logger indents it."""
        self.say(lightning.noted("\n", "megatron_gpt_pretraining:37"))
        for section in ("trainer", "model"):
            self.say(f"    {section}:\n")
            for key, value in given.items():
                if key.startswith(f"{section}.") and key.count(".") == 1:
                    self.say(f"      {key.partition('.')[2]}: {YAML.get(value, value)}\n")

    def say_step(self, step: int, seconds: float) -> None:
        if self.knobs.interleave and step % 3 == 0:
            self.say(OTHER_RANK)
        # Once: on a busy machine each line may tear one of the steps'.
        if step == 15:
            self.ranks.note()
        self.elapsed += seconds
        self.draw(step)
        metrics: dict[str, float | str] = {
            "reduced_train_loss": self.loss(step),
            "global_step": float(step),
            "consumed_samples": float((step + 1) * self.gbs),
            "train_step_timing in s": seconds,
        }
        self.figures = nemo1.figures(metrics)
        self.draw(step)
        if step == self.steps - 1:
            # tqdm draws it once more when it closes it.
            self.draw(step)

    def draw(self, step: int) -> None:
        done = step + 1
        left = (self.steps - done) * self.step_time
        self.say("\r" + nemo1.drawn(done, self.steps, self.elapsed, left, self.figures))


def main(argv: list[str]) -> int:
    given = settings(argv)
    gpus = int(given["trainer.num_nodes"]) * int(os.environ["SLURM_NTASKS_PER_NODE"])
    dtype = "fp8" if given["model.fp8"] == "True" else "bf16"
    size = "15b" if given["model.pipeline_model_parallel_size"] == "1" else "340b"
    trainer = Nemotron(
        stage_knobs(),
        step_time=published(PUBLISHED[size], dtype, gpus),
        gbs=int(given["model.global_batch_size"]),
        steps=int(given["trainer.max_steps"]),
    )
    trainer.ranks.all_say(lambda rank: lightning.initializing(rank, gpus) + "\n")
    trainer.ranks.warn()
    trainer.say_configuration(given)
    return trainer.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
