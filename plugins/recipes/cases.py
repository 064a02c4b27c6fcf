"""Cases: one recipe, size, dtype, number of GPUs and variant each, made from YAML alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Literal

from plugins.errors import ConfigError
from plugins.isolation import PROOF
from plugins.logs.means import SINGLE, Means
from plugins.recipes.megatron import broken_rules, padded_vocabulary, parameters
from plugins.recipes.models import Group, Measure, Model, SiteModel
from plugins.recipes.recipe_file import RecipeFile, read_recipe, read_releases
from plugins.recipes.variants import Checkpoint, PublishedSave, Variant
from plugins.record.job import screened_node

MOST_CASES = 10_000
"""A recipe has no more, with those of the site's models."""

DEFAULT_GPU = "h100"
"""If nothing names the type of GPU, as without a site file, it is this one."""


DTYPES: dict[str, dict[str, int | str]] = {
    **{dtype: {"fp8": False, "precision": dtype} for dtype in ("bf16", "fp16", "fp32")},
    "fp8": {"fp8": True, "precision": "bf16"},
    "fp8_cs": {"fp8": True, "fp8_recipe": "tensorwise", "precision": "bf16"},
    "fp8_block": {"fp8": True, "fp8_recipe": "blockwise", "precision": "bf16"},
    "mxfp8": {"fp8": True, "fp8_recipe": "mxfp8", "precision": "bf16"},
    "nvfp4": {"fp8": "fp4", "precision": "bf16"},
}
"""What a log may state of its dtype: `fp8_recipe` is what a scale of FP8 is of, by Transformer Engine's names."""

DROPPING = "1.0"
"""The capacity of experts in runs that drop tokens: so many times an even share."""


@dataclass(frozen=True, repr=False)
class Case:
    """One case of a recipe, with its whole configuration.

    Parallelism: `tp`, `pp`, `cp`, `vp`, `ep`, `fsdp` and `dp` are the tensor, pipeline, context, virtual pipeline,
    expert, fully sharded and (replicated) data parallel sizes. `gpus_per_node` is as in
    `plugins.recipes.recipe_file.Matrix`.

    If `one_node`, the case runs on one node, and may leave some of its GPUs unused. `node` is the one that the
    case screens, "" if the cluster chooses it.

    Experts: if the case `drops_tokens`, a token that an expert has no room for passes by it.

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
    ep: int = 1
    drops_tokens: bool = False
    gpus_per_node: int | None = None
    one_node: bool = False
    node: str = ""
    profiled: bool | Literal["setting"] = False
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
        """`70b-fp8-512gpus`, and behind a point the node that it screens."""
        scale = f"{self.size}-{self.dtype}-{self.gpus}gpus"
        return f"{scale}.{self.node}" if self.node else scale

    @property
    def test_id(self) -> str:
        """The id of its test."""
        return self.node or self.id

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
    def reports(self) -> str:
        """The name of the profiler's reports of this scale."""
        return f"the reports of {self.recipe}, {self.model_name} in {self.dtype} on {self.gpus} GPUs"

    @property
    def names_reports_by_kind(self) -> bool:
        """Whether the recipe tells its reports by their kinds: then all jobs of a scale, also timed ones, write the same names."""
        return bool(self.mode and self.mode.profiles and self.mode.profiles.kinds)

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
        options = {
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
        return [word for key, value in options.items() for word in (f"--{key}", str(value))]

    def configuration(self) -> dict[str, int]:
        """The values that a baseline must agree with before its numbers apply to this case.

        The expert parallel size is among them if experts are spread over GPUs.
        """
        experts = {"ep": self.ep} if self.ep > 1 else {}
        return {
            "sequence_length": self.sequence_length,
            "layers": self.model.layers,
            "tp": self.tp,
            "pp": self.pp,
            "cp": self.cp,
            "vp": self.vp,
            **experts,
            "fsdp": self.fsdp,
            "dp": self.dp,
            "mbs": self.mbs,
            "gbs": self.gbs,
            "ga": self.ga,
        }

    def identity(self) -> dict[str, int | str]:
        """The configuration and the model's shape. A number that a site recorded must agree with both."""
        return {**self.configuration(), **self.model.model_dump(exclude={"blocks"})}

    def facts(self) -> dict[str, int | str]:
        """What a log may state of its run: the configuration, the model's shape, its routing, the dtype and the micro batch.

        Whether a run that drops tokens also `balanced` its experts by force is not published. In a run of fewer bits,
        `precision` is the precision of all other operations. `micro_batch` is of all GPUs; `sequences_per_gpu` is the
        part of a GPU, if that is a whole number.
        """
        micro_batch = self.mbs * self.dp * self.fsdp
        facts: dict[str, int | str] = {
            **self.identity(),
            "ep": self.ep,
            "micro_batch": micro_batch,
            "sharded": self.fsdp > 1,
            **DTYPES[self.dtype],
        }
        if self.model.blocks and self.model.experts > 1:
            # The FFN size that the log states is of no layer, or of a few.
            del facts["ffn"]
        if self.model.experts > 1:
            facts["expert_capacity"] = DROPPING if self.drops_tokens else "none"
        if self.model.experts > 1 and not self.drops_tokens:
            facts["balanced"] = True
        if micro_batch % self.gpus == 0:
            facts["sequences_per_gpu"] = micro_batch // self.gpus
        return facts


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
        """The case of this id. `<id>/<mode>`, the id of a diagnosis' job, is the case in that mode; `<id>/proof` is the case itself."""
        node = screened_node(case_id)
        if node:
            usual = self.case(case_id.removesuffix(f".{node}"))
            return usual and replace(usual, node=node)
        timed, _, mode = case_id.partition("/")
        case = next((case for case in self.cases if case.id == timed), None)
        if case is None or mode in ("", PROOF):
            return case
        return self.in_mode(case, mode)

    def diagnostic_modes(self, case: Case) -> tuple[Case, ...]:
        """The same case in the modes that tell the cause of its pace: profile and NCCL trace."""
        names = [name for name, v in self.file.variants.items() if v.profiles is not None or v.nccl_trace]
        return tuple(mode for mode in (self.in_mode(case, name) for name in names) if mode is not None)

    def in_mode(self, case: Case, mode: str) -> Case | None:
        """The same case in another mode, such as `profile`; None if it has no such mode."""
        size = f"{case.size}-{mode}"
        wanted = (mode, size, case.dtype, case.gpus)
        return next((c for c in self.cases if (c.variant, c.size, c.dtype, c.gpus) == wanted), None)


def same_reports(first: Case, second: Case) -> bool:
    """Whether jobs of both cases write reports of the same names into the same folder."""
    by_kind = first.names_reports_by_kind or second.names_reports_by_kind
    return by_kind and first.reports == second.reports


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
    scales = sum(len(group.dtype) * len(group.gpus) for group in groups)
    scales += sum(len(model.gpus) for model in models)
    if scales * (1 + len(file.variants)) > MOST_CASES:
        raise ConfigError(f"{path}: cases: are more than {MOST_CASES:,} with all variants")
    cases = [case for group in groups for case in _expand(f"{path}: cases: size {group.size}", file, group)]
    for model in models:
        label = f"the site's recipes.{file.recipe}.models: size {model.size}"
        cases += _expand(label, *_with(label, file, model))
    twice = {case_id for case_id, count in Counter(case.id for case in cases).items() if count > 1}
    if twice:
        also = f" and the site's recipes.{file.recipe}.models" if models else ""
        raise ConfigError(f"{path}: cases{also}: {', '.join(sorted(twice))} given twice")
    return Recipe(folder, path, file, tuple(cases), unfit)


def _with(label: str, file: RecipeFile, added: SiteModel) -> tuple[RecipeFile, Group]:
    """The recipe with a model that the site adds, and the line of `cases` for this model."""
    common = file.own_models
    if common is None:
        raise ConfigError(f"{label}: {file.recipe} runs its own models only; take it out")
    model = Model(
        layers=added.layers,
        hidden=added.hidden,
        ffn=4 * added.hidden,
        heads=added.heads,
        query_groups=added.heads,
        vocab=padded_vocabulary(common.tokens, common.pad_to, added.tp),
        mlp=common.mlp,
    )
    shared = added.model_dump(include={"size", "sequence_length", "tp", "pp", "mbs", "gbs", "gbs_per_gpu"})
    group = Group(dtype=common.dtype, gpus=list(added.gpus), variants=common.variants, **shared)
    return file.model_copy(update={"models": {**file.models, added.size: model}}), group


def _expand(label: str, file: RecipeFile, group: Group) -> Iterator[Case]:
    """The cases of a line of `cases`: the usual ones, then the variants, then the modes."""
    model = _model(label, file, group)
    usual = [_usual(label, file, group, model, scale) for scale in product(group.dtype, group.gpus)]
    yield from usual
    for variant in group.variants:
        for case in usual:
            yield replace(case, size=f"{group.size}-{variant}", variant=variant)
    saving: dict[tuple[str, str, int], Case] = {}
    for name, mode in file.variants.items():
        for case in usual:
            if not mode.is_mode or not mode.has(group.size, case.gpus):
                continue
            first = saving.get((mode.after, case.dtype, case.gpus))
            if mode.after and first is None:
                raise ConfigError(
                    f"{label}: {name} on {case.gpus} GPUs loads what {mode.after} saves, which comes later in `variants`, or has no such scale"
                )
            saving[name, case.dtype, case.gpus] = _in_mode(case, name, mode, first)
            yield saving[name, case.dtype, case.gpus]


def _model(label: str, file: RecipeFile, group: Group) -> Model:
    """The model of a line of `cases`. Raises ConfigError if there is none, or it breaks the recipe's rules."""
    name = group.model or group.size
    if name not in file.models:
        raise ConfigError(f"{label}: no model '{name}'; known: {', '.join(file.models)}")
    if (group.gbs is None) == (group.gbs_per_gpu is None):
        raise ConfigError(f"{label}: give either gbs or gbs_per_gpu")
    model = file.models[name]
    if group.layers is not None:
        model = model.model_copy(update={"layers": group.layers})
    if file.rules:
        broken = broken_rules(model, group.sequence_length, tp=group.tp, pp=group.pp, vp=group.vp)
        if broken:
            raise ConfigError("\n".join(f"{label}: {rule}" for rule in broken))
    return model


def _usual(label: str, file: RecipeFile, group: Group, model: Model, scale: tuple[str, int]) -> Case:
    """The case of a line of `cases` on this scale, a dtype and a number of GPUs."""
    dtype, gpus = scale
    return Case(
        recipe=file.recipe,
        release=file.release,
        size=group.size,
        dtype=dtype,
        gpus=gpus,
        accelerator=group.accelerator,
        model_name=group.model or group.size,
        model=model,
        sequence_length=group.sequence_length,
        steps=group.steps or file.steps,
        tp=group.tp,
        pp=group.pp,
        cp=group.cp,
        vp=group.vp,
        ep=group.ep,
        drops_tokens=group.drops_tokens,
        fsdp=group.fsdp,
        mbs=group.mbs,
        gbs=_global_batch_size(label, group, gpus),
        gpus_per_node=file.gpus_per_node,
        one_node=file.one_node,
        profiled=file.profiled,
        means=file.means_of(group.means),
        measure=file.measure,
        parameters=parameters(model, group.sequence_length) if file.rules else None,
    )


def _in_mode(case: Case, name: str, mode: Variant, first: Case | None) -> Case:
    """The case in this mode of the recipe. `first` is the case that saves what it loads."""
    changed = replace(
        case,
        size=f"{case.size}-{name}",
        variant=name,
        mode=mode,
        steps=mode.steps or case.steps,
        after=first,
    )
    saves = mode.checkpoint
    if saves is None:
        return changed
    if saves.small_batches:
        changed = replace(changed, gbs=case.mbs * (case.gpus // (case.tp * case.pp * case.cp)))
    return replace(
        changed, checkpoint=_bytes(saves, case.size, case.parameters), published_saves=saves.published
    )


def _bytes(checkpoint: Checkpoint, size: str, parameters: int | None) -> int:
    """The bytes of a checkpoint, of a model of this size and with so many parameters."""
    if checkpoint.bytes_per_parameter is not None:
        assert parameters is not None
        return round(checkpoint.bytes_per_parameter * parameters)
    return round(checkpoint.gibibytes[size] * 2**30)


def _global_batch_size(label: str, group: Group, gpus: int) -> int:
    """The sequences of a step on this many GPUs. Raises ConfigError if the parallel sizes do not divide."""
    gbs: float = group.gbs or (group.gbs_per_gpu or 0) * gpus
    shards = group.tp * group.pp * group.cp * group.fsdp
    if gpus % shards:
        raise ConfigError(f"{label}: {gpus} GPUs are not a multiple of tp x pp x cp x fsdp = {shards}")
    batch = group.mbs * group.fsdp * (gpus // shards)
    if gbs != int(gbs) or int(gbs) % batch:
        raise ConfigError(f"{label}: gbs {gbs:g} is not a multiple of mbs x fsdp x dp = {batch}")
    return int(gbs)
