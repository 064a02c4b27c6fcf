"""NeMo 1: a progress bar (tqdm, drawn by Lightning), one update behind a carriage return, 0-based steps.

    Epoch 0: : 100%|██████████| 100/100 [07:57<00:00, reduced_train_loss=7.310, global_step=99.00,
    consumed_samples=25600.0, train_step_timing in s=3.590]

A float is printed with 3 significant digits (`3.5904` is `3.590`: Lightning fills up to 5 characters with zeros that
say nothing), unless its own digits are no longer than that: `25600.0` is exact, `2.56e+5` is not. `v_num=...` may
stand first. Times are in seconds. NeMo may average them over the last few steps (`step_timing_kwargs.buffer_size`, 1 unless a
recipe sets it), which no line states: the recipes' files do, by `averaged`.

Lightning draws the bar twice a step: once with the new count and the old figures, once with the new ones. The step
is therefore the one that `global_step` names, and a bar with nothing new is no repeat.
"""

from __future__ import annotations

import re
from dataclasses import replace

from plugins.logs import NUMBER
from plugins.logs import LineParser
from plugins.logs import Step
from plugins.logs import number
from plugins.logs import resolution

_BAR = re.compile(r"\| *\d{1,9}/(\d{1,9}) \[[\d:]+<[\d:?]+, ")
# A figure stands whole between a comma and the next one, or the bracket that ends the bar. Lightning's zeros make
# `nan.0` of nan.
_FIELD = re.compile(
    rf"(?:(?<=, )|^)([A-Za-z_][\w ]*)=(-?(?:nan|inf)(?=\.)|{NUMBER})(?:(?<=[nf])\.0*)?(?=, |\])"
)
_DIGITS = 3


class NeMo1(LineParser):
    """Bars of NeMo 1's megatron_gpt_pretraining.py (NeMo 24.09 and the releases around it)."""

    hints = (b"global_step=",)

    def read_line(self, line: str, *, ended: bool) -> None:  # noqa: ARG002 - a bar ends with its own bracket
        bars = list(_BAR.finditer(line))
        for place, bar in enumerate(bars):
            end = bars[place + 1].start() if place + 1 < len(bars) else len(line)
            self._read_bar(int(bar[1]), line[bar.end() : end])

    def _read_bar(self, total: int, text: str) -> None:
        fields: dict[str, str] = {}
        for match in _FIELD.finditer(text):
            fields.setdefault(match[1], match[2])
        index = _whole(fields.get("global_step"))
        # `2e+3` is one of ten steps: no line says which.
        if index is None or _rounding(fields["global_step"]):
            return
        timing = fields.get("train_step_timing in s")
        consumed = fields.get("consumed_samples")
        self.plan(total)
        self.add(
            Step(
                index=index,
                seconds=number(timing),
                resolution=_resolution(timing) if timing and timing[-1].isdigit() else 0.0,
                consumed_samples=_whole(consumed),
                consumed_resolution=_rounding(consumed) if consumed else 0.0,
                loss=number(fields.get("reduced_train_loss")),
                grad_norm=number(fields.get("grad_norm")),
            )
        )

    def add(self, step: Step) -> None:
        known = self._steps.get(step.index) if step.index == self._last else None
        if known is None or not _agree(known, step):
            super().add(step)
            return
        # Drawn again: what other output made unreadable in one bar may stand in the other.
        self._steps[step.index] = replace(known, **{k: v for k, v in vars(step).items() if v})


def _agree(one: Step, other: Step) -> bool:
    """Whether two bars state no different figure (nan is one)."""
    pairs = zip(vars(one).values(), vars(other).values(), strict=True)
    return all(not a or not b or a == b or (a != a and b != b) for a, b in pairs)


def _resolution(timing: str) -> float:
    """Half a unit of the last digit of a time: from 1000 s on it is printed in full or with its exponent."""
    return resolution(timing, _DIGITS if "e" in timing or abs(float(timing)) < 1000 else None)


def _whole(text: str | None) -> int | None:
    value = number(text)
    return int(value) if value is not None and 0 <= value < 1e15 and value == int(value) else None


def _rounding(text: str) -> float:
    """Half a unit of the last digit of a count: 0 when it is printed in full."""
    return resolution(text, _DIGITS) if "e" in text else 0.0
