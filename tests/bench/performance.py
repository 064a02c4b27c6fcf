"""The history of the benches, `history.jsonl`, and the section of docs/dev/performance.md that shows it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tests import sections
from tests.bench.benches import BENCHES, Bench
from tests.bench.report import Figure

HISTORY = Path(__file__).with_name("history.jsonl")
DOCUMENT = Path(__file__).parents[2] / "docs" / "dev" / "performance.md"
SECTION = "performance"

# So many runs stand beside the last one.
_BEFORE = 3

# Of a bench with more figures than this, those that reach their goals are only counted.
_MANY = 12


@dataclass(frozen=True)
class Entry:
    """A run of a bench. `machine` names the processors, `load` is the load average before it."""

    date: str
    machine: str
    load: float
    bench: str
    figures: tuple[Figure, ...]

    @property
    def when(self) -> str:
        return f"{self.date}, {self.machine}, load {self.load:g}"


def history() -> list[Entry]:
    """All runs, oldest first."""
    lines = HISTORY.read_text(encoding="utf-8").splitlines() if HISTORY.exists() else []
    rows = [json.loads(line) for line in lines]
    return [Entry(**{**row, "figures": tuple(Figure(**figure) for figure in row["figures"])}) for row in rows]


def keep(entry: Entry) -> None:
    """Append a run to the history, and write the section anew."""
    with HISTORY.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(entry)) + "\n")
    page = DOCUMENT.read_text(encoding="utf-8")
    DOCUMENT.write_text(sections.replaced(page, SECTION, text(history())), encoding="utf-8")


def text(entries: Iterable[Entry]) -> str:
    """What stands in the section."""
    entries = list(entries)
    return "\n".join(line for bench in BENCHES for line in _part(bench, entries)).strip("\n")


def _part(bench: Bench, entries: list[Entry]) -> Iterator[str]:
    runs = [entry for entry in entries if entry.bench == bench.name][-_BEFORE - 1 :]
    yield from ("", f"## `{bench.name}`", "", f"{bench.what}.")
    yield f"Its exact counts: {', '.join(f'`tests/{path}`' for path in bench.guards)}."
    if not runs:
        yield from ("", "No run of it is in the history yet.")
        return
    *before, last = runs
    yield from ("", f"Last run: {last.when}.", "")
    yield "| figure or goal | goal reached | last run | before, oldest first |"
    yield "| --- | --- | --- | --- |"
    reached = [figure for figure in last.figures if figure.met]
    shown = last.figures
    if len(shown) > _MANY:
        shown = tuple(figure for figure in shown if not figure.met)
        yield f"| goals | {len(reached)} of {len(last.figures)} | | |"
    for figure in shown:
        past = [_in(run, figure.what) for run in before]
        met = {True: "yes", False: "no", None: ""}[figure.met]
        yield f"| {figure.what} | {met} | {figure.figure} | {'; '.join(filter(None, past))} |"


def _in(entry: Entry, what: str) -> str:
    """The same figure in another run; "" if that has none."""
    return next((figure.figure for figure in entry.figures if figure.what == what), "")
