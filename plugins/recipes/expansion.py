"""Makes the cases of a recipe of its YAML: each size, dtype, scale and variant.

Megatron checks its rules for a GPT itself, but minutes after it was given hundreds of GPUs. Here they are checked before
that. Source: megatron/training/arguments.py (`validate_args`), core/transformer/transformer_config.py and
core/tensor_parallel/mappings.py, at commit 878d65f.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import product
from pathlib import Path

from plugins.base.errors import ConfigError
from plugins.base.words import counted
from plugins.recipes.cases import DEFAULT_GPU, Case, Recipe
from plugins.recipes.models import Group, Model, SiteModel
from plugins.recipes.recipe_file import RecipeFile, read_recipe, read_releases
from plugins.recipes.variants import Checkpoint, Variant

MOST_CASES = 10_000
"""A recipe has no more, with those of the site's models."""


POSITIONS = 2048
"""The recipes' --max-position-embeddings. A longer sequence needs as many positions as it has tokens."""


def padded_vocabulary(tokens: int, pad_to: int, tp: int) -> int:
    """The rows of the embedding: `tokens`, padded to a multiple of --make-vocab-size-divisible-by x tp."""
    unit = pad_to * tp
    return -(-tokens // unit) * unit


def parameters(model: Model, sequence_length: int) -> int:
    """The parameters of a GPT: layers with biases and two layer norms, learned positions, and one embedding.

    Input and output share the embedding. With layers L, hidden size h, FFN size f, vocabulary V and positions
    P: L (4 h^2 + 4 h + 2 h f + f + h + 4 h) + (V + P) h + 2 h. If f = 4 h, the first term is L (12 h^2 + 13
    h).
    """
    h, f = model.hidden, model.ffn
    layer = 4 * h * h + 4 * h + 2 * h * f + f + h + 4 * h
    return model.layers * layer + (model.vocab + max(POSITIONS, sequence_length)) * h + 2 * h


def broken_rules(model: Model, sequence_length: int, *, tp: int, pp: int, vp: int) -> list[str]:
    """The rules that Megatron would find broken, with the arithmetic; empty if there are none."""
    broken = []
    for quantity, value, name, divisor in (
        ("layers", model.layers, "pp x vp", pp * vp),
        ("heads", model.heads, "tp", tp),
        ("hidden size", model.hidden, "heads", model.heads),
        # The recipes use --sequence-parallel. If tp is 1, Megatron turns it off.
        ("sequence length", sequence_length, "tp", tp),
    ):
        if value % divisor:
            broken.append(
                f"{quantity} {value} is not a multiple of {name} = {divisor} "
                f"({value} = {value // divisor} x {divisor} + {value % divisor})"
            )
    return broken


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
        unfit = (
            f"{file.recipe} release {file.release} runs nothing on {gpu}, only on {', '.join(named)}: set `gpu` in the site file, "
            f"in the section of the backend, as replay: {{gpu: {named[0]}}} for logs"
        )
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
                    f"{label}: {name} on {counted(case.gpus, 'GPU')} loads what {mode.after} saves, which comes later in `variants`, or has no such scale"
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
        raise ConfigError(f"{label}: gpus {gpus} is not a multiple of tp x pp x cp x fsdp = {shards}")
    batch = group.mbs * group.fsdp * (gpus // shards)
    if gbs != int(gbs) or int(gbs) % batch:
        raise ConfigError(f"{label}: gbs {gbs:g} is not a multiple of mbs x fsdp x dp = {batch}")
    return int(gbs)
