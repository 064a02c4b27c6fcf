"""What differs between a run and its published cell, as the rows of a table. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from plugins.why.causes import Cause, Cell, Need, Tables, numbers
from plugins.why.facts import SIZES, Fact

_NO_PRICE, _NOT_STATED, _AS_RECIPE = "no known price", "not stated", "as its launcher sets it"


class Row(NamedTuple):
    """A difference. `evidence` is the class of its price, "" if none is known; `source` has the price, `mend` is what to try."""

    what: str
    this_run: str
    published: str
    price: str
    read_from: str
    evidence: str = ""
    source: str = ""
    mend: str = ""


class Comparison(NamedTuple):
    """The differences, those with a price first; the names of facts that agree, and of those that nothing here tells of the run."""

    rows: list[Row]
    agree: list[str]
    unread: list[str]


class _Published(NamedTuple):
    """What a cell has: this value, or for software at least this version."""

    value: str
    least: bool = False

    def agrees(self, fact: Fact) -> bool:
        if self.least:
            return all(numbers(value) >= numbers(self.value) for value in fact.values)
        return fact.values == (self.value,)


def compare(cell: Cell, facts: Mapping[str, Fact], tables: Tables) -> Comparison:
    """What these facts of a run have in common with its cell, and where they differ."""
    published = dict(_published(cell, tables))
    agree = [name for name, each in published.items() if name in facts and each.agrees(facts[name])]
    rows, priced = [], set[str]()
    for cause in tables.causes.causes:
        found = [_met(need, facts, published) for need in cause.needs if cause.about.holds(cell)]
        met = [fact for fact in found if fact]
        if met and len(met) == len(cause.needs):
            rows.append(_row_of(cause, met, published))
            priced |= {fact.name for fact in met}
    for name, fact in facts.items():
        if name not in priced and name not in agree and (name in published or fact.changed):
            rows.append(
                Row(name, ", ".join(fact.values), _cell_has([fact], published), _NO_PRICE, fact.place)
            )
    machine = tables.infrastructure.machines.get(cell.gpu, {})
    unread = [name for name in (*published, *machine) if name not in facts and name not in SIZES]
    return Comparison(sorted(rows, key=lambda row: row.evidence or "no price"), agree, unread)


def _published(cell: Cell, tables: Tables) -> Iterator[tuple[str, _Published]]:
    yield "GPU", _Published(cell.gpu)
    for name, version in tables.infrastructure.software.items():
        yield name, _Published(str(version.value), least=True)
    for name, value in cell.case.facts().items():
        if name in SIZES:
            yield name, _Published(str(value))
    for setting in tables.infrastructure.settings:
        if setting.about.holds(cell):
            yield setting.name, _Published(setting.value)


def _met(need: Need, facts: Mapping[str, Fact], published: Mapping[str, _Published]) -> Fact | None:
    """The fact that meets a need. What the published cell has too is no cause."""
    for fact in (facts[name] for name in need.fact if name in facts):
        cell = published.get(fact.name)
        has_too = cell is not None and not cell.least and cell.agrees(fact)
        if (
            not has_too
            and (cell or need.matches or need.least or need.below)
            and any(map(need.met_by, fact.values))
        ):
            return fact
    return None


def _row_of(cause: Cause, found: list[Fact], published: Mapping[str, _Published]) -> Row:
    ran = "; ".join(f"{fact.name} {', '.join(fact.values)}" for fact in found)
    places = ", ".join(dict.fromkeys(fact.place for fact in found))
    price, evidence = (cause.price.text, cause.price.evidence) if cause.price else (_NO_PRICE, "")
    return Row(
        cause.what, ran, _cell_has(found, published), price, places, evidence, cause.source, cause.mend
    )


def _cell_has(facts: list[Fact], published: Mapping[str, _Published]) -> str:
    for fact in facts:
        cell = published.get(fact.name)
        if cell and not cell.agrees(fact):
            return f"{cell.value} or newer" if cell.least else cell.value
    return _AS_RECIPE if any(fact.changed for fact in facts) else _NOT_STATED
