"""A case as the page of its run shows it."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from plugins.record.case import CaseRecord
from plugins.record.folder import CASE, ERRORS, GPUS_PLOT, GPUS_TABLE, LOG, OWN_LOG, SENT, STEPS
from plugins.record.outcome import UNKNOWN_JOB
from plugins.record.verdict import Kind
from plugins.reports.markup import markup
from plugins.reports.plot import COLUMNS, drawable, steps_svg, with_ids

# With its sign, a verdict can be told without its colour. The worst come first.
SIGNS = {
    Kind.TOO_SLOW: "▼",
    Kind.TOO_FAST: "▲",
    Kind.NOISY: "≈",
    Kind.INVALID: "✗",
    Kind.INFRASTRUCTURE: "⚠",
    Kind.LOST: "?",
    Kind.NO_BASELINE: "-",
    Kind.SKIPPED: "○",
    Kind.PASSED: "✓",
}
_FILES = {
    LOG: "log",
    OWN_LOG: "its own log",
    ERRORS: "errors",
    SENT: "what was sent",
    STEPS: "steps",
    CASE: "record",
    GPUS_TABLE: "GPUs",
    GPUS_PLOT: "GPUs, plotted",
}
_LAST = "the black square is the last step, the published statistic"
_MEAN = "the thick black line between two squares is the published statistic over its steps"


@dataclass(frozen=True)
class CaseView:
    """A case as the page shows it: its record, and what follows from it and from the run's folder.

    `number` is its place in the run. Durations are in seconds.
    """

    folder: Path
    number: int
    record: CaseRecord

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def kind(self) -> Kind:
        return self.record.verdict

    @property
    def why(self) -> str:
        """The headline without the verdict."""
        return self.record.headline.removeprefix(f"{self.kind}: ")

    @property
    def anchor(self) -> str:
        return f"case-{self.number}"

    @cached_property
    def parts(self) -> tuple[str, str, str, int]:
        """Recipe, size, dtype and number of GPUs."""
        match = re.fullmatch(r"([^/]+)/(.+)-([^-]+)-(\d+)gpus(?:\..+)?", self.id)
        if match is None:
            return self.id, "", "", 0
        return match[1], match[2], match[3], int(match[4])

    @property
    def job_id(self) -> str:
        """What the link to the log says."""
        label = self.record.job.label or "none"
        if label == UNKNOWN_JOB:
            return "log"
        return label

    def identity(self, *, stated: bool) -> str:
        """What the log states of itself, with its words; or what it does not state."""
        known = self.record.identity or {}
        if stated:
            return ", ".join(f"{kind} ({words})" for kind, words in known.items() if words)
        return ", ".join(kind for kind, words in known.items() if not words)

    @cached_property
    def files(self) -> dict[str, str]:
        """What the files in the case's folder are, by their paths in the run's folder."""
        names = {f"{self.id}/{name}": label for name, label in _FILES.items()}
        return {path: label for path, label in names.items() if (self.folder / path).is_file()}

    @property
    def log(self) -> str:
        """The path of the log, or of what the job printed outside it; "" if there is neither."""
        names = (LOG, OWN_LOG, ERRORS)
        return next((path for name in names if (path := f"{self.id}/{name}") in self.files), "")

    def log_in(self, part: str) -> str:
        """The path of the log in a folder of the case's folder, an earlier try's; "" if there is none."""
        path = f"{self.id}/{part}/{LOG}"
        if not (self.folder / path).is_file():
            return ""
        return path

    @property
    def gpu_hours(self) -> float | None:
        """Those of its last job."""
        seconds = self.record.job.times.seconds
        if seconds is None:
            return None
        return self.parts[3] * seconds / 3600

    @property
    def thinned(self) -> bool:
        return len(self.times) > 2 * COLUMNS

    @property
    def baseline(self) -> str:
        """What the case was compared with."""
        target = self.record.expected
        if target is None:
            return ""
        compared = f"{target.framework}, release {target.release}, on {target.gpu}"
        if target.recorded_by:
            compared += f", as recorded by run {target.recorded_by}"
        if self.record.expected_range is not None:
            compared += f", by the expected range, {self.record.expected_range.text}"
        return f"{compared}: {target.source}"

    @property
    def counted(self) -> dict[str, Any]:
        """How its figures were counted; empty if it has none."""
        record, basis = self.record, self.record.mfu_definition
        if record.step_time is None:
            return {}
        counted: dict[str, Any] = {"statistic": record.statistic, "means": record.means}
        counted |= {"flops": basis and basis.flops, "peak": basis and basis.peak_tflops_per_gpu}
        return {**counted, "baseline": self.baseline}

    @property
    def points(self) -> str:
        """What each time in the plot is of."""
        means = self.record.means
        if means is None or means.judged == 1:
            return "steps"
        return f"means over {means.judged} steps each"

    @cached_property
    def times(self) -> dict[int, float]:
        """Seconds of the single steps, by their numbers."""
        return steps_of(self.folder / self.id / STEPS)

    @cached_property
    def plot(self) -> str:
        """The plot of its steps; "" if there is nothing to draw."""
        if not self.times:
            return ""
        return markup(with_ids(steps_svg(self.record, self.times), f"{self.anchor}-"))

    @property
    def marks(self) -> str:
        """What the marks are that the plot has; "" if it has none."""
        statistic = _LAST if self.record.statistic == "last" else _MEAN
        marks = {"hiccups": "a cross is a hiccup", "statistic": statistic}
        return "; ".join(words for kind, words in marks.items() if f'class="{kind}"' in self.plot)


def steps_of(path: Path) -> dict[int, float]:
    """Seconds of the single steps, by their numbers; none if their file is damaged or is none."""
    if not path.is_file():
        return {}
    try:
        with path.open(newline="") as file:
            rows = csv.reader(file)
            names = next(rows)
            step, seconds = names.index("step"), names.index("raw_seconds")
            return drawable({int(row[step]): float(row[seconds]) for row in rows if row[seconds]})
    except (OSError, ValueError, LookupError, StopIteration, csv.Error):
        return {}
