"""Prints what NeMo 24.09 prints while it trains Nemotron4: one progress bar, drawn over itself by carriage returns."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from tests.lab.standin import OTHER_RANK, StandIn, published, settings, stage_knobs

PUBLISHED = {
    "15b": {"bf16": {16: 2.83, 128: 2.89}, "fp8": {16: 2.08, 128: 2.08}},
    "340b": {
        "bf16": {128: 4.61, 256: 4.67, 512: 4.7, 1024: 4.73, 2048: 4.84},
        "fp8": {128: 3.16, 256: 3.21, 512: 3.26, 1024: 3.34, 2048: 3.49},
    },
}
WIDTH = 10
YAML = {"True": "true", "False": "false", "None": "null", "null": "null"}


class Nemotron(StandIn):
    """The bar of rank 0. Each step draws it twice: once with the last step's figures, once with its own."""

    figures = ""
    elapsed = 0.0

    def say_configuration(self, given: Mapping[str, str]) -> None:
        """What was given on the command line, as OmegaConf prints it and NeMo's logger indents it."""
        self.say("[NeMo I 2024-11-20 10:11:12 megatron_gpt_pretraining:37] \n")
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
        self.say(f"\r{self.bar(step)}{self.figures}]")
        metrics = {
            "reduced_train_loss": self.loss(step),
            "global_step": float(step),
            "consumed_samples": float((step + 1) * self.gbs),
            "train_step_timing in s": seconds,
        }
        self.figures = "".join(f", {name}={shown(value)}" for name, value in metrics.items())
        self.say(f"\r{self.bar(step)}{self.figures}]")
        if step == self.steps - 1:
            # tqdm draws it once more when it closes it.
            self.say(f"\r{self.bar(step)}{self.figures}]")

    def bar(self, step: int) -> str:
        """`Epoch 0: :  20%|██        | 10/50 [00:46<03:04`."""
        done = step + 1
        gone, left = int(self.elapsed), int((self.steps - done) * self.step_time)
        drawn = "█" * (WIDTH * done // self.steps)
        clock = f"{gone // 60:02}:{gone % 60:02}<{left // 60:02}:{left % 60:02}"
        return f"Epoch 0: : {100 * done // self.steps:3}%|{drawn:<{WIDTH}}| {done}/{self.steps} [{clock}"


def shown(value: float) -> str:
    """As tqdm prints a float, 3 significant digits where that is shorter, and Lightning pads it to 5 characters."""
    short = f"{value:.3g}".replace("e+0", "e+")
    text = short if len(short) < len(str(value)) else str(value)
    if "e" not in text and text != "nan":
        text += "." if "." not in text and len(text) < 5 else ""
        text = text.ljust(5, "0")
    return text


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
    trainer.ranks.all_say(
        lambda rank: f"Initializing distributed: GLOBAL_RANK: {rank}, MEMBER: {rank + 1}/{gpus}\n"
    )
    trainer.ranks.warn()
    trainer.say_configuration(given)
    return trainer.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
