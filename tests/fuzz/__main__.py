"""Draws logs, judges them and counts: `python -m tests.fuzz --logs 3000 --seed 1`."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz import cells
from tests.fuzz.kinds import KINDS
from tests.fuzz.run import Result, fuzz, one

COLUMNS = ("judged", "passed", "wrong pass", "wrong failure", "crash")


def table(results: Sequence[Result]) -> str:
    """A line for each class and dialect."""
    lines = [f"{'class':30} {'dialect':16}" + "".join(f"{column:>14}" for column in COLUMNS)]
    groups = {(kind, dialect): Counter[str]() for kind in KINDS for dialect in cells.DIALECTS}
    for result in results:
        groups[result.kind, result.dialect].update({"judged": 1, result.fault or result.verdict: 1})
    total = sum(groups.values(), Counter[str]())
    for (kind, dialect), counts in [*groups.items(), (("all", ""), total)]:
        if counts:
            lines.append(f"{kind:30} {dialect:16}" + "".join(f"{counts[column]:14}" for column in COLUMNS))
    return "\n".join(lines)


def keep(result: Result, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{result.kind}-{result.dialect}-{result.seed}"
    (folder / f"{name}.log").write_bytes(result.text.encode())
    (folder / f"{name}.txt").write_text(f"{result}\n")


def main() -> int:
    """0 where no log passed wrongly and none crashed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    add = parser.add_argument
    add("--logs", type=int, default=1000, help="how many logs (1000)")
    add("--seed", type=int, default=1, help="another seed, other logs (1)")
    add("--class", dest="kinds", action="append", choices=sorted(KINDS), help="this class only")
    add(
        "--dialect",
        dest="dialects",
        action="append",
        choices=sorted(cells.DIALECTS),
        help="this dialect only",
    )
    add("--only", type=int, metavar="NUMBER", help="the one log of this number, of one class and dialect")
    add("--keep", type=Path, metavar="FOLDER", help="save the logs that were judged wrongly")
    given = parser.parse_args()
    kinds, dialects = given.kinds or list(KINDS), given.dialects or list(cells.DIALECTS)
    if given.only is None:
        results = list(fuzz(given.logs, given.seed, kinds, dialects))
    else:
        made = [one(kind, dialect, given.only) for kind in kinds for dialect in dialects]
        results = [result for result in made if result is not None]
    for result in results:
        if result.fault or given.only is not None:
            print(result)
            if given.keep:
                keep(result, given.keep)
    print(table(results))
    return 1 if any(result.fault in ("wrong pass", "crash") for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
