"""What a run says of a case, and scaling: the pace of a GPU at several scales beside the published one. Pure.

Efficiency is the tokens/s per GPU at a scale over those at the smallest scale. Both are of the steady pace. Only
weak scaling is compared: cases of the same recipe, size and dtype with the same layers, sequence length and
sequences per GPU.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from plugins.base.words import counted
from plugins.recipes.cases import Case
from plugins.record.case import CaseRecord
from plugins.record.job import node_names
from plugins.record.summary import Scale, Scaling
from plugins.record.verdict import Kind

# What a case is measured by. A case that is too fast was another one, and a noisy one has no steady pace.
_PACED = (Kind.PASSED, Kind.TOO_SLOW, Kind.NO_BASELINE)

UNCHOSEN = "it was not selected, so this session did not judge its logs"
"""Why a case of a resumed run is missing whose record another session left. That speaks only against the cluster."""


@dataclass(frozen=True)
class Shown:
    """How a case ended, from its entry of `summary.json`.

    It was judged by the numbers of this `release` ("" if it was not judged) for this type of `gpu`. If the number is
    the site's own, `recorded` is the run that measured it or, if it was written by hand, `number` is the step time in
    s. With `by_range` it was judged by its expected range, because nobody published a number.

    `runs` is how many runs of the case were judged, `nodes` are those of all their jobs, and `submitted` is the day
    (UTC) on which the last job was. `pace` is the steady one in tokens/s, `published` the expected one, both of all
    GPUs; None if there is none.
    """

    kind: Kind
    headline: str
    nodes: frozenset[str] = frozenset()
    submitted: datetime.date | None = None
    release: str = ""
    gpu: str = ""
    recorded: str = ""
    number: float | None = None
    by_range: bool = False
    runs: int = 1
    pace: float | None = None
    published: float | None = None

    @property
    def unpublished(self) -> str:
        """What it was judged by if nobody published a number of it; "" if somebody did, or it was not judged."""
        if self.by_range:
            return "an expected range"
        if self.number is not None:
            return "an agreed number"
        if self.recorded:
            return "a recorded number"
        return "nothing" if self.kind is Kind.NO_BASELINE else ""

    @classmethod
    def of(cls, record: CaseRecord) -> Shown:
        """What the record of a case says."""
        runs, expected, job = record.runs or (), record.expected, record.job
        shown = cls(
            record.verdict,
            record.headline,
            nodes=frozenset().union(*map(node_names, (job.nodes, *(run.nodes for run in runs)))),
            submitted=_day(job.submitted),
            release=record.release or "",
            gpu=str((record.configuration or {}).get("gpu") or ""),
            runs=len(runs) or 1,
        )
        if record.verdict in _PACED:
            tokens = (record.tokens_per_second or 0.0) * (record.step_time or 0.0)
            shown = replace(shown, pace=ratio(tokens, record.steady_median))
        if expected is None:
            return shown
        if record.expected_range is not None:
            # The middle of a range is no published number, by which scaling could be judged.
            return replace(shown, by_range=True)
        shown = replace(shown, recorded=expected.recorded_by, published=expected.tokens_per_second)
        if expected.own and not expected.recorded_by:
            return replace(shown, number=expected.step_time)
        return shown


@dataclass(frozen=True)
class RunShown:
    """What a run that began on this day (UTC) says of its cases, by their keys.

    `unrun` says why cases were not run. `spoiled` says why the run is no evidence at all, however its cases ended; ""
    if it is.
    """

    cases: Mapping[str, Shown]
    begun: datetime.date
    unrun: Mapping[str, str] = field(default_factory=dict)
    spoiled: str = ""


def ratio(value: float | None, of: float | None) -> float | None:
    """A figure over another; None if one of them is missing, or if there is no such number."""
    if not value or not of or not math.isfinite(value / of):
        return None
    return value / of


def _day(seconds: float | None) -> datetime.date | None:
    if seconds is None:
        return None
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).date()


def groups(cases: Sequence[Case]) -> list[list[Case]]:
    """The cases that differ only in their number of GPUs, smallest first; those without another one are left out."""
    alike: dict[tuple[object, ...], list[Case]] = {}
    for case in cases:
        if case.is_timed and not case.node:
            same = (case.recipe, case.size, case.dtype, case.model, case.sequence_length)
            alike.setdefault((*same, case.gbs / case.gpus), []).append(case)
    return [sorted(group, key=lambda case: case.gpus) for group in alike.values() if len(group) > 1]


def curves(
    cases: Sequence[Case],
    shown: Mapping[str, Shown],
    tolerance: float | None = None,
    waived: Collection[str] = (),
) -> list[Scaling]:
    """The scaling of these cases.

    With `tolerance`, the efficiency of each scale may fall short of the published one by this share at most.
    The cases that are `waived` are neither judged nor compared with.
    """
    return [_curve(group, shown, tolerance, waived) for group in groups(cases)]


def _curve(
    group: Sequence[Case], shown: Mapping[str, Shown], tolerance: float | None, waived: Collection[str]
) -> Scaling:
    scales = [_scale(case, shown.get(case.key), waived) for case in group]
    judged = [scale for scale in scales if not scale.waived]
    if len(judged) > 1:
        scales = [_compared(scale, judged[0]) for scale in scales]
        if tolerance is not None:
            scales = [_judged(scale, judged[0], shown, tolerance) for scale in scales]
    first = group[0]
    return Scaling(recipe=first.recipe, size=first.size, dtype=first.dtype, scales=tuple(scales))


def _scale(case: Case, shown: Shown | None, waived: Collection[str]) -> Scale:
    measured = published = None
    if shown is not None:
        measured, published = ratio(shown.pace, case.gpus), ratio(shown.published, case.gpus)
    return Scale(
        case=case.key,
        gpus=case.gpus,
        tokens_per_second_per_gpu=measured,
        published_tokens_per_second_per_gpu=published,
        efficiency=None,
        published_efficiency=None,
        limit=None,
        why="",
        waived=case.key in waived,
    )


def _compared(scale: Scale, base: Scale) -> Scale:
    """The scale with its efficiencies against the smallest one."""
    measured, published = scale.tokens_per_second_per_gpu, scale.published_tokens_per_second_per_gpu
    return replace(
        scale,
        efficiency=ratio(measured, base.tokens_per_second_per_gpu),
        published_efficiency=ratio(published, base.published_tokens_per_second_per_gpu),
    )


def _judged(scale: Scale, base: Scale, shown: Mapping[str, Shown], tolerance: float) -> Scale:
    """The scale with its limit, and whether it is reached. `base` is the smallest scale that is not waived."""
    if scale.waived:
        return scale
    if scale.tokens_per_second_per_gpu is None:
        reason = shown[scale.case].headline if scale.case in shown else "it was not run"
        return replace(scale, why=f"{scale.case}: {reason}")
    if scale.published_tokens_per_second_per_gpu is None:
        return replace(scale, why=f"{scale.case}: it has no baseline to compare its scaling with")
    if scale.case == base.case or scale.efficiency is None or scale.published_efficiency is None:
        # The smallest scale itself says what it lacks.
        return scale
    limit = scale.published_efficiency * (1 - tolerance)
    if scale.efficiency >= limit:
        return replace(scale, limit=limit)
    reason = (
        f"{scale.case}: scaling efficiency {100 * scale.efficiency:.1f} % against {counted(base.gpus, 'GPU')}, where the "
        f"published numbers have {100 * scale.published_efficiency:.1f} % (limit {100 * limit:.1f} %)"
    )
    return replace(scale, limit=limit, why=reason)


def scaling_record(curves: Sequence[Scaling]) -> tuple[Scaling, ...]:
    """What `summary.json` says of scaling: of the curves with at least two measured scales, and of the judged ones."""
    return tuple(
        curve
        for curve in curves
        if any(scale.why for scale in curve.scales)
        or sum(scale.tokens_per_second_per_gpu is not None for scale in curve.scales) > 1
    )


def scaling_beside(
    earlier: Sequence[Scaling], scaling: Sequence[Scaling], shown: Mapping[str, Shown]
) -> tuple[Scaling, ...]:
    """The curves of a run: those of this session, and those of an earlier one that these do not replace.

    A curve replaces an earlier one if it has other cases too, or is judged. What an earlier session judged stays as long as
    the paces are the same that were compared, unless the case is judged again.
    """
    standing = [curve for curve in _still_so(earlier, shown) if not _replaced(curve, scaling)]
    covered = [curve.cases for curve in standing]
    now = [curve for curve in scaling if curve.judged or not any(curve.cases <= cases for cases in covered)]
    return scaling_record([*now, *standing])


def _still_so(curves: Sequence[Scaling], shown: Mapping[str, Shown]) -> Iterator[Scaling]:
    """These curves, without the scales whose pace is another one now; none whose smallest scale has another one."""
    for curve in curves:
        scales = []
        for scale in curve.scales:
            pace = scale.tokens_per_second_per_gpu
            if scale.case not in shown or ratio(shown[scale.case].pace, scale.gpus) == pace:
                scales.append(scale)
        base = next((scale for scale in curve.scales if not scale.waived), curve.scales[0])
        if base in scales:
            yield replace(curve, scales=tuple(scales))


def _replaced(earlier: Scaling, scaling: Sequence[Scaling]) -> bool:
    """Whether these curves say more of the cases of an earlier one than it does, and judge all that it judges."""
    beside = [curve for curve in scaling if curve.cases & earlier.cases]
    judged = frozenset().union(*(curve.judged for curve in beside))
    return earlier.judged <= judged and any(curve.judged or curve.cases - earlier.cases for curve in beside)


def scaling_lines(records: Sequence[Scaling]) -> Iterator[str]:
    """Scaling in lines for a terminal, those that are judged."""
    for record in records:
        if any(scale.limit is not None or scale.why for scale in record.scales):
            scales = ", ".join(map(_efficiency_words, record.scales))
            yield f"scaling of {record.name}: {scales}"


def _efficiency_words(scale: Scale) -> str:
    if scale.efficiency is None:
        return f"{counted(scale.gpus, 'GPU')} none"
    text = f"{counted(scale.gpus, 'GPU')} {100 * scale.efficiency:.1f} %"
    if scale.waived:
        return f"{text} (waived)"
    if scale.limit is not None:
        return f"{text} (limit {100 * scale.limit:.1f} %)"
    return text
