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
from fixtures.backends.section import Workload
from plugins.base.yaml_text import Loader
from tests.unit import aks, examples, facts, gke
from tests.unit.facts import Facts

CHARTS = Path(__file__).parents[2] / "charts"
DOCUMENT = examples.ROOT / "docs" / "dev" / "kubernetes.md"
Object = dict[str, Any]
GKE_FACTS = {
    "env GLOO_SOCKET_IFNAME": "eth0",
    "env MASTER_ADDR": "NAME-workload-0-0.NAME",
    "env NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY": "/dev/aperture_devices",
    "env OMP_NUM_THREADS": "12",
    "configuration model.tensor_model_parallel_size": "4",
    "pods: dnsPolicy": "ClusterFirstWithHostNet",
    "pods: metadata.annotations.gke-gcsfuse/memory-limit": "0",
    "pods: metadata.annotations.kueue.x-k8s.io/podset-preferred-topology": "kubernetes.io/hostname",
    "pods: nccl-plugin-installer env NCCL_BUILD_TYPE": "221",
    "pods: tcpxo-daemon runs /fts/entrypoint_rxdm_container.sh --num_hops=2 --num_nics=8 --uid= --alsologtostderr": "yes",
    "pods: tolerations.0.key": "nvidia.com/gpu",
    "pods: training-data-downloader runs gcloud storage rsync --recursive gs://nemo-megatron-demo/training-data/tokenized/bpe2gpt/wikipedia/ /ssd/.cache/": "yes",
    "pods: workload has at /dev/shm": "emptyDir medium: Memory, sizeLimit: 250Gi",
    "pods: workload.image": "europe-west4-docker.pkg.dev/my-project/gpu/nemo_workload:24.07",
    "pods: workload.resources.limits.nvidia.com/gpu": "8",
    "pods: workload.securityContext.privileged": "true",
    "spec.failurePolicy.maxRestarts": "0",
    "spec.replicatedJobs.workload.template.spec.completions": "16",
    "spec.suspend": "true",
    "torchrun --nnodes": "16",
    "torchrun program": "/opt/NeMo/examples/nlp/language_modeling/megatron_gpt_pretraining.py",
}
AKS_FACTS = {
    "env CUDA_DEVICE_MAX_CONNECTIONS": "1",
    "env NCCL_TOPO_FILE": "/etc/ndv5-topo.xml",
    "pods: pytorch has at /data": "persistentVolumeClaim claimName: shared-storage-pvc",
    "pods: pytorch has at /scripts": "configMap defaultMode: 493, files: train_megatron.sh, readOnly: true",
    "pods: pytorch.image": "ghcr.io/azure/ai-infrastructure-on-azure/megatron-lm:latest",
    "pods: pytorch.resources.limits.nvidia.com/gpu": "8",
    "pods: pytorch.resources.requests.rdma/ib": "8",
    "pods: pytorch.securityContext.capabilities.add.0": "IPC_LOCK",
    "pods: pytorch.securityContext.privileged": "true",
    "spec.pytorchReplicaSpecs.Worker.replicas": "1",
    "torchrun --global-batch-size": "32",
    "torchrun --rdzv_endpoint": "NAME-master-0:23456",
    "torchrun --use-distributed-optimizer": "given",
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
