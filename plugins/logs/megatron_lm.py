"""Megatron-LM: the last rank prints one line every `--log-interval` iterations. Iterations are 1-based.

     [2025-01-01 12:00:00] iteration       10/    1500 | consumed samples:         5120 | elapsed time per
    iteration (ms): 5683.2 | throughput per GPU (TFLOP/s/GPU): 412.3 | learning rate: 2.700000E-04 | global batch
    size:   512 | lm loss: 8.645955E-02 | loss scale: 1.0 | grad norm: 0.475 | number of skipped iterations:   0 |
    number of nan iterations:   0 |

This is one line in the log. The throughput is printed with `--log-throughput` only, and no other field
identifies the model. The loss is printed only if it is above 0. Times are in milliseconds with one decimal.
They are means over the interval: a line states nothing about a single step of it. The throughput is by causal
attention (`num_floating_point_operations`). ` |` ends every field, the last one too. So if other output cut a
number short, it does not count.

From core 0.16 on, the first iteration has a line too, whatever the interval is. That line restarts neither
the timer nor the counts, so the next line covers all iterations so far: the line of iteration 10 has the mean
of 1 to 10. With an interval of 1, the line of iteration 2 has the mean of both. These releases print
fractions of a second in the date.

The last rank prints the duration of a checkpoint too, in milliseconds, as `(min, max)` over all ranks. Up to
core 0.18 it is the time between two barriers. From 0.19 on it is each rank's own, without a barrier
(`save_checkpoint_and_time`, commit 2a21b8eb9c). The longest counts:

        save-checkpoint ................................: (41234.56, 41300.00)
"""

from __future__ import annotations

import math
import re
from dataclasses import replace

from plugins.logs.line_parser import LineParser
from plugins.logs.log import Fact, Log, Step, Tells
from plugins.logs.numbers import NUMBER, integer, number, resolution, sections, single, worked
from plugins.logs.origin import seconds_of
from plugins.logs.statements import ARGUMENTS, Statement

# The head's bar is left to the first field, which begins with it. A pattern that begins with its word is searched for faster.
_HEAD = re.compile(r"iteration(?<=\biteration) +(\d{1,9})/ *(\d{1,9}) (?=\|)")
_FIELD = re.compile(rf"\| *([a-z][\w ()/]*): *({NUMBER}) (?=\|)", re.IGNORECASE)
_SAVED = re.compile(r"save-checkpoint \.+: \(\s*\d{1,15}\.\d+, (\d{1,15}\.\d+)\)")
# Our launcher prints this about what torchrun has left.
_COUNTED = re.compile(r"pacemark: checkpoint of (\d{1,18}) bytes in \d+ files")
TIMING = "elapsed time per iteration (ms)"
_RATE = "throughput per GPU (TFLOP/s/GPU)"
_CLOCK = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?)\] *$")


def _argument(key: str, fact: str, words: dict[str, int | str] | None = None) -> Statement:
    """A line of the arguments: the key, dots up to column 48, the value."""
    return Statement(f" {key} ...".encode(), rf" {key} \.{{3,}} (?P<{fact}>\S+)\s*$", words or {})


# Rank 0 prints these before the first iteration of each attempt (megatron/training/training.py `pretrain`;
# Megatron-Bridge src/megatron/bridge/training/setup.py, v0.1 and later).
SETUP = tuple(
    Statement(words, re.escape(words.decode()), begins=True)
    for words in (b"time to initialize megatron (seconds): ", b"done with setup ...")
)

# megatron/training/arguments.py, 878d65f: 395 to 408 and `_print_args` 1090 to 1103. Rank 0 prints them;
# commas differ between releases. If a run has no query groups, their number is printed as 1, so it is left
# out here.
STATEMENTS = (
    Statement(
        b"using world size: ",
        (
            r"using world size: (?P<processes>\d{1,7}), data-parallel size: (?P<dp>\d{1,7}),? "
            r"context-parallel size: (?P<cp>\d{1,7}),? .{0,200}?(?<!encoder-)tensor-model-parallel size: (?P<tp>\d{1,7}),? "
            r".{0,200}?(?<!encoder-)pipeline-model-parallel size: (?P<pp>\d{1,7})"
        ),
        begins=True,
    ),
    *SETUP,
    *(_argument(key, fact) for key, fact in ARGUMENTS.items()),
    _argument("world_size", "processes"),
    _argument("virtual_pipeline_model_parallel_size", "vp", {"None": 1}),
    _argument("data_parallel_size", "dp"),
    _argument("num_experts", "experts", {"None": 1}),
    Statement(
        b" dummy tokens (new size: ",
        r"> padded vocab \(size: \d{1,9}\) with \d{1,9} dummy tokens \(new size: (?P<vocab>\d{1,9})\)",
    ),
    _argument("seq_length", "sequence_length"),
    _argument("global_batch_size", "gbs"),
    _argument("params_dtype", "precision", {"torch.float16": "fp16", "torch.bfloat16": "bf16", "torch.float32": "fp32"}),
    _argument("fp8", "fp8", {"None": False, "hybrid": True, "e4m3": True}),
)  # fmt: skip


class MegatronLM(LineParser):
    """Parses the lines of `training_log` in megatron/training/training.py (core 0.10 to 0.19)."""

    hints: tuple[bytes, ...] = (b"| consumed samples: ",)
    asides: tuple[bytes, ...] = (b"save-checkpoint .", b"pacemark: checkpoint of ")
    statements: tuple[Statement, ...] = STATEMENTS
    tells: Tells = "rate"
    flops = ("causal-attention",)

    def __init__(self) -> None:
        super().__init__()
        self._scaled: Fact | None = None

    def read_line(self, line: str, *, ended: bool) -> None:  # noqa: ARG002 - every field ends with a bar
        for head, text in sections(_HEAD, line):
            clock = _CLOCK.search(line, 0, head.start())
            self._read_step(head, text, clock[1] if clock else "")

    def read_aside(self, line: str) -> None:
        saved = _SAVED.search(line)
        if saved:
            self.saved(float(saved[1]) / 1000)
        checkpoint = _COUNTED.search(line)
        if checkpoint:
            self.counted(int(checkpoint[1]))

    def log(self) -> Log:
        log = super().log()
        # Except for the first iteration, only multiples of the interval are printed, so it divides them all.
        # A single line does not tell the interval.
        iterations = [step.index + 1 for step in log.steps]
        further = [iteration for iteration in iterations if iteration > 1]
        every = math.gcd(*further) or 1
        if len(further) == 1 and iterations != [1, 2]:
            every = 0
        elif len(further) == 1:
            every = 1
        facts = (*log.facts, self._scaled) if self._scaled else log.facts
        steps = _each_alone(log.steps) if every == 1 else tuple(step for step in log.steps if step.index)
        return replace(log, steps=steps, every=every, facts=facts)

    def begins_anew(self) -> None:
        super().begins_anew()
        self._scaled = None

    def utilization(self, fields: dict[str, str]) -> tuple[float | None, float | None]:
        """The TFLOP/s per GPU in a line with these fields, and the time in s that they refer to; None if it is the line's own."""
        return number(fields.get(_RATE)), None

    def _read_step(self, head: re.Match[str], text: str, clock: str) -> None:
        fields = single((match[1], match[2]) for match in _FIELD.finditer(text))
        iteration = int(head[1])
        if not fields or iteration < 1:
            return
        self.plan(int(head[2]))
        timing = fields.get(TIMING)
        milliseconds = number(timing)
        tflops, rated_seconds = self.utilization(fields)
        self.add(
            Step(
                index=iteration - 1,
                seconds=None if milliseconds is None else milliseconds / 1000,
                resolution=resolution(timing) / 1000,
                # Milliseconds x 1e12 FLOP/s.
                flops_per_gpu=worked(timing, fields.get(_RATE), 1e9),
                gbs=integer(fields.get("global batch size")),
                consumed_samples=integer(fields.get("consumed samples")),
                tflops_per_gpu=tflops,
                rated_seconds=rated_seconds,
                loss=number(fields.get("lm loss")),
                grad_norm=number(fields.get("grad norm")),
                skipped_iterations=integer(fields.get("number of skipped iterations")),
                nan_iterations=integer(fields.get("number of nan iterations")),
                stamp=seconds_of(clock),
                stamp_resolution=resolution(clock.rpartition(":")[2]) if clock else 0.5,
            )
        )
        self._read_scale(fields.get("loss scale"))

    def _read_scale(self, text: str | None) -> None:
        """Note the precision of the attempt that the step belongs to. Only FP16 scales its loss, at first by 2^32, and by at least 1."""
        scale = number(text)
        if scale and scale > 0 and (self._scaled is None or scale != 1):
            precision = "bf16" if scale == 1 else "fp16"
            self._scaled = Fact("precision", precision, f"loss scale is {text}")


def _each_alone(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The steps of a log with a line for each iteration. The second step is by itself, without the first."""
    first = next((step for step in steps if step.index == 0), None)
    return tuple(_less(step, first) for step in steps)


def _less(second: Step, first: Step | None) -> Step:
    """The second iteration, less the first one if its line covers both; otherwise, and any other one, as it is printed.

    If twice the printed mean is not more than the first time, the line is of the second iteration alone. If
    the first time is unknown, so is the second.
    """
    both = second.stamp_resolution < 0.5
    if second.index != 1 or not both or second.seconds is None:
        return second
    if first is None or first.seconds is None:
        return replace(second, seconds=None)
    alone = 2 * second.seconds - first.seconds
    if alone <= 0:
        return second
    return replace(
        second,
        seconds=alone,
        resolution=2 * second.resolution + first.resolution,
        skipped_iterations=_further(second.skipped_iterations, first.skipped_iterations),
        nan_iterations=_further(second.nan_iterations, first.nan_iterations),
    )


def _further(both: int | None, first: int | None) -> int | None:
    """What was counted in the second iteration alone, as far as both counts are known."""
    if both is None or first is None:
        return both
    return max(0, both - first)
