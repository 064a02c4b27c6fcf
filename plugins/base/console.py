"""A terminal on which text from outside is shown as it is written, in tables and elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from plugins.base.words import shown


class PlainConsole(Console):
    """Rich's console without markup, emoji names and escape sequences. Only `style` has an effect."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        # Rich renders every string here, including the cells and titles of its tables.
        return super().render_str(shown(text), **{**options, "markup": False, "emoji": False})

    def print_rows(
        self,
        head: Iterable[str],
        rows: Iterable[Sequence[str | Text]],
        right: Collection[str] = (),
        folded: Collection[str] = (),
    ) -> None:
        """Print a table. `right` are the columns of figures, `folded` those whose cells may take several lines.

        Where a cell is folded, any of its words may begin a line, and with it a command for a CI runner.
        """
        head = list(head)
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in head:
            justify: Literal["right", "left"] = "right" if name in right else "left"
            overflow: Literal["fold", "ellipsis"] = "fold" if name in folded else "ellipsis"
            table.add_column(name, justify=justify, overflow=overflow, no_wrap=name not in folded)
        for row in rows:
            pairs = zip(head, row, strict=False)
            cells = (_safe_to_fold(cell) if name in folded else cell for name, cell in pairs)
            table.add_row(*cells)
        self.print(table)


def _safe_to_fold(cell: str | Text) -> str | Text:
    return cell.replace("::", ":\\x3a") if isinstance(cell, str) else cell


def fitting(rows: Sequence[Sequence[str]], width: int, expendable: Sequence[int]) -> list[int]:
    """Which columns of these rows fit into `width`: as few as needed of the `expendable` ones are left out.

    They are left out in their order. Two columns are two letters apart.
    """
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    columns = list(range(len(widths)))
    for expendable_column in expendable:
        if sum(widths[column] + 2 for column in columns) - 2 <= width:
            break
        columns.remove(expendable_column)
    return columns
