"""Megatron-LM's rules for a GPT: which sizes must divide which, and how many parameters the model has. Pure.

Megatron checks the rules itself, but minutes after it was given hundreds of GPUs. Here they are checked
before that.
Source: megatron/training/arguments.py (`validate_args`), core/transformer/transformer_config.py and
core/tensor_parallel/mappings.py, at commit 878d65f.
"""

from __future__ import annotations

from plugins.recipes.models import Model

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
