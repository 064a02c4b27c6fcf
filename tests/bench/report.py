"""How a bench prints its figures, and keeps those that docs/dev/performance.md shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Row = tuple[str, str, float]
"""What it is, its unit, the figure."""


@dataclass(frozen=True)
class Figure:
    """A figure, and what it is of. `met` says whether it reaches the goal that `what` names; None: it has none."""

    what: str
    figure: str
    met: bool | None = None


FIGURES: list[Figure] = []
"""What this process has printed as a figure or a target."""


def print_table(title: str, names: Sequence[str], columns: Sequence[Sequence[Row]]) -> None:
    """One column of figures for each name; all columns have the same rows."""
    print(f"\n{title}\n{'':34}" + "".join(f"{name:>12}" for name in names))
    for row in zip(*columns, strict=True):
        what, unit, _ = row[0]
        figures = "".join(f"{figure:12.2f}" for _, _, figure in row)
        print(f"{what:34}{figures} {unit}".rstrip())


def print_target(target: str, met: bool, figure: str) -> None:
    FIGURES.append(Figure(target, figure, met))
    print(f"{'met' if met else 'not met'}: {target}: {figure}", flush=True)


def print_figure(what: str, figure: str) -> None:
    FIGURES.append(Figure(what, figure))
    print(f"{what}: {figure}", flush=True)
