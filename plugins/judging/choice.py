"""How a session chooses and judges the cases of a recipe: what its options and its site file say of that. Pure."""

import operator
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from plugins.base.yamlfile import Strict
from plugins.recipes.cases import DEFAULT_GPU, Case, Recipe
from plugins.recipes.models import SiteModel
from plugins.record.baseline import AgreedTolerance


class Choice(Strict):
    """The cases are those of this `release`, the recipe's own if it is None, on this type of `gpu`. `models` are those that
    the site adds. `promised` is the bandwidth of its shared storage in bytes/s. `network` is how NCCL names the
    network between its nodes, which have `gpus_per_node` GPUs. `versions` are those that the site file states. With
    `strict_last` the published statistic alone decides.

    `own` is the folder of the site's own baselines, "" if there are none or none count. `agreed` is the tolerance
    of an acceptance plan. With `by_expected`, the plan promises that a case without a number is decided by its expected
    range.
    """

    release: str | None = None
    gpu: str = DEFAULT_GPU
    models: tuple[SiteModel, ...] = Field(default=(), strict=False)
    promised: float | None = None
    network: str | None = None
    gpus_per_node: int = Field(default=8, gt=0)
    versions: dict[str, str] = {}
    strict_last: bool = False
    own: str = ""
    agreed: AgreedTolerance | None = None
    by_expected: bool = Field(default=False, exclude_if=operator.not_)

    def gpu_of(self, case: Case) -> str:
        """The type of accelerator whose baselines the case is judged against."""
        return "cpu" if case.accelerator == "cpu" else self.gpu


@dataclass(frozen=True)
class Setting:
    """How the cases of a recipe are judged: by the session's choice for it, and this folder of published baselines."""

    recipe: Recipe
    choice: Choice
    baselines: Path


MAX_RUNS = 3
"""A case runs at most this often if nobody says how often."""


@dataclass(frozen=True)
class Repeats:
    """A case runs at most `at_most` times: only until its runs decide, or always so often if `always`.

    If the last run does not decide either, the runs are judged as they are.
    """

    at_most: int = MAX_RUNS
    always: bool = False
