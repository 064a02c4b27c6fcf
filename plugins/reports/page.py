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
from datetime import UTC, datetime
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plugins.errors import ConfigError
from plugins.files import write_whole
from plugins.outcome import UNKNOWN_JOB
from plugins.record.case import CaseRecord
from plugins.record.folder import CASE, ERRORS, GPUS_PLOT, GPUS_TABLE, LOG, OWN_LOG, SENT, STEPS
from plugins.record.job import Job
from plugins.record.plan import Plan
from plugins.record.stored import read_case, read_summary
from plugins.record.summary import Summary
from plugins.record.verdict import PACED, Kind
from plugins.reports.plot import COLUMNS, drawable, scaling_svg, steps_svg, with_ids
from plugins.words import markdown_text, shown

if TYPE_CHECKING:
    from jinja2 import Environment, Template

HTML, MARKDOWN = "report.html", "report.md"

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
_RANKS = list(SIGNS)
_SLOWEST = 10
# So many columns of a matrix fit a page of 1,100 pixels.
_SCALES = 6
_TEMPLATES = Path(__file__).parent / "templates"
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


@dataclass(frozen=True)
class CasePlot:
    """The plot of a case's steps, so many of them; "" if there is nothing to draw. It is made of the record and a file."""

    record: CaseRecord
    file: tuple[int, int, int] | None
    steps: int
    svg: str


@dataclass(frozen=True)
class CaseView:
    """A case as the page shows it: its record, and what follows from it and from the run's folder.

    `number` is its place in the run. Durations are in seconds.
    """

    folder: Path
    number: int
    record: CaseRecord
    drawn: CasePlot

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
    def sign(self) -> str:
        return SIGNS[self.kind]

    @property
    def anchor(self) -> str:
        return f"case-{self.number}"

    @cached_property
    def parts(self) -> tuple[str, str, str, int]:
        """Recipe, size, dtype and number of GPUs."""
        found = re.fullmatch(r"([^/]+)/(.+)-([^-]+)-(\d+)gpus", self.id)
        return (found[1], found[2], found[3], int(found[4])) if found else (self.id, "", "", 0)

    @property
    def job(self) -> Job:
        return self.record.job

    @property
    def job_id(self) -> str:
        """What the link to the log says."""
        label = self.job.ref.label or "none"
        return "log" if label == UNKNOWN_JOB else label

    def identity(self, *, stated: bool) -> str:
        """What the log states of itself, with its words; or what it does not state."""
        known = self.record.identity or {}
        return ", ".join(
            f"{kind} ({words})" if words else kind for kind, words in known.items() if bool(words) is stated
        )

    @cached_property
    def files(self) -> dict[str, str]:
        """What the files in the case's folder are, by their paths in the run's folder."""
        names = {f"{self.id}/{name}": what for name, what in _FILES.items()}
        return {path: what for path, what in names.items() if (self.folder / path).is_file()}

    @property
    def log(self) -> str:
        """The path of the log, or of what the job printed outside it; "" if there is neither."""
        names = (LOG, OWN_LOG, ERRORS)
        return next((path for name in names if (path := f"{self.id}/{name}") in self.files), "")

    def log_in(self, part: str) -> str:
        """The path of the log in a folder of the case's folder, an earlier try's or a mode's; "" if there is none."""
        path = f"{self.id}/{part}/{LOG}"
        return path if (self.folder / path).is_file() else ""

    @property
    def gpu_hours(self) -> float | None:
        """Those of its last job."""
        seconds = self.job.times.seconds
        return None if seconds is None else self.parts[3] * seconds / 3600

    @property
    def off(self) -> float | None:
        """The throughput above the expected one, in percent, by the worse of the published statistic and the steady pace."""
        return self.record.off

    @property
    def thinned(self) -> bool:
        return self.drawn.steps > 2 * COLUMNS

    @property
    def baseline(self) -> str:
        """What the case was compared with."""
        target = self.record.expected
        if target is None:
            return ""
        own = f", as recorded by run {target.recorded_by}" if target.recorded_by else ""
        return f"{target.framework}, release {target.release}, on {target.gpu}{own}: {target.source}"

    @property
    def counted(self) -> dict[str, Any]:
        """How its figures were counted; empty if it has none."""
        record, basis = self.record, self.record.mfu_definition
        if record.step_time is None:
            return {}
        return {
            "statistic": record.statistic,
            "means": record.means,
            "flops": basis.flops if basis else None,
            "peak": basis.peak_tflops_per_gpu if basis else None,
            "baseline": self.baseline,
        }

    @property
    def points(self) -> str:
        """What each time in the plot is of."""
        over = self.record.means.judged if self.record.means else 1
        return "steps" if over == 1 else f"means over {over} steps each"

    @property
    def plot(self) -> str:
        return with_ids(self.drawn.svg, f"{self.anchor}-")

    @property
    def marks(self) -> str:
        """What the marks are that the plot has; "" if it has none."""
        square = (
            "the black square is the last step, the published statistic"
            if self.record.statistic == "last"
            else "the thick black line between two squares is the published statistic over its steps"
        )
        marks = {"hiccups": "a cross is a hiccup", "statistic": square}
        return "; ".join(words for kind, words in marks.items() if f'class="{kind}"' in self.drawn.svg)


class PageReport:
    """`report.html`, and the same as `report.md`.

    What takes long is made of each case when it ends: its plot. At the end it is used if the record and the steps of
    the case are still the same.
    """

    name = HTML

    def __init__(self) -> None:
        self._plots: dict[str, CasePlot] = {}

    def add(self, folder: Path, key: str) -> None:
        """Make the part of a case of this run that has its record. Raises ConfigError."""
        record = read_case(folder / key)
        if record is not None:
            self._plot(folder, record)
        _templates()

    def write(self, summary: Summary, folder: Path) -> Path:
        """Write both files into a run's folder. Raises OSError."""
        html, markdown = self.render(folder, summary)
        write_whole(folder / HTML, html)
        write_whole(folder / MARKDOWN, markdown)
        return folder / HTML

    def render(self, folder: Path, summary: Summary) -> tuple[str, str]:
        """HTML and Markdown of a run."""
        cases = [
            CaseView(folder, number, record, self._plot(folder, record))
            for number, record in enumerate(summary.cases)
        ]
        values = _values(summary, cases)
        html, markdown = _templates()
        return html.render(values), markdown.render(values)

    def _plot(self, folder: Path, record: CaseRecord) -> CasePlot:
        path = folder / record.id / STEPS
        plot, file = self._plots.get(record.id), _state(path)
        if plot is None or (plot.record, plot.file) != (record, file):
            times = steps_of(path)
            svg = steps_svg(record, times) if times else ""
            plot = self._plots[record.id] = CasePlot(record, file, len(times), svg)
        return plot


def _state(path: Path) -> tuple[int, int, int] | None:
    """By what a file is known to be the same; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


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


def _values(summary: Summary, cases: Sequence[CaseView]) -> dict[str, Any]:
    """What the templates show, by the names that they use."""
    # It is slow to import, and only needed once jobs have run.
    from markupsafe import Markup

    style = (_TEMPLATES / "report.css").read_text(encoding="utf-8")
    behind = [case for case in cases if case.off is not None and case.off < 0]
    return {
        "run": summary,
        "cases": cases,
        "worst_first": sorted(cases, key=lambda case: _RANKS.index(case.kind)),
        "counts": {kind: summary.totals[kind] for kind in SIGNS if summary.totals.get(kind)},
        "signs": SIGNS,
        "matrices": _matrices(cases),
        "slowest": sorted(behind, key=lambda case: case.off or 0.0)[:_SLOWEST],
        "compared": any(case.off is not None for case in cases),
        "saving": summary.repeated.text if summary.repeated else "",
        "left_out": sum(group.cases for group in summary.left_out),
        "decision": summary.acceptance,
        "agreed": list(_agreed(summary.acceptance.plan)) if summary.acceptance else [],
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
        "style": Markup(style),
        "style_hash": base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
    }


@cache
def _templates() -> tuple[Template, Template]:
    """Those of the HTML and of the Markdown. They take a while to compile."""
    return _environment(_html).get_template("report.html"), _environment(_markdown).get_template("report.md")


def _environment(finalize: Any) -> Environment:
    """Templates whose values are all escaped, as texts from outside."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    made = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        finalize=finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(figure=_figure, duration=_duration, moment=_moment, percent=_percent, share=_share)
    made.filters["svg"] = lambda case: Markup(case.plot)
    made.filters["scaling_svg"] = lambda scaling, ids: Markup(with_ids(scaling_svg(scaling), ids))
    return made


def _html(value: Any) -> Any:
    return "" if value is None else shown(value) if type(value) is str else value


def _markdown(value: Any) -> Any:
    from markupsafe import Markup

    value = _html(value)
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return Markup(markdown_text(value))
    return value


def _agreed(plan: Plan) -> Iterator[tuple[str, str]]:
    """What a plan asks for besides its cases, in words."""
    yield "type of GPU", plan.gpu or "that of the site file"
    releases = ", ".join(f"{name} {release}" for name, release in plan.releases.items())
    yield "releases", releases or "those of the site file, or else the recipes' own"
    own = plan.tolerance.model_dump(exclude_none=True) if plan.tolerance else {}
    limits = ", ".join(f"{name} {value:g}" for name, value in own.items())
    yield "tolerance", f"{limits}, instead of the baselines' own" if own else "the baselines' own"
    until = "" if plan.repeats.always or plan.repeats.at_most == 1 else " at most, until they tell"
    yield "runs of a case", f"{plan.repeats.at_most}{until}"
    scaling = "not asked for"
    if plan.scaling is not None:
        scaling = f"at most {100 * plan.scaling:g} % below the published efficiency"
    yield "scaling", scaling
    yield "nodes", ", ".join(plan.nodes) or "none named"
    numbers = ", ".join(f"{case} {value:g} s" for case, value in plan.numbers.items())
    yield "agreed step times", numbers or "none"
    yield "network", plan.network or "not stated"
    promised = plan.storage_gb_per_second
    yield "storage", "not stated" if promised is None else f"{promised:g} GB/s"
    yield "recorded baselines", "count" if plan.recorded_baselines else "do not count"


def _matrices(cases: Sequence[CaseView]) -> list[dict[str, Any]]:
    """For each recipe its scales, in parts that fit a page, and its rows by (size, dtype): the cases by scale."""
    found: dict[str, dict[tuple[str, str], dict[int, CaseView]]] = {}
    for case in cases:
        recipe, size, dtype, gpus = case.parts
        found.setdefault(recipe, {}).setdefault((size, dtype), {})[gpus] = case
    matrices = []
    for recipe, rows in found.items():
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


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}" if value < 1000 else f"{value:,.0f}"


def _percent(value: float | None, sign: str = "") -> str:
    return "" if value is None else f"{value:{sign}.1f} %"


def _share(value: float | None) -> str:
    return "" if value is None else _percent(100 * value)


def _duration(value: float | None) -> str:
    """`47 s`, `3:07 min`, `2:05 h`."""
    if value is None:
        return ""
    minutes, seconds = divmod(round(value), 60)
    if minutes >= 60:
        return f"{minutes // 60}:{minutes % 60:02d} h"
    return f"{minutes}:{seconds:02d} min" if minutes else f"{seconds} s"


def _moment(seconds: float | None) -> str:
    return "" if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"


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
