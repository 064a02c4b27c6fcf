"""Megatron-LM's own rules for a GPT: what must divide what, and how large the model really is. Pure.

Megatron asserts the rules itself, minutes after hundreds of GPUs were given to it. Here they are checked before.
Source: megatron/training/arguments.py (`validate_args`), core/transformer/transformer_config.py and
core/tensor_parallel/mappings.py, at commit 878d65f.
"""

from __future__ import annotations

from plugins.recipes.file import Model

POSITIONS = 2048
"""What the recipes give as --max-position-embeddings; a longer sequence needs as many as it has tokens."""


def padded_vocabulary(tokens: int, pad_to: int, tp: int) -> int:
    """The embedding's rows: `tokens` padded to a multiple of --make-vocab-size-divisible-by x tensor parallel size."""
    unit = pad_to * tp
    return -(-tokens // unit) * unit


def parameters(model: Model, sequence_length: int) -> int:
    """The parameters of a GPT: every layer with biases and two layer norms, learned positions, one embedding for both ends.

    With layers L, hidden size h, FFN size f, vocabulary V and positions P: L (4 h^2 + 4 h + 2 h f + f + h + 4 h) + (V + P) h +
    2 h. For f = 4 h that is L (12 h^2 + 13 h) + ...
    """
    h, f = model.hidden, model.ffn
    layer = 4 * h * h + 4 * h + 2 * h * f + f + h + 4 * h
    return model.layers * layer + (model.vocab + max(POSITIONS, sequence_length)) * h + 2 * h


def broken_rules(model: Model, sequence_length: int, *, tp: int, pp: int, vp: int) -> list[str]:
    """What Megatron would refuse, with the arithmetic; empty when it takes it."""
    found = []
    for what, value, name, divisor in (
        ("layers", model.layers, "pp x vp", pp * vp),
        ("heads", model.heads, "tp", tp),
        ("hidden size", model.hidden, "heads", model.heads),
        # --sequence-parallel, which Megatron turns off by itself where tp is 1.
        ("sequence length", sequence_length, "tp", tp),
    ):
        if value % divisor:
            found.append(
                f"{what} {value} is not a multiple of {name} = {divisor} ({value} = {_division(value, divisor)})"
            )
    return found


def _division(value: int, divisor: int) -> str:
    return f"{value // divisor} x {divisor} + {value % divisor}"
