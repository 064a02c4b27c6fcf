"""A digest of profiles as a plain table and as a plot of the steps' shares. Pure."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

from plugins.digests.profile import UNKNOWN_LIMIT, Collective, Digests, Kernel, ProfileDigest
from plugins.words import shown

# `shown` leaves them, and XML cannot hold them.
_NO_XML = re.compile("[\ufffe\uffff]")
_PARTS = ("compute", "exposed", "other", "gap", "data", "checkpoint")
_BARS = (("compute", "#1f5fa8"), ("exposed", "#c0392b"), ("other", "#8aa"), ("gap", "#f0c36d"))
_WIDTH, _LEFT, _RIGHT, _TOP, _BOTTOM, _BAR = 860, 250, 60, 60, 24, 16


def table(digests: Digests) -> str:
    """The shares of each rank, the longest kernels and the collectives."""
    lines = [
        f"{'':32} {'step s':>9} {'compute':>8} {'exposed':>8} {'other':>8} {'gap':>8}"
        f" {'of it data':>10} {'checkp.':>8} {'unknown':>8}"
    ]
    for one in digests.ranks:
        length = one.mean("length")
        shares = [f"{one.mean(part) / length if length else 0:.1%}" for part in _PARTS]
        widths = zip(shares, (8, 8, 8, 8, 10, 8), strict=True)
        cells = " ".join(share.rjust(width) for share, width in widths)
        lines.append(f"{_cut(one.who, 32):32} {length:9.4f} {cells} {one.unknown_share:8.1%}")
    lines += [f"steps by: {shown(by)}" for by in sorted({one.steps_by for one in digests.profiles})]
    ranks = len(digests.profiles)
    kernels = _longest(digests.profiles)
    if kernels:
        lines += ["", f"{'longest kernels':60} {'category':26} {'calls':>7} {'s a rank':>9} {'mean us':>9}"]
        lines += [
            f"{_cut(name, 60):60} {_cut(category, 26):26} {calls:7} {time / 1e9 / ranks:9.4f}"
            f" {time / max(1, calls) / 1e3:9.1f}"
            for (category, name), (time, calls) in kernels
        ]
    collectives = _collectives(digests.profiles)
    if collectives:
        lines += ["", f"{'collectives':60} {'':26} {'calls':>7} {'s a rank':>9} {'exposed':>9}"]
        lines += [
            f"{_cut(name, 60):60} {'':26} {calls:7} {time / 1e9 / ranks:9.4f} {exposed / 1e9 / ranks:9.4f}"
            for name, (time, calls, exposed) in collectives
        ]
    return "\n".join(line.rstrip() for line in [*lines, *_remarks(digests)]) + "\n"


def shares_svg(digests: Digests) -> str:
    """One bar for each step of each rank, stacked from its shares, all on one scale."""
    bars = [(one, number) for one in digests.ranks for number in range(len(one.steps))]
    longest = max((one.steps[number].length for one, number in bars), default=0) or 1
    height = _TOP + (_BAR + 4) * len(bars) + _BOTTOM
    width = _WIDTH - _LEFT - _RIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" '
        f'font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="{_LEFT}" y="22" font-size="14">seconds of each profiled step</text>',
    ]
    for index, (part, colour) in enumerate(_BARS):
        at = _LEFT + 130 * index
        parts.append(f'<rect x="{at}" y="34" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{at + 18}" y="45">{part}</text>')
    for index, (one, number) in enumerate(bars):
        step, y, x = one.steps[number], _TOP + (_BAR + 4) * index, float(_LEFT)
        label = html.escape(_NO_XML.sub("?", f"{_cut(one.who, 32)} {number + 1}"))
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 13}" text-anchor="end">{label}</text>')
        for part, colour in _BARS:
            wide = width * getattr(step, part) / longest
            parts.append(f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{_BAR}" fill="{colour}"/>')
            x += wide
        parts.append(f'<text x="{x + 4:.1f}" y="{y + 13}">{step.length / 1e9 / one.count:.4g}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _cut(text: str, width: int) -> str:
    text = shown(text).replace("\n", " ")
    return text if len(text) <= width else text[: width - 3] + "..."


def _longest(profiles: Iterable[ProfileDigest]) -> list[tuple[tuple[str, str], list[int]]]:
    """(category, name), [time, calls] of the ten kernels that took longest on all ranks together."""
    found: dict[tuple[str, str], list[int]] = {}
    kernels: list[Kernel] = [kernel for one in profiles for kernel in one.kernels]
    for kernel in kernels:
        total = found.setdefault((kernel.category, kernel.name), [0, 0])
        total[0] += kernel.time
        total[1] += kernel.calls
    return sorted(found.items(), key=lambda item: (-item[1][0], item[0]))[:10]


def _collectives(profiles: Iterable[ProfileDigest]) -> list[tuple[str, list[int]]]:
    """Name, [time, calls, exposed time] of the collectives on all ranks together."""
    found: dict[str, list[int]] = {}
    pairs: list[tuple[str, Collective]] = [pair for one in profiles for pair in one.collectives.items()]
    for name, collective in pairs:
        total = found.setdefault(name, [0, 0, 0])
        for index, value in enumerate((collective.time, collective.calls, collective.exposed)):
            total[index] += value
    return sorted(found.items(), key=lambda item: (-item[1][0], item[0]))


def _remarks(digests: Digests) -> list[str]:
    lines = []
    for one in digests.ranks:
        if one.unknown_share > UNKNOWN_LIMIT:
            lines.append(
                f"{shown(one.who)}: {one.unknown_share:.0%} of the kernels' time is in no category: the shares"
                " of compute and communication mislead"
            )
        lines += [f"{shown(one.who)}: {shown(remark)}" for remark in one.remarks]
    return [*lines, *(f"{shown(failed.file)} {shown(failed.error)}" for failed in digests.errors)]
