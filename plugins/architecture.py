"""The model FLOPs of a token, block by block, for decoders that no single formula covers.

A decoder is a list of blocks: attention of some kind, MLPs, experts, Mamba layers, the output layer. Each
block states its own number of layers. One multiply-add of the forward pass is six FLOPs of training: two
forward, four backward. The formulas are those of Megatron-Bridge's flop_utils.py (v0.6.0: lines 514 to 634
and 837 to 1180); a definition that uses them names the file and release that it was printed with.
"""

from typing import Annotated, Literal

from pydantic import Field

from plugins.yamlfile import Strict

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


class Mlp(Strict):
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
    Attention | LatentAttention | Mlp | Experts | Mamba | TokenPrediction | Output | Printed,
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
