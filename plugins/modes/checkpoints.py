"""Whether a checkpoint was written whole, by the log and by its files. Pure.

A GB is 1e9 bytes, a TiB 2^40.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from plugins.logs import Log
from plugins.modes.artefacts import Artefacts, are, few
from plugins.recipes.cases import Case
from plugins.record.case import File

TIB = 2**40
GB = 1e9

WHOLE = 0.85
"""A checkpoint must have this share of its bytes. Without the optimizer's state it has a seventh."""

TABLE = 0.1
"""The files of a checkpoint may have this share less or more than a published size says.

The published sizes are rounded by less than 1 %. The parameters of an FP8 run would make it 7 % less, if they
were saved in FP8.
"""

DATA = ".distcp"
"""The suffix of the files with the tensors; each rank writes some."""

LAST = (".metadata", "metadata.json")
"""What Megatron writes once every rank has written: rank 0 writes the first, then the second.

megatron/core/dist_checkpointing/serialization.py, `save`.
"""

FULL = 0.01
"""If less than this share of a checkpoint is free behind its save, the file system is full."""


@dataclass(frozen=True)
class Written:
    """A checkpoint that was written.

    `seconds` is the time of its slowest rank, `size` its bytes, `promised` the storage's bandwidth in
    bytes/s; None if the site file does not say it. If its files were counted, `files` is their number and
    `path` where they are.
    """

    seconds: float
    size: int
    promised: float | None = None
    files: int = 0
    path: str = ""

    @property
    def bytes_per_second(self) -> float:
        return self.size / self.seconds

    @property
    def expected(self) -> float | None:
        """The seconds that it takes at the promised bandwidth."""
        if not self.promised:
            return None
        return self.size / self.promised

    @property
    def share(self) -> float | None:
        """The measured bandwidth as a share of the promised one."""
        if not self.promised:
            return None
        return self.bytes_per_second / self.promised

    def __str__(self) -> str:
        """`2.22 TiB in 41.0 s, 59.5 GB/s`."""
        return (
            f"{bytes_words(self.size)} in {seconds_words(self.seconds)}, {rate_words(self.bytes_per_second)}"
        )


def problems(case: Case, log: Log) -> list[str]:
    """The reasons why this log is no evidence for how fast a checkpoint of `case` is written."""
    reasons = []
    if not log.saves:
        reasons.append("no checkpoint was written, and one is meant")
    elif len(log.saves) > 1:
        reasons.append(f"{len(log.saves)} checkpoints were written, and one is meant")
    elif log.saves[0] <= 0:
        reasons.append("the checkpoint was written in no time at all")
    if not case.leaves_files:
        # Otherwise the files are counted, not what the log says.
        reasons += _size_problems(case, log.saved_bytes)
    if log.steps and all(step.skipped_iterations == case.means.every for step in log.steps):
        reasons.append("every update was skipped, so that the optimizer had no state to save")
    return reasons


def _size_problems(case: Case, size: int | None) -> list[str]:
    """Why a size in bytes that the log states, if it does, is not that of a whole checkpoint."""
    if size is None:
        return ["the log does not say how large the checkpoint is"]
    if case.checkpoint is None or size >= WHOLE * case.checkpoint:
        return []
    return [
        f"the checkpoint has {bytes_words(size)}, and one of this model with its optimizer's state has "
        f"{bytes_words(case.checkpoint)}"
    ]


def data_files(artefacts: Artefacts) -> list[File]:
    """The files with tensors that the job itself wrote."""
    return [file for file in artefacts.own if PurePosixPath(file.name).suffix == DATA]


def path_of(case: Case, artefacts: Artefacts | None) -> str:
    """The path of the checkpoint on the cluster, which is to be loaded; "" if there is not exactly one."""
    if artefacts is None:
        return ""
    names = _names(case, artefacts)
    if len(names) != 1:
        return ""
    return f"{artefacts.folder}/{names[0]}"


def _names(case: Case, artefacts: Artefacts) -> list[str]:
    """The folders of the checkpoints that the job itself wrote."""
    if case.mode is None or case.mode.checkpoint is None:
        return []
    pattern = case.mode.checkpoint.name or ""
    folders = {PurePosixPath(file.name).parts[0] for file in artefacts.own if "/" in file.name}
    return sorted(name for name in folders if fnmatchcase(name, pattern))


def file_problems(case: Case, artefacts: Artefacts) -> list[str]:
    """The reasons why these files are no whole checkpoint of `case`."""
    if case.checkpoint is None:
        return []
    names, folder, reasons = _names(case, artefacts), artefacts.folder, []
    if len(names) > 1:
        reasons.append(f"{len(names)} checkpoints are in {folder} where one is meant: {few(names)}")
    data = data_files(artefacts)
    if data:
        reasons += _data_problems(case, artefacts, data, single=len(names) < 2)
    else:
        reason, old = f"no *{DATA} file of this job is in {folder}", len(artefacts.files) - len(artefacts.own)
        reasons.insert(0, f"{reason}; the {old} files there are from before this job" if old else reason)
    if reasons and artefacts.free is not None and artefacts.free < FULL * case.checkpoint:
        reasons.append(f"the file system of {folder} is full: {bytes_words(artefacts.free)} are free")
    return reasons


def _data_problems(case: Case, artefacts: Artefacts, data: list[File], *, single: bool) -> list[str]:
    """What is wrong with these files. Their size tells something only if they are of a single checkpoint."""
    assert case.checkpoint is not None
    size, reasons = sum(file.size for file in data), []
    empty = [file.name for file in data if not file.size]
    if empty:
        reasons.append(f"{few(empty)} {are(empty)} empty")
    written = {PurePosixPath(file.name).name for file in artefacts.own if file.size}
    missing = [name for name in LAST if name not in written]
    if missing:
        reasons.append(
            f"the save was cut off: there is no {' and no '.join(missing)}, written once every rank is done"
        )
    if single and not 1 - TABLE <= size / case.checkpoint <= 1 + TABLE:
        reasons.append(
            f"its {len(data)} files have {bytes_words(size)}, and a checkpoint of {case.model_name} has {bytes_words(case.checkpoint)}"
        )
    return reasons


def bytes_words(size: float) -> str:
    """`2.22 TiB`, `0.9 GB`."""
    if size >= TIB / 4:
        return f"{size / TIB:.2f} TiB"
    return f"{size / GB:.3g} GB"


def rate_words(bytes_per_second: float) -> str:
    """`59.5 GB/s`."""
    return f"{bytes_per_second / GB:.3g} GB/s"


def seconds_words(value: float) -> str:
    """`41.0 s`."""
    if value >= 1:
        return f"{value:.1f} s"
    return f"{value:.2g} s"
