"""Cases: one recipe, size, dtype, number of GPUs and variant each, made from YAML alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path

from plugins.errors import ConfigError
from plugins.logs.means import SINGLE, Means
from plugins.recipes.file import (
    Checkpoint,
    Group,
    Measure,
    Model,
    PublishedSave,
    RecipeFile,
    SiteModel,
    Variant,
    read_recipe,
    read_releases,
)
from plugins.recipes.megatron import broken_rules, padded_vocabulary, parameters

MOST_CASES = 10_000
"""A recipe has no more, with those of the site's models."""

DEFAULT_GPU = "h100"
"""If nothing names the type of GPU, as without a site file, it is this one."""


@dataclass(frozen=True, repr=False)
class Case:
    """One case of a recipe, with its whole configuration.

    Parallelism: `tp`, `pp`, `cp`, `vp`, `fsdp` and `dp` are the tensor, pipeline, context, virtual pipeline,
    fully sharded and (replicated) data parallel sizes. `gpus_per_node` is as in
    `plugins.recipes.file.Matrix`.

    If `one_node`, the case runs on one node, and may leave some of its GPUs unused.

    Batches: `gbs` is the global batch size in sequences, `mbs` the micro batch size, `ga` the number of
    gradient accumulation steps.

    Measuring: `profiled`, `means` and `measure` are as in `Matrix`.

    `variant` is the recipe's further way to run the case, or "" for its usual one; `mode` is what it is, if
    not its pace is judged but what it leaves on the cluster. `parameters` is the number
    of parameters of the whole model, if the recipe's names do not state it.

    If the case writes a checkpoint, only the checkpoint is timed: `checkpoint` is its expected size in bytes,
    `published_saves` are the times that others published. If it loads one, `after` is the case that writes
    it, and `loads` the path on the cluster, once that is known.
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
    one_node: bool = False
    profiled: bool = False
    means: Means = SINGLE
    measure: Measure | None = None
    variant: str = ""
    mode: Variant | None = None
    parameters: int | None = None
    checkpoint: int | None = None
    published_saves: tuple[PublishedSave, ...] = ()
    after: Case | None = None
    loads: str = ""

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
    def is_timed(self) -> bool:
        """Whether its pace is judged. If not, what it leaves on the cluster is."""
        return self.mode is None

    @property
    def leaves_files(self) -> bool:
        """Whether it is judged by files that it leaves on the cluster."""
        return self.mode is not None and self.mode.leaves_files

    @property
    def leaves_checkpoint(self) -> bool:
        """Whether it leaves a checkpoint on the cluster, to be removed at the end."""
        return self.leaves_files and self.checkpoint is not None

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

    def options(self) -> list[str]:
        """The command line of a recipe's own `program`, without the program."""
        given = {
            "size": self.size,
            "dtype": self.dtype,
            "layers": self.model.layers,
            "hidden": self.model.hidden,
            "ffn": self.model.ffn,
            "heads": self.model.heads,
            "query-groups": self.model.query_groups,
            "vocab": self.model.vocab,
            "seq-len": self.sequence_length,
            "mlp": self.model.mlp,
            "experts": self.model.experts,
            "top-k": self.model.top_k,
            "gpus": self.gpus,
            "fsdp": self.fsdp,
            "mbs": self.mbs,
            "ga": self.ga,
            "steps": self.steps,
        }
        return [word for key, value in given.items() for word in (f"--{key}", str(value))]

    def configuration(self) -> dict[str, int]:
        """The values that a baseline must agree with before its numbers apply to this case."""
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
        """The configuration and the model's shape. A number that a site recorded must agree with both."""
        return {**self.configuration(), **self.model.model_dump()}

    def facts(self) -> dict[str, int | str]:
        """What a log may state of its run: the configuration, the model's shape, the dtype and the micro batch.

        In an FP8 run, `precision` is the precision of the operations that are not in FP8. `micro_batch` is of all
        GPUs; `sequences_per_gpu` is the part of a GPU, if that is a whole number.
        """
        micro_batch = self.mbs * self.dp * self.fsdp
        each = {} if micro_batch % self.gpus else {"sequences_per_gpu": micro_batch // self.gpus}
        return {
            **self.identity(),
            "micro_batch": micro_batch,
            **each,
            "fp8": self.dtype == "fp8",
            "precision": "bf16" if self.dtype == "fp8" else self.dtype,
        }


@dataclass(frozen=True)
class Recipe:
    """A recipe folder, read for one release and type of GPU: its cases, in the order of the file at `path`.

    If the recipe does not run on what was asked for, these are other cases, and `unfit` tells the user why.
    Otherwise `unfit` is "".
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
        """Whether the recipe can be launched. If not, it only has logs to judge."""
        return self.file.contracts != ()

    def read_files(self) -> dict[str, str]:
        """The files that a cluster is sent, by name. Raises ConfigError if one cannot be read."""
        try:
            return {name: (self.folder / name).read_text(encoding="utf-8") for name in self.file.files}
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self.path}: files: {error}") from None

    def environment(self, case: Case) -> dict[str, str]:
        """The variables that a case's program has, wherever it runs."""
        return self.file.cpu_environment if case.accelerator == "cpu" else {}

    def case(self, case_id: str) -> Case | None:
        """The case of this id. `<id>/<mode>`, the id of a diagnosis' job, is the case in that mode."""
        own, _, mode = case_id.partition("/")
        found = next((case for case in self.cases if case.id == own), None)
        return self.in_mode(found, mode) if found is not None and mode else found

    def diagnostic_modes(self, case: Case) -> tuple[Case, ...]:
        """The same case in the modes that tell the cause of its pace: profile and NCCL trace."""
        names = [name for name, v in self.file.variants.items() if v.profiles is not None or v.nccl_trace]
        return tuple(found for name in names if (found := self.in_mode(case, name)) is not None)

    def in_mode(self, case: Case, mode: str) -> Case | None:
        """The same case in another mode, such as `profile`; None if it has no such mode."""
        size = f"{case.size}-{mode}"
        wanted = (mode, size, case.dtype, case.gpus)
        return next((c for c in self.cases if (c.variant, c.size, c.dtype, c.gpus) == wanted), None)


def same_reports(one: Case, other: Case) -> bool:
    """Whether jobs of both cases write reports of the same names into the same folder.

    If a recipe tells its reports by their kinds, all jobs of a scale do, also those that are timed.
    """
    by_kinds = any(case.mode and case.mode.profiles and case.mode.profiles.kinds for case in (one, other))
    scales = {(case.recipe, case.dtype, case.model_name, case.gpus) for case in (one, other)}
    return by_kinds and len(scales) == 1


@lru_cache
def load_recipe(
    folder: Path, release: str | None = None, gpu: str = DEFAULT_GPU, models: tuple[SiteModel, ...] = ()
) -> Recipe:
    """Read the recipe in `folder`: the cases of `release` on this type of GPU.

    If `release` is None, it is that of `recipe.yaml`. `models` are those that the site adds; their cases come
    last. If the recipe has no such release, or the release has no cases for this GPU, the recipe is read with
    other cases, and its `unfit` says why.

    Raises:
        ConfigError: a key is wrong, or a line of `cases` or one of `models` cannot run (a size without a
            model, a number of GPUs that the parallel sizes do not divide). The message has the arithmetic.
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
    scales = sum(len(group.dtype) * len(group.gpus) for group in groups) + sum(
        len(own.gpus) for own in models
    )
    if scales * (1 + len(file.variants)) > MOST_CASES:
        raise ConfigError(f"{path}: cases: are more than {MOST_CASES:,} with all variants")
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
    """The recipe with a model that the site adds, and the line of `cases` for this model."""
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
    """The cases of a line of `cases`: the usual ones, then the variants."""
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
    modes = [name for name, variant in file.variants.items() if variant.is_mode]
    made: dict[tuple[str, str, int], Case] = {}
    for variant, dtype, gpus in product(("", *group.variants, *modes), group.dtype, group.gpus):
        mode = file.variants[variant] if variant in modes else None
        if mode is not None and not mode.has(group.size, gpus):
            continue
        saves = mode.checkpoint if mode is not None else None
        first = made.get((mode.after, dtype, gpus)) if mode is not None and mode.after else None
        if mode is not None and mode.after and first is None:
            raise ConfigError(
                f"{label}: {variant} on {gpus} GPUs loads what {mode.after} saves, which comes later in `variants`, or has no such scale"
            )
        own = parameters(model, group.sequence_length) if file.rules else None
        gbs = _global_batch_size(label, group, gpus)
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
            steps=(mode and mode.steps) or group.steps or file.steps,
            tp=group.tp,
            pp=group.pp,
            cp=group.cp,
            vp=group.vp,
            fsdp=group.fsdp,
            mbs=group.mbs,
            gbs=group.mbs * (gpus // (group.tp * group.pp * group.cp))
            if saves and saves.small_batches
            else gbs,
            gpus_per_node=file.gpus_per_node,
            one_node=file.one_node,
            profiled=file.profiled,
            means=file.means_of(group.means),
            measure=file.measure,
            variant=variant,
            mode=mode,
            parameters=own,
            checkpoint=_size(saves, group.size, own) if saves is not None else None,
            published_saves=saves.published if saves is not None else (),
            after=first,
        )
        made[variant, dtype, gpus] = case
        yield case


def _size(checkpoint: Checkpoint, size: str, parameters: int | None) -> int:
    """The bytes of a checkpoint, of a model of this size and with so many parameters."""
    if checkpoint.bytes_per_parameter is not None:
        assert parameters is not None
        return round(checkpoint.bytes_per_parameter * parameters)
    return round(checkpoint.gibibytes[size] * 2**30)


def _global_batch_size(label: str, group: Group, gpus: int) -> int:
    """The sequences of a step on this many GPUs. Raises ConfigError if the parallel sizes do not divide."""
    gbs = group.gbs if group.gbs is not None else (group.gbs_per_gpu or 0) * gpus
    shards = group.tp * group.pp * group.cp * group.fsdp
    if gpus % shards:
        raise ConfigError(f"{label}: {gpus} GPUs are not a multiple of tp x pp x cp x fsdp = {shards}")
    batch = group.mbs * group.fsdp * (gpus // shards)
    if gbs != int(gbs) or int(gbs) % batch:
        raise ConfigError(f"{label}: gbs {gbs:g} is not a multiple of mbs x fsdp x dp = {batch}")
    return int(gbs)
