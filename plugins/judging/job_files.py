"""Reads the files that were collected of a job: in its case's folder, or in that of an earlier try or of a mode."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar

from plugins.gpu.causes import told_apart
from plugins.gpu.samples import MAX_LINE, Gpus, parse_gpus
from plugins.judging.complaints import BAR, BROKEN_OFF, of_each_kind
from plugins.logs import Log
from plugins.logs.formats import parser, read
from plugins.modes.artefacts import Artefacts, parse_artefacts
from plugins.record.folder import ARTEFACTS, LOG, OWN_LOG
from plugins.record.outcome import Outcome

_PIECE = 1 << 20

MOST_PARSED = 100
"""So many parsed logs are kept, because nobody may ask for one: with pytest-xdist, other processes judge."""

_LINES, _WIDTH = 8, 200
"""So many lines of a log are quoted, each up to this width."""

TAIL = 1 << 18
"""So many bytes at the end of a log are looked through for them."""


Parsed = TypeVar("Parsed", Log, Gpus)


@dataclass(frozen=True)
class LogEnd:
    """What the end of a job's log tells besides its steps, for the fields of `Evidence` with these names."""

    last_lines: tuple[str, ...] = ()
    like_a_step: str = ""
    broken_off: str = ""


class JobLogs(Protocol):
    """The parsed logs of a job and of what belongs to it, by the folders that have them. Raises OSError."""

    def read_log(self, log_format: str, folder: Path) -> Log: ...
    def read_gpus(self, folder: Path) -> Gpus: ...
    def read_end(self, log_format: str, outcome: Outcome) -> LogEnd: ...


@dataclass(frozen=True)
class FileMark:
    """What tells a file in one state from any other file or state. A file that is moved keeps its mark."""

    device: int
    inode: int
    size: int
    changed: int

    @classmethod
    def of(cls, file: BinaryIO) -> FileMark:
        stat = os.fstat(file.fileno())
        return cls(stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)


class ParsedLogs:
    """The logs that this process has parsed, so that it parses none twice. Any thread may use it.

    The disk has the last word: what is known of a file counts only as long as its mark is the same.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, FileMark], tuple[Path, Any]] = {}
        self._changing = threading.Lock()

    def read_log(self, log_format: str, folder: Path) -> Log:
        """The parsed log of the job in this folder; an empty one if there is none.

        The steps come from one log alone. If another log took the place of the job's own, the marks, facts and
        versions of the job's own log are added. Raises OSError.
        """

        def parse(file: BinaryIO) -> Log:
            return read(log_format, iter(lambda: file.read(_PIECE), b""))

        log, own_path = self._read(log_format, folder / LOG, parse, Log()), folder / OWN_LOG
        if own_path.exists():
            log = log.beside(self._read(log_format, own_path, parse, Log()))
        return log

    def read_gpus(self, folder: Path) -> Gpus:
        """What the log of the job tells of its GPUs. Raises OSError."""
        return self._read("gpus", folder / LOG, _parse_gpus, Gpus())

    def read_end(self, log_format: str, outcome: Outcome) -> LogEnd:
        """What the end of the job's own log tells. Raises OSError."""
        own_log = outcome.folder / OWN_LOG
        path = own_log if own_log.exists() else outcome.log
        if path is None:
            return LogEnd()
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL))
            return end_of(log_format, file.read())

    def causes_beside(self, slow: Path, good: Path) -> Sequence[str]:
        """What the GPUs of a slow job tell that those of a good one do not. What cannot be read explains nothing."""
        with contextlib.suppress(OSError):
            return told_apart(self.read_gpus(slow), self.read_gpus(good))
        return ()

    def keep(self, log_format: str, path: Path, mark: FileMark, log: Log) -> None:
        """Keep the log in this file, which somebody else has parsed."""
        self._keep((log_format, mark), path, log)

    def forget(self, folder: Path) -> None:
        """Forget the logs in this folder and below it."""
        below = f"{folder}{os.sep}"
        with self._changing:
            self._known = {
                key: known for key, known in self._known.items() if not str(known[0]).startswith(below)
            }

    def _read(self, reader: str, path: Path, parse: Callable[[BinaryIO], Parsed], nothing: Parsed) -> Parsed:
        if not path.exists():
            return nothing
        with path.open("rb") as file:
            mark = FileMark.of(file)
            known: Parsed | None = self._known.get((reader, mark), (path, None))[1]
            if known is not None:
                return known
            parsed = parse(file)
            if FileMark.of(file) == mark:
                self._keep((reader, mark), path, parsed)
        return parsed

    def _keep(self, key: tuple[str, FileMark], path: Path, parsed: Log | Gpus) -> None:
        with self._changing:
            self._known[key] = path, parsed
            while len(self._known) > MOST_PARSED:
                self._known.pop(next(iter(self._known)))


def read_artefacts(folder: Path) -> Artefacts | None:
    """What the job left on the cluster; None if nobody has looked. Raises Infrastructure, and OSError."""
    path = folder / ARTEFACTS
    return parse_artefacts(path.read_bytes()) if path.exists() else None


def _parse_gpus(file: BinaryIO) -> Gpus:
    return parse_gpus(iter(lambda: file.readline(MAX_LINE), b"")) or Gpus()


def end_of(log_format: str, tail: bytes) -> LogEnd:
    """What the last `TAIL` bytes of a log tell."""
    lines = [line for line in tail.splitlines() if line.strip()]
    hints = parser(log_format).hints
    hinting = [any(hint in line for hint in hints) for line in lines]
    steps = [n for n, line in enumerate(lines) if hinting[n] or BAR.search(line)]
    others = [line for n, line in enumerate(lines) if not hinting[n]]
    behind = lines[steps[-1] + 1 if steps else 0 :]
    return LogEnd(
        last_lines=quotable(of_each_kind(others)),
        like_a_step="".join(quotable([lines[n] for n in steps[-1:]])),
        broken_off="".join(quotable(list(filter(BROKEN_OFF.search, behind))[:1])),
    )


def quotable(lines: Sequence[bytes]) -> tuple[str, ...]:
    """The last of these lines, cut to a width that can be read."""
    return tuple(line.decode("utf-8", errors="replace").strip()[:_WIDTH] for line in lines[-_LINES:])
