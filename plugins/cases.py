"""Cases: one recipe x size x dtype x number of GPUs, made from `suites/<recipe>/recipe.yaml` alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated
from typing import Literal

from pydantic import Field
from pydantic import model_validator

from plugins.errors import ConfigError
from plugins.yamlfile import Strict
from plugins.yamlfile import load


class Model(Strict):
    """The shape of a decoder; names as in the published configurations.

    `mlp` tells whether the MLP has a gate (three matrices, SwiGLU) or not (two, squared ReLU).
    """

    layers: int = Field(gt=0)
    hidden: int = Field(gt=0)
    ffn: int = Field(gt=0)
    heads: int = Field(gt=0)
    query_groups: int = Field(gt=0)
    vocab: int = Field(gt=0)
    mlp: Literal["gated", "squared-relu"] = "gated"


class Group(Strict):
    """Cells that share one configuration: a line of the table `cases` in a recipe.

    `model` names the entry of `models` where `size` does not (a proxy: the same model with fewer `layers`).
    The global batch size (sequences per step) is given outright or per GPU. `fsdp` shards parameters and batch
    over this many GPUs; what is left of the GPUs holds replicas.
    """

    size: str
    model: str | None = None
    dtype: list[Literal["fp8", "bf16", "fp32"]] = Field(min_length=1)
    gpus: list[Annotated[int, Field(gt=0)]] = Field(min_length=1)
    sequence_length: int = Field(gt=0)
    layers: int | None = Field(default=None, gt=0)
    tp: int = Field(default=1, gt=0)
    pp: int = Field(default=1, gt=0)
    cp: int = Field(default=1, gt=0)
    vp: int = Field(default=1, gt=0)
    fsdp: int = Field(default=1, gt=0)
    mbs: int = Field(gt=0)
    gbs: int | None = Field(default=None, gt=0)
    gbs_per_gpu: float | None = Field(default=None, gt=0)
    accelerator: Literal["gpu", "cpu"] = "gpu"


class Requirement(Strict):
    """Something that must be there before a launch: a path (or a shell test) and the command that mends it."""

    what: str
    path: str | None = None
    test: str | None = None
    mend: str


class Launch(Strict):
    """The contract of a recipe's own launcher: what is run where, with which environment, and where its log goes.

    The backend fills in `{names}`: quoted in `command`, `setup` and `requires.test`, which are bash, as they are
    elsewhere. `folder` is the recipe's folder below its stage. `stage` is a folder of the recipe's own below the
    site's stage, for a recipe whose set-up writes there under names that others use too. `venv` activates a Python
    virtual environment first. `setup` is run in the recipe's folder and prints the id of a job.

    `job_id` is a pattern in what `command` prints. The log's folder is known beforehand (`log_folder`) or printed
    as well (`log_folder_printed`, a pattern). `log_name` is a pattern of `{name}` and `{job}`; its group, if it
    has one, is the number of restarts.
    """

    folder: str
    stage: str = ""
    working_folder: str = "{recipe}"
    venv: bool = False
    command: str
    setup: str | None = None
    environment: dict[str, str]
    unset: list[str] = []
    secrets: list[str] = []
    requires: list[Requirement] = []
    job_id: str
    log_folder: str | None = None
    log_folder_printed: str | None = None
    log_name: str

    @model_validator(mode="after")
    def _one_log_folder(self) -> Launch:
        if (self.log_folder is None) == (self.log_folder_printed is None):
            raise ValueError(
                "give either log_folder (known beforehand) or log_folder_printed (by the launcher)"
            )
        return self


class RecipeFile(Strict):
    """`recipe.yaml`: what is run, and how its launcher wants to be called.

    `replay` finds a case's log in a tree of logs: a pattern for the end of a path, with `{model}`, `{dtype}` and
    `{gpus}` filled in, and the groups `job` and, where the name has it, `restart`.
    `gpus_per_node` is given where the recipe's own rules (global batch size, sharding) hold on such nodes only.
    `profiled` is for a recipe that itself profiles a few early steps of the published run.
    """

    recipe: str
    title: str
    backend: Literal["slurm", "local"]
    source: str
    log: Literal["nemo1", "nemo2", "maxtext", "megatron_lm", "megatron_bridge", "dllogger"]
    steps: int = Field(gt=1)
    gpus_per_node: int | None = Field(default=None, gt=0)
    profiled: bool = False
    startup_minutes: float = Field(ge=0)
    models: dict[str, Model]
    cases: list[Group] = Field(min_length=1)
    launch: Launch | None = None
    program: str | None = None
    replay: str | None = None


@dataclass(frozen=True, repr=False)
class Case:
    """One cell of a recipe's matrix, with its whole configuration.

    `gbs` is the global batch size in sequences, `mbs` the micro batch size, `tp` `pp` `cp` `vp` `fsdp` `dp` the
    tensor, pipeline, context, virtual pipeline, fully sharded and (replicated) data parallel sizes, `ga` the
    gradient accumulation steps. `gpus_per_node` and `profiled` as in `RecipeFile`.
    """

    recipe: str
    size: str
    dtype: str
    gpus: int
    accelerator: str
    model_name: str
    model: Model
    sequence_length: int
    steps: int
    tp: int
    pp: int
    cp: int
    vp: int
    fsdp: int
    mbs: int
    gbs: int
    gpus_per_node: int | None = None
    profiled: bool = False

    def __repr__(self) -> str:
        return f"<case {self.key}>"

    @property
    def id(self) -> str:
        """`70b-fp8-512gpus`, the pytest id."""
        return f"{self.size}-{self.dtype}-{self.gpus}gpus"

    @property
    def key(self) -> str:
        """`llama3/70b-fp8-512gpus`, unique in a session and the name in every record."""
        return f"{self.recipe}/{self.id}"

    @property
    def dp(self) -> int:
        return self.gpus // (self.tp * self.pp * self.cp * self.fsdp)

    @property
    def ga(self) -> int:
        return self.gbs // (self.mbs * self.dp * self.fsdp)

    @property
    def tokens_per_step(self) -> int:
        return self.gbs * self.sequence_length

    def nodes(self, gpus_per_node: int) -> int:
        return math.ceil(self.gpus / gpus_per_node)

    def configuration(self) -> dict[str, int]:
        """What a baseline must agree with before its numbers say anything about this case."""
        return {
            "sequence_length": self.sequence_length,
            "layers": self.model.layers,
            "tp": self.tp,
            "pp": self.pp,
            "cp": self.cp,
            "vp": self.vp,
            "fsdp": self.fsdp,
            "dp": self.dp,
            "mbs": self.mbs,
            "gbs": self.gbs,
            "ga": self.ga,
        }


@dataclass(frozen=True)
class Recipe:
    """A recipe folder: its file and the cases that follow from it, in the file's order."""

    folder: Path
    file: RecipeFile
    cases: tuple[Case, ...]

    @property
    def name(self) -> str:
        return self.file.recipe

    def case(self, case_id: str) -> Case | None:
        return next((case for case in self.cases if case.id == case_id), None)


@lru_cache
def load_recipe(folder: Path) -> Recipe:
    """Read `folder/recipe.yaml`.

    Raises:
        ConfigError: a key is wrong, or a line of `cases` cannot be run (a size without a model, a world size
            that does not divide), with the arithmetic.
    """
    path = folder / "recipe.yaml"
    file = load(path, RecipeFile)
    if (file.launch is None) == (file.program is None):
        raise ConfigError(
            f"{path}: give either `launch` (a cluster's recipe) or `program` (run on this machine)"
        )
    cases = tuple(case for group in file.cases for case in _expand(path, file, group))
    twice = {case.id for case in cases if sum(other.id == case.id for other in cases) > 1}
    if twice:
        raise ConfigError(f"{path}: cases: {', '.join(sorted(twice))} given twice")
    return Recipe(folder, file, cases)


def _expand(path: Path, file: RecipeFile, group: Group) -> Iterator[Case]:
    label = f"{path}: cases: size {group.size}"
    model_name = group.model or group.size
    if model_name not in file.models:
        raise ConfigError(f"{label}: no model '{model_name}'; known: {', '.join(file.models)}")
    if (group.gbs is None) == (group.gbs_per_gpu is None):
        raise ConfigError(f"{label}: give either gbs or gbs_per_gpu")
    model = file.models[model_name]
    if group.layers is not None:
        model = model.model_copy(update={"layers": group.layers})
    for dtype in group.dtype:
        for gpus in group.gpus:
            yield Case(
                recipe=file.recipe,
                size=group.size,
                dtype=dtype,
                gpus=gpus,
                accelerator=group.accelerator,
                model_name=model_name,
                model=model,
                sequence_length=group.sequence_length,
                steps=file.steps,
                tp=group.tp,
                pp=group.pp,
                cp=group.cp,
                vp=group.vp,
                fsdp=group.fsdp,
                mbs=group.mbs,
                gbs=_global_batch_size(label, group, gpus),
                gpus_per_node=file.gpus_per_node,
                profiled=file.profiled,
            )


def _global_batch_size(label: str, group: Group, gpus: int) -> int:
    """Sequences a step on this many GPUs; a ConfigError where the parallel sizes do not divide."""
    gbs = group.gbs if group.gbs is not None else (group.gbs_per_gpu or 0) * gpus
    shards = group.tp * group.pp * group.cp * group.fsdp
    if gpus % shards:
        raise ConfigError(f"{label}: {gpus} GPUs are not a multiple of tp x pp x cp x fsdp = {shards}")
    batch = group.mbs * group.fsdp * (gpus // shards)
    if gbs != int(gbs) or int(gbs) % batch:
        raise ConfigError(f"{label}: gbs {gbs:g} is not a multiple of mbs x fsdp x dp = {batch}")
    return int(gbs)
