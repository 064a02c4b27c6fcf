"""Megatron-Bridge: Megatron-LM's iteration line from the last rank, and a line of rank 0 beside it.

    Step Time : 5.66s GPU utilization: 1190.9MODEL_TFLOP/s/GPU [2026-03-27 23:09:42] iteration        9/      50 |
    consumed samples:         1152 | elapsed time per iteration (ms): 5683.2 | ... |

Two processes write at the same time, so both stand on one line or on two. Rank 0's names no iteration and times
with its own clock: it counts for the iteration that follows when it alone stands before it and its time agrees;
the step time is the iteration line's. Iterations are 1-based, times in milliseconds (rank 0: seconds).
"""

from __future__ import annotations

import re

from plugins.logs.megatron_lm import MegatronLM

_UTILIZATION = re.compile(r"Step Time : (\d{1,9}\.\d\d)s GPU utilization: (\d{1,9}\.\d)MODEL_TFLOP/s/GPU")
_TIMING = "elapsed time per iteration (ms)"
# The two clocks of one iteration were 0.4 % apart in a real log; rank 0's is rounded to 0.01 s besides.
_AGREES = 0.01


class MegatronBridge(MegatronLM):
    """Lines of `training_log` in Megatron-Bridge's train_utils.py (release 26.02 and those around it)."""

    hints = (*MegatronLM.hints, b"MODEL_TFLOP/s/GPU")
    tells = ""

    def __init__(self) -> None:
        super().__init__()
        # (seconds, TFLOP/s/GPU) since the last iteration; more than one is ambiguous, so no more are kept.
        self._pending: list[tuple[float, float]] = []

    def read_line(self, line: str, *, ended: bool) -> None:
        place = 0
        for match in _UTILIZATION.finditer(line):
            super().read_line(line[place : match.start()], ended=True)
            self._pending = [*self._pending[:1], (float(match[1]), float(match[2]))]
            place = match.end()
        super().read_line(line[place:], ended=ended)

    def utilization(self, fields: dict[str, str]) -> float | None:
        pending, self._pending = self._pending, []
        timing = fields.get(_TIMING)
        if timing is None or len(pending) != 1:
            return None
        [(seconds, tflops)] = pending
        elapsed = float(timing) / 1000
        return tflops if abs(seconds - elapsed) <= 0.005 + _AGREES * elapsed else None
