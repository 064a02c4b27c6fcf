"""Official charts beside what is sent here: every fact that differs stands in docs/dev/kubernetes.md with its reason, and no other."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from fixtures.backends.kubernetes.backend import KubernetesBackend
from fixtures.backends.kubernetes.jobset import JobSets
from fixtures.backends.kubernetes.kinds import JobKind
from fixtures.backends.kubernetes.pytorchjob import PyTorchJobs
from fixtures.backends.kubernetes.section import Kubernetes
from fixtures.backends.log_finder import LogFinder
from fixtures.backends.section import Workload
from plugins.base.yaml_text import Loader
from tests.unit import aks, examples, facts, gke
from tests.unit.facts import Facts

CHARTS = Path(__file__).parents[2] / "charts"
DOCUMENT = examples.ROOT / "docs" / "dev" / "kubernetes.md"
Object = dict[str, Any]
GKE_FACTS = {
    "env MASTER_ADDR": "NAME-workload-0-0.NAME",
    "configuration model.tensor_model_parallel_size": "4",
    "pods: tcpxo-daemon runs /fts/entrypoint_rxdm_container.sh --num_hops=2 --num_nics=8 --uid= --alsologtostderr": "yes",
    "pods: training-data-downloader runs gcloud storage rsync --recursive gs://nemo-megatron-demo/training-data/tokenized/bpe2gpt/wikipedia/ /ssd/.cache/": "yes",
    "pods: workload has at /dev/shm": "emptyDir medium: Memory, sizeLimit: 250Gi",
    "pods: workload.resources.limits.nvidia.com/gpu": "8",
    "spec.failurePolicy.maxRestarts": "0",
    "spec.replicatedJobs.workload.template.spec.completions": "16",
    "torchrun program": "/opt/NeMo/examples/nlp/language_modeling/megatron_gpt_pretraining.py",
}
AKS_FACTS = {
    "env NCCL_TOPO_FILE": "/etc/ndv5-topo.xml",
    "pods: pytorch has at /data": "persistentVolumeClaim claimName: shared-storage-pvc",
    "pods: pytorch has at /scripts": "configMap defaultMode: 493, files: train_megatron.sh, readOnly: true",
    "pods: pytorch.resources.requests.rdma/ib": "8",
    "spec.pytorchReplicaSpecs.Worker.replicas": "1",
    "torchrun --global-batch-size": "32",
    "torchrun --rdzv_endpoint": "NAME-master-0:23456",
    "torchrun program": "/megatron-lm/pretrain_gpt.py",
}
Difference = dict[str, tuple[str | None, str | None]]


def chart(recipe: str) -> list[Object]:
    """The documents that upstream's chart makes."""
    return [
        document for document in yaml.load_all((CHARTS / f"{recipe}.yaml").read_text(), Loader) if document
    ]


def sent(
    kind: JobKind, recipe: str, case_id: str, *, queue: str | None = None, **values: str
) -> list[Object]:
    """The documents that a session sends to a GKE of today, or to any AKS."""
    section = Kubernetes(
        gpu="h100", namespace="default", queue=queue, recipes={recipe: Workload(values=values)}
    )
    backend = KubernetesBackend("lab", section, [examples.recipe_named(recipe)], kind)
    backend._api.release = "v1.34.1-gke.1431000"
    return backend._renderer.documents(examples.case(case_id, recipe), kind, "run.job")


def of_gke(place: Path, documents: Sequence[Object]) -> Facts:
    """Facts of a JobSet and its ConfigMaps. Its container is run below `place`."""
    *maps, jobset = copy.deepcopy(documents)
    files = {key: text for document in maps for key, text in document["data"].items()}
    # The chart's key, and the name that it is mounted by.
    files.setdefault("nemo-config.yaml", files.pop("workload-configuration", ""))
    (replicated,) = jobset["spec"]["replicatedJobs"]
    template = replicated["template"]["spec"]["template"]
    found = facts.of_object(jobset, {"workload": template}, maps)
    config = yaml.load(files["nemo-config.yaml"], Loader)
    found |= {f"configuration {path.lstrip('.')}": str(value) for path, value in gke.leaves(config)}
    (trainer,) = (c for c in template["spec"]["containers"] if c["name"] == "workload")
    trainer["command"], trainer["args"] = [*trainer["command"][:3], "workload"], trainer.get("args", [])
    pod = gke.Pod(place, [{"data": files}, jobset])
    assert pod.run().returncode == 0
    found = facts.merged(found, facts.of_run(pod.torchrun, pod.environment, place), "workload")
    found["exit status where torchrun ends with 1"] = str(pod.run(TORCHRUN_ENDS="1").returncode)
    return facts.named(found, jobset["metadata"]["name"])


def of_aks(place: Path, documents: Sequence[Object]) -> Facts:
    """Facts of a PyTorchJob and its ConfigMap. Its script is run below `place`."""
    files, job = found_documents = copy.deepcopy(list(documents))
    replicas = job["spec"]["pytorchReplicaSpecs"]
    templates = {role: replicas[role]["template"] for role in replicas}
    found = facts.of_object(job, templates, [files])
    trainer = aks.pods(found_documents)["Master"]["spec"]["containers"][0]
    assert "bash /scripts/train_megatron.sh" in " ".join([*trainer["command"], *trainer["args"]])
    trainer["command"], trainer["args"] = ["bash", "/scripts/train_megatron.sh"], []
    place.mkdir()
    pod = aks.Pod(place, found_documents)
    assert pod.run().returncode == 0
    ran = facts.of_run(pod.torchrun, pod.environment, place)
    # These are the training operator's.
    found = facts.merged(found, ran, "pytorch", ["MASTER_ADDR", "MASTER_PORT"])
    found["exit status where torchrun ends with 1"] = str(pod.run(ENDS="1").returncode)
    return facts.named(found, job["metadata"]["name"], aks.NAME)


def gke_difference(folder: Path) -> Difference:
    image = "europe-west4-docker.pkg.dev/my-project/gpu/nemo_workload:24.07"
    ours = sent(JobSets(), "llama3_gke", "70b-fp8-128gpus", queue="a3-mega", image=image, bucket="my-logs")
    return facts.differences(of_gke(folder / "chart", chart("llama3_gke")), of_gke(folder / "ours", ours))


def aks_difference(folder: Path) -> Difference:
    ours = sent(PyTorchJobs(), "gpt3_aks", aks.QUICK)
    return facts.differences(of_aks(folder / "chart", chart("gpt3_aks")), of_aks(folder / "ours", ours))


def table(recipe: str) -> Iterator[tuple[list[str], str, str, str]]:
    """The rows of a recipe's table: facts, the chart's value, ours, and why."""
    section = DOCUMENT.read_text().partition("\n## Beside the official charts\n")[2].partition("\n## ")[0]
    rows = section.partition(f"\n### {recipe}\n")[2].partition("\n### ")[0].splitlines()
    for row in rows:
        if row.startswith("| `"):
            names, chart, ours, why = (cell.strip() for cell in row.split("|")[1:-1])
            yield re.findall(r"`([^`]+)`", names), chart, ours, why


def fits(cell: str, value: str | None) -> bool:
    """A value in backticks is the very one, `set` is any, and an empty cell none."""
    return value is None if not cell else value is not None and cell in ("set", f"`{value}`")


@pytest.mark.parametrize(("recipe", "found"), [("llama3_gke", gke_difference), ("gpt3_aks", aks_difference)])
def test_every_difference_from_the_official_chart_has_its_reason(
    tmp_path: Path, recipe: str, found: Callable[[Path], Difference]
) -> None:
    differs, rows = found(tmp_path), list(table(recipe))
    stated = [name for names, *_ in rows for name in names]
    found_twice = {name for name in stated if stated.count(name) > 1}
    assert (differs.keys() - set(stated), set(stated) - differs.keys(), found_twice) == (set(), set(), set())
    assert all(why for *_, why in rows)
    wrong = [
        (name, differs[name])
        for names, chart, ours, _ in rows
        for name in names
        if not (fits(chart, differs[name][0]) and fits(ours, differs[name][1]))
    ]
    assert wrong == []


def test_what_matters_is_among_the_facts(tmp_path: Path) -> None:
    """Facts that the charts are known by: what is not looked at is never found to differ."""
    found = of_gke(tmp_path / "gke", chart("llama3_gke"))
    assert {name: found.get(name) for name in GKE_FACTS} == GKE_FACTS
    found = of_aks(tmp_path / "aks", chart("gpt3_aks"))
    assert {name: found.get(name) for name in AKS_FACTS} == AKS_FACTS


# Llama 3 70B on GKE: its documents, and its launcher, run by bash


GOLDEN = Path(__file__).parents[2] / "golden"
IDS = [f"70b-{dtype}-{gpus}gpus" for dtype in ("fp8", "bf16") for gpus in (128, 256, 512)]


# Cases and numbers


# The documents


def test_the_documents_are_the_golden_ones() -> None:
    text = gke.shown(gke.made())
    assert text == (GOLDEN / "llama3_gke-70b-fp8-512gpus.yaml").read_text()
    assert list(yaml.load_all(text, Loader)) == gke.made()


def test_the_file_is_the_default_case_for_whoever_applies_it_by_hand() -> None:
    case = gke.made("70b-fp8-128gpus", name="llama3-gke", queue="", image="IMAGE", bucket="bucket")
    one, other = dict(gke.leaves(gke.untouched())), dict(gke.leaves(case))
    differ = {path.rpartition(".")[2] for path in one | other if one.get(path) != other.get(path)}
    assert differ == {"namespace", "image", "bucketName"}


# Logs that exist


DLLOGGER = "dllogger/rank-0/dllogger.json"


@pytest.mark.parametrize(
    ("path", "job"),
    [
        # A bucket whose jobs are Pacemark's, with the case in their names.
        (f"nemo-experiments/pmk-1-70b-fp8-128gpus/{DLLOGGER}", "pmk-1-70b-fp8-128gpus"),
        # Jobs of the chart, in folders that somebody named.
        (f"monday-70b-fp8-128gpus/{DLLOGGER}", "monday-70b-fp8-128gpus"),
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


def test_its_log_begins_as_the_recipe_says_and_tells_the_driver(tmp_path: Path) -> None:
    lines = gke.Pod(tmp_path, gke.made("70b-bf16-128gpus", name="short")).run(0).stdout.splitlines()
    manifest = examples.recipe_named("llama3_gke").file.manifest
    assert re.fullmatch(str(manifest and manifest.log_begins), lines[0])
    assert "node the-pod, GPUs and driver: 3 NVIDIA H100 80GB HBM3, 550.144.03" in lines
    assert lines[-2:] == ["Training completed", "Pod on the-pod is exiting"]


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


@pytest.mark.parametrize("argument", ["trainer.max_steps", "a=b=c"])
def test_an_override_without_exactly_one_separator_is_refused(tmp_path: Path, argument: str) -> None:
    pod = gke.Pod(tmp_path, gke.made(arguments=["a=1", argument]))
    done = pod.run()
    assert done.returncode == 1
    assert f"Invalid config override: {argument}\nusage: " in done.stdout
    assert "torchrun" not in pod.files


def test_the_exit_status_of_torchrun_is_passed_on(tmp_path: Path) -> None:
    done = gke.Pod(tmp_path, gke.made()).run(TORCHRUN_ENDS="137")
    assert done.returncode == 137
    assert "Training failed: torchrun ended with status 137\nPod on the-pod is exiting\n" in done.stdout
    assert "Training completed" not in done.stdout
