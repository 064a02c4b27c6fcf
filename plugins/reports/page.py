"""The page of a run: `report.html` and `report.md` in its folder, made of its records alone.

    python -m plugins.reports.page results/latest

makes both anew. They need no network, no script and no other file; the links lead to the logs in the folder.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from plugins.acceptance import screening
from plugins.base.errors import ConfigError
from plugins.base.files import write_whole
from plugins.base.words import shown
from plugins.record.case import CaseRecord
from plugins.record.folder import CASE, ERRORS, GPUS_PLOT, GPUS_TABLE, LOG, OWN_LOG, SENT, STEPS
from plugins.record.outcome import UNKNOWN_JOB
from plugins.record.plan import Plan
from plugins.record.stored import prepare, read_summary
from plugins.record.summary import Scaling, Summary
from plugins.record.verdict import PACED, Kind
from plugins.reports.markup import TEMPLATES, markup, template
from plugins.reports.plot import COLUMNS, drawable, scaling_svg, steps_svg, with_ids

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
        """Recipe, size, dtype and number of GPUs. Of several jobs of a case, the dtype has the job's id behind it."""
        match = re.fullmatch(r"([^/]+)/(.+)-([^-]+)-(\d+)gpus(?:\.[^#]+)?(#.+)?", self.id)
        if match is None:
            return self.id, "", "", 0
        return match[1], match[2], match[3] + (match[5] or ""), int(match[4])

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


HTML, MARKDOWN = "report.html", "report.md"

_RANKS = list(SIGNS)
_SLOWEST = 10
# So many columns of a matrix fit a page of 1,100 pixels.
_SCALES = 6


class PageReport:
    """`report.html`, and the same as `report.md`."""

    name = HTML

    @staticmethod
    def load() -> None:
        """Load what makes pages and their record, which takes a while."""
        prepare()
        template(HTML)
        template(MARKDOWN)

    def write(self, summary: Summary, folder: Path) -> None:
        """Write both files into a run's folder. Raises OSError."""
        html, markdown = self.render(folder, summary)
        write_whole(folder / HTML, html)
        write_whole(folder / MARKDOWN, markdown)

    def render(self, folder: Path, summary: Summary) -> tuple[str, str]:
        """HTML and Markdown of a run."""
        cases = [CaseView(folder, number, record) for number, record in enumerate(summary.cases)]
        values = _values(summary, cases)
        return template(HTML).render(values), template(MARKDOWN).render(values)


def _values(summary: Summary, cases: Sequence[CaseView]) -> dict[str, Any]:
    """What the templates show, by the names that they use."""
    style = (TEMPLATES / "report.css").read_text(encoding="utf-8")
    accepted, repeated = summary.acceptance, summary.repeated
    # The nodes of a screening have a table of their own.
    others = [case for case in cases if not (summary.screening and case.record.node)]
    behind = [case for case in cases if case.record.deviation is not None and case.record.deviation < 0]
    return {
        "run": summary,
        "cases": cases,
        "worst_first": sorted(cases, key=_rank),
        "counts": {kind: summary.totals[kind] for kind in SIGNS if summary.totals.get(kind)},
        "signs": SIGNS,
        "others": sorted(others, key=_rank),
        "matrices": _matrices(others),
        "slowest": sorted(behind, key=lambda case: case.record.deviation or 0.0)[:_SLOWEST],
        "compared": any(case.record.deviation is not None for case in cases),
        "saving": repeated and repeated.text,
        "left_out": sum(group.cases for group in summary.left_out),
        "decision": accepted,
        "agreed": accepted and list(_agreed(accepted.plan)),
        "judged_by": sorted({case.baseline for case in cases if case.baseline}),
        "broken": [
            (case, tried, number)
            for case in cases
            for number, tried in enumerate(case.record.earlier_jobs, start=1)
            if tried.failure != "repeated"
        ],
        "by_id": {case.id: case for case in cases},
        "unjudged": [case for case in cases if case.kind not in PACED],
        "versions": _alike(cases, lambda case: case.record.versions),
        "definitions": _alike(cases, lambda case: case.counted),
        "columns": COLUMNS,
        "html_name": HTML,
        "slowest_shown": _SLOWEST,
        "scaling_svg": _scaling_svg,
        "heat_map": screening.heat_map,
        "shade": screening.shade,
        "node_signs": screening.SIGNS,
        "style": markup(style),
        "style_hash": base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
    }


def _rank(case: CaseView) -> int:
    return _RANKS.index(case.kind)


def _scaling_svg(scaling: Scaling, number: int) -> str:
    return markup(with_ids(scaling_svg(scaling), f"scaling-{number}-"))


def _agreed(plan: Plan) -> Iterator[tuple[str, str]]:
    """What a plan asks for besides its cases, in words."""
    yield "type of GPU", plan.gpu or "that of the site file"
    releases = ", ".join(f"{name} {release}" for name, release in plan.releases.items())
    yield "releases", releases or "those of the site file, or else the recipes' own"
    tolerance = "the baselines' own"
    limits = plan.tolerance and plan.tolerance.model_dump(exclude_none=True)
    if limits:
        named = ", ".join(f"{name} {value:g}" for name, value in limits.items())
        tolerance = f"{named}, instead of {tolerance}"
    yield "tolerance", tolerance
    runs = f"{plan.repeats.at_most}"
    if plan.repeats.at_most > 1 and not plan.repeats.always:
        runs += " at most, until they tell"
    yield "runs of a case", runs
    scaling = "not asked for"
    if plan.scaling is not None:
        scaling = f"at most {100 * plan.scaling:g} % below the published efficiency"
    yield "scaling", scaling
    yield "nodes", ", ".join(plan.nodes) or "none named"
    if plan.by == "expected":
        yield "cases without a published number", "the lower end of the expected range decides"
    numbers = ", ".join(f"{case} {value:g} s" for case, value in plan.numbers.items())
    yield "agreed step times", numbers or "none"
    yield "network", plan.network or "not stated"
    storage = "not stated"
    if plan.storage_gb_per_second is not None:
        storage = f"{plan.storage_gb_per_second:g} GB/s"
    yield "storage", storage
    yield "recorded baselines", "count" if plan.recorded_baselines else "do not count"


def _matrices(cases: Sequence[CaseView]) -> list[dict[str, Any]]:
    """For each recipe its scales, in parts that fit a page, and its rows by (size, dtype): the cases by scale."""
    groups: dict[str, dict[tuple[str, str], dict[int, CaseView]]] = {}
    for case in cases:
        recipe, size, dtype, gpus = case.parts
        groups.setdefault(recipe, {}).setdefault((size, dtype), {})[gpus] = case
    matrices = []
    for recipe, rows in groups.items():
        scales = sorted({gpus for row in rows.values() for gpus in row})
        parts = [scales[start : start + _SCALES] for start in range(0, len(scales), _SCALES)]
        matrices.append({"recipe": recipe, "parts": parts, "rows": rows})
    return matrices


def _alike(
    cases: Sequence[CaseView], facts: Callable[[CaseView], Mapping[str, Any] | None]
) -> list[tuple[Mapping[str, Any], list[CaseView]]]:
    """The facts of cases, and the cases that have the same ones."""
    groups: dict[str, tuple[Mapping[str, Any], list[CaseView]]] = {}
    for case in cases:
        known = facts(case)
        if known:
            groups.setdefault(repr(sorted(known.items())), (known, []))[1].append(case)
    return list(groups.values())


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1:
        print(
            "usage: python -m plugins.reports.page RUN, a run's folder such as results/latest",
            file=sys.stderr,
        )
        return 2
    folder = Path(arguments[0])
    try:
        PageReport().write(read_summary(folder.resolve()), folder.resolve())
    except (ConfigError, OSError) as error:
        print(shown(f"the report cannot be made: {error}"), file=sys.stderr)
        return 1
    print(shown(f"{folder / HTML}\n{folder / MARKDOWN}"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))


class Report(Protocol):
    """A file that is made of the record of a finished run: the page, CTRF, metrics.

    Allure, JUnit and pytest-benchmark are hooks of pytest, and so are no reports.
    """

    name: str
    """The name of the file in the run's folder."""

    def write(self, summary: Summary, folder: Path) -> None:
        """Write the report into the run's folder, which has all else already. Raises OSError."""
