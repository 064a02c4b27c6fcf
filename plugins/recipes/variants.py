"""Further ways to run a recipe's cases, and what they leave on the cluster: parts of its YAML."""

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field, model_validator

from plugins.base.yamlfile import Strict, form
from plugins.recipes.arithmetic import Expression, evaluate
from plugins.recipes.contracts import PatternText, compiled


class PublishedSave(Strict):
    """How long a checkpoint of this size takes on a storage of this bandwidth, by the recipe's source."""

    storage: str
    gb_per_second: float = Field(gt=0)
    tebibytes: float = Field(gt=0)
    minutes: float = Field(gt=0)


class PromisedBandwidth(Strict):
    """The bandwidth of a storage, computed from a site's `values`.

    It applies if the values include those of `where`.
    """

    where: dict[str, str]
    megabytes_per_second: Expression


class Checkpoint(Strict):
    """A checkpoint that a run writes at its end, and which is judged instead of the steps.

    The expected size is `bytes_per_parameter` times the model's parameters, or what `gibibytes` says for the
    size of the case. `promise` is the bandwidth that the storage should reach, if the site file does not
    state it. `published` is for comparison. With `small_batches`, each replica computes one micro batch in a
    step, because no step is timed.

    If the log does not state the bytes, they are counted on the cluster, as those of the files in `folder`,
    which is below the folder of the job's log. There, `name` is the pattern of a checkpoint's own folder.
    """

    bytes_per_parameter: float | None = Field(default=None, gt=0)
    gibibytes: dict[str, Annotated[float, Field(gt=0)]] = {}
    small_batches: bool = False
    promise: PromisedBandwidth | None = None
    published: tuple[PublishedSave, ...] = Field(default=(), strict=False)
    # Whatever matches is removed from the cluster at the end: no pattern may lead out of the folder.
    folder: Annotated[str, form(r"\w[\w.-]*(/\w[\w.-]*)*", "a folder below another, such as a/b")] | None = (
        None
    )
    name: (
        Annotated[
            str, form(r"\w[\w.=-]{3,}\*?", "a name of four letters or more, with or without a * at its end")
        ]
        | None
    ) = None

    @model_validator(mode="after")
    def _says_how_large_it_is(self) -> Self:
        if (self.bytes_per_parameter is None) == (not self.gibibytes):
            raise ValueError("give either bytes_per_parameter or gibibytes (by size)")
        if (self.folder is None) != (self.name is None):
            raise ValueError("give both folder and name, or neither")
        return self

    def promised(self, values: Mapping[str, str]) -> float | None:
        """The bandwidth in bytes/s of the storage that a site's `values` describe; None if they do not."""
        if self.promise is None or not self.promise.where.items() <= values.items():
            return None
        try:
            return float(evaluate(self.promise.megabytes_per_second, values)) * 1e6
        except ValueError:
            return None


class Profiles(Strict):
    """The Nsight profiles that a run leaves on the cluster.

    `folder` is where they are; `{log_folder}` is the folder of the job's log. `name` is the pattern of a
    file's name. There is a file for each rank, but at most for `ranks` of them, or, with `kinds`, one file
    for each kind; the pattern's group `kind` tells which.
    """

    folder: str
    name: PatternText
    ranks: int | None = Field(default=None, gt=0)
    kinds: tuple[str, ...] = Field(default=(), strict=False)

    @model_validator(mode="after")
    def _says_how_many(self) -> Self:
        if (self.ranks is None) == (not self.kinds):
            raise ValueError("give either ranks (a file for each rank) or kinds (a file for each of them)")
        if self.kinds and "kind" not in compiled(self.name).groupindex:
            raise ValueError("kinds: the pattern in name needs a group (?P<kind>...) that tells them apart")
        return self


class Variant(Strict):
    """A further way to run a recipe's cases; `what` describes it.

    With `profiles`, `nccl_trace`, `checkpoint` or `after` it is a mode: not its pace is judged but what it
    leaves on the cluster. Every case of the recipe has it or, with `scales`, those of these sizes from the
    first number of GPUs to the second one. `environment` is set for the launcher besides its own, and `steps`
    replaces the number of steps.

    `after` names another mode, which writes a checkpoint: its case must have ended well before, and this one
    loads what it wrote. `{checkpoint}` in `environment` is the path. Both are asked for by the name of the
    first.
    """

    what: str
    profiles: Profiles | None = None
    nccl_trace: bool = False
    checkpoint: Checkpoint | None = None
    after: str = ""
    scales: dict[str, Annotated[list[int], Field(min_length=2, max_length=2)]] = {}
    environment: dict[str, str] = {}
    steps: int | None = Field(default=None, gt=0)

    @property
    def is_mode(self) -> bool:
        return self.leaves_files or self.checkpoint is not None or self.after != ""

    @property
    def leaves_files(self) -> bool:
        """Whether it is judged by files on the cluster."""
        saved = self.checkpoint is not None and self.checkpoint.folder is not None
        return self.profiles is not None or self.nccl_trace or saved

    def has(self, size: str, gpus: int) -> bool:
        """Whether the cases of this size and scale have the mode."""
        if not self.scales:
            return True
        first, last = self.scales.get(size, (0, 0))
        return first <= gpus <= last

    @model_validator(mode="after")
    def _changes_a_mode(self) -> Self:
        if (self.environment or self.steps or self.scales) and not self.is_mode:
            raise ValueError(
                "environment, steps, scales: only of a variant with `profiles`, `nccl_trace`, `checkpoint` or `after`"
            )
        return self
