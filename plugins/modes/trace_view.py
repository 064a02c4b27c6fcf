"""What NCCL sent, as a plain table, and as a plot of bytes by size of message and collective. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from plugins.modes.traces import NcclDigest
from plugins.svg import Svg

_WIDTH, _HEIGHT = 860, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 20, 40, 45
_COLOURS = ("#1f5fa8", "#2e8b57", "#c0392b", "#8e6bbf", "#d08a1d", "#4aa3a3", "#888888")


def table(digest: NcclDigest) -> str:
    """Calls, bytes and mean size by collective and size of communicator, the most bytes first. Of all ranks together."""
    sums: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for call in digest.calls:
        row = sums[call.collective, str(call.nranks)]
        row[0] += call.calls
        row[1] += call.bytes
    if digest.other_calls[0]:
        sums["others", ""] = list(digest.other_calls)
    lines = [f"{'collective':<15} {'ranks':>6} {'calls':>12} {'bytes':>12} {'mean size':>12}"]
    for (name, nranks), (calls, size) in sorted(sums.items(), key=lambda item: (-item[1][1], item[0])):
        lines.append(f"{name:<15} {nranks:>6} {calls:>12} {in_units(size):>12} {in_units(size / calls):>12}")
    return "\n".join(lines)


def messages_svg(digest: NcclDigest, title: str) -> str:
    """Stacked bars: one for each power of two of the message's size, a colour for each collective.

    The collectives beyond the six with the most bytes share the last colour.
    """
    names, bars = _bars(digest)
    colours = dict(zip(names, _COLOURS, strict=False))
    first, last = min(bars, default=0), max(bars, default=0)
    high = max((sum(bar.values()) for bar in bars.values()), default=0) or 1
    step = (_WIDTH - _LEFT - _RIGHT) / (last - first + 1)
    tall = _HEIGHT - _TOP - _BOTTOM
    svg = Svg(_WIDTH, _HEIGHT, title, _LEFT)
    for i in range(5):
        svg.text(_LEFT - 8, _TOP + tall * (4 - i) / 4 + 4, in_units(high * i / 4), "end")
    for bits, bar in bars.items():
        x, y = _LEFT + step * (bits - first), float(_HEIGHT - _BOTTOM)
        for name in filter(bar.get, names):
            y -= tall * bar[name] / high
            svg.rect(x + 0.1 * step, y, 0.8 * step, tall * bar[name] / high, colours[name])
    for bits in range(first, last + 1, -(-(last - first + 1) // 10)):
        svg.text(_LEFT + step * (bits - first + 0.5), _HEIGHT - 26, f"< {in_units(2**bits)}", "middle")
    for number, name in enumerate(names):
        svg.rect(_LEFT + 110 * number, 26, 10, 10, colours[name])
        svg.text(_LEFT + 110 * number + 14, 35, name)
    svg.text(_WIDTH / 2, _HEIGHT - 8, "size of the message", "middle")
    return str(svg)


def _bars(digest: NcclDigest) -> tuple[list[str], Mapping[int, Mapping[str, int]]]:
    """The names of the collectives, most bytes first, and the bytes of each by the size of the message in bits."""
    totals: Counter[str] = Counter()
    for call in digest.calls:
        totals[call.collective] += call.bytes
    names = sorted(totals, key=lambda name: (-totals[name], name))
    if len(names) >= len(_COLOURS):
        names[len(_COLOURS) - 1 :] = ["others"]
    bars: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for call in digest.calls:
        bars[call.bits][call.collective if call.collective in names else "others"] += call.bytes
    return names, bars


def in_units(size: float) -> str:
    """`512 B`, `1.50 MiB`."""
    if size < 1024:
        return f"{size:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if size < 1024:
            return f"{size:.3g} {unit}"
    return f"{size / 1024:.3g} TiB"
