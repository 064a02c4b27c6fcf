"""MaxText: one line a step, three decimals.

    completed step: 49, seconds: 7.908, TFLOP/s/device: 460.480, Tokens/s/device: 1035.970, total_weights: 524288,
    loss: 0.000

The local proxy prints the same line (with six decimals, its steps are short) behind its machine's own peak.
"""

from __future__ import annotations

import math
import re

from plugins.logs import NUMBER
from plugins.logs import LineParser
from plugins.logs import Step
from plugins.logs import resolution

_STEP = re.compile(
    rf"completed step: (\d{{1,9}}), seconds: (\d{{1,15}}\.\d{{1,15}}), TFLOP/s/device: ({NUMBER}), "
    rf"Tokens/s/device: ({NUMBER}), total_weights: (\d{{1,15}}), loss: ({NUMBER})(?![\w.])"
)
_PEAK = re.compile(rf"proxy machine peak: ({NUMBER}) TFLOP/s/device \(")


class MaxText(LineParser):
    """MaxText's metric line (max_logging, December 2024)."""

    hints = (b"completed step: ", b"proxy machine peak: ")

    def read_line(self, line: str, *, ended: bool) -> None:
        peak = _PEAK.search(line)
        if peak and ended and 0 < float(peak[1]) < math.inf:
            self.measured_peak(float(peak[1]))
        for match in _STEP.finditer(line):
            if match.end() == len(line) and not ended:
                continue
            self.add(
                Step(
                    index=int(match[1]),
                    seconds=float(match[2]),
                    resolution=resolution(match[2]),
                    tokens=int(match[5]),
                    tflops_per_gpu=float(match[3]),
                    loss=float(match[6]),
                )
            )
