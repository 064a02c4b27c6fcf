"""Megatron-Bridge's performance tables as cases and baselines: read whole, audited, and written as they stand.

The pages are upstream's own, at the commit that their folder is named after (Apache License 2.0).
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from plugins.base.errors import ConfigError
from plugins.base.yamlfile import load
from plugins.baselines.baseline_file import BaselineFile, load_baselines
from plugins.baselines.expected import counting, expected
from plugins.baselines.metrics import FlopsDefinition, flops_per_sequence
from plugins.baselines.store import find, lacking
from plugins.recipes.expansion import load_recipe
from plugins.recipes.recipe_file import read_recipe
from tests.unit import examples

SUITE = examples.ROOT / "suites" / "megatron_bridge"
PAGES = Path(__file__).parent / "megatron_bridge"
COMMIT = "067f987df03b8355b03192d88d70f1709fedf51a"
PRINTED = (
    "#-GPUs",
    "GBS",
    "MBS",
    "Sequence Length",
    "FSDP",
    "TP",
    "PP",
    "CP",
    "VP",
    "EP",
    "Tokens / sec / GPU",
    "Model TFLOP / sec / GPU",
)
CAUSAL = FlopsDefinition(definition="causal-attention")


def _program() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "megatron_bridge_published", examples.ROOT / "tools" / "megatron_bridge" / "published.py"
    )
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    # A dataclass looks its module up.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


published: Any = _program()


def texts(commit: str) -> dict[str, str]:
    return {f"docs/{path.name}": path.read_text() for path in sorted((PAGES / commit[:7]).iterdir())}


def rows(commit: str = COMMIT) -> list[Any]:
    return list(published.read_pages({page: texts(commit)[page] for page in published.PAGES}))


def printed_lines(commit: str = COMMIT) -> Iterator[tuple[str, int, str, str]]:
    """A second reader: each line of a pre-training table below its header, which comes with it."""
    for page, text in texts(commit).items():
        pretraining, header = False, ""
        for number, line in enumerate(text.split("\n"), start=1):
            if line.startswith("### "):
                pretraining = line == "### Pre-Training Performance"
            if "Sequence Length" in line:
                header = line
            elif pretraining and re.match(r"\| *(DGX-|[A-Z][A-Za-z0-9._]+[ _|])", line):
                yield page, number, header, line


def printed_figures(header: str, line: str) -> list[list[str | None]]:
    """The figures of a line by the second reader: those before the parentheses, then those in them. `n/a` is a size of 1."""
    names = [name.strip() for name in header.strip("| ").split("|")]
    cells = dict(
        zip(names, (cell.partition("[")[0].strip() for cell in line.strip("| ").split("|")), strict=True)
    )
    both = [
        re.fullmatch(r"([^ (]+)(?: *\((.+)\))?", cells.get(name, "0").replace("n/a", "1")) for name in PRINTED
    ]
    words = [cell.groups() for cell in both if cell]
    assert len(words) == len(PRINTED), line
    lines: list[list[str | None]] = [[first for first, _ in words]]
    if words[-1][1]:
        lines.append([second or first for first, second in words])
        lines[1][-2] = words[-2][1]
    return lines


def test_a_second_reader_sees_the_same_rows_and_figures() -> None:
    lines = {(page, number): (header, line) for page, number, header, line in printed_lines()}
    assert len(lines) == 268
    read: dict[tuple[str, int], list[list[str | None]]] = {}
    for row in rows():
        values = [row.gpus, row.gbs, row.mbs, row.sequence_length, row.fsdp if row.fsdp > 1 else 0]
        values += [row.tp, row.pp, row.cp, row.vp, row.ep, row.tokens, row.tflops]
        read.setdefault((row.page, row.line), []).append(
            [None if value is None else str(value) for value in values]
        )
    printed = {place: printed_figures(*texts) for place, texts in lines.items()}
    assert {place for place in printed if read[place] != printed[place]} == {(published.PAGES[1], 608)}


def test_the_precision_of_a_figure_is_the_one_printed_at_its_place() -> None:
    """Without a column of precisions a footnote says it, of each type of GPU."""
    names = {
        "BF16": "bf16",
        "FP8": "fp8_cs",
        "FP8-CS": "fp8_cs",
        "FP8-MX": "mxfp8",
        "MXFP8": "mxfp8",
        "NVFP4": "nvfp4",
    }
    dtypes: dict[tuple[str, int], list[str]] = {}
    gpus = {}
    for row in rows():
        dtypes.setdefault((row.page, row.line), []).append(row.dtype)
        gpus[row.page, row.line] = row.gpu
    for page, number, header, line in printed_lines():
        read = [names[word] for word in re.findall(r"[A-Z0-9-]+", line) if word in names]
        if "Precision" not in header:
            read = ["fp8_cs", "fp8_block" if gpus[page, number] == "h100" else "mxfp8"]
        of_line = dtypes[page, number]
        assert of_line == read[: len(of_line)]
        assert "Precision" not in header or of_line == read


def test_what_is_printed_agrees_within_its_rounding() -> None:
    """By the FLOPs of each release no two figures of a row are further apart than 1 % and half a sample/s.

    Those that are more than 1 % apart are all of releases that print whole samples/s.
    """
    models = read_recipe(SUITE).models
    known = [row for row in rows() if row.has_shape and row.tokens]
    assert [row for row in known if published.disagreement(row, models[row.model])] == []
    apart = []
    for row in known:
        flops = flops_per_sequence(models[row.model], row.sequence_length, CAUSAL) / row.sequence_length
        if abs(row.tokens * flops / (row.tflops * 1e12) - 1) > 0.01:
            apart.append((row.release, row.gpu, row.size, row.dtype))
    assert apart == [
        ("26.08", "gb300", "nemotron-3-nano", "mxfp8"),
        ("26.04.01", "h100", "llama3-70b", "fp8_cs"),
        ("26.04.01", "gb300", "llama3.1-405b", "fp8_cs"),
        ("26.04.01", "gb300", "llama3.1-405b", "mxfp8"),
        ("26.04.01", "gb200", "llama3.1-405b", "fp8_cs"),
        ("26.04.01", "gb200", "llama3.1-405b", "mxfp8"),
    ]


def test_a_figure_that_follows_from_another_model_is_noticed() -> None:
    row = next(row for row in rows() if (row.release, row.size) == ("25.11", "deepseek-v3-no-mtp"))
    model = read_recipe(SUITE).models["deepseek-v3"]
    assert published.disagreement(row, model) == "3848 tokens/s are printed; 961 TFLOP/s are 3696 tokens/s"


def test_the_files_are_what_the_program_writes() -> None:
    """Baselines, cases and releases are those of the commit, byte for byte."""
    models = read_recipe(SUITE).models
    text = published.baselines_text(rows(), models, COMMIT)
    assert text == (examples.BASELINES / "megatron_bridge.yaml").read_text()
    newest = [row for row in rows() if row.release == "26.08"]
    assert (
        (SUITE / "recipe.yaml").read_text().endswith(published.MARK + published.release_text(newest, COMMIT))
    )
    for release in {row.release for row in rows()} - {"26.08"}:
        group = [row for row in rows() if row.release == release]
        assert published.release_text(group, COMMIT) in (SUITE / "releases" / f"{release}.yaml").read_text()


def test_every_row_is_a_cell_or_a_note() -> None:
    file = load_baselines(examples.BASELINES / "megatron_bridge.yaml")
    cells = sum(len(table.cells) for table in file.tables)
    notes = [note for table in file.tables for note in table.notes]
    assert (cells, len(notes)) == (276, 7)
    assert sum("no source states the model's shape" in note for note in notes) == 5
    assert sum("regression" in note.lower() for note in notes) == 2


@pytest.mark.parametrize(
    ("release", "gpu", "case_id", "tokens"),
    [
        # 1664 tokens/s are printed, which are 13 samples/s; 731 TFLOP/s are 1627 tokens/s.
        ("26.04.01", "h100", "llama3-70b-fp8_cs-64gpus", 1627.3),
        ("26.06", "h100", "llama3.1-405b-fp8_cs-1024gpus", 326.0),
        ("26.08", "gb300", "nemotron-3-nano-mxfp8-8gpus", 40443.3),
        ("25.09", "h100", "deepseek-v3-fp8_block-1024gpus", 1269.3),
    ],
)
def test_the_expected_pace_is_that_of_the_finer_figure(
    release: str, gpu: str, case_id: str, tokens: float
) -> None:
    recipe = load_recipe(SUITE, release, gpu)
    case = recipe.case(case_id)
    assert case is not None
    baseline = find(examples.BASELINES, recipe, case, gpu)
    assert baseline is not None
    basis = counting(case, baseline, gpu, examples.BASELINES).basis()
    assert basis is not None
    target = expected(case, baseline, basis)
    assert target.tokens_per_second / case.gpus == pytest.approx(tokens, abs=0.05)


def test_a_regression_of_upstream_judges_no_run() -> None:
    recipe = load_recipe(SUITE, "26.06.01", "gb300")
    case = recipe.case("gpt-oss-120b-mxfp8-64gpus")
    assert case is not None
    assert find(examples.BASELINES, recipe, case, "gb300") is None
    reason = lacking(examples.BASELINES, case, "gb300")
    assert reason.startswith(
        "no run is judged by the printed 20288 tokens/s and 661 TFLOP/s per GPU: Performance regression in"
    )


HEADER = "| System | #-GPUs | Precision | GBS | MBS | Sequence Length | TP | PP | CP | VP | EP | Tokens / sec / GPU | Model TFLOP / sec / GPU |"
ROW = "| DGX-H100 | 64 | FP8 | 256 | 1 | 8192 | 4 | 8 | 1 | 5 | n/a | 1664 | 731 |"
PAGE = f"""## 26.08 NeMo Container

### Pre-Training Performance

#### Model: LLAMA3_70B

{HEADER}
|---|---|---|---|---|---|---|---|---|---|---|---|---|
{ROW}
"""


def test_a_page_of_one_row() -> None:
    [row] = published.read_pages({"page.md": PAGE})
    assert (row.size, row.dtype, row.tokens, row.tflops, row.line) == ("llama3-70b", "fp8_cs", 1664, 731, 9)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("LLAMA3_70B", "LLAMA4_70B", "9: this cannot be read: the model 'LLAMA4_70B' is unknown here"),
        ("LLAMA3_70B", "LLAMA3_70B (fast)", "the suffix of a model 'fast' is unknown here"),
        ("| FP8 |", "| INT8 |", "the precision 'INT8' is unknown here"),
        ("| 1664 |", "| 1,664 |", "'1,664' is of no known form"),
        ("| 1664 |", "| n/a |", None),
        ("| 731 |", "| ~731 |", "'~731' is of no known form"),
        ("| 731 |", "| 731 | 1 |", "9: this cannot be read"),
        ("| 731 |", "| n/a |", "9: this cannot be read: no figure below Model TFLOP / sec / GPU"),
        ("| GBS |", "| Batch |", "the column 'Batch' is unknown here"),
        (
            "### Pre-Training",
            "### Pretraining",
            "3: this cannot be read: the section 'Pretraining' is unknown",
        ),
        (
            "### Pre-Training Performance",
            "text",
            "7: this cannot be read: a table outside a release's section",
        ),
        (
            "#### Model: LLAMA3_70B",
            "#### LLAMA3_70B",
            "5: this cannot be read: '#### LLAMA3_70B' is of no known form",
        ),
        ("## 26.08 NeMo Container", "## Next", "a table outside a release's section"),
        (ROW, f"{ROW}\n{ROW}\n{ROW}", "11: this scale is printed twice with the same batch"),
        ("| 1664 |", "| 1664 (1500) |", "a second precision without a second TFLOP/s figure"),
    ],
)
def test_a_page_that_cannot_be_read_is_an_error(old: str, new: str, reason: str | None) -> None:
    assert old in PAGE
    if reason is None:
        assert len(published.read_pages({"page.md": PAGE.replace(old, new, 1)})) == 1
        return
    with pytest.raises(ConfigError, match=re.escape(reason)):
        published.read_pages({"page.md": PAGE.replace(old, new, 1)})


def baselines_of(text: str, folder: Path) -> BaselineFile:
    models = read_recipe(SUITE).models
    path = folder / "baselines.yaml"
    path.write_text(published.baselines_text(published.read_pages({"page.md": text}), models, COMMIT))
    return load(path, BaselineFile)


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        ("| 256 | 1 |", "| 128 | 1 |", "26.08 h100 llama3-70b fp8_cs 64 GPUs: gbs 256 -> 128"),
        ("| 256 | 1 |", "| 256 | 2 |", "26.08 h100 llama3-70b fp8_cs 64 GPUs: mbs 1 -> 2"),
        ("| n/a |", "| 8 |", "26.08 h100 llama3-70b fp8_cs 64 GPUs: ep none -> 8"),
        ("| 731 |", "| 735 |", "26.08 h100 llama3-70b fp8_cs 64 GPUs: TFLOP/s 731.0 -> 735.0"),
        (
            "FP8 |",
            "BF16 |",
            "26.08 h100 llama3-70b bf16 64 GPUs: tokens/s none -> 1664.0, TFLOP/s none -> 731.0, ",
        ),
        (
            "FP8 |",
            "BF16 |",
            "26.08 h100 llama3-70b fp8_cs 64 GPUs: tokens/s 1664.0 -> none, TFLOP/s 731.0 -> none, ",
        ),
        ("26.08", "26.10", "26.10: a new release"),
        (
            "26.08",
            "26.10",
            "26.08: no longer printed; delete its file in releases/",
        ),
    ],
)
def test_what_upstream_changed_is_told(old: str, new: str, change: str, tmp_path: Path) -> None:
    files = [baselines_of(text, tmp_path) for text in (PAGE, PAGE.replace(old, new))]
    changes = published.changes(*files)
    assert any(line.startswith(change) for line in changes)
    assert len(changes) == (2 if new in ("BF16 |", "26.10") else 1)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (
            "DGX-H100",
            "DGX-H900",
            "page.md:9: this cannot be read: the type of GPU 'h900' is unknown here; add it to baselines/accelerators.yaml",
        ),
        (
            "FP8 |",
            "NVFP4 |",
            "page.md:9: this cannot be read: the peak of h100 in 'nvfp4' is unknown here; add it to baselines/accelerators.yaml",
        ),
        (
            ROW,
            f"{ROW.replace('731', '731[^r]')}\n\n[^r]: a regression\n",
            "page.md:9: no run can be judged by any row of 26.08 on h100",
        ),
    ],
)
def test_what_cannot_be_written_leaves_every_file_as_it_was(
    old: str, new: str, reason: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    suite = tmp_path / "megatron_bridge"
    shutil.copytree(SUITE, suite)
    monkeypatch.setattr(published, "SUITE", suite)
    monkeypatch.setattr(published, "RECIPE", suite / "recipe.yaml")
    before = {path: path.read_bytes() for path in sorted(suite.rglob("*.yaml"))}
    with pytest.raises(ConfigError, match=re.escape(reason)):
        published.write(published.read_pages({"page.md": PAGE.replace(old, new)}), COMMIT)
    assert {path: path.read_bytes() for path in sorted(suite.rglob("*.yaml"))} == before
