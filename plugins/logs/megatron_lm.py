"""Megatron-LM: one line every `--log-interval` iterations, printed by the last rank, 1-based.

     [2025-01-01 12:00:00] iteration       10/    1500 | consumed samples:         5120 | elapsed time per
    iteration (ms): 5683.2 | throughput per GPU (TFLOP/s/GPU): 412.3 | learning rate: 2.700000E-04 | global batch
    size:   512 | lm loss: 8.645955E-02 | loss scale: 1.0 | grad norm: 0.475 | number of skipped iterations:   0 |
    number of nan iterations:   0 |

(one line in the log.) The throughput stands there with `--log-throughput` only, and nothing else tells the model; the loss only above 0. Times are in
milliseconds with one decimal, means over the interval: a line states nothing about a single step of it. The
throughput is by causal attention (`num_floating_point_operations`). Fields are ended by ` |`, the last one too, so that a
number cut short by other output never counts.

A checkpoint's duration is printed by the last rank too, in milliseconds over all ranks, between two barriers (`(min, max)`):

        save-checkpoint ................................: (41234.56, 41300.00)
"""

from __future__ import annotations

import math
import re
from dataclasses import replace

from plugins.logs import NUMBER
from plugins.logs import LineParser
from plugins.logs import Log
from plugins.logs import Step
from plugins.logs import Tells
from plugins.logs import integer
from plugins.logs import number
from plugins.logs import resolution
from plugins.logs import worked

_HEAD = re.compile(r"\biteration +(\d{1,9})/ *(\d{1,9}) \|")
_FIELD = re.compile(rf"\| *([a-z][\w ()/]*): *({NUMBER}) (?=\|)", re.IGNORECASE)
_SAVED = re.compile(r"save-checkpoint \.+: \(\s*\d{1,15}\.\d+, (\d{1,15}\.\d+)\)")
# Our launcher's word on what torchrun has left.
_FOUND = re.compile(r"pacemark: checkpoint of (\d{1,18}) bytes in \d+ files")
_TIMING = "elapsed time per iteration (ms)"
_RATE = "throughput per GPU (TFLOP/s/GPU)"


class MegatronLM(LineParser):
    """Lines of `training_log` in megatron/training/training.py (core 0.10 and the releases around it)."""

    hints: tuple[bytes, ...] = (b"| consumed samples: ",)
    asides = (b"save-checkpoint .", b"pacemark: checkpoint of ")
    tells: Tells = "rate"

    def read_line(self, line: str, *, ended: bool) -> None:  # noqa: ARG002 - every field ends with a bar
        heads = list(_HEAD.finditer(line))
        for place, head in enumerate(heads):
            end = heads[place + 1].start() if place + 1 < len(heads) else len(line)
            # The head's own bar stays: it is what the first field begins with.
            self._read_step(head, line[head.end() - 1 : end])

    def read_aside(self, line: str) -> None:
        if match := _SAVED.search(line):
            self.saved(float(match[1]) / 1000)
        if match := _FOUND.search(line):
            self.found(int(match[1]))

    def log(self) -> Log:
        log = super().log()
        # Only multiples of the interval are printed, so it divides them all. One line alone does not tell.
        iterations = [step.index + 1 for step in log.steps]
        unknown = len(iterations) == 1 and iterations != [1]
        interval = 0 if unknown else math.gcd(*iterations) or 1
        return replace(log, interval=interval, flops="causal-attention")

    def utilization(self, fields: dict[str, str]) -> float | None:
        """TFLOP/s per GPU of the iteration whose line has these fields."""
        return number(fields.get(_RATE))

    def _read_step(self, head: re.Match[str], text: str) -> None:
        fields: dict[str, str] = {}
        for match in _FIELD.finditer(text):
            fields.setdefault(match[1], match[2])
        iteration = int(head[1])
        if not fields or iteration < 1:
            return
        self.plan(int(head[2]))
        timing, rate = fields.get(_TIMING), fields.get(_RATE)
        known = timing is not None and timing[-1].isdigit()
        self.add(
            Step(
                index=iteration - 1,
                seconds=float(timing) / 1000 if timing is not None else None,
                resolution=resolution(timing) / 1000 if timing and known else 0.0,
                # Milliseconds x 1e12 FLOP/s.
                flops_per_gpu=worked(timing, rate, 1e9) if timing and known and rate else None,
                gbs=integer(fields.get("global batch size")),
                consumed_samples=integer(fields.get("consumed samples")),
                tflops_per_gpu=self.utilization(fields),
                loss=number(fields.get("lm loss")),
                grad_norm=number(fields.get("grad norm")),
                skipped_iterations=integer(fields.get("number of skipped iterations")),
                nan_iterations=integer(fields.get("number of nan iterations")),
            )
        )
