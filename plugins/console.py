"""A terminal on which text from outside is shown as it is written, in tables and elsewhere."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from plugins.words import shown


class PlainConsole(Console):
    """Rich's console without markup, emoji names and escape sequences. Only `style` has an effect."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        # Rich renders every string here, including the cells and titles of its tables.
        return super().render_str(shown(text), **{**options, "markup": False, "emoji": False})
