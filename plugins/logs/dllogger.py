"""DLLogger, as NeMo 1 on Kubernetes writes it: a record a step, 0-based, in a file or in a pod's output.

    DLLL {"timestamp": "1728595441.952723", "datetime": "2024-10-10 21:24:01.952723", "elapsedtime": "2087.21432",
    "type": "LOG", "step": 36, "data": {"reduced_train_loss": 7.976484775543213, "global_step": 36,
    "consumed_samples": 37888, "train_step_timing in s": 45.81364059448242, "epoch": 0}}

    DLL 2024-10-10 21:24:01.952723 - 36 reduced_train_loss : 7.976484775543213  global_step : 36  ...

(each on one line in the log.) The first record has "PARAMETER" for its step and the configuration in its data. Times
are in seconds, printed in full; the recipes let NeMo average them over the last five steps (`buffer_size`), which
no line states. In a pod's output every value is followed by a blank, so that a number cut short never counts.
"""

from __future__ import annotations

import json
import re
from typing import Any

from plugins.logs import NUMBER
from plugins.logs import LineParser
from plugins.logs import Step

_TIMING = "train_step_timing in s"
_OUTPUT = re.compile(r"DLL (?!- )[\d:.T+ -]{10,40} - (PARAMETER|\d{1,9}) ")
_METRIC = re.compile(rf"(?<!\S)([A-Za-z_][\w/]*(?: in s)?) : ({NUMBER}) ")
_DECODER = json.JSONDecoder()


class DLLogger(LineParser):
    """Records of NVIDIA's dllogger through NeMo's DLLogger (NeMo 24.07 and the releases around it)."""

    hints = (b"DLLL {", b"DLL ")

    def __init__(self) -> None:
        super().__init__()
        self._gbs: int | None = None
        self._sequence_length: int | None = None

    def read_line(self, line: str, *, ended: bool) -> None:  # noqa: ARG002 - a record ends with its own bracket
        place = 0
        while (place := line.find("DLLL {", place)) >= 0:
            place += len("DLLL ")
            try:
                record, _ = _DECODER.raw_decode(line, place)
            except (ValueError, RecursionError):
                continue
            if record.get("type") == "LOG" and isinstance(record.get("data"), dict):
                self._read_record(record.get("step"), record["data"], timed=_TIMING in record["data"])
        heads = list(_OUTPUT.finditer(line))
        for number, head in enumerate(heads):
            end = heads[number + 1].start() if number + 1 < len(heads) else len(line)
            text = line[head.end() : end]
            data: dict[str, Any] = {}
            for match in _METRIC.finditer(text):
                data.setdefault(match[1], float(match[2]))
            step = int(head[1]) if head[1].isdigit() else head[1]
            self._read_record(step, data, timed=f"{_TIMING} : " in text)

    def _read_record(self, step: object, data: dict[str, Any], *, timed: bool) -> None:
        """`timed`: the record has a step time, even if other output made it unreadable; validation has none."""
        if step == "PARAMETER":
            self._gbs = _whole(data.get("cfg/global_batch_size"))
            self._sequence_length = _whole(data.get("cfg/encoder_seq_length"))
            return
        index = _whole(step)
        stated = _whole(data.get("global_step"))
        if index is None or not timed or (stated is not None and stated != index):
            return
        self.add(
            Step(
                index=index,
                seconds=_number(data.get(_TIMING)),
                gbs=self._gbs,
                consumed_samples=_whole(data.get("consumed_samples")),
                tokens=self._gbs * self._sequence_length if self._gbs and self._sequence_length else None,
                loss=_number(data.get("reduced_train_loss")),
                grad_norm=_number(data.get("grad_norm")),
            )
        )


def _number(value: object) -> float | None:
    # A whole number of JSON may be longer than any float; bool is an int to Python, not to a log.
    if isinstance(value, float) or (
        isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1e15
    ):
        return float(value)
    return None


def _whole(value: object) -> int | None:
    known = _number(value)
    return int(known) if known is not None and 0 <= known < 1e15 and known == int(known) else None
