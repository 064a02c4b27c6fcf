"""What exemplar-performance (dgxc-benchmarking up to 26.06.01) runs, as cases: by upstream's own code, and joined exactly with what is published.

The archive has upstream's files at the commits that its folders are named after: dgxc-benchmarking v26.06.01 and
exemplar-performance v26.08.00 (MIT License), and scripts/performance of Megatron-Bridge (Apache License 2.0).
"""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import yaml

from fixtures.backends.log_finder import LogFinder
from plugins.base.errors import ConfigError
from plugins.baselines.baseline_file import load_baselines
from plugins.baselines.expected_range import numbers as known
from plugins.baselines.store import find, lacking
from plugins.recipes.cases import Case, Recipe
from plugins.recipes.expansion import load_recipe
from plugins.recipes.recipe_file import read_recipe
from plugins.record.plan import read_plan
from tests.system.support import pacemark
from tests.unit import examples

OLD, NEW = "26.06.01", "26.08.00"
UPSTREAM = {
    OLD: ("dgxc-benchmarking", "c84bc9b800403cdb6fd90ddb7d69c0c957b09cec"),
    NEW: ("exemplar-performance", "e249aa3c788284d1575379ccf73568c383d4c91e"),
}
GPUS = ("gb300", "gb200", "b300", "b200", "h100")
SUITES = examples.ROOT / "suites"
dgxc: Any = importlib.import_module("tools.megatron_bridge.dgxc")
cells: Any = importlib.import_module("tools.megatron_bridge.cells")
RECIPES = [family.recipe for family in dgxc.FAMILIES]
each_release = pytest.mark.parametrize("release", list(UPSTREAM))
# What the program writes of both releases takes seconds, and is made once.
pytestmark = pytest.mark.xdist_group("dgxc")


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("upstream")
    with tarfile.open(examples.ROOT / "tests" / "lab" / "recipe_dgxc" / "upstream.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def bridges(upstream: Path) -> dict[str, Path]:
    return {folder.name: folder for folder in upstream.iterdir() if len(folder.name) == 40}


@pytest.fixture(scope="module")
def written(upstream: Path, bridges: Mapping[str, Path]) -> dict[str, dict[Path, str]]:
    """What the program writes of each release."""
    return {
        release: dgxc.texts(upstream / name, bridges, release, commit)
        for release, (name, commit) in UPSTREAM.items()
    }


@lru_cache
def cases(release: str) -> list[tuple[Recipe, str, Case]]:
    """Each case with its recipe and type of GPU."""
    recipes = [(load_recipe(SUITES / name, release, gpu), gpu) for name in RECIPES for gpu in GPUS]
    return [(recipe, gpu, case) for recipe, gpu in recipes if not recipe.unfit for case in recipe.cases]


def is_proxy(case: Case) -> bool:
    return case.size.endswith("-proxy")


@each_release
def test_the_files_are_what_the_program_writes(
    written: Mapping[str, Mapping[Path, str]], release: str
) -> None:
    """Cases, contracts and baselines are those of the commit, byte for byte, beside the other release."""
    texts = written[release]
    assert len(texts) == 14
    assert [path for path, text in texts.items() if path.read_text() != text] == []
    assert list(dgxc.changes(texts, release)) == []


def scales(text: str) -> Iterator[tuple[str, bool, int]]:
    """The type of GPU, whether it is a proxy's, and how many cells: of each list of scales in a metadata.yaml, by its lines."""
    gpu, dtypes = "", 0
    for line in text.partition("gpu_configs:")[2].splitlines():
        words = line.split("#")[0].strip(" -")
        name, _, listed = words.partition(": ")
        if re.fullmatch(r"    \w+:", line):
            gpu = words.strip(":")
        elif name == "dtypes":
            dtypes = len(re.findall(r"\w+", listed))
        elif re.fullmatch("bf16|fp8|nvfp4", name.strip(":")):
            dtypes = 1
        if "[" in listed and name != "dtypes":
            yield gpu, name == "proxy_scales", dtypes * len(listed.split(","))


@pytest.mark.parametrize(
    ("release", "whole", "proxies"),
    [
        (OLD, {"gb300": 74, "gb200": 53, "b300": 62, "b200": 59, "h100": 40}, {"gb300": 39, "gb200": 3}),
        (NEW, {"gb300": 80, "gb200": 60, "b300": 68, "b200": 62, "h100": 39}, {"gb300": 12, "gb200": 12, "b300": 4, "b200": 4}),
    ],
)  # fmt: skip
def test_a_second_reader_counts_the_same_cells(
    upstream: Path, release: str, whole: dict[str, int], proxies: dict[str, int]
) -> None:
    """288 whole models and 42 smaller ones, then 309 and 32: `dtypes: 'fp8'` is one dtype, not three letters."""
    counts: dict[bool, Counter[str]] = {False: Counter(), True: Counter()}
    for _, folder in dgxc.found(upstream / UPSTREAM[release][0]):
        for gpu, proxy, count in scales((folder / "metadata.yaml").read_text()):
            counts[proxy][gpu] += count
    assert counts == {False: whole, True: proxies}
    found = Counter((is_proxy(case), gpu) for _, gpu, case in cases(release))
    assert found == {(proxy, gpu): count for proxy, of in counts.items() for gpu, count in of.items()}


@pytest.mark.parametrize(
    ("release", "published", "on_512"),
    [
        (OLD, {"gb300": 9, "gb200": 6, "b300": 3, "b200": 4, "h100": 3}, 54),
        (NEW, {"gb300": 5, "gb200": 3, "b300": 0, "b200": 0, "h100": 0}, 57),
    ],
)
def test_each_case_has_a_number_or_the_reason_why_not(
    release: str, published: dict[str, int], on_512: int
) -> None:
    numbers: Counter[str] = Counter()
    for recipe, gpu, case in cases(release):
        baseline, reason = (
            find(examples.BASELINES, recipe, case, gpu),
            lacking(examples.BASELINES, case, gpu),
        )
        assert (baseline is None) == bool(reason), (gpu, case.key)
        numbers[gpu] += baseline is not None
        assert baseline is None or (case.gpus != 512 and not is_proxy(case))
        assert known(case, baseline, gpu, examples.BASELINES).lacking == reason
    assert numbers == published
    assert sum(case.gpus == 512 and not is_proxy(case) for _, _, case in cases(release)) == on_512


@each_release
def test_a_number_is_that_of_megatron_bridges_table_for_the_same_configuration(release: str) -> None:
    published = load_baselines(examples.BASELINES / "megatron_bridge.yaml")
    for recipe, gpu, case in cases(release):
        baseline = find(examples.BASELINES, recipe, case, gpu)
        if baseline is None:
            continue
        container = "26.02.01" if recipe.name == "gpt_oss" else "26.04.01"
        if release == NEW:
            container = "26.06.01"
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


@pytest.mark.parametrize(
    ("variables", "answer", "reason"),
    [
        ({"MODEL_SIZE": "9b"}, {}, "llama3.1: add 9b to dgxc-families.yaml or cells.py"),
        ({}, {"dtype": "int8"}, "llama3.1: add int8 to dgxc-families.yaml or cells.py"),
        ({"PROXY_WORKLOAD": "true"}, {}, "launch.sh runs the whole model"),
        ({}, {"layers": 31, "experts": 16}, "launch.sh runs a smaller model"),
    ],
    ids=["a size", "a precision", "a proxy that is none", "a whole model that is none"],
)
def test_what_upstream_added_or_calls_otherwise_is_named(
    variables: dict[str, str], answer: dict[str, Any], reason: str
) -> None:
    usual = {"GPU_TYPE": "h100", "MODEL_SIZE": "8b", "PROXY_WORKLOAD": "false"}
    answers = {"dtype": "bf16", "hidden": None, "layers": None, "experts": None}
    with pytest.raises(ConfigError, match=re.escape(reason)):
        cells._run(dgxc.FAMILIES[0], {**usual, **variables}, [], {**answers, **answer})


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("    gb300:", "    gb400:", "the type of GPU gb400 is unknown; add it to accelerators.yaml"),
        ("workload: qwen3", "workload: qwen4", "no metadata.yaml is of the workload qwen3; correct dgxc-families.yaml"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_refused_before_anything_is_written(
    upstream: Path, bridges: Mapping[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], old: str, new: str, reason: str,
) -> None:  # fmt: skip
    checkout = Path(shutil.copytree(upstream / "exemplar-performance", tmp_path / "dgxc"))
    metadata = checkout / "qwen3" / "pretrain" / "metadata.yaml"
    metadata.write_text(metadata.read_text().replace(old, new))
    made = {"dgxc": checkout, **bridges}
    monkeypatch.setattr(dgxc, "checked_out", lambda _clone, _commit, folder, *_paths: made[folder.name])
    places = [
        *SUITES.glob("*/releases/*.yaml"),
        *SUITES.glob("*/recipe.yaml"),
        *examples.BASELINES.glob("*.yaml"),
    ]
    before = {path: path.read_text() for path in places}
    assert dgxc.main(["--clone", ".", "--bridge", ".", NEW, "e249aa3"]) == 1
    assert reason in capsys.readouterr().err
    assert {path: path.read_text() for path in places} == before


def elsewhere(files: Mapping[Path, str], root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[Path, str]:
    """The files as of another checkout, in `root`, which is a copy of this one's suites and baselines."""
    for name in ("suites", "baselines"):
        shutil.copytree(examples.ROOT / name, root / name)
    monkeypatch.setattr(dgxc, "ROOT", root)
    return {root / path.relative_to(examples.ROOT): text for path, text in files.items()}


def test_a_new_release_is_compared_with_the_one_before(
    written: Mapping[str, Mapping[Path, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a comparison of all cells at both commits: 45 are new, 34 are gone, and 20 of whole models run otherwise."""
    files = elsewhere(written[NEW], tmp_path, monkeypatch)
    for path in files:
        if path.parent.name == "releases":
            path.write_text(dgxc.head_of(path))
    lines = list(dgxc.changes(files, NEW))
    news = [f"{recipe} {NEW}: a new release, compared with {OLD}" for recipe in RECIPES]
    assert [line for line in lines if "a new release" in line] == news
    assert sum(line.endswith(": a new cell") for line in lines) == 45
    assert sum(line.endswith(": a cell no more") for line in lines) == 34
    assert "gpt_oss h100 120b bf16 1024 GPUs: a cell no more" in lines
    changed = [line for line in lines if re.search(r" (tp|pp|vp|ep|mbs|gbs_per_gpu) \S+ ->", line)]
    assert sum("-proxy " not in line for line in changed) == 20
    assert (
        "deepseek_v3 gb300 671b mxfp8 256 GPUs: mbs 2 -> 1, tokens/s 4992.0 -> 6304.0, TFLOP/s 1298.0 -> 1640.0"
        in lines
    )
    proxy = "deepseek_v3 gb200 671b-proxy mxfp8 64 GPUs: model 671b-proxy -> 671b-proxy-31l-128e, mbs 2 -> 1"
    assert proxy in lines


def test_what_changed_in_a_release_is_told(
    written: Mapping[str, Mapping[Path, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = elsewhere(written[NEW], tmp_path, monkeypatch)
    recipe, numbers = (
        tmp_path / "suites" / "qwen3" / "releases" / f"{NEW}.yaml",
        tmp_path / "baselines" / "qwen3.yaml",
    )
    recipe.write_text(recipe.read_text().replace("gpus: [16, 32, 64]", "gpus: [16, 32]"))
    numbers.write_text(numbers.read_text().replace("44544.0", "44000.0"))
    assert list(dgxc.changes(files, NEW)) == [
        "qwen3 gb300 30b mxfp8 8 GPUs: tokens/s 44000.0 -> 44544.0",
        "qwen3 h100 30b bf16 64 GPUs: a new cell",
    ]


def test_a_release_that_nobody_began_is_told_with_what_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dgxc, "ROOT", tmp_path)
    shutil.copytree(SUITES / "qwen3", tmp_path / "suites" / "qwen3")
    family = next(family for family in dgxc.FAMILIES if family.recipe == "qwen3")
    with pytest.raises(ConfigError, match=r"qwen3/releases/26\.10\.00\.yaml: write its head first"):
        dgxc.recipe_path(family, "26.10.00")


def test_new_and_vanished_releases_and_workloads_are_told(upstream: Path, tmp_path: Path) -> None:
    git = ("git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "a"], check=True)
    for tag in ("v25.12", "v26.08.00", "v26.10.00"):
        subprocess.run([*git, "tag", tag], check=True)
    checkout = Path(shutil.copytree(upstream / "exemplar-performance", tmp_path / "dgxc"))
    folder = Path(shutil.copytree(checkout / "nemotron-h", checkout / "nemotron-4"))
    (folder / "metadata.yaml").write_text(
        (folder / "metadata.yaml").read_text().replace("workload: nemotron-h", "workload: nemotron-4")
    )
    assert list(dgxc.unread(checkout, tmp_path)) == [
        "not read: nemotron-4",
        "26.06.01: upstream has no such release any more",
        "26.10.00: a new release, which dgxc-families.yaml does not have",
    ]


@each_release
def test_the_models_are_those_of_the_published_tables(release: str) -> None:
    known = read_recipe(SUITES / "megatron_bridge").models
    for family in dgxc.FAMILIES:
        models = load_recipe(SUITES / family.recipe, release).file.models
        for size, name in family.sizes.items():
            if name == "gpt-oss-120b" and release == OLD:
                # Its container counts FLOPs as up to this release.
                name = "gpt-oss-120b-26.04.01"
            assert name == "nemotron-h-56b" or models[size] == known[name]


def test_what_the_launcher_chooses_by_scale_and_gpu() -> None:
    """Lines of upstream's launch.sh: llama3.1 123 to 127, deepseek_v3 121 to 138, gpt-oss 107 to 122."""
    found = {(recipe.name, gpu, case.id): case for recipe, gpu, case in cases(OLD)}
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


def test_a_proxy_has_31_layers_of_full_width_and_experts_by_its_scale() -> None:
    """deepseek_v3's launch.sh at e249aa3, lines 174 to 206."""
    whole = read_recipe(SUITES / "deepseek_v3").models["671b"]
    proxies = [(gpu, case) for _, gpu, case in cases(NEW) if is_proxy(case)]
    for gpu, case in proxies:
        of_72 = gpu.startswith("gb") and case.gpus % 72 == 0
        assert (case.model.layers, case.model.hidden) == (31, whole.hidden)
        assert case.model.experts == (144 if of_72 else 2 * case.gpus)
        assert case.ep == (72 if of_72 else case.gpus if gpu.startswith("gb") else 8)
        assert (case.pp, case.vp) == ((2, 4) if case.gpus == 64 and gpu in ("b300", "b200") else (1, 1))
        assert case.mbs == (2 if gpu in ("gb300", "b300") else 1)
        # What a token passes: 31 layers and the one of multi-token prediction, of which three are dense.
        layers = [block.layers for block in case.model.blocks]
        assert layers == [32, 3, 29, 1, 2]
        rest = {"layers", "experts", "blocks"}
        assert case.model.model_dump(exclude=rest) == whole.model_dump(exclude=rest)


def contract(recipe: Recipe, gpu: str, case: Case) -> dict[str, str]:
    """What the launch contract sets for a case, without the stage."""
    assert recipe.file.launch is not None
    words = {"gpu": gpu, "model": case.model_name, "gpus": case.gpus, "steps": case.steps, "stage": ""}
    words |= {"account": "a", "partition": "p", "time_limit": "00:30:00"}
    variables = recipe.file.launch.environment_of(case.dtype, case.size)
    return {name: text.format(**words) for name, text in variables.items() if name != "LLMB_INSTALL"}


def finder(recipe: Recipe, folder: Path) -> LogFinder:
    """That of a recipe below a folder, which reads the folder once."""
    key = recipe.path, folder
    if key not in _FINDERS:
        _FINDERS[key] = LogFinder(recipe, folder)
    return _FINDERS[key]


_FINDERS: dict[tuple[Path, Path], LogFinder] = {}


@each_release
@pytest.mark.parametrize("recipe_name", RECIPES)
def test_each_launch_contract_starts_its_case_whose_log_is_found_by_the_name_that_upstream_gives_it(
    recipe_name: str, release: str, upstream: Path, bridges: Mapping[str, Path], tmp_path: Path
) -> None:
    """scripts/performance at 06f25c227: setup_experiment.py lines 352 to 359, utils/utils.py line 164.

    One scale of each model and precision: the contract hands the scale over as one variable, and what follows from it is in the
    files that the program writes.
    """
    (folder,) = [
        folder
        for family, folder in dgxc.found(upstream / UPSTREAM[release][0])
        if family.recipe == recipe_name
    ]
    metadata = cells.metadata_of(folder)
    smallest = {
        (gpu, case.model_name, case.dtype): (recipe, gpu, case)
        for recipe, gpu, case in sorted(cases(release), key=lambda found: -found[2].gpus)
        if recipe.name == recipe_name
    }
    launched = sorted(smallest.values(), key=lambda which: GPUS.index(which[1]))
    lines = cells.arguments_of(folder, cells.workload(metadata), [contract(*which) for which in launched])
    answers = []
    for commit, group in groupby(
        zip(launched, lines, strict=True), lambda job: cells.bridge_commit(metadata, job[0][1])
    ):
        answers += cells.configurations(bridges[commit], [line for _, line in group])
    for job, ((_, gpu, case), line, answer) in enumerate(zip(launched, lines, answers, strict=True)):
        keys = ("gpus", "tp", "pp", "cp", "vp", "ep", "mbs", "gbs")
        assert [answer[key] for key in keys] == [getattr(case, key) for key in keys], case.id
        assert cells.DTYPES[answer["dtype"]] == case.dtype, case.id
        for key in ("layers", "experts", "hidden"):
            assert answer[key] in (None, getattr(case.model, key)), case.id
        assert any(answer[key] for key in ("layers", "experts", "hidden")) == is_proxy(case), case.id
        assert any(re.fullmatch(r"(--max_steps=)?50", word) for word in line), case.id
        sizes = "_".join(f"{key}{answer[key]}" for key in keys)
        name = f"pretrain_{line[line.index('--model_recipe_name') + 1]}_{answer['dtype']}_{sizes}"
        path = tmp_path / gpu / name / f"log-acct-x.{name}_{job}_0.out"
        path.parent.mkdir(parents=True)
        path.touch()
    logs = [finder(recipe, tmp_path / gpu).find(case).path for recipe, gpu, case in launched]
    assert len(set(logs)) == len(launched)


@pytest.mark.parametrize("recipe_name", RECIPES)
def test_nothing_that_launch_sh_reads_is_left_to_the_users_environment(
    recipe_name: str, upstream: Path
) -> None:
    """Every variable with a default, but those of a profiler that is switched off, and NCCL's, which is the site's to tune."""
    (folder,) = [
        folder for family, folder in dgxc.found(upstream / UPSTREAM[NEW][0]) if family.recipe == recipe_name
    ]
    launch = load_recipe(SUITES / recipe_name, NEW, "gb300").file.launch
    assert launch is not None
    read = set(re.findall(r"\$\{([A-Z_0-9]+):?[-?=]", (folder / "launch.sh").read_text()))
    by_dtype = {name for variables in launch.environment_by_dtype.values() for name in variables}
    taken = {*launch.environment, *launch.unset, *by_dtype}
    assert read - taken <= {"PROFILE_START_STEP", "PROFILE_STOP_STEP", "NCCL_IB_QPS_PER_CONNECTION"}


def test_kimi_on_b200_has_the_batch_of_its_own_commit() -> None:
    """The README's of B200 is that of the other types' commit: kimi-k2/README.md at e249aa3, lines 32 and 33."""
    batches = {
        gpu: case.gbs for recipe, gpu, case in cases(NEW) if recipe.name == "kimi_k2" and case.gpus == 256
    }
    assert batches == {"gb300": 4096, "gb200": 2048, "b300": 4096, "b200": 2048}


@each_release
def test_no_log_is_found_by_the_name_of_another_case(tmp_path: Path, release: str) -> None:
    """Each type of GPU has the logs of all recipes in one folder."""
    names = {
        "llama3": "llama{v}_{model}", "qwen3": "qwen3_{model}_a{active}b", "deepseek_v3": "deepseek_v3", "gpt_oss": "gpt_oss_{model}",
        "kimi_k2": "kimi_k2", "nemotron3": "nemotron_3_{kind}", "nemotron_h": "nemotronh_{model}",
    }  # fmt: skip
    kinds = {"30b": "nano", "120b": "super"}
    for job, (recipe, gpu, case) in enumerate(cases(release)):
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
    for job, (recipe, gpu, case) in enumerate(cases(release)):
        assert finder(recipe, tmp_path / gpu).find(case).job == str(job), (gpu, case.key)


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


@pytest.mark.parametrize(
    ("gpu", "jobs", "ranges"), [("gb300", 14, 2), ("gb200", 13, 2), ("b300", 13, 0), ("b200", 12, 0), ("h100", 5, 0)]
)  # fmt: skip
def test_each_plan_of_the_exemplar_programme_plans_exactly_upstreams_list(
    gpu: str, jobs: int, ranges: int, upstream: Path, tmp_path: Path
) -> None:
    """exemplar.yaml at e249aa3: each workload and precision of this type of GPU, once, on 512 GPUs."""
    stated = yaml.safe_load((upstream / "exemplar-performance" / "exemplar.yaml").read_text())
    assert stated["config"] == {"scale": 512, "repeats": 1, "profile": False}
    wanted = [
        (workload, dtype)
        for entry in stated["workloads"][gpu]
        for workload, options in entry.items()
        for dtype in options["dtypes"]
    ]
    plan = examples.ROOT / "docs" / "plans" / f"exemplar-{gpu}.yaml"
    site = tmp_path / "site.yaml"
    nodes = 4 if gpu.startswith("gb") else 8
    keys = f'gpu: {gpu}, gpus_per_node: {nodes}, ssh: {{host: login}}, account: a, partition: p, stage: /s, release: "{NEW}"'
    site.write_text(f"site: my-cluster\nslurm: {{{keys}}}\n")
    options = ("suites", "--acceptance", str(plan), "--plan", "--site", str(site))
    result = pacemark(*options, results=tmp_path / "results")
    assert result.status == 0, result.out
    ids = re.findall(rf"^(\S+/\S+gpus) +{512 // nodes} +512 ", result.out, re.MULTILINE)
    assert len(ids) == jobs
    names = {family.recipe: family.workload for family in dgxc.FAMILIES}
    by_key = {case.key: (recipe, case) for recipe, of, case in cases(NEW) if of == gpu}
    planned = []
    for recipe, case in map(by_key.__getitem__, ids):
        dtype = contract(recipe, gpu, case)["DTYPE"]
        planned.append((f"pretrain_{names[recipe.name]}_{case.size}", dtype))
    assert sorted(planned) == sorted(wanted)
    assert result.out.count("expected range of ") == ranges
    agreed = read_plan(plan).plan
    assert (agreed.repeats.at_most, agreed.by) == (1, "expected")
    assert agreed.tolerance is not None
    assert agreed.tolerance.slower == 0.05
    # Whoever states the numbers takes out the comment signs of these lines alone.
    unexpected = re.findall(r"^#   (\S+):$", plan.read_text(), re.MULTILINE)
    assert len(unexpected) == jobs - ranges
    assert {*unexpected} < {*ids} or ranges == 0
