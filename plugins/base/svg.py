"""Draws rectangles, lines and texts as SVG, on white. Any text may be given: it is made harmless in XML. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from plugins.base.words import html_text

# `shown` leaves them, and XML cannot hold them.
_NO_XML = re.compile("[\ufffe\uffff]")
# Where the legend and the bars of a drawing of bars begin, and how long the longest of these is.
_LEGEND, _BARS, _LONGEST = 80, 250, 550


class Svg:
    """A drawing of this many pixels, whose title begins at `title_x`. y grows downwards."""

    def __init__(self, width: int, height: int, title: str, title_x: float) -> None:
        self._elements = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" viewBox="0 0 {width} {height}" role="img" '
            f'aria-label="{_harmless(title)}" font-family="sans-serif" font-size="12">'
        ]
        self.rect(0, 0, width, height, "#fff")
        self.text(title_x, 22, title, size=14)

    def add(self, element: str) -> None:
        """Draw any other element."""
        self._elements.append(element)

    def rect(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        self._elements.append(
            f'<rect x="{pixels(x)}" y="{pixels(y)}" width="{pixels(width)}" height="{pixels(height)}" fill="{colour}"/>'
        )

    def text(self, x: float, y: float, text: str, anchor: str = "start", size: int = 12) -> None:
        """Write a text on the line at `y`; `x` is its start, middle or end."""
        self._elements.append(
            f'<text x="{pixels(x)}" y="{pixels(y)}" text-anchor="{anchor}" font-size="{size}">'
            f"{_harmless(text)}</text>"
        )

    def polyline(self, points: Iterable[tuple[float, float]], colour: str) -> None:
        places = " ".join(f"{pixels(x)},{pixels(y)}" for x, y in points)
        self._elements.append(f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="1"/>')

    def __str__(self) -> str:
        return "\n".join([*self._elements, "</svg>", ""])


def stacked_bars(
    title: str, colours: Mapping[str, str], bars: Sequence[tuple[str, Mapping[str, float], str]]
) -> str:
    """A drawing of these bars, all on one scale. Each has its label, the values of its parts, and a text at its end."""
    longest = max((sum(parts.values()) for _, parts, _ in bars), default=0) or 1
    svg = Svg(860, 84 + 20 * len(bars), title, _LEGEND)
    for number, (name, colour) in enumerate(colours.items()):
        svg.rect(_LEGEND + 130 * number, 34, 12, 12, colour)
        svg.text(_LEGEND + 130 * number + 18, 45, name)
    for number, (label, parts, text) in enumerate(bars):
        y, x = 60 + 20 * number, float(_BARS)
        svg.text(_BARS - 6, y + 13, label, "end")
        for name, value in parts.items():
            width = _LONGEST * value / longest
            svg.rect(x, y, width, 16, colours[name])
            x += width
        svg.text(x + 4, y + 13, text)
    return str(svg)


def _harmless(text: str) -> str:
    return html_text(_NO_XML.sub("?", text))


def pixels(value: float) -> str:
    """A number of pixels, to a tenth."""
    return f"{round(value, 1):g}"
