"""Plots as SVG: the step times of a case with its band, and the scaling of several cases.

The colours are those of Okabe and Ito, which colour-blind people can tell apart. Each line also has its own dashes
or markers, so the plot can be read in black and white.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import ceil, floor, log2, log10
from operator import itemgetter
from typing import NamedTuple

from plugins.base.svg import Svg, pixels
from plugins.base.words import counted
from plugins.record.baseline import Statistic
from plugins.record.case import CaseRecord
from plugins.record.summary import Scale, Scaling

WIDTH, HEIGHT = 860, 300
COLUMNS = 400
"""Of more than two steps a column only the fastest and the slowest of each column are drawn."""

# Above this number of steps there is no room for a dot on each.
_DOTS = 120
# Of more steps beyond the scale only their range is given; further ones beyond it are not told.
_NAMED, _LABELS = 4, 3
# The sides of the graph in the plot; its legend is at the right of it.
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 660, 34, 262
_MOST_TICKS = 8
_MOST_SECONDS = 1e9
_BLUE, _SKY, _GREEN, _VERMILLION, _BLACK = "#0072B2", "#D6ECF8", "#007A5A", "#D55E00", "black"

Point = tuple[float, float]


class _Look(NamedTuple):
    """How a line is drawn: `dashes` are the lengths of its parts and gaps, `mark` is drawn at each of its points."""

    colour: str
    width: float = 2
    dashes: str = ""
    mark: str = ""


# Each is drawn from a point on.
_MARKS = {
    "dot": "m-2,0a2,2 0 1 0 4,0a2,2 0 1 0 -4,0z",
    "square": "m-4,-4h8v8h-8z",
    "cross": "m-4,-4l8,8m0,-8l-8,8",
}


class _Graph:
    """A graph with axes, ticks and a legend; what is beyond its sides is cut off."""

    def __init__(self, title: str, x: tuple[float, float], y: tuple[float, float]) -> None:
        self._svg, self._x, self._y = Svg(WIDTH, HEIGHT, title, _LEFT), x, y
        self._named = 0
        size = f'width="{_RIGHT - _LEFT}" height="{_BOTTOM - _TOP}"'
        self._svg.add(f'<defs><clipPath id="graph"><rect x="{_LEFT}" y="{_TOP}" {size}/></clipPath></defs>')
        self._path(f"M{_LEFT},{_TOP}V{_BOTTOM}H{_RIGHT}", _Look(_BLACK, 1))
        for value in ticks(*y):
            at = self._place((x[0], value))[1]
            self._path(f"M{_LEFT - 4},{pixels(at)}H{_RIGHT}", _GRID)
            self._svg.text(_LEFT - 8, at + 4, f"{value:.6g}", "end")

    def across(self, name: str, ticks: Mapping[float, str]) -> None:
        """Name the horizontal axis, and label it at these places."""
        for value, text in ticks.items():
            at = self._place((value, self._y[0]))[0]
            self._path(f"M{pixels(at)},{_BOTTOM + 4}V{_TOP}", _GRID)
            self._svg.text(at, _BOTTOM + 18, text, "middle")
        self._svg.text((_LEFT + _RIGHT) / 2, HEIGHT - 4, name, "middle")

    def line(self, kind: str, points: Sequence[Point], name: str, look: _Look) -> None:
        """Draw a line, which is told apart by its `kind`, with its marks. The legend has its name."""
        y = _TOP + 10 + 18 * self._named
        self._named += 1
        sample = [(_RIGHT + 27, y - 4)]
        if look.width:
            sample = [(_RIGHT + 14, y - 4), (_RIGHT + 40, y - 4)]
        self._drawn(sample, look, "")
        self._svg.text(_RIGHT + 46, y, name, size=11)
        self._drawn([self._place(point) for point in points], look, f' class="{kind}"')

    def level(self, name: str, end: float, seconds: float, look: _Look) -> None:
        """Draw a level line up to `end`. Its kind is the first word of its name."""
        points = [(0, seconds), (end, seconds)]
        self.line(name.partition(" ")[0], points, f"{name} {seconds:.4g} s", look)

    def band(self, corners: Sequence[Point], name: str) -> None:
        """Shade what is between these corners."""
        spots = " ".join(f"{pixels(x)},{pixels(y)}" for x, y in map(self._place, corners))
        self._svg.add(f'<path d="M{spots}z" fill="{_SKY}" clip-path="url(#graph)"/>')
        self.line("band", corners, name, _Look(_BLUE, 0.5))

    def text(self, x: float, text: str, *, top: bool) -> None:
        """Write a text at the upper or the lower side."""
        self._svg.text(self._place((x, 0))[0], _TOP + 11 if top else _BOTTOM - 4, text, size=11)

    def __str__(self) -> str:
        return str(self._svg)

    def _place(self, point: Point) -> Point:
        (x, y), (left, right), (low, high) = point, self._x, self._y
        across, up = (x - left) / (right - left), (y - low) / (high - low)
        return _LEFT + across * (_RIGHT - _LEFT), _BOTTOM - up * (_BOTTOM - _TOP)

    def _drawn(self, places: Sequence[Point], look: _Look, attribute: str) -> None:
        spots = [f"{pixels(x)},{pixels(y)}" for x, y in places]
        clip = ' clip-path="url(#graph)"' if attribute else ""
        if look.width:
            self._path("M" + " ".join(spots), look, attribute + clip)
            attribute = ""
        if look.mark:
            marks = "".join(f"M{spot}{_MARKS[look.mark]}" for spot in spots)
            self._path(marks, _Look(look.colour, 1.5), attribute + clip)

    def _path(self, way: str, look: _Look, attributes: str = "") -> None:
        dashes = f' stroke-dasharray="{look.dashes}"' if look.dashes else ""
        self._svg.add(
            f'<path d="{way}" stroke="{look.colour}" stroke-width="{look.width}" fill="none"{dashes}{attributes}/>'
        )


_GRID = _Look("lightgray", 1, "3 4")


def ticks(low: float, high: float, least: float = 0.0, most: int = _MOST_TICKS) -> list[float]:
    """At most so many round values between two others, and one more, with `least` between them at least."""
    power = 10.0 ** floor(log10((high - low) / most))
    steps = (power * factor for factor in (1, 2, 5, 10))
    step = max(least, next(step for step in steps if (high - low) / step <= most))
    return [step * number for number in range(ceil(low / step), floor(high / step) + 1)]


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
    points = sorted(times.items())
    last, hiccups, band = int(points[-1][0]), record.hiccups or (), record.expected
    if record.runs:
        hiccups = record.runs[-1].hiccups
    edges = (band.fastest, band.slowest) if band else ()
    low, high = _range([seconds for index, seconds in points if index >= (last + 1) // 5] + [*edges])
    end = max(1, last)
    graph = _Graph(f"{record.id}: seconds a step", (-end / 50, end + end / 50), (low, high))
    graph.across("step", {number: f"{number:g}" for number in ticks(0, end, least=1)})
    if band:
        corners = [(0, band.fastest), (end, band.fastest), (end, band.slowest), (0, band.slowest)]
        graph.band(corners, f"band {band.fastest:.4g} to {band.slowest:.4g} s")
    # What is beyond the scale only has to leave it.
    far = 10 * high
    shown = [(index, min(seconds, far)) for index, seconds in thinned(points)]
    mark = "dot" if len(shown) <= _DOTS else ""
    graph.line("steps", shown, "steps", _Look(_BLUE, 1, mark=mark))
    if band:
        graph.level("expected", end, band.step_time, _Look(_BLACK, dashes="6 4"))
    if record.steady_median is not None and record.steady_median < far:
        graph.level("steady median", end, record.steady_median, _Look(_GREEN, dashes="2 3"))
    if record.step_time is not None and record.statistic and record.step_time < far:
        window, mean = Statistic.parse(record.statistic).indices(last + 1), record.step_time
        means = [(index, mean) for index in sorted({window[0], min(window[-1], last)})]
        graph.line("statistic", means, f"{record.statistic}: {mean:.4g} s", _Look(_BLACK, 3, mark="square"))
    stalls = [point for point in shown if point[0] in hiccups]
    if stalls:
        look = _Look(_VERMILLION, 0, mark="cross")
        graph.line("hiccups", stalls, counted(len(set(hiccups)), "hiccup"), look)
    for run in _beyond(points, low, high)[:_LABELS]:
        graph.text(run[-1][0] + last / 100, _named(run), top=run[0][1] > high)
    return str(graph)


def _range(values: Sequence[float]) -> tuple[float, float]:
    """A scale on which these seconds have room at both sides."""
    # Ticks need a range that six digits can tell from nothing.
    room = 0.08 * max(max(values) - min(values), 0.02 * max(values), 1e-6)
    return max(0.0, min(values) - room), max(values) + room


def scaling_svg(record: Scaling, cases: Mapping[str, CaseRecord]) -> str:
    """Plot tokens/s per GPU over GPUs, from zero: measured, published with the band that passes, and the limit if one is asked for.

    `cases` are those of the run by their names. The distance between two scales is that of their logarithms.
    """
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
    edges = [edge for scale in scales if (edge := _edges(scale, cases.get(scale.case)))]
    most = max([value for points in [*drawn.values(), *edges] for _, value in points], default=0.0)
    places = [log2(scale.gpus) for scale in scales]
    title = f"scaling of {record.recipe} {record.size} {record.dtype}: tokens/s per GPU"
    graph = _Graph(title, (places[0] - 0.1, places[-1] + 0.1), (0.0, max(1.1 * most, 1e-6)))
    graph.across("GPUs", {place: str(scale.gpus) for place, scale in zip(places, scales, strict=True)})
    if edges:
        upper, lower = zip(*edges, strict=True)
        graph.band([*upper, *reversed(lower)], "band")
    looks = {
        "measured": _Look(_BLUE, mark="dot"),
        "published": _Look(_BLACK, dashes="6 4", mark="square"),
        "limit": _Look(_VERMILLION, dashes="2 3", mark="cross"),
    }
    for kind, points in drawn.items():
        if points:
            graph.line(kind, points, kind, looks[kind])
    for scale in scales:
        if scale.tokens_per_second_per_gpu is None:
            case = cases.get(scale.case)
            graph.text(log2(scale.gpus), case.verdict if case else "not run", top=False)
    return str(graph)


def _edges(scale: Scale, record: CaseRecord | None) -> tuple[Point, Point] | None:
    """Where the band ends at a scale, upwards and downwards; None if nothing is published for it."""
    published = scale.published_tokens_per_second_per_gpu
    if published is None or record is None or record.expected is None:
        return None
    place, (low, high) = log2(scale.gpus), record.expected.band
    return (place, published * (1 + high / 100)), (place, published * (1 + low / 100))


def with_ids(svg: str, prefix: str) -> str:
    """The same plot with this before each id in it, so that one page can hold several."""
    return re.sub(r'( id="|url\(#)', rf"\g<1>{prefix}", svg)


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
