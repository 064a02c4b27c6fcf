"""Plots as SVG, drawn by ziaplot: the step times of a case with its band, and the scaling of several cases.

The colours are those of Okabe and Ito, which colour-blind people can tell apart. Each line also has its own dashes
or markers, so the plot can be read in black and white.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from math import log2
from operator import itemgetter
from typing import Any
from xml.etree import ElementTree

from plugins.metrics import Statistic
from plugins.record.case import CaseRecord
from plugins.record.summary import Scaling

WIDTH, HEIGHT = 860, 300
COLUMNS = 400
"""Of more than two steps a column only the fastest and the slowest of each column are drawn."""

# Above this number of steps there is no room for a dot on each.
_DOTS = 120
# Of more steps beyond the scale only their range is given; further ones beyond it are not told.
_NAMED, _LABELS = 4, 3
_MARGIN = 12
_MOST_SECONDS = 1e9
_BLUE, _SKY, _GREEN, _VERMILLION, _BLACK = "#0072B2", "#D6ECF8", "#007A5A", "#D55E00", "black"
_STYLE = """
    Graph { color: none; edge_width: 1; font_size: 12; }
    Graph.TickX { font_size: 11; height: 4; stroke_width: 1; pad: 0.1; }
    Graph.TickY { font_size: 11; height: 4; stroke_width: 1; pad: 0.1; }
    Graph.XName { font_size: 12; }
    Graph.Title { font_size: 12; }
    Graph.Legend { font_size: 11; stroke: none; radius: 54; pad: 12; }
    Graph.LegendText { font_size: 11; }
    Text { font_size: 11; }
"""

Point = tuple[int, float]


def drawable(times: Mapping[int, float]) -> dict[int, float]:
    """The times that a plot can show; a log may state any number."""
    return {index: seconds for index, seconds in times.items() if 0 <= seconds < _MOST_SECONDS}


def thinned(points: Sequence[Point]) -> list[Point]:
    """The points to draw: all, or the lowest and the highest of each of `COLUMNS` columns."""
    if len(points) <= 2 * COLUMNS:
        return list(points)
    edges = [len(points) * column // COLUMNS for column in range(COLUMNS + 1)]
    columns = [points[edges[column] : edges[column + 1]] for column in range(COLUMNS)]
    low_high = ({min(part, key=itemgetter(1)), max(part, key=itemgetter(1))} for part in columns)
    return [point for column in low_high for point in sorted(column)]


def steps_svg(record: CaseRecord, times: Mapping[int, float], ids: str = "") -> str:
    """Plot seconds over step numbers. `record` is the case's.

    `times` has the single steps by their number. It is `drawable` and not empty. The scale is that of the settled
    steps and the band. If a warm-up step is beyond it, its value is at the edge. `ids` is put before each id in
    the SVG, so that one page can hold several.
    """
    # It is slow to import, and only needed once jobs have run.
    import ziaplot

    ziaplot.config.precision = 1
    points = sorted(times.items())
    last = points[-1][0]
    band, steady = record.expected, record.steady_median
    values = [seconds for index, seconds in points if index >= (last + 1) // 5]
    values += [band.fastest, band.slowest] if band else []
    # Ticks need a range that six digits can tell from nothing.
    room = 0.08 * max(max(values) - min(values), 0.02 * max(values), 1e-6)
    low, high = max(0.0, min(values) - room), max(values) + room
    graph = ziaplot.Graph().css(_STYLE).size(WIDTH, HEIGHT).legend("right")
    graph.xrange(0, max(1, last)).yrange(low, high).axesnames("step").title("seconds a step")

    def draw(kind: str, drawn: Any, name: str, colour: str, width: float, stroke: str = "-") -> Any:
        graph.add(drawn.color(colour).strokewidth(width).stroke(stroke).attribute("class", kind).name(name))
        return drawn

    def level(kind: str, seconds: float, name: str, colour: str, stroke: str) -> None:
        line = ziaplot.PolyLine([0, max(1, last)], [seconds, seconds])
        draw(kind, line, f"{name} {seconds:.4g} s", colour, 2, stroke)

    if band:
        edges = [band.slowest] * 2, [band.fastest] * 2
        fill = ziaplot.LineFill([0, max(1, last)], *edges).fill(_SKY)
        draw("band", fill, f"band {band.fastest:.4g} to {band.slowest:.4g} s", _BLUE, 0.5)
    # What is beyond the scale only has to leave it.
    far = 10 * high
    shown = [(index, min(seconds, far)) for index, seconds in thinned(points)]
    steps = draw("steps", ziaplot.PolyLine(*zip(*shown, strict=True)), "steps", _BLUE, 1)
    if len(shown) <= _DOTS:
        steps.marker("o", 2)
    if band:
        level("expected", band.step_time, "expected", _BLACK, "--")
    if steady is not None and steady < far:
        level("steady", steady, "steady median", _GREEN, ":")
    if record.step_time is not None and record.statistic and record.step_time < far:
        window = Statistic.parse(record.statistic).indices(last + 1)
        ends, mean = sorted({window[0], min(window[-1], last)}), record.step_time
        shape = ziaplot.PolyLine if len(ends) > 1 else ziaplot.Scatter
        mark = shape(ends, [mean] * len(ends)).marker("square", 4)
        draw("statistic", mark, f"{record.statistic}: {mean:.4g} s", _BLACK, 3)
    slow = set(record.runs[-1].hiccups if record.runs else record.hiccups or ())
    if stalls := [point for point in shown if point[0] in slow]:
        marks = ziaplot.Scatter(*zip(*stalls, strict=True)).marker("x", 4).style(f"edge_color: {_VERMILLION}")
        draw("hiccups", marks, f"{len(slow)} hiccup{'s' if len(slow) > 1 else ''}", _VERMILLION, 1)
    for run in _beyond(points, low, high)[:_LABELS]:
        edge, side = (high, "top") if run[0][1] > high else (low, "bottom")
        graph.add(ziaplot.Text(run[-1][0] + last / 100, edge, _named(run), valign=side))
    return _svg(graph, f"step times of {record.id}", ids)


def scaling_svg(record: Scaling, ids: str = "") -> str:
    """Plot tokens/s per GPU over GPUs, from zero: measured, published, and the limit if one is asked for.

    The distance between two scales is that of their logarithms. `ids` is
    as above.
    """
    import ziaplot

    ziaplot.config.precision = 1
    scales = record.scales
    base = next((scale.tokens_per_second_per_gpu for scale in scales if scale.efficiency == 1), None)
    lines: dict[str, list[tuple[int, float | None]]] = {
        "measured": [(scale.gpus, scale.tokens_per_second_per_gpu) for scale in scales],
        "published": [(scale.gpus, scale.published_tokens_per_second_per_gpu) for scale in scales],
        "limit": [(scale.gpus, base * scale.limit) for scale in scales if base and scale.limit is not None],
    }
    drawn = {
        kind: [(log2(gpus), value) for gpus, value in points if value is not None]
        for kind, points in lines.items()
    }
    most = max([value for points in drawn.values() for _, value in points], default=0.0)
    places = [log2(scale.gpus) for scale in scales]
    graph = ziaplot.Graph().css(_STYLE).size(WIDTH, HEIGHT).legend("right")
    graph.xrange(places[0] - 0.1, places[-1] + 0.1).yrange(0.0, max(1.1 * most, 1e-6))
    graph.xticks(places, [str(scale.gpus) for scale in scales])
    graph.axesnames("GPUs").title("tokens/s per GPU")
    looks = {
        "measured": (_BLUE, "-", "o"),
        "published": (_BLACK, "--", "square"),
        "limit": (_VERMILLION, ":", "x"),
    }
    for kind, points in drawn.items():
        if points:
            colour, stroke, marker = looks[kind]
            line = ziaplot.PolyLine(*zip(*points, strict=True)).marker(marker, 5).color(colour)
            graph.add(line.strokewidth(2).stroke(stroke).attribute("class", kind).name(kind))
    return _svg(graph, f"scaling of {record.recipe} {record.size} {record.dtype}", ids)


def _svg(graph: Any, label: str, ids: str) -> str:
    """The SVG of a graph, with `ids` before each id in it."""
    with warnings.catch_warnings():
        # ziaplot 0.9 tests an element's truth value, of which Python 3.12 warns.
        warnings.simplefilter("ignore", DeprecationWarning)
        root = graph.svgxml()
    # ziaplot leaves too little room for the numbers at the left.
    root.set("viewBox", f"{-_MARGIN} 0 {WIDTH + _MARGIN} {HEIGHT}")
    root.set("role", "img")
    root.set("aria-label", label)
    svg = ElementTree.tostring(root, encoding="unicode")
    return re.sub(r'( id="|url\(#)', rf"\g<1>{ids}", svg)


def _beyond(points: Sequence[Point], low: float, high: float) -> list[list[Point]]:
    """The points off the scale. Neighbours on the same side share a list, because they share a label."""
    runs: list[list[Point]] = []
    before = ""
    for point in points:
        side = "below" if point[1] < low else "above" if point[1] > high else ""
        if side and side == before:
            runs[-1].append(point)
        elif side:
            runs.append([point])
        before = side
    return runs


def _named(run: Sequence[Point]) -> str:
    values = [seconds for _, seconds in run]
    if len(values) > _NAMED:
        return f"{len(values)} steps, {min(values):.4g} to {max(values):.4g} s"
    return ", ".join(f"{seconds:.4g}" for seconds in values) + " s"
