"""How a class of cases is written: a function that makes a log of a cell and says what is true of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from tests.fuzz.cells import Cell
from tests.printed.run import Job, Page

WEAK = {"parameters", "buckets"}
"""Statements of which only a part of the model follows: a count for one rank. A log that differs in these alone is `open`."""

RATE_AGREES = 0.02
"""Two rates are the same statement within this share."""


class Truth(StrEnum):
    """What a verdict must be. `remark`: passed is right, but only with a remark about it."""

    PASS = "must pass"
    NOT_PASS = "must not pass"
    REMARK = "must not pass silently"
    OPEN = "open"


@dataclass(frozen=True)
class Made:
    """A log with its truth. `note` says what was done, `remark` is the pattern of a remark that would do.

    `seconds` is how long the job took by its own account, None for the time of its steps and a start-up.
    """

    text: str
    truth: Truth
    note: str = ""
    remark: str = ""
    seconds: float | None = None


Maker = Callable[[Cell, random.Random], Made | None]
"""None where the class says nothing about the cell."""

KINDS: dict[str, Maker] = {}


def kind(name: str) -> Callable[[Maker], Maker]:
    """Registers a class of cases by its name."""

    def registered(maker: Maker) -> Maker:
        assert name not in KINDS, name
        KINDS[name] = maker
        return maker

    return registered


def made(cell: Cell, job: Job, truth: Truth, note: str = "") -> Made:
    return Made(cell.render(job).text(), truth, note)


def told(cell: Cell, job: Job) -> tuple[Truth, str]:
    """Whether the log of this job, which ran something else, states so: must not pass, or open."""
    pretended = replace(
        job, case=cell.case, gpu=cell.gpu, per_node=cell.per_node, job_id="4711", announced=None
    )
    keys = differing(cell.render(job), cell.render(pretended))
    weak = set(WEAK)
    if job.case.gpus < cell.case.gpus:
        # A group of some of the processes is no contradiction; one of more than all is.
        weak.add("nranks")
    strong = sorted(keys - weak)
    if strong:
        return Truth.NOT_PASS, "told by " + ", ".join(strong)
    return Truth.OPEN, "told weakly by " + ", ".join(sorted(keys)) if keys else "told by nothing"


def differing(one: Page, other: Page) -> set[str]:
    """What both logs state, in two ways."""
    found = set()
    for key in one.tells.keys() & other.tells.keys():
        mine, theirs = one.tells[key], other.tells[key]
        if isinstance(mine, float) and isinstance(theirs, float):
            if abs(mine - theirs) > RATE_AGREES * theirs:
                found.add(key)
        elif mine != theirs:
            found.add(key)
    return found
