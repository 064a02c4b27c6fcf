"""A plot of the GPUs' samples as SVG: clock, power, temperature and use over time. Pure."""

from __future__ import annotations

from html import escape

from plugins.digests.gpus import Gpus

_WIDTH, _ROW, _LEFT, _RIGHT, _TOP = 860, 130, 70, 20, 40
_ROWS = (
    ("SM clock, MHz", "sm_mhz"),
    ("power, W", "power_w"),
    ("temperature, C", "temperature_c"),
    ("busy, %", "busy"),
)
_COLOURS = ("#1f5fa8", "#c0392b", "#2e8b57", "#8e44ad", "#d68910", "#117a65", "#7b241c", "#566573")


def gpus_svg(title: str, gpus: Gpus) -> str:
    """A row for each figure and a line for each GPU. The time of the steps that count is shaded."""
    begin = min(sample.at for sample in gpus.samples)
    length = max(max(sample.at for sample in gpus.samples) - begin, 1e-9)
    height = _TOP + _ROW * len(_ROWS) + 30

    def x(at: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (at - begin) / length

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="{_LEFT}" y="22" font-size="14">{escape(title)}: GPUs by NVML</text>',
    ]
    if timed := [sample.at for sample in gpus.samples if sample.step >= 0]:
        parts.append(
            f'<rect x="{x(min(timed)):.1f}" width="{x(max(timed)) - x(min(timed)):.1f}" y="{_TOP}" '
            f'height="{_ROW * len(_ROWS)}" fill="#eef4fb"/>'
        )
    for row, (label, name) in enumerate(_ROWS):
        bottom = _TOP + _ROW * (row + 1) - 10
        told = [(s.gpu, s.at, value) for s in gpus.samples if (value := getattr(s, name)) is not None]
        top = max((value for _, _, value in told), default=0.0) or 1.0
        parts.append(f'<text x="{_LEFT}" y="{bottom - _ROW + 24}">{label}</text>')
        parts.append(f'<text x="{_LEFT - 8}" y="{bottom - _ROW + 38}" text-anchor="end">{top:.0f}</text>')
        parts.append(f'<text x="{_LEFT - 8}" y="{bottom}" text-anchor="end">0</text>')
        for gpu in gpus.numbers:
            points = " ".join(
                f"{x(at):.1f},{bottom - (_ROW - 36) * value / top:.1f}"
                for own, at, value in told
                if own == gpu
            )
            colour = _COLOURS[gpu % len(_COLOURS)]
            parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1"/>')
    parts.append(f'<text x="{_LEFT}" y="{height - 8}">{length:.0f} s; shaded: the steps that count</text>')
    return "\n".join([*parts, "</svg>", ""])
