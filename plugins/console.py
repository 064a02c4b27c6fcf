"""A terminal for texts from outside: whatever is printed on it, in a table or not, is shown as it is written."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from plugins.words import shown


class PlainConsole(Console):
    """Rich's console on which no string is markup, an emoji's name or an escape sequence; only `style` has an effect."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        # Every string that rich prints comes by here, the cells and titles of its tables as well.
        return super().render_str(shown(text), **{**options, "markup": False, "emoji": False})
