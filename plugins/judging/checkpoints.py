"""Whether a checkpoint was written as fast as the storage promises. Pure. A GB is 1e9 bytes, a TiB 2^40."""

from __future__ import annotations

import math
from dataclasses import dataclass

from plugins.judging.verdicts import Kind
from plugins.judging.verdicts import billions
from plugins.logs import Log
from plugins.recipes.cases import Case

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


@dataclass(frozen=True)
class Written:
    """A checkpoint that was written.

    `seconds` is the time of its slowest rank, `size` its bytes, `promised` the storage's bandwidth in
    bytes/s; None if the site file does not say it.
    """

    seconds: float
    size: int
    promised: float | None = None

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
    if log.saved_bytes is None:
        found.append("the log does not say how large the checkpoint is")
    elif case.checkpoint is not None and log.saved_bytes < WHOLE * case.checkpoint:
        found.append(
            f"the checkpoint has {_bytes(log.saved_bytes)}, and one of this model with its optimizer's state has "
            f"{_bytes(case.checkpoint)}"
        )
    if log.steps and all(step.skipped_iterations == case.means.every for step in log.steps):
        found.append("every update was skipped, so that the optimizer had no state to save")
    return found


def judge(written: Written) -> tuple[Kind, str]:
    """The verdict on a checkpoint, and its headline."""
    share = written.share
    if share is None or written.promised is None or written.expected is None:
        return Kind.NO_BASELINE, (
            f"{Kind.NO_BASELINE}: {written}; nothing to compare with: the site file does not say what its storage promises "
            f"(docs/storage.md)"
        )
    if written.expected < FEWEST_SECONDS:
        return Kind.NO_BASELINE, (
            f"{Kind.NO_BASELINE}: {written}; too little to tell: {_rate(written.promised)} would take it in "
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
    assert case.parameters is not None
    lines = [
        f"measured  {_row(written.seconds, written.size)}",
        f"size      {_bytes(case.checkpoint)} expected of {billions(case.parameters)} parameters",
    ]
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
    return f"{size / TIB:.2f} TiB" if size >= TIB / 10 else f"{size / GB:.3g} GB"


def _rate(bytes_per_second: float) -> str:
    return f"{bytes_per_second / GB:.3g} GB/s"


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value >= 1 else f"{value:.2g} s"
