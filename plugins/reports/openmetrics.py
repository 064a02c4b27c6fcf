"""The figures of a run in the text format of OpenMetrics, which GitLab's metrics reports and Prometheus read."""

from __future__ import annotations

from pathlib import Path

from plugins.files import write_whole
from plugins.record.folder import METRICS
from plugins.record.summary import Summary

_FIGURES = {
    "pacemark_step_seconds": ("step_time", "Seconds of a training step."),
    "pacemark_tokens_per_second": ("tokens_per_second", "Tokens per second of all GPUs."),
    "pacemark_mfu_percent": ("mfu", "Model FLOPs utilization in percent."),
}


class MetricsReport:
    """`metrics.txt`."""

    name = METRICS

    def write(self, summary: Summary, folder: Path) -> Path:
        """Write the report into the run's folder. Raises OSError."""
        path = folder / self.name
        write_whole(path, metrics(summary))
        return path


def metrics(summary: Summary) -> str:
    """The number of cases with each verdict, the GPU-hours, and the figures of each case that has some."""
    lines = _head("pacemark_cases", "Cases with this verdict.")
    lines += [f'pacemark_cases{{verdict="{kind}"}} {count}' for kind, count in summary.totals.items()]
    lines += _head("pacemark_gpu_hours", "GPU-hours of all jobs of the run.")
    lines.append(f"pacemark_gpu_hours {summary.gpu_hours}")
    for name, (key, what) in _FIGURES.items():
        lines += _head(name, what)
        figures = {record.id: getattr(record, key) for record in summary.cases}
        lines += [
            f'{name}{{case="{case}"}} {value:.10g}' for case, value in figures.items() if value is not None
        ]
    return "\n".join([*lines, "# EOF", ""])


def _head(name: str, what: str) -> list[str]:
    return [f"# HELP {name} {what}", f"# TYPE {name} gauge"]
