"""What is computed for a recipe: expressions in its YAML, and Megatron-LM's own rules: what must divide what, and parameters."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from plugins.base.errors import ConfigError
from plugins.recipes.arithmetic import Term, evaluate, fill
from plugins.recipes.expansion import broken_rules, padded_vocabulary, parameters
from plugins.recipes.models import Model
from plugins.recipes.setup import read_setup
from tests.unit import gpt3_setup

WORDS: dict[str, Term] = {"pairs": "31", "chunks": 15, "tier": "125", "kind": "blob"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("pairs - 2 * chunks", 1),
        ("(pairs - 1) // 2 % 4", 3),
        ("min(pairs, chunks, 20) + max(1, 2)", 17),
        ("pairs - 2 * chunks >= 1", True),
        ("pairs != 31", False),
        ("kind == 'blob'", True),
        # Digits are numbers, wherever they come from.
        ("tier == '125'", True),
        ("{40: 48, 125: 16}[tier]", 16),
        ("{'blob': chunks}[kind]", 15),
    ],
)
def test_an_expression_has_its_value(text: str, value: int) -> None:
    assert evaluate(text, WORDS) == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pairs - kind", "`kind` is 'blob', which is no number"),
        ("kind > 1", "`kind` is 'blob', which is no number"),
        ("parts + 1", "nothing is known as parts; known: chunks, kind, pairs, tier"),
        ("{40: 48}[tier]", "`tier` is 125; known: 40"),
        ("pairs // (chunks - 15)", "divides by zero"),
    ],
)
def test_what_has_no_value_is_told(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        evaluate(text, WORDS)


@pytest.mark.parametrize(
    "text",
    [
        *("", "pairs -", "2 ** pairs", "pairs / 2", "1.5", "pairs.real", "print(pairs)", "min(pairs)", "min(*pairs)"),
        *("[1, 2]", "{**tier}[1]", "{1: 2}", "pairs[0]", "1 < pairs < 9", "not pairs", "lambda: 1", "(" * 150),
    ],
)  # fmt: skip
def test_anything_else_is_refused_when_the_recipe_is_read(tmp_path: Path, text: str) -> None:
    source = (gpt3_setup.SOURCE / "setup.yaml").read_text()
    path = tmp_path / "setup.yaml"
    path.write_text(source.replace("require: left >= 1", f'require: "{text}"', 1))
    with pytest.raises(ConfigError, match=rf"^{path}:\d+: data.rules.0.require: .* expression"):
        read_setup(path)


def test_names_in_braces_are_filled_in_once() -> None:
    assert fill("{kind}: {pairs}", {"kind": "{pairs}", "pairs": "01"}) == "{pairs}: 01"
    with pytest.raises(ValueError, match="nothing is known as kinds"):
        fill("{kinds}", WORDS)


def test_a_pattern_of_progress_names_what_is_read(tmp_path: Path) -> None:
    path = tmp_path / "setup.yaml"
    path.write_text((gpt3_setup.SOURCE / "setup.yaml").read_text().replace("(?P<unit>files)", "files"))
    with pytest.raises(ConfigError, match=r"data.progress: the pattern needs the groups \(\?P<unit>"):
        read_setup(path)


# Megatron-LM

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
    assert parameters(GPT2, 4096) - parameters(GPT2, 2048) == 2048 * 768, "more positions"


def test_every_broken_rule_is_told_with_its_arithmetic() -> None:
    assert broken_rules(GPT2, 1024, tp=4, pp=3, vp=2) == []
    assert broken_rules(GPT2.model_copy(update={"hidden": 770}), 1023, tp=8, pp=5, vp=1) == [
        "layers 12 is not a multiple of pp x vp = 5 (12 = 2 x 5 + 2)",
        "heads 12 is not a multiple of tp = 8 (12 = 1 x 8 + 4)",
        "hidden size 770 is not a multiple of heads = 12 (770 = 64 x 12 + 2)",
        "sequence length 1023 is not a multiple of tp = 8 (1023 = 127 x 8 + 7)",
    ]
