"""A plot of the GPUs' samples as SVG: clock, power, temperature and use over time. Pure."""

from __future__ import annotations

from plugins.gpu.samples import Gpus
from plugins.svg import Svg

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

    svg = Svg(_WIDTH, height, f"{title}: GPUs by NVML", _LEFT)
    timed = [x(sample.at) for sample in gpus.timed.samples]
    if timed:
        svg.rect(min(timed), _TOP, max(timed) - min(timed), _ROW * len(_ROWS), "#eef4fb")
    for row, (label, name) in enumerate(_ROWS):
        bottom = _TOP + _ROW * (row + 1) - 10
        top = max((series.highest(name) or 0.0 for series in gpus.series), default=0.0) or 1.0
        svg.text(_LEFT, bottom - _ROW + 24, label)
        svg.text(_LEFT - 8, bottom - _ROW + 38, f"{top:.0f}", "end")
        svg.text(_LEFT - 8, bottom, "0", "end")
        for series in gpus.series:
            known = [(x(s.at), getattr(s, name)) for s in series.samples if getattr(s, name) is not None]
            points = [(at, bottom - (_ROW - 36) * value / top) for at, value in known]
            svg.polyline(points, _COLOURS[series.gpu % len(_COLOURS)])
    svg.text(_LEFT, height - 8, f"{length:.0f} s; shaded: the steps that count")
    return str(svg)
