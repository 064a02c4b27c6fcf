"""Cases: one recipe, size, dtype, number of GPUs and variant each, made from YAML alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from plugins.base.errors import ConfigError
from plugins.base.words import counted
from plugins.isolation import PROOF
from plugins.logs.means import SINGLE, Means
from plugins.recipes.models import Measure, Model
from plugins.recipes.recipe_file import RecipeFile
from plugins.recipes.variants import PublishedSave, Variant
from plugins.record.job import screened_node

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
        return (
            f"the reports of {self.recipe}, {self.model_name} in {self.dtype} on {counted(self.gpus, 'GPU')}"
        )

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
        """The case of this id. `<id>/proof`, the id of the job that proves an isolation, is the case itself."""
        node = screened_node(case_id)
        if node:
            usual = self.case(case_id.removesuffix(f".{node}"))
            return usual and replace(usual, node=node)
        wanted = case_id.removesuffix(f"/{PROOF}")
        return next((case for case in self.cases if case.id == wanted), None)


def same_reports(first: Case, second: Case) -> bool:
    """Whether jobs of both cases write reports of the same names into the same folder."""
    by_kind = first.names_reports_by_kind or second.names_reports_by_kind
    return by_kind and first.reports == second.reports
