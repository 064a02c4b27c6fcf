"""Makes HTML and Markdown of the templates. Each value in them is escaped, as a text from outside."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plugins.base.files import write_whole
from plugins.base.words import counted, markdown_code, markdown_text, nodes_in_words, shown

if TYPE_CHECKING:
    from jinja2 import Template

TEMPLATES = Path(__file__).resolve().parent / "templates"
_COMPILED = TEMPLATES / "__pycache__"


@cache
def template(name: str) -> Template:
    """The template of this name, which is HTML or, if it ends in `.md`, Markdown.

    It takes a while to compile, so what was compiled is kept as Python keeps its modules. It counts if neither the
    template nor this module has changed since.
    """
    # It is slow to import, and only needed once jobs have run.
    from jinja2 import BytecodeCache, Environment, FileSystemLoader, StrictUndefined
    from jinja2.bccache import Bucket

    class Compiled(BytecodeCache):
        def get_source_checksum(self, source: str) -> str:
            return super().get_source_checksum(source + Path(__file__).read_text(encoding="utf-8"))

        def load_bytecode(self, bucket: Bucket) -> None:
            # If the file is damaged, the template is compiled.
            with contextlib.suppress(Exception):
                bucket.bytecode_from_string((_COMPILED / bucket.key).read_bytes())

        def dump_bytecode(self, bucket: Bucket) -> None:
            with contextlib.suppress(OSError):
                if not sys.dont_write_bytecode:
                    _COMPILED.mkdir(exist_ok=True)
                    write_whole(_COMPILED / bucket.key, bucket.bytecode_to_string())

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        bytecode_cache=Compiled(),
        autoescape=True,
        finalize=_markdown if name.endswith(".md") else _html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(code=_code, figure=_figure, duration=_duration, moment=_moment)
    environment.filters.update(percent=_percent, share=_share, whole=_whole, nodes=nodes_in_words)
    environment.filters.update(counted=counted, hours=_hours)
    return environment.get_template(name)


def markup(text: str) -> str:
    """A text that a template takes over as it is."""
    from markupsafe import Markup

    return Markup(text)


def _html(value: Any) -> Any:
    if value is None:
        return ""
    # What is escaped already is of a subclass.
    return shown(value) if type(value) is str else value


def _markdown(value: Any) -> Any:
    value = _html(value)
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return markup(markdown_text(value))
    return value


def _known(show: Callable[..., str]) -> Callable[..., str]:
    """The same filter, which shows nothing if the value is not known."""

    def filtered(value: Any, *options: Any) -> str:
        if value is None:
            return ""
        return show(value, *options)

    return filtered


def _code(text: str) -> str:
    return markup(markdown_code(text))


@_known
def _figure(value: float) -> str:
    if value < 1000:
        return f"{value:.4g}"
    return _whole(value)


@_known
def _whole(value: float) -> str:
    return f"{value:,.0f}"


@_known
def _hours(value: float) -> str:
    return f"{value:,.3f}"


@_known
def _percent(value: float, form: str = ".1f") -> str:
    return f"{value:{form}} %"


@_known
def _share(value: float) -> str:
    return _percent(100 * value)


@_known
def _duration(value: float) -> str:
    """`47 s`, `3:07 min`, `2:05 h`."""
    minutes, seconds = divmod(round(value), 60)
    if minutes >= 60:
        return f"{minutes // 60}:{minutes % 60:02d} h"
    if minutes:
        return f"{minutes}:{seconds:02d} min"
    return f"{seconds} s"


@_known
def _moment(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"
