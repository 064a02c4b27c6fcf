"""Llama 3 70B on GKE: its cases, the documents that are applied, and its launcher, run by bash."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from fixtures.backends.replay import LogFinder
from plugins.base.errors import ConfigError
from plugins.base.yaml_text import Loader
from tests.unit import examples, gke

GOLDEN = Path(__file__).parents[2] / "golden"
IDS = [f"70b-{dtype}-{gpus}gpus" for dtype in ("fp8", "bf16") for gpus in (128, 256, 512)]


# Cases and numbers


def test_the_batch_stays_and_its_parts_shrink() -> None:
    """By the number of GPUs: data parallel, micro batches of a step."""
    parts = {128: (4, 256), 256: (8, 128), 512: (16, 64)}
    cases = examples.recipe_named("llama3_gke").cases
    assert [case.id for case in cases] == IDS
    assert [(case.dp, case.ga) for case in cases] == [parts[case.gpus] for case in cases]
    assert {(case.gbs, case.gpus_per_node) for case in cases} == {(1024, 8)}


def test_the_baseline_is_the_published_record() -> None:
    # README of the recipe: 45.81364059448242 s. Recomputed as training_metrics does: 688.0 TFLOP/s, 34.78 %.
    target = examples.target("70b-fp8-128gpus", "llama3_gke")
    assert target.step_time == pytest.approx(45.81364059448242, abs=0.005)
    assert target.tokens_per_second == pytest.approx(target.baseline.cell.tokens_per_second, abs=0.5)
    assert target.mfu == pytest.approx(target.baseline.cell.mfu, abs=0.005)
    assert target.mfu == pytest.approx(34.78, abs=0.01)


# The documents


def test_the_documents_are_the_golden_ones() -> None:
    text = gke.shown(gke.made())
    assert text == (GOLDEN / "llama3_gke-70b-fp8-512gpus.yaml").read_text()
    assert list(yaml.load_all(text, Loader)) == gke.made()


def test_another_case_differs_in_this_alone() -> None:
    one, other = dict(gke.leaves(gke.made())), dict(gke.leaves(gke.made("70b-bf16-128gpus", queue="")))
    pods = ".1.spec.replicatedJobs.workload.template.spec"
    container = f"{pods}.template.spec.containers.workload"
    differ = {path for path in one | other if one.get(path) != other.get(path)}
    topology = f"{pods}.template.metadata.annotations.kueue.x-k8s.io/podset-preferred-topology"
    assert {path: other.get(path) for path in differ} == {
        f"{pods}.parallelism": 16,
        f"{pods}.completions": 16,
        topology: None,
        f"{container}.env.WORLD_SIZE.value": "128",
        f"{container}.env.NNODES.value": "16",
        f"{container}.args.1": "model.fp8=false",
        f"{container}.args.2": "model.fp8_hybrid=false",
    }


def test_the_file_is_the_default_case_for_whoever_applies_it_by_hand() -> None:
    case = gke.made("70b-fp8-128gpus", name="llama3-gke", queue="", image="IMAGE", bucket="bucket")
    one, other = dict(gke.leaves(gke.untouched())), dict(gke.leaves(case))
    differ = {path.rpartition(".")[2] for path in one | other if one.get(path) != other.get(path)}
    assert differ == {"namespace", "image", "bucketName"}


@pytest.mark.parametrize("case_id", IDS)
def test_names_are_short_enough_for_kubernetes(case_id: str) -> None:
    name = "j" * 43
    found = gke.made(case_id, name=name)
    last = gke.job(found)["completions"] - 1
    assert len(f"{name}-workload-0-{last}-abcde") <= 63
    environment = {item["name"]: item.get("value", "") for item in gke.workload(found)["env"]}
    assert max(len(part) for part in environment["MASTER_ADDR"].split(".")) <= 63
    for document in found:
        assert re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", document["metadata"]["name"])
        assert len(document["metadata"]["name"]) <= 63


def test_every_volume_is_mounted_and_every_file_is_there() -> None:
    files, _ = found = gke.made()
    pod = gke.job(found)["template"]["spec"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounted = {
        mount["name"] for c in pod["initContainers"] + pod["containers"] for mount in c["volumeMounts"]
    }
    assert mounted == set(volumes)
    maps = [volume["configMap"] for volume in volumes.values() if "configMap" in volume]
    wanted = {(each["name"], item["key"]) for each in maps for item in each["items"]}
    assert wanted == {(files["metadata"]["name"], key) for key in files["data"]}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"image": ""}, "llama3_gke needs `image`, the container image of NeMo 24.07"),
        ({"bucket": "gs://mine"}, "logs, in the region of the cluster: 'gs://mine'"),
        ({"image": "a b"}, "'a b' is not of the form"),
    ],
)
def test_a_site_that_gives_too_little_is_told(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        gke.made(**given)


# Logs that exist


DLLOGGER = "dllogger/rank-0/dllogger.json"


@pytest.mark.parametrize(
    ("path", "job"),
    [
        # A bucket whose jobs are Pacemark's, with the case in their names.
        (f"nemo-experiments/pmk-1-70b-fp8-128gpus/{DLLOGGER}", "pmk-1-70b-fp8-128gpus"),
        # Jobs of the chart, in folders that somebody named.
        (f"70b-fp8-128gpus/me-llama-3-70b-nemo-x7k2/{DLLOGGER}", "70b-fp8-128gpus"),
        (f"monday-70b-fp8-128gpus/{DLLOGGER}", "monday-70b-fp8-128gpus"),
        ("pmk-1-70b-fp8-128gpus-workload-0-0-x7k2p.log", "pmk-1-70b-fp8-128gpus"),
        ("70b-fp8-128gpus/me-llama-3-70b-nemo-x7k2-workload-0-0-abcde.log", "70b-fp8-128gpus"),
    ],
)
def test_a_log_is_found_by_the_case_in_its_path(tmp_path: Path, path: str, job: str) -> None:
    others = [
        f"nemo-experiments/pmk-1-70b-bf16-128gpus/{DLLOGGER}",
        f"nemo-experiments/me-llama-3-70b-nemo-x7k2/{DLLOGGER}",
        path.replace("rank-0", "rank-1").replace("-0-0-", "-0-1-"),
        "pmk-1-70b-fp8-128gpus-workload-0-0-x7k2p.txt",
    ]
    for name in (path, *others):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("DLL ")
    recipe, case = examples.recipe_named("llama3_gke"), examples.case("70b-fp8-128gpus", "llama3_gke")
    log = LogFinder(recipe, tmp_path).find(case)
    assert (log.path, log.job) == (tmp_path / path, job)


# What is run


def nested(config: dict[str, Any], path: str) -> Any:
    for key in path.split("."):
        config = config[key]
    return config


@pytest.mark.parametrize("case_id", IDS)
def test_the_configuration_is_that_of_the_case(case_id: str) -> None:
    case, found = examples.case(case_id, "llama3_gke"), gke.made(case_id)
    config = yaml.load(found[0]["data"]["nemo-config.yaml"], Loader)
    for argument in gke.workload(found)["args"]:
        place, _, value = argument.partition("=")
        group, _, key = place.rpartition(".")
        assert key in nested(config, group), "an override of a key that is not there"
        nested(config, group)[key] = yaml.safe_load(value)
    model = config["model"]
    assert {
        "sequence_length": model["data"]["seq_length"],
        "layers": model["num_layers"],
        "tp": model["tensor_model_parallel_size"],
        "pp": model["pipeline_model_parallel_size"],
        "cp": model["context_parallel_size"],
        "vp": model["virtual_pipeline_model_parallel_size"],
        "mbs": model["micro_batch_size"],
        "gbs": model["global_batch_size"],
    }.items() <= case.configuration().items()
    assert (model["hidden_size"], model["ffn_hidden_size"]) == (case.model.hidden, case.model.ffn)
    heads = (model["num_attention_heads"], model["num_query_groups"])
    assert heads == (case.model.heads, case.model.query_groups)
    assert model["encoder_seq_length"] == case.sequence_length
    assert (model["fp8"], model["fp8_hybrid"]) == ((case.dtype == "fp8"),) * 2
    assert (config["trainer"]["max_steps"], config["trainer"]["devices"]) == (case.steps, 8)
    # What would spoil the timing.
    assert model["nsys_profile"]["enabled"] is False
    assert config["exp_manager"]["create_checkpoint_callback"] is False
    assert config["trainer"]["val_check_interval"] > case.steps
    assert config["exp_manager"]["log_step_timing"] is True


def test_it_prints_what_upstreams_launcher_prints_and_the_driver(tmp_path: Path) -> None:
    pod = gke.Pod(tmp_path, gke.made("70b-bf16-128gpus", name="short"))
    lines = pod.run(0).stdout.splitlines()
    manifest = examples.recipe_named("llama3_gke").file.manifest
    assert re.fullmatch(str(manifest and manifest.log_begins), lines[0])
    config = [f"| {line}" for line in pod.config.splitlines()]
    start = lines.index(config[0])
    assert lines[start : start + len(config)] == config
    assert [line for line in lines[:start] + lines[start + len(config) :] if line] == [
        "Pod on the-pod is running",
        "Pod is assigned job index of 0",
        f"Running NCCL init script: {tmp_path}/usr/local/nccl-plugin/lib64/nccl-env-profile.sh",
        "Launching workload with the following arguments:",
        "  trainer.max_steps=50",
        "  model.fp8=false",
        "  model.fp8_hybrid=false",
        "NeMo configuration file:",
        "NeMo config overrides:",
        "  trainer.max_steps=50 model.fp8=false model.fp8_hybrid=false",
        "Added /usr/local/nccl-plugin/lib64:/usr/local/nvidia/lib64 to ldconfig:",
        "      libcuda.so.1 => /x/libcuda.so.1",
        "node the-pod, GPUs and driver: 3 NVIDIA H100 80GB HBM3, 550.144.03",
        "Logging to /job-logs/nemo-experiments/short",
        "DLLogger logging to /job-logs/nemo-experiments/short/dllogger/rank-0/dllogger.json",
        "Getting tokenizer files",
        "Launching Torch distributed on the node rank 0 out of 16 nodes",
        "Training completed",
        "Pod on the-pod is exiting",
    ]


def test_the_sites_arguments_come_last_and_as_they_are(tmp_path: Path) -> None:
    arguments = [
        "model.data.data_prefix=[1.0, /a b/*]",
        "+model.x='$(touch pwned) `touch pwned`; touch pwned'",
        '~y="${HOME}"',
        "empty=",
    ]
    pod = gke.Pod(tmp_path, gke.made("70b-bf16-128gpus", arguments=arguments))
    assert pod.run().returncode == 0
    fixed = ["trainer.max_steps=50", "model.fp8=false", "model.fp8_hybrid=false"]
    assert pod.torchrun[18:] == [*fixed, *arguments]
    assert not list(tmp_path.rglob("pwned"))


@pytest.mark.parametrize("argument", ["trainer.max_steps", "a=b=c", "", "=="])
def test_an_override_without_exactly_one_separator_is_refused(tmp_path: Path, argument: str) -> None:
    pod = gke.Pod(tmp_path, gke.made(arguments=["a=1", argument]))
    done = pod.run()
    assert done.returncode == 1
    assert f"Invalid config override: {argument}\nusage: " in done.stdout
    assert "torchrun" not in pod.files


@pytest.mark.parametrize("status", [1, 137])
def test_the_exit_status_of_torchrun_is_passed_on(tmp_path: Path, status: int) -> None:
    done = gke.Pod(tmp_path, gke.made()).run(TORCHRUN_ENDS=str(status))
    assert done.returncode == status
    assert f"Training failed: torchrun ended with status {status}\nPod on the-pod is exiting\n" in done.stdout
    assert "Training completed" not in done.stdout


def test_log_and_checkpoints_go_where_they_are_told(tmp_path: Path) -> None:
    pod = gke.Pod(tmp_path, gke.made(name="short"))
    done = pod.run(EXPLICIT_LOG_DIR="/elsewhere", CHECKPOINTS_ROOT_DIR="/checkpoints")
    assert "DLLogger logging to /elsewhere/dllogger/rank-3/dllogger.json\n" in done.stdout
    assert "++exp_manager.explicit_log_dir=/elsewhere" in pod.torchrun
    last = "++exp_manager.checkpoint_callback_params.dirpath=/checkpoints/nemo-experiments/short"
    assert pod.torchrun[-1] == last


@pytest.mark.parametrize("container", ["training-data-downloader", "nccl-plugin-installer", "tcpxo-daemon"])
def test_the_scripts_of_the_other_containers_are_bash(container: str) -> None:
    (found,) = (
        c for c in gke.job(gke.made())["template"]["spec"]["initContainers"] if c["name"] == container
    )
    shell, option, script = found["command"]
    assert option == "-c"
    done = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
