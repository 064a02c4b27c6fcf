"""How a bench prints its figures."""

from __future__ import annotations

from collections.abc import Sequence

Row = tuple[str, str, float]
"""What it is, its unit, the figure."""


def print_table(title: str, names: Sequence[str], columns: Sequence[Sequence[Row]]) -> None:
    """One column of figures for each name; all columns have the same rows."""
    print(f"\n{title}\n{'':34}" + "".join(f"{name:>12}" for name in names))
    for row in zip(*columns, strict=True):
        what, unit, _ = row[0]
        figures = "".join(f"{figure:12.2f}" for _, _, figure in row)
        print(f"{what:34}{figures} {unit}".rstrip())


def print_target(target: str, met: bool, figure: str) -> None:
    print(f"{'met' if met else 'not met'}: {target}: {figure}", flush=True)
