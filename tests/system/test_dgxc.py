"""What dgxc-benchmarking runs, as cases: by upstream's own code, and joined exactly with what is published.

The archive has upstream's files at the commits that its folders are named after: dgxc-benchmarking v26.06.01 (MIT License) and
scripts/performance of Megatron-Bridge (Apache License 2.0).
"""

from __future__ import annotations

import importlib
import re
import tarfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fixtures.backends.replay import LogFinder
from plugins.base.errors import ConfigError
from plugins.baselines.baseline_file import load_baselines
from plugins.baselines.expected_range import numbers as known
from plugins.baselines.store import find, lacking
from plugins.recipes.cases import Case, Recipe
from plugins.recipes.expansion import load_recipe
from plugins.recipes.recipe_file import read_recipe
from tests.system.support import pacemark
from tests.unit import examples

COMMIT = "c84bc9b800403cdb6fd90ddb7d69c0c957b09cec"
GPUS = ("gb300", "gb200", "b300", "b200", "h100")
SUITES = examples.ROOT / "suites"
dgxc: Any = importlib.import_module("tools.megatron_bridge.dgxc")
cells: Any = importlib.import_module("tools.megatron_bridge.cells")
RECIPES = [family.recipe for family in dgxc.FAMILIES]


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("upstream")
    with tarfile.open(examples.ROOT / "tests" / "lab" / "recipe_dgxc" / "upstream.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def cases() -> list[tuple[Recipe, str, Case]]:
    """Each case with its recipe and type of GPU."""
    recipes = [(load_recipe(SUITES / name, "26.06.01", gpu), gpu) for name in RECIPES for gpu in GPUS]
    return [(recipe, gpu, case) for recipe, gpu in recipes if not recipe.unfit for case in recipe.cases]


def test_the_files_are_what_the_program_writes(upstream: Path) -> None:
    """Cases, contracts and baselines are those of the commit, byte for byte."""
    bridges = {folder.name: folder for folder in upstream.iterdir() if len(folder.name) == 40}
    texts = dgxc.texts(upstream / "dgxc-benchmarking", bridges, "26.06.01", COMMIT)
    assert len(texts) == 14
    assert [path for path, text in texts.items() if path.read_text() != text] == []


def test_a_second_reader_counts_the_same_cells(upstream: Path) -> None:
    """288 whole models and 42 smaller ones: `dtypes: 'fp8'` is one dtype, not three letters."""
    scales: tuple[Counter[str], Counter[str]] = Counter(), Counter()
    for family in dgxc.FAMILIES:
        text = (upstream / "dgxc-benchmarking" / family.path / "metadata.yaml").read_text()
        configurations = text.partition("gpu_configs:")[2]
        for gpu, lines in re.findall(
            r"^    (\w+):\n((?:      .*\n|\n)+)", configurations + "\n", re.MULTILINE
        ):
            for line in lines.split("- model_size:")[1:]:
                dtypes = re.findall(r"bf16|fp8|nvfp4", line)
                for count, key in zip(scales, ("", "proxy_"), strict=True):
                    listed = re.search(rf"\b{key}scales: *\[([^\]]*)\]|fp8: *\[([^\]]*)\]", line)
                    if listed and (key or "proxy" not in listed[0]):
                        count[gpu] += len(dtypes) * len((listed[1] or listed[2]).split(","))
    found = [(gpu, case) for _, gpu, case in cases()]
    whole = Counter(gpu for gpu, case in found if not case.size.endswith("-proxy"))
    assert whole == scales[0] == {"gb300": 74, "gb200": 53, "b300": 62, "b200": 59, "h100": 40}
    assert Counter(gpu for gpu, case in found if case.size.endswith("-proxy")) == {"gb300": 39, "gb200": 3}
    assert scales[1]["gb300"] == 39


def test_each_case_has_a_number_or_the_reason_why_not() -> None:
    numbers: Counter[str] = Counter()
    for recipe, gpu, case in cases():
        baseline, reason = (
            find(examples.BASELINES, recipe, case, gpu),
            lacking(examples.BASELINES, case, gpu),
        )
        assert (baseline is None) == bool(reason), (gpu, case.key)
        numbers[gpu] += baseline is not None
        assert baseline is None or case.gpus != 512
        assert known(case, baseline, gpu, examples.BASELINES).lacking == reason
    assert numbers == {"gb300": 9, "gb200": 6, "b300": 3, "b200": 4, "h100": 3}
    assert sum(case.gpus == 512 and not case.size.endswith("-proxy") for _, _, case in cases()) == 54


def test_a_number_is_that_of_megatron_bridges_table_for_the_same_configuration() -> None:
    published = load_baselines(examples.BASELINES / "megatron_bridge.yaml")
    for recipe, gpu, case in cases():
        baseline = find(examples.BASELINES, recipe, case, gpu)
        if baseline is None:
            continue
        container = "26.02.01" if recipe.name == "gpt_oss" else "26.04.01"
        assert baseline.table.framework == f"Megatron-Bridge, NeMo container {container}"
        (cell,) = [
            cell
            for table in published.tables
            if (table.release, table.gpu, table.source) == (container, gpu, baseline.table.source)
            for cell in table.cells
            if cell.line == baseline.cell.line and cell.dtype == case.dtype
        ]
        same = {"size": case.size, "note": baseline.cell.note}
        assert cell.model_copy(update=same) == baseline.cell
        changed = baseline.cell.note and "launch.sh sets --moe_a2a_overlap=False" in baseline.cell.note
        assert bool(changed) == ((recipe.name, gpu) == ("deepseek_v3", "b200")), baseline.cell


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({}, ""),
        ({"gpus": 512}, "no figure at this scale; published: 256 GPUs"),
        ({"dtype": "bf16"}, "no figure in this precision; published: fp8_cs on 256 GPUs, mxfp8 on 256 GPUs, nvfp4 on 256 GPUs"),
        ({"published": "llama3-8b"}, "no figure of llama3-8b in container 26.04.01 on gb300"),
        ({"pp": 4}, "the published figure is of another configuration: pp 8"),
        ({"gbs": 3072, "vp": 8}, "the published figure is of another configuration: vp 4, gbs 1536"),
        ({"fsdp": 64}, "the published figure is of another configuration: fsdp 1"),
        ({"size": "405b-proxy"}, "upstream made this model smaller, and publishes whole models only"),
    ],
)  # fmt: skip
def test_the_join_is_exact(changed: dict[str, Any], reason: str) -> None:
    run = dgxc.Run(
        gpu="gb300", size="405b", model="405b", published="llama3.1-405b", dtype="fp8_cs", gpus=256, sequence_length=8192,
        tp=4, pp=8, cp=1, vp=4, ep=1, fsdp=1, mbs=1, gbs=1536,
    )  # fmt: skip
    tables = [
        table
        for table in load_baselines(examples.BASELINES / "megatron_bridge.yaml").tables
        if (table.release, table.gpu) == ("26.04.01", "gb300")
    ]
    cell, why = dgxc.number(replace(run, **changed), tables, "26.04.01")
    assert why == reason
    assert (cell is None) == bool(reason)


@pytest.mark.parametrize("unknown", ["9b", "int8"])
def test_a_size_or_a_precision_that_upstream_added_is_named(unknown: str) -> None:
    family = dgxc.FAMILIES[0]
    answer = {"dtype": "int8" if unknown == "int8" else "bf16", "hidden": None, "layers": None}
    variables = {"GPU_TYPE": "h100", "MODEL_SIZE": "9b" if unknown == "9b" else "8b"}
    reason = f"llama3.1: add {unknown} to dgxc-families.yaml or cells.py"
    with pytest.raises(ConfigError, match=re.escape(reason)):
        cells._run(family, variables, [], answer)


def test_the_models_are_those_of_the_published_tables() -> None:
    known = read_recipe(SUITES / "megatron_bridge").models
    for family in dgxc.FAMILIES:
        models = load_recipe(SUITES / family.recipe, "26.06.01").file.models
        for size, name in family.sizes.items():
            if name == "gpt-oss-120b":
                # Its container counts FLOPs as up to this release.
                name = "gpt-oss-120b-26.04.01"
            assert name == "nemotron-h-56b" or models[size] == known[name]


def test_what_the_launcher_chooses_by_scale_and_gpu() -> None:
    """Lines of upstream's launch.sh: llama3.1 123 to 127, deepseek_v3 121 to 138, gpt-oss 107 to 122."""
    found = {(recipe.name, gpu, case.id): case for recipe, gpu, case in cases()}
    assert ("llama3", "b300", "70b-fp8_cs-64gpus") in found
    assert ("llama3", "b300", "70b-mxfp8-128gpus") in found
    assert ("llama3", "b300", "70b-fp8_cs-128gpus") not in found
    case = found["deepseek_v3", "gb300", "671b-mxfp8-128gpus"]
    assert (case.pp, case.vp, case.ep, case.gbs) == (4, 4, 32, 2048)
    proxy = found["deepseek_v3", "gb300", "671b-proxy-bf16-8gpus"]
    assert (proxy.model.hidden, proxy.model.layers, proxy.ep, proxy.mbs) == (1024, 24, 8, 4)
    assert found["deepseek_v3", "h100", "671b-fp8_block-1024gpus"].gbs == 16384
    case = found["gpt_oss", "gb300", "120b-bf16-72gpus"]
    assert (case.ep, case.mbs, case.gbs) == (8, 5, 1440)


def contract(recipe: Recipe, gpu: str, case: Case) -> dict[str, str]:
    """What the launch contract sets for a case, without the stage."""
    assert recipe.file.launch is not None
    words = {"gpu": gpu, "model": case.model_name, "gpus": case.gpus, "steps": case.steps, "stage": ""}
    words |= {"account": "a", "partition": "p", "time_limit": "00:30:00"}
    variables = recipe.file.launch.environment_of(case.dtype)
    return {name: text.format(**words) for name, text in variables.items() if name != "LLMB_INSTALL"}


@pytest.mark.parametrize("family", dgxc.FAMILIES, ids=RECIPES)
def test_each_launch_contract_starts_its_case_whose_log_is_found_by_the_name_that_upstream_gives_it(
    family: Any, upstream: Path, tmp_path: Path
) -> None:
    """scripts/performance at 06f25c227: setup_experiment.py lines 352 to 359, utils/utils.py line 164.

    One scale of each model and precision: the contract hands the scale over as one variable, and what follows from it is in the
    files that the program writes.
    """
    folder = upstream / "dgxc-benchmarking" / family.path
    metadata = cells.metadata_of(folder)
    smallest = {
        (gpu, case.size, case.dtype): (recipe, gpu, case)
        for recipe, gpu, case in sorted(cases(), key=lambda found: -found[2].gpus)
        if recipe.name == family.recipe
    }
    launched = list(smallest.values())
    variables = [contract(*which) for which in launched]
    lines = cells.arguments_of(folder, cells.workload(metadata), variables)
    answers = cells.configurations(upstream / cells.bridge_commit(metadata), lines)
    for job, ((_, gpu, case), line, answer) in enumerate(zip(launched, lines, answers, strict=True)):
        keys = ("gpus", "tp", "pp", "cp", "vp", "ep", "mbs", "gbs")
        assert [answer[key] for key in keys] == [getattr(case, key) for key in keys], case.id
        assert cells.DTYPES[answer["dtype"]] == case.dtype, case.id
        assert any(re.fullmatch(r"(--max_steps=)?50", word) for word in line), case.id
        sizes = "_".join(f"{key}{answer[key]}" for key in keys)
        name = f"pretrain_{line[line.index('--model_recipe_name') + 1]}_{answer['dtype']}_{sizes}"
        path = tmp_path / gpu / name / f"log-acct-x.{name}_{job}_0.out"
        path.parent.mkdir(parents=True)
        path.touch()
    logs = [LogFinder(recipe, tmp_path / gpu).find(case).path for recipe, gpu, case in launched]
    assert len(set(logs)) == len(launched)


def test_no_log_is_found_by_the_name_of_another_case(tmp_path: Path) -> None:
    """Each type of GPU has the logs of all recipes in one folder."""
    names = {
        "llama3": "llama{v}_{model}", "qwen3": "qwen3_{model}_a{active}b", "deepseek_v3": "deepseek_v3", "gpt_oss": "gpt_oss_{model}",
        "kimi_k2": "kimi_k2", "nemotron3": "nemotron_3_{kind}", "nemotron_h": "nemotronh_{model}",
    }  # fmt: skip
    kinds = {"30b": "nano", "120b": "super"}
    for job, (recipe, gpu, case) in enumerate(cases()):
        words = {
            "model": case.model_name,
            "v": "31" if case.size == "405b" else "3",
            "kind": kinds.get(case.model_name),
        }
        words["active"] = "3" if case.model_name == "30b" else "22"
        dtype = recipe.file.dtype_in_paths(case.dtype)
        name = (
            f"pretrain_{names[recipe.name].format(**words)}_{dtype}_gpus{case.gpus}_tp{case.tp}_gbs{case.gbs}"
        )
        path = tmp_path / gpu / f"log-acct-x.{name}_{job}_0.out"
        path.parent.mkdir(exist_ok=True)
        path.touch()
    for job, (recipe, gpu, case) in enumerate(cases()):
        assert LogFinder(recipe, tmp_path / gpu).find(case).job == str(job), (gpu, case.key)


def test_the_plan_has_the_price_of_a_published_pace_and_says_why_other_cases_have_no_number(
    tmp_path: Path,
) -> None:
    site = tmp_path / "site.yaml"
    site.write_text(
        "site: new\nslurm: {gpu: h100, ssh: {host: login}, account: a, partition: p, stage: /lustre/llmb, "
        'release: "26.06.01"}\n'
    )
    options = ("suites/llama3", "-k", "70b and fp8_cs", "--plan", "--site", str(site))
    result = pacemark(*options, results=tmp_path / "results")
    assert result.status == 0, result.out
    # 6 minutes, and 50 steps of 20.14 s.
    assert re.search(r"^llama3/70b-fp8_cs-64gpus +8 +64 +256 +22\.8 +24\.3$", result.out, re.MULTILINE)
    ids = ", ".join(f"70b-fp8_cs-{gpus}gpus" for gpus in (128, 256, 512))
    assert f"no baseline for {ids} of llama3: no figure at this scale; published: 64 GPUs" in result.out
