"""The models that a recipe runs, their FLOPs, and on how many GPUs: parts of its YAML.

A decoder is a list of blocks: attention of some kind, MLPs, experts, Mamba layers, the output layer. Each block
states its own number of layers. One multiply-add of the forward pass is six FLOPs of training: two forward, four
backward. The formulas are those of Megatron-Bridge's flop_utils.py (v0.6.0: lines 514 to 634 and 837 to 1180); a
definition that uses them names the file and release that it was printed with.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from plugins.base.yamlfile import Strict, form
from plugins.logs import FlopsName

Count = Annotated[int, Field(gt=0)]
Matrices = Literal[2, 3]
"""The matrices of an MLP: three with a gate, two without."""

TRAINING = 6
"""FLOPs of training for each multiply-add of the forward pass."""


class Attention(Strict):
    """Attention with grouped queries. A token sees half of the sequence on average, or its `window`."""

    kind: Literal["attention"]
    layers: Count
    heads: Count
    groups: Count
    head_dim: Count
    window: Count | None = None

    def multiply_adds(self, hidden: int, sequence_length: int) -> float:
        """Of one layer, for each token: projections, then scores and values."""
        queries = self.heads * self.head_dim
        projections = 2 * hidden * (queries + self.groups * self.head_dim)
        return projections + 2 * queries * _context(self.window, sequence_length)


class LatentAttention(Strict):
    """Multi-head latent attention: queries, keys and values pass through matrices of low rank."""

    kind: Literal["latent-attention"]
    layers: Count
    heads: Count
    query_rank: Count
    key_value_rank: Count
    head_dim: Count
    rotary_dim: Count
    value_dim: Count

    def multiply_adds(self, hidden: int, sequence_length: int) -> float:
        """Of one layer, for each token. The `+ 1` of each rank is its norm."""
        score_dim = self.head_dim + self.rotary_dim
        queries = self.query_rank * (hidden + self.heads * score_dim + 1)
        keys_values = self.key_value_rank * (hidden + self.heads * (self.head_dim + self.value_dim) + 1)
        projections = queries + keys_values + hidden * (self.rotary_dim + self.heads * self.value_dim)
        return projections + self.heads * (score_dim + self.value_dim) * _context(None, sequence_length)


class MlpLayers(Strict):
    """An MLP that every token passes."""

    kind: Literal["mlp"]
    layers: Count
    ffn: Count
    matrices: Matrices = 3

    def multiply_adds(self, hidden: int, _sequence_length: int) -> float:
        """Of one layer, for each token."""
        return self.matrices * self.ffn * hidden


class Experts(Strict):
    """A mixture of experts: each token passes `top_k` of them, and `shared`, the FFN size of the shared ones.

    With `latent`, the routed experts work at this smaller width, between two projections. The router itself
    is not counted.
    """

    kind: Literal["experts"]
    layers: Count
    ffn: Count
    top_k: Count
    shared: int = Field(default=0, ge=0)
    latent: Count | None = None
    matrices: Matrices = 3

    def multiply_adds(self, hidden: int, _sequence_length: int) -> float:
        """Of one layer, for each token."""
        width = self.latent or hidden
        projections = 2 * self.latent * hidden if self.latent else 0
        return self.matrices * (self.top_k * self.ffn * width + self.shared * hidden) + projections


class Mamba(Strict):
    """A Mamba-2 layer, whose inner width is twice the hidden size."""

    kind: Literal["mamba"]
    layers: Count
    heads: Count
    state: Count
    groups: Count

    def multiply_adds(self, hidden: int, _sequence_length: int) -> float:
        """Of one layer, for each token: projections in and out, and the scan with 7 FLOPs for each state."""
        inner = 2 * hidden
        projections = hidden * (2 * inner + 2 * self.groups * self.state + self.heads) + inner * hidden
        return projections + 3.5 * inner * self.state


class TokenPrediction(Strict):
    """What multi-token prediction adds beside its own layers: three norms and a projection of two hidden states."""

    kind: Literal["token-prediction"]
    layers: Count

    def multiply_adds(self, hidden: int, _sequence_length: int) -> float:
        """Of one layer, for each token."""
        return 3 * hidden + 2 * hidden * hidden


class Output(Strict):
    """The output layer, once for the next token and once more for each further token that is predicted."""

    kind: Literal["output"]
    layers: Count = 1
    vocab: Count

    def multiply_adds(self, hidden: int, _sequence_length: int) -> float:
        """Of one output, for each token."""
        return hidden * self.vocab


class Printed(Strict):
    """A whole model whose shape no source states: the FLOPs of a token by two figures that its publisher prints."""

    kind: Literal["printed"]
    layers: Literal[1] = 1
    flops: float = Field(gt=0)

    def multiply_adds(self, _hidden: int, _sequence_length: int) -> float:
        """For each token."""
        return self.flops / TRAINING


Block = Annotated[
    Attention | LatentAttention | MlpLayers | Experts | Mamba | TokenPrediction | Output | Printed,
    Field(discriminator="kind"),
]


def flops_per_token(hidden: int, blocks: tuple[Block, ...], sequence_length: int) -> float:
    """The FLOPs of training on one token, forward and backward."""
    return TRAINING * sum(block.layers * block.multiply_adds(hidden, sequence_length) for block in blocks)


def _context(window: int | None, sequence_length: int) -> float:
    """How many tokens a token sees on average, itself among them."""
    if window is None or window >= sequence_length:
        return sequence_length / 2
    return window - window * (window - 1) / (2 * sequence_length)


Dtype = Literal["fp8", "fp8_cs", "fp8_block", "mxfp8", "nvfp4", "bf16", "fp16", "fp32"]
Mlp = Literal["gated", "squared-relu", "gelu"]
MeansKeys = dict[Literal["over", "every"], Annotated[int, Field(gt=0)]]


class Model(Strict):
    """The shape of a decoder. The names are those of the published configurations.

    `mlp` says whether the MLP has a gate (three matrices, SwiGLU) or not (two matrices, squared ReLU or
    GELU). A layer has `experts` of them, of which each token uses `top_k`; the router is one more matrix.
    If the layers are not all alike, `blocks` are what its FLOPs are counted by (`plugins.recipes.models`).
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
