"""A baselines file: tables of published numbers, with all that makes them comparable; data sheets of accelerators.

If a table has no source, release or definition, or lacks a number, it is refused when it is read. There are
no placeholders.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from plugins.base.errors import ConfigError
from plugins.base.words import counted
from plugins.base.yamlfile import GpuType, Stated, Strict, load
from plugins.baselines.metrics import FlopsDefinition
from plugins.recipes.models import Mlp
from plugins.record.baseline import Recorded, Statistic, Tolerance

CONFIGURATION = (
    *("sequence_length", "layers", "tp", "pp", "cp", "vp", "ep", "fsdp", "dp", "mbs", "gbs", "ga"),
    *("hidden", "ffn", "heads", "query_groups", "vocab", "mlp", "experts", "top_k"),
)
"""What a cell may state of the configuration of its run, by the names that a case has for it."""


class Cell(Strict):
    """One line of a table, as published. Seconds, tokens/s, TFLOP/s, percent, days; `n/a` if the source prints that.

    The configuration is required, because a number applies to one configuration only; it is compared with the
    case's. If a site recorded the number, the cell states the model's shape too, because an edited model
    keeps its name.
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
    hidden: int | None = None
    ffn: int | None = None
    heads: int | None = None
    query_groups: int | None = None
    vocab: int | None = None
    mlp: Mlp | None = None
    experts: int | None = None
    top_k: int | None = None
    ep: int | None = None
    step_time: float | None = Field(default=None, gt=0)
    tokens_per_second: float | None = Field(default=None, gt=0)
    tokens_per_second_per_gpu: float | None = Field(default=None, gt=0)
    tflops_per_gpu: float | None = Field(default=None, gt=0)
    mfu: float | None = Field(default=None, gt=0, lt=100)
    days_per_1t_tokens: float | Literal["n/a"] | None = None
    tolerance: Tolerance | None = None
    line: int | None = Field(default=None, gt=0)
    note: str | None = None
    recorded: Recorded | None = None

    @property
    def expired(self) -> bool:
        return self.recorded is not None and self.recorded.status == "expired"

    @property
    def configuration(self) -> dict[str, int | str]:
        """The part of `CONFIGURATION` that this cell states."""
        return {key: getattr(self, key) for key in CONFIGURATION if getattr(self, key) is not None}

    def unlike(self, ran: Mapping[str, int | str]) -> str:
        """The first key whose value differs between this cell and a run's configuration; "" if they agree."""
        return next((key for key, value in self.configuration.items() if ran.get(key) != value), "")


class Reference(Strict):
    """Somebody's figure for this size and dtype. It is shown beside a judgement and never judged.

    `name` says who measured it with what, `gpus` on how many GPUs.
    """

    name: Stated
    size: str
    dtype: str
    gpus: int = Field(gt=0)
    tokens_per_second_per_gpu: float = Field(gt=0)
    source: Stated
    note: str | None = None


Primary = Literal["step_time", "tokens_per_second_per_gpu", "tflops_per_gpu"]


class Table(Strict):
    """Cells of one source, release and type of GPU, all measured and computed in the same way.

    `also` names later releases whose source prints the same cells. `peak` maps a dtype to TFLOP/s per GPU, or
    is `measured`: then each run measures the peak of its own machine, MFU is the primary number, and no step
    time is published. If the published MFU of a size is known to use a wrong definition of FLOPs,
    `corrected_flops` has the right one: the MFU by it is shown beside the published one and never judged.

    `primary` is the published figure that a case is judged by, and the step time follows from it. A cell without it
    is judged by its TFLOP/s. `line` of a cell is its line in the source.

    `versions` are those that its numbers were measured with. A run with others gets a remark.

    `product` is the rate of a long bf16 matrix product on a healthy GPU of this type in TFLOP/s, for recipes that
    measure it beside their steps; `all_reduce` the bus bandwidth of 1 GiB between healthy GPUs of a node in GB/s.
    """

    release: Stated
    also: list[Stated] = []
    gpu: GpuType
    framework: Stated
    source: Stated
    statistic: str
    primary: Primary = "step_time"
    peak: dict[str, Annotated[float, Field(gt=0)]] | Literal["measured"]
    flops: dict[str, FlopsDefinition]
    corrected_flops: dict[str, FlopsDefinition] = {}
    versions: dict[str, Stated] = {}
    product: float | None = Field(default=None, gt=0)
    all_reduce: float | None = Field(default=None, gt=0)
    tolerance: Tolerance = Tolerance()
    notes: list[str] = []
    references: list[Reference] = []
    cells: list[Cell] = Field(min_length=1)

    def is_of(self, release: str) -> bool:
        return release in (self.release, *self.also)

    @model_validator(mode="after")
    def _complete(self) -> Table:
        try:
            Statistic.parse(self.statistic)
        except ConfigError as error:
            raise ValueError(str(error)) from None
        sizes = {cell.size for cell in self.cells}
        for key, named in (
            ("corrected_flops", set(self.corrected_flops)),
            ("references", {reference.size for reference in self.references}),
        ):
            unknown = sorted(named - sizes)
            if unknown:
                raise ValueError(f"{key}: no cell has the size {', '.join(unknown)}")
        for cell in self.cells:
            reason = self._lacks(cell)
            if reason:
                raise ValueError(f"cell {cell.size} {cell.dtype} {counted(cell.gpus, 'GPU')}: {reason}")
        return self

    def _lacks(self, cell: Cell) -> str:
        """What a cell of this table lacks, or has too much; "" if nothing."""
        if cell.size not in self.flops:
            return f"no FLOPs definition for {cell.size}; add it to `flops`"
        if self.peak == "measured":
            if cell.mfu is None:
                return "mfu is required, because the peak is measured"
            return "a table with its peak measured holds MFU only, not step_time" if cell.step_time else ""
        if cell.dtype not in self.peak:
            return f"no peak for {cell.dtype}; add it to `peak`"
        if self.primary != "step_time":
            missing = getattr(cell, self.primary) is None and cell.tflops_per_gpu is None
            return f"{self.primary} or tflops_per_gpu is required; leave no placeholder" if missing else ""
        if None in (cell.step_time, cell.tokens_per_second):
            return "step_time and tokens_per_second are required; leave no placeholder"
        return "mfu is required" if cell.mfu is None else ""


class Lacking(Strict):
    """Cases for which no number was published, and the reason."""

    release: Stated
    gpu: GpuType
    size: str
    dtype: str
    gpus: list[int]
    reason: Stated


class BaselineFile(Strict):
    """`baselines/<recipe>.yaml`, or a site's own `baselines/sites/<site>/<recipe>.yaml`.

    `lacking` says of cases why no table has a number for them.
    """

    recipe: str
    tables: list[Table] = []
    lacking: list[Lacking] = []

    @model_validator(mode="after")
    def _says_something(self) -> BaselineFile:
        if not self.tables and not self.lacking:
            raise ValueError("give `tables`, or say in `lacking` which cases have no number")
        return self


@lru_cache
def load_baselines(path: Path) -> BaselineFile:
    """Read a baselines file. Raises ConfigError with the line of each mistake or placeholder."""
    return load(path, BaselineFile)


ACCELERATORS = "accelerators.yaml"
NO_TABLES = (ACCELERATORS, "causes.yaml", "infrastructure.yaml")
"""The files beside the tables of recipes."""


class Accelerator(Strict):
    """The dense peak of an accelerator in TFLOP/s per GPU, by dtype. NVLink connects `nvlink` GPUs.

    `nvlink_gb_per_second` is what NVLink moves from one GPU in GB/s, and as much to it at the same time: half of the
    data sheet's figure, which is of both. `clock_mhz` is the SM clock at which it has that peak.
    """

    name: str
    peak: dict[str, Annotated[float, Field(gt=0)]]
    nvlink: int = Field(default=1, gt=0)
    nvlink_gb_per_second: float | None = Field(default=None, gt=0)
    clock_mhz: float | None = Field(default=None, gt=0)
    source: Stated


class AcceleratorFile(Strict):
    """`baselines/accelerators.yaml`."""

    accelerators: dict[GpuType, Accelerator]


@lru_cache
def accelerators(folder: Path) -> dict[str, Accelerator]:
    """The data sheets in this folder, by the type of GPU. Raises ConfigError with the line of each mistake."""
    return load(folder / ACCELERATORS, AcceleratorFile).accelerators
