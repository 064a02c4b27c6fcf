"""Cases: one recipe x size x dtype x number of GPUs, made from `suites/<recipe>/*.yaml` alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import replace
from functools import lru_cache
from itertools import product
from pathlib import Path

from plugins.errors import ConfigError
from plugins.recipes.file import CHECKPOINT
from plugins.recipes.file import Checkpoint
from plugins.recipes.file import Group
from plugins.recipes.file import Measure
from plugins.recipes.file import Model
from plugins.recipes.file import PublishedSave
from plugins.recipes.file import RecipeFile
from plugins.recipes.file import SiteModel
from plugins.recipes.file import read_recipe
from plugins.recipes.file import read_releases
from plugins.recipes.megatron import broken_rules
from plugins.recipes.megatron import padded_vocabulary
from plugins.recipes.megatron import parameters

DEFAULT_GPU = "h100"
"""The type of GPU where nothing names one: a look at the matrix without a site, logs without a site file."""


@dataclass(frozen=True, repr=False)
class Case:
    """One cell of a recipe's matrix, with its whole configuration.

    `gbs` is the global batch size in sequences, `mbs` the micro batch size, `tp` `pp` `cp` `vp` `fsdp` `dp` the
    tensor, pipeline, context, virtual pipeline, fully sharded and (replicated) data parallel sizes, `ga` the
    gradient accumulation steps. `gpus_per_node`, `profiled`, `smoothing`, `interval` and `measure` as in
    `plugins.recipes.file.Matrix`, `averaged` as in its `Group`. `variant` is the further way to run that it stands for, "" for the recipe's usual one.
    `parameters` are those of the whole model, where the recipe's names do not tell them. `checkpoint` is for a case that
    writes one, and times that alone: the bytes that it should have; `published_saves` are others' times for one.
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
    interval: int = 1
    averaged: int = 1
    measure: Measure | None = None
    variant: str = ""
    parameters: int | None = None
    checkpoint: int | None = None
    published_saves: tuple[PublishedSave, ...] = ()

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

    @property
    def span(self) -> int:
        """The steps that each time which is judged is the mean over: those of a line, or those that printed means go over."""
        return max(self.interval, self.averaged)

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

    def identity(self) -> dict[str, int | str]:
        """The configuration with the whole model: what a number that a site recorded must agree with."""
        return {**self.configuration(), **self.model.model_dump()}

    def facts(self) -> dict[str, int | str]:
        """What a log may state of its run: the configuration, the model's shape and the arithmetic.

        `precision` is that of what an FP8 run does not compute in FP8.
        """
        return {
            **self.identity(),
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
        return self.file.contract != ""

    def case(self, case_id: str) -> Case | None:
        return next((case for case in self.cases if case.id == case_id), None)


@lru_cache
def load_recipe(
    folder: Path, release: str | None = None, gpu: str = DEFAULT_GPU, models: tuple[SiteModel, ...] = ()
) -> Recipe:
    """Read the recipe in `folder`: the cases of `release` (None: of `recipe.yaml`) on this type of GPU.

    `models` are those that the site adds; their cases come last.

    Where there is no such release, or it runs nothing on this GPU, the recipe comes with other cases and `unfit`.

    Raises:
        ConfigError: a key is wrong, or a line of `cases` or one of `models` cannot be run (a size without a model, a
            world size that does not divide), with the arithmetic.
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
    cases = [case for group in groups for case in _expand(f"{path}: cases: size {group.size}", file, group)]
    for own in models:
        label = f"the site's recipes.{file.recipe}.models: size {own.size}"
        cases += _expand(label, *_with(label, file, own))
    twice = {case_id for case_id, count in Counter(case.id for case in cases).items() if count > 1}
    if twice:
        also = f" and the site's recipes.{file.recipe}.models" if models else ""
        raise ConfigError(f"{path}: cases{also}: {', '.join(sorted(twice))} given twice")
    return Recipe(folder, path, file, tuple(cases), unfit)


def _with(label: str, file: RecipeFile, own: SiteModel) -> tuple[RecipeFile, Group]:
    """A recipe with a model of the site's own, and the line of `cases` for it."""
    common = file.own_models
    if common is None:
        raise ConfigError(f"{label}: {file.recipe} runs its own models only; take it out")
    model = Model(
        layers=own.layers,
        hidden=own.hidden,
        ffn=4 * own.hidden,
        heads=own.heads,
        query_groups=own.heads,
        vocab=padded_vocabulary(common.tokens, common.pad_to, own.tp),
        mlp=common.mlp,
    )
    group = Group(
        size=own.size,
        dtype=common.dtype,
        gpus=list(own.gpus),
        sequence_length=own.sequence_length,
        tp=own.tp,
        pp=own.pp,
        mbs=own.mbs,
        gbs=own.gbs,
        gbs_per_gpu=own.gbs_per_gpu,
        variants=common.variants,
    )
    return file.model_copy(update={"models": {**file.models, own.size: model}}), group


def _expand(label: str, file: RecipeFile, group: Group) -> Iterator[Case]:
    """The cases of a line of `cases`: the usual ones, each before the one that writes its checkpoint, then their variants."""
    model_name = group.model or group.size
    if model_name not in file.models:
        raise ConfigError(f"{label}: no model '{model_name}'; known: {', '.join(file.models)}")
    if (group.gbs is None) == (group.gbs_per_gpu is None):
        raise ConfigError(f"{label}: give either gbs or gbs_per_gpu")
    model = file.models[model_name]
    if group.layers is not None:
        model = model.model_copy(update={"layers": group.layers})
    if file.rules and (
        broken := broken_rules(model, group.sequence_length, tp=group.tp, pp=group.pp, vp=group.vp)
    ):
        raise ConfigError("\n".join(f"{label}: {rule}" for rule in broken))
    for variant, dtype, gpus in product(("", *group.variants), group.dtype, group.gpus):
        case = Case(
            recipe=file.recipe,
            release=file.release,
            size=f"{group.size}-{variant}" if variant else group.size,
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
            interval=file.interval,
            averaged=group.averaged,
            measure=file.measure,
            variant=variant,
            parameters=parameters(model, group.sequence_length) if file.rules else None,
        )
        yield case
        if file.checkpoint is not None and not variant:
            yield _writing(case, file.checkpoint)


def _writing(case: Case, checkpoint: Checkpoint) -> Case:
    """The case that writes the checkpoint of `case`. How large its steps are does not matter, so they are small."""
    assert case.parameters is not None
    return replace(
        case,
        size=f"{case.size}-{CHECKPOINT}",
        steps=checkpoint.steps,
        gbs=case.mbs * case.fsdp * case.dp,
        variant=CHECKPOINT,
        checkpoint=round(checkpoint.bytes_per_parameter * case.parameters),
        published_saves=checkpoint.published,
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
