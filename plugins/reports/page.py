"""The page of a run: `report.html` and `report.md` in its folder, made of its records alone.

    python -m plugins.reports.page results/latest

makes both anew. They need no network, no script and no other file; the links lead to the logs in the folder.
"""

from __future__ import annotations

import base64
import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from plugins.acceptance import screening
from plugins.base.errors import ConfigError
from plugins.base.files import write_whole
from plugins.base.words import shown
from plugins.record.plan import Plan
from plugins.record.stored import prepare, read_summary
from plugins.record.summary import Scale, Scaling, Summary
from plugins.record.verdict import Kind
from plugins.reports.case_view import MARKS, SIGNS, Axis, CaseView
from plugins.reports.gate import heading
from plugins.reports.markup import TEMPLATES, markup, template
from plugins.reports.plot import COLUMNS, scaling_svg, with_ids

HTML, MARKDOWN = "report.html", "report.md"

_RANKS = list(SIGNS)
# Of GPU-hours, so that those of the jobs add up to the sum.
_DIGITS = 3


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
    ranked = sorted(others, key=_rank)
    placed = [case for case in ranked if case.record.deviation is not None]
    ran = [
        case for case in cases if (case.record.job.state and not case.replayed) or case.record.earlier_jobs
    ]
    return {
        **_FIXED,
        "run": summary,
        "cases": cases,
        "worst_first": sorted(cases, key=_rank),
        "counts": {kind: summary.totals[kind] for kind in SIGNS if summary.totals.get(kind)},
        "heading": heading(summary),
        "others": ranked,
        "placed": placed,
        "axis": Axis.of(placed) if placed else None,
        "apart": _alike(ranked, lambda case: {"kind": case.kind} if case.record.deviation is None else None),
        "whys": _alike(
            ranked,
            lambda case: {"kind": case.kind, "why": case.why} if case.kind is not Kind.PASSED else None,
        ),
        "matrices": _matrices(others),
        "ran": ran,
        "replayed": sum(case.replayed for case in cases),
        "other_hours": summary.gpu_hours - sum(round(case.gpu_hours or 0.0, _DIGITS) for case in ran),
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
        "versions": _alike(cases, lambda case: case.record.versions),
        "definitions": _alike(cases, lambda case: case.counted),
        "style": markup(style),
        "style_hash": base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
    }


def _rank(case: CaseView) -> tuple[int, float]:
    """The worst verdict first, and of its cases the one that is furthest off."""
    deviation = case.record.deviation or 0.0
    return _RANKS.index(case.kind), -deviation if case.kind is Kind.TOO_FAST else deviation


def _scaling_svg(scaling: Scaling, number: int, cases: Mapping[str, CaseView]) -> str:
    records = {key: case.record for key, case in cases.items()}
    return markup(with_ids(scaling_svg(scaling, records), f"scaling-{number}-"))


def _remarks(scaling: Scaling, cases: Mapping[str, CaseView]) -> list[str]:
    """What is to be said of each scale, such as why it has no point; "" if nothing."""
    return [_remark(scale, cases.get(scale.case)) for scale in scaling.scales]


def _remark(scale: Scale, case: CaseView | None) -> str:
    if scale.waived:
        return "waived"
    if scale.why:
        return "below the limit" if scale.limit else scale.why
    if scale.tokens_per_second_per_gpu is not None:
        return ""
    return f"no point: {case.record.headline if case else 'the case was not run'}"


_FIXED = {
    "signs": SIGNS,
    "marks": MARKS,
    "columns": COLUMNS,
    "html_name": HTML,
    "scaling_svg": _scaling_svg,
    "remarks_of": _remarks,
    "heat_map": screening.heat_map,
    "shade": screening.shade,
    "node_signs": screening.SIGNS,
}


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
    """For each recipe its scales, and its rows by (size, dtype): the cases by scale."""
    groups: dict[str, dict[tuple[str, str], dict[int, CaseView]]] = {}
    for case in cases:
        recipe, size, dtype, gpus = case.parts
        if gpus:
            groups.setdefault(recipe, {}).setdefault((size, dtype), {})[gpus] = case
    return [
        {
            "recipe": recipe,
            "scales": sorted({gpus for row in rows.values() for gpus in row}),
            "rows": rows,
        }
        for recipe, rows in groups.items()
    ]


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
