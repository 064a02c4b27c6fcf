"""Megatron-LM's own rules: what must divide what, and how many parameters a GPT has."""

from __future__ import annotations

import pytest

from plugins.recipes.expansion import broken_rules, padded_vocabulary, parameters
from plugins.recipes.models import Model

GPT2 = Model(layers=12, hidden=768, ffn=3072, heads=12, query_groups=12, vocab=50257, mlp="gelu")


@pytest.mark.parametrize(
    ("tp", "padded"), [(1, 50304), (2, 50432), (4, 50688), (8, 51200), (16, 51200), (32, 53248)]
)
def test_the_vocabulary_is_padded_as_megatron_does(tp: int, padded: int) -> None:
    assert padded_vocabulary(50257, 128, tp) == padded
    assert padded_vocabulary(padded, 128, tp) == padded


# GPT-2 small as everybody counts it: 124,439,808 with 1024 positions.
def test_the_parameters_are_those_of_gpt_2() -> None:
    assert parameters(GPT2, 1024) == 124_439_808 + (2048 - 1024) * 768


def test_a_longer_sequence_has_more_positions() -> None:
    assert parameters(GPT2, 4096) - parameters(GPT2, 2048) == 2048 * 768


def test_what_divides_breaks_no_rule() -> None:
    assert broken_rules(GPT2, 1024, tp=4, pp=3, vp=2) == []


def test_every_broken_rule_is_told_with_its_arithmetic() -> None:
    assert broken_rules(GPT2.model_copy(update={"hidden": 770}), 1023, tp=8, pp=5, vp=1) == [
        "layers 12 is not a multiple of pp x vp = 5 (12 = 2 x 5 + 2)",
        "heads 12 is not a multiple of tp = 8 (12 = 1 x 8 + 4)",
        "hidden size 770 is not a multiple of heads = 12 (770 = 64 x 12 + 2)",
        "sequence length 1023 is not a multiple of tp = 8 (1023 = 127 x 8 + 7)",
    ]
