"""Baselines: the numbers a case should reach, where they come from, and which definitions they use.

A table without its source, release, definitions or a number is refused when it is read; there are no placeholders.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated
from typing import Literal

from pydantic import AfterValidator
from pydantic import Field
from pydantic import model_validator

from plugins.cases import Case
from plugins.cases import Recipe
from plugins.errors import ConfigError
from plugins.metrics import FlopsDefinition
from plugins.metrics import Statistic
from plugins.metrics import Yardstick
from plugins.metrics import days_per_1t_tokens
from plugins.metrics import flops_per_sequence
from plugins.metrics import mfu
from plugins.metrics import tokens_per_second
from plugins.yamlfile import Strict
from plugins.yamlfile import load


def _stated(text: str) -> str:
    if text.strip(" .?-").lower() in ("", "tbd", "todo", "n/a", "none", "unknown", "placeholder", "xxx"):
        raise ValueError("a placeholder; say where the numbers come from")
    return text


Stated = Annotated[str, AfterValidator(_stated)]
"""A text that says something."""


class Tolerance(Strict):
    """How far a run may be off, as shares of the baseline's throughput, and how restless it may be.

    `spread` is the largest robust relative standard deviation of the last steps, `hiccups` the largest share of
    settled steps that stand far above the median.
    """

    slower: float = Field(default=0.05, gt=0, lt=1)
    faster: float = Field(default=0.10, gt=0)
    spread: float = Field(default=0.05, gt=0)
    hiccups: float = Field(default=0.08, gt=0, lt=1)


class Cell(Strict):
    """One line of a table, as published. Seconds, tokens/s, percent, days; `n/a` where the source prints that.

    Without its configuration a number belongs to nothing, so that is required and compared with the case's.
    """

    size: str
    dtype: str
    gpus: int
    tp: int
    pp: int
    cp: int
    vp: int
    mbs: int
    gbs: int
    sequence_length: int | None = None
    layers: int | None = None
    fsdp: int | None = None
    dp: int | None = None
    ga: int | None = None
    step_time: float | None = Field(default=None, gt=0)
    tokens_per_second: float | None = Field(default=None, gt=0)
    mfu: float = Field(gt=0, lt=100)
    days_per_1t_tokens: float | Literal["n/a"] | None = None
    tolerance: Tolerance | None = None
    note: str | None = None


class Table(Strict):
    """Cells of one source, release and GPU type, measured and computed in one way.

    `peak` maps a dtype to TFLOP/s per GPU, or is `measured`: then the run measures its own machine's peak, MFU is
    the primary number, and no step time is published. `corrected_flops` is the right definition for sizes whose
    published MFU is known to use a wrong one: a second figure beside the published kind, which is never judged.
    `also` names later releases whose source prints the very same cells.
    """

    release: Stated
    also: list[Stated] = []
    gpu: Stated
    framework: Stated
    source: Stated
    statistic: str
    peak: dict[str, Annotated[float, Field(gt=0)]] | Literal["measured"]
    flops: dict[str, FlopsDefinition]
    corrected_flops: dict[str, FlopsDefinition] = {}
    tolerance: Tolerance = Tolerance()
    notes: list[str] = []
    cells: list[Cell] = Field(min_length=1)

    @model_validator(mode="after")
    def _complete(self) -> Table:
        try:
            Statistic.parse(self.statistic)
        except ConfigError as error:
            raise ValueError(str(error)) from None
        unknown = sorted(set(self.corrected_flops) - {cell.size for cell in self.cells})
        if unknown:
            raise ValueError(f"corrected_flops: no cell has the size {', '.join(unknown)}")
        for cell in self.cells:
            name = f"cell {cell.size} {cell.dtype} {cell.gpus} GPUs"
            if cell.size not in self.flops:
                raise ValueError(f"{name}: no FLOPs definition for {cell.size}; add it to `flops`")
            if self.peak == "measured":
                if cell.step_time is not None:
                    raise ValueError(f"{name}: a table with its peak measured holds MFU only, not step_time")
            elif cell.dtype not in self.peak:
                raise ValueError(f"{name}: no peak for {cell.dtype}; add it to `peak`")
            elif cell.step_time is None or cell.tokens_per_second is None:
                raise ValueError(
                    f"{name}: step_time and tokens_per_second are required; leave no placeholder"
                )
        return self


class BaselineFile(Strict):
    """`baselines/<recipe>.yaml`."""

    recipe: str
    tables: list[Table] = Field(min_length=1)


class Accelerator(Strict):
    """Dense peak of an accelerator by dtype, TFLOP/s per GPU."""

    name: str
    peak: dict[str, float]
    source: str


class AcceleratorFile(Strict):
    """`baselines/accelerators.yaml`."""

    accelerators: dict[str, Accelerator]


@dataclass(frozen=True)
class Baseline:
    """A cell with its table and file: what one case is judged against."""

    path: Path
    table: Table
    cell: Cell

    @property
    def tolerance(self) -> Tolerance:
        return self.cell.tolerance or self.table.tolerance

    @property
    def statistic(self) -> Statistic:
        return Statistic.parse(self.table.statistic)

    @property
    def origin(self) -> str:
        """Where the number comes from, in one line."""
        table = self.table
        also = f" (printed again in {', '.join(table.also)})" if table.also else ""
        return f"{table.framework} release {table.release}{also} on {table.gpu}, {table.source}"


@lru_cache
def load_baselines(path: Path) -> BaselineFile:
    """Read a baselines file; a mistake or a placeholder is a ConfigError with its line."""
    return load(path, BaselineFile)


def find(folder: Path, recipe: Recipe, case: Case, gpu: str) -> Baseline | None:
    """The baseline of `case`, in its release, on this type of GPU in `folder`; None when there is none.

    Raises:
        ConfigError: two tables have the cell, or its configuration is not the one that the recipe runs: then
            the number says nothing about the case.
    """
    path = folder / f"{recipe.name}.yaml"
    if not path.exists():
        return None
    file = load_baselines(path)
    if file.recipe != recipe.name:
        raise ConfigError(f"{path}: recipe is '{file.recipe}', but the file is named after '{recipe.name}'")
    found = [
        Baseline(path, table, cell)
        for table in file.tables
        if table.gpu == gpu and case.release in (table.release, *table.also)
        for cell in table.cells
        if (cell.size, cell.dtype, cell.gpus) == (case.size, case.dtype, case.gpus)
    ]
    if len(found) > 1:
        raise ConfigError(
            f"{path}: {case.id} of release {case.release} on {gpu} has {len(found)} baselines; keep one"
        )
    if not found:
        return None
    for key, value in case.configuration().items():
        stated = getattr(found[0].cell, key)
        if stated is not None and stated != value:
            raise ConfigError(
                f"{path}: {case.id}: the baseline was measured with {key} {stated}, but "
                f"{recipe.name}/{recipe.path.relative_to(recipe.folder)} runs {key} {value}; make them agree"
            )
    beyond = found[0].statistic.indices(case.steps)[-1]
    if beyond >= case.steps:
        raise ConfigError(
            f"{path}: {case.id}: statistic {found[0].statistic} needs step {beyond}, but the recipe ends at step "
            f"{case.steps - 1}"
        )
    return found[0]


def yardstick(
    case: Case, baseline: Baseline | None, gpu: str, folder: Path, measured_peak: float | None
) -> Yardstick | None:
    """What MFU is counted with: the baseline's own definitions, so that both figures compare.

    Without a baseline: full attention and the data sheet's peak. None when no peak is known at all.
    `measured_peak` (TFLOP/s per GPU) is what the run itself measured, for a table that says so.
    """
    definition = FlopsDefinition(definition="full-attention")
    if measured_peak is not None and not 0 < measured_peak < math.inf:
        measured_peak = None
    peak: float | None
    if baseline is not None:
        definition = baseline.table.flops[case.size]
        table_peak = baseline.table.peak
        peak = measured_peak if isinstance(table_peak, str) else table_peak[case.dtype]
    else:
        known = load(folder / "accelerators.yaml", AcceleratorFile).accelerators.get(gpu)
        peak = measured_peak or (known.peak.get(case.dtype) if known else None)
    if peak is None:
        return None
    return Yardstick(flops_per_sequence(case.model, case.sequence_length, definition), definition, peak)


@dataclass(frozen=True)
class Expected:
    """What a case should reach: `step_time` in s; tokens/s, MFU and days follow by the baseline's definitions.

    `corrected` counts MFU by the right FLOPs where the baseline's are known to be wrong; None elsewhere.
    """

    case: Case
    baseline: Baseline
    step_time: float
    yardstick: Yardstick
    corrected: Yardstick | None = None

    @property
    def tokens_per_second(self) -> float:
        return tokens_per_second(self.case, self.step_time)

    @property
    def mfu(self) -> float:
        return mfu(self.case, self.step_time, self.yardstick)

    @property
    def days_per_1t_tokens(self) -> float:
        return days_per_1t_tokens(self.case, self.step_time)

    def corrected_mfu(self, step_time: float) -> float | None:
        """MFU in percent by the corrected definition, for this step time in s; never judged."""
        return mfu(self.case, step_time, self.corrected) if self.corrected else None


def expected(case: Case, baseline: Baseline, stick: Yardstick) -> Expected:
    """The expectation for `case`: the published step time, or the one that follows from a published MFU."""
    published = baseline.cell.step_time
    if published is None:
        flops_of_a_step = case.gbs * stick.flops / case.gpus
        published = flops_of_a_step / (baseline.cell.mfu / 100 * stick.peak_tflops * 1e12)
    corrected = None
    if (right := baseline.table.corrected_flops.get(case.size)) is not None:
        flops = flops_per_sequence(case.model, case.sequence_length, right)
        corrected = Yardstick(flops, right, stick.peak_tflops)
    return Expected(case, baseline, published, stick, corrected)
