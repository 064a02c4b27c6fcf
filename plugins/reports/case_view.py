"""A case as the page of its run shows it."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from plugins.record.case import CaseRecord
from plugins.record.folder import CASE, ERRORS, GPUS_PLOT, GPUS_TABLE, LOG, OWN_LOG, SENT, STEPS
from plugins.record.job import REPLAYED
from plugins.record.outcome import UNKNOWN_JOB
from plugins.record.verdict import Kind
from plugins.reports.markup import markup
from plugins.reports.plot import COLUMNS, drawable, steps_svg, ticks, with_ids

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
# What stands at its place on the axis, drawn from (0, 0) on: a dot, triangles, a diamond; a cross for all others.
MARKS = {
    **dict.fromkeys(Kind, "M-5,-3l2,-2l3,3l3,-3l2,2l-3,3l3,3l-2,2l-3,-3l-3,3l-2,-2l3,-3z"),
    Kind.PASSED: "M-4.5,0a4.5,4.5 0 1 0 9,0a4.5,4.5 0 1 0 -9,0z",
    Kind.TOO_SLOW: "M-6,-4.5h12l-6,10z",
    Kind.TOO_FAST: "M-6,4.5h12l-6,-10z",
    Kind.NOISY: "M0,-6l6,6l-6,6l-6,-6z",
}
# The axis ends there, in percent, or at twice the widest band. A case beyond is drawn at its end.
_FURTHEST = 30.0
# Of a cell that is slower than expected.
_SHADES = 5
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
    def band(self) -> tuple[float, float]:
        """The deviations that pass, in percent; both 0 if nothing is expected."""
        target = self.record.expected
        return target.band if target else (0.0, 0.0)

    @property
    def shade(self) -> int | str:
        """How dark it is on the map: 0 if it is not below the expected throughput, `_SHADES` at the limit and beyond; or `fast`.

        `none` if there is no pace to compare.
        """
        deviation, limit = self.record.deviation, self.band[0]
        if deviation is None:
            return "none"
        if deviation >= 0:
            return "fast" if self.kind is Kind.TOO_FAST else 0
        return min(_SHADES, int(_SHADES * deviation / limit)) if limit else _SHADES

    @property
    def why(self) -> str:
        """The headline without the verdict."""
        return self.record.headline.removeprefix(f"{self.kind}: ")

    @property
    def anchor(self) -> str:
        return f"case-{self.number}"

    @cached_property
    def parts(self) -> tuple[str, str, str, int]:
        """Recipe, size, dtype and number of GPUs. Of several jobs of a case, the dtype has the job's id behind it."""
        match = re.fullmatch(r"([^/]+)/(.+)-([^-]+)-(\d+)gpus(?:\.[^#]+)?(#.+)?", self.id)
        if match is None:
            return self.id, "", "", 0
        return match[1], match[2], match[3] + (match[5] or ""), int(match[4])

    @property
    def replayed(self) -> bool:
        """Whether it was judged from a log that was there before."""
        return self.record.job.state == REPLAYED

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


@dataclass(frozen=True)
class Axis:
    """The axis of deviations, in percent, which has room for the bands and the cases."""

    low: float
    high: float

    @classmethod
    def of(cls, cases: Sequence[CaseView]) -> Axis:
        """The axis of these cases, each of which has a deviation."""
        bands = [edge for case in cases for edge in case.band]
        values = [*bands, *(case.record.deviation or 0.0 for case in cases)]
        furthest = max(_FURTHEST, 2 * max(map(abs, bands)))
        low, high = max(min(values), -furthest), min(max(values), furthest)
        room = max((high - low) / 20, 0.5)
        return cls(low - room, high + room)

    @property
    def ticks(self) -> list[float]:
        return ticks(self.low, self.high, most=5)

    def place(self, value: float) -> float:
        """Where a value is, in percent of the axis; 1 or 99 if it is beyond."""
        return round(min(max(100 * (value - self.low) / (self.high - self.low), 1.0), 99.0), 2)


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
