"""The contents of a recipe's YAML: `recipe.yaml`, and a file for each of its other releases."""

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from plugins.base.errors import ConfigError
from plugins.base.yamlfile import Strict, form, load, meant
from plugins.logs.means import Means
from plugins.logs.registry import FORMATS
from plugins.recipes.contracts import Launch, Manifest, compiled
from plugins.recipes.models import Dtype, Group, MeansKeys, Measure, Model, OwnModels
from plugins.recipes.variants import Checkpoint, Variant

ReleaseName = Annotated[
    str,
    form(
        r"[A-Za-z0-9][A-Za-z0-9._-]*", "the name of a release: letters, digits, dots, dashes and underscores"
    ),
]

REPLAY_WORDS = ("model", "size", "dtype", "gpus", "gbs")
"""The names that may be filled into a recipe's rule for its logs."""


def log_rule(rule: str, words: Mapping[str, str]) -> re.Pattern[str]:
    """The pattern for the end of a log's path: the recipe's rule with these words filled in."""
    for name, value in words.items():
        rule = rule.replace(f"{{{name}}}", re.escape(value))
    return compiled(rf"(?:^|/)(?:{rule})$")


class Matrix(Strict):
    """What one release of a recipe runs, and what its logs look like.

    The logs: `log` is the format. `replay` finds a case's log in a tree of logs: it is a pattern for the end
    of a path, into which `{model}`, `{size}`, `{dtype}`, `{gpus}` and `{gbs}` are filled. It has a group
    `job`, and a group `restart` if the path has the number of restarts. `replay_dtypes` are the dtypes that paths
    call otherwise. `means` says what a printed time is of (`plugins.logs.means`): a line is printed every `every`
    steps, with the mean over the last `over` of them.

    The runs: `gpus_per_node` is given if the recipe's own rules (global batch size, sharding) hold only on
    such nodes. `profiled` is true if the published run profiles a few early steps, and `setting` if it
    sets so and no profiler runs. `measure` is for a recipe
    without published numbers. `rules` names the rules that a configuration must keep before it is sent
    (`plugins.recipes.expansion`).

    The cases: `variants` are further ways to run the same cases, by name. They are collected if asked for.
    With `own_models`, a site may add models.
    """

    release: ReleaseName
    source: str
    log: str
    steps: int = Field(gt=1)
    gpus_per_node: int | None = Field(default=None, gt=0)
    profiled: bool | Literal["setting"] = False
    means: MeansKeys = {}
    measure: Measure | None = None
    rules: Literal["megatron-lm"] | None = None
    variants: dict[
        Annotated[
            str,
            form(r"[a-z0-9]+(-[a-z0-9]+)*", "words of small letters and digits, with dashes between them"),
        ],
        Variant,
    ] = {}
    own_models: OwnModels | None = None
    cases: list[Group] = Field(min_length=1)
    launch: Launch | None = None
    manifest: Manifest | None = None
    replay: str | None = None
    replay_dtypes: dict[Dtype, str] = {}

    @field_validator("log")
    @classmethod
    def _is_a_format(cls, name: str) -> str:
        if name not in FORMATS:
            raise ValueError(f"no log format '{name}'; {meant(name, sorted(FORMATS))}")
        return name

    @field_validator("replay")
    @classmethod
    def _finds_a_job(cls, rule: str | None) -> str | None:
        if rule is not None and "job" not in log_rule(rule, dict.fromkeys(REPLAY_WORDS, "1")).groupindex:
            raise ValueError(
                "the pattern needs a group (?P<job>...) around the job's id, which tells two logs apart"
            )
        return rule

    @property
    def log_of_each_start(self) -> bool:
        """Whether each start of a job has a log of its own: by the launcher, or else by the rule for paths."""
        if self.launch is not None:
            return self.launch.log_of_each_start
        if self.replay is None:
            return False
        return "restart" in log_rule(self.replay, dict.fromkeys(REPLAY_WORDS, "1")).groupindex

    def dtype_in_paths(self, dtype: str) -> str:
        """What the paths of logs call a dtype."""
        return next((name for known, name in self.replay_dtypes.items() if known == dtype), dtype)

    def means_of(self, keys: MeansKeys | None) -> Means:
        """What printed times are of, by the `means` of a group, or of the recipe if the group has none."""
        keys = self.means if keys is None else keys
        return Means(**keys, separable=FORMATS[self.log].means == "separable")

    @model_validator(mode="after")
    def _means_fit(self) -> Self:
        for means in map(self.means_of, (None, *(group.means for group in self.cases))):
            self._check_means(means)
        return self

    def _check_means(self, means: Means) -> None:
        """Raise ValueError if the format prints no such means, or steps or the statistic do not divide into them."""
        if not means.fits(FORMATS[self.log].means):
            known = " and ".join(name for name, format_ in FORMATS.items() if means.fits(format_.means))
            advice = f"only {known} do" if known else "let `every` be 1 or as much as `over`"
            raise ValueError(f"{means}: {self.log} prints no such means; {advice}")
        replaced = [group.steps for group in self.cases] + [mode.steps for mode in self.variants.values()]
        for steps in filter(None, (self.steps, *replaced)):
            if steps % means.span or steps == means.span > 1:
                raise ValueError(
                    f"{means}: steps {steps} is not a multiple of {means.span}, two at the least"
                )
        window = self.measure and re.fullmatch(r"mean:(\d+)-(\d+)", self.measure.statistic)
        if not window:
            return
        covered = range(int(window[1]), int(window[2]) + 1)
        if not covered or covered.stop > self.steps or means.cut(covered):
            raise ValueError(
                f"measure.statistic {window[0]} is no window of whole intervals of {means.span} in steps 0 to "
                f"{self.steps - 1}"
            )

    @model_validator(mode="after")
    def _variants_are_known(self) -> Self:
        named = {name for group in self.cases for name in group.variants}
        if self.own_models:
            named |= set(self.own_models.variants)
        unknown = sorted(named - set(self.variants))
        if unknown:
            raise ValueError(
                f"no variant {', '.join(unknown)}; known in `variants`: {', '.join(self.variants) or 'none'}"
            )
        modes = {name for name, variant in self.variants.items() if variant.is_mode}
        listed = sorted(modes & named)
        if listed:
            raise ValueError(f"every case has the variant {', '.join(listed)}; list it in no line of `cases`")
        for name, variant in self.variants.items():
            self._check_mode(name, variant)
        return self

    @model_validator(mode="after")
    def _launch_knows_the_cases(self) -> Self:
        if self.launch is None:
            return self
        unknown = sorted({*self.launch.environment_by_size} - {group.size for group in self.cases})
        if unknown:
            raise ValueError(f"launch: environment_by_size: no case has the size {', '.join(unknown)}")
        gpus = {gpu for group in self.cases for gpu in group.gpu or ["every type of GPU"]}
        for name, by_gpu in self.launch.names_by_gpu.items():
            missing = sorted(gpus - {*by_gpu})
            if missing:
                raise ValueError(f"launch: names_by_gpu: {name} has no value for {', '.join(missing)}")
        return self

    def _check_mode(self, name: str, variant: Variant) -> None:
        """Raise ValueError if this variant cannot be run or judged."""
        if variant.leaves_files and self.launch is None:
            raise ValueError(f"variants: {name} needs a launcher (`launch`), whose files are looked at")
        if variant.checkpoint is not None:
            self._check_saves(name, variant.checkpoint, variant)
        if variant.after:
            first = self.variants.get(variant.after)
            if first is None or first.checkpoint is None or first.checkpoint.folder is None:
                raise ValueError(
                    f"variants: {name}: after: {variant.after} is no variant that leaves a checkpoint"
                )

    def _check_saves(self, name: str, checkpoint: Checkpoint, variant: Variant) -> None:
        if not FORMATS[self.log].times_saves:
            raise ValueError(
                f"variants: {name}: logs of the format {self.log} do not tell how long a save took"
            )
        if checkpoint.bytes_per_parameter is not None and self.rules is None:
            raise ValueError(
                f"variants: {name}: bytes_per_parameter: only `rules` tells how many parameters a model has"
            )
        if checkpoint.gibibytes and set(checkpoint.gibibytes) != set(variant.scales):
            raise ValueError(f"variants: {name}: `gibibytes` and `scales` are of the same sizes")

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint of the variant that writes one."""
        return next((v.checkpoint for v in self.variants.values() if v.checkpoint is not None), None)


CONTRACTS = ("launch", "manifest", "program")

Backends = Annotated[
    tuple[Annotated[str, form(r"[a-z][a-z0-9_]*", "the name of a backend")], ...],
    Field(min_length=1, strict=False),
    BeforeValidator(lambda names: (names,) if isinstance(names, str) else names),
]
"""The names of one or more backends."""


class RecipeFile(Matrix):
    """`recipe.yaml`: what runs unless another release is asked for, and how the launcher is called.

    Each backend of `backend` can run the recipe, by its own contract. It runs on the first of them whose
    section of the site file names the recipe under `recipes`, otherwise on the first that needs no section.
    With `logs_only` the recipe has no contract but `replay`, and is judged from logs alone.

    `program` is a Python program. `files` are the files beside `recipe.yaml` that a cluster is sent: it and
    what it imports from there. `modules` are the modules that it imports from other packages;
    `requirements.txt` beside it installs them. `cpu_environment` has the environment variables of cases on a
    CPU. `one_node`: each case runs on one node, on some or all of its GPUs.
    """

    recipe: str
    title: str
    backend: Backends
    startup_minutes: float = Field(ge=0)
    models: dict[str, Model]
    program: str | None = None
    files: list[Annotated[str, form(r"\w[\w.-]*", "the name of a file beside this one")]] = []
    one_node: bool = False
    logs_only: bool = False
    modules: list[Annotated[str, form(r"[A-Za-z_][A-Za-z0-9_]*", "the name of a Python module")]] = []
    cpu_environment: dict[str, str] = {}

    @property
    def contracts(self) -> tuple[str, ...]:
        """The keys that say how the recipe runs; none for a release that is judged from logs alone."""
        return tuple(key for key in CONTRACTS if getattr(self, key) is not None)

    @model_validator(mode="after")
    def _has_contracts(self) -> Self:
        if self.logs_only and self.replay and not self.contracts:
            return self
        if not 0 < len(self.contracts) <= len(self.backend):
            raise ValueError(
                f"give one of {', '.join(f'`{key}`' for key in CONTRACTS)}, which says how the backend {' or '.join(self.backend)} runs it; "
                f"there is {' and '.join(f'`{key}`' for key in self.contracts) or 'none'}"
            )
        if self.program is None and (self.modules or self.cpu_environment):
            raise ValueError("modules and cpu_environment are those of `program`; there is none")
        return self


class ReleaseFile(Matrix):
    """`releases/<release>.yaml`: another release of a recipe.

    `also` names later releases that run the same cases. `models` adds models to those of `recipe.yaml`, or
    replaces them. If a release has no `launch` or `manifest` of its own, it is judged from logs only.
    """

    also: list[ReleaseName] = []
    models: dict[str, Model] = {}


@lru_cache
def read_recipe(folder: Path) -> RecipeFile:
    """Read `folder/recipe.yaml`. Raises ConfigError with the line of each mistake."""
    return load(folder / "recipe.yaml", RecipeFile)


def read_releases(folder: Path, recipe: RecipeFile) -> dict[str, tuple[Path, RecipeFile]]:
    """Every release of a recipe by name: the file that states it, and `recipe` with the matrix of the release.

    Raises:
        ConfigError: a file is wrong, its name is not that of its release, or two files have the same release.
    """
    releases = {recipe.release: (folder / "recipe.yaml", recipe)}
    for path in sorted((folder / "releases").glob("*.yaml")):
        file = load(path, ReleaseFile)
        if file.release != path.stem:
            raise ConfigError(
                f"{path}: release is '{file.release}', but the file is named after '{path.stem}'"
            )
        matrix = {name: getattr(file, name) for name in Matrix.model_fields}
        for release in (file.release, *file.also):
            if release in releases:
                raise ConfigError(
                    f"{path}: release {release} is stated in {releases[release][0]} too; keep one"
                )
            merged = {**matrix, "release": release, "models": {**recipe.models, **file.models}}
            releases[release] = (path, recipe.model_copy(update=merged))
    return dict(sorted(releases.items()))
