"""Scaling: the pace of a GPU at several scales, beside that of the published numbers. Pure.

Efficiency is the tokens/s per GPU at a scale over those at the smallest scale. Both are of the steady pace. Only
weak scaling is compared: cases of the same recipe, size and dtype with the same layers, sequence length and
sequences per GPU.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from plugins.acceptance.shown import Shown, ratio
from plugins.recipes.cases import Case


@dataclass(frozen=True)
class Point:
    """A scale: tokens/s per GPU, measured and published, and the efficiencies; None if there is none.

    `limit` is the smallest efficiency that is enough, None if none is asked for. `short` says why it is not
    reached, `missing` why that cannot be told. If `waived`, the scale is not judged.
    """

    case: str
    gpus: int
    measured: float | None
    published: float | None
    efficiency: float | None = None
    published_efficiency: float | None = None
    limit: float | None = None
    short: str = ""
    missing: str = ""
    waived: bool = False


@dataclass(frozen=True)
class Curve:
    """The scales of one recipe, size and dtype, smallest first."""

    recipe: str
    size: str
    dtype: str
    points: tuple[Point, ...]

    @property
    def name(self) -> str:
        return f"{self.recipe}/{self.size}-{self.dtype}"

    @property
    def short(self) -> list[str]:
        """What falls short, in words."""
        return [point.short for point in self.points if point.short]

    @property
    def missing(self) -> list[str]:
        """What cannot be told, in words."""
        return [point.missing for point in self.points if point.missing]


def groups(cases: Sequence[Case]) -> list[list[Case]]:
    """The cases that differ only in their number of GPUs, smallest first; those without another one are left out."""
    alike: dict[tuple[object, ...], list[Case]] = {}
    for case in cases:
        if case.is_timed:
            same = (case.recipe, case.size, case.dtype, case.model, case.sequence_length)
            alike.setdefault((*same, case.gbs / case.gpus), []).append(case)
    return [sorted(group, key=lambda case: case.gpus) for group in alike.values() if len(group) > 1]


def curves(
    cases: Sequence[Case],
    shown: Mapping[str, Shown],
    tolerance: float | None = None,
    waived: Collection[str] = (),
) -> list[Curve]:
    """The scaling of these cases.

    With `tolerance`, the efficiency of each scale may fall short of the published one by this share at most.
    The cases that are `waived` are neither judged nor compared with.
    """
    return [_curve(group, shown, tolerance, waived) for group in groups(cases)]


def _curve(
    group: Sequence[Case], shown: Mapping[str, Shown], tolerance: float | None, waived: Collection[str]
) -> Curve:
    points = [_point(case, shown.get(case.key), waived) for case in group]
    judged = [point for point in points if not point.waived]
    if len(judged) > 1:
        points = [_compared(point, judged[0]) for point in points]
        if tolerance is not None:
            points = [_judged(point, judged[0], shown, tolerance) for point in points]
    return Curve(group[0].recipe, group[0].size, group[0].dtype, tuple(points))


def _point(case: Case, shown: Shown | None, waived: Collection[str]) -> Point:
    measured = published = None
    if shown is not None:
        measured, published = ratio(shown.pace, case.gpus), ratio(shown.published, case.gpus)
    return Point(case.key, case.gpus, measured, published, waived=case.key in waived)


def _compared(point: Point, base: Point) -> Point:
    """The point with its efficiencies against the smallest scale."""
    return replace(
        point,
        efficiency=ratio(point.measured, base.measured),
        published_efficiency=ratio(point.published, base.published),
    )


def _judged(point: Point, base: Point, shown: Mapping[str, Shown], tolerance: float) -> Point:
    """The point with its limit, and whether it is reached. `base` is the smallest scale that is not waived."""
    if point.waived:
        return point
    if point.measured is None:
        reason = shown[point.case].headline if point.case in shown else "it was not run"
        return replace(point, missing=f"{point.case}: {reason}")
    if point.published is None:
        return replace(point, missing=f"{point.case}: it has no baseline to compare its scaling with")
    if point.case == base.case or point.efficiency is None or point.published_efficiency is None:
        # The smallest scale itself says what it lacks.
        return point
    limit = point.published_efficiency * (1 - tolerance)
    if point.efficiency >= limit:
        return replace(point, limit=limit)
    short = (
        f"{point.case}: scaling efficiency {100 * point.efficiency:.1f} % against {base.gpus} GPUs, where the "
        f"published numbers have {100 * point.published_efficiency:.1f} % (limit {100 * limit:.1f} %)"
    )
    return replace(point, limit=limit, short=short)
