"""Whether a checkpoint was written whole, and as fast as the storage promises, and whether it was loaded. Pure.

A GB is 1e9 bytes, a TiB 2^40.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from plugins.digests.artefacts import Artefacts, File, few
from plugins.judging.verdicts import billions
from plugins.logs import Log
from plugins.recipes.cases import Case
from plugins.record.verdict import Kind

TIB = 2**40
GB = 1e9

SLOWER, FASTER = 0.3, 0.1
"""A save may be this much slower and faster than the promised bandwidth. Its time includes gathering the
state and waiting for the slowest writer.
"""

FEWEST_SECONDS = 5.0
"""A save that should take less than this is not judged: most of its time is not writing."""

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

LOSS_DIGITS = 0.002
LOSS_CHANGE = 0.01
"""By how much of itself the first loss may differ from the last one of the run that saved.

NeMo prints four digits, and a step's loss is that before its update: two units of the last digit always
pass. More than 1 % is a jump: the batches are random tokens, whose loss hardly differs. Between the two, half
of what the loss fell while the checkpoint was trained passes, so that a new model does not.
"""


@dataclass(frozen=True)
class Saved:
    """What the job left that saved a checkpoint: its log and its files."""

    log: Log
    artefacts: Artefacts | None


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
        return self.size / self.promised if self.promised else None

    @property
    def share(self) -> float | None:
        """The measured bandwidth as a share of the promised one."""
        return self.bytes_per_second / self.promised if self.promised else None

    def __str__(self) -> str:
        """`2.22 TiB in 41.0 s, 59.5 GB/s`."""
        return f"{_bytes(self.size)} in {_seconds(self.seconds)}, {_rate(self.bytes_per_second)}"


def problems(case: Case, log: Log) -> list[str]:
    """The reasons why this log is no evidence for how fast a checkpoint of `case` is written."""
    found = []
    if len(log.saves) != 1:
        found.append(
            f"{len(log.saves) or 'no'} checkpoint{'s were' if len(log.saves) > 1 else ' was'} written, and one is meant"
        )
    elif log.saves[0] <= 0:
        found.append("the checkpoint was written in no time at all")
    if case.leaves_files:
        # The files are counted, not what the log says.
        pass
    elif log.saved_bytes is None:
        found.append("the log does not say how large the checkpoint is")
    elif case.checkpoint is not None and log.saved_bytes < WHOLE * case.checkpoint:
        found.append(
            f"the checkpoint has {_bytes(log.saved_bytes)}, and one of this model with its optimizer's state has "
            f"{_bytes(case.checkpoint)}"
        )
    if log.steps and all(step.skipped_iterations == case.means.every for step in log.steps):
        found.append("every update was skipped, so that the optimizer had no state to save")
    return found


def data_files(found: Artefacts) -> list[File]:
    """The files with tensors that the job itself wrote."""
    return [file for file in found.own if PurePosixPath(file.name).suffix == DATA]


def path_of(case: Case, found: Artefacts | None) -> str:
    """The path of the checkpoint on the cluster, which is to be loaded; "" if there is not exactly one."""
    names = _names(case, found) if found is not None else []
    return f"{found.folder}/{names[0]}" if found is not None and len(names) == 1 else ""


def _names(case: Case, found: Artefacts) -> list[str]:
    """The folders of the checkpoints that the job itself wrote."""
    saves = case.mode.checkpoint if case.mode is not None else None
    pattern = (saves and saves.name) or ""
    folders = {PurePosixPath(file.name).parts[0] for file in found.own if "/" in file.name}
    return sorted(name for name in folders if fnmatchcase(name, pattern))


def file_problems(case: Case, found: Artefacts) -> list[str]:
    """The reasons why these files are no whole checkpoint of `case`."""
    if case.checkpoint is None:
        return []
    own, names, data = found.own, _names(case, found), data_files(found)
    size = sum(file.size for file in data)
    reasons = []
    if not data:
        old = len([file for file in found.files if file not in own])
        before = f"; the {old} files there are from before this job" if old else ""
        reasons.append(f"no *{DATA} file of this job is in {found.folder}{before}")
    if len(names) > 1:
        reasons.append(f"{len(names)} checkpoints are in {found.folder} where one is meant: {few(names)}")
    if empty := [file.name for file in data if not file.size]:
        reasons.append(f"{few(empty)} {'is' if len(empty) == 1 else 'are'} empty")
    there = {PurePosixPath(file.name).name for file in own if file.size}
    if data and (lacks := [name for name in LAST if name not in there]):
        reasons.append(
            f"the save was cut off: there is no {' and no '.join(lacks)}, written once every rank is done"
        )
    if data and len(names) < 2 and not 1 - TABLE <= size / case.checkpoint <= 1 + TABLE:
        reasons.append(
            f"its {len(data)} files have {_bytes(size)}, and a checkpoint of {case.model_name} has {_bytes(case.checkpoint)}"
        )
    if reasons and found.free is not None and found.free < FULL * case.checkpoint:
        reasons.append(f"the file system of {found.folder} is full: {_bytes(found.free)} are free")
    return reasons


def load_problems(case: Case, log: Log, saved: Saved | None) -> list[str]:
    """The reasons why this log is no evidence that the checkpoint of `case.after` was loaded."""
    if case.after is None:
        return []
    if saved is None or not (losses := _losses(saved.log)):
        return [f"there is no log of {case.after.id}, whose checkpoint it loads"]
    reasons = []
    if log.loaded is None:
        reasons.append("the log has no line of a checkpoint's load (Global Checkpoint Load)")
    path = path_of(case.after, saved.artefacts)
    if not path:
        reasons.append(f"nobody knows which checkpoint {case.after.id} saved")
    elif log.restored and log.restored != path:
        reasons.append(f"it loaded {log.restored}, and {path} was saved for it")
    first = next(iter(_losses(log)), None)
    # If a loss is not a number, no comparison holds.
    if first is not None and not abs(first - losses[-1]) <= (most := _most(losses)):
        reasons.append(
            f"its loss of {first:.4g} does not continue that of the save, which began with {losses[0]:.4g} and ended with "
            f"{losses[-1]:.4g} (limit {most:.2g})"
        )
    return reasons


def _losses(log: Log) -> list[float]:
    return [step.loss for step in log.steps if step.loss is not None]


def _most(losses: list[float]) -> float:
    """By how much the loss behind a load may differ from the last of these, which are those of the save."""
    last = abs(losses[-1])
    return max(LOSS_DIGITS * last, min(LOSS_CHANGE * last, abs(losses[0] - losses[-1]) / 2))


def load_remarks(log: Log, saved: Saved) -> list[str]:
    """What a reader of a load that passed must know."""
    losses = _losses(saved.log)
    unnamed = [] if log.restored else ["the log does not say which checkpoint was loaded"]
    if abs(losses[0] - losses[-1]) > 2 * LOSS_DIGITS * abs(losses[-1]):
        return unnamed
    return [
        *unnamed,
        f"the loss of the save fell from {losses[0]:.4g} to {losses[-1]:.4g} only: it does not tell a loaded model from a new one",
    ]


def load_headline(case: Case, log: Log, saved: Saved) -> str:
    """What was loaded, in a line."""
    assert case.after is not None
    assert case.after.checkpoint is not None
    size = sum(file.size for file in data_files(saved.artefacts)) if saved.artefacts else 0
    rate = f", {_rate(size / log.loaded)}" if size and log.loaded else ""
    first, last = next(iter(_losses(log)), math.nan), _losses(saved.log)[-1]
    return (
        f"{_bytes(size or case.after.checkpoint)} loaded in {_seconds(log.loaded or 0.0)}{rate}; its loss of {first:.4g} continues "
        f"{last:.4g}, the last of the save"
    )


def written_by(case: Case, log: Log, found: Artefacts | None, promised: float | None) -> Written:
    """The checkpoint of a valid run: its size is that of its files, if they were counted."""
    seconds = log.saves[0]
    if found is None:
        return Written(seconds, log.saved_bytes or 0, promised)
    data = data_files(found)
    size = sum(file.size for file in data)
    return Written(seconds, size, promised, len(data), f"{found.host}:{path_of(case, found)}")


def judge(written: Written) -> tuple[Kind, str]:
    """The verdict on a checkpoint, and its headline.

    If its files were counted, it passes even if its bandwidth cannot be judged.
    """
    share = written.share
    open_kind = Kind.PASSED if written.files else Kind.NO_BASELINE
    if share is None or written.promised is None or written.expected is None:
        return open_kind, (
            f"{open_kind}: {written}; nothing to compare with: the site file does not say what its storage promises "
            f"(docs/storage.md)"
        )
    if written.expected < FEWEST_SECONDS:
        return open_kind, (
            f"{open_kind}: {written}; too little to tell: {_rate(written.promised)} would take it in "
            f"{_seconds(written.expected)}, and below {FEWEST_SECONDS:g} s other things take longer"
        )
    kind = Kind.PASSED
    limit = ""
    if share < 1 - SLOWER:
        kind, limit = Kind.TOO_SLOW, f" (limit -{100 * SLOWER:g} %)"
    elif share > 1 + FASTER:
        kind, limit = Kind.TOO_FAST, f" (limit +{100 * FASTER:g} %); was it all on the storage by then?"
    return kind, (
        f"{kind}: {written} where {_rate(written.promised)} is promised, {100 * (share - 1):+.1f} % bandwidth{limit}"
    )


def explain(case: Case, written: Written) -> list[str]:
    """The lines of the report below the headline."""
    assert case.checkpoint is not None
    of = case.model_name if case.parameters is None else f"{billions(case.parameters)} parameters"
    lines = [
        f"measured  {_row(written.seconds, written.size)}",
        f"size      {_bytes(case.checkpoint)} expected of {of}",
    ]
    if written.files:
        lines.append(f"files     {written.files} in {written.path}")
    if written.promised is None or written.expected is None:
        return lines
    lines.insert(1, f"promised  {_row(written.expected, written.size)}")
    for one in case.published_saves:
        if math.isclose(one.gb_per_second * GB, written.promised):
            lines.append(
                f"published {one.minutes:.2f} min for {one.tebibytes:g} TiB by {one.storage}, which are "
                f"{one.tebibytes * TIB / written.promised / 60:.2f}; for comparison, not judged"
            )
    return lines


def _row(seconds: float, size: int) -> str:
    return f"{_seconds(seconds):>11}  {_rate(size / seconds):>11}  {_bytes(size)}"


def _bytes(size: float) -> str:
    return f"{size / TIB:.2f} TiB" if size >= TIB / 4 else f"{size / GB:.3g} GB"


def _rate(bytes_per_second: float) -> str:
    return f"{bytes_per_second / GB:.3g} GB/s"


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value >= 1 else f"{value:.2g} s"
