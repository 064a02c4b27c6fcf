"""The pace of a case in one figure, from its record: the worse of what was published and the steady pace. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def worse(record: Mapping[str, Any]) -> float | None:
    """The slower one of the published statistic and the steady median, in s; None if nothing was measured."""
    if record["step_time"] is None:
        return None
    return float(max(record["step_time"], record["steady_median"] or 0.0))


def off(record: Mapping[str, Any]) -> float | None:
    """By how many percent the throughput at that pace is above (+) or below (-) the expected one."""
    seconds, target = worse(record), record["expected"]
    return 100 * (target["step_time"] / seconds - 1) if seconds and target else None


def line(record: Mapping[str, Any]) -> str:
    """`llama3/70b-fp8-512gpus: passed, measured 10.11 s a step, expected 10.07 s, off by -0.4 %`."""
    seconds, distance = worse(record), off(record)
    if seconds is None:
        return f"{record['id']}: {record['headline']}"
    told = f"{record['id']}: {record['verdict']}, measured {seconds:.4g} s a step, "
    if distance is None:
        return f"{told}nothing is expected"
    return f"{told}expected {record['expected']['step_time']:.4g} s, off by {distance:+.1f} %"
