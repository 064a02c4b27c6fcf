"""Cases: one recipe x size x dtype x number of GPUs, made from `suites/<recipe>/*.yaml` alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from plugins.errors import ConfigError
from plugins.recipefile import Group
from plugins.recipefile import Launch as Launch
from plugins.recipefile import Model
from plugins.recipefile import RecipeFile
from plugins.recipefile import read_recipe
from plugins.recipefile import read_releases

DEFAULT_GPU = "h100"
"""The type of GPU where nothing names one: a look at the matrix without a site, logs without a site file."""


@dataclass(frozen=True, repr=False)
class Case:
    """One cell of a recipe's matrix, with its whole configuration.

    `gbs` is the global batch size in sequences, `mbs` the micro batch size, `tp` `pp` `cp` `vp` `fsdp` `dp` the
    tensor, pipeline, context, virtual pipeline, fully sharded and (replicated) data parallel sizes, `ga` the
    gradient accumulation steps. `gpus_per_node`, `profiled` and `smoothing` as in `plugins.recipefile.Matrix`.
    """

    recipe: str
    release: str
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
    smoothing: int = 1

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

    def facts(self) -> dict[str, int | str]:
        """What a log may state of its run: the configuration, the model's shape and the arithmetic.

        `precision` is that of what an FP8 run does not compute in FP8.
        """
        model = self.model
        return {
            **self.configuration(),
            "hidden": model.hidden,
            "ffn": model.ffn,
            "heads": model.heads,
            "query_groups": model.query_groups,
            "fp8": self.dtype == "fp8",
            "precision": "bf16" if self.dtype == "fp8" else self.dtype,
        }


@dataclass(frozen=True)
class Recipe:
    """A recipe folder, read for one release and type of GPU: its cases, in the order of the file at `path`.

    `unfit` says why they are not those that were asked for, in words for the user; "" when they are.
    """

    folder: Path
    path: Path
    file: RecipeFile
    cases: tuple[Case, ...]
    unfit: str = ""

    @property
    def name(self) -> str:
        return self.file.recipe

    @property
    def launches(self) -> bool:
        """Whether there is something to run, or only logs to judge."""
        return getattr(self.file, self.file.contract) is not None

    def case(self, case_id: str) -> Case | None:
        return next((case for case in self.cases if case.id == case_id), None)


@lru_cache
def load_recipe(folder: Path, release: str | None = None, gpu: str = DEFAULT_GPU) -> Recipe:
    """Read the recipe in `folder`: the cases of `release` (None: of `recipe.yaml`) on this type of GPU.

    Where there is no such release, or it runs nothing on this GPU, the recipe comes with other cases and `unfit`.

    Raises:
        ConfigError: a key is wrong, or a line of `cases` cannot be run (a size without a model, a world size
            that does not divide), with the arithmetic.
    """
    path, file, unfit = folder / "recipe.yaml", read_recipe(folder), ""
    if release not in (None, file.release):
        known = read_releases(folder, file)
        if release in known:
            path, file = known[release]
        else:
            unfit = f"{file.recipe} has no release {release}; it has {', '.join(known)}"
    groups = [group for group in file.cases if not group.gpu or gpu in group.gpu]
    if not groups:
        named = list(dict.fromkeys(name for group in file.cases for name in group.gpu))
        groups = [group for group in file.cases if named[0] in group.gpu]
        unfit = f"{file.recipe} release {file.release} runs nothing on {gpu}, only on {', '.join(named)}"
    cases = tuple(case for group in groups for case in _expand(path, file, group))
    twice = {case_id for case_id, count in Counter(case.id for case in cases).items() if count > 1}
    if twice:
        raise ConfigError(f"{path}: cases: {', '.join(sorted(twice))} given twice")
    return Recipe(folder, path, file, cases, unfit)


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
                release=file.release,
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
                smoothing=file.smoothing,
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
