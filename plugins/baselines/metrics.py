"""From steps to tokens/s, TFLOP/s/GPU, MFU and days. Pure arithmetic; every formula has its source.

The formulas are from NVIDIA's recipe READMEs (release 25.04, sections "Expected Performance" and "Notes").
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field, model_validator

from plugins.base.yamlfile import Strict
from plugins.logs import FlopsName
from plugins.recipes.cases import Case
from plugins.recipes.models import Model, flops_per_token

SECONDS_PER_DAY = 86_400


class FlopsDefinition(Strict):
    """How the model FLOPs of one sequence are counted. MFU figures are comparable only if this agrees.

    `full-attention` counts the whole s x s score matrix (the recipe READMEs and NeMo 2's own figure).
    `causal-attention` counts half of it (Megatron-Bridge); a model with `blocks` is counted so.
    `nemotron-24.11` is what the Nemotron README of that release prints: it assumes as many key and value heads
    as queries, and counts the projections twice.

    `query_groups` replaces the model's own number, if a published table was computed with another one.
    `significant_digits` is the rounding of the published FLOPs.
    """

    definition: FlopsName
    query_groups: int | None = Field(default=None, gt=0)
    significant_digits: int | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _groups_count(self) -> FlopsDefinition:
        if self.query_groups is not None and self.definition == "nemotron-24.11":
            raise ValueError("nemotron-24.11 knows no query groups; take query_groups out")
        return self

    def __str__(self) -> str:
        extra = []
        if self.query_groups:
            extra.append(f"{self.query_groups} query groups")
        if self.significant_digits:
            extra.append(f"{self.significant_digits} digits")
        if not extra:
            return self.definition
        return f"{self.definition} ({', '.join(extra)})"


def flops_per_sequence(model: Model, sequence_length: int, definition: FlopsDefinition) -> float:
    """The model FLOPs of one sequence of `sequence_length` tokens, forward and backward.

    With layers L, hidden size h, FFN size f, query groups g, heads a, vocabulary V and sequence length s:
    s * (12 L h^2 (1 + g/a + c s/h) + m L f h + 6 V h). c is 1 for full and 1/2 for causal attention, m is 18
    for an MLP with a gate and 12 for one without. Source: "Notes" of the llama3.1 README, release 25.04
    (c = 1, m = 18). Of a mixture of experts the k experts that a token uses count, k m; its router does not.

    nemotron-24.11: s * (24 L h^2 + 12 L h s + 48 L h^2 + 6 V h). Source: "Notes" of its README_340b, release
    24.11.
    """
    if model.blocks:
        return sequence_length * flops_per_token(model.hidden, model.blocks, sequence_length)
    h, layers = model.hidden, model.layers
    if definition.definition == "nemotron-24.11":
        attention = 24.0 * layers * h * h + 12 * layers * h * sequence_length
        mlp = 48 * layers * h * h
    else:
        groups = definition.query_groups or model.query_groups
        share = 1.0 if definition.definition == "full-attention" else 0.5
        attention = 12 * layers * h * h * (1 + groups / model.heads + share * sequence_length / h)
        mlp = (18 if model.mlp == "gated" else 12) * model.top_k * layers * model.ffn * h
    embedding = 6 * model.vocab * h
    flops = sequence_length * (attention + mlp + embedding)
    if definition.significant_digits is not None:
        flops = float(f"{flops:.{definition.significant_digits - 1}e}")
    return flops


@dataclass(frozen=True)
class MfuBasis:
    """What turns a step time into MFU: the FLOPs and the peak, each with its definition.

    `flops` is of one sequence, `peak_tflops` of one GPU. `beside` has the FLOPs by a second definition, for
    comparison.
    """

    flops: float
    definition: FlopsDefinition
    peak_tflops: float
    beside: MfuBasis | None = None


def tokens_per_second(case: Case, step_time: float) -> float:
    """(sequence length) x (global batch size) / (step time in s)."""
    return case.tokens_per_step / step_time


def tflops_per_gpu(case: Case, step_time: float, flops: float) -> float:
    """(global batch size) x (model FLOPs of a sequence) / (step time in s) / GPUs, in TFLOP/s."""
    return case.gbs * flops / step_time / case.gpus / 1e12


def mfu(case: Case, step_time: float, mfu_basis: MfuBasis) -> float:
    """Model FLOPs utilization in percent of the peak of its basis."""
    return 100 * tflops_per_gpu(case, step_time, mfu_basis.flops) / mfu_basis.peak_tflops


def possible_mfu(case: Case, step_time: float, mfu_basis: MfuBasis | None) -> float | None:
    """MFU in percent; None without a basis, and above 100, where it was not this configuration."""
    if mfu_basis is None:
        return None
    share = mfu(case, step_time, mfu_basis)
    return share if share <= 100 else None


def days_per_1t_tokens(case: Case, step_time: float) -> float:
    """Days to train on 1e12 tokens at this pace."""
    return 1e12 / tokens_per_second(case, step_time) / SECONDS_PER_DAY
