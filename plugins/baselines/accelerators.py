"""The data sheets of accelerators: `baselines/accelerators.yaml`."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Annotated

from pydantic import Field

from plugins.yamlfile import Stated, Strict, load

ACCELERATORS = "accelerators.yaml"


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

    accelerators: dict[str, Accelerator]


@lru_cache
def accelerators(folder: Path) -> dict[str, Accelerator]:
    """The data sheets in this folder, by the type of GPU. Raises ConfigError with the line of each mistake."""
    return load(folder / ACCELERATORS, AcceleratorFile).accelerators
