"""Megatron GPT-3 on AKS: its cases, and the documents that are applied."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from fixtures.backends.replay import find_log
from plugins.base.errors import ConfigError, SubmitError
from plugins.base.yaml_text import Loader
from plugins.baselines.metrics import FlopsDefinition, flops_per_sequence
from plugins.logs.means import Means
from plugins.recipes.expansion import load_recipe
from plugins.recipes.models import SiteModel
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
    assert len(USUAL) == 43
    assert {case.id.split("-")[1] for case in USUAL} == {"fp16"}


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


def test_the_quick_test_and_the_large_run_of_the_readme_are_among_them() -> None:
    quick, large = aks.case(aks.QUICK), aks.case(aks.LARGE)
    assert (quick.nodes(8), quick.steps, quick.gbs, quick.dp) == (2, 100, 32, 16)
    assert (large.nodes(8), large.gbs, large.dp, large.ga) == (64, 16 * 512, 4, 2048)


def test_the_batch_is_16_sequences_for_each_gpu_but_2_in_the_quick_test() -> None:
    assert {(case.size == "375m", case.gbs / case.gpus) for case in USUAL} == {(False, 16), (True, 2)}
    assert {(case.mbs, case.means, case.gpus_per_node) for case in USUAL} == {(1, Means(10, 10), 8)}


def test_sharp_is_the_same_once_more_where_it_can_act() -> None:
    def facts(case: Any) -> tuple[Any, ...]:
        return case.size.removesuffix("-sharp"), case.gpus, case.model_name, *case.configuration().values()

    # It reduces within the data parallel groups, and only between nodes.
    assert [facts(case) for case in SHARP] == [facts(case) for case in USUAL if case.tp * case.dp > 8]
    assert len(SHARP) == 32
    assert aks.case("175b-sharp-fp16-256gpus").key == "gpt3_aks/175b-sharp-fp16-256gpus"


def test_nothing_was_published() -> None:
    assert not (aks.FOLDER.parents[1] / "baselines" / "gpt3_aks.yaml").exists()


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
    assert {
        "NUM_LAYERS": "36",
        "HIDDEN_SIZE": "1024",
        "NUM_ATTENTION_HEADS": "16",
        "SEQ_LENGTH": "4096",
        "TENSOR_MODEL_PARALLEL_SIZE": "4",
        "PIPELINE_MODEL_PARALLEL_SIZE": "2",
        "GLOBAL_BATCH_SIZE": "1024",
        "NODES": "8",
    }.items() <= given.items()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"tp": 3, "gpus": [24]}, "heads 16 is not a multiple of tp = 3 (16 = 5 x 3 + 1)"),
        ({"tp": 3, "gpus": [24]}, "sequence length 2048 is not a multiple of tp = 3 (2048 = 682 x 3 + 2)"),
        ({"pp": 16, "gpus": [32]}, "layers 24 is not a multiple of pp x vp = 16 (24 = 1 x 16 + 8)"),
        ({"hidden": 1000}, "hidden size 1000 is not a multiple of heads = 16 (1000 = 62 x 16 + 8)"),
        ({"tp": 8, "pp": 8, "gpus": [32]}, "32 GPUs are not a multiple of tp x pp x cp x fsdp = 64"),
        ({"gbs": 100, "gbs_per_gpu": None}, "gbs 100 is not a multiple of mbs x fsdp x dp = 32"),
        ({"mbs": 3}, "gbs 512 is not a multiple of mbs x fsdp x dp = 96"),
        ({"gbs_per_gpu": None}, "give either gbs or gbs_per_gpu"),
        ({"gbs": 64}, "give either gbs or gbs_per_gpu"),
        ({"size": "375m"}, "375m-fp16-32gpus, 375m-fp16-64gpus"),
    ],
)
def test_what_megatron_would_refuse_is_refused_before_anything_is_sent(
    changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_recipe(aks.FOLDER, models=(own(**changed),))
    assert said in str(caught.value)
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


def test_another_size_differs_in_this_alone() -> None:
    found = differences(aks.made(aks.QUICK), aks.made(aks.LARGE))
    environment = {
        "NUM_LAYERS": ("12", "96"),
        "HIDDEN_SIZE": ("512", "12288"),
        "NUM_ATTENTION_HEADS": ("8", "96"),
        "SEQ_LENGTH": ("1024", "2048"),
        "TENSOR_MODEL_PARALLEL_SIZE": ("1", "8"),
        "PIPELINE_MODEL_PARALLEL_SIZE": ("1", "16"),
        "GLOBAL_BATCH_SIZE": ("32", "8192"),
        "NODES": ("2", "64"),
    }
    both = {f"{role}.env.{name}": pair for role in ("Master", "Worker") for name, pair in environment.items()}
    assert found == {**both, "Worker.replicas": (1, 63)}


def test_sharp_adds_this_alone() -> None:
    found = differences(aks.made("175b-fp16-256gpus"), aks.made("175b-sharp-fp16-256gpus"))
    assert {path.removeprefix("Master.env."): pair for path, pair in found.items() if "Master" in path} == {
        "USE_SHARP": ("0", "1"),
        **{
            path: (None, text)
            for name, value in {
                "SHARP_SMX_UCX_INTERFACE": "mlx5_ib0:1",
                "SHARP_COLL_ENABLE_SAT": "1",
                "SHARP_COLL_LOG_LEVEL": "3",
                "SHARP_COLL_ENABLE_PCI_RELAXED_ORDERING": "1",
                "NCCL_COLLNET_ENABLE": "1",
            }.items()
            for path, text in ((f"{name}.name", name), (name, value))
        },
    }
    assert len(found) == 22


def test_the_file_is_the_quick_test_for_whoever_applies_it_by_hand() -> None:
    found = differences(aks.untouched(), aks.made(aks.QUICK, name="gpt3-aks"))
    assert {path.rpartition(".")[2] for path in found} == {"namespace"}


@pytest.mark.parametrize("case", RECIPE.cases, ids=lambda case: case.id)
def test_there_is_a_pod_for_each_node_and_all_are_alike(case: Any) -> None:
    found = aks.made(case.id, name="j" * 40)
    replicas = found[1]["spec"]["pytorchReplicaSpecs"]
    assert sum(replica["replicas"] for replica in replicas.values()) == case.nodes(8)
    assert ("Worker" in replicas) == (case.gpus > 8)
    templates = list(aks.pods(found).values())
    assert templates == [templates[0]] * len(templates)
    # Nothing is shared: what the backend changes in one it changes in that alone.
    assert len({id(template["spec"]["containers"][0]["resources"]) for template in templates}) == len(
        templates
    )
    resources = aks.container(found)["resources"]
    assert resources["limits"] == resources["requests"] == {"nvidia.com/gpu": 8, "rdma/ib": 8}
    assert len(f"{'j' * 40}-worker-{case.nodes(8)}") <= 63


def test_every_volume_is_mounted_and_every_file_is_there() -> None:
    files, _ = found = aks.made(claim="fast-storage")
    pod = aks.pods(found)["Worker"]["spec"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert {mount["name"] for mount in aks.container(found)["volumeMounts"]} == set(volumes)
    assert volumes["training-scripts"]["configMap"]["name"] == files["metadata"]["name"]
    assert volumes["data-storage"]["persistentVolumeClaim"]["claimName"] == "fast-storage"
    assert volumes["shm"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "64Gi"}
    assert list(files["data"]) == ["train_megatron.sh"]


def test_a_site_may_leave_out_what_the_chart_has_a_default_for() -> None:
    given = aks.environment(aks.made())
    assert aks.container(aks.made())["image"].startswith("ghcr.io/azure/ai-infrastructure-on-azure/")
    assert (given["DATASET_PATH"], given["CHUNKS"]) == ("slimpajama/preprocessed", "15")
    # The operator says where the master is; the later of two variables of one name would win.
    assert not {"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK"} & set(given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"image": ""}, "gpt3_aks needs `image`, the container image of Megatron-LM"),
        ({"chunks": "some"}, "'some' is not of the form"),
        ({"dataset": "/data/slimpajama"}, "`dataset`, the folder of the preprocessed data set"),
        ({"claim": "Shared_Storage"}, "'Shared_Storage' is not of the form"),
    ],
)
def test_a_wrong_value_is_refused_with_what_mends_it(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        aks.made(**given)
    assert said in str(caught.value)


# Logs that exist


def found_in(folder: Path, *paths: str, case_id: str = aks.LARGE) -> str:
    """The log that replay takes for a case out of a tree with these files, and its job."""
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("iteration")
    log = find_log(aks.case(case_id), RECIPE, folder)
    return f"{log.path.relative_to(folder)} of {log.job}"


@pytest.mark.parametrize(
    ("path", "job"),
    [
        ("175b-fp16-512gpus-worker-9.log", "175b-fp16-512gpus"),
        ("monday-175b-fp16-512gpus/megatron-training-worker-9.log", "monday-175b-fp16-512gpus"),
        ("pm-1-175b-fp16-512gpus-master-0.log", "pm-1-175b-fp16-512gpus"),
    ],
)
def test_a_log_is_found_by_the_case_in_its_path(tmp_path: Path, path: str, job: str) -> None:
    others = [path.replace("fp16-512", "fp16-256"), path.replace("175b", "175b-sharp"), path + ".old"]
    assert found_in(tmp_path, path, *others) == f"{path} of {job}"


def test_between_the_pods_of_a_job_nobody_guesses(tmp_path: Path) -> None:
    with pytest.raises(SubmitError, match=r"2 logs could be that of gpt3_aks/175b-fp16-512gpus"):
        found_in(tmp_path, "a-175b-fp16-512gpus-worker-9.log", "a-175b-fp16-512gpus-worker-8.log")
