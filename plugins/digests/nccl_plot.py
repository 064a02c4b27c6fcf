"""A plot of what NCCL sent, as SVG: bytes by size of message and collective. Pure."""

from __future__ import annotations

from collections import defaultdict

from plugins.digests.nccl_trace import NcclDigest, in_units

_WIDTH, _HEIGHT = 860, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 20, 40, 45
_COLOURS = ("#1f5fa8", "#2e8b57", "#c0392b", "#8e6bbf", "#d08a1d", "#4aa3a3", "#888888")


def messages_svg(digest: NcclDigest, title: str) -> str:
    """Stacked bars: one for each power of two of the message's size, a colour for each collective.

    The collectives beyond the six with the most bytes share the last colour. `title` must be harmless in XML.
    """
    totals: defaultdict[str, int] = defaultdict(int)
    bars: defaultdict[int, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    for call in digest.calls:
        totals[call.collective] += call.bytes
    named = sorted(totals, key=lambda name: (-totals[name], name))[: len(_COLOURS) - 1]
    for call in digest.calls:
        bars[call.bits][call.collective if call.collective in named else "others"] += call.bytes
    names = [*named, *(["others"] if len(totals) > len(named) else [])]
    first, last = min(bars, default=0), max(bars, default=0)
    high = max((sum(bar.values()) for bar in bars.values()), default=0) or 1
    step = (_WIDTH - _LEFT - _RIGHT) / (last - first + 1)
    tall = _HEIGHT - _TOP - _BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
        f'<text x="{_LEFT}" y="18" font-size="14">{title}</text>',
    ]
    for i in range(5):
        y = _TOP + tall * (4 - i) / 4
        parts.append(
            f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{in_units(high * i / 4)}</text>'
        )
    every = -(-(last - first + 1) // 10)
    for bits in range(first, last + 1):
        x, y = _LEFT + step * (bits - first), float(_HEIGHT - _BOTTOM)
        for name, colour in zip(names, _COLOURS, strict=False):
            if size := bars[bits][name]:
                y -= tall * size / high
                parts.append(
                    f'<rect x="{x + 0.1 * step:.1f}" width="{0.8 * step:.1f}" y="{y:.1f}" height="{tall * size / high:.1f}" '
                    f'fill="{colour}"/>'
                )
        if (bits - first) % every == 0:
            below = in_units(2**bits)
            parts.append(
                f'<text x="{x + step / 2:.1f}" y="{_HEIGHT - 26}" text-anchor="middle">&lt; {below}</text>'
            )
    for number, (name, colour) in enumerate(zip(names, _COLOURS, strict=False)):
        x = _LEFT + 110 * number
        parts.append(
            f'<rect x="{x}" y="26" width="10" height="10" fill="{colour}"/><text x="{x + 14}" y="35">{name}</text>'
        )
    parts.append(f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 8}" text-anchor="middle">size of the message</text>')
    return "\n".join([*parts, "</svg>", ""])
