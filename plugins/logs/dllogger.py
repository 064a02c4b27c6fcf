"""DLLogger, as NeMo 1 on Kubernetes writes it: a record for each step, in a file or in a pod's output.

    DLLL {"timestamp": "1728595441.952723", "datetime": "2024-10-10 21:24:01.952723", "elapsedtime": "2087.21432",
    "type": "LOG", "step": 36, "data": {"reduced_train_loss": 7.976484775543213, "global_step": 36,
    "consumed_samples": 37888, "train_step_timing in s": 45.81364059448242, "epoch": 0}}

    DLL 2024-10-10 21:24:01.952723 - 36 reduced_train_loss : 7.976484775543213  global_step : 36  ...

Each record is one line in the log; steps are 0-based. Times are in seconds, printed in full. The recipes let
NeMo average them over the last five steps (`buffer_size`). No line states that, so the recipe does
(`means`).

The first record has "PARAMETER" instead of a step, and the configuration as its data. It is required, and
checked against the case. `cfg/fp8` alone decides between FP8 and `cfg/precision` (NeMo 2.0.0,
megatron_gpt_model.py).

In a pod's output a blank follows every value. So if a number was cut short, it does not count.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterator
from typing import Any

from plugins.logs.line_parser import LineParser
from plugins.logs.log import Fact, Step, Tells
from plugins.logs.numbers import NUMBER, sections, single, whole
from plugins.logs.origin import seconds_of
from plugins.logs.statements import ARGUMENTS

_TIMING = "train_step_timing in s"
_KEY = re.compile(r"[\w/.-]+", re.ASCII)
_COUNT = re.compile(r"\d{1,15}", re.ASCII)
_OUTPUT = re.compile(r"DLL (?!- )(?P<clock>[\d:.T+ -]{10,40}) - (?P<step>PARAMETER|\d{1,9}) ")
_PARAMETER = re.compile(r"(?<!\S)(cfg/[\w/]+) : (\S+) ")
_METRIC = re.compile(rf"(?<!\S)([A-Za-z_][\w/]*(?: in s)?) : ({NUMBER}) ")
_DECODER = json.JSONDecoder(object_pairs_hook=single)

# The facts that are whole numbers, by their names in `Case.facts`.
_SIZES = {
    **{f"cfg/{key}": fact for key, fact in ARGUMENTS.items()},
    "cfg/virtual_pipeline_model_parallel_size": "vp",
    "cfg/encoder_seq_length": "sequence_length",
    "cfg/num_query_groups": "query_groups",
}
_FP8 = "cfg/fp8"
_PRECISION = "cfg/precision"
_PROFILERS = ("cfg/nsys_profile/enabled", "cfg/memory_profile/enabled")
_FLAGS = {"true": True, "hybrid": True, "e4m3": True, "false": False, "none": False}
_PRECISIONS = {"bf16": "bf16", "16": "fp16", "32": "fp32"}


class DLLogger(LineParser):
    """Parses records of NVIDIA's dllogger by NeMo's DLLogger (NeMo 24.07 and the releases around it)."""

    hints = (b"DLLL {", b"DLL ")
    tells: Tells = "configuration"

    def __init__(self) -> None:
        super().__init__()
        self._gbs: int | None = None
        self._sequence_length: int | None = None

    def read_line(self, line: str, *, ended: bool) -> None:  # noqa: ARG002 - a record ends with its own bracket
        for record in _records(line):
            data = record.get("data")
            if record.get("type") != "LOG" or not isinstance(data, dict):
                continue
            if record.get("step") == "PARAMETER":
                if _PRECISION in data and all(map(_KEY.fullmatch, data)):
                    # The record is whole, and no other output is in its keys. FP8 is off unless it is set.
                    data.setdefault(_FP8, None)
                self._read_parameters(data)
            else:
                clock = str(record.get("datetime", ""))
                self._read_step(record.get("step"), data, seconds_of(clock), timed=_TIMING in data)
        for head, text in sections(_OUTPUT, line):
            if head["step"] == "PARAMETER":
                self._read_parameters(single(_parameters(text)))
                continue
            metrics = single((match[1], float(match[2])) for match in _METRIC.finditer(text))
            self._read_step(
                int(head["step"]), metrics, seconds_of(head["clock"]), timed=f"{_TIMING} : " in text
            )

    def _read_parameters(self, data: dict[str, Any]) -> None:
        self._stated.begins("PARAMETER")
        self._gbs = _whole(data.get("cfg/global_batch_size"))
        self._sequence_length = _whole(data.get("cfg/encoder_seq_length"))
        for key, name in _SIZES.items():
            size = _whole(data.get(key))
            if name == "vp" and key in data and _flag(data[key]) is False:
                size = 1
            self._keep(name, size, key, data)
        if _FP8 in data:
            self._keep("fp8", _flag(data[_FP8]), _FP8, data)
        precision = _PRECISIONS.get(str(data.get(_PRECISION)).partition("-")[0])
        self._keep("precision", precision, _PRECISION, data)
        for key in _PROFILERS:
            if _flag(data.get(key)):
                self.spoilt("profiler", f"{key} is {data[key]}")

    def _keep(self, name: str, value: int | str | None, key: str, data: dict[str, Any]) -> None:
        """Keep what a parameter states, unless other output garbled it."""
        if value is not None:
            self._stated.keep(Fact(name, value, f"{key} is {data[key]}"))

    def _read_step(self, step: object, data: dict[str, Any], stamp: float | None, *, timed: bool) -> None:
        """Read a step. If the record has a step time, it is `timed`, even if the time is garbled.

        Records of validation have no step time.
        """
        index = _whole(step)
        stated = _whole(data.get("global_step"))
        if index is None or not timed or (stated is not None and stated != index):
            return
        tokens = None
        if self._gbs and self._sequence_length:
            tokens = self._gbs * self._sequence_length
        self.add(
            Step(
                index=index,
                seconds=_number(data.get(_TIMING)),
                gbs=self._gbs,
                consumed_samples=_whole(data.get("consumed_samples")),
                tokens=tokens,
                loss=_number(data.get("reduced_train_loss")),
                grad_norm=_number(data.get("grad_norm")),
                stamp=stamp,
            )
        )


def _records(line: str) -> Iterator[dict[str, Any]]:
    """The records in JSON that stand whole in the line."""
    place = line.find("DLLL {")
    while place >= 0:
        place += len("DLLL ")
        with contextlib.suppress(ValueError, RecursionError):
            yield _DECODER.raw_decode(line, place)[0]
        place = line.find("DLLL {", place)


def _parameters(text: str) -> Iterator[tuple[str, int | str]]:
    for key, value in _PARAMETER.findall(text):
        yield key, int(value) if _COUNT.fullmatch(value) else value


def _flag(value: object) -> bool | None:
    """What a switch is set to; None if other output garbled it."""
    return _FLAGS.get(str(value).lower())


def _number(value: object) -> float | None:
    # In JSON a number may be of any length. In Python bool is an int.
    if isinstance(value, float) and (abs(value) < 1e100 or not math.isfinite(value)):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1e15:
        return float(value)
    return None


def _whole(value: object) -> int | None:
    return whole(_number(value))
