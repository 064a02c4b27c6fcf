"""NeMo 2: one line a step, printed by the global rank 0, `value:.4` (4 significant digits), 0-based iterations.

    Training epoch 0, iteration 49/49 | lr: 7.496e-06 | global_batch_size: 128 | global_step: 49 | ... |
    train_step_timing in s: 12.39 | consumed_samples: 6400

The line of step 0 has no `consumed_samples`, so that the time is its last field (NeMo d2b21556, nemo/lightning/data.py and data_sampler.py
143); in 2024 `consumed_samples` stood before it in every line. From 25.04 on `TFLOPS_per_GPU` may stand behind the time: the mean of the last
`log_every_n_steps` steps, which is printed again until there is a new one, by full attention, and by causal attention from 25.09 on
(nemo/lightning/pytorch/callbacks/flops_callback.py, nemo/utils/flops_formulas.py; commit 6251117f4c).

The line may carry a rank or time prefix, and other ranks' output may stand on either side of it or cut it in two.
A field counts only when it stands whole between its separators.
"""

from __future__ import annotations

import re
from dataclasses import replace

from plugins.logs import LineParser
from plugins.logs import Log
from plugins.logs import Step
from plugins.logs.numbers import NUMBER
from plugins.logs.numbers import integer
from plugins.logs.numbers import number
from plugins.logs.numbers import resolution
from plugins.logs.statements import Statement

_HEAD = re.compile(r"Training epoch \d+, iteration (\d{1,9})/(\d{1,9})(?= \||$)")
_FIELD = re.compile(r"([A-Za-z_][\w ]*): (" + NUMBER + ")")
_TIMING = "train_step_timing in s"
_CONSUMED = "consumed_samples"
_RATE = "TFLOPS_per_GPU"

STATEMENTS = (
    # nemo/lightning/megatron_parallel.py 611: of the first pipeline stage, by rank 0.
    Statement(
        b"model parallel rank (0",
        re.compile(r"number of parameters on \(tensor, pipeline\) model parallel rank \(0 ?, ?0\): (?P<first_stage>\d{4,18})\b"),
    ),
    # megatron/core/distributed/distributed_data_parallel.py 68. FP8 runs may be without it.
    Statement(
        b"fp8_param_gather=True", re.compile(r"\bfp8_param_gather=(?P<fp8>True)\b"), {"True": True}
    ),
)  # fmt: skip


class NeMo2(LineParser):
    """Lines of NeMo 2's ProgressPrinter (NeMo 25.02 and the releases around it)."""

    name = "nemo2"
    hints = (b"Training epoch ",)
    statements = STATEMENTS

    def read_line(self, line: str, *, ended: bool) -> None:
        heads = list(_HEAD.finditer(line))
        for place, head in enumerate(heads):
            following = heads[place + 1] if place + 1 < len(heads) else None
            end = following.start() if following else len(line)
            # Behind the last field of a line that was never ended, digits may be missing.
            self._read_step(head, line[head.end() : end], whole=ended or following is not None)

    def _read_step(self, head: re.Match[str], text: str, *, whole: bool) -> None:
        *parts, last_part = text.split(" | ")
        fields: dict[str, str] = {}
        for part in [*parts, last_part] if whole else parts:
            match = _FIELD.fullmatch(part.strip())
            # Other output may break a line within a number. Where the step time is not the line's last field, it counts only with
            # the separator behind it.
            closing = _CONSUMED in fields or head[1] == "0"
            if match and not (match[1] == _TIMING and part is last_part and not closing):
                fields.setdefault(match[1], match[2])
        index, last = int(head[1]), int(head[2])
        stated = integer(fields.get("global_step"))
        if not fields or (stated is not None and stated != index):
            return
        self.plan(last + 1)
        timing = fields.get(_TIMING)
        self.add(
            Step(
                index=index,
                seconds=float(timing) if timing is not None else None,
                resolution=resolution(timing, 4) if timing and timing[-1].isdigit() else 0.0,
                gbs=integer(fields.get("global_batch_size")),
                consumed_samples=integer(fields.get(_CONSUMED)),
                tflops_per_gpu=number(fields.get(_RATE)),
                loss=number(fields.get("reduced_train_loss")),
                grad_norm=number(fields.get("grad_norm")),
            )
        )

    def log(self) -> Log:
        return replace(super().log(), flops=("full-attention", "causal-attention"))
