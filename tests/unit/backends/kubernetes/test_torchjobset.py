"""A PyTorchJob as a JobSet: the same pods, what the training operator would set, and what cannot be had so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from fixtures.backends.base import LogPlace
from fixtures.backends.kubernetes.backend import KubernetesBackend
from fixtures.backends.kubernetes.facts import Pod
from fixtures.backends.kubernetes.pytorchjob import TorchJobSets
from fixtures.backends.kubernetes.section import Kubernetes
from fixtures.backends.section import Workload
from fixtures.served import make_backends
from fixtures.site import site_model
from plugins.base.errors import ConfigError
from plugins.recipes.contracts import SiteOverlay
from tests.unit import aks, examples

KIND = TorchJobSets()
# What setPodEnv of the training operator 1.8.1 and 1.9.4 sets, but for the ranks.
SET = {
    "PYTHONUNBUFFERED": "1",
    "MASTER_PORT": "23456",
    "PET_MASTER_PORT": "23456",
    "MASTER_ADDR": f"{aks.NAME}-node-0-0.{aks.NAME}",
    "PET_MASTER_ADDR": f"{aks.NAME}-node-0-0.{aks.NAME}",
}


def jobset(case_id: str = aks.LARGE) -> dict[str, Any]:
    _, job = KIND.rendered(aks.made(case_id))
    return job


@pytest.mark.parametrize(("case_id", "nodes"), [(aks.LARGE, 64), (aks.QUICK, 2), ("375m-fp16-8gpus", 1)])
def test_it_has_the_pods_of_the_pytorchjob_and_what_the_operator_sets(case_id: str, nodes: int) -> None:
    before = aks.made(case_id)
    template = aks.pods(before)["Master"]
    scripts, job = KIND.rendered(before)
    assert scripts == before[0]
    assert (job["apiVersion"], job["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    assert job["metadata"] == before[1]["metadata"]
    assert KIND.expected(job) == nodes
    assert job["spec"]["network"] == {"enableDNSHostnames": True, "publishNotReadyAddresses": False}
    (replicated,) = job["spec"]["replicatedJobs"]
    child = replicated["template"]["spec"]
    assert (child["completions"], child["completionMode"]) == (nodes, "Indexed")
    assert child["template"]["spec"]["restartPolicy"] == "Never"
    (container,) = child["template"]["spec"]["containers"]
    own, added = container["env"][:-9], container["env"][-9:]
    assert {**container, "env": own} == template["spec"]["containers"][0]
    assert {**child["template"]["spec"], "containers": None} == {
        **template["spec"],
        "containers": None,
        "restartPolicy": "Never",
    }
    plain = {entry["name"]: entry["value"] for entry in added if "value" in entry}
    assert plain == {**SET, "WORLD_SIZE": str(nodes), "PET_NNODES": str(nodes)}
    ranks = {entry["name"]: entry["valueFrom"]["fieldRef"]["fieldPath"] for entry in added[6:8]}
    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    assert ranks == {"RANK": index, "PET_NODE_RANK": index}


def test_names_fit_where_labels_and_host_names_have_63_characters() -> None:
    (replicated,) = jobset()["spec"]["replicatedJobs"]
    assert len(f"{aks.NAME:x<40}-{replicated['name']}-0-63-abcde") <= 63


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"runPolicy": {"schedulingPolicy": {"queue": "q"}}}, "spec.runPolicy of PyTorchJob"),
        ({"pytorchReplicaSpecs": {"Worker": {"scale": 1}}}, "Worker.scale of PyTorchJob"),
        (
            {"pytorchReplicaSpecs": {"Master": {"template": {"spec": {"priorityClassName": "high"}}}}},
            "a master and workers of different pods in PyTorchJob",
        ),
    ],
)
def test_what_a_jobset_cannot_be_is_told_with_what_to_do(change: dict[str, Any], words: str) -> None:
    overlay = [SiteOverlay(kind="PyTorchJob", merge={"spec": change})]
    section = Kubernetes(gpu="h100", recipes={"gpt3_aks": Workload(overlay=overlay)})
    recipe = examples.recipe_named("gpt3_aks")
    backend = KubernetesBackend("lab", section, [recipe], KIND)
    with pytest.raises(ConfigError, match=rf"^{words} \S+ cannot be had as a JobSet") as caught:
        backend.submit(aks.case(), "the-job")
    assert "mend: take it out of `overlay` in the site file, or install the operator" in str(caught.value)


def pod(host: str, life: str, uid: str) -> Pod:
    made = {
        "metadata": {"name": f"{host}-{life}", "uid": uid, "creationTimestamp": f"2026-11-21T09:00:0{uid}Z"}
    }
    return Pod(made)


def test_the_last_host_by_name_prints_the_steps_whatever_its_pods_are_called() -> None:
    pods = [pod(f"pm-node-0-{number}", "zzzzz" if number == 10 else "aaaaa", "1") for number in range(11)]
    pods.append(pod("pm-node-0-9", "bbbbb", "2"))
    found = KIND.log_pods(pods)
    assert [one.name for one in found[:2]] == ["pm-node-0-9-bbbbb", "pm-node-0-8-aaaaa"]
    assert len(found) == 11


def test_another_pod_says_more_of_the_same_log_and_one_made_anew_begins_another() -> None:
    first = KIND.place(pod("pm-node-0-1", "aaaaa", "1"), LogPlace())
    read = LogPlace(first.file, 100, first.attempt)
    assert KIND.place(pod("pm-node-0-1", "aaaaa", "1"), read) == read
    assert KIND.place(pod("pm-node-0-0", "aaaaa", "3"), read).attempt == 1
    anew = KIND.place(pod("pm-node-0-1", "bbbbb", "2"), read)
    assert (anew.offset, anew.attempt) == (0, 2)


def test_in_a_jobset_the_script_waits_for_the_master_and_says_who_it_is(tmp_path: Path) -> None:
    script = aks.Pod(tmp_path, aks.made(aks.QUICK))
    asked = tmp_path / "asked"
    (tmp_path / "bin" / "getent").write_text(
        f'#!/bin/bash\n[[ "$*" == "hosts the-master" ]] && {{ [[ -e {asked} ]] || {{ touch {asked}; exit 2; }}; }}\n'
    )
    (tmp_path / "bin" / "sleep").write_text("#!/bin/bash\n")
    for tool in ("getent", "sleep"):
        (tmp_path / "bin" / tool).chmod(0o755)
    for index, host in (("0", "1"), ("1", "0")):
        asked.unlink(missing_ok=True)
        done = script.run(JOB_COMPLETION_INDEX=index, MASTER_ADDR="the-master")
        assert (done.returncode, done.stderr) == (0, "")
        assert asked.exists()
        assert script.option("--rdzv_conf")[0] == f"is_host={host}"
        assert script.option("--rdzv_endpoint") == ["the-master:23456"]


def test_the_plan_shows_the_first_kind_and_that_the_cluster_decides(tmp_path: Path) -> None:
    site = site_model().model_validate(
        {"site": "lab", "pytorchjob": Kubernetes(gpu="h100", kubeconfig=str(tmp_path / "none"))}
    )
    backend = make_backends(site, [examples.recipe_named("gpt3_aks")], None)["pytorchjob"]
    text = backend.plan(aks.case(), "the-job")
    assert text.startswith(
        "# A PyTorchJob or, where the cluster has none, a JobSet: the cluster decides. This is the PyTorchJob.\n"
    )
    assert [document["kind"] for document in yaml.safe_load_all(text)] == ["ConfigMap", "PyTorchJob"]
