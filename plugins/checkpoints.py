"""How long writing a checkpoint should take, how long it took, and whether that is what the storage promises.

Pure arithmetic: a number of parameters, a tier and a log in, seconds and bytes/s out. GB are 1e9 bytes, TiB 2^40.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

TIB = 2**40
GB = 1e9

BYTES_PER_PARAMETER = 14
"""What Megatron's torch_dist format keeps of a parameter trained in 16 bits with its distributed optimizer: the
parameter (2), and in FP32 its main copy and Adam's two moments (3 x 4). Derived from what megatron/core/optimizer saves,
not measured. GPT-3 175B: 174.6e9 x 14 = 2.22 TiB; the recipe's README says about 2.3.
"""

PUBLISHED_TIB = 2.3
"""The README's checkpoint of GPT-3 175B, which its table of write times counts with."""

TIERS = {40: 480, 125: 512, 250: 512, 500: 512}
"""Tiers of Azure Managed Lustre in MB/s for each TiB, with the size in TiB that the recipe's table has."""


def checkpoint_bytes(count: int) -> int:
    """The size of a checkpoint of so many parameters."""
    return count * BYTES_PER_PARAMETER


def bandwidth(tier: int, size: float) -> float:
    """Bytes/s that a Managed Lustre of this tier and size in TiB promises: tier x size MB/s.

    The recipe's table: 40 x 480 TiB are 19.2 GB/s, 125, 250 and 500 x 512 TiB are 64, 128 and 256. Others are less:
    16 TiB of tier 125 are 2 GB/s.
    """
    return tier * size * 1e6


def published_minutes(tier: int) -> float:
    """The table's theoretical write time, as its source computed it: 2.3 TiB taken for 2355 GB.

    They are 2529 GB, so that each is 7 % more in truth; the published figure is kept for comparison and not judged by.
    """
    return PUBLISHED_TIB * 1024 / (bandwidth(tier, TIERS[tier]) / GB) / 60


@dataclass(frozen=True)
class Save:
    """A checkpoint that was written: after which iteration, and for how many seconds training stood still."""

    iteration: int
    seconds: float
    path: str = ""


_STAMP = r"(?:(?P<stamp>\d{4}-\d\d-\d\dT[\d:.]+Z) )?"
_OWN = r"(?:\[(?P<own>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?)\] +)?"
_BEGUN = re.compile(rf"^{_STAMP}\s*{_OWN}saving checkpoint at iteration +(?P<iteration>\d+) to (?P<path>\S+)")
_SAVED = re.compile(
    rf"^{_STAMP}\s*{_OWN}successfully saved checkpoint from iteration +(?P<iteration>\d+) to "
)
_TIMER = re.compile(r"^(?:\S+Z )?\s*save-checkpoint \.+: \(\s*(?P<min>[\d.]+), (?P<max>[\d.]+)\)")


def saves(lines: Iterable[str]) -> list[Save]:
    """Every checkpoint that a log of Megatron says was saved, in its order.

    The lines of rank 0 need a time each: their own, which newer releases print in brackets, else the stamp that
    Kubernetes puts before a line that is asked for with timestamps. One that was begun and never saved is left out, as is
    one whose lines have no time. Megatron's own timer, from the last rank, is `timed`.
    """
    found: list[Save] = []
    begun: dict[int, tuple[datetime, str]] = {}
    for line in lines:
        if (match := _BEGUN.match(line)) and (at := _time(match)) is not None:
            begun[int(match["iteration"])] = (at, match["path"])
        elif (match := _SAVED.match(line)) and (at := _time(match)) is not None:
            start = begun.pop(int(match["iteration"]), None)
            # Of two clocks, or none at all, nothing follows.
            if start is not None and (start[0].tzinfo is None) == (at.tzinfo is None):
                found.append(Save(int(match["iteration"]), (at - start[0]).total_seconds(), start[1]))
    return found


def timed(lines: Iterable[str]) -> list[float]:
    """Seconds of each save by Megatron's timer `save-checkpoint`, that of the slowest rank; the last rank prints them."""
    return [float(match["max"]) / 1000 for line in lines if (match := _TIMER.match(line))]


def _time(match: re.Match[str]) -> datetime | None:
    if match["own"]:
        return datetime.fromisoformat(match["own"])
    if match["stamp"]:
        whole, _, fraction = match["stamp"].removesuffix("Z").partition(".")
        # Nanoseconds are more than Python reads.
        return datetime.fromisoformat(f"{whole}.{(fraction or '0')[:6].ljust(6, '0')}+00:00")
    return None


@dataclass(frozen=True)
class Written:
    """A measured save against what the storage promises. Bytes, bytes/s and seconds.

    `share` of the promised bandwidth is what was reached; `least` what must be. `passed` is None where nothing was
    promised.
    """

    seconds: float
    size: float
    promised: float | None
    least: float

    @property
    def reached(self) -> float:
        """Bytes/s."""
        return self.size / self.seconds

    @property
    def expected(self) -> float | None:
        """Seconds at the promised bandwidth."""
        return self.size / self.promised if self.promised else None

    @property
    def share(self) -> float | None:
        return self.reached / self.promised if self.promised else None

    @property
    def passed(self) -> bool | None:
        return None if self.share is None else self.share >= self.least

    def __str__(self) -> str:
        """`2.22 TiB in 41.0 s, 59.6 GB/s: 93 % of the 64.0 GB/s promised (38.2 s); at least 70 % must be`."""
        told = f"{self.size / TIB:.2f} TiB in {self.seconds:.1f} s, {self.reached / GB:.1f} GB/s"
        if self.share is None or self.promised is None or self.expected is None:
            return f"{told}; the storage promises no bandwidth to compare it with"
        promised = (
            f"{100 * self.share:.0f} % of the {self.promised / GB:.1f} GB/s promised ({self.expected:.1f} s)"
        )
        return f"{told}: {promised}; at least {100 * self.least:.0f} % must be"


LEAST_SHARE = 0.7
"""Of the promised bandwidth. A save also gathers the state and waits for the slowest writer, which is in its time."""


def written(
    seconds: Sequence[float], size: float, promised: float | None, least: float = LEAST_SHARE
) -> Written:
    """What the saves of a run were, by the fastest: the first one also makes folders and lays its plan.

    Raises:
        ValueError: nothing was saved, or in no time.
    """
    if not seconds or min(seconds) <= 0:
        raise ValueError(f"no checkpoint with a duration above 0 s in the log: {list(seconds)}")
    return Written(min(seconds), size, promised, least)
