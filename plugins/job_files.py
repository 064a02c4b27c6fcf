"""Reads the files that were collected of a job: in its case's folder, or in that of an earlier try or of a mode."""

from __future__ import annotations

from pathlib import Path

from plugins.gpu.samples import MAX_LINE, Gpus, parse_gpus
from plugins.logs import Log
from plugins.logs.formats import read
from plugins.modes.artefacts import Artefacts, parse_artefacts
from plugins.record.folder import ARTEFACTS, LOG, OWN_LOG

_PIECE = 1 << 20


def read_log(log_format: str, folder: Path) -> Log:
    """The parsed log of the job; an empty one if there is none.

    The steps come from one log alone. If another log took the place of the job's own, the marks, facts and
    versions of the job's own log are added. Raises OSError.
    """
    log, own_path = _parse(log_format, folder / LOG), folder / OWN_LOG
    return log.beside(_parse(log_format, own_path)) if own_path.exists() else log


def read_gpus(folder: Path) -> Gpus:
    """What the log of the job tells of its GPUs. Raises OSError."""
    path = folder / LOG
    if not path.exists():
        return Gpus()
    with path.open("rb") as file:
        return parse_gpus(iter(lambda: file.readline(MAX_LINE), b"")) or Gpus()


def read_artefacts(folder: Path) -> Artefacts | None:
    """What the job left on the cluster; None if nobody has looked. Raises Infrastructure, and OSError."""
    path = folder / ARTEFACTS
    return parse_artefacts(path.read_bytes()) if path.exists() else None


def _parse(log_format: str, path: Path) -> Log:
    if not path.exists():
        return Log()
    with path.open("rb") as file:
        return read(log_format, iter(lambda: file.read(_PIECE), b""))
