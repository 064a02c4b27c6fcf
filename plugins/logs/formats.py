"""The log formats by their names in `recipe.yaml`. A new one is a module with its parser, and a line here."""

from __future__ import annotations

from collections.abc import Iterable

from plugins.logs.dllogger import DLLogger
from plugins.logs.line_parser import LineParser
from plugins.logs.log import Log
from plugins.logs.maxtext import MaxText
from plugins.logs.megatron_bridge import MegatronBridge
from plugins.logs.megatron_lm import MegatronLM
from plugins.logs.nemo1 import NeMo1
from plugins.logs.nemo2 import NeMo2

FORMATS: dict[str, type[LineParser]] = {
    kind.name: kind for kind in (NeMo1, NeMo2, MaxText, MegatronLM, MegatronBridge, DLLogger)
}


def parser(name: str) -> LineParser:
    """A parser of this format."""
    return FORMATS[name]()


def read(name: str, pieces: Iterable[bytes]) -> Log:
    """Parse a whole log of this format from its pieces."""
    reader = parser(name)
    for piece in pieces:
        reader.feed(piece)
    return reader.finish()
