"""Scaling: the pace of a GPU at several scales, beside that of the published numbers. Pure.

Efficiency is the tokens/s per GPU at a scale over those at the smallest scale. Both are of the steady pace. Only
weak scaling is compared: cases of the same recipe, size and dtype with the same layers, sequence length and
sequences per GPU.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from plugins.acceptance.shown import Shown, ratio
from plugins.recipes.cases import Case
from plugins.record.summary import Scale, Scaling


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
        f"{scale.case}: scaling efficiency {100 * scale.efficiency:.1f} % against {base.gpus} GPUs, where the "
        f"published numbers have {100 * scale.published_efficiency:.1f} % (limit {100 * limit:.1f} %)"
    )
    return replace(scale, limit=limit, why=reason)
