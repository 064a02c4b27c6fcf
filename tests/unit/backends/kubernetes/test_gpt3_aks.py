"""Megatron GPT-3 on AKS: its cases, the documents that are applied, and their script, run by bash."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from plugins.base.errors import ConfigError
from plugins.base.yaml_text import Loader
from plugins.baselines.metrics import FlopsDefinition, flops_per_sequence
from plugins.recipes.expansion import load_recipe
from plugins.recipes.models import SiteModel
from tests.system.support import until
from tests.unit import aks
from tests.unit.gke import leaves, shown

GOLDEN = Path(__file__).parents[2] / "golden"
RECIPE = load_recipe(aks.FOLDER)
USUAL = [case for case in RECIPE.cases if not case.variant]
SHARP = [case for case in RECIPE.cases if case.variant == "sharp"]
NODES = (1, 2, 4, 8, 16, 32, 64)
# The chart's presets, with what follows from them: size | layers, hidden, heads, sequence, tp, pp | padded vocabulary |
# billions of parameters | FLOPs of a sequence, by causal attention | from this many nodes on.
PRESETS = """
175b | 96 12288 96 2048 8 16 | 51200 | 174.6  | 2.174868e15 | 16
30b  | 48 7168 56 2048 4 8   | 50688 | 29.98  | 3.767867e14 | 4
13b  | 40 5120 40 2048 2 4   | 50432 | 12.85  | 1.629457e14 | 1
1.3b | 24 2048 16 2048 1 2   | 50304 | 1.316  | 1.734630e13 | 1
857m | 24 1024 16 2048 1 1   | 50304 | 0.3559 | 4.962298e12 | 1
375m | 12 512 8 1024 1 1     | 50304 | 0.0646 | 4.288256e11 | 1
125m | 12 768 12 1024 1 1    | 50304 | 0.1253 | 8.171846e11 | 1
"""
ROWS = [[cell.strip() for cell in line.split("|")] for line in PRESETS.strip().splitlines()]


# Cases


def test_every_preset_runs_at_every_number_of_nodes_that_it_fits_on() -> None:
    wanted = [(row[0], 8 * nodes) for row in ROWS for nodes in NODES if nodes >= int(row[5])]
    assert [(case.size, case.gpus) for case in USUAL] == wanted


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_preset_has_its_published_shape_and_its_true_size(row: list[str]) -> None:
    size, shape, vocab, billions, flops, _ = row
    cases = [case for case in USUAL if case.size == size]
    for case in cases:
        model = case.model
        assert [model.layers, model.hidden, model.heads, case.sequence_length, case.tp, case.pp] == [
            int(text) for text in shape.split()
        ]
        assert (model.ffn, model.query_groups, model.vocab) == (4 * model.hidden, model.heads, int(vocab))
        assert (case.parameters or 0) / 1e9 == pytest.approx(float(billions), rel=1e-3)
    model, length = cases[0].model, cases[0].sequence_length
    causal = FlopsDefinition(definition="causal-attention")
    assert flops_per_sequence(model, length, causal) == pytest.approx(float(flops), rel=1e-6)


def test_sharp_is_the_same_once_more_where_it_can_act() -> None:
    def facts(case: Any) -> tuple[Any, ...]:
        return case.size.removesuffix("-sharp"), case.gpus, case.model_name, *case.configuration().values()

    # It reduces within the data parallel groups, and only between nodes.
    assert [facts(case) for case in SHARP] == [facts(case) for case in USUAL if case.tp * case.dp > 8]
    assert len(SHARP) == 32
    assert aks.case("175b-sharp-fp16-256gpus").key == "gpt3_aks/175b-sharp-fp16-256gpus"


# Models of the site's own


def own(**changed: Any) -> SiteModel:
    shape = {"size": "tall", "layers": 24, "hidden": 1024, "heads": 16, "sequence_length": 2048}
    return SiteModel.model_validate(shape | {"gbs_per_gpu": 16.0, "gpus": [32, 64]} | changed)


def test_a_sites_own_model_has_cases_beside_the_presets() -> None:
    recipe = load_recipe(aks.FOLDER, models=(own(tp=2, pp=4),))
    added = [case for case in recipe.cases if case.model_name == "tall" and not case.checkpoint]
    assert [case.id for case in added] == [
        f"{size}-fp16-{gpus}gpus" for size in ("tall", "tall-sharp") for gpus in (32, 64)
    ]
    assert recipe.cases[: len(RECIPE.cases)] == RECIPE.cases
    case = added[1]
    assert (case.gbs, case.dp, case.model.ffn, case.model.query_groups) == (1024, 8, 4096, 16)
    # 50257 padded to a multiple of 128 x 2.
    assert case.model.vocab == 50432
    assert case.parameters == pytest.approx(0.356e9, rel=1e-3)


def test_a_sites_own_model_is_what_is_sent() -> None:
    models = (own(layers=36, sequence_length=4096, tp=4, pp=2),)
    given = aks.environment(aks.made("tall-fp16-64gpus", models=models))
    names = "NUM_LAYERS HIDDEN_SIZE NUM_ATTENTION_HEADS SEQ_LENGTH GLOBAL_BATCH_SIZE NODES"
    assert [given[name] for name in names.split()] == ["36", "1024", "16", "4096", "1024", "8"]
    assert given["TENSOR_MODEL_PARALLEL_SIZE"] == "4"
    assert given["PIPELINE_MODEL_PARALLEL_SIZE"] == "2"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"tp": 3, "gpus": [24]}, "heads 16 is not a multiple of tp = 3 (16 = 5 x 3 + 1)"),
        ({"gbs_per_gpu": None}, "give either gbs or gbs_per_gpu"),
        ({"size": "375m"}, "375m-fp16-32gpus, 375m-fp16-64gpus"),
    ],
)
def test_a_model_that_cannot_be_trained_is_refused_before_anything_is_sent(
    changed: dict[str, Any], words: str
) -> None:
    """What Megatron refuses is in test_megatron and test_cases."""
    with pytest.raises(ConfigError, match=re.escape(words)) as caught:
        load_recipe(aks.FOLDER, models=(own(**changed),))
    assert "recipes.gpt3_aks.models" in str(caught.value)


def test_other_recipes_run_their_own_models_only() -> None:
    with pytest.raises(ConfigError, match="llama3_gke runs its own models only; take it out"):
        load_recipe(aks.FOLDER.parent / "llama3_gke", models=(own(),))


# The documents


@pytest.mark.parametrize("case_id", [aks.QUICK, aks.LARGE])
def test_the_documents_are_the_golden_ones(case_id: str) -> None:
    text = shown(aks.made(case_id))
    assert text == (GOLDEN / f"gpt3_aks-{case_id}.yaml").read_text()
    assert list(yaml.load_all(text, Loader)) == aks.made(case_id)


def differences(one: list[aks.Document], other: list[aks.Document]) -> dict[str, tuple[Any, Any]]:
    """By the last names of their places."""
    left, right = dict(leaves(one)), dict(leaves(other))
    pods = re.compile(r"\.1\.spec\.pytorchReplicaSpecs\.|template\.spec\.containers\.pytorch\.|\.value$")
    return {
        pods.sub("", path): (left.get(path), right.get(path))
        for path in left | right
        if left.get(path) != right.get(path)
    }


def test_the_file_is_the_quick_test_for_whoever_applies_it_by_hand() -> None:
    found = differences(aks.untouched(), aks.made(aks.QUICK, name="gpt3-aks"))
    assert {path.rpartition(".")[2] for path in found} == {"namespace"}


@pytest.mark.parametrize("case_id", [aks.QUICK, aks.LARGE, "375m-fp16-8gpus", "175b-sharp-fp16-256gpus"])
def test_there_is_a_pod_for_each_node_and_all_are_alike(case_id: str) -> None:
    case, found = aks.case(case_id), aks.made(case_id, name="j" * 40)
    replicas = found[1]["spec"]["pytorchReplicaSpecs"]
    assert sum(replica["replicas"] for replica in replicas.values()) == case.nodes(8)
    assert ("Worker" in replicas) == (case.gpus > 8)
    templates = list(aks.pods(found).values())
    assert templates == [templates[0]] * len(templates)
    # Nothing is shared: what the backend changes in one it changes in that alone.
    shared = {id(template["spec"]["containers"][0]["resources"]) for template in templates}
    assert len(shared) == len(templates)
    resources = aks.container(found)["resources"]
    assert resources["limits"] == resources["requests"] == {"nvidia.com/gpu": 8, "rdma/ib": 8}
    assert len(f"{'j' * 40}-worker-{case.nodes(8)}") <= 63


# Logs that exist


# The script


SHARP_EXPORTED = [
    ("SHARP_SMX_UCX_INTERFACE", "mlx5_ib0:1"),
    ("SHARP_COLL_ENABLE_SAT", "1"),
    ("SHARP_COLL_LOG_LEVEL", "3"),
    ("SHARP_COLL_ENABLE_PCI_RELAXED_ORDERING", "1"),
    ("NCCL_COLLNET_ENABLE", "1"),
]


@pytest.mark.parametrize("sharp", [False, True])
def test_sharp_is_exported_only_where_it_is_wanted(tmp_path: Path, sharp: bool) -> None:
    """test_charts has the variables of every run."""
    pod = aks.Pod(tmp_path, aks.made("175b-sharp-fp16-256gpus" if sharp else "175b-fp16-256gpus"))
    assert pod.run().returncode == 0
    exported = [pair for pair in SHARP_EXPORTED if pair[0] in pod.environment]
    assert exported == [(name, pod.environment[name]) for name, _ in exported]
    assert (exported == SHARP_EXPORTED, "--use-sharp" in pod.torchrun) == (sharp, sharp)
    assert sharp or not exported


WRITING = "175b-checkpoint-fp16-512gpus"


def writing(folder: Path) -> tuple[aks.Pod, Path, dict[str, str]]:
    """A pod that writes a checkpoint, where to, and what it is run with."""
    place = folder / "checkpoints" / aks.NAME
    return aks.Pod(folder, aks.made(WRITING)), place, {"CHECKPOINT_PATH": str(place), "WRITES": "12345"}


def test_a_checkpoint_is_written_once_counted_and_taken_away(tmp_path: Path) -> None:
    pod, place, given = writing(tmp_path)
    assert aks.environment(aks.made(WRITING))["CHECKPOINT_PATH"] == f"/data/checkpoints/{aks.NAME}"
    done = pod.run(**given)
    assert (done.returncode, done.stderr) == (0, "")
    assert (pod.option("--save"), pod.option("--save-interval")) == ([str(place)], ["20"])
    assert pod.option("--train-iters") == ["20"]
    assert "--load" not in pod.torchrun
    assert done.stdout.splitlines()[-2:] == [
        f"pacemark: checkpoint of 12345 bytes in 1 files in {place}",
        f"pacemark: removed {place}",
    ]
    assert list(place.parent.iterdir()) == []


def test_the_last_of_the_pods_takes_it_away(tmp_path: Path) -> None:
    pod, place, given = writing(tmp_path)
    other = place.with_name(f"{place.name}.pods") / "other-pod"
    other.parent.mkdir(parents=True)
    other.touch()
    first = pod.run(**given)
    assert first.stdout.splitlines()[-1] == f"pacemark: checkpoint of 12345 bytes in 1 files in {place}"
    assert [file.name for file in other.parent.iterdir()] == ["other-pod"]
    assert pod.run(**given, POD="other-pod").stdout.splitlines()[-1] == f"pacemark: removed {place}"
    assert list(place.parent.iterdir()) == []


def test_a_pod_that_fails_takes_it_away_too(tmp_path: Path) -> None:
    pod, place, given = writing(tmp_path)
    assert pod.run(**given, ENDS="7").returncode == 7
    assert list(place.parent.iterdir()) == []


def test_a_pod_that_is_asked_to_end_asks_torchrun_and_takes_it_away(tmp_path: Path) -> None:
    pod, place, given = writing(tmp_path)
    process = pod.start(**given, WAITS="yes")
    until((tmp_path / "waits").exists, "torchrun")
    process.terminate()
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 143
    assert out.splitlines()[-3:] == [
        "asked to end",
        f"pacemark: checkpoint of 12345 bytes in 1 files in {place}",
        f"pacemark: removed {place}",
    ]
    assert list(place.parent.iterdir()) == []


def test_the_sites_arguments_come_last_and_as_they_are(tmp_path: Path) -> None:
    arguments = ["--recompute-granularity=selective", "--x='$(touch pwned)'"]
    pod = aks.Pod(tmp_path, aks.made(arguments=arguments))
    assert pod.run().returncode == 0
    assert pod.torchrun[-2:] == arguments
    assert not list(tmp_path.rglob("pwned"))


# The README's sample of 100 downloaded files is one file after preprocessing.
SAMPLE = (
    "1 .bin files in {data} leave none to train on: 15 are kept for validation and 15 for test, "
    "1 - 2 x 15 = -29; prepare more of the data set, or set chunks (CHUNKS) to at most 0"
)
NO_TOKENIZER = "is not there: preprocessing leaves GPT-2's tokenizer"


@pytest.mark.parametrize(
    ("files", "chunks", "missing", "words"),
    [
        (1, "15", "", SAMPLE),
        (0, "0", "", "no .bin file in {data}: download and preprocess the data set first"),
        (40, "15", "preprocessed/chunk_03.idx", "chunk_03.idx is not there; preprocess it again"),
        (40, "15", "bpe/merges.txt", f"merges.txt {NO_TOKENIZER}"),
    ],
)
def test_a_data_set_that_is_not_whole_is_told_at_once(
    tmp_path: Path, files: int, chunks: str, missing: str, words: str
) -> None:
    pod = aks.Pod(tmp_path, aks.made(chunks=chunks), files=files)
    if missing:
        (pod.data.parent / missing).unlink()
    done = pod.run()
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert words.format(data=pod.data) in done.stderr
    assert not pod.started


@pytest.mark.parametrize(("files", "chunks", "trained"), [(31, "15", 1), (72, "15", 42)])
def test_the_files_that_are_left_are_trained_on(
    tmp_path: Path, files: int, chunks: str, trained: int
) -> None:
    pod = aks.Pod(tmp_path, aks.made(chunks=chunks), files=files)
    assert pod.run().returncode == 0
    wanted = [text for number in range(trained) for text in ("1.0", f"{pod.data}/chunk_{number:02d}")]
    assert pod.option("--train-data-path") == wanted


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("exit 9", "unknown"),
        ("printf 'X, 550.%s\\n' 2 1 2", "1 X, 550.1; 2 X, 550.2"),
    ],
)
def test_the_gpus_of_a_node_are_told_on_one_line(tmp_path: Path, tool: str, words: str) -> None:
    pod = aks.Pod(tmp_path, aks.made())
    (tmp_path / "bin" / "nvidia-smi").write_text(f"#!/bin/bash\n{tool}\n")
    said, manifest = pod.run().stdout, RECIPE.file.manifest
    assert re.match(str(manifest and manifest.log_begins), said)
    assert said.startswith(f"node the-pod, GPUs and driver: {words}\ntraining on 10 of 40 files in ")
    assert pod.started
