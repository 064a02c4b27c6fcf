"""Draws logs and judges them."""

from __future__ import annotations

import datetime
import random
import re
import traceback
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from plugins.logs.formats import read
from plugins.record.job import Job, JobRef, JobState, Phase, Times
from plugins.record.outcome import Outcome
from tests.fuzz import broken, cells, health, identity, pace
from tests.fuzz.cells import Cell
from tests.fuzz.kinds import KINDS, Made, Truth
from tests.printed.run import DAY, JOB_ID
from tests.unit import examples

MODULES = (health, pace, identity, broken)
"""Those that register classes."""

TRIES = 40
"""So many cells are drawn until one is of the class."""

STARTUP = 300.0
"""What a job takes besides its steps, in s."""


@dataclass(frozen=True)
class Result:
    """What became of one log. `fault` is "wrong pass", "wrong failure", "crash" or ""."""

    kind: str
    dialect: str
    seed: int
    cell: str
    truth: Truth
    note: str
    verdict: str
    headline: str
    fault: str
    text: str

    def __str__(self) -> str:
        return (
            f"{self.fault}: --class {self.kind} --dialect {self.dialect} --only {self.seed}\n    {self.cell}; {self.note}\n"
            f"    {self.truth}; {self.verdict}: {self.headline}"
        )


def outcome(cell: Cell, seconds: float) -> Outcome:
    """A job that ended well after so many seconds; it began when the stamps in its log do."""
    start = DAY.replace(tzinfo=datetime.UTC).timestamp()
    nodes = f"gpu[001-{cell.case.nodes(cell.per_node):03d}]"
    job = Job(
        ref=JobRef(cell.case.recipe, cell.case.id, "pacemark-1." + cell.case.recipe, JOB_ID),
        state=JobState(Phase.SUCCEEDED, "COMPLETED", nodes=nodes, exit_code="0:0"),
        times=Times(start - 60, start, start + seconds),
    )
    folder = Path("results/run") / cell.case.recipe / cell.case.id
    return Outcome(cell.gpu, folder, Path("log.txt"), job)


def pieces(text: str, rng: random.Random) -> Iterator[bytes]:
    """The log as it is read from a disk or a socket: in chunks that end anywhere."""
    data = text.encode()
    size = rng.choice((len(data) or 1, 65536, 4099, 1000))
    for start in range(0, len(data), size):
        yield data[start : start + size]


def one(kind: str, dialect: str, seed: int) -> Result | None:
    """Make and judge one log; None where the class says nothing about this dialect."""
    rng = random.Random(zlib.crc32(f"{kind} {dialect}".encode()) * 1_000_003 + seed)
    for _ in range(TRIES):
        cell = cells.draw(rng, dialect)
        found = KINDS[kind](cell, rng)
        if found is not None:
            break
    else:
        return None
    try:
        verdict, headline, said = judged(cell, found, rng)
    except Exception:  # whatever it is, it is what is looked for
        verdict, headline, said = "crash", traceback.format_exc(limit=-3), ""
    fault = faulty(found, verdict, said)
    return Result(
        kind, dialect, seed, cell.name, found.truth, found.note, verdict, headline, fault, found.text
    )


def judged(cell: Cell, made: Made, rng: random.Random) -> tuple[str, str, str]:
    """Verdict, headline and remarks."""
    log = read(cell.dialect, pieces(made.text, rng))
    seconds = STARTUP + cell.target * cell.case.steps * 1.1 if made.seconds is None else made.seconds
    judgement = examples.judged(cell.case, outcome(cell, seconds), log, cell.baseline)
    verdict = judgement.verdict
    return str(verdict.kind), verdict.headline, "\n".join(map(str, verdict.remarks))


def faulty(made: Made, verdict: str, remarks: str) -> str:
    if verdict == "crash":
        return "crash"
    if made.truth is Truth.PASS and verdict != "passed":
        return "wrong failure"
    if verdict != "passed":
        return ""
    if made.truth is Truth.NOT_PASS or (made.truth is Truth.REMARK and not re.search(made.remark, remarks)):
        return "wrong pass"
    return ""


def fuzz(logs: int, seed: int, kinds: Sequence[str] = (), dialects: Sequence[str] = ()) -> Iterator[Result]:
    """So many logs, the classes and dialects in turn. Which log a number stands for does not depend on how many are asked for."""
    pairs = [(kind, dialect) for kind in kinds or KINDS for dialect in dialects or cells.DIALECTS]
    count, idle, turn = 0, 0, 0
    while count < logs and idle < 50 * len(pairs):
        kind, dialect = pairs[turn % len(pairs)]
        result = one(kind, dialect, seed * 1_000_000 + turn // len(pairs))
        turn += 1
        if result is None:
            idle += 1
            continue
        count, idle = count + 1, 0
        yield result
