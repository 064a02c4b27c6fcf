"""Plots as SVG, drawn by ziaplot: the step times of a case with its band, and the scaling of several cases.

The colours are those of Okabe and Ito, which colour-blind people can tell apart. Each line also has its own dashes
or markers, so the plot can be read in black and white.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from math import log2
from operator import itemgetter
from typing import Any, NamedTuple
from xml.etree import ElementTree

from plugins.record.case import CaseRecord
from plugins.record.summary import Scaling
from plugins.timing import Statistic
from plugins.words import counted

WIDTH, HEIGHT = 860, 300
COLUMNS = 400
"""Of more than two steps a column only the fastest and the slowest of each column are drawn."""

# Above this number of steps there is no room for a dot on each.
_DOTS = 120
# Of more steps beyond the scale only their range is given; further ones beyond it are not told.
_NAMED, _LABELS = 4, 3
_MARGIN = 12
# So many plots are kept to be shown a second time.
_KEPT = 128
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


class _Look(NamedTuple):
    """How a part of a plot is drawn."""

    colour: str
    width: float = 2
    stroke: str = "-"


@dataclass(frozen=True)
class _Steps:
    """What the plot of a case's step times is made of. Times are in s, `expected` has also the edges of the band."""

    case: str
    points: tuple[Point, ...]
    expected: tuple[float, float, float] | None
    steady: float | None
    statistic: str | None
    step_time: float | None
    hiccups: frozenset[int]

    @property
    def last(self) -> int:
        return self.points[-1][0]

    def range(self) -> tuple[float, float]:
        """The scale of the seconds: that of the settled steps and the band."""
        values = [seconds for index, seconds in self.points if index >= (self.last + 1) // 5]
        values += (self.expected or ())[1:]
        # Ticks need a range that six digits can tell from nothing.
        room = 0.08 * max(max(values) - min(values), 0.02 * max(values), 1e-6)
        return max(0.0, min(values) - room), max(values) + room


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


def steps_svg(record: CaseRecord, times: Mapping[int, float]) -> str:
    """Plot seconds over step numbers. `record` is the case's.

    `times` has the single steps by their number. It is `drawable` and not empty. The scale is that of the settled
    steps and the band. If a warm-up step is beyond it, its value is at the edge.
    """
    band, hiccups = record.expected, record.hiccups or ()
    if record.runs:
        hiccups = record.runs[-1].hiccups
    return _steps_svg(
        _Steps(
            record.id,
            tuple(sorted(times.items())),
            (band.step_time, band.fastest, band.slowest) if band else None,
            record.steady_median,
            record.statistic,
            record.step_time,
            frozenset(hiccups),
        )
    )


# Allure and the page show the same plot.
@lru_cache(maxsize=_KEPT)
def _steps_svg(steps: _Steps) -> str:
    ziaplot, graph = _graph()
    low, high = steps.range()
    sides = [0, max(1, steps.last)]
    graph.xrange(*sides).yrange(low, high).axesnames("step").title("seconds a step")

    def level(kind: str, seconds: float, name: str, look: _Look) -> None:
        _draw(graph, kind, ziaplot.PolyLine(sides, [seconds, seconds]), f"{name} {seconds:.4g} s", look)

    if steps.expected:
        _, fastest, slowest = steps.expected
        fill = ziaplot.LineFill(sides, [slowest, slowest], [fastest, fastest]).fill(_SKY)
        _draw(graph, "band", fill, f"band {fastest:.4g} to {slowest:.4g} s", _Look(_BLUE, 0.5))
    # What is beyond the scale only has to leave it.
    far = 10 * high
    shown = [(index, min(seconds, far)) for index, seconds in thinned(steps.points)]
    line = ziaplot.PolyLine(*zip(*shown, strict=True))
    _draw(graph, "steps", line, "steps", _Look(_BLUE, 1))
    if len(shown) <= _DOTS:
        line.marker("o", 2)
    if steps.expected:
        level("expected", steps.expected[0], "expected", _Look(_BLACK, stroke="--"))
    if steps.steady is not None and steps.steady < far:
        level("steady", steps.steady, "steady median", _Look(_GREEN, stroke=":"))
    if steps.step_time is not None and steps.statistic and steps.step_time < far:
        window, mean = Statistic.parse(steps.statistic).indices(steps.last + 1), steps.step_time
        ends = sorted({window[0], min(window[-1], steps.last)})
        shape = ziaplot.PolyLine if len(ends) > 1 else ziaplot.Scatter
        mark = shape(ends, [mean] * len(ends)).marker("square", 4)
        _draw(graph, "statistic", mark, f"{steps.statistic}: {mean:.4g} s", _Look(_BLACK, 3))
    stalls = [point for point in shown if point[0] in steps.hiccups]
    if stalls:
        marks = ziaplot.Scatter(*zip(*stalls, strict=True)).marker("x", 4).style(f"edge_color: {_VERMILLION}")
        _draw(graph, "hiccups", marks, counted(len(steps.hiccups), "hiccup"), _Look(_VERMILLION, 1))
    for run in _beyond(steps.points, low, high)[:_LABELS]:
        edge, side = (high, "top") if run[0][1] > high else (low, "bottom")
        graph.add(ziaplot.Text(run[-1][0] + steps.last / 100, edge, _named(run), valign=side))
    return _svg(graph, f"step times of {steps.case}")


def scaling_svg(record: Scaling) -> str:
    """Plot tokens/s per GPU over GPUs, from zero: measured, published, and the limit if one is asked for.

    The distance between two scales is that of their logarithms.
    """
    ziaplot, graph = _graph()
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
    graph.xrange(places[0] - 0.1, places[-1] + 0.1).yrange(0.0, max(1.1 * most, 1e-6))
    graph.xticks(places, [str(scale.gpus) for scale in scales])
    graph.axesnames("GPUs").title("tokens/s per GPU")
    looks = {
        "measured": (_Look(_BLUE), "o"),
        "published": (_Look(_BLACK, stroke="--"), "square"),
        "limit": (_Look(_VERMILLION, stroke=":"), "x"),
    }
    for kind, points in drawn.items():
        if points:
            look, marker = looks[kind]
            _draw(graph, kind, ziaplot.PolyLine(*zip(*points, strict=True)).marker(marker, 5), kind, look)
    return _svg(graph, f"scaling of {record.recipe} {record.size} {record.dtype}")


def with_ids(svg: str, prefix: str) -> str:
    """The same plot with this before each id in it, so that one page can hold several."""
    return re.sub(r'( id="|url\(#)', rf"\g<1>{prefix}", svg)


@cache
def library() -> tuple[Any, Any]:
    """ziaplot, and the style sheet of its graphs."""
    # It is slow to import, and only needed once jobs have run.
    import ziaplot
    from ziaplot.style.css import parse_css
    from ziaplot.style.style import AppliedStyle, Style
    from ziaplot.style.themes import zptheme

    ziaplot.config.precision = 1
    style = parse_css(_STYLE)
    # ziaplot 0.9 looks the same styles up again for each tick, and copies each value of a style that it looks at. That
    # takes most of its time.
    for sheet in (zptheme.theme, style):
        sheet.extract = cache(sheet.extract)
    for kind in (Style, AppliedStyle):
        kind.values = lambda each: {name: value for name, value in vars(each).items() if value is not None}
    return ziaplot, style


def _graph() -> tuple[Any, Any]:
    """ziaplot, and an empty graph."""
    ziaplot, style = library()
    graph = ziaplot.Graph().size(WIDTH, HEIGHT).legend("right")
    graph._containerstyle = style
    return ziaplot, graph


def _draw(graph: Any, kind: str, element: Any, name: str, look: _Look) -> None:
    """Add an element to a graph. It is told apart by its `kind`, and the legend has its name."""
    element.color(look.colour).strokewidth(look.width).stroke(look.stroke)
    graph.add(element.attribute("class", kind).name(name))


def _svg(graph: Any, label: str) -> str:
    with warnings.catch_warnings():
        # ziaplot 0.9 tests an element's truth value, of which Python 3.12 warns.
        warnings.simplefilter("ignore", DeprecationWarning)
        root = graph.svgxml()
    # ziaplot leaves too little room for the numbers at the left.
    root.set("viewBox", f"{-_MARGIN} 0 {WIDTH + _MARGIN} {HEIGHT}")
    root.set("role", "img")
    root.set("aria-label", label)
    return ElementTree.tostring(root, encoding="unicode")


def _beyond(points: Sequence[Point], low: float, high: float) -> list[list[Point]]:
    """The points off the scale. Neighbours on the same side share a list, because they share a label."""
    runs: list[list[Point]] = []
    before = ""
    for point in points:
        side = ""
        if point[1] < low:
            side = "below"
        elif point[1] > high:
            side = "above"
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
