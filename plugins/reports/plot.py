"""A step-time plot as SVG: the steps, the steady median and the band that passes. Pure."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence

from plugins.judging.judge import Judgement
from plugins.judging.verdicts import Band

_WIDTH, _HEIGHT = 860, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 40, 45


def steps_svg(judgement: Judgement) -> str:
    """Plot seconds over step numbers. If the log prints means of several steps, the single ones are plotted.

    Hiccups are red, and the window of the published statistic is ringed. The scale is that of the settled
    steps and the band. If a warm-up step is beyond it, it is at the edge, with its value.
    """
    points = list(judgement.case.means.times(judgement.log.steps).items())
    measurement, target = judgement.measurement, judgement.expected
    timing = measurement.timing if measurement else None
    band = Band(target, timing.resolution) if target and timing else None
    last = max(index for index, _ in points)
    values = [seconds for index, seconds in points if index >= (last + 1) // 5]
    values += [band.fastest, band.slowest] if band else []
    low, high = min(values), max(values)
    room = 0.08 * (high - low or high or 1.0)
    low, high = max(0.0, low - room), high + room

    def x(index: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * index / max(1, last)

    def y(seconds: float) -> float:
        inside = min(max(seconds, low), high)
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (high - inside) / (high - low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        f'font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
        f'<text x="{_LEFT}" y="22" font-size="14">{judgement.case.key}: {judgement.verdict.kind}</text>',
    ]
    if band is not None and target is not None:
        parts.append(
            f'<rect x="{_LEFT}" width="{_WIDTH - _LEFT - _RIGHT}" y="{y(band.slowest):.1f}" '
            f'height="{y(band.fastest) - y(band.slowest):.1f}" fill="#dff3e3"/>'
        )
        parts.append(
            _rule(y(target.step_time), "#2e8b57", f"expected {target.step_time:.4g} s", "6 4", end=True)
        )
    parts += _axes(x, y, low, high, last)
    if timing is not None:
        parts.append(_rule(y(timing.steady), "#1f5fa8", f"steady median {timing.steady:.4g} s", "2 3"))
    line = " ".join(f"{x(index):.1f},{y(seconds):.1f}" for index, seconds in points)
    parts.append(f'<polyline points="{line}" fill="none" stroke="#8aa" stroke-width="1"/>')
    slow = {index for index, _ in timing.hiccups} if timing else set()
    window = {index for index, _ in timing.window} if timing else set()
    for index, seconds in points:
        colour = "#c0392b" if index in slow else "#1f5fa8"
        ring = ' stroke="#000" stroke-width="1.5"' if index in window else ""
        parts.append(f'<circle cx="{x(index):.1f}" cy="{y(seconds):.1f}" r="3" fill="{colour}"{ring}/>')
    for run in _beyond(points, low, high):
        at, edge = run[-1]
        told = ", ".join(f"{seconds:.4g}" for _, seconds in run)
        parts.append(f'<text x="{x(at) + 6:.1f}" y="{y(edge) + 4:.1f}">{told} s</text>')
    return "\n".join([*parts, "</svg>", ""])


def _beyond(points: Sequence[tuple[int, float]], low: float, high: float) -> list[list[tuple[int, float]]]:
    """The points off the scale. Neighbours on the same side share a list, because they share a label."""
    runs: list[list[tuple[int, float]]] = []
    before = ""
    for point in points:
        side = "below" if point[1] < low else "above" if point[1] > high else ""
        if side and side == before:
            runs[-1].append(point)
        elif side:
            runs.append([point])
        before = side
    return runs


def _rule(height: float, colour: str, label: str, dashes: str, *, end: bool = False) -> str:
    at, anchor = (_WIDTH - _RIGHT - 4, "end") if end else (_LEFT + 4, "start")
    return (
        f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{height:.1f}" y2="{height:.1f}" stroke="{colour}" '
        f'stroke-dasharray="{dashes}"/><text x="{at}" y="{height - 5:.1f}" fill="{colour}" '
        f'text-anchor="{anchor}">{label}</text>'
    )


def _axes(
    x: Callable[[float], float], y: Callable[[float], float], low: float, high: float, last: int
) -> list[str]:
    parts = []
    for i in range(5):
        value = low + (high - low) * i / 4
        parts.append(f'<text x="{_LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.4g}</text>')
    for index in range(0, last + 1, max(1, (last + 1) // 10)):
        parts.append(f'<text x="{x(index):.1f}" y="{_HEIGHT - 24}" text-anchor="middle">{index}</text>')
    parts.append(f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 6}" text-anchor="middle">step</text>')
    parts.append(f'<text x="14" y="{_HEIGHT / 2}" transform="rotate(-90 14 {_HEIGHT / 2})">seconds</text>')
    return parts
