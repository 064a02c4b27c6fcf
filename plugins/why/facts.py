"""The facts of a run as values: by its log, by single lines of it, and by what its launcher was told. Pure.

    NCCL 2.21.5+cuda12.4, the log
    NCCL_NVLS_ENABLE 0, the log
    --moe_a2a_overlap False, llmb-config_4711.yaml

What cannot be read is no fact: nothing has a default.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from plugins.base.words import tells_secret
from plugins.logs import Log
from plugins.logs.line_parser import MAX_WRAPPED, line_search
from plugins.logs.log import type_of
from plugins.logs.marks import Mark
from plugins.logs.origin import plain
from plugins.logs.statements import ARGUMENTS
from plugins.why.causes import Line

MOST_VALUES, MOST_NAMES, MOST_LINES, LONGEST = 4, 256, 1 << 16, 200
_MAX_LINE = 1 << 12
"""NCCL prints 1,024 characters at most, behind what a launcher prints."""
SIZES = ("sequence_length", "layers", "tp", "pp", "cp", "vp", "ep", "mbs", "gbs")
"""The facts of a configuration that a cell states too, by the names that a case has for them."""

_NAMES = {"nccl": "NCCL", "gpu": "GPU"}
# NVIDIA/nccl 5067397c (2.30.7): src/misc/param.cc 100 (with a dot), src/graph/paths.cc 274 and others (without).
_VARIABLE = Mark(
    "variable",
    "",
    (b" set by environment to ",),
    r"NCCL INFO (NCCL_\w{1,60}) set by environment to ([\w,:/^=.+-]{0,200}?)\.?\s?$",
)
# NVIDIA-NeMo/Megatron-Bridge b50da4c74: scripts/performance/argument_parser.py 224-415, and the keys behind them.
_MORE = {"virtual_pipeline_model_parallel_size": "vp", "expert_model_parallel_size": "ep"}
_ARGUMENTS = {**ARGUMENTS, **_MORE, "global_batch_size": "gbs", "seq_length": "sequence_length"}

Seen = dict[str, dict[str, None]]
"""Values by the names of facts, in their order."""


class Fact(NamedTuple):
    """What a run has by this name; several values if its processes or nodes differ. `changed`: its launcher was told so."""

    name: str
    values: tuple[str, ...]
    place: str
    changed: bool = False


class LineFacts:
    """Reads the lines of a log that are facts by themselves, as its bytes pass by. Memory is bounded."""

    def __init__(self, lines: Mapping[str, Line]) -> None:
        marks = [Mark(name, "", (line.hint.encode(),), line.pattern.pattern) for name, line in lines.items()]
        self._search = line_search((_VARIABLE, *marks))

    def passing(self, pieces: Iterable[bytes], seen: Seen) -> Iterator[bytes]:
        """The pieces of a log. What their lines state is added to `seen`."""
        rest, count = b"", 0
        for piece in pieces:
            buffer = rest + piece.replace(b"\r", b"\n")
            end = buffer.rfind(b"\n") + 1
            rest = buffer[end:][:MAX_WRAPPED]
            if count < MOST_LINES:
                count += self._read(buffer, end, seen)
            yield piece
        self._read(rest, len(rest), seen)

    def _read(self, buffer: bytes, end: int, seen: Seen) -> int:
        """Read `buffer[:end]`. Returns the number of lines with a hint."""
        count = 0
        for start, stop in self._search.lines(buffer, end):
            count += 1
            for line in plain(buffer[start : min(stop, start + MAX_WRAPPED)])[0]:
                text = line[:_MAX_LINE].decode(errors="replace")
                for mark in self._search.readers_of(line):
                    match = re.search(mark.pattern, text) if isinstance(mark, Mark) else None
                    if match and mark is _VARIABLE:
                        _keep(match[1], match[2], seen)
                    elif match and isinstance(mark, Mark):
                        _keep(mark.kind, match[match.lastindex or 0], seen)
        return count


def of_run(log: Log, lines: Seen, launched: Iterable[Fact]) -> dict[str, Fact]:
    """All facts of a run by their names. What its log states holds, whatever its launcher was told."""
    facts = {fact.name: fact for fact in launched}
    stated = {name: dict(values) for name, values in lines.items()}
    for name, value in _of_log(log):
        _keep(name, value, stated)
    for name, values in stated.items():
        facts[name] = Fact(name, tuple(values), "the log", name in facts)
    return facts


def _of_log(log: Log) -> Iterator[tuple[str, str]]:
    for name, value in log.versions:
        yield _NAMES.get(name, name), type_of(value) if name == "gpu" else value
    for process in log.processes:
        yield from (("network", network) for network in process.channels or process.networks)
    yield from ((fact.name, str(fact.value)) for fact in log.facts if fact.name in SIZES)


def of_launch(
    variables: Mapping[str, object], overrides: Mapping[str, object], words: Iterable[str], place: str
) -> Iterator[Fact]:
    """What a launcher was told beside the recipe: variables, its own words such as TP, arguments of the program. No secrets."""
    pairs = [*variables.items(), *overrides.items(), *_arguments(words)]
    for name, value in pairs:
        short = name.lstrip("-").rpartition(".")[2].lower()
        short = _ARGUMENTS.get(short, short)
        if not (tells_secret(name) or tells_secret(str(value))):
            yield Fact(short if short in SIZES else name, (str(value),), place, changed=True)


def _arguments(words: Iterable[str]) -> Iterator[tuple[str, str]]:
    """`--name=value`, `--name value`, `section.key=value`; a switch without a value is `true`."""
    pairs: list[list[str]] = []
    for word in " ".join(words).split():
        name, equals, value = word.partition("=")
        if pairs and len(pairs[-1]) == 1 and tells_secret(pairs[-1][0]):
            # A secret may look like anything: base64 ends with `=`.
            pairs[-1].append(word)
        elif equals or word.startswith("-"):
            pairs.append([name.lstrip("+"), *filter(None, [value])])
        elif pairs:
            pairs[-1].append(word)
    return ((name, " ".join(values) or "true") for name, *values in pairs)


def _keep(name: str, value: str, seen: Seen) -> None:
    """Keep one more value of a fact, unless there are many."""
    values = seen.setdefault(name, {}) if name in seen or len(seen) < MOST_NAMES else {}
    if len(values) < MOST_VALUES:
        values[value[:LONGEST].strip()] = None
