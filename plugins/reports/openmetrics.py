"""The figures of a run in the text format of OpenMetrics, which GitLab's metrics reports and Prometheus read. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_METRICS = {
    "pacemark_step_seconds": ("step_time", "Seconds of a training step."),
    "pacemark_tokens_per_second": ("tokens_per_second", "Tokens per second of all GPUs."),
    "pacemark_mfu_percent": ("mfu", "Model FLOPs utilization in percent."),
}


def metrics(summary: Mapping[str, Any]) -> str:
    """The number of cases with each verdict, the GPU-hours, and the figures of each case that has some."""
    lines = _head("pacemark_cases", "Cases with this verdict.")
    lines += [f'pacemark_cases{{verdict="{kind}"}} {count}' for kind, count in summary["totals"].items()]
    lines += _head("pacemark_gpu_hours", "GPU-hours of all jobs of the run.")
    lines.append(f"pacemark_gpu_hours {summary['gpu_hours']}")
    for name, (key, what) in _METRICS.items():
        lines += _head(name, what)
        lines += [
            f'{name}{{case="{case["id"]}"}} {case[key]:.10g}'
            for case in summary["cases"]
            if case[key] is not None
        ]
    return "\n".join([*lines, "# EOF", ""])


def _head(name: str, what: str) -> list[str]:
    return [f"# HELP {name} {what}", f"# TYPE {name} gauge"]
