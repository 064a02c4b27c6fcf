"""The cases of llama3 are those of the README, and a recipe that cannot be run is refused when it is read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from plugins.base.errors import ConfigError
from plugins.recipes.arithmetic import Term, evaluate, fill
from plugins.recipes.expansion import broken_rules, load_recipe, padded_vocabulary, parameters
from plugins.recipes.models import Model
from plugins.recipes.setup import read_setup
from tests.unit import examples, gpt3_setup, published

IDS = """
8b-bf16-8gpus 8b-bf16-16gpus 8b-bf16-32gpus 8b-bf16-64gpus 8b-bf16-128gpus
8b-fp8-8gpus 8b-fp8-16gpus 8b-fp8-32gpus 8b-fp8-64gpus 8b-fp8-128gpus
70b-bf16-64gpus 70b-bf16-128gpus 70b-bf16-256gpus 70b-bf16-512gpus 70b-bf16-1024gpus 70b-bf16-2048gpus
70b-fp8-64gpus 70b-fp8-128gpus 70b-fp8-256gpus 70b-fp8-512gpus 70b-fp8-1024gpus 70b-fp8-2048gpus
405b-proxy-bf16-32gpus 405b-proxy-fp8-32gpus 405b-proxy-bf16-64gpus 405b-proxy-fp8-64gpus
405b-proxy-bf16-128gpus 405b-proxy-fp8-128gpus
405b-bf16-512gpus 405b-bf16-1024gpus 405b-bf16-2048gpus 405b-fp8-512gpus 405b-fp8-1024gpus 405b-fp8-2048gpus
"""

RECIPE = """\
recipe: small
title: A small recipe
backend: slurm
source: https://example.org/small
log: nemo2
steps: 50
startup_minutes: 1
models:
  tiny: {layers: 2, hidden: 64, ffn: 128, heads: 4, query_groups: 2, vocab: 256}
cases:
  - {size: tiny, dtype: [bf16], gpus: [8, 16], sequence_length: 128, tp: 2, pp: 2, mbs: 1, gbs: 64}
launch:
  folder: small
  command: ./launch.sh
  environment: {GPUS: "{gpus}"}
  job_id: 'job (\\d+)'
  log_folder_printed: 'folder (\\S+)'
  log_name: 'log_{job}_(\\d+)'
release: "2.0"
"""


def write(folder: Path, text: str) -> Path:
    (folder / "recipe.yaml").write_text(text)
    return folder


def refused(folder: Path, old: str, new: str) -> str:
    """What is said about `RECIPE` with `old` replaced by `new`."""
    assert old in RECIPE
    with pytest.raises(ConfigError) as caught:
        load_recipe(write(folder, RECIPE.replace(old, new)))
    assert str(caught.value).startswith(f"{folder / 'recipe.yaml'}:")
    return str(caught.value)


def test_the_readme_has_the_same_cases() -> None:
    assert sorted(published.configurations()) == sorted(IDS.split())


@pytest.mark.parametrize("case_id", IDS.split())
def test_a_case_runs_the_configuration_of_the_readme(case_id: str) -> None:
    case = examples.case(case_id)
    assert case.configuration() == published.configurations()[case_id]
    assert case.tp * case.pp * case.cp * case.dp == case.gpus
    assert case.dp * case.mbs * case.ga == case.gbs


def test_a_proxy_is_the_named_model_with_fewer_layers() -> None:
    proxy, whole = examples.case("405b-proxy-fp8-64gpus"), examples.case("405b-fp8-512gpus")
    assert (proxy.model_name, proxy.model.layers, whole.model.layers) == ("405b", 30, 126)
    assert proxy.model.hidden == whole.model.hidden == 16384


def test_a_case_has_its_names_and_sizes() -> None:
    case = examples.case("70b-fp8-512gpus")
    assert case.key == "llama3/70b-fp8-512gpus"
    assert (case.tokens_per_step, case.steps, case.nodes(8), case.nodes(7)) == (1024 * 8192, 50, 64, 74)
    assert examples.llama3().case("70b-fp8-513gpus") is None


def test_gbs_per_gpu_is_multiplied_out(tmp_path: Path) -> None:
    recipe = load_recipe(write(tmp_path, RECIPE.replace("gbs: 64", "gbs_per_gpu: 0.5")))
    assert [case.gbs for case in recipe.cases] == [4, 8]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("size: tiny", "size: huge", "no model 'huge'; known: tiny"),
        ("size: tiny", "size: s, model: huge", "no model 'huge'; known: tiny"),
        ("gpus: [8, 16]", "gpus: [8, 18]", "gpus 18 is not a multiple of tp x pp x cp x fsdp = 4"),
        ("gpus: [8, 16]", "gpus: [2]", "gpus 2 is not a multiple of tp x pp x cp x fsdp = 4"),
        ("gpus: [8, 16]", "gpus: [8, 8]", "tiny-bf16-8gpus given twice"),
        ("dtype: [bf16]", "dtype: [bf16, bf16]", "tiny-bf16-16gpus, tiny-bf16-8gpus given twice"),
        ("gbs: 64", "gbs: 64, gbs_per_gpu: 2", "give either gbs or gbs_per_gpu"),
        (", gbs: 64", "", "give either gbs or gbs_per_gpu"),
        ("gbs: 64", "gbs: 63", "gbs 63 is not a multiple of mbs x fsdp x dp = 2"),
        ("gbs: 64", "gbs_per_gpu: 0.3", "gbs 2.4 is not a multiple of mbs x fsdp x dp = 2"),
        ("tp: 2, pp: 2", "fsdp: 3", "gpus 8 is not a multiple of tp x pp x cp x fsdp = 3"),
        ("  log_folder_printed: 'folder (\\S+)'\n", "", "give either log_folder (known beforehand)"),
        ("log_folder_printed", "log_folder: /logs\n  log_folder_printed", "give either log_folder (known"),
        ("  log_folder_printed", "  environment_by_size: {huge: {A: b}}\n  log_folder_printed", "environment_by_size: no case has the size huge"),
        ("  log_folder_printed", "  names_by_gpu: {image: {h100: a}}\n  log_folder_printed", "names_by_gpu: image has no value for every type of GPU"),
        ("log: nemo2", "program: train.py\nlog: nemo2", "there is `launch` and `program`"),
        ("log: nemo2", "modules: [jax]\nlog: nemo2", "modules and cpu_environment are those of `program`"),
        ("gpus: [8, 16]", "gpus: [0]", "gpus"),
        ("gpus: [8, 16]", "gpus: [-8]", "gpus"),
        # Each was noticed in the midst of a session, or by a job that nobody could find any more.
        ("(\\d+)'", "(\\d+'", "launch.job_id: not a regular expression: missing ), unterminated subpattern"),
        ("'job (\\d+)'", "'job \\d+'", "launch.job_id: the pattern needs a group, (...), around the job's id"),
        ("'folder (\\S+)'", "'folder [\\S+'", "launch.log_folder_printed: not a regular expression: "),
        ("'folder (\\S+)'", "'folder \\S+'", "launch.log_folder_printed: the pattern needs one group, (...), around"),
        ("'folder (\\S+)'", "'(folder|dir) (\\S+)'", "launch.log_folder_printed: the pattern needs one group, (...)"),
        ("{job}", "{job}(", "launch.log_name: not a regular expression: missing )"),
        ("{job}", "{id}", "launch.log_name: only {name} and {job} are filled in; write any other brace twice: 'id'"),
        ("{job}", r"{job}_\d{3}", "launch.log_name: only {name} and {job} are filled in; write any other brace twice"),
        ("{job}", "{job}{", "launch.log_name: only {name} and {job} are filled in"),
        ("{job}", "42", "launch.log_name: a file that is named after neither {name} nor {job} may be another job's"),
        ("  log_name:", "  error_name: 'x_{job}('\n  log_name:", "launch.error_name: not a regular expression: "),
        (
            "  log_name:",
            "  batch_output: x.out\n  log_name:",
            "launch.batch_output: a file that is named after neither {name} nor {job}",
        ),
        ("log: nemo2", "replay: '(log_(?P<job>\\d+)'\nlog: nemo2", "replay: not a regular expression: missing )"),
        ("log: nemo2", "replay: '(?i)log_(?P<job>.*)'\nlog: nemo2", "replay: not a regular expression: global flags"),
        ("log: nemo2", "replay: 'log_{gpus}.out'\nlog: nemo2", "replay: the pattern needs a group (?P<job>...)"),
        ("log: nemo2", "replay: 'x{99999999999}'\nlog: nemo2", "replay: not a regular expression: the repetition"),
    ],
)  # fmt: skip
def test_a_case_that_cannot_be_run_is_refused_with_its_file(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    assert said in refused(tmp_path, old, new)


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("dtype: [bf16]", "dtype: [fp4]", 11, "fp8"),
        ("dtype: [bf16]", "dtype: []", 11, "dtype"),
        ("mbs: 1", "mbs: 0", 11, "mbs: must be greater than 0"),
        ("tp: 2", "tp: two", 11, "tp: expected a whole number"),
        ("tp: 2", "ttp: 2", 11, "did you mean 'tp'?"),
        ("log: nemo2", "log: nemo3", 5, "nemo2"),
        ("steps: 50\n", "", 1, "steps: missing"),
        ("steps: 50", "steps: 1", 6, "steps"),
        ("layers: 2,", "layers: 2.5,", 9, "layers"),
        ("query_groups: 2", "query_goups: 2", 9, "did you mean 'query_groups'?"),
    ],
)
def test_a_wrong_key_is_refused_with_its_line(
    tmp_path: Path, old: str, new: str, line: int, said: str
) -> None:
    lines = refused(tmp_path, old, new).splitlines()
    place = f"{tmp_path / 'recipe.yaml'}:{line}: "
    assert any(text.startswith(place) and said in text for text in lines), lines


def test_a_folder_without_a_recipe_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load_recipe(tmp_path)


# Expressions in a recipe's YAML

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
