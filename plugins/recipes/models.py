"""The models that a recipe runs, and on how many GPUs: parts of its YAML."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from plugins.architecture import Block
from plugins.logs import FlopsName
from plugins.yamlfile import Strict, form

Dtype = Literal["fp8", "fp8_cs", "fp8_block", "mxfp8", "nvfp4", "bf16", "fp16", "fp32"]
Mlp = Literal["gated", "squared-relu", "gelu"]
MeansKeys = dict[Literal["over", "every"], Annotated[int, Field(gt=0)]]


class Model(Strict):
    """The shape of a decoder. The names are those of the published configurations.

    `mlp` says whether the MLP has a gate (three matrices, SwiGLU) or not (two matrices, squared ReLU or
    GELU). A layer has `experts` of them, of which each token uses `top_k`; the router is one more matrix.
    If the layers are not all alike, `blocks` are what its FLOPs are counted by (`plugins.architecture`).
    """

    layers: int = Field(gt=0)
    hidden: int = Field(gt=0)
    ffn: int = Field(gt=0)
    heads: int = Field(gt=0)
    query_groups: int = Field(gt=0)
    vocab: int = Field(gt=0)
    mlp: Mlp = "gated"
    experts: int = Field(default=1, gt=0)
    top_k: int = Field(default=1, gt=0)
    blocks: tuple[Block, ...] = Field(default=(), strict=False)

    @model_validator(mode="after")
    def _has_as_many_experts(self) -> Self:
        if self.top_k > self.experts:
            raise ValueError(f"top_k {self.top_k} is above experts {self.experts}")
        return self


class Group(Strict):
    """Cases that share one configuration: a line of the table `cases` in a recipe.

    The model: `model` names the entry of `models`, if `size` does not. `layers` replaces its number of
    layers; a proxy is the same model with fewer layers. `dtype` and `gpus` list the cases of this line.

    The batch: the global batch size (sequences in a step) is either `gbs` or `gbs_per_gpu` x GPUs. `fsdp` is
    the number of GPUs over which parameters and batch are sharded; the other GPUs hold replicas.

    If a model has experts, they take all tokens, evenly by force. If the line `drops_tokens`, they take as many as
    their capacity, 1.0 times an even share.

    `gpu` names the types of GPU that this line is for, if the launcher runs another configuration on others.
    `variants` makes the same cases once more for each variant, with the size `<size>-<variant>`. `means`
    replaces that of the recipe (`Matrix`), and `steps` its number of steps.
    """

    size: str
    model: str | None = None
    dtype: list[Dtype] = Field(min_length=1)
    gpus: list[Annotated[int, Field(gt=0)]] = Field(min_length=1)
    sequence_length: int = Field(gt=0)
    layers: int | None = Field(default=None, gt=0)
    tp: int = Field(default=1, gt=0)
    pp: int = Field(default=1, gt=0)
    cp: int = Field(default=1, gt=0)
    vp: int = Field(default=1, gt=0)
    ep: int = Field(default=1, gt=0)
    fsdp: int = Field(default=1, gt=0)
    mbs: int = Field(gt=0)
    gbs: int | None = Field(default=None, gt=0)
    gbs_per_gpu: float | None = Field(default=None, gt=0)
    accelerator: Literal["gpu", "cpu"] = "gpu"
    gpu: list[str] = []
    drops_tokens: bool = False
    means: MeansKeys | None = None
    steps: int | None = Field(default=None, gt=1)
    variants: list[str] = []


class SiteModel(Strict):
    """A model that a site adds to a recipe: its shape, its parallel sizes, and on how many GPUs it runs.

    `size` names its cases. All other values are the recipe's (`OwnModels`).
    """

    size: Annotated[
        str, form(r"[a-z0-9]([a-z0-9.-]{0,30}[a-z0-9])?", "a name of small letters, digits, dots and dashes")
    ]
    """The name of the model, as in the ids of its cases."""

    layers: int = Field(gt=0)
    """How many layers it has."""

    hidden: int = Field(gt=0)
    """The hidden size."""

    heads: int = Field(gt=0)
    """How many attention heads a layer has."""

    sequence_length: int = Field(gt=0)
    """The sequence length in tokens."""

    tp: int = Field(default=1, gt=0)
    """The tensor parallel size."""

    pp: int = Field(default=1, gt=0)
    """The pipeline parallel size."""

    mbs: int = Field(default=1, gt=0)
    """The micro batch size in sequences."""

    gbs: int | None = Field(default=None, gt=0)
    """The global batch size in sequences."""

    gbs_per_gpu: float | None = Field(default=None, gt=0)
    """The global batch size in sequences for each GPU. Give this or `gbs`."""

    # A tuple, because the models are part of the key by which `load_recipe` is cached.
    gpus: tuple[Annotated[int, Field(gt=0, strict=True)], ...] = Field(min_length=1, strict=False)
    """The numbers of GPUs, each of which makes a case."""


class OwnModels(Strict):
    """What all models that a site adds to a recipe have in common.

    `tokens` is the tokenizer's vocabulary, which is padded to a multiple of `pad_to` x tp. The FFN size is 4
    x the hidden size. There are as many query groups as heads.
    """

    dtype: list[Dtype] = Field(min_length=1)
    tokens: int = Field(gt=0)
    pad_to: int = Field(gt=0)
    mlp: Mlp
    variants: list[str] = []


class Measure(Strict):
    """How the cases of a recipe without published numbers are measured.

    `flops` is the definition of model FLOPs. `beside` is a second one, whose MFU is shown but never judged.
    """

    statistic: Annotated[str, form(r"last|mean:\d{1,9}-\d{1,9}", "last, or mean:FIRST-LAST")]
    flops: FlopsName
    beside: FlopsName | None = None
