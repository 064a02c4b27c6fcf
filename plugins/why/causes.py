"""The tables of `why`: known causes with their prices, and what upstream states of the published cells' machines."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, model_validator

from plugins.base.yamlfile import Stated, Strict, load
from plugins.recipes.cases import Case

Version = Annotated[str, Field(pattern=r"^\d+(\.\d+)*$")]


class Cell(NamedTuple):
    """The published cell that a run is compared with: its case, on this type of GPU, on so many nodes."""

    case: Case
    gpu: str
    nodes: int


class About(Strict):
    """Which cells something is about. What is not named may be anything."""

    recipes: list[str] = []
    releases: list[str] = []
    gpus: list[str] = []
    sizes: list[str] = []
    dtypes: list[str] = []
    scale_from: int = Field(default=1, gt=0)
    """On at least so many GPUs."""
    nodes_from: int = Field(default=1, gt=0)
    """On at least so many nodes."""

    def holds(self, cell: Cell) -> bool:
        case = cell.case
        values = (case.recipe, case.release, cell.gpu, case.size, case.dtype)
        known = (self.recipes, self.releases, self.gpus, self.sizes, self.dtypes)
        named = all(not each or value in each for value, each in zip(values, known, strict=True))
        return named and case.gpus >= self.scale_from and cell.nodes >= self.nodes_from


class Line(Strict):
    """A line of a log. The fact's value is the pattern's first group, or all that it matches."""

    hint: Annotated[str, Field(min_length=8)]
    pattern: re.Pattern[str]


class Need(Strict):
    """A fact that a cause needs, by one of its names. Without a test the published cell must state another value."""

    fact: list[str] = Field(min_length=1)
    matches: re.Pattern[str] | None = None
    """A value that this matches as a whole."""
    least: Version | None = None
    below: Version | None = None

    def met_by(self, value: str) -> bool:
        if self.matches is not None:
            return self.matches.fullmatch(value) is not None
        number = numbers(value)
        return numbers(self.least or "0") <= number and (not self.below or () < number < numbers(self.below))


class Price(Strict):
    """What a cause has cost. A: a training step, paired, on one machine; B: collectives; C: worth a look, without a figure."""

    evidence: Literal["A", "B", "C"]
    figure: str = ""
    shape: str = ""

    @model_validator(mode="after")
    def _of_its_class(self) -> Price:
        if bool(self.figure and self.shape) == (self.evidence == "C") or bool(self.figure) != bool(
            self.shape
        ):
            raise ValueError("classes A and B need figure and shape, class C has neither")
        return self

    @property
    def text(self) -> str:
        kind = {"A": "", "B": "collectives by ", "C": "worth a look"}[self.evidence]
        return kind + (f"{self.figure} ({self.shape})" if self.figure else "")


class Cause(Strict):
    """What may make a run slow: it fires if all its needs are met in a cell that it is about."""

    what: Stated
    needs: list[Need] = Field(min_length=1)
    about: About = About()
    price: Price | None = None
    source: Stated
    mend: Stated = Field(alias="try")


class Causes(Strict):
    """`baselines/causes.yaml`."""

    lines: dict[str, Line]
    causes: list[Cause]


class Told(Strict):
    """What upstream states, and the line of the source."""

    value: str | int | float
    line: int = Field(gt=0)


class Setting(Strict):
    """A variable as upstream's launcher sets it in these cells."""

    name: str
    value: str
    about: About
    source: Stated


class Infrastructure(Strict):
    """`baselines/infrastructure.yaml`. What upstream does not state is not there. Of `software`, the oldest versions."""

    source: Stated
    software: dict[str, Told]
    machines: dict[str, dict[str, Told]]
    settings: list[Setting]


class Tables(NamedTuple):
    causes: Causes
    infrastructure: Infrastructure


@lru_cache
def read_tables(baselines: Path) -> Tables:
    """Raises ConfigError with the line of each mistake."""
    infrastructure = load(baselines / "infrastructure.yaml", Infrastructure)
    return Tables(load(baselines / "causes.yaml", Causes), infrastructure)


def numbers(version: str) -> tuple[int, ...]:
    """`2.21.5+cuda12.4` in numbers, `(2, 21, 5)`; empty if it does not begin with one."""
    match = re.match(r"\d{1,19}(?:\.\d{1,19}){0,5}", version, re.ASCII)
    return tuple(map(int, match[0].split("."))) if match else ()
