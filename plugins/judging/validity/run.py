"""What a check looks at, and how it names steps. Pure."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from plugins.baselines.file import Accelerator
from plugins.logs import Log
from plugins.logs.smoothing import desmoothed
from plugins.metrics import Statistic
from plugins.recipes.cases import Case


@dataclass(frozen=True)
class TimedRun:
    """A run whose log has at least one step. The fields are the parameters of `problems`."""

    case: Case
    log: Log
    statistic: Statistic
    part: Accelerator | None = None
    job: str = ""
    whole: bool = True

    @cached_property
    def seconds(self) -> dict[int, float]:
        """The time of each step by itself, by index."""
        return desmoothed(self.log.steps, self.case.smoothing)


Check = Callable[[TimedRun], Iterator[str]]
"""Yields the reasons why the run is invalid."""


def listed(indices: Iterable[int]) -> str:
    """`step 7`, or `steps 7, 8, 9, 10, 11, 12 and 3 more`."""
    known = list(indices)
    shown = ", ".join(map(str, known[:6])) + (f" and {len(known) - 6} more" if len(known) > 6 else "")
    return f"step{'s' if len(known) > 1 else ''} {shown}"
